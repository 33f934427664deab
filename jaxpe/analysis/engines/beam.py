"""Counts as a Beam pipeline: cells are added by key, a fold and a row of positions."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from jaxpe._core.errors import InputError, require
from jaxpe._core.files import content_hash
from jaxpe.analysis.counts import CountOptions, StoredCounts, tokenizer_from_options, write_counts
from jaxpe.analysis.counts.base import CountedShard
from jaxpe.analysis.counts.settings import CountSettings, dtype_of_counts
from jaxpe.analysis.counts.state import cells_of_batches

Key = tuple[int, int]
Cells = tuple[Int[np.ndarray, " _"], Int[np.ndarray, " _"]]  # tokens, and how often each

_ABOUT = (-1, -1)  # the key of what is no table: documents, bytes, and the digest in parts
_LIMBS, _BITS = 8, 16  # of the digest, a sum over the documents modulo 2¹²⁸


def count_positions(texts: Any, options: CountOptions, out: str | os.PathLike[str]) -> Any:
    """Count the tokens at each position of a collection of documents, and write the counts.

    Batches become cells of the tables, with their fold and row of positions as key; cells of one
    key are added, first where they are made, then by key. One worker gathers the sums, as large as
    the tables, and writes them whole or not at all. A bundle that is tried again adds the same.

    Args:
        texts: a `PCollection` of texts, or of dictionaries with `text_field` and `group_field`, as
            the examples of TFDS are.
        options: options of the count, with `sources=()`; words and characters need a `vocab`.
            `batch_size` is the most documents of a batch.
        out: folder for the counts, which the workers see.

    Returns:
        A `PCollection` of the one folder.

    Raises:
        InputError: options out of range.
        MissingExtraError: Beam is not installed.

    >>> import apache_beam as beam  # doctest: +SKIP
    >>> with beam.Pipeline() as pipeline:  # doctest: +SKIP
    ...     texts = pipeline | beam.io.ReadFromText("corpus-*.txt")
    ...     count_positions(texts, CountOptions(sources=(), tokenizer="bytes"), "counts")
    """
    beam = require("apache_beam", extra="beam")
    tokenizer_from_options(
        options
    )  # what is wrong with the options is told before the pipeline runs
    batches = beam.BatchElements(min_batch_size=1, max_batch_size=options.batch_size)
    cells = texts | "batches" >> batches | "cells" >> beam.FlatMap(CellsOfTexts(options))
    sums = cells | "sums" >> beam.CombinePerKey(add_cells)
    gathered = sums | "gather" >> beam.combiners.ToList()
    return gathered | "write" >> beam.Map(write_cells, options=options, out=os.fspath(out))


class CellsOfTexts:
    """Function of a batch of documents that yields the cells they add to, by key.

    It can be pickled: workers open the tokenizer themselves, once.

    Args:
        options: as of `count_positions`.
    """

    def __init__(self, options: CountOptions):
        self._options = options
        self._opened: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_opened": None}

    def __call__(self, batch: list[Any]) -> Iterator[tuple[Key, Cells]]:
        """Cells of each fold and row, and what the batch adds to documents, bytes and digest."""
        from jaxpe.data.tokens.batches import Reading, tokenized_batch  # brings Grain

        options = self._options
        if self._opened is None:
            tokenizer, settings = tokenizer_from_options(options)
            self._opened = tokenizer, settings, cells_of_batches(settings, tokenizer.tokens)
        tokenizer, settings, cells_of = self._opened
        read = _read(batch, options)
        if not read[0]:
            return
        reading = Reading((), options.text_field, options.group_field, options.batch_size)
        yield _ABOUT, _about(read[0])
        cells, counts = cells_of(tokenized_batch(read, reading, tokenizer, settings.length))
        row, token = np.divmod(cells, settings.vocab_size)
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        for of, ids, own in zip(
            row[starts], np.split(token, starts[1:]), np.split(counts, starts[1:]), strict=True
        ):
            block, position = divmod(int(of), settings.rows)
            yield (block, position), (ids, own)


def add_cells(parts: Iterable[Cells]) -> Cells:
    """The sum of cells of one key, in ascending order; Beam makes a `CombineFn` of it.

    >>> one, other = (np.array([1, 4]), np.array([2, 1])), (np.array([4]), np.array([5]))
    >>> ids, counts = add_cells([one, other])
    >>> ids.tolist(), counts.tolist()
    ([1, 4], [2, 6])
    """
    pairs = list(parts)
    if not pairs:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    ids = np.concatenate([pair[0] for pair in pairs])
    unique, place = np.unique(ids, return_inverse=True)
    sums = np.zeros(len(unique), np.int64)
    np.add.at(sums, place, np.concatenate([pair[1] for pair in pairs]))
    return unique, sums


def write_cells(
    sums: list[tuple[Key, Cells]], *, options: CountOptions, out: str | os.PathLike[str]
) -> str:
    """Write the sums of all keys as counts; returns the folder.

    Raises:
        InputError: no documents, or the folder cannot be written.
    """
    tokenizer, settings = tokenizer_from_options(options)
    found = dict(sums)
    if _ABOUT not in found:
        raise InputError("no documents in the collection; pass texts")
    ids, counts = found.pop(_ABOUT)
    about = np.zeros(2 + _LIMBS, object)
    about[ids] = counts
    documents, size, *limbs = map(int, about)
    digest = sum(limb << (_BITS * k) for k, limb in enumerate(limbs)) % 2 ** (_LIMBS * _BITS)
    shard = CountedShard("a collection of Beam", size, f"{digest:032x}", documents)
    table, nulls = _tables(found, settings, documents)
    stored = StoredCounts(
        table, nulls, documents, settings, list(tokenizer.tokens), (shard,), options.text_field
    )
    return str(write_counts(stored, Path(out)))


def _tables(
    found: dict[Key, Cells], settings: CountSettings, documents: int
) -> tuple[np.ndarray, np.ndarray]:
    shape, dtype = (settings.rows, settings.vocab_size), dtype_of_counts(documents, settings)
    whole = np.zeros((settings.folds + settings.nulls * settings.null_folds, *shape), dtype)
    for (block, row), (ids, counts) in found.items():
        whole[block, row, ids] = counts
    nulls = whole[settings.folds :].reshape(settings.nulls, settings.null_folds, *shape)
    return whole[: settings.folds], nulls


def _read(batch: list[Any], options: CountOptions) -> tuple[list[Any], list[str | None], dict]:
    """Texts that are not blank, and their groups."""
    rows = [row if isinstance(row, dict) else {options.text_field: row} for row in batch]
    pairs = [(_text(row[options.text_field]), row.get(options.group_field)) for row in rows]
    kept = [(text, group) for text, group in pairs if text.strip()]
    groups = [None if group is None else _text(group) for _, group in kept]
    return [text for text, _ in kept], groups, {}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _about(texts: list[str]) -> Cells:
    """Documents, bytes, and the sum of the hashes of the texts in parts of 16 bits."""
    contents = [text.encode(errors="surrogatepass") for text in texts]
    parts = [np.frombuffer(content_hash(content).digest(), "<u2") for content in contents]
    limbs = np.sum(parts, axis=0, dtype=np.int64)
    sizes = [len(texts), sum(map(len, contents))]
    return np.arange(2 + _LIMBS), np.concatenate([sizes, limbs])
