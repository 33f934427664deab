"""Counts in a file: read back to the bit, written completely or not at all; and their sums."""

import hashlib
import itertools
import json

import jax
import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import to_json
from jaxpe.analysis.counts import CountOptions, merge, read_counts
from jaxpe.analysis.counts.settings import check_settings
from jaxpe.analysis.counts.stored import (
    CountedShard,
    CountHeader,
    StoredCounts,
    is_counted,
    write_counts,
)
from jaxpe.data import open_tokenizer

TOKENS = ["be", "naï\n\u2028", "not", "or", "to"]
BEYOND = 2**31 - 1 + 10


def settings_of(tokens, **options):
    words = open_tokenizer(vocabulary=tokens)
    options = {"length": 3, "folds": 4, "nulls": 2} | options
    return CountOptions(sources=(), **options).settings(words)


SETTINGS = settings_of(TOKENS)
PIECES = SETTINGS._replace(tokenizer="wordpiece")  # its vocabulary is not the corpus's


def digest(content):
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def stored(
    *, shard="a.txt", settings=SETTINGS, tokens=TOKENS, seed=0, documents=9, copies=1, unreadable=""
):
    """Counts of random documents, each `copies` times."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, settings.vocab_size, (documents, settings.length))
    folds = rng.integers(0, settings.folds, documents)
    edges = range(settings.length + 1) if settings.edges is None else settings.edges
    row = np.searchsorted(edges, np.arange(settings.length), side="right") - 1
    total = documents * copies
    dtype = np.int32 if total * settings.widest < 2**31 else np.int64
    table = np.zeros((settings.folds, settings.rows, settings.vocab_size), dtype)
    nulls = np.zeros((settings.nulls, settings.null_folds, *table.shape[1:]), dtype)
    np.add.at(table, (folds[:, None], row, ids), copies)
    for null in nulls:
        rotated = rng.permuted(ids, axis=1)
        np.add.at(null, (folds[:, None] % settings.null_folds, row, rotated), copies)
    shards = (CountedShard(shard, min(100 * total, 2**62), digest(shard), total),)
    if unreadable:
        shards += (CountedShard("lost.txt", 9, "", 0, unreadable=unreadable),)
    return StoredCounts(table, nulls, CountHeader(total, settings, shards, "text", (), tokens))


def equal(a, b):
    tables = (a.table, b.table), (a.nulls, b.nulls)
    alike = [x.dtype == y.dtype and np.array_equal(x, y) for x, y in tables]
    return all(alike) and a.header == b.header


@pytest.fixture
def written(tmp_path):
    return write_counts(stored(), tmp_path / "deep" / "counts")


CORNERS = {
    "large numbers": stored(copies=70_000),
    "without nulls": stored(settings=SETTINGS._replace(nulls=0)),
    "bins": stored(settings=SETTINGS._replace(edges=(0, 1, 3))),
    "no documents": stored(documents=0),
    "beyond int32": stored(documents=1, copies=BEYOND),
    "largest": stored(documents=1, copies=2**63 - 1),
    "left out": stored(unreadable="lost.txt cannot be read"),
}


@pytest.mark.parametrize("counts", CORNERS.values(), ids=CORNERS.keys())
def test_round_trip(tmp_path, counts):
    folder = tmp_path / "counts"
    assert not is_counted(folder)
    assert write_counts(counts, folder) == folder
    assert is_counted(folder)
    assert equal(read_counts(folder), counts)
    again = write_counts(read_counts(folder), tmp_path / "again")
    assert (folder / "counts.npz").read_bytes() == (again / "counts.npz").read_bytes()


def encoded(value):
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def header_with(**changes):
    header = {"format": 6, **to_json(stored().header._replace(tokens=[]))}
    return {"header": encoded(header | changes)}


def settings_with(**changes):
    return header_with(settings=to_json(SETTINGS) | changes)


BYTE = np.uint8
DAMAGE = {
    "no array": {"counts": None},
    "no JSON": {"header": np.zeros(9, BYTE)},
    "another version": header_with(format=5),
    "more documents than those of the shards": header_with(documents=10),
    "fewer tokens": {"tokens": encoded(TOKENS[1:])},
    "a number as token": {"tokens": encoded([*TOKENS[1:], 5])},
    "tables beyond memory": settings_with(nulls=2**31 - 2, length=2**30),
    "bins": settings_with(edges=[0, 3, 2, 3]),
    "fewer counts than cells": {"counts": BYTE([9])},
    "a cell twice": {"steps": BYTE([1, 0]), "counts": BYTE([9, 2])},
    "a cell outside": {"steps": BYTE([1, 180]), "counts": BYTE([9, 2])},
    "a count of zero": {"steps": BYTE([1, 1]), "counts": BYTE([9, 0])},
    "a negative step": {"steps": np.array([-1, 2], np.int8), "counts": BYTE([9, 2])},
    "a fraction": {"steps": np.array([0.5, 1.0]), "counts": BYTE([9, 2])},
}


def test_damage_is_one_line(written):
    path = written / "counts.npz"
    content = path.read_bytes()
    with np.load(path) as arrays:
        good = {**arrays}
    for damage, changes in DAMAGE.items():
        arrays = {k: x for k, x in {**good, **changes}.items() if x is not None}
        np.savez(path, **arrays)
        with pytest.raises(InputError) as caught:
            read_counts(written)
        assert len(str(caught.value).splitlines()) == 1, damage
    for size in (0, 100, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(InputError, match=r"counts\.npz"):
            read_counts(written)
    with pytest.raises(InputError, match=r"counts\.npz"):
        read_counts(written.parent)


def test_what_contradicts_itself_is_not_written(written):
    counts = stored(seed=1)
    header = counts.header
    for wrong in (
        counts._replace(table=-counts.table),
        counts._replace(header=header._replace(documents=10)),
        counts._replace(header=header._replace(settings=SETTINGS._replace(nulls=1))),
    ):
        with pytest.raises(InputError):
            write_counts(wrong, written)
    assert equal(read_counts(written), stored())


@pytest.fixture
def merged(tmp_path):
    """Merge counts by way of files."""
    numbers = itertools.count()

    def merged(parts, *, weights=()):
        folders = [write_counts(part, tmp_path / f"{next(numbers)}") for part in parts]
        return merge(folders, tmp_path / f"sum {next(numbers)}", weights=weights)

    return merged


DIFFERENT = {
    "tokenizer": "bytes", "checksum": "1", "length": 4, "edges": (0, 3), "folds": 8, "nulls": 3,
    "null_folds": 2, "seed": 1, "exclude": (1,), "vocab_size": 6, "group_field": "author",
}  # fmt: skip


def test_different_settings_and_vocabularies_do_not_merge(merged):
    for name, value in DIFFERENT.items():
        settings = PIECES._replace(**{name: value})
        tokens = [*TOKENS, "six"][: settings.vocab_size]
        with pytest.raises(InputError, match=f"differently: {name} is"):
            merged([stored(settings=PIECES), stored(shard="b", settings=settings, tokens=tokens)])
    other = stored(shard="b", settings=PIECES, tokens=[*"abcde"])
    with pytest.raises(InputError, match="vocabularies"):
        merged([stored(settings=PIECES), other])


def of_words(tokens, *, shard, seed=0):
    return stored(shard=shard, settings=settings_of(tokens), tokens=tokens, seed=seed)


def test_words_that_were_lost_are_told(merged):
    cut = of_words(["be", "to", "[UNK]"], shard="a")
    for parts in ([cut, of_words(["or"], shard="b")], [of_words(["or"], shard="b"), cut]):
        with pytest.raises(InputError, match="`vocab`"):
            merged(parts)
    # No token of the other was unknown here, so nothing is lost.
    fewer = of_words(["to"], shard="b", seed=1)
    assert merged([cut, fewer]).header.tokens == cut.header.tokens


def test_weights_make_a_mixture(merged):
    parts = [stored(), stored(shard="b", seed=1)]
    mixed = merged(parts, weights=(3, 1))
    np.testing.assert_array_equal(mixed.table, 3 * parts[0].table + parts[1].table)
    np.testing.assert_array_equal(mixed.nulls, 3 * parts[0].nulls + parts[1].nulls)
    assert [shard.documents for shard in mixed.header.shards] == [27, 9]
    assert equal(merged(parts[::-1], weights=(1, 3)), mixed)
    many = merged(parts, weights=(2**31, 1))
    assert many.table.dtype == np.int64
    np.testing.assert_array_equal(many.table, 2**31 * parts[0].table.astype(int) + parts[1].table)
    for weights in ((1,), (1, 0), (1, 2, 3)):
        with pytest.raises(InputError, match=r"`weights` are .*; pass 2 whole numbers"):
            merged(parts, weights=weights)


def test_what_exceeds_int32_is_int64_in_any_order(merged):
    border, few = stored(documents=1, copies=2**31 - 1), stored(shard="b", documents=1, copies=10)
    assert border.table.dtype == np.int32
    total = merged([border, few])
    assert total.table.dtype == total.nulls.dtype == np.int64
    assert total.table.max() == total.nulls.max() == total.header.documents == BEYOND
    assert equal(merged([few, border]), total)
    assert int(total.counts.merged().per_position[0]) == BEYOND
    with jax.enable_x64(False), pytest.raises(InputError, match="set JAX_ENABLE_X64=1"):
        _ = total.counts
    bin_of_three = {"settings": settings_of(["be"])._replace(edges=(0, 3)), "tokens": ["be"]}
    parts = [stored(shard=x, documents=1, copies=2**29, **bin_of_three) for x in "ab"]
    assert merged(parts).table.max() == 3 * 2**30


def test_a_content_counts_once(merged):
    def renamed(**fields):
        counts = stored()
        shard = counts.header.shards[0]._replace(**fields)
        return counts._replace(header=counts.header._replace(shards=(shard,)))

    with pytest.raises(InputError, match=r"other\.txt"):
        merged([stored(), renamed(name="other.txt")])
    assert merged([stored(), renamed(digest=digest("other"))]).header.documents == 18
    lost = stored(shard="b", unreadable="lost.txt cannot be read")
    assert len(merged([stored(unreadable="it cannot be read"), lost]).header.shards) == 4
    # Copies within one count were counted on purpose.
    twice = stored()
    shards = twice.header.shards * 2
    twice = twice._replace(header=twice.header._replace(shards=shards, documents=18))
    assert len(merged([twice, stored(shard="b")]).header.shards) == 3


@pytest.mark.parametrize("edges", [None, (0, 1, 3)])
def test_too_many_documents(merged, edges):
    """A document adds as much to a bin as it is wide."""
    settings = SETTINGS._replace(edges=edges)
    copies = 2**62 if edges is None else 2**61
    parts = [stored(shard=x, documents=1, copies=copies, settings=settings) for x in "ab"]
    with pytest.raises(InputError, match=f"{2 * copies:,} documents"):
        merged(parts)


def test_settings_out_of_range():
    good = settings_of(TOKENS, length=128, folds=8)
    assert [settings_of(TOKENS, folds=n).null_folds for n in (4, 6, 16)] == [4, 2, 4]
    for name, value in (
        ("length", 1), ("folds", 2), ("folds", 5), ("folds", 10**40), ("nulls", 1),
        ("null_folds", 6), ("seed", 2**32), ("edges", (0, 5, 5, 128)), ("edges", (0, 127)),
        ("exclude", (5,)), ("vocab_size", -1),
    ):  # fmt: skip
        with pytest.raises(InputError, match=f"^`{name}` is "):
            check_settings(good._replace(**{name: value}))
