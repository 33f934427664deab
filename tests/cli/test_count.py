"""`jaxpe count` and `jaxpe merge` as a person types them."""

import json

import numpy as np
import pytest

from jaxpe._core.files import locked_folder
from jaxpe.analysis import counts as counting
from tests.conftest import small_disk

SMALL = ("--length", 8, "--folds", 4, "--nulls", 19)


@pytest.fixture(scope="module")
def poems(tmp_path_factory):
    """Two shards of 150 documents whose first word tells the position."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("poems")
    words = [f"word{k}" for k in range(30)]
    for name in ("a", "b"):
        lines = [" ".join(["The", *rng.choice(words, rng.integers(3, 12))]) for _ in range(150)]
        (folder / f"{name}.txt").write_text("\n".join(lines))
    return folder


def cells(out):
    """The table on the console: what stands behind each name."""
    rows = [line.split(maxsplit=1) for line in out.splitlines()]
    return {row[0]: row[1].strip() for row in rows if len(row) == 2}


def test_count_words(command, poems, tmp_path):
    out = tmp_path / "counts"
    code, printed, errors = command("count", poems / "*.txt", *SMALL, "--out", out)
    assert code == 0, errors
    table = cells(printed)
    assert table["documents"] == "300"
    assert table["positions"] == "8"
    assert table["vocabulary"] == "31 (words)"
    assert table["folds"] == "4, and 19 nulls in 4"
    assert str(out) in printed.replace("\n", "")
    header = counting.read_counts(out).header
    assert [shard.documents for shard in header.shards] == [150, 150]
    assert (header.settings.length, header.tokens[0]) == (8, "the")
    before = (out / "counts.npz").read_bytes()
    assert command("count", poems / "*.txt", *SMALL, "--out", out)[0] == 0  # from the same shards
    assert (out / "counts.npz").read_bytes() == before


def test_a_vocabulary_cut_and_handed_on_makes_counts_that_merge(command, poems, tmp_path):
    a, b, both, merged = (tmp_path / name for name in ("a", "b", "both", "merged"))
    sample = ("count", poems / "*.txt", *SMALL, "--max-vocab", 9, "--out", tmp_path / "sample")
    assert command(*sample)[0] == 0
    for name, out in (("a", a), ("b", b), ("?", both)):
        words = ("count", poems / f"{name}.txt", *SMALL, "--vocab", tmp_path / "sample")
        code, _, errors = command(*words, "--out", out)
        assert code == 0, errors
    code, printed, errors = command("merge", a, b, "--out", merged)
    assert code == 0, errors
    assert cells(printed)["documents"] == "300"
    assert (merged / "counts.npz").read_bytes() == (both / "counts.npz").read_bytes()
    tokens = counting.read_counts(merged).header.tokens
    assert (len(tokens), tokens[-1]) == (9, "[UNK]")
    for words, message in (
        ((a, a, "--out", tmp_path / "x"), "twice"),
        ((a, both, "--out", tmp_path / "x"), "a.txt, "),
        ((a, "--out", tmp_path / "x"), "1 counts; pass at least two"),
        ((a, b, "--out", merged), "holds counts already; pass another folder"),
        ((a, poems, "--out", tmp_path / "x"), "counts.npz cannot be read"),
    ):
        code, printed, errors = command("merge", *words)
        assert (code, printed) == (2, "")
        assert message in errors


def test_parts_of_machines(command, poems, tmp_path):
    whole = ("count", poems / "*.txt", *SMALL)
    assert command(*whole, "--out", tmp_path / "whole")[0] == 0
    for part in (0, 1):
        words = ("--part", part, "--parts", 2, "--workers", 2, "--out", tmp_path / f"{part}")
        assert command(*whole, *words)[0] == 0
    merged = ("merge", tmp_path / "1", tmp_path / "0", "--out", tmp_path / "all")
    assert command(*merged)[0] == 0
    one, other = (tmp_path / name / "counts.npz" for name in ("whole", "all"))
    assert one.read_bytes() == other.read_bytes()


def test_a_vocabulary_of_one_token_a_line(command, poems, tmp_path):
    (tmp_path / "v.txt").write_bytes("\ufeffthe\r\nword0\r\n\u2028\r\n[UNK]\r\n".encode())
    out = tmp_path / "out"
    code, _, errors = command(
        "count", poems / "a.txt", *SMALL, "--vocab", tmp_path / "v.txt", "--out", out
    )
    assert code == 0, errors
    assert counting.read_counts(out).header.tokens == ["the", "word0", "\u2028", "[UNK]"]


def test_bins_and_bytes(command, poems, tmp_path):
    out = tmp_path / "out"
    words = ("--tokenizer", "bytes", "--length", 64, "--bins", 4, "--spacing", "log")
    code, printed, errors = command(
        "count", poems / "a.txt", *words, "--folds", 4, "--nulls", 0, "--out", out
    )
    assert code == 0, errors
    assert cells(printed)["positions"] == "64 in 4 bins"
    edges = counting.read_counts(out).header.settings.edges
    assert (edges[0], edges[-1], len(edges)) == (0, 64, 5)


def test_an_unreadable_shard_is_left_out_on_request(command, poems, tmp_path):
    (tmp_path / "broken.txt").write_bytes(b"fine\n\xff\n")
    words = ("count", poems / "a.txt", tmp_path / "broken.txt", *SMALL, "--tokenizer", "bytes")
    code, printed, errors = command(*words, "--out", tmp_path / "x")
    assert (code, printed) == (2, "")
    assert "broken.txt, line 2: byte 0xff is not UTF-8" in errors
    code, printed, errors = command(*words, "--skip-unreadable", "--out", tmp_path / "y")
    assert code == 0, errors
    assert cells(printed)["left"].startswith("out")
    assert "broken.txt, 7 bytes" in " ".join(printed.split())


def test_rows_without_text_are_left_out_on_request(command, tmp_path):
    rows = [{"text": None if n % 5 == 3 else f"a{n} b"} for n in range(40)]
    for name, number in (("x", 40), ("y", 10)):
        lines = "".join(json.dumps(row) + "\n" for row in rows[:number])
        (tmp_path / f"{name}.jsonl").write_text(lines)
    words = ("count", tmp_path / "x.jsonl", tmp_path / "y.jsonl", *SMALL)
    code, printed, errors = command(*words, "--out", tmp_path / "counts")
    assert (code, printed) == (2, "")
    assert "x.jsonl, line 4: 'text' is null or missing" in errors
    code, printed, errors = command(*words, "--skip-nulls", "--out", tmp_path / "counts")
    assert code == 0, errors
    assert "10 rows without text" in " ".join(printed.split())
    stored = counting.read_counts(tmp_path / "counts")
    assert [shard.null_texts for shard in stored.header.shards] == [8, 2]
    assert (stored.header.documents, stored.header.null_texts) == (40, 10)


BYTES = ("--tokenizer", "bytes")
BAD = {
    "no source": ((), "no files; pass paths, folders or patterns"),
    "standard input": (("-",), "standard input cannot be read again"),
    "tokenizer": (("A", "--tokenizer", "syllables"), "unknown tokenizer 'syllables'"),
    "one fold": (("A", "--folds", 2), "--folds is 2; pass at least 4"),
    "seed": (("A", "--seed", -1), "--seed is -1"),
    "huge length": (("A", "--length", 10**9, *BYTES), "of memory, and"),
    "huge folds": (("A", "--folds", 10**9, *BYTES), "of memory, and"),
    "huge bins": (("A", "--bins", 10**30), "--bins is 10000"),
    "more bins than positions": (("A", "--length", 8, "--bins", 9), "--bins is 9"),
    "as many bins as memory": (("A", "--length", 2 * 10**9, "--bins", 2 * 10**9), "of memory"),
    "endless vocabulary": (("A", "--vocab", "/dev/zero"), "/dev/zero is not a regular file"),
    "vocabulary of no counts": (("A", "--vocab", "FOLDER"), "counts.npz cannot be read"),
    "vocabulary of numbers": (("A", "--vocab", "[1]"), "[0] is 1, not a string"),
    "vocabulary a number": (("A", "--vocab", "7"), "v.json"),
    "part": (("A", "--part", 2, "--parts", 2), "--part is 2; pass at most 1"),
    "part without shards": (("A", "--part", 1, "--parts", 2), "fewer --parts"),
    "workers": (("A", "--workers", -1), "--workers is -1"),
    "vocabulary twice": (("A", "--vocab", "A", "--max-vocab", 9), "leave --max-vocab out"),
    "vocabulary of bytes": (("A", "--tokenizer", "bytes", "--max-vocab", 9), "of its own"),
    "special": (("A", "--special"), "no special tokens"),
    "column": (("T", "--text-field", "body"), "no column 'body'"),
    "group column": (("T", "--group-field", "by"), "no column 'by'; pass one of 'n', 'text' as"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_exit_2(command, poems, tmp_path, words, message):
    (tmp_path / "t.tsv").write_text("n\ttext\n1\ta\n")
    stands_for = {
        "A": poems / "a.txt",
        "T": tmp_path / "t.tsv",
        "FOLDER": poems,
    }
    if "--vocab" in words and str(words[2])[0] in "[{7":
        (tmp_path / "v.json").write_text(words[2])
        stands_for[words[2]] = tmp_path / "v.json"
    out = tmp_path / "out"
    code, printed, errors = command(
        "count", *(stands_for.get(word, word) for word in words), "--out", out
    )
    assert (code, printed) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith("jaxpe: ")
    assert message in line
    assert not counting.is_counted(out)


def test_two_at_once_into_one_folder(command, poems, tmp_path):
    out = tmp_path / "out"
    words = ("count", poems / "a.txt", *SMALL)
    with locked_folder(out):
        for tokenizer in ("words", "bytes"):
            code, _, errors = command(*words, "--tokenizer", tokenizer, "--out", out)
            assert code == 2
            assert f"another run is writing into {out}" in errors
        assert [path.name for path in out.iterdir()] == [".lock"]
    parts = [tmp_path / name for name in "ab"]
    for name, part in zip("ab", parts, strict=True):
        code, _, errors = command(
            "count", poems / f"{name}.txt", *SMALL, "--tokenizer", "bytes", "--out", part
        )
        assert code == 0, errors
    with locked_folder(out):
        code, printed, errors = command("merge", *parts, "--out", out)
    assert (code, printed) == (2, "")
    assert f"another run is writing into {out}" in errors
    assert command("merge", *parts, "--out", out)[0] == 0


def test_merge_on_a_full_disk_is_one_line(command, poems, tmp_path):
    parts = [tmp_path / name for name in "ab"]
    for name, part in zip("ab", parts, strict=True):
        words = ("count", poems / f"{name}.txt", *SMALL, "--tokenizer", "bytes", "--out", part)
        assert command(*words)[0] == 0
    with small_disk((parts[0] / "counts.npz").stat().st_size // 2):
        code, printed, errors = command("merge", *parts, "--out", tmp_path / "out")
    assert (code, printed, errors.count("\n")) == (2, "", 1)
    assert f"cannot write {tmp_path / 'out' / 'counts.npz'} (File too large)" in errors
    assert not (tmp_path / "out").exists()
