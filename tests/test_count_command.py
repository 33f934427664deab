"""`jaxpe count`, `jaxpe merge` and `jaxpe report --counts` as a person types them."""

import json

import numpy as np
import pytest

import jaxpe
from jaxpe import counting
from jaxpe.data import containment_groups, find_shards, load_tokens, open_tokenizer
from jaxpe.report import _analyse, _scores, _write, analyse, analyse_counts

SMALL = ("--length", 8, "--folds", 4, "--nulls", 2, "--batch-size", 64)
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


@pytest.fixture
def quick(monkeypatch):
    """Without figures and with few encodings: neither is what these tests are about."""
    few = jaxpe.catalogue("sinusoidal", "learned", "alibi")
    monkeypatch.setattr(_scores, "scored_entries", lambda: few)
    monkeypatch.setattr(_write, "render_figures", lambda analysis: [])


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
    assert table["folds"] == "4, and 2 nulls in 4"
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
        ((a, poems, "--out", tmp_path / "x"), "holds no counts"),
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


BAD = {
    "no source": ((), "no shards; pass paths or globs"),
    "no such file": (("none.txt",), "no such file: none.txt"),
    "a folder": (("FOLDER",), "is a directory; pass a glob of its files"),
    "standard input": (("-",), "standard input cannot be read again"),
    "ids": (("synthetic",), "no such file: synthetic"),
    "tokenizer": (("A", "--tokenizer", "syllables"), "unknown tokenizer 'syllables'"),
    "length": (("A", "--length", 0), "length is 0; pass at least 2"),
    "one fold": (("A", "--folds", 2), "folds is 2; pass an even number, at least 4"),
    "one null": (("A", "--nulls", 1), "nulls is 1; pass 0 for none, or at least 2"),
    "seed": (("A", "--seed", -1), "seed is -1"),
    "no bins": (("A", "--bins", 0), "bins"),
    "more bins than positions": (("A", "--length", 8, "--bins", 9), "bins"),
    "batch size": (("A", "--tokenizer", "bytes", "--batch-size", 0), "batch_size is 0"),
    "saves": (("A", "--tokenizer", "bytes", "--save-every", 0), "save_every is 0"),
    "memory": (("A", "--tokenizer", "bytes", "--memory", 0.1), "of memory and there are 0.1 GB"),
    "memory of NaN": (("A", "--memory", "nan"), "--memory is nan; pass gigabytes"),
    "no vocabulary": (("A", "--vocab", "none.json"), "none.json is no vocabulary"),
    "vocabulary twice": (("A", "--vocab", "A", "--max-vocab", 9), "leave max_vocab out"),
    "vocabulary of bytes": (("A", "--tokenizer", "bytes", "--max-vocab", 9), "of its own"),
    "special": (("A", "--special"), "no special tokens"),
    "small vocabulary": (("A", "--max-vocab", 1), "max_vocab is 1; pass at least 2"),
    "column": (("T", "--text-field", "body"), "no column 'body'"),
    "group of lines": (("A", "--group-field", "by"), "no columns for group_field 'by'; pass .tsv"),
    "group column": (("T", "--group-field", "by"), "no column 'by'; pass one of 'n', 'text' as"),
    "processes": (("A", "--processes", 2), "coordinator, processes and process go together"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_exit_2(command, poems, tmp_path, words, message):
    (tmp_path / "t.tsv").write_text("n\ttext\n1\ta\n")
    stands_for = {"A": poems / "a.txt", "T": tmp_path / "t.tsv", "FOLDER": poems}
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
    settings = counting.count_settings(tokenizer, length=14, folds=8, nulls=3)
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
    assert "from a jackknife over 8 folds of the documents" in page
    text = (tmp_path / "out" / "report.json").read_text()
    report = json.loads(text)
    assert report["split_half"]["effective_rank"] >= 1
    assert report["documents"] == 300
    assert report["empty_positions"] == {"policy": "drop", "count": 14 - 12}
    assert set(report["intervals"]) == {
        *("split_half_trace", "noise_share", "split_half_violation_rate")
    }
    low, high = report["intervals"]["noise_share"][1:]
    assert low < report["plug_in"]["noise_share"] < high
    assert_no_nonsense(printed)
    assert_no_nonsense(text)


@pytest.mark.usefixtures("quick")
def test_report_on_counts_without_nulls_judges_no_dimensions(command, stored, tmp_path):
    shape = (0, *stored.nulls.shape[1:])
    without = stored._replace(
        nulls=np.zeros(shape, np.int32), settings=stored.settings._replace(nulls=0)
    )
    counting.write_counts(without, tmp_path / "counts")
    code, printed, errors = command(
        "report", "--counts", tmp_path / "counts", *REPORT, "--out", tmp_path / "out"
    )
    assert code == 0, errors
    assert cells(printed)["Real"].split()[1] == "unknown"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "How many dimensions of position are real was not judged" in page
    text = (tmp_path / "out" / "report.json").read_text()
    assert json.loads(text)["split_half"]["effective_rank"] is None
    for shown in (printed, page, text):
        assert_no_nonsense(shown)


@pytest.mark.usefixtures("quick")
def test_report_on_next_to_nothing(command, tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    words = ("--tokenizer", "bytes", "--length", 14, "--folds", 4, "--nulls", 2)
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
        (("imdb",), "leave a source out"),
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


def test_more_positions_than_a_report_has(stored):
    with pytest.raises(ValueError, match=r"5,000 positions are more than the 4,096 .* --bins"):
        analyse_counts(stored._replace(settings=stored.settings._replace(length=5000)))


def test_counts_tell_what_the_documents_tell(poems, tmp_path, monkeypatch):
    monkeypatch.setattr(_analyse, "score_encodings", lambda *about: ([], []))
    monkeypatch.setattr(_analyse, "stress_by_dimension", lambda *about: ([], {}, {}))
    text = "".join((poems / f"{name}.txt").read_text() + "\n" for name in ("a", "b"))
    (tmp_path / "all.txt").write_text(text)
    corpus = load_tokens(tmp_path / "all.txt", length=14)
    by_hand = counting.StoredCounts(
        table=np.asarray(
            jaxpe.count_tokens(
                corpus.ids,
                vocab_size=corpus.vocab_size,
                mask=corpus.mask,
                folds=16,
                groups=containment_groups(corpus.ids, corpus.mask),
            ).tokens
        ),
        nulls=np.zeros((0, 4, 14, corpus.vocab_size), np.int32),
        documents=300,
        settings=counting.CountSettings("words", "", 14, None, corpus.vocab_size, (), 16, 0, 4, 0),
        tokens=corpus.tokens,
        shards=(counting.CountedShard("all.txt, 1 bytes, CRC-32 0", 300),),
    )
    options = {"dim": 8, "splits": 4, "seed": 5}
    of_counts, of_documents = (
        analyse_counts(by_hand, **options),
        analyse(corpus, **options, bootstrap=0),
    )
    for field in ("hellinger", "plug_in_eigenvalues", "documents_per_position", "present"):
        np.testing.assert_allclose(
            getattr(of_counts, field), getattr(of_documents, field), rtol=1e-5, atol=1e-6
        )
    for field in ("plug_in_rank", "plug_in_violation_rate", "top_tokens", "documents", "tokens"):
        assert getattr(of_counts, field) == getattr(of_documents, field), field
    assert of_counts.source == of_documents.source
    # With the same folds and the same key, the halves are the same.
    for field in ("split_half_trace", "split_half_violation_rate", "noise_share"):
        np.testing.assert_allclose(getattr(of_counts, field), getattr(of_documents, field))
    assert of_counts.intervals.keys() >= {"split_half_trace", "noise_share"}
