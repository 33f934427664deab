"""Beam pipeline of counts: cells are summed by key, a row of a table."""

import functools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxpe._core.errors import InputError, require
from jaxpe.analysis.counts import CountOptions
from jaxpe.analysis.counts.cells import STRIDE, Cells, batch_size, count_documents, sum_cells
from jaxpe.analysis.counts.job import counted_part, engine_shard, tokenizer_and_settings
from jaxpe.analysis.counts.stored import counts_file, write_part
from jaxpe.data.tokens.vocabulary import vocabulary_occurs


def count_positions(texts: Any, options: CountOptions, out: str | os.PathLike[str]) -> Any:
    """Count the tokens at each position of a collection of documents, and write the counts.

    Batches become cells of the tables, with the row of the tables as key. Cells are summed first in
    each worker, then by key. One worker gathers the sums and writes all files or none. A retried
    bundle adds the same cells.

    Args:
        texts: a `PCollection` of texts, or of dictionaries with `text_field` and `group_field`, as
            the examples of TFDS are.
        options: options of the count, with `sources=()`; words and characters need a `vocab`.
        out: folder for the counts, visible to the workers.

    Returns:
        A `PCollection` with the folder as its one element.

    Raises:
        InputError: options out of range, or words without a `vocab`.
        MissingExtraError: Beam is not installed.

    >>> import apache_beam as beam  # doctest: +SKIP
    >>> with beam.Pipeline() as pipeline:  # doctest: +SKIP
    ...     texts = pipeline | beam.io.ReadFromText("corpus-*.txt")
    ...     count_positions(texts, CountOptions(sources=(), tokenizer="bytes"), "counts")
    """
    beam = require("apache_beam", extra="beam")
    tokenizer, settings = _opened(
        options
    )  # errors in the options are raised before the pipeline runs
    if vocabulary_occurs(tokenizer.name) and options.vocab is None:
        raise InputError(
            f"workers need one vocabulary of {tokenizer.name}: count a sample with `max_vocab`, "
            "and pass its folder as `vocab`"
        )
    rows = texts | "rows" >> beam.FlatMap(text_rows, options=options)
    batches = rows | beam.BatchElements(max_batch_size=batch_size(settings))
    sums = (
        batches
        | "cells" >> beam.FlatMap(keyed_cells, options=options)
        | "sums" >> beam.CombinePerKey(sum_cells)
        | "gather" >> beam.combiners.ToList()
    )
    number = beam.pvalue.AsSingleton(rows | beam.combiners.Count.Globally())
    return sums | "write" >> beam.Map(write_sums, number, options=options, out=os.fspath(out))


_opened = functools.lru_cache(maxsize=1)(tokenizer_and_settings)  # once in each worker


def text_rows(row: Any, *, options: CountOptions) -> Iterator[tuple[str, str | None]]:
    """Text and group of a row, unless the text is blank."""
    fields = row if isinstance(row, dict) else {options.text_field: row}
    group = fields.get(options.group_field) if options.group_field is not None else None
    if (text := _text(fields[options.text_field])).strip():
        yield text, None if group is None else _text(group)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def keyed_cells(
    batch: list[tuple[str, str | None]], *, options: CountOptions
) -> Iterator[tuple[int, Cells]]:
    """Cells of a batch of documents, by row."""
    tokenizer, settings = _opened(options)
    texts, groups = zip(*batch, strict=True)
    in_fold = None if options.group_field is None else groups
    cells = count_documents([*texts], in_fold, tokenizer=tokenizer, settings=settings)
    row = cells.numbers // STRIDE
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    parts = (np.split(x, starts[1:]) for x in cells)
    for number, *values in zip(row[starts].tolist(), *parts, strict=True):
        yield number, Cells(*values)


def write_sums(
    sums: list[tuple[int, Cells]],
    documents: int,
    *,
    options: CountOptions,
    out: str | os.PathLike[str],
) -> str:
    """Write the sums of all rows as counts; returns the folder.

    Raises:
        InputError: no documents, or the folder cannot be written.
    """
    if not documents:
        raise InputError("no documents in the collection; pass texts")
    cells = sum_cells(part for _, part in sums)
    shard = engine_shard("a collection of Beam", documents, cells)
    write_part(counted_part(cells, shard, _opened(options)[0], options), counts_file(out))
    return os.fspath(out)
