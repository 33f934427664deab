"""Sums of the counts of disjoint sets of documents."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from jaxpe._core.errors import InputError, differences, shortened
from jaxpe.analysis.counts.base import CountedShard, StoredCounts
from jaxpe.analysis.counts.settings import (
    INT64_MAX,
    CountSettings,
    zero_tables,
)
from jaxpe.data import open_tokenizer
from jaxpe.data.tokens.vocabulary import UNKNOWN, sorted_vocabulary, vocabulary_occurs


def merge_counts(
    parts: Sequence[StoredCounts], *, names: Sequence[str] = (), weights: Sequence[int] = ()
) -> StoredCounts:
    """Sum of the counts of disjoint sets of documents.

    Vocabularies of words and of characters may differ: tables are aligned by the text of the
    tokens, and the sum has all tokens, sorted. So the order of merging does not matter, and the sum
    equals one count of all documents.

    Args:
        parts: counts of equal settings.
        names: names of the counts in error messages.
        weights: number of times that the documents of each part count, at least 1. Default: once.

    Raises:
        InputError: different tokenizers or settings, a shard that two parts counted, tokens that
            one part counted as `[UNK]` and another may have, or more documents than int64 holds.

    >>> merge_counts([read_counts("a"), read_counts("b")]).documents  # doctest: +SKIP
    2
    """
    names = names or [f"part {number}" for number in range(len(parts))]
    return merge_streams(parts, parts, names=names, weights=weights)


def merge_streams(
    headers: Iterable[StoredCounts],
    parts: Iterable[StoredCounts],
    *,
    names: Sequence[str],
    weights: Sequence[int] = (),
) -> StoredCounts:
    """Sum of counts that are read one at a time, as `merge_counts`.

    Args:
        headers: the parts without their tables.
        parts: the parts with their tables.
        names, weights: as of `merge_counts`.
    """
    if len(names) < 2:
        raise InputError(f"{len(names)} counts; pass at least two to merge")
    weights = weights or (1,) * len(names)
    if len(weights) != len(names) or min(weights) < 1:
        raise InputError(
            f"`weights` are {shortened(tuple(weights))}; pass {len(names)} whole numbers, at least "
            "1"
        )
    header = _merged_header(headers, names, weights)
    table, nulls = zero_tables(header.settings, header.documents)
    total = header._replace(table=table, nulls=nulls)
    columns = {token: column for column, token in enumerate(total.tokens)}
    remaining = iter(parts)
    # A plain loop would keep one part in memory while it reads the next.
    for name, weight in zip(names, weights, strict=True):
        _add_part(total, next(remaining), name, columns, weight)
    return total


def _merged_header(
    headers: Iterable[StoredCounts], names: Sequence[str], weights: Sequence[int]
) -> StoredCounts:
    """The sum without its tables."""
    first, documents = None, 0
    vocabulary: dict[str, None] = {}
    shards: list[CountedShard] = []
    counted: dict[str, tuple[CountedShard, str]] = {}
    fields = set()
    for part, name, weight in zip(headers, names, weights, strict=True):
        first = part if first is None else first
        _refuse_differences(first, part, (names[0], name))
        _refuse_twice(part, name, counted)
        vocabulary |= dict.fromkeys(part.tokens)
        documents += weight * part.documents
        shards += [shard._replace(documents=weight * shard.documents) for shard in part.shards]
        fields.add((part.text_field, part.separator))
    assert first is not None
    settings, tokens = first.settings, first.tokens
    most = INT64_MAX // settings.widest
    if documents > most:
        raise InputError(f"{documents:,} documents; these counts hold at most {most:,}")
    if _is_aligned(settings):
        tokens = sorted_vocabulary(vocabulary)
        checksum = open_tokenizer(settings.tokenizer, vocabulary=tokens).checksum
        settings = settings._replace(checksum=checksum, vocab_size=len(tokens))
    text_field, separator = (
        values.pop() if len(values) == 1 else None for values in map(set, zip(*fields, strict=True))
    )
    return first._replace(
        documents=documents,
        settings=settings,
        tokens=tokens,
        shards=tuple(sorted(shards, key=lambda s: (s[:4], s.null_texts, s.unreadable or ""))),
        text_field=text_field,
        separator=separator,
    )


def _add_part(
    total: StoredCounts, part: StoredCounts, name: str, columns: dict[str, int], weight: int
) -> None:
    """Add the tables of a part to the total, in place."""
    chosen: Any = slice(None)
    if part.tokens != total.tokens:
        _refuse_lost(part, name, columns)
        chosen = np.array([columns[token] for token in part.tokens], np.int64)
    for sums, tables in ((total.table, part.table), (total.nulls, part.nulls)):
        for index in np.ndindex(sums.shape[:-2]):  # one table at a time, to save memory
            sums[index][:, chosen] += np.multiply(tables[index], weight, dtype=sums.dtype)


def aligned_tables(
    parts: Sequence[StoredCounts], *, names: Sequence[str]
) -> list[Int[np.ndarray, "folds rows vocab"]]:
    """Tables of counts that may share documents, over the union of their vocabularies.

    Raises:
        InputError: different tokenizers, lengths or bins, or different vocabularies that were not
            made from the corpus.
    """
    first = parts[0]
    ignored = ("folds", "nulls", "null_folds", "seed", "group_field")
    same = {name: getattr(first.settings, name) for name in ignored}
    for part, name in zip(parts, names, strict=True):
        other = part._replace(settings=part.settings._replace(**same))
        _refuse_differences(first, other, (names[0], name))
    if all(part.tokens == first.tokens for part in parts):
        return [part.table for part in parts]
    tokens = sorted_vocabulary({token for part in parts for token in part.tokens})
    columns = {token: column for column, token in enumerate(tokens)}
    tables = []
    for part in parts:
        table = np.zeros((*part.table.shape[:2], len(tokens)), part.table.dtype)
        table[..., [columns[token] for token in part.tokens]] = part.table
        tables.append(table)
    return tables


def _is_aligned(settings: CountSettings) -> bool:
    """Whether tables are aligned by the text of their tokens.

    Folds and rotations of such counts come from the text too (`jaxpe.analysis.counts.state`).
    """
    return vocabulary_occurs(settings.tokenizer) and not settings.exclude


# Options of a count whose settings have another name.
_OPTIONS = {
    "checksum": ("tokenizer",),
    "vocab_size": ("tokenizer",),
    "exclude": ("special",),
    "edges": ("bins", "spacing"),
    "null_folds": ("folds",),
}


def _refuse_differences(first: StoredCounts, part: StoredCounts, names: tuple[str, str]) -> None:
    """Raise for unequal settings, except vocabularies that can be aligned."""
    one, other = first.settings, part.settings
    if _is_aligned(one) and _is_aligned(other):
        other = other._replace(checksum=one.checksum, vocab_size=one.vocab_size)
    differing = differences(one._asdict(), other._asdict())
    if not differing and first.tokens != part.tokens and not _is_aligned(one):
        differing = {"tokenizer": "the vocabularies differ"}
    if differing:
        options = [f"`{o}`" for name in differing for o in _OPTIONS.get(name, (name,))]
        raise InputError(
            f"{names[0]} and {names[1]} were counted differently: {'; '.join(differing.values())}; "
            f"count both with the same {' and '.join(dict.fromkeys(options))}"
        )


def _refuse_lost(part: StoredCounts, name: str, columns: dict[str, int]) -> None:
    """Raise for a part with unknown tokens that another part may have by name."""
    if part.tokens[-1] != UNKNOWN or len(columns) - (UNKNOWN in columns) == len(part.tokens) - 1:
        return
    lost, tokens = (int(x.sum(dtype=np.int64)) for x in (part.table[..., -1], part.table))
    if lost:
        raise InputError(
            f"{name}: {lost:,} of {tokens:,} tokens were counted as {UNKNOWN}, since its "
            f"vocabulary of {len(part.tokens):,} was cut. The other counts have "
            f"{len(columns) - len(part.tokens):,} more tokens, and which of these they were is "
            "lost; count all parts with the same vocabulary file as `vocab`, or without `max_vocab`"
        )


def _refuse_twice(
    part: StoredCounts, name: str, counted: dict[str, tuple[CountedShard, str]]
) -> None:
    """Raise for a shard that an earlier part counted, unless that part left it out."""
    shards = {shard.digest: shard for shard in part.shards if shard.documents}
    for digest in sorted(shards.keys() & counted.keys()):
        earlier, earlier_name = counted[digest]
        raise InputError(
            f"{shards[digest].identity}, is counted in {earlier_name} (as {earlier.name}) and in "
            f"{name}; leave one of them out"
        )
    counted |= {digest: (shard, name) for digest, shard in shards.items()}
