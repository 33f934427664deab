"""Parts of commands, without the jobs that they run."""

import dataclasses
import itertools
import os
import shlex
import time
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from jaxpe.analysis.comparison import compare_runs
from jaxpe.cli import batch, compare, main, pages
from jaxpe.cli import train as train_command
from jaxpe.cli.console import Bars
from jaxpe.cli.environment import set_environment
from jaxpe.training import TrainConfig
from jaxpe.training.config import read_config
from tests.analysis.runs import make_run


@pytest.mark.parametrize(
    ("pace", "items", "total", "lines"),
    [  # more than 20 seconds after the last line, or the beginning
        (15.0, range(5), None,
         ["x: 1 of 5, about 2 minutes left", "x: 3 of 5, about 40 seconds left"]),
        (10.0, range(4), None, ["x: 2 of 4, about 30 seconds left"]),
        (30.0, iter(range(2)), None, ["x: 1"]),
        (30.0, iter(range(2)), 1500, ["x: 1 of 1,500, about 25 hours left"]),
    ],
)  # fmt: skip
def test_lines_of_progress_come_now_and_then(monkeypatch, pace, items, total, lines):
    clock, said = itertools.count(0.0, pace), []
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    bars = Bars(TrainConfig, say=said.append)
    assert [*bars.track(items, "x", total=total)][:2] == [0, 1]
    assert said == lines


def test_progress_is_on_standard_error_unless_quiet(capsys):
    Bars(TrainConfig).say("pass `steps=3`, [x]")
    Bars(TrainConfig, quiet=True).say("nothing")
    assert capsys.readouterr() == ("", "pass --steps 3, [x]\n")


FLAGS = [
    f"--xla_{name}"
    for name in (
        "backend_optimization_level=1", "cpu_use_fusion_emitters=false",
        "cpu_parallel_codegen_split_count=1",
    )
]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "small", "flags", "expected"),
    [
        ("0.10.2", True, None, FLAGS),
        ("0.9.0", True, "--a --xla_cpu_use_fusion_emitters=true",
         ["--a", "--xla_cpu_use_fusion_emitters=true", FLAGS[0], FLAGS[2]]),
        ("0.11.0", True, None, None),
        ("0.10.2", False, None, None),
    ],
)  # fmt: skip
def test_small_programs_compile_quickly_on_versions_that_were_tested(
    monkeypatch, tmp_path, version, small, flags, expected
):
    own = {"JAXPE_CACHE_DIR": str(tmp_path), "MPLBACKEND": "qt"}
    monkeypatch.setattr(os, "environ", own | ({} if flags is None else {"XLA_FLAGS": flags}))
    monkeypatch.setattr(metadata, "version", lambda _: version)
    set_environment(small_programs=small)
    assert os.environ.get("XLA_FLAGS") == (expected and " ".join(expected))
    assert os.environ["MPLBACKEND"] == "agg"
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "compiled")
    assert os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] == "0.1"


def test_a_file_is_named_with_its_hash_or_its_size(monkeypatch, tmp_path):
    monkeypatch.setattr(pages, "_LARGEST_HASHED", 3)
    (tmp_path / "a").write_text("abc")  # the example of FIPS 180-2
    assert "(sha256 ba7816bf8f01cfea" in pages.file_identity(tmp_path / "a")
    (tmp_path / "b").write_text("abcd")
    assert pages.file_identity(tmp_path / "b") == "b (4 bytes)"


def test_configurations_get_three_seeds(tmp_path):
    losses = {0: 2.0, 4: 1.0}
    others = [make_run(tmp_path / f"b{k}", losses, encoding="rope", init_seed=k) for k in range(3)]
    runs = [make_run(tmp_path / "a", losses, init_seed=1), *others]
    options = compare.Command(runs=tuple(runs), mds_dim=3)
    *trained, last = compare.more_seeds(options, compare_runs(runs)).values()
    assert [line.partition("--init-seed ")[2][:1] for line in trained] == ["", "2"]  # 0: default
    folders = [*map(str, runs), *(str(tmp_path / f"a-init-{k}") for k in (0, 2))]
    assert shlex.split(last)[2 : 2 + len(folders)] == folders
    assert compare.more_seeds(options, compare_runs(others[:2])) == {}


CONFIG = TrainConfig(out=Path("x/run"))


@pytest.mark.parametrize(
    ("changes", "names", "length"),
    [
        ({}, ("extend", "none", "seed", "compare", "spectral", "audit"), "--steps 800"),
        ({"steps": 30}, ("extend", "none", "seed", "compare", "spectral", "audit"), "--steps 60"),
        ({"epochs": 3.0, "encoding": "none"}, ("extend", "seed", "compare", "spectral", "audit"),
         "--epochs 6.0"),
        ({"encoding": "mine:made"}, ("extend", "none", "seed", "compare"), "--encoding mine:made"),
        ({"task": "translate"}, ("extend", "none", "seed", "compare"), "--steps 800"),
        ({"pretrained": "m"}, ("extend", "seed", "compare", "spectral", "audit"), "--steps 800"),
    ],
)  # fmt: skip
def test_commands_after_a_run_are_those_that_it_can_run(changes, names, length):
    commands = train_command.next_commands(dataclasses.replace(CONFIG, **changes))
    assert tuple(commands) == names
    assert length in commands["extend"]
    assert commands["compare"] == "jaxpe compare x/run x/run-init-1"


@pytest.mark.parametrize(
    ("one", "said"),
    [((0, 0, 0.25, 0.2, 1.1), "0   0.2500 (0.2000 to 1.1000)"),
     ((1, 4, 0.5, 0.0, 1.0), "1 to 4   0.5000 (too few documents)")],
)  # fmt: skip
def test_shares_of_offsets_have_intervals_where_documents_tell(
    monkeypatch, capsys, tmp_path, one, said
):
    fields = ("first", "last", "share", "low", "high")

    class Result:
        passed, text = True, staticmethod(str)

        @staticmethod
        def shares():
            return [SimpleNamespace(**dict(zip(fields, one, strict=True)))]

    monkeypatch.setattr(batch, "check_batches", lambda *_, **__: Result)
    monkeypatch.setattr(batch, "batch_offsets", lambda *_, **__: Result)
    batch.run([str(tmp_path / "a.npz")])
    assert capsys.readouterr().out.splitlines()[-1].strip() == said


def test_a_signal_says_how_to_go_on(tmp_path):
    folder = make_run(tmp_path / "run", {0: 2.0, 8: 1.0})
    saved = dataclasses.replace(read_config(folder), resume=False)
    longer, shorter = (dataclasses.replace(saved, steps=steps) for steps in (16, 4))
    said = [
        train_command._resume_message(config, ["x"])
        for config in (None, saved, longer, shorter, dataclasses.replace(saved, resume=True))
    ]
    starts = ["To start again: jaxpe train x", *2 * ["No step is saved yet. To start again: "],
              "Nothing is saved yet. To start again: jaxpe train x",
              "No step is saved yet. To start again: jaxpe train x"]  # fmt: skip
    assert [text.startswith(start) for text, start in zip(said, starts, strict=True)] == [True] * 5
    assert "--resume" in said[1]
    assert "--resume" not in said[4]


@pytest.mark.parametrize(("length", "covered"), [(64, True), (65, False)])
def test_a_text_as_long_as_the_context_needs_no_other_settings(command, length, covered):
    words = ("--head-dim", 16, "--base", 10_000.0, "--context", 64, "--length", length)
    code, out, err = command("rope", *words)
    assert code == 0, err
    assert ("covers 64 positions" in " ".join(out.split())) == covered


def test_long_names_are_cut_in_a_line(capsys):
    with pytest.raises(SystemExit) as stop:
        main._fail("a" * 300 + " " + "b" * 239, code=7)
    assert stop.value.code == 7
    assert capsys.readouterr().err == f"jaxpe: {'a' * 100}…{'a' * 40} {'b' * 239}\n"
