"""Counts on disk: back to the bit, whole or not at all; merged where they are alike."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from jaxpe._errors import InputError
from jaxpe.counting import (
    CountedShard,
    StoredCounts,
    count_settings,
    is_counted,
    merge_counts,
    read_counts,
    write_counts,
)
from jaxpe.data import open_tokenizer

WORDS = open_tokenizer(vocabulary=["to", "be", "or", "not", "naï\n\u2028"])
SETTINGS = count_settings(WORDS, length=3, folds=4, nulls=2)


def stored(*, shard="a.txt", settings=SETTINGS, seed=0, documents=9, unreadable=None):
    rng = np.random.default_rng(seed)
    shape = settings.rows, settings.vocab_size
    table = rng.integers(0, 70_000, (settings.folds, *shape), dtype=np.int32)
    nulls = rng.integers(0, 3, (settings.nulls, settings.null_folds, *shape), dtype=np.int32)
    shards = (CountedShard(shard, 0 if unreadable else documents, unreadable),)
    return StoredCounts(table, nulls, documents, settings, WORDS.tokens, shards, "text")


def equal(a, b):
    return all(
        x.dtype == y.dtype and np.array_equal(x, y) if isinstance(x, np.ndarray) else x == y
        for x, y in zip(a, b, strict=True)
    )


@pytest.fixture
def written(tmp_path):
    return write_counts(stored(), tmp_path / "deep" / "counts")


CORNERS = {
    "full": stored(),
    "without nulls": stored(settings=SETTINGS._replace(nulls=0)),
    "bins": stored(settings=SETTINGS._replace(edges=(0, 1, 3))),
    "empty": stored()._replace(table=np.zeros((4, 3, 5), np.int32)),
    "one cell, the last": stored()._replace(
        table=np.pad(np.full((1, 1, 1), 2**31 - 1, np.int32), ((3, 0), (2, 0), (4, 0)))
    ),
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


def edited(**changes):
    def edit(folder):
        about = json.loads((folder / "counts.json").read_text())
        (folder / "counts.json").write_text(json.dumps(about | changes))

    return edit


def cut(name, to):
    return lambda folder: os.truncate(folder / name, to)


def flipped(folder):
    content = bytearray((folder / "counts.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "counts.npz").write_bytes(content)


def other_counts(folder):
    """As after a kill between the two files, over older counts."""
    newer = write_counts(stored(seed=1), folder / "newer")
    (newer / "counts.npz").replace(folder / "counts.npz")


DAMAGE = {
    "cut": (cut("counts.npz", 100), "its checksum is not that of counts.json; count again"),
    "emptied": (cut("counts.npz", 0), "its checksum is not"),
    "a bit": (flipped, "its checksum is not"),
    "of other counts": (other_counts, "its checksum is not"),
    "gone": (lambda folder: (folder / "counts.npz").unlink(), "No such file.*count again"),
    "about cut": (cut("counts.json", 30), "holds no counts .*pass a folder that jaxpe count wrote"),
    "about gone": (lambda folder: (folder / "counts.json").unlink(), "holds no counts"),
    "a list": (lambda folder: (folder / "counts.json").write_text("[]"), "holds no counts"),
    "other version": (edited(format=2), "holds counts of format 2, not 1; count again"),
    "no settings": (edited(settings={}), "holds no counts"),
    "an unknown setting": (edited(settings={"x": 1}), "holds no counts"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_noticed(written, damage, message):
    damage(written)
    with pytest.raises(InputError, match=message):
        read_counts(written)


def test_a_full_disk_leaves_what_was_there(written, monkeypatch):
    def full(file, **arrays):
        file.write(b"some")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(InputError, match=r"cannot write counts\.npz into .*No space.*make room"):
        write_counts(stored(seed=1), written)
    assert equal(read_counts(written), stored())
    assert sorted(path.name for path in written.iterdir()) == ["counts.json", "counts.npz"]


def test_a_full_disk_at_the_second_file_leaves_no_counts(tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(InputError, match=r"cannot write counts\.json"):
        write_counts(stored(), tmp_path)
    assert not is_counted(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["counts.npz"]


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write.*pass a folder that you may write to"):
        write_counts(stored(), tmp_path / "file")


def test_merged_is_the_sum():
    parts = [stored(shard=name, seed=seed) for seed, name in enumerate("abc")]
    merged = merge_counts(parts)
    np.testing.assert_array_equal(merged.table, sum(part.table for part in parts))
    np.testing.assert_array_equal(merged.nulls, sum(part.nulls for part in parts))
    assert merged.documents == int(merged.counts.documents) == 27
    assert [shard.identity for shard in merged.shards] == ["a", "b", "c"]
    assert equal(parts[0], stored(shard="a"))  # as it was
    assert equal(merge_counts([merge_counts(parts[:2]), parts[2]]), merged)


DIFFERENT = {
    "tokenizer": ("bytes", "tokenizer is words and bytes"),
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
    parts = [stored(), stored(shard="b", settings=SETTINGS._replace(**{name: value}))]
    with pytest.raises(InputError, match=f"here and there were counted differently: {message}"):
        merge_counts(parts, names=["here", "there"])


def test_different_vocabularies_do_not_merge():
    other = stored(shard="b")._replace(tokens=[*"abcde"])
    with pytest.raises(InputError, match="the vocabularies differ"):
        merge_counts([stored(), other])


def test_long_settings_are_told_in_short():
    edges = [tuple(range(end)) for end in (200, 201)]
    parts = [stored(settings=SETTINGS._replace(edges=e)) for e in edges]
    with pytest.raises(InputError, match=r"edges is \(0, 1, .*\.\.\. \(CRC-32 ........\) and \(0"):
        merge_counts(parts)


def test_a_shard_counts_once():
    with pytest.raises(InputError, match="b is counted in there and in then; leave one of them"):
        merge_counts(
            [stored(), stored(shard="b"), stored(shard="b")], names=["here", "there", "then"]
        )
    counted, left_out = stored(), stored(unreadable="x cannot be read")
    for parts in ([counted, left_out], [left_out, counted], [left_out, left_out]):
        assert len(merge_counts(parts).shards) == 2


def test_copies_inside_of_a_count_are_its_own_affair():
    twice = stored()._replace(shards=stored().shards * 2)
    assert len(merge_counts([twice, stored(shard="b")]).shards) == 3


def test_too_many_documents():
    many = stored(documents=2**30)
    with pytest.raises(InputError, match=r"2,147,483,648 documents; .* at most 2,147,483,647"):
        merge_counts([many, many._replace(shards=())])
    # A document adds as much to a bin as it is wide.
    settings = SETTINGS._replace(edges=(0, 1, 3))
    binned = stored(documents=2**29, settings=settings)
    with pytest.raises(InputError, match=r"1,073,741,824 documents; .* at most 1,073,741,823"):
        merge_counts([binned, binned._replace(shards=())])


@pytest.mark.parametrize("parts", [[], [stored()]])
def test_one_alone_is_nothing_to_merge(parts):
    with pytest.raises(InputError, match=f"{len(parts)} counts; pass at least two"):
        merge_counts(parts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 1}, "length is 1; pass at least 2"),
        ({"folds": 2}, "folds is 2; pass an even number, at least 4"),
        ({"folds": 5}, "folds is 5"),
        ({"nulls": 1}, "nulls is 1; pass 0 for none, or at least 2"),
        ({"nulls": -1}, "nulls is -1"),
        ({"folds": 8, "null_folds": 6}, "null_folds is 6; pass an even divisor of folds"),
        ({"null_folds": 1}, "null_folds is 1"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**32}, "seed is 4294967296"),
        ({"edges": (0, 5, 5, 128)}, "edges are .*; pass 0, ascending to 128"),
        ({"edges": (1, 128)}, "edges are"),
        ({"edges": (0, 127)}, "edges are"),
        ({"edges": ()}, "edges are"),
    ],
)
def test_settings_out_of_range(options, message):
    with pytest.raises(InputError, match=message):
        count_settings(WORDS, **options)


def test_null_folds_divide_the_folds():
    for folds, expected in ((4, 4), (6, 2), (16, 4)):
        assert count_settings(WORDS, folds=folds).null_folds == expected
