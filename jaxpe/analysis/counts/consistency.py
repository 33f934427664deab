"""Do the numbers of a count agree with each other? A changed file often shows by that alone."""

import re

import numpy as np
from jaxtyping import Int

from jaxpe._core.errors import InputError
from jaxpe.analysis.counts.base import CountedShard, StoredCounts
from jaxpe.analysis.counts.settings import (
    INT64_MAX,
    CountSettings,
    check_settings,
    dtype_of_counts,
    in_short,
)
from jaxpe.data import open_tokenizer

_DIGEST = re.compile("[0-9a-f]{32}")


def check_about(stored: StoredCounts) -> None:
    """Refuse numbers beside the tables that contradict each other."""
    settings, documents = stored.settings, stored.documents
    check_settings(settings)
    most = INT64_MAX // settings.widest
    check(0 <= documents <= most, f"documents is {in_short(documents)}, not in [0, {most:,}]")
    for shard in stored.shards:
        _check_shard(shard, documents)
    total = sum(shard.documents for shard in stored.shards)
    check(total == documents, f"documents is {documents}, and of the shards {total}")
    check(
        len(stored.tokens) == settings.vocab_size,
        f"there are {len(stored.tokens)} tokens, and vocab_size is {settings.vocab_size}",
    )
    if settings.tokenizer in ("words", "characters"):  # whose vocabulary is all there is to them
        known = open_tokenizer(settings.tokenizer, vocabulary=stored.tokens).checksum
        check(
            known == settings.checksum,
            f"the tokens have checksum {known}, and checksum is {in_short(settings.checksum)}",
        )


def _check_shard(shard: CountedShard, most: int) -> None:
    left_out = shard.unreadable is not None
    most = 0 if left_out else most
    name = in_short(shard.name)
    check(
        0 <= shard.documents <= most,
        f"documents of {name} is {in_short(shard.documents)}, not in [0, {most:,}]",
    )
    check(shard.null_texts >= 0, f"null_texts of {name} is {in_short(shard.null_texts)}")
    check(0 <= shard.bytes < 2**63, f"bytes of {name} is {in_short(shard.bytes)}")
    check(
        _DIGEST.fullmatch(shard.digest) or (left_out and not shard.digest),
        f"digest of {name} is {in_short(shard.digest)}, not 32 hexadecimal digits",
    )


def check_tables(stored: StoredCounts) -> None:
    """Refuse counts that no documents can have had."""
    settings, table, nulls = stored.settings, stored.table, stored.nulls
    shape = (settings.rows, settings.vocab_size)
    wanted = [(settings.folds, *shape), (settings.nulls, settings.null_folds, *shape)]
    found = [table.shape, nulls.shape]
    check(found == wanted, f"the tables are of shapes {found}, not {wanted}")
    dtypes, dtype = {table.dtype, nulls.dtype}, dtype_of_counts(stored.documents, settings)
    check(dtypes == {dtype}, f"the tables are {', '.join(map(str, dtypes))}, not {dtype}")
    least = min(table.min(initial=0), nulls.min(initial=0))
    check(least >= 0, f"a count is {least}, not at least 0")
    excluded = table[..., list(settings.exclude)]
    check(not excluded.any(), "tokens that are excluded have counts")
    _check_rows(stored)
    # A shuffle inside documents moves tokens to other positions: the sums over each stay.
    for axis, what in ((-1, "positions"), (-2, "tokens")) if len(nulls) else ():
        sums = _of_null_folds(table.sum(axis, dtype=np.int64), settings)
        for number, null in enumerate(nulls):
            same = np.array_equal(null.sum(axis, dtype=np.int64), sums)
            check(same, f"null {number} holds other {what} than the table")


def _check_rows(stored: StoredCounts) -> None:
    """A document adds one token to a position at most."""
    settings = stored.settings
    edges = range(settings.rows + 1) if settings.edges is None else settings.edges
    most = stored.documents * np.diff(np.asarray(edges, np.int64))
    sums = stored.table.sum((0, 2), dtype=np.int64)
    for row in np.flatnonzero(sums > most):
        raise InputError(
            f"row {row} holds {sums[row]:,} tokens, more than the {most[row]:,} that "
            f"{stored.documents:,} documents have there"
        )


def _of_null_folds(
    sums: Int[np.ndarray, "folds n"], settings: CountSettings
) -> Int[np.ndarray, "null_folds n"]:
    """Sums of folds as sums of the folds of null corpora, `fold % null_folds`."""
    return sums.reshape(-1, settings.null_folds, sums.shape[-1]).sum(0)


def check(fine: object, found: str) -> None:
    """Refuse what is not fine, with what was found."""
    if not fine:
        raise InputError(found)
