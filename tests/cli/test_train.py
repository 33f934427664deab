"""`jaxpe train` as a person types it: a run is never overwritten, and how it goes on is said."""

import dataclasses
import shlex

from jaxpe.cli import train as command_module
from jaxpe.cli.commands import options_class
from jaxpe.cli.parsing import parse
from jaxpe.training.config import save_config
from tests.analysis.runs import make_run


def config_of(*words):
    """Configuration of a command line."""
    words = list(map(str, words))
    return command_module.read_options(parse(options_class("train"), words), words)


def test_a_run_is_neither_overwritten_nor_changed(command, films, tmp_path):
    def contents():
        return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}

    small = {"model": dataclasses.replace(config_of().model, dim=8)}
    out = make_run(tmp_path / "run", {0: 2.0, 4: 1.0}, **small)
    before = contents()
    code, _, err = command("train", films, "--out", out)
    assert (code, f"{out} already holds a run" in err, "--resume" in err) == (2, True, True)
    # An option with its default value, too, is noticed where the run had another.
    code, _, err = command("train", "--resume", "--out", out, "--model.dim", 128)
    assert (code, "--model.dim (8)" in err) == (2, True)
    assert {name: content for name, content in contents().items() if name != ".lock"} == before


def test_several_sources_on_the_command_line(tmp_path):
    words = ["a.txt", "data/*.txt", "--steps", "20", "--out", str(tmp_path)]
    config = config_of(*words)
    assert config.source == ("a.txt", "data/*.txt")
    save_config(config)
    assert config_of("--resume", "--out", tmp_path).source == config.source
    assert config_of("a.txt").source == "a.txt"


def test_ctrl_c_says_how_to_go_on(command, films, tmp_path, monkeypatch):
    def stopped(config, **options):
        if saved:
            save_config(config)
        raise KeyboardInterrupt

    def shown(words):
        """The command line in what is printed where training stops."""
        code, _, err = command("train", *words)
        assert code == 130
        return shlex.split(err.strip().rpartition(": ")[2])

    monkeypatch.setattr(command_module, "train", stopped)
    words = [str(films), "--encoding", "rope+t5", "--out", str(tmp_path / "my run")]
    again, saved = ["jaxpe", "train", *words], False
    assert shown(words) == again
    saved = True
    assert shown(words) == [*again, "--resume"]
    # The same words with `--resume` are the same run, and go on again.
    resumed = config_of(*words, "--resume")
    assert dataclasses.replace(resumed, resume=False) == config_of(*words)
    assert shown([*words, "--resume"]) == [*again, "--resume"]
