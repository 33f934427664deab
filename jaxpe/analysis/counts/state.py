"""Counts on the devices, and the one compiled step that adds a batch of documents to them."""

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Bool, Int, UInt32

from jaxpe.analysis.counts.settings import CountSettings, dtype_of_counts
from jaxpe.data import TokenBatch
from jaxpe.data.tokens.vocabulary import vocabulary_occurs
from jaxpe.geometry.counts.position_counts import (
    content_labels,
    fold_of_documents,
    permute_within_documents,
    scatter_add,
)

DOCUMENTS, VOCABULARY = "documents", "vocabulary"
_SPLIT = PartitionSpec(DOCUMENTS)
_TABLE = PartitionSpec(DOCUMENTS, None, None, VOCABULARY)


class CountState(NamedTuple):
    """Counts of one part of the documents for every row of the mesh.

    Attributes:
        tokens: int32 `[parts, folds, rows, vocab]`; the vocabulary is rounded up to a multiple of
            the devices that share it.
        nulls: int32 `[parts, nulls * null_folds, rows, vocab]`; None without, since Orbax writes no
            empty arrays.
        documents: int32 `[parts]`.
    """

    tokens: Int[Array, "parts folds rows vocab"]
    nulls: Int[Array, "parts nulls rows vocab"] | None
    documents: Int[Array, " parts"]


def count_mesh(*, parts: int | None = None) -> Mesh:
    """Mesh of all devices: one axis divides the documents, the other the vocabulary.

    Args:
        parts: number of parts of the documents; default: one for each process, so that its devices
            share the vocabulary and nothing crosses between processes until the end.

    Raises `ValueError` where the devices do not make so many parts of equal size.

    >>> count_mesh().axis_names
    ('documents', 'vocabulary')
    """
    devices = np.array(jax.devices())
    parts = jax.process_count() if parts is None else parts
    if parts < 1 or len(devices) % parts:
        raise ValueError(f"{len(devices)} devices do not make {parts} parts of equal size")
    axes = (DOCUMENTS, VOCABULARY)
    return Mesh(devices.reshape(parts, -1), axes, axis_types=(AxisType.Auto, AxisType.Auto))


def abstract_state(settings: CountSettings, mesh: Mesh) -> CountState:
    """Shapes and places of the counts, each device with its own part of them."""
    parts, sharers = mesh.shape[DOCUMENTS], mesh.shape[VOCABULARY]
    vocab = -(-settings.vocab_size // sharers) * sharers
    null_tables = settings.nulls * settings.null_folds

    def table(*shape: int, spec: PartitionSpec = _TABLE) -> Any:
        return jax.ShapeDtypeStruct(shape, np.int32, sharding=NamedSharding(mesh, spec))

    return CountState(
        table(parts, settings.folds, settings.rows, vocab),
        table(parts, null_tables, settings.rows, vocab) if null_tables else None,
        table(parts, spec=_SPLIT),
    )


def zero_state(settings: CountSettings, mesh: Mesh) -> CountState:
    """Counts of nothing."""

    def zeros(leaf: Any) -> Array:
        def piece(index: Any) -> np.ndarray:
            whole = np.broadcast_to(leaf.dtype.type(0), leaf.shape)
            return np.zeros(whole[index].shape, leaf.dtype)

        return jax.make_array_from_callback(leaf.shape, leaf.sharding, piece)

    return jax.tree.map(zeros, abstract_state(settings, mesh))


def batch_adder(
    settings: CountSettings, mesh: Mesh, tokens: Sequence[str]
) -> Callable[[CountState, TokenBatch], tuple[CountState, Array]]:
    """The step `(state, batch) -> (state, tokens counted)`; the state given is used up.

    A batch holds the rows of this process. Devices that share the vocabulary see the same
    documents and each keeps the counts of its own words, so no device waits for another.

    Args:
        settings, mesh: of the state.
        tokens: the text of each id.
    """
    specs: Any = CountState._make((_TABLE, _TABLE, _SPLIT))
    add = functools.partial(_add_local, settings=settings)
    step = jax.jit(
        jax.shard_map(
            add,
            mesh=mesh,
            in_specs=(specs, _SPLIT, _SPLIT, _SPLIT, _SPLIT, PartitionSpec()),
            out_specs=(specs, _SPLIT),
            check_vma=False,
        ),
        donate_argnums=0,
    )
    place = functools.partial(jax.make_array_from_process_local_data, NamedSharding(mesh, _SPLIT))

    labels = _labels_of_tokens(settings, mesh, tokens)

    def added(state: CountState, batch: TokenBatch) -> tuple[CountState, Array]:
        arrays = jax.tree.map(place, (batch.ids, batch.mask, batch.valid, batch.groups))
        return step(state, *arrays, labels)

    return added


def _labels_of_tokens(
    settings: CountSettings, mesh: Mesh, tokens: Sequence[str]
) -> UInt32[Array, " vocab"] | None:
    """Hash of each token, for the hashes of documents; None where its id serves as one.

    A vocabulary that is made of a corpus numbers the same words otherwise than that of another,
    whose equal documents have to share folds and shuffles all the same.
    """
    if not vocabulary_occurs(settings.tokenizer):
        return None
    hashes = np.array([zlib.crc32(token.encode()) for token in tokens], np.uint32)
    return jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec()), hashes)


def _add_local(
    state: CountState,
    ids: Int[Array, "documents n"],
    mask: Bool[Array, "documents n"],
    valid: Bool[Array, " documents"],
    groups: UInt32[Array, " documents"] | None,
    labels: UInt32[Array, " vocab"] | None,
    *,
    settings: CountSettings,
) -> tuple[CountState, Int[Array, " 1"]]:
    """Counts of one device: its part of the documents and its share of the vocabulary."""
    words = state.tokens.shape[-1]
    first = jax.lax.axis_index(VOCABULARY) * words
    row = jnp.asarray(_row_of_position(settings))
    fold, copies = _folds_and_copies(ids, mask, groups, labels, settings)
    excluded = jnp.isin(ids, jnp.asarray(settings.exclude, ids.dtype))
    counted = mask & ~excluded

    def scattered(table: Array, ids: Array, block: Array) -> Array:
        own = counted & (ids >= first) & (ids < first + words)
        cell = block[:, None] * settings.rows + row[None, :]
        token = jnp.where(own, ids - first, words)
        # Position by position, so that the cells which follow each other are near in memory.
        return scatter_add(table, cell.T, token.T, jnp.ones((1, 1), jnp.int32))

    def shuffled(number: Array, table: Array) -> Array:
        moved = _shuffled(ids, mask, copies, number, settings)
        return scattered(table, moved, number * settings.null_folds + fold % settings.null_folds)

    tokens = scattered(state.tokens[0], ids, fold)
    nulls = state.nulls
    if nulls is not None:
        nulls = jax.lax.fori_loop(0, settings.nulls, shuffled, nulls[0])[None]
    documents = state.documents + jnp.sum(valid, dtype=jnp.int32)
    return CountState(tokens[None], nulls, documents), jnp.sum(counted)[None]


def _folds_and_copies(
    ids: Int[Array, "documents n"],
    mask: Bool[Array, "documents n"],
    groups: UInt32[Array, " documents"] | None,
    labels: UInt32[Array, " vocab"] | None,
    settings: CountSettings,
) -> tuple[Int[Array, " documents"], UInt32[Array, " documents"] | None]:
    """The fold of each document, and what tells copies of it; None where its ids do."""
    copies = None if labels is None else content_labels(labels[ids], mask)
    in_fold = copies if groups is None else groups
    return fold_of_documents(ids, mask, folds=settings.folds, groups=in_fold), copies


def _shuffled(
    ids: Int[Array, "documents n"],
    mask: Bool[Array, "documents n"],
    copies: UInt32[Array, " documents"] | None,
    number: Int[Array, ""],
    settings: CountSettings,
) -> Int[Array, "documents n"]:
    """The documents of a null corpus."""
    key = jax.random.fold_in(jax.random.key(settings.seed), number)
    return permute_within_documents(key, ids, mask, exclude=settings.exclude, groups=copies)


def cells_of_batches(
    settings: CountSettings, tokens: Sequence[str]
) -> Callable[[TokenBatch], tuple[Int[np.ndarray, " cells"], Int[np.ndarray, " cells"]]]:
    """A function of a batch: which cells of all tables it adds to, and how much to each.

    For engines that add cells by themselves. A cell is a place in the tables as one array `[folds +
    nulls * null_folds, rows, vocab]`, flat; the cells of a batch ascend.

    Args:
        settings: of the count.
        tokens: the text of each id.
    """
    labels = _labels_of_tokens(settings, Mesh(np.array(jax.local_devices()[:1]), "x"), tokens)
    row, numbers = _row_of_position(settings), np.arange(settings.nulls, dtype=np.int32)

    @jax.jit
    def placed(ids, mask, groups):
        fold, copies = _folds_and_copies(ids, mask, groups, labels, settings)
        moved = jax.lax.map(lambda n: _shuffled(ids, mask, copies, n, settings), numbers)
        return fold, moved

    def cells(batch: TokenBatch) -> tuple[np.ndarray, np.ndarray]:
        fold, moved = jax.tree.map(np.asarray, placed(batch.ids, batch.mask, batch.groups))
        counted = batch.mask & ~np.isin(batch.ids, settings.exclude)
        first = settings.folds + numbers * settings.null_folds
        blocks = np.concatenate([fold[None], first[:, None] + fold % settings.null_folds])
        ids = np.concatenate([batch.ids[None], moved])
        rows = blocks[:, :, None].astype(np.int64) * settings.rows + row
        return np.unique((rows * settings.vocab_size + ids)[:, counted], return_counts=True)

    return cells


def _row_of_position(settings: CountSettings) -> Int[np.ndarray, " n"]:
    """The row of the table that each position is counted in."""
    positions = np.arange(settings.length, dtype=np.int32)
    if settings.edges is None:
        return positions
    return (np.searchsorted(settings.edges, positions, side="right") - 1).astype(np.int32)


def total(
    state: CountState, settings: CountSettings, mesh: Mesh
) -> tuple[
    Int[np.ndarray, "folds rows vocab"], Int[np.ndarray, "nulls null_folds rows vocab"], int
]:
    """Counts, those of the null corpora, and documents of all parts as one, on the host.

    The tables are of `dtype_of_counts`.
    """
    alone = mesh.shape[DOCUMENTS] == 1  # nothing to add, and no program that would

    def summed(parts: Array, add: Callable[[Array], Array], *spec: str | None) -> Array:
        own = NamedSharding(mesh, PartitionSpec(*spec))
        return parts if alone else jax.jit(add, out_shardings=own)(parts)

    limbs = summed(state.documents, _in_limbs)
    documents = int(_whole(np.asarray(limbs.addressable_data(0))))
    dtype = dtype_of_counts(documents, settings)

    def table(parts: Array) -> np.ndarray:
        add = _summed if dtype == np.int32 else _in_limbs
        limbs = summed(parts, add, None, None, None, VOCABULARY)
        return _gathered(limbs, settings).astype(dtype, copy=False)

    nulls = np.zeros(0, dtype) if state.nulls is None else table(state.nulls)
    shape = (settings.nulls, settings.null_folds, settings.rows, settings.vocab_size)
    return table(state.tokens), nulls.reshape(shape), documents


def _summed(parts: Int[Array, "parts ..."]) -> Int[Array, "1 ..."]:
    """Sums over parts that int32 holds."""
    return jnp.sum(parts, axis=0, keepdims=True, dtype=parts.dtype)


def _in_limbs(parts: Int[Array, "parts ..."]) -> Int[Array, "2 ..."]:
    """Sums over parts as two limbs of 16 bits and more, which int32 holds of 2¹⁵ parts."""
    limbs = jnp.stack([parts >> 16, parts & 0xFFFF])
    return jnp.sum(limbs, axis=1, dtype=parts.dtype)


def _whole(limbs: Int[np.ndarray, "limbs ..."]) -> Int[np.ndarray, "..."]:
    """Sums from one limb, as they are, or from those of `_in_limbs`, int64."""
    if len(limbs) == 1:
        return np.asarray(limbs[0])
    return np.asarray(np.left_shift(limbs[0], 16, dtype=np.int64) + limbs[1])


def _gathered(limbs: Array, settings: CountSettings) -> Int[np.ndarray, "blocks rows vocab"]:
    """The pieces that the devices of this process hold, side by side."""
    pieces = {shard.index[-1].start or 0: shard.data for shard in limbs.addressable_shards}
    whole = [_whole(np.asarray(pieces[start])) for start in sorted(pieces)]
    together = whole[0] if len(whole) == 1 else np.concatenate(whole, axis=-1)
    return together[..., : settings.vocab_size]


def documents_per_part(state: CountState) -> list[int]:
    """Documents in each part of the state that this process has."""
    shards = [shard for shard in state.documents.addressable_shards if shard.replica_id == 0]
    return [number for shard in shards for number in np.asarray(shard.data).tolist()]
