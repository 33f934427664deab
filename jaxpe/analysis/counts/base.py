"""Finished counts: the tables and the settings by which they add."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from jaxpe._core.errors import InputError
from jaxpe._core.results import short_repr
from jaxpe.analysis.counts.settings import CountSettings
from jaxpe.geometry import PositionCounts


class CountedShard(NamedTuple):
    """A shard with its number of counted documents, or the reason why it was left out.

    Attributes:
        name, bytes: name and size of the file.
        digest: hash of its content, which identifies the shard; empty if it was left out.
        documents: number of documents counted.
        unreadable: reason why it was left out; None if it was counted.
        null_texts: rows that were left out because their text is null or missing.
    """

    name: str
    bytes: int
    digest: str
    documents: int
    unreadable: str | None = None
    null_texts: int = 0

    @property
    def identity(self) -> str:
        """The name and size of the shard, as text."""
        return f"{self.name}, {self.bytes:,} bytes"


class StoredCounts(NamedTuple):
    """Counts of a corpus with their settings, for sums and reports.

    Attributes:
        table: `[folds, rows, vocab]`, int32, or int64 if so many documents may exceed it.
        nulls: `[nulls, null_folds, rows, vocab]`, likewise, of rotated documents.
        documents: number of documents counted.
        settings: settings of the count.
        tokens: the text of each id.
        shards: shards that were read.
        text_field: the column or key with the text, or with the ids.
        separator: the id that ended documents in streams of ids.
    """

    table: Int[np.ndarray, "folds rows vocab"]
    nulls: Int[np.ndarray, "nulls null_folds rows vocab"]
    documents: int
    settings: CountSettings
    tokens: list[str]
    shards: tuple[CountedShard, ...]
    text_field: str | None = None
    separator: int | None = None

    @property
    def counts(self) -> PositionCounts:
        """The counts in folds, for the geometry.

        Raises:
            InputError: int64 counts without JAX's 64-bit mode.
        """
        dtype = self.table.dtype
        if jax.dtypes.canonicalize_dtype(dtype) != dtype:
            raise InputError(
                f"{self.documents:,} documents are counted in {dtype}, which JAX cuts to 32 bits; "
                "set JAX_ENABLE_X64=1, or call jax.config.update('jax_enable_x64', True)"
            )
        documents = jnp.asarray(self.documents, dtype)
        return PositionCounts(jnp.asarray(self.table), documents, jnp.zeros((), dtype))

    @property
    def unreadable(self) -> list[CountedShard]:
        """The shards that were left out."""
        return [shard for shard in self.shards if shard.unreadable is not None]

    @property
    def null_texts(self) -> int:
        """Rows that were left out because their text is null or missing."""
        return sum(shard.null_texts for shard in self.shards)

    __repr__ = short_repr
