"""The counts of disjoint sets of documents as one."""

from collections.abc import Sequence

from jaxpe._core.errors import InputError
from jaxpe.analysis.counts.base import CountedShard, StoredCounts
from jaxpe.analysis.counts.settings import INT32_MAX, differences


def merge_counts(parts: Sequence[StoredCounts], *, names: Sequence[str] = ()) -> StoredCounts:
    """The counts of disjoint sets of documents as one.

    Args:
        parts: counts of like settings.
        names: what error messages call them.

    Raises:
        InputError: another tokenizer or setting, a shard that two of them counted, or more
            documents than int32 holds.

    >>> merge_counts([read_counts("a"), read_counts("b")]).documents  # doctest: +SKIP
    2
    """
    names = list(names) or [f"part {number}" for number in range(len(parts))]
    if len(parts) < 2:
        raise InputError(f"{len(parts)} counts; pass at least two to merge")
    first, *others = parts
    for part, name in zip(others, names[1:], strict=True):
        found = differences(first.settings, part.settings)
        if not found and first.tokens != part.tokens:
            found = ["the vocabularies differ"]
        if found:
            raise InputError(
                f"{names[0]} and {name} were counted differently: {'; '.join(found)}; count both "
                "with the same tokenizer and settings"
            )
    _refuse_twice(parts, names)
    documents, most = sum(part.documents for part in parts), INT32_MAX // first.settings.widest
    if documents > most:
        raise InputError(f"{documents:,} documents; these counts hold at most {most:,}")
    table, nulls = first.table.copy(), first.nulls.copy()
    for part in others:
        table += part.table
        nulls += part.nulls
    return first._replace(
        table=table,
        nulls=nulls,
        documents=documents,
        shards=tuple(shard for part in parts for shard in part.shards),
    )


def _refuse_twice(parts: Sequence[StoredCounts], names: Sequence[str]) -> None:
    """No content may count in two parts; what was left out in one may count in the other."""
    seen: dict[str, tuple[CountedShard, str]] = {}
    for part, name in zip(parts, names, strict=True):
        counted = {shard.digest: shard for shard in part.shards if shard.documents}
        for digest in sorted(counted.keys() & seen.keys()):
            there, where = seen[digest]
            raise InputError(
                f"{counted[digest].identity}, is counted in {where} (as {there.name}) and in "
                f"{name}; leave one of them out"
            )
        seen |= {digest: (shard, name) for digest, shard in counted.items()}
