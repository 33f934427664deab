"""Counts on disk: back to the bit, whole or not at all; merged where they are alike."""

import errno
import hashlib
import itertools
import json
import os
import tracemalloc
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import to_json
from jaxpe.analysis.counts import (
    CountedShard,
    StoredCounts,
    count_settings,
    is_counted,
    merge,
    merge_counts,
    read_counts,
    write_counts,
)
from jaxpe.analysis.counts.settings import dtype_of_counts
from jaxpe.data import open_tokenizer

WORDS = open_tokenizer(vocabulary=["be", "naï\n\u2028", "not", "or", "to"])
SETTINGS = count_settings(WORDS, length=3, folds=4, nulls=2)
BEYOND = 2**31 - 1 + 10


def digest(content):
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def counted(shard="a.txt", documents=9, *, unreadable=None):
    own, found = (0, "") if unreadable else (documents, digest(shard))
    return CountedShard(shard, min(100 * documents, 2**62), found, own, unreadable)


def stored(*, shard="a.txt", settings=SETTINGS, seed=0, documents=9, copies=1, unreadable=None):
    """Counts of random documents, each that many times."""
    rng = np.random.default_rng(seed)
    documents = 0 if unreadable else documents
    ids = rng.integers(0, settings.vocab_size, (documents, settings.length))
    folds = rng.integers(0, settings.folds, documents)
    edges = range(settings.length + 1) if settings.edges is None else settings.edges
    row = np.searchsorted(edges, np.arange(settings.length), side="right") - 1
    dtype = dtype_of_counts(documents * copies, settings)
    table = np.zeros((settings.folds, settings.rows, settings.vocab_size), dtype)
    nulls = np.zeros((settings.nulls, settings.null_folds, *table.shape[1:]), dtype)
    np.add.at(table, (folds[:, None], row, ids), copies)
    for null in nulls:
        moved = rng.permuted(ids, axis=1)
        np.add.at(null, (folds[:, None] % settings.null_folds, row, moved), copies)
    shards = (counted(shard, documents * copies, unreadable=unreadable),)
    total = documents * copies
    return StoredCounts(table, nulls, total, settings, WORDS.tokens, shards, "text")


def equal(a, b):
    return all(
        x.dtype == y.dtype and np.array_equal(x, y) if isinstance(x, np.ndarray) else x == y
        for x, y in zip(a, b, strict=True)
    )


@pytest.fixture
def written(tmp_path):
    return write_counts(stored(), tmp_path / "deep" / "counts")


CORNERS = {
    "few": stored(),
    "wide numbers": stored(copies=70_000),
    "without nulls": stored(settings=SETTINGS._replace(nulls=0)),
    "bins": stored(settings=SETTINGS._replace(edges=(0, 1, 3))),
    "nothing": stored(documents=0),
    "all of int32": stored(documents=1, copies=2**31 - 1),
    "beyond int32": stored(documents=1, copies=BEYOND),
    "all there can be": stored(documents=1, copies=2**63 - 1),
    "left out": stored(unreadable="x cannot be read"),
}


@pytest.mark.parametrize("counts", CORNERS.values(), ids=CORNERS.keys())
def test_round_trip(tmp_path, counts):
    folder = tmp_path / "counts"
    assert not is_counted(folder)
    assert write_counts(counts, folder) == folder
    assert is_counted(folder)
    assert equal(read_counts(folder), counts)
    assert sorted(path.name for path in folder.iterdir()) == ["counts.json", "counts.npz"]


def test_the_same_counts_are_the_same_bytes(written, tmp_path):
    again = write_counts(read_counts(written), tmp_path / "again")
    for name in ("counts.npz", "counts.json"):
        assert (written / name).read_bytes() == (again / name).read_bytes()


def read_about(folder):
    return json.loads((folder / "counts.json").read_text())


def edited(**changes):
    return lambda folder: (folder / "counts.json").write_text(
        json.dumps(read_about(folder) | changes)
    )


def setting(**changes):
    return edited(settings=to_json(SETTINGS) | changes)


def cut(name, to):
    return lambda folder: os.truncate(folder / name, to)


def gone(name):
    return lambda folder: (folder / name).unlink()


def flipped(folder):
    content = bytearray((folder / "counts.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "counts.npz").write_bytes(content)


def other_counts(folder):
    """As after a kill between the two files, over older counts."""
    newer = write_counts(stored(seed=1), folder / "newer")
    (newer / "counts.npz").replace(folder / "counts.npz")


DAMAGE = {
    "cut": (cut("counts.npz", 100), r"counts\.npz is damaged"),
    "a bit": (flipped, r"counts\.npz is damaged"),
    "of other counts": (other_counts, r"counts\.npz is damaged"),
    "gone": (
        lambda folder: (folder / "counts.npz").unlink(),
        r"counts\.npz cannot .* No such file",
    ),
    "about cut": (cut("counts.json", 30), r"counts\.json is not JSON"),
    "about gone": (
        lambda folder: (folder / "counts.json").unlink(),
        r"counts\.json .*No such file",
    ),
    "a list": (lambda folder: (folder / "counts.json").write_text("[]"), "a list"),
    "other version": (edited(format=1), "format 1, not 5"),
    "no settings": (edited(settings={}), "settings lacks"),
    "unknown": (edited(x=1), "unknown fields 'x'"),
    "documents of text": (edited(documents="9"), "documents is '9', not an integer"),
    "other documents": (edited(documents=8), "8 documents, and other ones in the shards"),
    "fewer tokens": (edited(tokens=WORDS.tokens[1:]), "with 4 tokens"),
    "folds": (setting(folds=3), "`folds` is 3"),
    "endless nulls": (setting(nulls=2**31 - 2, length=2**30), "their table needs .* of memory"),
    "bins": (setting(edges=[0, 3, 2, 3]), "`edges` is"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_noticed(written, damage, message):
    damage(written)
    with pytest.raises(InputError, match=message) as caught:
        read_counts(written)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("bad", ["table", "documents", "nulls"])
def test_what_contradicts_itself_is_not_written(tmp_path, bad):
    counts = stored()
    wrong = {"table": counts.table * -1, "documents": 10, "nulls": counts.nulls[:1]}
    with pytest.raises(InputError):
        write_counts(counts._replace(**{bad: wrong[bad]}), tmp_path / "counts")
    assert not (tmp_path / "counts").exists()


def test_a_full_disk_leaves_what_was_there(written, monkeypatch):
    def full(file, array):
        file.write(b"some")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(InputError, match=r"cannot write .*counts\.npz .*No space.*make room"):
        write_counts(stored(seed=1), written)
    assert equal(read_counts(written), stored())
    assert sorted(path.name for path in written.iterdir()) == ["counts.json", "counts.npz"]


def test_a_full_disk_at_the_second_file_leaves_no_counts(tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match=r"cannot write .*counts\.json"):
        write_counts(stored(), tmp_path)
    assert not is_counted(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["counts.npz"]


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write .*file/counts.*pass a folder"):
        write_counts(stored(), tmp_path / "file")


def test_merged_is_the_sum():
    parts = [stored(shard=name, seed=seed) for seed, name in enumerate("abc")]
    merged = merge_counts(parts)
    np.testing.assert_array_equal(merged.table, sum(part.table for part in parts))
    np.testing.assert_array_equal(merged.nulls, sum(part.nulls for part in parts))
    assert merged.documents == int(merged.counts.documents) == 27
    assert [shard.name for shard in merged.shards] == ["a", "b", "c"]
    assert equal(parts[0], stored(shard="a"))  # as it was
    assert equal(merge_counts([merge_counts(parts[:2]), parts[2]]), merged)


OPTIONS = {
    "checksum": "tokenizer",
    "edges": "bins` and `spacing",
    "null_folds": "folds",
    "exclude": "special",
    "vocab_size": "tokenizer",
}
DIFFERENT = {
    "tokenizer": ("bytes", "tokenizer is wordpiece and bytes"),
    "checksum": ("1", f"checksum is {SETTINGS.checksum} and 1"),
    "length": (4, "length is 3 and 4"),
    "edges": ((0, 3), r"edges is None and \(0, 3\)"),
    "folds": (8, "folds is 4 and 8"),
    "nulls": (3, "nulls is 2 and 3"),
    "null_folds": (2, "null_folds is 4 and 2"),
    "seed": (1, "seed is 0 and 1"),
    "exclude": ((1,), r"exclude is \(\) and \(1,\)"),
    "vocab_size": (6, "vocab_size is 5 and 6"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_settings_do_not_merge(name):
    value, message = DIFFERENT[name]
    pieces = SETTINGS._replace(tokenizer="wordpiece")  # whose vocabulary is not that of a corpus
    parts = [
        stored(shard="a", settings=pieces),
        stored(shard="b", settings=pieces._replace(**{name: value})),
    ]
    message = f"here and there were counted differently: {message}.*; count both with the same `"
    with pytest.raises(InputError, match=f"{message}{OPTIONS.get(name, name)}`"):
        merge_counts(parts, names=["here", "there"])


def test_different_vocabularies_of_one_tokenizer_do_not_merge():
    pieces = stored(settings=SETTINGS._replace(tokenizer="wordpiece"))
    other = stored(shard="b", settings=pieces.settings)._replace(tokens=[*"abcde"])
    with pytest.raises(InputError, match=r"the vocabularies differ; .* same `tokenizer`"):
        merge_counts([pieces, other])


def of_words(tokens, *, shard, seed=0, copies=1):
    words = open_tokenizer(vocabulary=tokens)
    settings = count_settings(words, length=3, folds=4, nulls=2)
    return stored(shard=shard, settings=settings, seed=seed, copies=copies)._replace(tokens=tokens)


def by_token(counts):
    """Tables with the vocabulary in front, by token."""
    return {
        token: (counts.table[..., i].tolist(), counts.nulls[..., i].tolist())
        for i, token in enumerate(counts.tokens)
    }


def test_vocabularies_are_aligned_by_token_and_in_any_order():
    parts = [
        of_words(["to", "be"], shard="a"),
        of_words(["or", "not", "to"], shard="b", seed=1),
        of_words(["be", "to", "[UNK]"], shard="c", seed=2),
    ]
    parts[2].table[..., 2] = parts[2].nulls[..., 2] = 0  # nothing was unknown
    merged = merge_counts(parts)
    assert merged.tokens == ["be", "not", "or", "to", "[UNK]"]
    found = by_token(merged)
    for token in merged.tokens:
        own = [by_token(part)[token] for part in parts if token in part.tokens]
        for table, sums in zip(found[token], zip(*own, strict=True), strict=True):
            np.testing.assert_array_equal(table, np.sum(sums, axis=0))
    for order in itertools.permutations(parts):
        assert equal(merge_counts(order), merged)
        assert equal(merge_counts([merge_counts(order[:2]), order[2]]), merged)
        assert equal(merge_counts([order[0], merge_counts(order[1:])]), merged)


def test_words_that_were_lost_are_told():
    cut = of_words(["be", "to", "[UNK]"], shard="a")
    lost, tokens = cut.table[..., 2].sum(), cut.table.sum()
    message = rf"here: {lost} of {tokens} tokens were counted as \[UNK\].* as `vocab`, or without"
    for parts in ([cut, of_words(["or"], shard="b")], [of_words(["or"], shard="b"), cut]):
        names = ["here" if part is cut else "there" for part in parts]
        with pytest.raises(InputError, match=message):
            merge_counts(parts, names=names)
    # What is no word of one is none of the other: nothing is lost.
    fewer = of_words(["to"], shard="b", seed=1)
    assert merge_counts([cut, fewer]).tokens == cut.tokens


def test_weights_make_a_mixture():
    parts = [stored(), stored(shard="b", seed=1)]
    mixed = merge_counts(parts, weights=(3, 1))
    np.testing.assert_array_equal(mixed.table, 3 * parts[0].table + parts[1].table)
    np.testing.assert_array_equal(mixed.nulls, 3 * parts[0].nulls + parts[1].nulls)
    assert (mixed.documents, [shard.documents for shard in mixed.shards]) == (36, [27, 9])
    assert equal(merge_counts(parts[::-1], weights=(1, 3)), mixed)
    many = merge_counts(parts, weights=(2**31, 1))
    assert many.table.dtype == np.int64
    assert many.table.max() >= 2**31
    for weights in ((1,), (1, 0), (1, 2, 3)):
        with pytest.raises(InputError, match=r"`weights` are .*; pass 2 whole numbers, at least 1"):
            merge_counts(parts, weights=weights)


def test_what_crosses_int32_is_int64_in_any_order():
    border, few = stored(documents=1, copies=2**31 - 1), stored(shard="b", documents=1, copies=10)
    assert border.table.dtype == np.int32
    merged = merge_counts([border, few])
    assert merged.table.dtype == merged.nulls.dtype == np.int64
    assert merged.table.max() == merged.nulls.max() == merged.documents == BEYOND
    assert equal(merge_counts([few, border]), merged)
    again = merge_counts([merged, stored(shard="c", seed=1)])
    assert again.documents == BEYOND + 9
    assert int(merged.counts.tokens.max()) == BEYOND
    assert int(merged.counts.merged().per_position[0]) == BEYOND


def test_int64_counts_are_refused_where_jax_has_32_bits():
    beyond = stored(documents=1, copies=BEYOND)
    with jax.enable_x64(False), pytest.raises(InputError, match="set JAX_ENABLE_X64=1"):
        _ = beyond.counts


def test_memory_of_a_merge_is_that_of_two_parts(tmp_path):
    """However many there are, one is read at a time."""
    settings = count_settings(open_tokenizer("bytes"), length=256, folds=16, nulls=0)
    folders = [tmp_path / str(number) for number in range(6)]
    for number, folder in enumerate(folders):
        part = stored(shard=str(number), settings=settings, documents=400, seed=number)
        tokens = open_tokenizer("bytes").tokens
        write_counts(part._replace(tokens=tokens), folder)
    one = part.table.nbytes
    del part
    tracemalloc.start()
    try:
        merge(folders, tmp_path / "all")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.2 * 2 * one


def test_long_settings_are_told_in_short():
    edges = [tuple(range(end)) for end in (200, 201)]
    parts = [stored(settings=SETTINGS._replace(edges=e)) for e in edges]
    with pytest.raises(InputError, match=r"edges is \(0, 1, .*\.\.\. \(CRC-32 ........\) and \(0"):
        merge_counts(parts)


def test_a_content_counts_once():
    with pytest.raises(InputError, match=r"b, 900 bytes, is counted in there .* then; l"):
        merge_counts(
            [stored(), stored(shard="b"), stored(shard="b")], names=["here", "there", "then"]
        )
    renamed = stored()._replace(shards=(counted()._replace(name="other.txt"),))
    with pytest.raises(
        InputError, match=r"other\.txt, 900 bytes, is counted in here .as a\.txt. and"
    ):
        merge_counts([stored(), renamed], names=["here", "there"])
    same_name = stored()._replace(shards=(counted()._replace(digest=digest("other")),))
    assert merge_counts([stored(), same_name]).documents == 18
    left_out = stored(unreadable="x cannot be read")
    for parts in ([stored(), left_out], [left_out, stored()], [left_out, left_out]):
        assert len(merge_counts(parts).shards) == 2


def test_copies_inside_of_a_count_are_its_own_affair():
    twice = stored()._replace(shards=stored().shards * 2)
    assert len(merge_counts([twice, stored(shard="b")]).shards) == 3


def test_too_many_documents():
    many = stored(documents=2, copies=2**61)
    with pytest.raises(InputError, match=rf"{2**63:,} documents; .* at most {2**63 - 1:,}"):
        merge_counts([many, many._replace(shards=())])
    # A document adds as much to a bin as it is wide.
    binned = stored(documents=2, copies=2**60, settings=SETTINGS._replace(edges=(0, 1, 3)))
    with pytest.raises(InputError, match=rf"{2**62:,} documents; .* at most {2**62 - 1:,}"):
        merge_counts([binned, binned._replace(shards=())])


@pytest.mark.parametrize("parts", [[], [stored()]])
def test_one_alone_is_nothing_to_merge(parts):
    with pytest.raises(InputError, match=f"{len(parts)} counts; pass at least two"):
        merge_counts(parts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 1}, "`length` is 1; pass at least 2"),
        ({"folds": 2}, "`folds` is 2; pass an even number, at least 4"),
        ({"folds": 5}, "`folds` is 5"),
        ({"nulls": 1}, "`nulls` is 1; pass 0 for none, or at least 2"),
        ({"nulls": -1}, "`nulls` is -1"),
        ({"folds": 8, "null_folds": 6}, "`null_folds` is 6; pass an even divisor of folds"),
        ({"null_folds": 1}, "`null_folds` is 1"),
        ({"seed": -1}, "`seed` is -1"),
        ({"seed": 2**32}, "`seed` is 4294967296"),
        ({"edges": (0, 5, 5, 128)}, "`edges` is .*; pass 0, ascending to 128"),
        ({"edges": (1, 128)}, "`edges` is"),
        ({"edges": (0, 127)}, "`edges` is"),
        ({"edges": ()}, "`edges` is"),
        ({"length": 2**31}, "`length` is 2147483648; pass at most"),
        ({"folds": 10**40}, r"`folds` is 10*; pass at most"),
        ({"nulls": 10**400}, r"`nulls` is 10*\.\.\. .*pass at most"),
    ],
)
def test_settings_out_of_range(options, message):
    with pytest.raises(InputError, match=message):
        count_settings(WORDS, **options)


def test_null_folds_divide_the_folds():
    for folds, expected in ((4, 4), (6, 2), (16, 4)):
        assert count_settings(WORDS, folds=folds).null_folds == expected
