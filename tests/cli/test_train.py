"""`jaxpe train` as a person types it: what it prints, writes and refuses."""

import contextlib
import dataclasses
import html
import io
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from rich.console import Console

from jaxpe.analysis.training_run import choices, read_run
from jaxpe.cli import main as cli
from jaxpe.cli.parsing import parse, plain
from jaxpe.cli.train import Command, next_commands, parse_config
from jaxpe.report import pace, trained_summary, training_table
from jaxpe.report.training_figures import (
    PLACES,
    SCORES,
    curves_figure,
    probe_figure,
    training_figures,
)
from jaxpe.training import (
    Evaluations,
    NonFiniteLoss,
    TrainConfig,
    TrainSummary,
    read_log,
)
from jaxpe.training.config import load_config, save_config

SMALL = ("--model.dim", 8, "--model.layers", 1, "--model.heads", 2, "--length", 8)


@pytest.fixture
def run(command):
    """Run `jaxpe train ...`; returns exit code, standard output and standard error."""
    return lambda *words: command("train", *words)


class Runs(NamedTuple):
    """A run, what it printed, and a copy."""

    whole: Path
    printed: str
    parts: Path


@pytest.fixture(scope="module")
def runs(films, tmp_path_factory):
    whole, parts = (tmp_path_factory.mktemp("runs") / name for name in ("whole", "parts"))
    often = ("--evaluate-every", 5, "--checkpoint-every", 20, "--probe-at", 0, 30)
    words = (films, *SMALL, *often, "--steps", 60, "--model.dropout", 0.2, "--out", whole)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setattr(sys, "argv", ["jaxpe", "train", *map(str, words)])
        cli.main()
    shutil.copytree(whole, parts)
    return Runs(whole, out.getvalue(), parts)


def test_a_run_prints_a_table_and_draws_its_figures(runs):
    lines = runs.printed.splitlines()
    assert lines[0] == "films.tsv: classify, 108 documents, 23 tokens in the vocabulary"
    assert lines[1].startswith("learned: ")
    assert [line[:11] for line in lines[2:4]] == ["step      0", "step      5"]
    for words in ("held-out step", "accuracy", "violation rate", "films.tsv: classify, learned"):
        assert words in runs.printed
    assert max(map(len, lines[:4])) <= 80
    assert f"jaxpe train --steps 120 --out {runs.whole} --resume" in runs.printed.replace("\n", "")
    assert re.fullmatch(r"Run: .*/whole/train\.html   \(\d+ s, [\d,]+ tokens/s\)", lines[-1])
    for name in ("curves.png", "probe.png"):
        assert (runs.whole / "figures" / name).read_bytes().startswith(b"\x89PNG")


def test_the_page_says_what_was_trained_and_what_to_run_next(runs):
    run = read_run(runs.whole)
    text = html.unescape((runs.whole / "train.html").read_text())
    assert trained_summary(run) in text
    shown = text.replace("<span>", "").replace("</span>", "")
    commands = next_commands(run.config)
    assert {"extend", "seed", "compare"} <= commands.keys()
    for line in commands.values():
        assert line in shown
    for choice in choices(run).values():
        assert choice.value in text
    assert text.count("data:image/svg") == 2


def test_commands_on_the_page_mean_what_they_say(runs):
    """Parsed again, each is the run it stands for."""
    saved = load_config(runs.whole)
    found = {name: shlex.split(line)[2:] for name, line in next_commands(saved).items()}
    assert parse_config(found["extend"]) == dataclasses.replace(saved, steps=120)
    out = runs.whole.with_name("whole-init-1")
    seed = dataclasses.replace(saved, init_seed=1, out=out, resume=False)
    assert parse_config(found["seed"]) == seed
    assert found["compare"] == [str(runs.whole), str(out)]


def test_runs_are_compared(command, runs, tmp_path):
    code, out, err = command("compare", runs.whole, runs.parts, "--out", tmp_path)
    assert code == 0, err
    assert "differ in their seeds alone" in " ".join(out.split())
    assert (tmp_path / "comparison.html").exists()
    code, _, err = command("compare", runs.whole, tmp_path / "no", "--out", tmp_path)
    assert code == 2
    assert "no holds no run" in err


def test_figures_show_the_log(runs):
    history = read_log(runs.whole / "log.jsonl")
    panels = curves_figure(history).axes
    for axis, name in zip(panels, ("loss", "accuracy"), strict=True):
        each, smooth, held_out = (line.get_ydata() for line in axis.lines)
        factor = 100 if name == "accuracy" else 1
        evaluated = [factor * r[f"eval/{name}"] for r in history if f"eval/{name}" in r]
        np.testing.assert_allclose(each, [factor * r[name] for r in history[1:]])
        np.testing.assert_allclose(held_out, evaluated)
        np.testing.assert_allclose(smooth[1:-1], (each[:-2] + each[1:-1] + each[2:]) / 3)
    panels = {axis.get_title(loc="left"): axis for axis in probe_figure(history).axes}
    stress = panels["raw stress, Eq. (4)"].lines[2].get_ydata()
    probed = [r["probe/position/stress"] for r in history if "probe/position/stress" in r]
    np.testing.assert_allclose(stress, probed)
    assert len(panels) == 6
    assert len(stress) == 3


def test_what_is_not_finite_is_drawn_as_a_gap_and_printed_as_such():
    scores = {f"probe/{where}/{name}": None for where, *_ in PLACES for name, _ in SCORES}
    history = [{"step": 0, "eval/loss": None, **scores}, {"step": 1, "loss": 2.0, "eval/loss": 1.0}]
    assert [figure.name for figure in training_figures(history)] == ["curves", "probe"]
    assert [figure.name for figure in training_figures(history[1:])] == ["curves"]
    record = {"step": 0, "loss": None, "accuracy": 0.0, "occupied/stress": None}
    numbers = dict.fromkeys(("documents", "held_out", "vocab_size", "length", "parameters"), 1)
    summary = TrainSummary(
        source="[red]", task="causal", encoding="rope", **numbers, steps=1, seconds=61.7,
        tokens_per_second=5123.4, evaluation=Evaluations(record, record, record),
        probe={"first": record, "last": record},
    )  # fmt: skip
    assert pace(summary) == "62 s, 5,100 tokens/s"
    assert pace(summary._replace(tokens_per_second=None)) == "62 s"
    console = Console(width=80, file=io.StringIO())
    console.print(training_table(summary))
    text = console.file.getvalue()
    assert "[red]: causal, rope" in text
    assert re.search(r"perplexity +n/a +n/a +n/a", text)


def test_a_finished_run_is_neither_overwritten_nor_changed(run, runs, films):
    def contents():
        return {path.name: path.read_bytes() for path in runs.whole.iterdir() if path.is_file()}

    before = contents()
    code, _, err = run(films, *SMALL, "--out", runs.whole)
    assert code == 2
    assert f"{runs.whole} already holds a run: add --resume" in err
    # An option with its default value, too, is noticed where the run had another.
    code, _, err = run("--resume", "--out", runs.whole, "--model.dim", 128, "--steps", 60)
    assert code == 2
    assert "--model.dim (8): leave these options out" in err
    assert contents() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--encoding", "rop"), "--encoding: no encoding 'rop'; did you mean 'rope'?"),
        (("nowhere.tsv",), "no such file: nowhere.tsv"),
        (("--resume", "--out", "nowhere"), "nowhere holds no run to resume"),
        (("--steps", 0), "--steps is 0; pass at least 1"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(run, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith("jaxpe: ")
    assert err.count("\n") == 1
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_several_sources_on_the_command_line(tmp_path):
    words = ["a.txt", "data/*.txt", "--steps", "20", "--out", str(tmp_path)]
    config = parse_config(words)
    assert config.source == ("a.txt", "data/*.txt")
    save_config(config)
    assert parse_config(["--resume", "--out", str(tmp_path)]).source == config.source
    assert "jaxpe train a.txt 'data/*.txt' --steps 20" in next_commands(config)["seed"]
    assert parse_config(["a.txt"]).source == "a.txt"


def test_help_explains_every_option(run):
    code, out, _ = run("--help")
    assert code == 0
    text = " ".join(out.replace("│", " ").split())
    for words in ("--encoding", "width of the embeddings", "--resume"):
        assert words in text


def test_without_the_extra_the_line_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    code, _, err = run()
    assert code == 2
    assert err == (
        "jaxpe: orbax.checkpoint is not installed; it comes with the extra 'train': "
        "pip install 'jaxpe[train]'\n"
    )


def stopped_run(run, monkeypatch, *words, saved=None, checkpoint=False):
    """What is printed where training stops once the folder holds what is saved."""

    def stopped(config, **options):
        if saved is not None:
            save_config(dataclasses.replace(config, **saved))
        if checkpoint:
            (config.out / "checkpoints" / "3").mkdir(parents=True)
            (config.out / "checkpoints" / "3" / "seal.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr("jaxpe.cli.train.train", stopped)
    code, _, err = run(*words)
    assert code == 130
    about, _, line = err.strip().partition(": ")
    return about, shlex.split(line)


def test_ctrl_c_says_how_to_go_on(run, films, tmp_path, monkeypatch):
    words = (films, "--out", tmp_path / "my run")
    found = stopped_run(run, monkeypatch, *words, saved={}, checkpoint=True)
    again = ["jaxpe", "train", "--out", str(tmp_path / "my run"), "--resume"]
    assert found == ("To go on", again)
    # Resumed by whatever words, the same ones go on.
    assert stopped_run(run, monkeypatch, *again[2:]) == ("To go on", again)
    longer = [*again[2:], "--steps", "900"]
    assert stopped_run(run, monkeypatch, *longer)[1] == ["jaxpe", "train", *longer]


def test_ctrl_c_before_anything_is_saved_says_how_to_start_again(run, films, tmp_path, monkeypatch):
    words = [str(films), "--out", str(tmp_path / "my run"), "--probe-at", "--steps", "3"]
    about, line = stopped_run(run, monkeypatch, *words)
    assert (about, line) == ("Nothing is saved yet. To start again", ["jaxpe", "train", *words])
    # A folder without a checkpoint is resumed, too, from its first step.
    about, line = stopped_run(run, monkeypatch, *words, saved={})
    assert about == "No step is saved yet. To start again"
    assert line[-1] == "--resume"
    # Another run in the folder is not gone on with.
    other = [str(films), "--out", str(tmp_path / "my run"), "--seed", "1"]
    assert stopped_run(run, monkeypatch, *other)[1] == ["jaxpe", "train", *other]


def test_ctrl_c_with_an_encoding_of_ones_own_names_its_module(run, films, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("import jaxpe\n\n\ndef made(sizes):\n    return None\n")
    monkeypatch.syspath_prepend(tmp_path)
    words = (films, "--encoding", "mine:made", "--out", tmp_path / "run")
    _, line = stopped_run(run, monkeypatch, *words, saved={}, checkpoint=True)
    again = TrainConfig(encoding="mine:made", out=tmp_path / "run", resume=True)
    assert plain(parse(Command, line[2:]), TrainConfig) == again


def test_nan_is_one_line_and_exit_1(run, monkeypatch):
    from jaxpe.cli import train

    def fails(config, **options):
        raise NonFiniteLoss("not finite at step 7: loss nan", step=7)

    monkeypatch.setattr(train, "train", fails)
    assert run() == (1, "", "jaxpe: not finite at step 7: loss nan\n")


def test_other_commands_do_not_import_flax():
    others = ", ".join(f"jaxpe.cli.{name}" for name in ("main", "report", "encodings", "count"))
    code = f"import sys, {others}; print({{'flax', 'optax'}} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
