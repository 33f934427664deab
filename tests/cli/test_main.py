"""The command as a person types it: what it prints, writes, refuses and returns."""

import importlib
import io
import json
import os
import shlex
import subprocess
import sys

import jax
import numpy as np
import pytest

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe.cli import pages
from jaxpe.cli import train as train_command
from jaxpe.cli.environment import set_environment
from jaxpe.report.corpus import page as corpus_page
from jaxpe.report.text import Advice
from tests.compilation import compilations
from tests.conftest import small_disk


@pytest.fixture
def poems(tmp_path):
    """300 documents of four to eight words whose first word tells the position."""
    rng = np.random.default_rng(0)
    lines = [" ".join(["the", *rng.choice(WORDS, rng.integers(3, 8))]) for _ in range(300)]
    path = tmp_path / "poems.txt"
    path.write_text("\n".join(lines))
    return path


WORDS = [f"word{k}" for k in range(30)]
SMALL = ("--dim", 4, "--splits", 2)


def test_report_from_a_text_file(command, poems, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_page, "render_figures", lambda analysis: [])
    code, out, err = command("report", poems, *SMALL, "--out", tmp_path / "out")
    assert code == 0, err
    assert "poems.txt: 300 documents" in out
    assert str(tmp_path / "out" / "report.html") in out.replace("\n", "")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    names = [e["name"] for e in report["encodings"]]
    with_vectors = [
        e.name for e in jaxpe.catalogue() if e.vectors and e.coordinates == 1 and not e.variant_of
    ]
    assert set(names) == {"mds", "smacof", *with_vectors} - {"information_optimal"}
    assert {"sinusoidal", "rope", "alibi", "random", "legendre", "wavelet"} < set(names)
    assert {"rank", "trace", "eigenvalues", "violation_rate"} <= set(report["plug_in"])
    expected = {"trace", "eigenvalues", "significant_rank", "p_value", "by_offset"}
    assert expected <= set(report["position"])
    scores = {
        *("name", "dim", "parameters", "stress", "scaled_stress", "kruskal_stress1"),
        *("position_scaled_stress", "violation_rate", "mantel_r", "min_separation"),
    }
    assert scores <= set(report["encodings"][0])
    assert report["empty_positions"] == {"policy": "drop", "count": 0}
    assert report["position"]["significant_rank"] == 1


@pytest.mark.usefixtures("quick")
def test_a_seed_gives_the_same_report_to_the_last_digit(command, poems, tmp_path):
    texts = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert command("report", poems, *SMALL, "--seed", seed, "--out", tmp_path / name)[0] == 0
        texts.append((tmp_path / name / "report.json").read_text())
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


@pytest.mark.usefixtures("quick")
def test_standard_input(command, poems, tmp_path, monkeypatch):
    with poems.open() as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        code, out, err = command("report", "-", *SMALL, "--out", tmp_path / "out")
    assert code == 0, err
    assert "stdin: 300 documents" in out


@pytest.mark.usefixtures("quick")
def test_empty_positions_are_counted_and_kept_by_policy(command, poems, tmp_path):
    lines = [line.split()[:4] for line in poems.read_text().splitlines()]
    poems.write_text("\n".join(map(" ".join, lines)))
    ranks = {}
    for policy in ("drop", "uniform"):
        out = tmp_path / policy
        assert (
            command("report", poems, *SMALL, "--length", 8, "--empty", policy, "--out", out)[0] == 0
        )
        report = json.loads((out / "report.json").read_text())
        assert report["empty_positions"] == {"policy": policy, "count": 4}
        ranks[policy] = report["plug_in"]["rank"]
    assert ranks["uniform"] == ranks["drop"] + 1


def _write_text(name, text):
    def make(folder):
        path = folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return make


def _write_ids(array):
    def make(folder):
        path = folder / "ids.npy"
        np.save(path, array)
        return path

    return make


LINES = "\n".join(["one two three"] * 3)
BAD = {
    "missing file": (lambda folder: folder / "no.txt", (), "no.txt"),
    "empty corpus": (_write_text("a.txt", "\n\n"), (), "no documents"),
    "one document": (_write_text("a.txt", "alone"), (), "one document"),
    "too long": (_write_text("a.txt", LINES), ("--length", 9), "longest has 3"),
    "empty refused": (
        _write_text("a.txt", LINES),
        ("--length", 9, "--empty", "error"),
        "6 of 9 positions hold no token",
    ),
    "undecodable bytes": (_write_text("a.txt", b"fine\nbad \xff\n"), (), "line 2"),
    "float ids": (_write_ids(np.ones((4, 3))), (), "float"),
    "NaN": (_write_ids(np.full((4, 3), np.nan)), (), "float64"),
    "negative ids": (_write_ids(np.array([[1, 2], [-1, 0]])), (), "-1"),
    "ids beyond any vocabulary": (_write_ids(np.array([[1, 2], [2**40, 0]])), (), str(2**40)),
    "flat ids": (_write_ids(np.arange(9)), (), "[documents, n]"),
    "zero width": (_write_text("a.txt", LINES), ("--dim", 0), "--dim is 0; pass at least 2"),
    "odd width": (_write_text("a.txt", LINES), ("--dim", 5), "--dim must be"),
    "endless length": (
        _write_text("a.txt", LINES),
        ("--length", 10**6),
        "--length is 1000000",
    ),
    "seed": (_write_text("a.txt", LINES), ("--seed", 2**65), f"--seed is {2**65}"),
    "file name too long": (lambda folder: "x" * 5000, (), "too long"),
    "no splits": (_write_text("a.txt", LINES), ("--splits", 0), "--splits"),
    "zero length": (_write_text("a.txt", LINES), ("--length", 0), "length"),
    "unknown column": (
        _write_text("a.csv", "left,right\na,b\nc,d\n"),
        ("--text-field", "middle"),
        "left",
    ),
    "unknown tokenizer": (_write_text("a.txt", LINES), ("--tokenizer", "syllables"), "words"),
    "unknown extension": (_write_text("a.pdf", LINES), (), ".jsonl"),
}


@pytest.mark.parametrize(("make", "options", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_exit_2(command, tmp_path, make, options, message):
    code, out, err = command("report", make(tmp_path), *options, "--out", tmp_path / "out")
    assert code == 2
    assert out == ""
    assert err.startswith("jaxpe: ")
    assert message in err
    assert not (tmp_path / "out" / "report.html").exists()


def test_ragged_ids_are_refused(command, tmp_path):
    ragged = np.empty(2, object)
    ragged[:] = [[1, 2], [3]]
    np.save(tmp_path / "ids.npy", ragged, allow_pickle=True)
    code, _, err = command("report", tmp_path / "ids.npy", "--out", tmp_path / "out")
    assert code == 2
    assert "ragged" in err or "object" in err


def test_an_unwritable_folder_is_refused_before_the_work(command, poems, tmp_path):
    (tmp_path / "file").write_text("in the way")
    code, _, err = command("report", poems, "--out", tmp_path / "file")
    assert code == 2
    assert f"cannot write {tmp_path / 'file'}" in err
    assert "pass a folder" in err


@pytest.mark.parametrize("module", ["tyro", "matplotlib.figure", "tokenizers"])
def test_a_missing_extra_is_named(command, poems, tmp_path, monkeypatch, module):
    real = importlib.import_module

    def without(name, package=None):
        if name.split(".")[0] == module.split(".")[0]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n")
    words = ("--tokenizer", vocabulary) if module == "tokenizers" else ()
    code, _, err = command("report", poems, *SMALL, *words, "--out", tmp_path / "out")
    assert code == 2
    extra = "data" if module == "tokenizers" else "report"
    assert f"pip install 'jaxpe[{extra}]'" in err


@pytest.mark.parametrize("text", ["a - -\n" * 5, "one two two\n" * 40])
@pytest.mark.usefixtures("quick")
def test_degenerate_corpora_are_reported_without_nonsense(command, tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    code, out, err = command("report", tmp_path / "a.txt", *SMALL, "--out", tmp_path / "out")
    assert code == 0, err
    assert "nan" not in out.lower()
    assert "n/a to n/a" not in out


@pytest.mark.parametrize("words", [("--help",), ("report", "--help")])
def test_help(command, words):
    code, out, _ = command(*words)
    assert code == 0
    assert "usage: jaxpe" in out


@pytest.mark.usefixtures("quick")
def test_lapack_has_a_share_of_the_processors_unless_told(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    set_environment(small_programs=False)
    assert os.environ["OPENBLAS_NUM_THREADS"] == "3"
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    set_environment(small_programs=False)
    assert os.environ["OPENBLAS_NUM_THREADS"] == "4"


OVERVIEW = ("--about", "overview", "--dim", 16, "--heads", 2, "--head-dim", 8)


def test_encodings_are_listed_without_computing(command):
    with compilations() as done:
        code, out, err = command("encodings")
    assert code == 0, err
    assert not done
    assert [entry.name for entry in jaxpe.catalogue() if entry.name not in out] == []


def test_encodings_as_a_table(command):
    code, out, err = command("encodings", "rope", "t5", *OVERVIEW, "--length", 512)
    assert code == 0, err
    assert "width 16, 2 heads of 8, length 512" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["rope", "0", "relative", "yes"] in [row[:4] for row in rows]
    assert ["t5", "64", "relative", "constant"] in [row[:4] for row in rows]


def test_encodings_as_json_and_markdown(command):
    sizes = (*OVERVIEW, "--length", 40)
    code, out, _ = command("encodings", "learned", *sizes, "--form", "json")
    table = json.loads(out)
    assert code == 0
    assert table["sizes"] == {"dim": 16, "num_heads": 2, "head_dim": 8, "length": 40}
    (row,) = table["encodings"]
    assert (row["name"], row["trainable"], row["gradient"]) == ("learned", 640, ["table"])
    _, out, _ = command("encodings", "learned", *sizes, "--form", "markdown")
    expected = (
        f"| `learned` | absolute | {' · '.join(map(str, row['adopted']))} | 640 | absolute | no |"
    )
    assert out.splitlines()[2].startswith(expected)
    _, out, _ = command("encodings", "rope", "--form", "latex")
    assert "\nrope & rotary & orbit of a vector with unit pairs & Su et al. (2021)" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ropee",), "no encoding 'ropee'; did you mean 'rope'?"),
        (("--dim", 7), "--dim must be even, not 7"),
        (("--head-dim", 6), "--head-dim must be a multiple of 4, not 6"),
        (("--heads", 0), "--heads is 0; pass at least 1"),
        (("--length", 16), "--length is 16; pass at least 32"),
    ],
)
def test_encodings_refuses(command, words, message):
    code, out, err = command("encodings", *words)
    assert code == 2
    assert message in err
    assert not out


def test_the_version_is_printed(command):
    assert command("--version") == (0, f"jaxpe {jaxpe.__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no command: pass one of report, encodings"),
        (("trian",), "unknown command 'trian': did you mean 'train'?"),
        (("extrapolation", "--help"), "did you mean 'extrapolate'?"),
        (("xyzzy",), "unknown command 'xyzzy'; there are report"),
        (("--versoin",), "unknown command '--versoin'"),
        (("",), "unknown command ''"),
    ],
)
def test_what_is_no_command_is_one_line(command, words, said):
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert err.startswith("jaxpe: ")
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MemoryError("Unable to allocate 119. GiB"), 2, "out of memory (Unable to allocate 119."),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nat x"), 2, "out of memory"),
        (jax.errors.JaxRuntimeError("INTERNAL: Out of memory allocating 9 bytes"), 2, "smaller"),
        (RuntimeError("Unable to initialize backend 'tpu': none"), 2, "backend 'tpu'"),
        (OSError(28, "No space left on device", "run/log.jsonl"), 2, "run/log.jsonl"),
        (InputError("two\nlines"), 2, "jaxpe: two lines"),
        (FloatingPointError("not finite at step 7"), 1, "step 7"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_stops_a_command_is_one_line(command, monkeypatch, error, code, said):
    def fails(words):
        raise error

    monkeypatch.setattr(train_command, "run", fails)
    found, out, err = command("train")
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert said in err


@pytest.mark.parametrize(
    "words",
    [
        ("report", "synthetic"),
        ("train", "synthetic"),
        ("extrapolate",),
        ("inspect", "model", "synthetic"),
        ("audit", "synthetic", "--model", "run"),
        ("spectral", "synthetic", "--model", "run"),
    ],
)
def test_a_folder_of_5_000_letters_is_one_line_of_a_few(command, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = command(*words, "--out", "a" * 5000)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "File name too long" in err
    assert len(err) < 400
    assert not list(tmp_path.iterdir())


def test_the_package_is_run_as_a_module():
    words = [sys.executable, "-m", "jaxpe", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == f"jaxpe {jaxpe.__version__}\n"


def test_a_pipe_whose_reader_has_enough_is_no_fault(command, monkeypatch):
    def fails(words):
        raise BrokenPipeError

    def fails_in_rich(words):
        try:
            raise BrokenPipeError
        except BrokenPipeError:
            sys.exit(1)

    for train in (fails, fails_in_rich):
        monkeypatch.setattr(train_command, "run", train)
        assert command("train") == (0, "", "")


def test_a_fault_of_the_program_is_not_hidden(command, monkeypatch):
    def fails(words):
        raise RuntimeError("INTERNAL: a bug")

    monkeypatch.setattr(train_command, "run", fails)
    with pytest.raises(RuntimeError, match="a bug"):
        command("train")


def test_an_ascii_terminal(command, monkeypatch):
    sizes = (*OVERVIEW, "--length", 40)
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, "ascii"))
    for form in ("table", "markdown"):
        code, _, err = command("encodings", "learned", *sizes, "--form", form)
        assert (code, err) == (0, "")
    printed = output.getvalue().decode("ascii")
    assert "learned" in printed
    assert "\\" in printed  # before the code of what is not ASCII


SHELL = "exec {} -c 'from jaxpe.cli.main import main; main()' --version {}"


@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        ("> /dev/full", 2, "No space left on device"),
        ("> >(exec true)", 0, ""),
    ],
)
def test_standard_streams_that_cannot_be_written(streams, code, said):
    line = SHELL.format(shlex.quote(sys.executable), streams)
    found = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert found.returncode == code, found.stderr
    assert said in found.stderr
    assert found.stderr.count("\n") == (1 if said else 0)


HOLD = """
import sys
from jaxpe._core.files import locked_folder
with locked_folder(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_folder_that_another_process_writes_into_is_refused(command, poems, tmp_path):
    out = tmp_path / "out"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLD, out], **pipes) as other:
        assert other.stdout.readline() == "held\n"
        for words in (
            ("report", poems, *SMALL),
            ("audit", poems),
            ("spectral", poems),
            ("extrapolate",),
        ):
            code, printed, err = command(*words, "--out", out)
            assert (code, printed, err.count("\n")) == (2, "", 1), err
            assert f"another run is writing into {out}" in err
        other.communicate("done\n")
    assert {path.name for path in out.iterdir()} == {".lock"}


@pytest.mark.usefixtures("quick")
def test_a_report_onto_a_full_disk_is_one_line(command, poems, tmp_path):
    with small_disk(1000):
        code, out, err = command("report", poems, *SMALL, "--out", tmp_path / "out")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "cannot write" in err
    files = [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert set(files) <= {".lock"}  # none at all where not one byte could be written


def test_a_command_to_paste_is_one_line(monkeypatch, capsys):
    paste = f"jaxpe inspect {'a' * 90} stdlib --longest 32768"
    monkeypatch.setattr(pages.report, "advice", lambda result: [Advice("word " * 40, paste)])
    pages.print_advice(None)
    assert f"\n    {paste}\n" in capsys.readouterr().out
