"""Beam pipeline of counts: cells are summed by key, a fold and a row of positions."""

import functools
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
from jaxpe.analysis.counts.settings import CountSettings, zero_tables
from jaxpe.analysis.counts.state import cells_of_batches
from jaxpe.data import Tokenizer

Key = tuple[int, int]
Cells = tuple[Int[np.ndarray, " _"], Int[np.ndarray, " _"]]  # tokens and their counts

# Key of the documents, their bytes, and the two halves of the digest, sums of hashes modulo 2⁶⁴.
_TOTALS = (-1, -1)


def count_positions(texts: Any, options: CountOptions, out: str | os.PathLike[str]) -> Any:
    """Count the tokens at each position of a collection of documents, and write the counts.

    Batches become cells of the tables, with the fold and the row of positions as key. Cells are
    summed first in each worker, then by key. One worker gathers the sums, as large as the tables,
    and writes all files or none. A retried bundle adds the same cells.

    Args:
        texts: a `PCollection` of texts, or of dictionaries with `text_field` and `group_field`, as
            the examples of TFDS are.
        options: options of the count, with `sources=()`; words and characters need a `vocab`.
            `batch_size` is the most documents of a batch.
        out: folder for the counts, visible to the workers.

    Returns:
        A `PCollection` with the folder as its one element.

    Raises:
        InputError: options out of range.
        MissingExtraError: Beam is not installed.

    >>> import apache_beam as beam  # doctest: +SKIP
    >>> with beam.Pipeline() as pipeline:  # doctest: +SKIP
    ...     texts = pipeline | beam.io.ReadFromText("corpus-*.txt")
    ...     count_positions(texts, CountOptions(sources=(), tokenizer="bytes"), "counts")
    """
    beam = require("apache_beam", extra="beam")
    tokenizer_from_options(options)  # errors in the options are raised before the pipeline runs
    batches = beam.BatchElements(min_batch_size=1, max_batch_size=options.batch_size)
    cells = texts | "batches" >> batches | "cells" >> beam.FlatMap(text_cells, options=options)
    sums = cells | "sums" >> beam.CombinePerKey(add_cells)
    gathered = sums | "gather" >> beam.combiners.ToList()
    return gathered | "write" >> beam.Map(write_cells, options=options, out=os.fspath(out))


@functools.lru_cache(maxsize=1)
def _worker_state(options: CountOptions) -> tuple[Tokenizer, CountSettings, Any]:
    """Tokenizer, settings and cells of batches, once in each worker."""
    tokenizer, settings = tokenizer_from_options(options)
    return tokenizer, settings, cells_of_batches(settings, tokenizer.tokens)


def text_cells(batch: list[Any], *, options: CountOptions) -> Iterator[tuple[Key, Cells]]:
    """Cells of a batch of documents, by fold and row, and its documents, bytes and digest.

    Args:
        batch, options: documents and options as of `count_positions`.
    """
    from jaxpe.data.tokens.batches import Reading, tokenized_batch  # imports Grain

    tokenizer, settings, batch_cells = _worker_state(options)
    rows = [row if isinstance(row, dict) else {options.text_field: row} for row in batch]
    rows = [row for row in rows if _text(row[options.text_field]).strip()]
    if not rows:
        return
    texts = [_text(row[options.text_field]) for row in rows]
    groups = [row.get(options.group_field) for row in rows]
    names = [None if group is None else _text(group) for group in groups]
    contents = [text.encode(errors="surrogatepass") for text in texts]
    hashes = [np.frombuffer(content_hash(content).digest(), "<i8") for content in contents]
    totals = [len(texts), sum(map(len, contents)), *np.sum(hashes, axis=0)]
    yield _TOTALS, (np.arange(len(totals)), np.array(totals, np.int64))
    reading = Reading((), options.text_field, options.group_field, options.batch_size)
    tokens = tokenized_batch((texts, names, {}), reading, tokenizer, settings.length)
    cells, counts = batch_cells(tokens)
    row, token = np.divmod(cells, settings.vocab_size)
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    by_row = (np.split(array, starts[1:]) for array in (token, counts))
    for number, *values in zip(row[starts].tolist(), *by_row, strict=True):
        yield divmod(number, settings.rows), tuple(values)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def add_cells(parts: Iterable[Cells]) -> Cells:
    """Sum of the cells of one key, in ascending order; Beam makes a `CombineFn` of it.

    >>> one, other = (np.array([1, 4]), np.array([2, 1])), (np.array([4]), np.array([5]))
    >>> ids, counts = add_cells([one, other])
    >>> ids.tolist(), counts.tolist()
    ([1, 4], [2, 6])
    """
    nothing = np.zeros(0, np.int64)
    ids, counts = (
        np.concatenate(arrays) for arrays in zip((nothing, nothing), *parts, strict=True)
    )
    unique, index = np.unique(ids, return_inverse=True)
    sums = np.zeros(len(unique), np.int64)
    np.add.at(sums, index, counts)
    return unique, sums


def write_cells(
    sums: list[tuple[Key, Cells]], *, options: CountOptions, out: str | os.PathLike[str]
) -> str:
    """Write the sums of all keys as counts; returns the folder.

    Raises:
        InputError: no documents, or the folder cannot be written.
    """
    tokenizer, settings, _ = _worker_state(options)
    cells = dict(sums)
    if _TOTALS not in cells:
        raise InputError("no documents in the collection; pass texts")
    totals = cells.pop(_TOTALS)[1]
    documents, size = totals[:2].tolist()
    digest = totals[2:].astype("<i8").tobytes().hex()
    shard = CountedShard("a collection of Beam", size, digest, documents)
    table, nulls = zero_tables(settings, documents)
    tables = [*table, *nulls.reshape(-1, *table.shape[1:])]
    for (block, row), (ids, counts) in cells.items():
        tables[block][row, ids] = counts
    fields = settings, list(tokenizer.tokens), (shard,), options.text_field
    return str(write_counts(StoredCounts(table, nulls, documents, *fields), Path(out)))
