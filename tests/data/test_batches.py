"""Batches from shards: every document once, in order, from any place."""

import gzip
import itertools
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxpe._core.errors import InputError
from jaxpe.data import find_shards, open_tokenizer, tokenizer_of_ids
from jaxpe.data.formats import token_files
from jaxpe.data.formats.token_files import Stream
from jaxpe.data.tokens.batches import Reading, _IdSource, empty_batch, token_batches
from jaxpe.data.tokens.ragged import ragged

BYTES = open_tokenizer("bytes")
SIZES = (5, 0, 1, 7)
TEXTS = [[f"{shard}:{row}" for row in range(size)] for shard, size in enumerate(SIZES)]
ALL = [text for texts in TEXTS for text in texts]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    for number, texts in enumerate(TEXTS):
        (folder / f"{number}.txt").write_text("\n".join(texts))
    return find_shards([folder / "*"])


def flat(lists):
    return [*itertools.chain.from_iterable(lists)]


def texts_of(batch):
    rows = zip(batch.ids, batch.mask, strict=True)
    return [bytes(ids[mask].astype(np.uint8)).decode() for ids, mask in rows if mask.any()]


def read(reading, stream=None):
    stream = iter(token_batches(reading, BYTES, length=6)) if stream is None else stream
    return [texts_of(batch) for batch in stream]


@pytest.mark.parametrize("size", [1, 3, 13, 14, 100])
def test_every_document_once_and_in_order(shards, size):
    stream = token_batches(Reading(shards, batch_size=size), BYTES, length=6)
    batches = list(stream)
    assert flat(map(texts_of, batches)) == ALL
    *full, last = batches
    assert all(batch.valid.all() for batch in full)
    assert last.valid.sum() == len(ALL) % size  # never full, so that it is known as the last
    assert last.place["documents"] == list(SIZES)
    assert all(batch.ids.shape == (size, 6) for batch in batches)
    assert not last.mask[~last.valid].any()


def test_an_empty_batch_is_from_before_the_first(shards):
    blank = empty_batch(Reading(shards, batch_size=3), length=6)
    assert not blank.valid.any()
    assert not blank.mask.any()
    assert blank.place["documents"] == [0] * 4
    assert not blank.place["shard"]
    assert not blank.place["unreadable"]


@pytest.mark.parametrize("parts", [1, 2, 4, 5, 20])
def test_parts_are_disjoint_and_together_everything(shards, parts):
    per_part = [
        flat(read(Reading(shards, batch_size=3, part=part, parts=parts))) for part in range(parts)
    ]
    assert sorted(flat(per_part)) == sorted(ALL)
    if parts > len(shards):  # document by document, so that all have something to do
        assert max(map(len, per_part)) - min(map(len, per_part)) <= len(shards)


@pytest.mark.parametrize("size", [1, 3, 4])
def test_parts_of_a_shard_of_ids_take_turns_also_from_block_to_block(size):
    blocks = [(ragged(np.arange(k, k + size)[:, None]), None) for k in range(0, 12, size)]
    for part in range(2):
        source, documents = _IdSource(iter(blocks), part, 2), []
        while len(taken := source.take(5)[0]):
            documents += [int(ids[0]) for ids in taken]
        assert documents == list(range(part, 12, 2))


@pytest.mark.parametrize(("part", "parts"), [(0, 1), (1, 2), (2, 6)])
def test_from_any_place_the_rest_follows(shards, part, parts):
    reading = Reading(shards, batch_size=2, part=part, parts=parts)
    whole = read(reading)
    stream = iter(token_batches(reading, BYTES, length=6))
    places = [stream.get_state()]
    for _ in whole:
        next(stream)
        places.append(stream.get_state())
    for done, place in enumerate(places):
        later = iter(token_batches(reading, BYTES, length=6))
        later.set_state(place)
        rest = read(reading, later)
        # At the end there is one more batch, which is empty.
        assert rest == (whole[done:] or [[]])


IDS = tokenizer_of_ids("bytes")


@pytest.fixture
def id_shards(tmp_path, monkeypatch):
    """The same documents as ids with 0 behind each, of which seven are read at once."""
    monkeypatch.setattr(token_files, "_AT_ONCE", 7)
    for number, texts in enumerate(TEXTS):
        stream = "".join(f"{text}\0" for text in texts).encode()
        np.frombuffer(stream, np.uint8).astype("<u2").tofile(tmp_path / f"{number}.bin")
    return find_shards([tmp_path / "*.bin"])


@pytest.mark.parametrize(("part", "parts"), [(0, 1), (1, 2), (2, 6)])
def test_documents_of_ids_are_those_of_text_from_any_place(shards, id_shards, part, parts):
    options = {"batch_size": 2, "part": part, "parts": parts}
    expected = read(Reading(shards, **options))
    reading = Reading(id_shards, stream=Stream(separator=0), **options)
    stream = iter(token_batches(reading, IDS, length=6))
    places, batches = [], []
    for batch in stream:
        batches.append(texts_of(batch))
        places.append(stream.get_state())
    assert batches == expected
    for done, place in enumerate(places[:-1], start=1):
        later = iter(token_batches(reading, IDS, length=6))
        later.set_state(place)
        assert read(reading, later) == expected[done:]


def test_groups_of_ids_are_those_of_their_rows(tmp_path):
    rows = pa.table({"ids": [[1, 2], [], [3], [1, 2]], "by": ["a", "b", None, "c"]})
    pq.write_table(rows, tmp_path / "a.parquet")
    reading = Reading(
        find_shards([tmp_path / "a.parquet"]), None, "by", batch_size=4, stream=Stream()
    )
    (batch,) = token_batches(reading, IDS, length=2)
    assert batch.ids.tolist() == [[1, 2], [3, 0], [1, 2], [0, 0]]
    known = [zlib.crc32(b"a"), zlib.crc32(np.array([3]).tobytes()), zlib.crc32(b"c")]
    assert batch.groups.tolist() == [*known, zlib.crc32(b"")]


def broken_shards(folder, *, at):
    """Three shards, one of which cannot be read to its end."""
    for number in range(3):
        lines = "".join(f"{number}:{row} {'x' * 50}\n" for row in range(200)).encode()
        packed = gzip.compress(lines)
        (folder / f"{number}.txt.gz").write_bytes(packed[:-50] if number == at else packed)
    return find_shards([folder / "*"])


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_unreadable_shard_is_named(tmp_path, at):
    stream = iter(token_batches(Reading(broken_shards(tmp_path, at=at)), BYTES, length=6))
    with pytest.raises(InputError, match=rf"{at}\.txt\.gz cannot be read"):
        list(stream)


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_unreadable_shard_is_left_out_whole(tmp_path, at, parts):
    shards, found, unreadable = broken_shards(tmp_path, at=at), [], {}
    for part in range(parts):
        reading = Reading(shards, batch_size=64, part=part, parts=parts, skip_unreadable=True)
        *_, last = token_batches(reading, BYTES, length=6)
        found.append(last.place["documents"])
        unreadable |= last.place["unreadable"]
    expected = [200, 200, 200]
    expected[at] = 0
    assert np.sum(found, axis=0).tolist() == expected
    assert list(unreadable) == [str(at)]
    assert f"{at}.txt.gz cannot be read" in unreadable[str(at)]


def test_a_copy_of_an_unreadable_shard_is_judged_by_itself(tmp_path):
    # Size and ends are alike, so what is known before reading is, too.
    for name, middle in (("a", b"\xff"), ("b", b"x")):
        (tmp_path / name).mkdir()
        content = b"fine\n" * 20_000 + middle + b"\nfine" * 20_000
        (tmp_path / name / "x.txt").write_bytes(content)
    shards = find_shards([tmp_path / "*" / "x.txt"])
    assert shards[0].identity == shards[1].identity
    *_, last = token_batches(Reading(shards, skip_unreadable=True), BYTES, length=6)
    assert last.place["documents"] == [0, 40_001]
    assert list(last.place["unreadable"]) == ["0"]


def last_place(reading):
    *_, last = token_batches(reading, BYTES, length=6)
    return last.place


@pytest.mark.parametrize("parts", [1, 2, 9])
def test_the_digests_of_what_was_read_to_its_end(shards, parts):
    own = [shard.digest() for shard in shards]
    for part in range(parts):
        found = last_place(Reading(shards, batch_size=3, part=part, parts=parts))["digests"]
        all_parts = parts > len(shards)
        assert found == [
            digest if all_parts or number % parts == part else ""
            for number, digest in enumerate(own)
        ]


def test_a_shard_that_was_left_out_has_no_digest(tmp_path):
    shards = broken_shards(tmp_path, at=1)
    found = last_place(Reading(shards, skip_unreadable=True))["digests"]
    assert found[1] == ""
    assert [found[0], found[2]] == [shards[0].digest(), shards[2].digest()]


def changed_in_the_middle(path, byte):
    """Another file of equal name, length and ends."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] = byte
    path.write_bytes(content)


def long_shards(folder):
    for number in range(3):
        lines = (f"{number}:{row} {'x' * 90}" for row in range(3000))
        (folder / f"{number}.txt").write_text("\n".join(lines))
    return find_shards([folder / "*.txt"])


def resumed(reading, batches):
    """An iterator that goes on behind so many batches."""
    stream = iter(token_batches(reading, BYTES, length=6))
    for _ in range(batches):
        next(stream)
    later = iter(token_batches(reading, BYTES, length=6))
    later.set_state(stream.get_state())
    return later


def test_a_change_in_the_middle_of_a_shard_is_noticed_on_resuming(tmp_path):
    shards = long_shards(tmp_path)
    reading = Reading(shards, batch_size=1000)
    later = resumed(reading, 4)  # in the second shard
    changed_in_the_middle(tmp_path / "0.txt", ord("y"))
    assert find_shards([tmp_path / "0.txt"])[0].identity == shards[0].identity
    with pytest.raises(InputError, match=r"0\.txt has changed"):
        list(later)
    changed_in_the_middle(tmp_path / "0.txt", ord("x"))
    assert sum(batch.valid.sum() for batch in resumed(reading, 4)) == 5000


def test_of_the_shard_in_the_middle_what_was_counted_must_be_the_same(tmp_path):
    shards = long_shards(tmp_path)
    reading = Reading(shards, batch_size=1000)
    before = resumed(reading, 5)
    changed_in_the_middle(tmp_path / "1.txt", ord("y"))  # in document 1,500 of this shard
    with pytest.raises(InputError, match=r"1\.txt: its first 2,000 documents"):
        list(before)


def test_columns_that_are_not_there_are_refused_before_anything_is_read(shards):
    for field in ("text_field", "group_field"):
        with pytest.raises(InputError, match=rf"0\.txt has no columns; leave `{field}` out"):
            token_batches(Reading(shards, **{field: "zz"}), BYTES, length=6)
