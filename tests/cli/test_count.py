"""`jaxpe count`, `jaxpe merge` and `jaxpe report --counts` as a person types them."""

import json
import os
import resource

import numpy as np
import pytest

from jaxpe._core.files import locked_folder
from jaxpe.analysis import counts as counting
from jaxpe.analysis.corpus.result import SHARES
from jaxpe.data import find_shards, open_tokenizer

SMALL = ("--length", 8, "--folds", 4, "--nulls", 19, "--batch-size", 64)
REPORT = ("--dim", 8, "--splits", 4)


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


def test_count_words_with_a_first_pass(command, poems, tmp_path):
    out = tmp_path / "counts"
    code, printed, errors = command("count", poems / "*.txt", *SMALL, "--out", out)
    assert code == 0, errors
    table = cells(printed)
    assert table["documents"] == "300"
    assert table["positions"] == "8"
    assert table["vocabulary"] == "31 (words)"
    assert table["folds"] == "4, and 19 nulls in 4"
    assert table["shards"] == "2"
    assert str(out) in printed.replace("\n", "")
    assert "first pass, for the vocabulary of words" in errors
    about = json.loads((out / "counts.json").read_text())
    assert about["documents"] == 300
    assert [shard["documents"] for shard in about["shards"]] == [150, 150]
    assert about["settings"]["length"] == 8
    assert about["tokens"][0] == "the"
    # Once more: all is there.
    code, _, errors = command("count", poems / "*.txt", *SMALL, "--out", out)
    assert code == 0
    assert "holds these counts already" in " ".join(errors.split())
    assert "first pass" not in errors


def test_a_vocabulary_cut_and_handed_on_makes_counts_that_merge(command, poems, tmp_path):
    a, b, both, merged = (tmp_path / name for name in ("a", "b", "both", "merged"))
    whole = ("count", poems / "*.txt", *SMALL, "--max-vocab", 9, "--out", both)
    assert command(*whole)[0] == 0
    vocabulary = ("--vocab", both / "vocabulary.json")
    for name, out in (("a", a), ("b", b)):
        code, _, errors = command("count", poems / f"{name}.txt", *SMALL, *vocabulary, "--out", out)
        assert code == 0, errors
    code, printed, errors = command("merge", a, b, "--out", merged)
    assert code == 0, errors
    assert cells(printed)["documents"] == "300"
    for name in ("counts.npz", "counts.json"):
        assert (merged / name).read_bytes() == (both / name).read_bytes()
    assert counting.read_counts(merged).tokens[-1] == "[UNK]"
    for words, message in (
        ((a, a, "--out", tmp_path / "x"), "a.txt, "),
        ((a, "--out", tmp_path / "x"), "1 counts; pass at least two"),
        ((a, b, "--out", merged), "holds counts already; pass another folder"),
        ((a, poems, "--out", tmp_path / "x"), "counts.json cannot be read"),
    ):
        code, printed, errors = command("merge", *words)
        assert (code, printed) == (2, "")
        assert message in errors
    # The vocabulary beside finished counts is not made anew for other options.
    code, _, errors = command("count", poems / "a.txt", *SMALL, "--max-vocab", 5, "--out", both)
    assert code == 2
    assert "holds other counts, of another vocabulary; pass another --out" in errors
    assert len(json.loads((both / "vocabulary.json").read_text())["tokens"]) == 9


def test_a_vocabulary_of_one_token_a_line(command, poems, tmp_path):
    (tmp_path / "v.txt").write_bytes("\ufeffthe\r\nword0\r\n\u2028\r\n[UNK]\r\n".encode())
    out = tmp_path / "out"
    code, _, errors = command(
        "count", poems / "a.txt", *SMALL, "--vocab", tmp_path / "v.txt", "--out", out
    )
    assert code == 0, errors
    assert counting.read_counts(out).tokens == ["the", "word0", "\u2028", "[UNK]"]


def test_bins_and_bytes(command, poems, tmp_path):
    out = tmp_path / "out"
    words = ("--tokenizer", "bytes", "--length", 64, "--bins", 4, "--spacing", "log")
    code, printed, errors = command(
        "count", poems / "a.txt", *words, "--folds", 4, "--nulls", 0, "--out", out
    )
    assert code == 0, errors
    assert cells(printed)["positions"] == "64 in 4 bins"
    edges = counting.read_counts(out).settings.edges
    assert (edges[0], edges[-1], len(edges)) == (0, 64, 5)


def test_counts_by_a_column_add_to_those_of_all(command, poems, tmp_path):
    lines = (poems / "a.txt").read_text().splitlines()
    values = ["de", "without", "en/GB", None]
    rows = [{"text": line, "lang": values[n % 4]} for n, line in enumerate(lines)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("count", tmp_path / "a.jsonl", *SMALL, "--out")
    assert command(*words, tmp_path / "all")[0] == 0
    code, printed, errors = command(*words, tmp_path / "by", "--by", "lang")
    assert code == 0, errors
    assert cells(printed)["de"].split()[0] == "38"
    in_table = [name for name in cells(printed) if name in {"–", *values}]
    assert in_table == ["de", "en/GB", "without", "–"]  # those without a value come last
    folders = sorted(path for path in (tmp_path / "by").iterdir() if path.is_dir())
    *names, apart = (folder.name for folder in folders)
    assert names == ["de", "en_GB", "without"]
    assert apart.startswith("without-")
    groups = [counting.read_counts(tmp_path / "by" / name) for name in ("without", apart)]
    assert [group.documents for group in groups] == [
        sum(row["lang"] == value for row in rows) for value in (None, "without")
    ]
    assert command("merge", *folders, "--out", tmp_path / "sum")[0] == 0
    whole = [(tmp_path / name / "counts.npz").read_bytes() for name in ("all", "sum")]
    assert whole[0] == whole[1]
    for more, message in (
        (("--by", "x"), "no column 'x'"),
        (("--by", "lang", "--group-field", "lang"), "leave --group-field and"),
    ):
        code, _, errors = command(*words, tmp_path / "x", *more)
        assert code == 2
        assert message in errors


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
    words = ("count", tmp_path / "x.jsonl", tmp_path / "y.jsonl", *SMALL, "--batch-size", 8)
    code, printed, errors = command(*words, "--out", tmp_path / "counts")
    assert (code, printed) == (2, "")
    assert "x.jsonl, line 4: 'text' is null or missing; pass --skip-nulls" in errors
    code, printed, errors = command(*words, "--skip-nulls", "--out", tmp_path / "counts")
    assert code == 0, errors
    assert "10 rows without text" in " ".join(printed.split())
    stored = counting.read_counts(tmp_path / "counts")
    assert [shard.null_texts for shard in stored.shards] == [8, 2]
    assert (stored.documents, stored.null_texts) == (40, 10)
    code, printed, errors = command(*words, "--out", tmp_path / "counts")
    assert code == 2
    assert "10 rows were left out" in errors


BYTES = ("--tokenizer", "bytes")
BAD = {
    "no source": ((), "no files; pass paths, folders or patterns"),
    "no such file": (("none.txt",), "no such file: none.txt"),
    "an empty folder": (("EMPTY",), "is a folder without files to read"),
    "standard input": (("-",), "standard input cannot be read again"),
    "ids": (("synthetic",), "synthetic holds token ids"),
    "tokenizer": (("A", "--tokenizer", "syllables"), "unknown tokenizer 'syllables'"),
    "length": (("A", "--length", 0), "--length is 0; pass at least 2"),
    "one fold": (("A", "--folds", 2), "--folds is 2; pass an even number, at least 4"),
    "one null": (("A", "--nulls", 1), "--nulls is 1; pass 0 for none, or at least 2"),
    "seed": (("A", "--seed", -1), "--seed is -1"),
    "huge length": (("A", "--length", 10**9, *BYTES), "of memory, and"),
    "endless length": (("A", "--length", 10**30, *BYTES), "--length is 10000"),
    "huge folds": (("A", "--folds", 10**9, *BYTES), "of memory, and"),
    "negative folds": (("A", "--folds", -4), "--folds is -4"),
    "odd folds": (("A", "--folds", 7), "--folds is 7"),
    "huge nulls": (("A", "--nulls", 10**9, *BYTES), "of memory, and"),
    "huge seed": (("A", "--seed", 2**32), "--seed is 4294967296"),
    "no bins": (("A", "--bins", 0), "--bins is 0"),
    "negative bins": (("A", "--bins", -1), "--bins is -1"),
    "huge bins": (("A", "--bins", 10**30), "--bins is 10000"),
    "more bins than positions": (("A", "--length", 8, "--bins", 9), "--bins is 9"),
    "as many bins as memory": (("A", "--length", 2 * 10**9, "--bins", 2 * 10**9), "of memory"),
    "few bins of a huge length": (("A", *BYTES, "--length", 10**9, "--bins", 4), "of memory"),
    "batch size": (("A", *BYTES, "--batch-size", 0), "--batch-size is 0"),
    "huge batches": (("A", *BYTES, "--batch-size", 10**11), "--batch-size is 100000000000"),
    "large batches": (("A", *BYTES, "--batch-size", 10**9), "of memory, and"),
    "endless saves": (("A", *BYTES, "--save-every", 10**30), "--save-every is 10000"),
    "endless vocabulary": (("A", "--vocab", "/dev/zero"), "/dev/zero is not a regular file"),
    "vocabulary a folder": (("A", "--vocab", "FOLDER"), "is not a regular file"),
    "vocabulary of a pipe": (("A", "--vocab", "PIPE"), "is not a regular file"),
    "vocabulary of numbers": (("A", "--vocab", "[1]"), "[0] is 1, not a string"),
    "vocabulary too deep": (("A", "--vocab", "[" * 10**5), "nested too deeply"),
    "vocabulary an object": (("A", "--vocab", "{}"), "is no vocabulary"),
    "vocabulary a number": (("A", "--vocab", "7"), "is no vocabulary"),
    "empty vocabulary": (("A", "--vocab", "[]"), "the vocabulary is empty"),
    "bare vocabulary": (("A", "--vocab", '{"tokens": ["a"]}'), "lacks 'length'"),
    "saves": (("A", "--tokenizer", "bytes", "--save-every", 0), "--save-every is 0"),
    "memory": (("A", "--tokenizer", "bytes", "--memory", 0.1), "of memory, and 0.1 GB"),
    "memory of NaN": (("A", "--memory", "nan"), "--memory is nan; pass at least 0"),
    "memory of infinity": (("A", "--memory", "inf"), "--memory is inf; pass at most"),
    "memory of negatives": (("A", "--memory", "-1"), "--memory is -1.0; pass at least 0"),
    "memory beyond": (("A", "--memory", "1e300"), "--memory is 1e+300; pass at most"),
    "memory of nothing": (("A", *BYTES, "--memory", "1e-300"), "0.0 GB are free"),
    "no vocabulary": (("A", "--vocab", "none.json"), "none.json cannot be read"),
    "vocabulary twice": (("A", "--vocab", "A", "--max-vocab", 9), "leave --max-vocab out"),
    "vocabulary of bytes": (("A", "--tokenizer", "bytes", "--max-vocab", 9), "of its own"),
    "special": (("A", "--special"), "no special tokens"),
    "small vocabulary": (("A", "--max-vocab", 1), "--max-vocab is 1; pass at least 2"),
    "column": (("T", "--text-field", "body"), "no column 'body'"),
    "group of lines": (
        ("A", "--group-field", "by"),
        "has no columns; leave --group-field out",
    ),
    "group column": (("T", "--group-field", "by"), "no column 'by'; pass one of 'n', 'text' as"),
    "processes": (("A", "--processes", 2), "--coordinator, --processes and --process go together"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_exit_2(command, poems, tmp_path, words, message):
    (tmp_path / "t.tsv").write_text("n\ttext\n1\ta\n")
    stands_for = {
        "A": poems / "a.txt",
        "T": tmp_path / "t.tsv",
        "FOLDER": poems,
        "EMPTY": tmp_path / "no",
    }
    (tmp_path / "no").mkdir()
    if "PIPE" in words:
        os.mkfifo(tmp_path / "pipe.json")
        stands_for["PIPE"] = tmp_path / "pipe.json"
    if "--vocab" in words and str(words[2])[0] in "[{7":
        (tmp_path / "v.json").write_text(words[2])
        stands_for[words[2]] = tmp_path / "v.json"
    out = tmp_path / "out"
    code, printed, errors = command(
        "count", *(stands_for.get(word, word) for word in words), "--out", out
    )
    assert (code, printed) == (2, "")
    *before, last = errors.splitlines()
    assert last.startswith("jaxpe: ")
    assert message in last
    assert all("first pass" in line for line in before)
    assert not (out / "counts.json").exists()


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
    whole, limits = (
        (parts[0] / "counts.npz").stat().st_size,
        resource.getrlimit(resource.RLIMIT_FSIZE),
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole // 2, limits[1]))
    try:
        code, printed, errors = command("merge", *parts, "--out", tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (code, printed) == (2, "")
    assert errors.startswith(
        f"jaxpe: cannot write {tmp_path / 'out' / 'counts.npz'} (File too large)"
    )
    assert len(errors.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_shard_changed_in_its_middle_is_another(command, tmp_path):
    """At equal length, far from both ends."""
    rows = [f"{number:05} to be or not to be" for number in range(12_000)]
    (tmp_path / "a.txt").write_text("\n".join(rows))
    for row, tokenizer in ((6000, "words"), (6001, "bytes")):
        words = ("count", tmp_path / "a.txt", "--length", 4, "--folds", 4, "--nulls", 0)
        words = (*words, "--tokenizer", tokenizer, "--out", tmp_path / tokenizer)
        assert command(*words)[0] == 0
        rows[row] = rows[row].replace("not", "NOT")
        (tmp_path / "a.txt").write_text("\n".join(rows))
        code, _, errors = command(*words)
        assert code == 2
        assert "holds other counts" in errors
    # Under another name it is what it was.
    (tmp_path / "b.txt").write_text("\n".join(rows))
    words = ("--length", 4, "--folds", 4, "--nulls", 0, *BYTES)
    for name in "ab":
        out = tmp_path / f"of {name}"
        assert command("count", tmp_path / f"{name}.txt", *words, "--out", out)[0] == 0
    code, _, errors = command(
        "merge", tmp_path / "of a", tmp_path / "of b", "--out", tmp_path / "both"
    )
    assert code == 2
    assert "b.txt, " in errors
    assert f"is counted in {tmp_path / 'of a'} (as a.txt)" in errors
    code, _, errors = command("count", tmp_path / "b.txt", *words, "--out", tmp_path / "of a")
    assert code == 0
    assert "holds these counts already" in " ".join(errors.split())


def test_a_file_in_the_way(command, poems, tmp_path):
    (tmp_path / "out").write_text("in the way")
    for tokenizer in ("words", "bytes"):
        code, _, errors = command(
            "count", poems / "a.txt", *SMALL, "--tokenizer", tokenizer, "--out", tmp_path / "out"
        )
        assert code == 2
        assert str(tmp_path / "out") in errors


@pytest.fixture(scope="module")
def stored(poems):
    """Counts with and without nulls, made without the command."""
    shards = find_shards([poems / "*.txt"])
    tokenizer = open_tokenizer(vocabulary=["the", *(f"word{k}" for k in range(30))])
    settings = counting.count_settings(tokenizer, length=14, folds=8, nulls=19)
    folder = poems / "counts"
    return counting.count_shards(shards, folder, tokenizer=tokenizer, settings=settings)


def assert_no_nonsense(text):
    for nonsense in ("nan", "-1 dim", "−1 dim", "-1 real", "−1 real", "infinity"):
        assert nonsense not in text.lower().replace("-nan-", ""), nonsense


@pytest.mark.usefixtures("quick")
def test_report_on_counts(command, stored, poems, tmp_path):
    code, printed, errors = command(
        "report", "--counts", poems / "counts", *REPORT, "--out", tmp_path / "out"
    )
    assert code == 0, errors
    assert "a.txt and 1 more: 300 documents, length 14" in printed
    page = (tmp_path / "out" / "report.html").read_text()
    assert "from half-samples of 4 folds of the documents" in page
    text = (tmp_path / "out" / "report.json").read_text()
    report = json.loads(text)
    assert report["position"]["significant_rank"] >= 1
    assert report["documents"] == 300
    assert report["empty_positions"] == {"policy": "drop", "count": 14 - 12}
    assert set(report["intervals"]) == {
        *("noise_share", "composition_share", "position_share", "nearness")
    }
    parts = [report["intervals"][f"{name}_share"]["estimate"] for name in SHARES]
    np.testing.assert_allclose(sum(parts), 1, rtol=1e-5)
    assert_no_nonsense(printed)
    assert_no_nonsense(text)


def test_a_report_needs_rotated_corpora(command, stored, tmp_path):
    shape = (0, *stored.nulls.shape[1:])
    without = stored._replace(
        nulls=np.zeros(shape, np.int32), settings=stored.settings._replace(nulls=0)
    )
    counting.write_counts(without, tmp_path / "counts")
    code, _, errors = command("report", "--counts", tmp_path / "counts", "--out", tmp_path / "out")
    assert code == 2
    assert "0 rotated corpora" in errors
    assert "20 nulls" in errors


@pytest.mark.usefixtures("quick")
def test_report_on_next_to_nothing(command, tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    words = ("--tokenizer", "bytes", "--length", 14, "--folds", 4, "--nulls", 19)
    assert command("count", tmp_path / "a.txt", *words, "--out", tmp_path / "counts")[0] == 0
    code, printed, errors = command(
        "report", "--counts", tmp_path / "counts", *REPORT, "--out", tmp_path / "out"
    )
    assert code == 0, errors
    shown = [printed, *((tmp_path / "out" / f"report.{e}").read_text() for e in ("html", "json"))]
    for text in shown:
        assert_no_nonsense(text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("imdb",), "leave source out"),
        (("--tokenizer", "bytes"), "leave --tokenizer out"),
        (("--length", 8), "leave --length out"),
        (("--special",), "leave --special out"),
        (("--text-field", "x"), "leave --text-field out"),
        (("--dim", 7), "--dim must be"),
    ],
)
def test_counts_bring_what_was_counted(command, stored, poems, tmp_path, words, message):
    code, _, errors = command(
        "report", *words, "--counts", poems / "counts", "--out", tmp_path / "out"
    )
    assert code == 2
    assert message in errors
