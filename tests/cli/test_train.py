"""`jaxpe train` as a person types it: what it prints, writes and refuses."""

import dataclasses
import shlex
import subprocess
import sys

import pytest

from jaxpe.cli import train as command_module
from jaxpe.cli.commands import options_class
from jaxpe.cli.parsing import parse
from jaxpe.training import NonFiniteLoss
from jaxpe.training.config import save_config

SMALL = ("--model.dim", 8, "--model.layers", 1, "--model.heads", 2, "--length", 8)


@pytest.fixture
def run(command):
    """Run `jaxpe train ...`; returns exit code, standard output and standard error."""
    return lambda *words: command("train", *words)


def config_of(*words):
    """Configuration of a command line."""
    words = list(map(str, words))
    return command_module.read_options(parse(options_class("train"), words), words)


def test_a_run_has_a_page_and_is_neither_overwritten_nor_changed(run, films, tmp_path):
    def contents():
        return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}

    out = tmp_path / "run"
    often = ("--evaluate-every", 5, "--checkpoint-every", 20, "--probe-at", 0, 10)
    code, printed, err = run(films, *SMALL, *often, "--steps", 20, "--out", out)
    assert code == 0, err
    lines = printed.splitlines()
    assert lines[0] == "films.tsv: classify, 108 documents, 23 tokens in the vocabulary"
    assert f"Page: {out}/train.html" in printed.replace("\n", "")
    for path in (out / "figures").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    before = contents()
    code, _, err = run(films, *SMALL, "--out", out)
    assert code == 2
    assert f"{out} already holds a run: add --resume" in err
    # An option with its default value, too, is noticed where the run had another.
    code, _, err = run("--resume", "--out", out, "--model.dim", 128, "--steps", 20)
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
    config = config_of(*words)
    assert config.source == ("a.txt", "data/*.txt")
    save_config(config)
    assert config_of("--resume", "--out", tmp_path).source == config.source
    assert config_of("a.txt").source == "a.txt"


def stopped_run(run, monkeypatch, *words, saved=False):
    """What is printed where training stops, and the command line in it."""

    def stopped(config, **options):
        if saved:
            save_config(config)
        raise KeyboardInterrupt

    monkeypatch.setattr(command_module, "train", stopped)
    code, _, err = run(*words)
    assert code == 130
    about, _, line = err.strip().rpartition(": ")
    return about, shlex.split(line)


def test_ctrl_c_says_how_to_go_on(run, films, tmp_path, monkeypatch):
    words = [str(films), "--encoding", "rope+t5", "--out", str(tmp_path / "my run")]
    again = ["jaxpe", "train", *words]
    nothing = stopped_run(run, monkeypatch, *words)
    assert nothing == ("Nothing is saved yet. To start again", again)
    found = stopped_run(run, monkeypatch, *words, saved=True)
    assert found == ("To go on", [*again, "--resume"])
    # The same words with `--resume` are the same run, and go on again.
    assert dataclasses.replace(config_of(*found[1][2:]), resume=False) == config_of(*words)
    assert stopped_run(run, monkeypatch, *found[1][2:]) == found


def test_nan_is_one_line_and_exit_1(run, monkeypatch):
    def fails(config, **options):
        raise NonFiniteLoss("not finite at step 7: loss nan", step=7)

    monkeypatch.setattr(command_module, "train", fails)
    assert run() == (1, "", "jaxpe: not finite at step 7: loss nan\n")


def test_other_commands_do_not_import_flax():
    code = (
        "import sys\nfrom jaxpe.cli.commands import *\n"
        "for name in ('encodings', 'count', 'merge', 'rope'): options_class(name)\n"
        "import jaxpe.cli.main, jaxpe.cli.pages\nprint({'flax', 'optax'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
