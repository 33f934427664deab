"""The counts of disjoint sets of documents as one."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxpe._core.errors import InputError
from jaxpe.analysis.counts.base import CountedShard, StoredCounts
from jaxpe.analysis.counts.settings import (
    INT64_MAX,
    CountSettings,
    differences,
    differing_options,
    dtype_of_counts,
    shortened,
)
from jaxpe.data import open_tokenizer
from jaxpe.data.tokens.vocabulary import UNKNOWN, sorted_vocabulary, vocabulary_occurs


class MergePlan(NamedTuple):
    """Description of a sum, known before the tables of its parts are read.

    - `names`, `weights`: what error messages call the parts, and how often each counts.
    - `settings`, `tokens`, `documents`, `shards`, `text_field`, `separator`: of the sum, as of
      `StoredCounts`.
    """

    names: tuple[str, ...]
    weights: tuple[int, ...]
    settings: CountSettings
    tokens: list[str]
    documents: int
    shards: tuple[CountedShard, ...]
    text_field: str | None
    separator: int | None


def merge_counts(
    parts: Sequence[StoredCounts], *, names: Sequence[str] = (), weights: Sequence[int] = ()
) -> StoredCounts:
    """The counts of disjoint sets of documents as one.

    Vocabularies of words and of characters need not be the same: tables are aligned by the text of
    the tokens, and the sum has all of them, sorted. So any order of merging gives the same counts,
    which are those of all documents at once.

    Args:
        parts: counts of like settings.
        names: names of the counts in error messages.
        weights: number of times that documents of each folder count, at least 1; once when absent.

    Raises:
        InputError: another tokenizer or setting, a shard that two of them counted, tokens that one
            part counted as `[UNK]` and another may have, or more documents than int64 holds.

    >>> merge_counts([read_counts("a"), read_counts("b")]).documents  # doctest: +SKIP
    2
    """
    return merged(plan_merge(parts, names=names, weights=weights), parts)


def plan_merge(
    parts: Iterable[StoredCounts], *, names: Sequence[str] = (), weights: Sequence[int] = ()
) -> MergePlan:
    """Description of the sum of parts, from parts with or without their tables, one at a time.

    Args:
        parts, names, weights: as of `merge_counts`.

    Raises:
        InputError: as `merge_counts`, but for what the tables tell.
    """
    told: list[str] = []
    first, vocabulary, documents = None, {}, 0
    shards: list[CountedShard] = []
    seen: dict[str, tuple[CountedShard, str]] = {}
    fields = set()
    for number, part in enumerate(parts):
        told.append(names[number] if names else f"part {number}")
        if first is None:
            first = part
        _refuse_differences(first, part, told)
        _refuse_twice(part, told[-1], seen)
        if part.tokens != first.tokens or not vocabulary:
            vocabulary |= dict.fromkeys(part.tokens)
        weight = weights[number] if number < len(weights) else 1
        documents += weight * part.documents
        shards += [shard._replace(documents=weight * shard.documents) for shard in part.shards]
        fields.add((part.text_field, part.separator))
    if first is None or len(told) < 2:
        raise InputError(f"{len(told)} counts; pass at least two to merge")
    if weights and (len(weights) != len(told) or min(weights) < 1):
        raise InputError(
            f"`weights` are {shortened(tuple(weights))}; pass {len(told)} whole numbers, at least 1"
        )
    most = INT64_MAX // first.settings.widest
    if documents > most:
        raise InputError(f"{documents:,} documents; these counts hold at most {most:,}")
    settings, tokens = first.settings, first.tokens
    if _by_token(settings):
        tokens = sorted_vocabulary(vocabulary)
        checksum = open_tokenizer(settings.tokenizer, vocabulary=tokens).checksum
        settings = settings._replace(checksum=checksum, vocab_size=len(tokens))
    common = [of.pop() if len(of) == 1 else None for of in map(set, zip(*fields, strict=True))]
    ordered = tuple(sorted(shards, key=_order))
    weights = tuple(weights) or (1,) * len(told)
    return MergePlan(tuple(told), weights, settings, tokens, documents, ordered, *common)


def merged(plan: MergePlan, parts: Iterable[StoredCounts]) -> StoredCounts:
    """The sum that was planned, with one part in memory at a time where they are read one by one.

    Raises:
        InputError: tokens that one part counted as `[UNK]` and another may have.
    """
    settings, dtype = plan.settings, dtype_of_counts(plan.documents, plan.settings)
    shape = (settings.rows, settings.vocab_size)
    table = np.zeros((settings.folds, *shape), dtype)
    nulls = np.zeros((settings.nulls, settings.null_folds, *shape), dtype)
    about = plan._asdict()
    del about["names"], about["weights"]
    whole = StoredCounts(table=table, nulls=nulls, **about)
    places = {token: place for place, token in enumerate(plan.tokens)}
    reading = iter(parts)
    for name, weight in zip(
        plan.names, plan.weights, strict=True
    ):  # a loop over the parts would hold one while it reads the next
        _add_part(whole, next(reading), name, places, weight)
    return whole


def _add_part(
    whole: StoredCounts, part: StoredCounts, name: str, places: dict[str, int], weight: int
) -> None:
    """Add the tables of a part to those of the sum, in place."""
    place = None
    if part.tokens != whole.tokens:
        _refuse_lost(part, name, places)
        place = np.array([places[token] for token in part.tokens], np.int64)
    for own, tables in ((whole.table, part.table), (whole.nulls, part.nulls)):
        shape = own.shape[-2:]
        _add(own.reshape(-1, *shape), tables.reshape(-1, *tables.shape[-2:]), place, weight)


def aligned_tables(
    parts: Sequence[StoredCounts], *, names: Sequence[str] = ()
) -> list[Int[np.ndarray, "folds rows vocab"]]:
    """The tables of counts that may share documents, over the vocabulary of all of them.

    Raises:
        InputError: another tokenizer, length or bins, or another vocabulary of a tokenizer whose
            own is not that of a corpus.
    """
    names = list(names) or [f"part {number}" for number in range(len(parts))]
    first = parts[0]
    alike = ("folds", "nulls", "null_folds", "seed", "group_field")
    same = {name: getattr(first.settings, name) for name in alike}
    for part, name in zip(parts, names, strict=True):
        other = part._replace(settings=part.settings._replace(**same))
        _refuse_differences(first, other, [names[0], name])
    if all(part.tokens == first.tokens for part in parts):
        return [part.table for part in parts]
    tokens = sorted_vocabulary({token for part in parts for token in part.tokens})
    places = {token: place for place, token in enumerate(tokens)}
    tables = []
    for part in parts:
        tables.append(np.zeros((*part.table.shape[:2], len(tokens)), part.table.dtype))
        _add(tables[-1], part.table, np.array([places[token] for token in part.tokens], np.int64))
    return tables


def _add(
    sums: Int[np.ndarray, "tables rows vocab"],
    tables: Int[np.ndarray, "tables rows part_vocab"],
    place: Int[np.ndarray, " part_vocab"] | None,
    weight: int = 1,
) -> None:
    """Add tables to sums, their tokens to the places of these; one by one, to save memory."""
    for own, table in zip(sums, tables, strict=True):
        if weight != 1:
            table = np.multiply(table, weight, dtype=own.dtype)
        if place is None:
            own += table
        else:
            own[:, place] += table


def _by_token(settings: CountSettings) -> bool:
    """Whether tables are aligned by the text of their tokens, which is then all that they have.

    Folds and shuffles of such counts come from the text too (`jaxpe.analysis.counts.state`).
    """
    return vocabulary_occurs(settings.tokenizer) and not settings.exclude


def _order(shard: CountedShard) -> tuple[str | int, ...]:
    values = shard.name, shard.bytes, shard.digest, shard.documents, shard.null_texts
    return (*values, shard.unreadable or "")


def _refuse_differences(first: StoredCounts, part: StoredCounts, told: Sequence[str]) -> None:
    """Counts add where all their settings are the same, but for vocabularies that are aligned."""
    one, other = first.settings, part.settings
    if _by_token(one) and _by_token(other):
        other = other._replace(checksum=one.checksum, vocab_size=one.vocab_size)
    elif first.tokens != part.tokens and one == other:
        raise InputError(
            f"{told[0]} and {told[-1]} were counted differently: the vocabularies differ; count "
            "both with the same `tokenizer`"
        )
    if found := differences(one, other):
        options = " and ".join(f"`{name}`" for name in differing_options(one, other))
        raise InputError(
            f"{told[0]} and {told[-1]} were counted differently: {'; '.join(found)}; count both "
            f"with the same {options}"
        )


def _refuse_lost(part: StoredCounts, name: str, places: dict[str, int]) -> None:
    """A part whose unknown tokens may be among those of another has lost what they were."""
    if part.tokens[-1] != UNKNOWN or len(places) - (UNKNOWN in places) == len(part.tokens) - 1:
        return
    lost, tokens = (int(of.sum(dtype=np.int64)) for of in (part.table[..., -1], part.table))
    if lost:
        raise InputError(
            f"{name}: {lost:,} of {tokens:,} tokens were counted as {UNKNOWN}, since its "
            f"vocabulary of {len(part.tokens):,} was cut, and the other counts have "
            f"{len(places) - len(part.tokens):,} tokens more, so which of them these were is lost; "
            "count all parts with the same vocabulary file as `vocab`, or without `max_vocab`"
        )


def _refuse_twice(part: StoredCounts, name: str, seen: dict[str, tuple[CountedShard, str]]) -> None:
    """No content may count in two parts; what was left out in one may count in the other."""
    counted = {shard.digest: shard for shard in part.shards if shard.documents}
    for digest in sorted(counted.keys() & seen.keys()):
        there, where = seen[digest]
        raise InputError(
            f"{counted[digest].identity}, is counted in {where} (as {there.name}) and in "
            f"{name}; leave one of them out"
        )
    seen |= {digest: (shard, name) for digest, shard in counted.items()}
