"""Batches of tokens from shards, as a Grain pipeline whose place can be saved."""

import copy
import itertools
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import grain
import numpy as np
from jax.profiler import TraceAnnotation
from jaxtyping import Integer

from jaxpe._core.errors import InputError
from jaxpe._core.files import Content, content_hash
from jaxpe.data.corpora.corpus import Document, TokenBatch
from jaxpe.data.corpora.shards import Shard
from jaxpe.data.formats.columns import Found
from jaxpe.data.formats.token_files import Stream
from jaxpe.data.tokens.ragged import Ragged, joined
from jaxpe.data.tokens.tokenizers import Tokenizer
from jaxpe.data.tokens.workers import Encoded, Workers

_LARGEST_BATCH = 2**28  # characters of the texts that are in memory at once
_AT_ONCE = 256  # documents that are hashed or passed over at once

Texts = list[str] | Ragged  # documents; ids are of many in one array
Read = tuple[Texts, list[str | None], dict[str, Any]]  # documents, groups, the place behind


class Reading(NamedTuple):
    """Documents to read, and how: shards, divided into parts."""

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
    workers: Workers | None = None,
) -> grain.IterDataset[TokenBatch]:
    """The documents of shards as batches of tokens, tokenized in a thread of its own.

    With several parts (processes), each reads every `parts`-th shard, or, where there are fewer
    shards than parts, every `parts`-th document. The last batch is not full, perhaps empty; it
    says what was read in all. Iterators have `get_state` and `set_state`, as Grain's have: from a
    saved place the same documents follow.

    The place has, of each shard that was read to its end, the digest of what was read. On from a
    saved place, these shards are hashed again before the first document. With `skip_unreadable`
    each shard is first read to its end, and left out whole where that fails: `place["unreadable"]`
    tells why.

    Args:
        reading: what is read.
        tokenizer: tokenizer from `open_tokenizer`.
        length: positions to keep.
        prefetch: batches that are made ahead.
        workers: processes of this tokenizer and length; a thread tokenizes without.

    Raises:
        InputError: a column of a shard that has none; while iterating, a shard that cannot be read,
            by name, or has changed since it was.
    """
    for shard in reading.shards:
        shard.check_fields(text_field=reading.text_field, group_field=reading.group_field)

    def tokenized(read: Read) -> TokenBatch:
        with TraceAnnotation("tokenize"):
            return batch_of(read, reading, tokenizer.encode(filled(read, reading), length=length))

    documents = _Documents(reading)
    batches = documents.map(tokenized) if workers is None else _Tokenized(documents, workers)
    return grain.experimental.ThreadPrefetchIterDataset(batches, prefetch_buffer_size=prefetch)


def filled(read: Read, reading: Reading) -> Texts:
    """The texts of a batch, with empty ones where there are fewer than its rows."""
    texts = read[0]
    missing = reading.batch_size - len(texts)
    if isinstance(texts, Ragged):
        return Ragged(texts.values, np.pad(texts.lengths, (0, missing)))
    return texts + [""] * missing


def batch_of(read: Read, reading: Reading, encoded: Encoded) -> TokenBatch:
    """A batch of documents that were tokenized, with rows that hold none to its end."""
    texts, names, place = read
    ids, mask = encoded
    valid = np.arange(reading.batch_size) < len(texts)
    ids[len(texts) :], mask[len(texts) :] = 0, False  # special tokens of rows without a document
    groups = None
    if reading.group_field is not None:
        both = zip(names, texts, strict=True)
        shared = [text if name is None else name for name, text in both]
        missing = [""] * (reading.batch_size - len(texts))
        groups = np.array([*map(_hashed, shared + missing)], np.uint32)
    return TokenBatch(ids, mask, valid, place, groups)


class _Tokenized(grain.IterDataset):
    """Batches that processes tokenize, in the order in which their documents are read."""

    def __init__(self, documents: "_Documents", workers: Workers):
        super().__init__(documents)
        self._documents, self._workers = documents, workers

    def __iter__(self) -> "_TokenizedIterator":
        return _TokenizedIterator(iter(self._documents), self._workers)


class _TokenizedIterator(grain.DatasetIterator):
    def __init__(self, documents: "_DocumentIterator", workers: Workers):
        super().__init__()
        self._documents, self._workers = documents, workers
        self.set_state(documents.get_state())

    def __next__(self) -> TokenBatch:
        while self._problem is None and len(self._waiting) <= self._workers.ahead:
            try:
                read = next(self._documents)
            except (InputError, StopIteration) as error:  # after what was read before it
                self._problem = error
                break
            texts: Any = filled(read, self._documents.reading)
            self._waiting.append((read, self._workers.submit(texts)))
        if not self._waiting:
            raise self._problem or StopIteration
        read, encoded = self._waiting.popleft()
        self._state = read[2]
        return batch_of(read, self._documents.reading, encoded.result())

    def get_state(self) -> dict[str, Any]:
        return copy.deepcopy(self._state)

    def set_state(self, state: dict[str, Any]) -> None:
        self._documents.set_state(state)
        self._state = copy.deepcopy(state)
        self._waiting: deque[tuple[Read, Future[Encoded]]] = deque()
        self._problem: Exception | None = None


def empty_batch(reading: Reading, *, length: int) -> TokenBatch:
    """A batch without a document, from before the first."""
    shape = (reading.batch_size, length)
    return TokenBatch(
        np.zeros(shape, np.int32),
        np.zeros(shape, bool),
        np.zeros(reading.batch_size, bool),
        _beginning(reading),
        None if reading.group_field is None else np.zeros(reading.batch_size, np.uint32),
    )


def _beginning(reading: Reading) -> dict[str, Any]:
    number = len(reading.shards)
    zeros = {"documents": [0] * number, "null_texts": [0] * number}
    nothing = {**zeros, "digests": [""] * number, "unreadable": {}}
    return {"shard": 0, "checksum": 0, **nothing}


def _hashed(text: str | Integer[np.ndarray, " n"]) -> int:
    """CRC-32 of a document, or of the name of its group."""
    if isinstance(text, str):
        return zlib.crc32(text.encode(errors="surrogatepass"))
    return zlib.crc32(np.ascontiguousarray(text).data)


def _checksum(texts: Texts, before: int) -> int:
    """CRC-32 of documents after others, however many of them come at once."""
    if isinstance(texts, Ragged):
        return zlib.crc32(np.ascontiguousarray(texts.values).data, before)
    for start in range(0, len(texts), _AT_ONCE):
        content = "".join(texts[start : start + _AT_ONCE]).encode(errors="surrogatepass")
        before = zlib.crc32(content, before)
    return before


class _TextSource:
    """Documents of a shard, at least one at once and at most as many as are asked for."""

    def __init__(self, documents: Iterator[Document], part: int, parts: int):
        self._documents = itertools.islice(documents, part, None, parts)

    def take(self, number: int) -> tuple[Texts, list[str | None]]:
        # Lists of strings: of tuples that stay, Python's collector would look at every one.
        texts: list[Any] = []
        groups: list[str | None] = []
        size = 0
        for text, group in itertools.islice(self._documents, number):
            texts.append(text)
            groups.append(group)
            size += len(text)
            if size > _LARGEST_BATCH:  # more than a batch may have, which refuses it
                break
        return texts, groups


class _IdSource:
    """Documents that are ids, at least one at once and at most as many as are asked for."""

    def __init__(
        self,
        blocks: Iterator[tuple[Ragged, list[str | None] | None]],
        part: int,
        parts: int,
    ):
        self._blocks, self._part, self._parts = blocks, part, parts
        self._met = 0  # documents of all parts
        self._rest, self._groups = joined([]), list[str | None]()

    def take(self, number: int) -> tuple[Texts, list[str | None]]:
        while not len(self._rest) and (block := next(self._blocks, None)) is not None:
            ids, groups = block
            own = (self._met + np.arange(len(ids))) % self._parts == self._part
            self._met += len(ids)
            self._rest = ids.chosen(own)
            self._groups = [None] * len(self._rest)
            if groups is not None:
                self._groups = [*itertools.compress(groups, own.tolist())]
        taken, self._rest = self._rest.split(number)
        groups, self._groups = self._groups[:number], self._groups[number:]
        return taken, groups


def _too_large(batch_size: int, documents: int) -> InputError:
    return InputError(
        f"`batch_size` is {batch_size:,}, and {documents:,} documents have more than "
        f"{_LARGEST_BATCH:,} characters; pass a smaller `batch_size`, or cut the documents"
    )


class _Documents(grain.IterDataset):
    """Lists of texts, and of the groups they are of, each with the place behind it."""

    def __init__(self, reading: Reading):
        super().__init__()
        self._reading = reading

    def __iter__(self) -> "_DocumentIterator":
        return _DocumentIterator(self._reading)


class _DocumentIterator(grain.DatasetIterator):
    def __init__(self, reading: Reading):
        super().__init__()
        self.reading = reading
        self.set_state(_beginning(reading))

    def __next__(self) -> Read:
        if self._finished:
            raise StopIteration
        with TraceAnnotation("read"):
            parts, groups, size = [], [], 0
            self._room = self.reading.batch_size
            for texts, their_groups in self._documents:
                parts.append(texts)
                groups += their_groups
                self._room -= len(texts)
                size += len(texts.values) if isinstance(texts, Ragged) else sum(map(len, texts))
                if size > _LARGEST_BATCH:  # of shards that are each within it
                    raise _too_large(self.reading.batch_size, len(groups))
                if not self._room:
                    break
        self._finished = self._room > 0
        return self._together(parts), groups, self.get_state()

    def _together(self, parts: list[Any]) -> Texts:
        if self.reading.stream is not None:
            return joined(parts)
        return parts[0] if len(parts) == 1 else [*itertools.chain.from_iterable(parts)]

    def get_state(self) -> dict[str, Any]:
        return copy.deepcopy(self._state)

    def set_state(self, state: dict[str, Any]) -> None:
        self._state = copy.deepcopy(state)
        self._finished, self._room = False, self.reading.batch_size
        self._documents = self._read()

    def _read(self) -> Iterator[tuple[Texts, list[str | None]]]:
        """The documents from the place on, as far as there is room; the place moves along."""
        state, shards = self._state, self.reading.shards
        self._refuse_changed()
        for number in range(state["shard"], len(shards)):
            if number > state["shard"]:
                state["shard"], state["checksum"] = number, 0
            if self._is_left_out(number):
                continue
            content, found = content_hash(), Found()
            documents = self._own(number, content, found)
            self._pass_over(documents, number)
            while len((taken := documents.take(self._room))[0]):
                state["documents"][number] += len(taken[0])
                state["checksum"] = _checksum(taken[0], state["checksum"])
                yield taken
            state["null_texts"][number] = found.null_texts
            if self._is_own(number):
                state["digests"][number] = content.hexdigest()

    def _refuse_changed(self) -> None:
        """Shards that were read to their end must be what they were."""
        for number, shard in enumerate(self.reading.shards[: self._state["shard"]]):
            known = self._state["digests"][number]
            if known and known != (found := shard.digest()):
                raise InputError(
                    f"{shard.path} was counted and has changed since (its hash was {known} and now "
                    f"is {found}); put back what it was, or start anew in another folder"
                )

    def _pass_over(self, documents: _TextSource | _IdSource, number: int) -> None:
        """Skip what was counted of a shard, which is the beginning of a repaired one, too."""
        counted, checksum = self._state["documents"][number], 0
        left = counted
        while left and len(texts := documents.take(min(left, _AT_ONCE))[0]):
            checksum, left = _checksum(texts, checksum), left - len(texts)
        if counted and checksum != self._state["checksum"]:
            raise InputError(
                f"{self.reading.shards[number].path}: its first {counted:,} documents are not "
                "those that were counted; put back what they were, or start anew in another folder"
            )

    def _own(
        self, number: int, content: Content | None = None, found: Found | None = None
    ) -> _TextSource | _IdSource:
        """Documents of a shard that this part reads."""
        reading, shard = self.reading, self.reading.shards[number]
        places = (0, 1) if self._by_shard else (reading.part, reading.parts)
        if not self._is_own(number):
            return _TextSource(iter(()), *places)
        options: dict[str, Any] = {
            "text_field": reading.text_field,
            "group_field": reading.group_field,
            "skip_nulls": reading.skip_nulls,
            "found": found,
            "content": content,
        }
        if reading.stream is not None:
            return _IdSource(shard.id_blocks(stream=reading.stream, **options), *places)
        return _TextSource(shard.documents(**options), *places)

    @property
    def _by_shard(self) -> bool:
        """Whether each part reads whole shards, not every so many documents of each."""
        return len(self.reading.shards) >= self.reading.parts

    def _is_own(self, number: int) -> bool:
        """Whether this part reads from a shard."""
        return not self._by_shard or number % self.reading.parts == self.reading.part

    def _is_left_out(self, number: int) -> bool:
        """A shard counts whole or not at all, so it is read through before its first document."""
        state = self._state
        if not self.reading.skip_unreadable or state["documents"][number]:
            return False
        try:
            documents = self._own(number)
            while len(documents.take(_AT_ONCE)[0]):
                pass
        except InputError as error:
            state["unreadable"][str(number)] = str(error)
        return str(number) in state["unreadable"]
