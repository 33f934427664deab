"""Counts equal those of the whole corpus, to the bit, however it is divided, killed and resumed."""

import json
import zlib

import jax
import numpy as np
import pytest

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT
from jaxpe.analysis.counts import (
    CountOptions,
    cells,
    count_documents,
    is_counted,
    job,
    merge,
    read_counts,
)
from jaxpe.data import open_tokenizer
from jaxpe.geometry import fold_of_documents, rotate_within_documents
from tests.analysis.counts.test_stored import equal
from tests.progress import Told

BYTES = open_tokenizer("bytes")
OPTIONS = {"tokenizer": "bytes", "length": 12, "folds": 8, "nulls": 2, "seed": 3, "workers": 0}


def texts():
    rng = np.random.default_rng(0)
    words = ["to", "be", "or", "not", "naïve", "x" * 30]
    documents = [" ".join(rng.choice(words, rng.integers(1, 6))) for _ in range(60)]
    return [*documents, *documents[:10]]  # copies share a fold and an offset


def count(folder, *sources, progress=SILENT, **options):
    options = CountOptions(sources=tuple(map(str, sources)), **OPTIONS | options)
    return job.count(options, folder, progress=progress)


def same_file(one, other):
    return (one / "counts.npz").read_bytes() == (other / "counts.npz").read_bytes()


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """70 documents in three files, one of which is empty."""
    folder = tmp_path_factory.mktemp("shards")
    for name, part in zip("abc", (texts()[:45], [], texts()[45:]), strict=True):
        (folder / f"{name}.txt").write_text("\n".join(part))
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def counted(shards, tmp_path_factory):
    """Folder of an undisturbed count in one process."""
    folder = tmp_path_factory.mktemp("counted")
    count(folder, *shards)
    return folder


@pytest.fixture(scope="module")
def ids_and_mask():
    return BYTES.encode(texts(), length=12)


def test_counts_are_those_of_the_whole(counted, ids_and_mask):
    ids, mask = ids_and_mask
    stored = read_counts(counted)
    expected = jaxpe.count_tokens(ids, vocab_size=256, mask=mask, folds=8)
    np.testing.assert_array_equal(stored.table, expected.tokens)
    assert stored.header.documents == 70 == expected.documents == stored.counts.documents
    assert [(x.name, x.documents) for x in stored.header.shards] == [
        ("a.txt", 45), ("b.txt", 0), ("c.txt", 25)
    ]  # fmt: skip
    assert sorted(path.name for path in counted.iterdir()) == [".lock", "counts.npz", "shards"]
    assert len([*(counted / "shards").glob("*.npz")]) == 2


@pytest.mark.parametrize("exclude", [(), (32,)])
def test_nulls_are_those_of_documents_rotated_by_hand(ids_and_mask, exclude):
    ids, mask = ids_and_mask
    tokenizer = BYTES._replace(exclude=exclude)
    settings = CountOptions(sources=(), **OPTIONS).settings(tokenizer)
    assert (settings.folds, settings.null_folds) == (8, 4)
    numbers, counts = count_documents(texts(), tokenizer=tokenizer, settings=settings)
    rows = np.zeros((settings.table_rows, 256), np.int64)
    rows[np.divmod(numbers, cells.STRIDE)] = counts
    blocks = rows.reshape(-1, 12, 256)
    arguments = {"vocab_size": 256, "exclude": exclude}
    expected = jaxpe.count_tokens(ids, mask=mask, folds=8, **arguments)
    np.testing.assert_array_equal(blocks[:8], expected.tokens)
    fold = np.asarray(fold_of_documents(ids, mask, folds=8)) % 4
    nulls = blocks[8:].reshape(2, 4, 12, 256)
    for number, null in enumerate(nulls):
        key = jax.random.fold_in(jax.random.key(3), number)
        rotated = rotate_within_documents(key, ids, mask, exclude=exclude)
        for k in range(4):
            in_fold = mask & (fold == k)[:, None]
            expected = jaxpe.count_tokens(rotated, mask=in_fold, **arguments)
            np.testing.assert_array_equal(null[k], expected.tokens)
    assert not np.array_equal(*nulls)


@pytest.mark.parametrize(
    ("most", "options"),
    [(1, {}), (16, {"workers": None}), (70, {"workers": 1}), (4096, {"workers": 2})],
)
def test_batches_and_processes_change_nothing(
    shards, counted, tmp_path, monkeypatch, most, options
):
    monkeypatch.setattr(cells, "_MOST_DOCUMENTS", most)
    count(tmp_path, *shards, **options)
    assert same_file(tmp_path, counted)


def test_the_cut_into_shards_and_their_order_change_nothing(shards, counted, tmp_path):
    (tmp_path / "one.txt").write_text("\r\n".join(texts()[::-1]) + "\n")
    stored, expected = count(tmp_path / "one", tmp_path / "one.txt"), read_counts(counted)
    np.testing.assert_array_equal(stored.table, expected.table)
    np.testing.assert_array_equal(stored.nulls, expected.nulls)
    count(tmp_path / "reversed", *shards[::-1])
    assert same_file(tmp_path / "reversed", counted)


@pytest.mark.parametrize("workers", [0, 2])
def test_copies_of_a_shard_count_twice(shards, counted, tmp_path, workers):
    copy = tmp_path / "copy.txt"
    copy.write_bytes(shards[0].read_bytes())
    stored = count(tmp_path / "counts", *shards, copy, workers=workers)
    assert stored.header.documents == 70 + 45
    assert stored.table.sum() > read_counts(counted).table.sum()


def test_parts_of_several_machines_merge_to_the_same_bytes(tmp_path):
    for k in range(5):
        (tmp_path / f"{k}.txt").write_text("\n".join(texts()[k::5]))
    count(tmp_path / "whole", tmp_path / "?.txt")
    for part in range(2):
        count(tmp_path / f"part {part}", tmp_path / "?.txt", part=part, parts=2)
    for order in ((0, 1), (1, 0)):
        out = tmp_path / f"{order}"
        merge([tmp_path / f"part {part}" for part in order], out)
        assert same_file(out, tmp_path / "whole")
    with pytest.raises(InputError, match="5 shards"):
        count(tmp_path / "none", tmp_path / "?.txt", part=5, parts=9)


@pytest.mark.parametrize("tokenizer", ["words", "characters"])
def test_vocabularies_of_shards_do_not_change_the_sum(tmp_path, tokenizer):
    halves = {"a": [*texts()[::2], "only here"], "b": [*texts()[1::2], "or not", "elsewhere"]}
    for name, rows in halves.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(rows))
    (tmp_path / "whole.txt").write_text("\n".join(halves["b"] + halves["a"]))
    options = {"tokenizer": tokenizer, "length": 4}
    parts = [count(tmp_path / name, tmp_path / f"{name}.txt", **options) for name in "ab"]
    assert parts[0].header.tokens != parts[1].header.tokens
    count(tmp_path / "both", tmp_path / "[ab].txt", **options)
    for order in ("ab", "ba"):
        merge([tmp_path / name for name in order], tmp_path / "merged" / order)
        assert same_file(tmp_path / "merged" / order, tmp_path / "both")
    both = read_counts(tmp_path / "both")
    whole = count(tmp_path / "whole", tmp_path / "whole.txt", **options)
    assert both.header.tokens == whole.header.tokens
    np.testing.assert_array_equal(both.table, whole.table)
    np.testing.assert_array_equal(both.nulls, whole.nulls)


def test_the_largest_vocabulary_adds_up_rarer_words(shards, tmp_path):
    options = {"tokenizer": "words", "length": 4}
    whole = count(tmp_path / "counts", *shards, **options)
    cut = count(tmp_path / "counts", *shards, **options, max_vocab=4)  # from the same files
    total = whole.table.sum(axis=(0, 1))
    by_frequency = sorted(zip(whole.header.tokens, total, strict=True), key=lambda x: (-x[1], x[0]))
    frequent = sorted(token for token, _ in by_frequency[:3])
    assert cut.header.tokens == [*frequent, "[UNK]"]
    assert cut.header.settings.vocab_size == 4
    columns = [whole.header.tokens.index(token) for token in frequent]
    for one, all_words in ((cut.table, whole.table), (cut.nulls, whole.nulls)):
        np.testing.assert_array_equal(one[..., :3], all_words[..., columns])
        np.testing.assert_array_equal(one.sum(axis=-1), all_words.sum(axis=-1))
    # A folder is a vocabulary.
    again = count(tmp_path / "again", *shards, **options, vocab=tmp_path / "counts")
    assert again.header.tokens == cut.header.tokens
    np.testing.assert_array_equal(again.table.sum(axis=0), cut.table.sum(axis=0))


def test_bins_are_sums_of_positions(shards, counted, tmp_path):
    whole, binned = read_counts(counted), count(tmp_path, *shards, bins=3, spacing="log")
    edges = np.array(binned.header.settings.edges, np.int32)
    assert (edges[0], edges[-1], len(edges)) == (0, 12, 4)
    np.testing.assert_array_equal(binned.table, np.add.reduceat(whole.table, edges[:-1], axis=1))
    np.testing.assert_array_equal(binned.nulls, np.add.reduceat(whole.nulls, edges[:-1], axis=2))


def test_documents_of_a_group_share_a_fold(tmp_path):
    authors = [f"author {number % 9}" if number % 5 else None for number in range(70)]
    rows = [{"text": text, "by": by} for text, by in zip(texts(), authors, strict=True)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stored = count(tmp_path / "counts", tmp_path / "a.jsonl", group_field="by", nulls=0)
    ids, mask = BYTES.encode(texts(), length=12)
    names = [by or text for by, text in zip(authors, texts(), strict=True)]
    groups = np.array([zlib.crc32(name.encode()) for name in names])
    expected = jaxpe.count_tokens(ids, vocab_size=256, mask=mask, folds=8, groups=groups)
    np.testing.assert_array_equal(stored.table, expected.tokens)
    assert (stored.header.settings.group_field, stored.header.text_field) == ("by", "text")


@pytest.fixture
def read(monkeypatch):
    """Names of the shards that are counted; at one in `ends`, an error of no known kind."""
    names, ends, real = list[str](), set[str](), job.count_shard

    def count_shard(shard, *args, **options):
        names.append(shard.name)
        if shard.name in ends:
            raise ZeroDivisionError
        return real(shard, *args, **options)

    monkeypatch.setattr(job, "count_shard", count_shard)
    return names, ends


def test_killed_in_the_middle_it_goes_on(shards, counted, tmp_path, read):
    names, ends = read
    ends.add("c.txt")
    with pytest.raises(ZeroDivisionError):
        count(tmp_path, *shards)
    assert not is_counted(tmp_path)
    ends.clear()
    names.clear()
    stored = count(tmp_path, *shards)
    assert names == ["b.txt", "c.txt"]  # an empty one has no counts to store
    assert same_file(tmp_path, counted)
    assert equal(stored, read_counts(tmp_path))


def test_a_finished_folder_goes_on_with_more_shards_and_changed_ones(tmp_path, read):
    names, _ = read
    sources = [tmp_path / f"{name}.txt" for name in "xyz"]
    for source, rows in zip(sources, (texts()[:30], texts()[30:50], texts()[50:]), strict=True):
        source.write_text("\n".join(rows))
    count(tmp_path / "counts", *sources[:2])
    names.clear()
    count(tmp_path / "counts", *sources)
    assert names == ["z.txt"]
    # A change at equal length makes another shard; a new name does not.
    sources[0].write_text(sources[0].read_text().replace("be", "BE", 1))
    sources[1] = sources[1].rename(tmp_path / "y2.txt")
    names.clear()
    count(tmp_path / "counts", *sources)
    assert names == ["x.txt"]
    count(tmp_path / "anew", *sources)
    one, other = read_counts(tmp_path / "counts"), read_counts(tmp_path / "anew")
    np.testing.assert_array_equal(one.table, other.table)
    np.testing.assert_array_equal(one.nulls, other.nulls)


@pytest.mark.parametrize(
    "options", [{"seed": 4}, {"length": 13}, {"folds": 4}, {"tokenizer": "characters"}]
)
def test_a_folder_of_other_counts_is_refused(shards, counted, options):
    before = (counted / "counts.npz").stat()
    with pytest.raises(InputError, match="holds counts of"):
        count(counted, *shards, **options)
    assert (counted / "counts.npz").stat() == before


def test_a_damaged_file_of_a_shard_is_named(shards, tmp_path):
    count(tmp_path, *shards)
    file = min((tmp_path / "shards").iterdir())
    file.write_bytes(file.read_bytes()[:-99])
    with pytest.raises(InputError, match=file.name):
        count(tmp_path, *shards)


@pytest.mark.parametrize(("at", "workers"), [(0, 0), (1, 0), (1, 2)])
def test_an_unreadable_shard_stops_the_count_or_is_left_out(shards, counted, tmp_path, at, workers):
    broken = tmp_path / "broken.txt"
    broken.write_bytes(b"fine\n" * 30 + b"\xff")
    sources = [shards[0], shards[2]]
    sources.insert(at, broken)
    for _ in range(2):
        with pytest.raises(InputError, match=r"broken\.txt, line 31"):
            count(tmp_path / "counts", *sources, workers=workers)
        assert not is_counted(tmp_path / "counts")
    stored = count(tmp_path / "counts", *sources, workers=workers, skip_unreadable=True)
    np.testing.assert_array_equal(stored.table, read_counts(counted).table)
    found = {x.name: (x.documents, "line 31" in x.unreadable) for x in stored.header.shards}
    assert found == {"a.txt": (45, False), "broken.txt": (0, True), "c.txt": (25, False)}
    assert equal(read_counts(tmp_path / "counts"), stored)
    # Repaired, it is counted.
    broken.write_bytes(b"fine\n" * 30)
    assert count(tmp_path / "counts", *sources).header.documents == 100


@pytest.mark.parametrize(("text", "what"), [("\n \n\n", "documents"), ("\u200b\n", "tokens")])
def test_no_documents_and_no_tokens(tmp_path, text, what):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(InputError, match=f"no {what} in 1 shards; pass files with text"):
        count(tmp_path / "counts", tmp_path / "a.txt", tokenizer="words")
    assert not is_counted(tmp_path / "counts")
    (tmp_path / "b.txt").write_text("to be\n")  # beside others, such a shard is no error
    stored = count(tmp_path / "both", tmp_path / "?.txt", tokenizer="words")
    assert stored.header.tokens == ["be", "to"]


def test_near_copies_among_the_first_documents_are_told(tmp_path):
    rng = np.random.default_rng(0)
    letters = np.array([*"abcdefghijklmnopqrstuvwxyz"])
    base = letters[rng.integers(0, 26, (40, 12))]
    near = base.copy()
    near[:, 5] = "#"
    for name, documents in (("alone", base), ("near", np.concatenate([base, near]))):
        path, lines = tmp_path / f"{name}.txt", list[str]()
        path.write_text("\n".join(map("".join, documents)))
        count(tmp_path / name, path, progress=Told(lines), nulls=0)
        told = [line for line in lines if "`group_field`" in line]
        assert [line.startswith("50%") for line in told] == ([] if name == "alone" else [True])


@pytest.mark.parametrize("first", ["to be or not to be\n", ""])
def test_text_without_spaces_is_counted_as_words_only_on_request(tmp_path, first):
    """Also where only the sum of all shards shows it."""
    (tmp_path / "a.txt").write_text(first)
    (tmp_path / "dna.txt").write_text("\n".join(("ACGT" * 12, "TTAACCGG" * 6, "CATG" * 12)))
    options = {"tokenizer": None, "nulls": 0, "length": 128}
    sources = tmp_path / "a.txt", tmp_path / "dna.txt"
    with pytest.raises(InputError, match="`tokenizer=characters`, or `tokenizer=words`"):
        count(tmp_path / "refused", *sources, **options)
    assert not is_counted(tmp_path / "refused")
    for name, number in (("words", 3), ("characters", 3 * 48)):
        stored = count(tmp_path / name, sources[1], **options | {"tokenizer": name})
        assert stored.table.sum() == number


@pytest.fixture(scope="module")
def id_files(tmp_path_factory):
    """The same documents as text, and as a stream of their bytes with 0 behind each."""
    folder = tmp_path_factory.mktemp("ids")
    (folder / "a.txt").write_text("\n".join(texts()))
    stream = b"".join(text.encode() + b"\0" for text in texts())
    np.frombuffer(stream, np.uint8).astype("<u2").tofile(folder / "a.bin")
    return folder


def test_counts_of_ids_are_those_of_their_text(id_files, tmp_path, monkeypatch):
    text = count(tmp_path / "text", id_files / "a.txt")
    monkeypatch.setattr(cells, "_MOST_DOCUMENTS", 16)
    ids = count(tmp_path / "ids", id_files / "a.bin", separator=0)
    named = {"tokenizer": "ids", "vocab_size": 256}
    unnamed = count(tmp_path / "unnamed", id_files / "a.bin", separator=0, **named)
    for stored in (ids, unnamed):
        np.testing.assert_array_equal(stored.table, text.table)
        np.testing.assert_array_equal(stored.nulls, text.nulls)
    assert ids.header.settings == text.header.settings
    assert unnamed.header.tokens[-1] == "id 255"
    assert merge([tmp_path / "ids", tmp_path / "text"], tmp_path / "both").header.documents == 140
    with pytest.raises(InputError, match="holds counts of"):
        count(tmp_path / "ids", id_files / "a.bin")


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (("a.bin", "a.txt"), {}, r"a\.bin holds token ids, and .*a\.txt text"),
        (("a.bin",), {"tokenizer": "words"}, "words are made from text"),
        (("a.bin",), {"tokenizer": "ids"}, "pass `vocab_size`"),
        (("a.bin",), {"tokenizer": "ids", "vocab_size": 99}, "has id 1.., and ids has 99"),
        (("a.bin",), {"max_vocab": 9}, "leave `vocab` and `max_vocab` out"),
        (("a.txt",), {"vocab_size": 9}, "leave `vocab_size` and `separator` out"),
    ],
)
def test_options_that_contradict_each_other(id_files, tmp_path, names, options, message):
    with pytest.raises(InputError, match=message):
        count(tmp_path / "out", *(id_files / name for name in names), **options)
    assert not is_counted(tmp_path / "out")
