"""Counts beyond int32: the devices' are put aside on the host before they could exceed it."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh
from jaxtyping import Int

from jaxpe._core.files import atomic_file
from jaxpe.analysis.counts.processes import agreed, from_all
from jaxpe.analysis.counts.settings import INT32_MAX, CountSettings, dtype_of_counts
from jaxpe.analysis.counts.state import CountState, total
from jaxpe.analysis.counts.tables import named_tables, read_tables, write_tables

_BITS = 30  # of the lower limb of documents that were put aside
_KEPT = 2  # files, one for each of the checkpoints that are kept


class Aside:
    """The counts that were put aside, in files that are named by the documents in them.

    A checkpoint says how many documents its state comes after (`CountState.earlier`), and with it
    which of the files belongs to it. Several processes call all methods together.

    Args:
        folder: for the files; all processes see it.
        settings, mesh: of the state.
    """

    def __init__(self, folder: Path, settings: CountSettings, mesh: Mesh):
        self._folder, self._settings, self._mesh = folder, settings, mesh

    def with_room(self, state: CountState, documents: int) -> CountState:
        """The state, emptied into a file where counts of so many documents might exceed int32."""
        if documents * self._settings.widest <= INT32_MAX:
            return state
        table, nulls, number = self.whole(state)
        path = self._file(number)
        first = jax.process_index() == 0

        def write() -> None:
            with atomic_file(path) as part:
                write_tables(part, named_tables(table, nulls))
            for old in sorted(self._folder.glob("*.npz"))[:-_KEPT]:
                old.unlink()

        agreed(lambda: write() if first else None)
        return jax.jit(_emptied, donate_argnums=0)(state)

    def whole(
        self, state: CountState
    ) -> tuple[
        Int[np.ndarray, "folds rows vocab"], Int[np.ndarray, "nulls null_folds rows vocab"], int
    ]:
        """Tables of the state and of what was put aside before it, and the documents in them."""
        table, nulls, documents = total(state, self._settings, self._mesh)
        earlier = sum(from_all(documents_aside(state)))
        documents += earlier
        dtype = dtype_of_counts(documents, self._settings)
        table, nulls = table.astype(dtype, copy=False), nulls.astype(dtype, copy=False)
        if earlier:
            before = np.zeros_like(table), np.zeros_like(nulls)
            agreed(lambda: read_tables(self._file(earlier), named_tables(*before)))
            table, nulls = table + before[0], nulls + before[1]
        return table, nulls, documents

    def _file(self, documents: int) -> Path:
        return self._folder / f"{documents:020}.npz"


def documents_aside(state: CountState) -> int:
    """Documents of this process whose counts were put aside."""
    return sum((high << _BITS) + low for high, low in _own(state.earlier))


def documents_in(state: CountState) -> int:
    """Documents of this process in the state."""
    return sum(_own(state.documents))


def most_in(state: CountState) -> int:
    """Documents in the largest part of the state that this process has."""
    return max(_own(state.documents), default=0)


def _own(values: Array) -> list[Any]:
    """Values of the parts that this process has."""
    shards = [shard for shard in values.addressable_shards if shard.replica_id == 0]
    return [value for shard in shards for value in np.asarray(shard.data).tolist()]


def _emptied(state: CountState) -> CountState:
    """Counts of nothing, after documents that are known in two limbs."""
    high = state.earlier[:, 0] + (state.documents >> _BITS)
    low = state.earlier[:, 1] + (state.documents & ((1 << _BITS) - 1))
    earlier = jnp.stack([high + (low >> _BITS), low & ((1 << _BITS) - 1)], axis=1)
    return jax.tree.map(jnp.zeros_like, state)._replace(earlier=earlier)
