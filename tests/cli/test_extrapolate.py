"""`jaxpe extrapolate` as a person types it: its files, how it goes on, and what it refuses."""

import contextlib
import io
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from jaxpe.analysis.extrapolation import PRESETS, variant_names
from jaxpe.cli import main as cli
from jaxpe.cli.extrapolate import run
from tests.compilation import compilations

WORDS = (
    "--tasks", "parity", "running_sum_causal", "--encodings", "none", "learned", "--seeds", 2,
    "--steps", 4, "--length", 2, "--factors", 1, 2, "--batch", 4,
)  # fmt: skip


class Ran(NamedTuple):
    out: Path
    printed: str
    said: str
    found: dict
    programs: list[str]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    out = tmp_path_factory.mktemp("extrapolation")
    printed, said = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(said),
    ):
        patch.setenv("JAXPE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
        patch.setattr(sys, "argv", ["jaxpe", "extrapolate", *map(str, WORDS), "--out", str(out)])
        with compilations() as programs:
            cli.main()
    found = json.loads((out / "extrapolation.json").read_text())
    return Ran(out, printed.getvalue(), said.getvalue(), found, programs)


def test_an_encoding_is_tested_at_all_lengths_by_one_program(ran):
    assert len(ran.programs) <= 32
    assert ran.programs.count("jit(at_lengths)") <= len(ran.found["cells"])


def cells(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*-*-*.*")}


def test_every_cell_is_there(ran):
    found = {(x["suite"], x["task"], x["encoding"]): x for x in ran.found["cells"]}
    assert list(found) == [
        ("strings", "parity", "none"),
        ("strings", "parity", "learned"),
        ("running sums", "running_sum_causal", "none"),
        ("running sums", "running_sum_causal", "learned"),
    ]
    assert all(x["lengths"] == [2, 4] for x in found.values())
    assert found["strings", "parity", "learned"]["defined"] == [True, False]
    assert [x["seeds"] for x in ran.found["suites"]] == [2, 2]
    lines = re.findall(r"^(\w+, \w+): \d+ s, (\d) to go", ran.said, re.MULTILINE)
    assert lines == [(f"{task}, {name}", f"{3 - i}") for i, (_, task, name) in enumerate(found)]


def test_what_was_found_comes_first(ran):
    page = (ran.out / "extrapolation.html").read_text()
    assert ran.printed.startswith("In “strings”, models were trained")
    assert 'class="lead prose">In “strings”, models were trained' in page
    assert ran.found["comparisons"] == []  # `learned` has no scores beyond T


def test_names_are_listed(capsys):
    run(["--list"])
    listed = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert {*PRESETS, *variant_names()} <= listed.keys()
    assert "Peng et al. 2023" in listed["rope_yarn"]


def test_tables_page_and_figures_are_there(ran):
    assert "strings, parity: accuracy in %" in ran.printed
    assert re.search(r"^ +learned .* undefined ", ran.printed, flags=re.MULTILINE)
    assert "running sums: ranks beyond T" in ran.printed
    page = ran.out / "extrapolation.html"
    assert str(page) in ran.printed.replace("\n", "")
    assert page.read_text().count("data:image/svg+xml") == 3
    assert sorted(path.suffix for path in (ran.out / "figures").iterdir()) == [
        ".svg", ".svg", ".svg", ".tex"
    ]  # fmt: skip


def test_the_same_again_trains_nothing(ran, command, monkeypatch):
    monkeypatch.setattr("jaxpe.analysis.extrapolation.cells.trainer", None)
    before = cells(ran.out)
    assert len(before) == 8
    code, out, _ = command("extrapolate", *WORDS, "--out", ran.out)
    assert code == 0
    assert cells(ran.out) == before
    again = json.loads((ran.out / "extrapolation.json").read_text())
    assert again["cells"] == ran.found["cells"]
    # Fewer of the same are the same ones, and figures of the others go.
    fewer = [x for x in WORDS if x not in ("running_sum_causal", "learned")]
    code, out, _ = command("extrapolate", *fewer, "--out", ran.out)
    assert code == 0
    assert "ranks" not in out
    assert sorted(path.name for path in (ran.out / "figures").iterdir()) == [
        "captions.tex",
        "lengths_1.svg",
    ]
    assert cells(ran.out) == before


def test_other_settings_need_another_folder(ran, command):
    code, _, err = command("extrapolate", *WORDS, "--out", ran.out, "--seed", 1)
    assert (code, err.count("\n")) == (2, 1)
    assert "strings-parity-none.json was made with other settings" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--preset", "papr"), "unknown preset 'papr': did you mean 'paper'?"),
        (("--tasks", "partiy"), "unknown task 'partiy': did you mean 'parity'?"),
        (("--encodings", "alibbi"), "unknown encoding 'alibbi': did you mean 'alibi'?"),
        (("--tasks", "copy", "copy"), "--tasks are copy, copy: pass each one once"),
        (("--factors", "2", "4"), "--factors are (2, 4): pass 1 and then larger ones"),
        (("--seeds", "0"), "--seeds is 0; pass at least 1"),
    ],
)
def test_bad_input_is_one_line(command, tmp_path, words, said):
    code, _, err = command("extrapolate", "--out", tmp_path, *words)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("jaxpe: ")
    assert said in err
