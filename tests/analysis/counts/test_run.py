"""Counts equal those of the whole corpus, to the bit, however it is divided, killed and resumed."""

import json
import zlib

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxpe import geometry
from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT
from jaxpe.analysis.counts import CountOptions, cells, job, merge, read_counts
from jaxpe.analysis.counts.cells import count_documents
from jaxpe.analysis.counts.stored import is_counted
from jaxpe.data import open_tokenizer
from jaxpe.geometry import rotate_within_documents
from jaxpe.geometry.counts.position_counts import fold_of_documents
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


def same_tables(one, other):
    return np.array_equal(one.table, other.table) and np.array_equal(one.nulls, other.nulls)


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
    expected = geometry.count_tokens(ids, vocab_size=256, mask=mask, folds=8)
    np.testing.assert_array_equal(stored.table, expected.tokens)
    assert stored.header.documents == 70 == expected.documents == stored.counts.documents
    assert [(x.name, x.documents) for x in stored.header.shards] == [
        ("a.txt", 45), ("b.txt", 0), ("c.txt", 25)
    ]  # fmt: skip
    assert sorted(path.name for path in counted.iterdir()) == [".lock", "counts.npz", "shards"]


def test_nulls_are_those_of_documents_rotated_by_hand(ids_and_mask):
    ids, mask = ids_and_mask
    tokenizer = BYTES._replace(exclude=(32,))
    settings = CountOptions(sources=(), **OPTIONS).settings(tokenizer)
    assert (settings.folds, settings.null_folds) == (8, 4)
    numbers, counts = count_documents(texts(), tokenizer=tokenizer, settings=settings)
    rows = np.zeros((settings.table_rows, 256), np.int64)
    rows[np.divmod(numbers, cells.STRIDE)] = counts
    blocks = rows.reshape(-1, 12, 256)
    arguments = {"vocab_size": 256, "exclude": (32,)}
    expected = geometry.count_tokens(ids, mask=mask, folds=8, **arguments)
    np.testing.assert_array_equal(blocks[:8], expected.tokens)
    fold = np.asarray(fold_of_documents(ids, mask, folds=8)) % 4
    nulls = blocks[8:].reshape(2, 4, 12, 256)
    for number, null in enumerate(nulls):
        key = jax.random.fold_in(jax.random.key(3), number)
        rotated = rotate_within_documents(key, ids, mask, exclude=(32,))
        for k in range(4):
            in_fold = mask & (fold == k)[:, None]
            expected = geometry.count_tokens(rotated, mask=in_fold, **arguments)
            np.testing.assert_array_equal(null[k], expected.tokens)
    assert not np.array_equal(*nulls)


def test_batches_change_nothing(shards, counted, tmp_path, monkeypatch):
    """Nor do processes: see `tests/hardening/test_kills.py`."""
    monkeypatch.setattr(cells, "_MOST_DOCUMENTS", 16)
    monkeypatch.setattr(cells, "_WAITING", 100)
    count(tmp_path, *shards)
    assert same_file(tmp_path, counted)


def test_a_batch_is_as_wide_as_its_longest_document():
    """Of 9 tokens, one more than a power of two; in the corpus and in each of two nulls."""
    tokenizer, settings = job.tokenizer_and_settings(CountOptions(sources=(), **OPTIONS))
    found = cells.count_documents(["a" * 9, "b"], tokenizer=tokenizer, settings=settings)
    assert found.counts.sum() == 3 * 10


def test_the_cut_into_shards_and_their_order_change_nothing(shards, counted, tmp_path):
    (tmp_path / "one.txt").write_text("\r\n".join(texts()[::-1]) + "\n")
    whole = count(tmp_path / "one", tmp_path / "one.txt")
    assert same_tables(whole, read_counts(counted))
    copy = tmp_path / "copy.txt"
    copy.write_bytes(shards[0].read_bytes())
    twice = count(tmp_path / "twice", *shards[::-1], copy)
    assert twice.header.documents == 70 + 45
    assert twice.table.sum() > read_counts(counted).table.sum()
    count(tmp_path / "reversed", *shards[::-1])
    assert same_file(tmp_path / "reversed", counted)


def test_parts_of_several_machines_merge_to_the_same_bytes(tmp_path):
    for k in range(5):
        (tmp_path / f"{k}.txt").write_text("\n".join(texts()[k::5]))
    count(tmp_path / "whole", tmp_path / "?.txt")
    for part in range(2):
        count(tmp_path / f"part {part}", tmp_path / "?.txt", part=part, parts=2)
    for order in ((0, 1), (1, 0)):
        merge([tmp_path / f"part {part}" for part in order], tmp_path / f"{order}")
        assert same_file(tmp_path / f"{order}", tmp_path / "whole")
    with pytest.raises(InputError, match="5 shards"):
        count(tmp_path / "none", tmp_path / "?.txt", part=5, parts=9)


def test_vocabularies_of_shards_do_not_change_the_sum(tmp_path):
    halves = {"a": [*texts()[::2], "only here"], "b": [*texts()[1::2], "or not", "elsewhere"]}
    for name, rows in halves.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(rows))
    (tmp_path / "whole.txt").write_text("\n".join(halves["b"] + halves["a"]))
    options = {"tokenizer": "words", "length": 4}
    parts = [count(tmp_path / name, tmp_path / f"{name}.txt", **options) for name in "ab"]
    assert parts[0].header.tokens != parts[1].header.tokens
    count(tmp_path / "both", tmp_path / "[ab].txt", **options)
    for order in ("ab", "ba"):
        merge([tmp_path / name for name in order], tmp_path / "merged" / order)
        assert same_file(tmp_path / "merged" / order, tmp_path / "both")
    both, whole = read_counts(tmp_path / "both"), tmp_path / "whole.txt"
    whole = count(tmp_path / "whole", whole, **options)
    assert both.header.tokens == whole.header.tokens
    assert same_tables(both, whole)


def test_the_largest_vocabulary_adds_up_rarer_words(shards, tmp_path):
    options = {"tokenizer": "words", "length": 4}
    whole = count(tmp_path / "counts", *shards, **options)
    cut = count(tmp_path / "counts", *shards, **options, max_vocab=4)  # from the same files
    total = whole.table.sum(axis=(0, 1))
    by_frequency = sorted(zip(whole.header.tokens, total, strict=True), key=lambda x: (-x[1], x[0]))
    frequent = sorted(token for token, _ in by_frequency[:3])
    assert cut.header.tokens == [*frequent, "[UNK]"]
    columns = [whole.header.tokens.index(token) for token in frequent]
    for one, all_words in ((cut.table, whole.table), (cut.nulls, whole.nulls)):
        np.testing.assert_array_equal(one[..., :3], all_words[..., columns])
        np.testing.assert_array_equal(one.sum(axis=-1), all_words.sum(axis=-1))
    # A folder is a vocabulary, and so are lines of a file.
    (tmp_path / "v").write_bytes("\r\n".join(reversed(cut.header.tokens)).encode())
    for vocab in (tmp_path / "counts", tmp_path / "v"):
        again = count(tmp_path / f"of {vocab.name}", *shards, **options, vocab=vocab)
        assert again.header.tokens == cut.header.tokens
        np.testing.assert_array_equal(again.table.sum(axis=0), cut.table.sum(axis=0))


def test_bins_are_sums_of_positions(shards, counted, tmp_path):
    whole, binned = read_counts(counted), count(tmp_path, *shards, bins=3, spacing="log")
    edges = np.array(binned.header.settings.edges, np.int32)
    assert (edges[0], edges[-1], len(edges)) == (0, 12, 4)
    np.testing.assert_array_equal(binned.table, np.add.reduceat(whole.table, edges[:-1], axis=1))
    np.testing.assert_array_equal(binned.nulls, np.add.reduceat(whole.nulls, edges[:-1], axis=2))


def test_documents_of_a_group_share_a_fold_and_nulls_are_left_out_on_request(tmp_path):
    authors = [f"author {number % 9}" if number % 5 else None for number in range(70)]
    rows = [{"text": text, "by": by} for text, by in zip(texts(), authors, strict=True)]
    rows.insert(3, {"text": None, "by": "nobody"})
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"group_field": "by", "nulls": 0}
    with pytest.raises(InputError, match="line 4"):
        count(tmp_path / "counts", tmp_path / "a.jsonl", **options)
    options["skip_nulls"] = True
    stored = count(tmp_path / "counts", tmp_path / "a.jsonl", **options)
    ids, mask = BYTES.encode(texts(), length=12)
    names = [by or text for by, text in zip(authors, texts(), strict=True)]
    groups = np.array([zlib.crc32(name.encode()) for name in names])
    expected = geometry.count_tokens(ids, vocab_size=256, mask=mask, folds=8, groups=groups)
    np.testing.assert_array_equal(stored.table, expected.tokens)
    header = stored.header
    assert (header.settings.group_field, header.text_field) == ("by", "text")
    assert (header.documents, header.null_texts) == (70, 1)


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
    assert same_tables(read_counts(tmp_path / "counts"), read_counts(tmp_path / "anew"))


def test_folders_of_other_counts_and_damaged_shards_are_refused(shards, tmp_path):
    count(tmp_path, *shards)
    before = (tmp_path / "counts.npz").read_bytes()
    others = ({"seed": 4}, {"length": 13}, {"folds": 4}, {"nulls": 3}, {"tokenizer": "characters"})
    for options in others:
        with pytest.raises(InputError, match="other sources or options"):
            count(tmp_path, *shards, **options)
    file = min((tmp_path / "shards").iterdir())
    file.write_bytes(file.read_bytes()[:-99])
    with pytest.raises(InputError, match=file.name):
        count(tmp_path, *shards)
    assert (tmp_path / "counts.npz").read_bytes() == before


@pytest.mark.parametrize("at", [0, 1])
def test_an_unreadable_shard_stops_the_count_or_is_left_out(shards, counted, tmp_path, at):
    broken = tmp_path / "broken.txt"
    broken.write_bytes(b"fine\n" * 30 + b"\xff")
    sources = [shards[0], shards[2]]
    sources.insert(at, broken)
    with pytest.raises(InputError, match=r"broken\.txt, line 31"):
        count(tmp_path / "counts", *sources)
    assert not is_counted(tmp_path / "counts")
    stored = count(tmp_path / "counts", *sources, skip_unreadable=True)
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
    with pytest.raises(InputError, match=f"no {what}"):
        count(tmp_path / "counts", tmp_path / "a.txt", tokenizer="words")
    assert not is_counted(tmp_path / "counts")
    (tmp_path / "b.txt").write_text("to be\n")  # beside others, such a shard is no error
    stored = count(tmp_path / "both", tmp_path / "?.txt", tokenizer="words")
    assert stored.header.tokens == ["be", "to"]


def test_near_copies_are_told_and_text_without_spaces_is_refused_as_words(tmp_path):
    letters = np.random.default_rng(0).choice([*"abcdefghijklmnopqrstuvwxyz"], (40, 12))
    near = letters.copy()
    near[:, 5] = "#"
    for name, documents in (("alone", letters), ("near", np.concatenate([letters, near]))):
        path, lines = tmp_path / f"{name}.txt", list[str]()
        path.write_text("\n".join(map("".join, documents)))
        count(tmp_path / name, path, progress=Told(lines), nulls=0)
        assert any("`group_field`" in line for line in lines) == (name == "near")
    # Also where only the sum of all shards shows it.
    (tmp_path / "a.txt").write_text("to be or not to be\n")
    (tmp_path / "dna.txt").write_text("\n".join(("ACGT" * 12, "TTAACCGG" * 6, "CATG" * 12)))
    options = {"tokenizer": None, "nulls": 0, "length": 128}
    with pytest.raises(InputError, match="characters"):
        count(tmp_path / "refused", tmp_path / "a.txt", tmp_path / "dna.txt", **options)
    assert not is_counted(tmp_path / "refused")


def test_counts_of_ids_are_those_of_their_text(tmp_path, monkeypatch):
    """The same documents as text, and as a stream of their bytes with 0 after each."""
    (tmp_path / "a.txt").write_text("\n".join(texts()))
    stream = b"".join(text.encode() + b"\0" for text in texts())
    np.frombuffer(stream, np.uint8).astype("<u2").tofile(tmp_path / "a.bin")
    text = count(tmp_path / "text", tmp_path / "a.txt")
    monkeypatch.setattr(cells, "_MOST_DOCUMENTS", 16)
    ids = count(tmp_path / "ids", tmp_path / "a.bin", separator=0)
    named = {"tokenizer": "ids", "vocab_size": 256}
    unnamed = count(tmp_path / "unnamed", tmp_path / "a.bin", separator=0, **named)
    assert same_tables(ids, text)
    assert same_tables(unnamed, text)
    assert ids.header.settings == text.header.settings
    assert merge([tmp_path / "ids", tmp_path / "text"], tmp_path / "both").header.documents == 140


def test_ids_in_groups_are_counted_as_their_text(tmp_path, monkeypatch):
    authors = [f"author {number % 9}" for number in range(70)]
    rows = [{"text": text, "by": by} for text, by in zip(texts(), authors, strict=True)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ids = pa.table({"text": [list(text.encode()) for text in texts()], "by": authors})
    pq.write_table(ids, tmp_path / "a.parquet")
    monkeypatch.setattr(cells, "_MOST_DOCUMENTS", 16)  # blocks of more documents than a batch
    one, other = (
        count(tmp_path / name, tmp_path / f"a.{name}", text_field="text", group_field="by")
        for name in ("jsonl", "parquet")
    )
    assert same_tables(one, other)
