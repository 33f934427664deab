"""Every command as a person types it: its help, its example, what it refuses, how it ends."""

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
from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT
from jaxpe.cli import main
from jaxpe.cli.commands import COMMANDS, load, options_class
from jaxpe.cli.environment import set_environment
from jaxpe.cli.parsing import parse
from tests.compilation import compilations


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_can_be_parsed(name):
    # An example names a module that the reader has.
    example = COMMANDS[name].example.replace(" my_module:mine", "")
    program, command, *words = shlex.split(example)
    assert (program, command) == ("jaxpe", name)
    options = parse(options_class(name), words)
    assert type(options).__name__ == name
    assert isinstance(options, load(COMMANDS[name].options))
    assert callable(load(COMMANDS[name].job or COMMANDS[name].run))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_has_an_example_and_no_types_of_python(command, name):
    code, out, _ = command(name, "--help")
    assert code == 0
    text = " ".join(re.sub("[│╭╰─╮╯]", " ", out).split())
    assert COMMANDS[name].example in text
    for noise in ("{None}", "[STR", "(default: )", "(default: None)", "POSIXPATH", "None|"):
        assert noise not in out
    assert COMMANDS[name].about in main._help()


def test_the_command_line_is_listed_and_run_as_a_module(command):
    code, out, _ = command("--help")
    assert (code, out.count("$ jaxpe ")) == (0, len(COMMANDS))
    words = [sys.executable, "-m", "jaxpe", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == f"jaxpe {jaxpe.__version__}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no command: pass one of report, count"),
        (("trian",), "unknown command 'trian': did you mean 'train'?"),
        (("extrapolation", "--help"), "did you mean 'extrapolate'?"),
        (("xyzzy",), "unknown command 'xyzzy'; there are report"),
        (("--versoin",), "unknown command '--versoin'"),
        (("",), "unknown command ''"),
    ],
)
def test_what_is_no_command_is_one_line(command, words, said):
    code, out, err = command(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("jaxpe: ")
    assert said in err


def fail(monkeypatch, error):
    """Have `jaxpe golden` raise an error."""

    def fails(options, words):
        raise error

    monkeypatch.setattr("jaxpe.cli.golden.write", fails)
    return "golden", "config.json", "--out", "x"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MemoryError("Unable to allocate 119. GiB"), 2, "out of memory (Unable to allocate 119."),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nat x"), 2, "out of memory"),
        (jax.errors.JaxRuntimeError("INTERNAL: Out of memory allocating 9 bytes"), 2, "smaller"),
        (RuntimeError("Unable to initialize backend 'tpu': none"), 2, "backend 'tpu'"),
        (OSError(28, "No space left on device", "run/log.jsonl"), 2, "run/log.jsonl"),
        (InputError("two\nlines of `out=x`"), 2, "jaxpe: two lines of --out x"),
        (FloatingPointError("not finite at step 7"), 1, "step 7"),
        (InputError("a" * 300 + " b"), 2, f"jaxpe: {'a' * 100}…{'a' * 40} b\n"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_stops_a_command_is_one_line(command, monkeypatch, error, code, said):
    found, out, err = command(*fail(monkeypatch, error))
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert said in err


def test_a_fault_of_the_program_is_not_hidden(command, monkeypatch):
    with pytest.raises(RuntimeError, match="a bug"):
        command(*fail(monkeypatch, RuntimeError("INTERNAL: a bug")))


def test_a_pipe_whose_reader_has_enough_is_no_fault(command, monkeypatch):
    stop = SystemExit(1)  # as Rich raises
    stop.__context__ = BrokenPipeError()
    for error in (BrokenPipeError(), stop):
        assert command(*fail(monkeypatch, error)) == (0, "", "")


def test_an_ascii_terminal(command, monkeypatch):
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, "ascii"))
    print("ε", file=sys.stderr)
    assert command("--help")[0] == 0
    print("ε …")
    sys.stdout.flush()
    assert output.getvalue().decode("ascii").endswith("\\u03b5 \\u2026\n")


@pytest.mark.parametrize(
    ("module", "words", "extra"),
    [
        ("tyro", ("rope", "x"), "report"),
        ("matplotlib.figure", ("report", "x"), "report"),
        ("orbax.checkpoint", ("train",), "train"),
    ],
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
    assert code == 2
    assert f"pip install 'jaxpe[{extra}]'" in err


@pytest.mark.parametrize(
    "words",
    [("report", "synthetic"), ("train", "synthetic"), ("inspect", "model", "synthetic"),
     ("audit", "synthetic", "--model", "run"), ("compare", "a", "b")],
)  # fmt: skip
def test_a_folder_of_5_000_letters_is_one_line_of_a_few(command, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = command(*words, "--out", "a" * 5000)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "File name too long" in err
    assert len(err) < 400
    assert not list(tmp_path.iterdir())


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
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(jaxlib, "__version__", version)
    set_environment(small_programs=small)
    assert os.environ.get("XLA_FLAGS") == (expected and " ".join(expected))
    assert (os.environ["MPLBACKEND"], os.environ["OPENBLAS_NUM_THREADS"]) == ("agg", "4")
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "compiled")
    assert os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] == "0"


LINES = "\n".join(["one two three"] * 3)
BAD = {
    "missing file": (None, (), "no such file"),
    "empty corpus": ("\n\n", (), "no documents"),
    "one document": ("alone", (), "one document"),
    "too long": (LINES, ("--length", 9), "longest has 3"),
    "undecodable bytes": (b"fine\nbad \xff\n", (), "line 2"),
    "NaN": (np.full((4, 3), np.nan), (), "float64"),
    "ids beyond any vocabulary": (np.array([[1, 2], [2**40, 0]]), (), str(2**40)),
    "flat ids": (np.arange(9), (), "[documents, n]"),
    "zero width": (LINES, ("--dim", 0), "--dim is 0; pass at least 2"),
    "odd width": (LINES, ("--dim", 5), "--dim must be"),
    "seed": (LINES, ("--seed", 2**65), f"--seed is {2**65}"),
    "unknown tokenizer": (LINES, ("--tokenizer", "syllables"), "words"),
}


@pytest.mark.parametrize(("content", "options", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_exit_2(command, tmp_path, content, options, message):
    path = tmp_path / ("a.npy" if isinstance(content, np.ndarray) else "a.txt")
    if isinstance(content, np.ndarray):
        np.save(path, content)
    elif content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = command("report", path, *options, "--out", tmp_path / "out")
    assert (code, out, err.startswith("jaxpe: ")) == (2, "", True)
    assert message in err
    assert not (tmp_path / "out" / "report.html").exists()


def test_an_unwritable_folder_is_refused_before_the_work(command, tmp_path):
    (tmp_path / "file").write_text("in the way")
    code, _, err = command("report", "stdlib", "--out", tmp_path / "file")
    assert code == 2
    assert f"cannot write {tmp_path / 'file'}" in err
    assert "pass a folder" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ropee",), "no encoding 'ropee'; did you mean 'rope'?"),
        (("--dim", 7), "--dim must be even, not 7"),
        (("--head-dim", 6), "--head-dim must be a multiple of 4, not 6"),
    ],
)
def test_encodings_refuses(command, words, message):
    code, out, err = command("encodings", *words)
    assert (code, out) == (2, "")
    assert message in err


def test_encodings_are_listed_without_computing(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with compilations() as done:
        code, out, err = command("encodings")
    assert code == 0, err
    assert not done
    assert [entry.name for entry in jaxpe.catalogue() if entry.name not in out] == []


@pytest.mark.parametrize(("length", "code"), [(64, 0), (4096, 0)])
def test_rope_has_no_page_unless_asked(command, tmp_path, monkeypatch, length, code):
    monkeypatch.chdir(tmp_path)
    words = ("rope", "--head-dim", 16, "--base", 10_000.0, "--context", 64, "--length", length)
    assert command(*words)[0] == code
    assert not list(tmp_path.iterdir())
    assert command(*words, "--out", "page")[0] == code
    assert (tmp_path / "page" / "rope.html").is_file()


def test_what_is_not_judged_is_said_once_with_exit_3(command, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "nobody_knows"}')
    code, out, err = command("rope", tmp_path / "config.json")
    assert (code, err) == (3, "")
    assert out.count("'nobody_knows' is not known") == 1


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.job])
def test_a_job_is_called_with_options_and_progress(name):
    inspect.signature(load(COMMANDS[name].job)).bind(object(), progress=SILENT)
