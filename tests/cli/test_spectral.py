"""`jaxpe spectral` as a person types it: its table, page and numbers; what it refuses."""

import contextlib
import io
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from jaxpe.analysis import load_result
from jaxpe.analysis.attention import AttentionAnalysis
from jaxpe.cli import main as cli
from tests.analysis.inspect.folders import text, with_tokenizer
from tests.compilation import compilations

PARITY = Path(__file__).parents[1] / "parity"


class Ran(NamedTuple):
    out: Path
    printed: str
    found: dict
    programs: list[str]


@pytest.fixture(scope="module")
def ran(films, tmp_path_factory):
    out = tmp_path_factory.mktemp("spectral")
    words = ["jaxpe", "spectral", films, "--examples", 12, "--length", 6, "--out", out]
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setenv("JAXPE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
        patch.setattr(sys, "argv", list(map(str, words)))
        with compilations() as programs:
            cli.main()
    return Ran(out, printed.getvalue(), json.loads((out / "spectral.json").read_text()), programs)


def test_a_stage_is_one_program(ran):
    assert len(ran.programs) <= 27


def test_the_table_has_a_row_for_each_layer(ran):
    rows = re.findall(r"^ +(\d) .*\d\.\d +\d *$", ran.printed, flags=re.MULTILINE)
    assert rows == ["0", "1"]
    assert "points" in ran.printed
    assert "as initialised" in ran.printed
    assert str(ran.out / "spectral.html") in ran.printed.replace("\n", "")


def test_the_numbers_are_of_every_layer_and_head(ran):
    found, n = ran.found, ran.found["facts"]["positions"]
    assert found["facts"]["documents"] == 12
    for name in ("toeplitz", "circulant", "szego", "effective_rank", "condition", "range"):
        assert np.shape(found["means"][name]) == (2, 4)
    assert np.shape(found["means"]["diagonals"]) == (2, 4, 2 * n - 1)
    assert np.shape(found["means"]["symbol"]["imaginary"]) == (2, 4, 65)
    saved = load_result(AttentionAnalysis, ran.out / "spectral.json")
    assert saved.means.logits.shape == (2, 4, n, n)
    assert saved.facts.score == "accuracy"
    share, cross = np.array(found["parts"]["share"]), np.array(found["parts"]["cross"])
    np.testing.assert_allclose(share.sum(axis=-1) + cross, 1, atol=1e-4)
    # What is learned by no layer yet is the table: both ways to see it agree in the first.
    np.testing.assert_allclose(share[0], np.array(found["embedded"]["share"])[0], atol=0.4)
    assert [drops["kind"] for drops in found["ablations"]] == ["zero", "mean"]
    assert found["ablations"][0]["documents"] == 96
    assert "seconds" not in found  # of a run, and not of its result


def test_the_page_is_self_contained_and_says_what_was_scored(ran):
    page = (ran.out / "spectral.html").read_text()
    assert page.count("<figure") == page.count("data:image/svg+xml") == 8
    assert not re.search(r"src=\"http", page)
    assert "accuracy" in page
    assert "over 96 documents" in page
    for path in (ran.out / "figures").glob("*.svg"):
        assert path.stat().st_size < 200_000
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--length", 3), "--length is 3; pass at least 4"),
        (("--examples", 2), "--examples is 2; pass at least 4"),
        (("--model", "nowhere"), "nowhere is not a directory"),
        (("--model", PARITY / "tiny_bert", "--task", "classify"), "no head trained for it"),
        (("--model", PARITY / "tiny_llama"), "no tokenizer.json"),
        (("--model", PARITY / "tiny_llama", "--task", "mlm"), "predicts the next token"),
    ],
)
def test_bad_input_is_one_line(command, films, tmp_path, words, said):
    code, _, err = command("spectral", films, "--out", tmp_path, *words)
    assert code == 2
    assert err.startswith("jaxpe: ")
    assert said in err
    assert err.count("\n") == 1


def test_layers_that_differ_are_refused(command, tmp_path):
    folder = with_tokenizer("models/gemma3", tmp_path / "gemma3")
    lines = text(tmp_path / "text.txt")
    code, _, err = command("spectral", lines, "--model", folder, "--out", tmp_path / "out")
    assert (code, err.count("\n")) == (2, 1)
    assert "encodings that differ by layer" in err


def test_what_is_no_model_or_too_short_is_said(command, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "resnet"}')
    code, _, err = command("spectral", "--model", tmp_path, "--out", tmp_path / "out")
    assert (code, err.count("\n")) == (2, 1)
    assert "model_type is 'resnet'" in err
    short = tmp_path / "short.txt"
    short.write_text("\n".join(f"word{k} and" for k in range(40)))
    code, _, err = command("spectral", short, "--out", tmp_path / "out")
    assert (code, err.count("\n")) == (2, 1)
    assert "only 2 positions of text in common" in err
