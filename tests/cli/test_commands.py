"""What every command refuses, how it ends, and what its help shows."""

import importlib
import inspect
import io
import os
import re
import shlex
import subprocess
import sys

import jax
import jaxlib
import numpy as np
import pytest

import jaxpe
from jaxpe import encodings
from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT
from jaxpe.analysis.counts import CountOptions, count
from jaxpe.cli.commands import COMMANDS, load, options_class
from jaxpe.cli.environment import set_environment
from jaxpe.cli.parsing import parse
from tests.analysis.inspect.folders import PARITY, with_tokenizer
from tests.analysis.runs import make_run
from tests.compilation import compilations


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_help_and_an_example_that_can_be_parsed(command, name):
    code, out, _ = command(name, "--help")
    assert code == 0
    assert COMMANDS[name].example in " ".join(re.sub("[│╭╰─╮╯]", " ", out).split())
    for noise in ("{None}", "[STR", "(default: )", "(default: None)", "POSIXPATH", "None|"):
        assert noise not in out
    # An example names a module that the reader has.
    example = COMMANDS[name].example.replace(" my_module:mine", "")
    program, word, *words = shlex.split(example)
    assert (program, word) == ("jaxpe", name)
    options = parse(options_class(name), words)
    assert isinstance(options, load(COMMANDS[name].options))
    if COMMANDS[name].job:
        inspect.signature(load(COMMANDS[name].job)).bind(object(), progress=SILENT)


def test_the_command_line_is_listed_and_run_as_a_module(command):
    code, out, _ = command("--help")
    assert (code, out.count("$ jaxpe ")) == (0, len(COMMANDS))
    words = [sys.executable, "-m", "jaxpe", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == f"jaxpe {jaxpe.__version__}\n"


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    """Files of no use, by name."""
    folder = tmp_path_factory.mktemp("bad")
    contents = {"empty": "\n\n", "one": "alone", "lines": "one two three\n" * 3, "v": "[1]"}
    for name, content in contents.items():
        (folder / f"{name}.txt").write_text(content)
    (folder / "v.txt").rename(folder / "v.json")
    (folder / "bytes.txt").write_bytes(b"fine\nbad \xff\n")
    (folder / "cut.npz").write_bytes(b"PK\x03\x04 cut")
    np.arange(9, dtype="<u2").tofile(folder / "ids.bin")
    with_tokenizer("tiny_llama", folder / "model")
    np.save(folder / "nan.npy", np.full((4, 3), np.nan))
    np.save(folder / "huge.npy", np.array([[1, 2], [2**40, 0]]))
    np.savez(folder / "text.npz", position_ids=[[0, 1]], labels=np.zeros((1, 2), "S3"))
    source = (str(folder / "lines.txt"),)
    count(CountOptions(sources=source, length=3, folds=4, nulls=0), folder / "counts")
    for name in ("run", "begun"):
        make_run(folder / name, {0: 2.0, 4: 1.0})
    (folder / "begun" / "log.jsonl").write_text('{"step": 0, "eval/loss": 2.0}\n')
    return folder


BAD = [
    ("report nowhere.txt", "no such file"),
    ("report empty.txt", "no documents"),
    ("report one.txt", "one document"),
    ("report lines.txt --length 9", "longest has 3"),
    ("report bytes.txt", "line 2"),
    ("report nan.npy", "float64"),
    ("report huge.npy", str(2**40)),
    ("report lines.txt --dim 5", "--dim"),
    (f"report lines.txt --seed {2**65}", f"--seed is {2**65}"),
    ("report lines.txt --tokenizer syllables", "words"),
    ("report synthetic --length 5000", "--length"),
    ("report synthetic --splits 0", "--splits"),
    ("report synthetic --data-dir no", "--data-dir"),
    ("report synthetic --encodings no_such_module:mine", "no_such_module"),
    ("report --counts counts --cohort", "--cohort"),
    ("count", "no files"),
    ("count -", "standard input"),
    ("count bytes.txt", "bytes.txt, line 2"),
    ("count lines.txt --folds 2", "--folds is 2"),
    ("count lines.txt --length 1000000000 --tokenizer bytes", "memory"),
    ("count lines.txt --vocab /dev/zero", "/dev/zero"),
    ("count lines.txt --vocab v.json", "not a string"),
    ("count lines.txt --part 1 --parts 2", "--parts"),
    ("count lines.txt --tokenizer bytes --max-vocab 9", "--max-vocab"),
    ("count ids.bin lines.txt", "ids.bin"),
    ("count ids.bin --tokenizer words", "text"),
    ("count ids.bin --tokenizer ids", "--vocab-size"),
    ("count ids.bin --tokenizer ids --vocab-size 2", "2"),
    ("count lines.txt --vocab-size 9", "--separator"),
    ("merge counts counts", "twice"),
    ("merge counts", "two"),
    ("merge counts run", "counts.npz"),
    ("compare no nil", "no holds no run"),
    ("compare run counts", "one kind"),
    ("compare run", "two"),
    ("compare run run", "twice"),
    ("compare run begun", "begun"),
    ("compare counts", "two"),
    ("audit lines.txt --steps 0", "--steps is 0"),
    ("audit lines.txt --model nowhere", "nowhere"),
    ("inspect nowhere lines.txt", "nowhere"),
    (f"inspect {PARITY / 'tiny_llama'} lines.txt", "tokenizer.json"),
    (f"inspect {PARITY / 'tiny_llama'} lines.txt --length 3", "--length is 3"),
    (f"inspect {PARITY} lines.txt", "tiny_bert"),
    ("inspect model lines.txt --longest 63", "--longest is 63"),
    ("inspect model lines.txt", "too short"),
    ("inspect model lines.txt --tokenizer no.json", "no.json"),
    ("train lines.txt --encoding rop", "'rope'"),
    ("train nowhere.tsv", "no such file"),
    ("train --resume", "no run"),
    ("train lines.txt --steps 0", "--steps is 0"),
    ("extrapolate --tasks cpoy", "'copy'"),
    ("extrapolate --heads 3", "3 heads"),
    ("extrapolate --encodings mrope", "3 coordinates"),
    ("extrapolate --encodings rope rope", "once"),
    ("extrapolate --factors 1 4 2", "larger"),
    ("extrapolate --tests 150", "tests=150"),
    ("extrapolate --length 2147483647", "memory"),
    ("encodings ropee", "'rope'"),
    ("encodings --dim 15", "--dim"),
    ("encodings --length 31", "--length is 31"),
    ("encodings --head-dim 6", "--head-dim"),
    ("rope nowhere.json", "nowhere.json"),
    ("rope --head-dim 8 --length 1.5k", "--length"),
    ("golden nowhere.json", "nowhere.json"),
    ("batch", "batches"),
    ("batch cut.npz", "cut.npz"),
    ("batch text.npz", "numbers"),
    ("batch lines.txt --shards zigzag 2 2", "shards"),
    ("trian", "'train'"),
    ("xyzzy", "unknown command"),
    ("", "no command"),
]


@pytest.mark.parametrize(("words", "said"), BAD)
def test_bad_input_is_one_line_with_exit_2_and_leaves_nothing(
    command, bad, tmp_path, monkeypatch, words, said
):
    monkeypatch.chdir(bad)
    name, *words = words.split(" ") if words else ("",)
    out = ("--out", tmp_path / "out") if name in COMMANDS and name not in NO_OUT else ()
    code, printed, errors = command(*filter(None, (name, *words)), *out)
    assert (code, printed) == (2, "")
    *_, last = errors.splitlines()  # after the stages of a job
    shown = last if last.startswith("jaxpe: ") else errors  # or, of options, in a box
    assert said in " ".join(re.sub("[│╭╰─╮╯]", " ", shown).split())
    assert len(shown) < 1500
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} <= {".lock"}


NO_OUT = ("encodings", "batch")


def test_a_folder_that_cannot_be_written_is_refused(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    commands = ("report synthetic", "train synthetic", "compare a b", "count file", "audit file")
    for words in commands:
        code, printed, errors = command(*words.split(), "--out", "a" * 5000)
        assert (code, printed, errors.count("\n"), len(errors) < 400) == (2, "", 1, True)
    assert command("report", "synthetic", "--out", "file/out")[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def fail(monkeypatch, error):
    """Have `jaxpe golden` raise an error."""

    def fails(options, words):
        raise error

    monkeypatch.setattr("jaxpe.cli.golden.write", fails)
    return "golden", "config.json", "--out", "x"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MemoryError("Unable to allocate 119. GiB"), 2, "out of memory"),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nat x"), 2, "smaller"),
        (RuntimeError("Unable to initialize backend 'tpu': none"), 2, "backend 'tpu'"),
        (OSError(28, "No space left on device", "run/log.jsonl"), 2, "run/log.jsonl"),
        (InputError("two\nlines of `out=x`"), 2, "jaxpe: two lines of --out x"),
        (FloatingPointError("not finite at step 7"), 1, "step 7"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_stops_a_command_is_one_line(command, monkeypatch, error, code, said):
    found, out, err = command(*fail(monkeypatch, error))
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert said in err


def test_faults_of_the_program_are_not_hidden_and_closed_pipes_are_none(command, monkeypatch):
    with pytest.raises(RuntimeError, match="a bug"):
        command(*fail(monkeypatch, RuntimeError("INTERNAL: a bug")))
    stop = SystemExit(1)  # as Rich raises
    stop.__context__ = BrokenPipeError()
    for error in (BrokenPipeError(), stop):
        assert command(*fail(monkeypatch, error)) == (0, "", "")


def test_an_ascii_terminal(command, monkeypatch):
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, "ascii"))
    assert command("--help")[0] == 0
    print("ε …")
    sys.stdout.flush()
    assert output.getvalue().decode("ascii").endswith("\\u03b5 \\u2026\n")


@pytest.mark.parametrize(
    ("module", "words", "extra"),
    [("tyro", ("rope", "x"), "cli"), ("orbax.checkpoint", ("train",), "train")],
)
def test_a_missing_extra_is_named(command, monkeypatch, module, words, extra):
    real = importlib.import_module

    def without(name, package=None):
        if name.split(".")[0] == module.split(".")[0]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    monkeypatch.setitem(sys.modules, module, None)
    code, _, err = command(*words)
    assert (code, f"'jaxpe[{extra}]'" in err) == (2, True)


def test_encodings_are_listed_without_computing(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with compilations() as done:
        code, out, err = command("encodings")
    assert code == 0, err
    assert not done
    assert [entry.name for entry in encodings.catalogue() if entry.name not in out] == []


def test_rope_has_no_page_unless_asked_and_what_is_not_judged_ends_with_3(
    command, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert command("rope", "--head-dim", 16, "--base", 10_000.0, "--context", 64)[0] == 0
    assert not list(tmp_path.iterdir())
    (tmp_path / "config.json").write_text('{"model_type": "nobody_knows"}')
    for words in (("rope", "config.json"), ("golden", "config.json", "--out", "golden")):
        assert command(*words)[0] == 3


@pytest.mark.parametrize(("version", "added"), [("0.10.2", 2), ("0.11.0", 0)])
def test_xla_has_flags_that_it_was_tested_with_and_users_keep_theirs(
    monkeypatch, tmp_path, version, added
):
    own = ["--a", "--xla_cpu_use_fusion_emitters=true"]
    environ = {"JAXPE_CACHE_DIR": str(tmp_path), "MPLBACKEND": "qt", "XLA_FLAGS": " ".join(own)}
    monkeypatch.setattr(os, "environ", environ)
    monkeypatch.setattr(jaxlib, "__version__", version)
    set_environment(small_programs=True)
    flags = environ["XLA_FLAGS"].split()
    assert (flags[:2], len(flags) - 2) == (own, added)
    assert (environ["MPLBACKEND"], "OPENBLAS_NUM_THREADS" in environ) == ("agg", True)
    assert environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "compiled")
