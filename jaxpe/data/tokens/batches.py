"""Batches of tokens from shards, as a Grain pipeline whose position can be saved."""

import copy
import itertools
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import grain
import numpy as np
from jaxtyping import Integer

from jaxpe._core.errors import InputError
from jaxpe.data.corpora.corpus import TokenBatch
from jaxpe.data.corpora.shards import Shard
from jaxpe.data.corpora.sources import check_fields
from jaxpe.data.formats.columns import Fields, ReadLog
from jaxpe.data.formats.token_files import Stream
from jaxpe.data.tokens.ragged import Ragged, joined
from jaxpe.data.tokens.tokenizers import Tokenizer
from jaxpe.data.tokens.workers import AHEAD, Encoded, TokenizerPool

_AT_ONCE = 256  # documents per block when hashing or skipping

Texts = list[str] | Ragged  # documents of text, or of ids
Read = tuple[Texts, list[str | None], dict[str, Any]]  # documents, groups, the state after them


class Reading(NamedTuple):
    """Options of reading documents from shards, divided into parts."""

    shards: Sequence[Shard]
    text_field: str | None = None
    group_field: str | None = None
    batch_size: int = 4096
    part: int = 0
    parts: int = 1
    skip_unreadable: bool = False
    skip_nulls: bool = False
    stream: Stream | None = None  # of token ids; None for text


def token_batches(
    reading: Reading,
    tokenizer: Tokenizer,
    *,
    length: int,
    prefetch: int = 4,
    pool: TokenizerPool | None = None,
) -> grain.IterDataset[TokenBatch]:
    """Batches of tokenized documents of shards, made in a thread.

    Each of several parts (processes) reads every `parts`-th shard. With fewer shards than parts, it
    reads every `parts`-th document. The last batch is not full, and may be empty. Iterators have
    Grain's `get_state` and `set_state`: iteration resumes exactly from a saved state.

    The state has the digest of each completed shard. When a state is restored, these shards are
    hashed again before the first document. With `skip_unreadable`, each shard is first read
    completely, and left out if that fails: `place["unreadable"]` has the reason.

    Args:
        reading: options of reading documents.
        tokenizer: tokenizer from `open_tokenizer`.
        length: number of positions.
        prefetch: number of batches to prepare in advance.
        pool: processes with this tokenizer and length; without, a thread tokenizes.

    Raises:
        InputError: a column name for a shard without columns; while iterating, a shard that cannot
            be read, or that has changed since it was read.
    """
    paths = [shard.path for shard in reading.shards]
    check_fields(paths, Fields(reading.text_field, reading.group_field, "group_field"))

    documents = _Documents(reading)
    if pool is not None:
        return _pool_batches(documents, reading, pool, prefetch)

    def tokenized(read: Read) -> TokenBatch:
        return tokenized_batch(read, reading, tokenizer, length)

    batches = documents.map(tokenized)
    return grain.experimental.ThreadPrefetchIterDataset(batches, prefetch_buffer_size=prefetch)


def _pool_batches(
    documents: grain.IterDataset, reading: Reading, pool: TokenizerPool, prefetch: int
) -> grain.IterDataset[TokenBatch]:
    """Batches in order, from texts that are sent to the processes in advance."""

    def submitted(read: Read) -> tuple[Read, Future[Encoded]]:
        return read, pool.submit(padded_texts(read, reading))

    def batch(pair: tuple[Read, Future[Encoded]]) -> TokenBatch:
        return batch_from_encoded(pair[0], reading, pair[1].result())

    ahead = AHEAD * pool.processes + prefetch
    sent = grain.experimental.ThreadPrefetchIterDataset(
        documents.map(submitted), prefetch_buffer_size=ahead
    )
    return sent.map(batch)


def padded_texts(read: Read, reading: Reading) -> Texts:
    """Texts of a batch, padded to `batch_size` with empty texts."""
    texts = read[0]
    missing = reading.batch_size - len(texts)
    if isinstance(texts, Ragged):
        return Ragged(texts.values, np.pad(texts.lengths, (0, missing)))
    return texts + [""] * missing


def tokenized_batch(read: Read, reading: Reading, tokenizer: Tokenizer, length: int) -> TokenBatch:
    """Tokenize a batch of documents."""
    encoded = tokenizer.encode(padded_texts(read, reading), length=length)
    return batch_from_encoded(read, reading, encoded)


def batch_from_encoded(read: Read, reading: Reading, encoded: Encoded) -> TokenBatch:
    """Batch of tokenized documents; rows without a document are last."""
    texts, names, state = read
    ids, mask = encoded
    valid = np.arange(reading.batch_size) < len(texts)
    ids[len(texts) :], mask[len(texts) :] = 0, False  # removes special tokens of empty rows
    groups = None
    if reading.group_field is not None:
        both = zip(names, texts, strict=True)
        shared = [text if name is None else name for name, text in both]
        missing = [""] * (reading.batch_size - len(texts))
        groups = np.array([*map(_document_crc, shared + missing)], np.uint32)
    return TokenBatch(ids, mask, valid, state, groups)


def empty_batch(reading: Reading, *, length: int) -> TokenBatch:
    """Batch without documents, with the initial state."""
    shape = (reading.batch_size, length)
    return TokenBatch(
        np.zeros(shape, np.int32),
        np.zeros(shape, bool),
        np.zeros(reading.batch_size, bool),
        _initial_state(reading),
        None if reading.group_field is None else np.zeros(reading.batch_size, np.uint32),
    )


def _initial_state(reading: Reading) -> dict[str, Any]:
    number = len(reading.shards)
    zeros = {"documents": [0] * number, "null_texts": [0] * number}
    nothing = {**zeros, "digests": [""] * number, "unreadable": {}}
    return {"shard": 0, "checksum": 0, **nothing}


def _document_crc(text: str | Integer[np.ndarray, " n"]) -> int:
    """CRC-32 of a document, or of the name of its group."""
    if isinstance(text, str):
        return zlib.crc32(text.encode(errors="surrogatepass"))
    return zlib.crc32(np.ascontiguousarray(text).data)


def _checksum(texts: Texts, before: int) -> int:
    """Continue a CRC-32 over more documents."""
    if isinstance(texts, Ragged):
        return zlib.crc32(np.ascontiguousarray(texts.values).data, before)
    return zlib.crc32("".join(texts).encode(errors="surrogatepass"), before)


class _TextSource:
    """Documents of a shard that one part reads."""

    def __init__(self, documents: Iterator[Any], part: int, parts: int):
        self._documents = itertools.islice(documents, part, None, parts)

    def take(self, number: int) -> tuple[Texts, list[str | None]]:
        """Next `number` documents at most, and their groups; empty at the end."""
        # Lists of strings, not tuples, which Python's garbage collector would traverse.
        texts: list[Any] = []
        groups: list[str | None] = []
        for text, group in itertools.islice(self._documents, number):
            texts.append(text)
            groups.append(group)
        return texts, groups


class _IdSource:
    """Documents of token ids of a shard that one part reads."""

    def __init__(
        self,
        blocks: Iterator[tuple[Ragged, list[str | None] | None]],
        part: int,
        parts: int,
    ):
        self._blocks, self._part, self._parts = blocks, part, parts
        self._number = 0  # documents of all parts so far
        self._rest, self._groups = joined([]), list[str | None]()

    def take(self, number: int) -> tuple[Texts, list[str | None]]:
        """Next `number` documents at most, and their groups; empty at the end."""
        while not len(self._rest) and (block := next(self._blocks, None)) is not None:
            ids, groups = block
            is_read = (self._number + np.arange(len(ids))) % self._parts == self._part
            self._number += len(ids)
            self._rest = ids.chosen(is_read)
            self._groups = [None] * len(self._rest)
            if groups is not None:
                self._groups = [*itertools.compress(groups, is_read.tolist())]
        taken, self._rest = self._rest.split(number)
        groups, self._groups = self._groups[:number], self._groups[number:]
        return taken, groups


class _Documents(grain.IterDataset):
    """Dataset of lists of texts and their groups, each with the state after it."""

    def __init__(self, reading: Reading):
        super().__init__()
        self._reading = reading

    def __iter__(self) -> "_DocumentIterator":
        return _DocumentIterator(self._reading)


class _DocumentIterator(grain.DatasetIterator):
    def __init__(self, reading: Reading):
        super().__init__()
        self.reading = reading
        # With enough shards, a part reads entire shards; otherwise a share of each shard.
        self._by_shard = len(reading.shards) >= reading.parts
        self.set_state(_initial_state(reading))

    def __next__(self) -> Read:
        if self._finished:
            raise StopIteration
        parts: list[Any] = []
        groups: list[str | None] = []
        self._room = self.reading.batch_size
        while self._room and (read := next(self._documents, None)) is not None:
            parts.append(read[0])
            groups += read[1]
            self._room -= len(read[0])
        self._finished = self._room > 0
        is_ids = self.reading.stream is not None
        texts = joined(parts) if is_ids else [*itertools.chain.from_iterable(parts)]
        return texts, groups, self.get_state()

    def get_state(self) -> dict[str, Any]:
        return copy.deepcopy(self._state)

    def set_state(self, state: dict[str, Any]) -> None:
        self._state = copy.deepcopy(state)
        self._finished, self._room = False, self.reading.batch_size
        self._documents = self._read()

    def _read(self) -> Iterator[tuple[Texts, list[str | None]]]:
        """Documents after the state, at most `_room` at once; the state advances with them."""
        state, shards = self._state, self.reading.shards
        self._refuse_changed()
        for number in range(state["shard"], len(shards)):
            if number > state["shard"]:
                state["shard"], state["checksum"] = number, 0
            if not self._is_assigned(number) or self._is_unreadable(number):
                continue
            log = ReadLog()
            source = self._source(number, log)
            self._skip_counted(source, number)
            while len((taken := source.take(self._room))[0]):
                state["documents"][number] += len(taken[0])
                state["checksum"] = _checksum(taken[0], state["checksum"])
                yield taken
            state["null_texts"][number] = log.null_texts
            state["digests"][number] = shards[number].digest()

    def _refuse_changed(self) -> None:
        """Raise `InputError` for a completed shard that has changed."""
        for number, shard in enumerate(self.reading.shards[: self._state["shard"]]):
            saved = self._state["digests"][number]
            if saved and saved != (digest := shard.digest()):
                raise InputError(
                    f"{shard.path} has changed since it was counted (its hash was {saved}, and now "
                    f"is {digest}); restore the file, or start again in another folder"
                )

    def _skip_counted(self, source: _TextSource | _IdSource, number: int) -> None:
        """Skip the counted documents of a shard; the documents after them may have changed."""
        counted, checksum = self._state["documents"][number], 0
        left = counted
        while left and len(texts := source.take(min(left, _AT_ONCE))[0]):
            checksum, left = _checksum(texts, checksum), left - len(texts)
        if counted and checksum != self._state["checksum"]:
            raise InputError(
                f"{self.reading.shards[number].path}: its first {counted:,} documents are not "
                "the ones that were counted; restore the file, or start again in another folder"
            )

    def _source(self, number: int, log: ReadLog) -> _TextSource | _IdSource:
        """Documents of a shard that this part reads."""
        reading, shard = self.reading, self.reading.shards[number]
        share = (0, 1) if self._by_shard else (reading.part, reading.parts)
        options: dict[str, Any] = {
            "text_field": reading.text_field,
            "group_field": reading.group_field,
            "skip_nulls": reading.skip_nulls,
            "log": log,
        }
        if reading.stream is not None:
            return _IdSource(shard.id_blocks(stream=reading.stream, **options), *share)
        return _TextSource(shard.documents(**options), *share)

    def _is_assigned(self, number: int) -> bool:
        """Whether this part reads from a shard."""
        return not self._by_shard or number % self.reading.parts == self.reading.part

    def _is_unreadable(self, number: int) -> bool:
        """Whether reading a shard completely fails, so that it is left out."""
        state = self._state
        if not self.reading.skip_unreadable or state["documents"][number]:
            return False
        try:
            source = self._source(number, ReadLog())
            while len(source.take(_AT_ONCE)[0]):
                pass
        except InputError as error:
            state["unreadable"][str(number)] = str(error)
        return str(number) in state["unreadable"]
