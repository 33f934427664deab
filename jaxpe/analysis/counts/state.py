"""Counts on the devices, and the compiled step that adds a batch of documents to them."""

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Int, UInt32

from jaxpe.analysis.counts.settings import CountSettings, dtype_of_counts
from jaxpe.data import TokenBatch
from jaxpe.data.tokens.vocabulary import vocabulary_occurs
from jaxpe.geometry.counts.position_counts import (
    content_labels,
    fold_of_documents,
    scatter_add,
)
from jaxpe.geometry.counts.rotations import rotate_within_documents

DOCUMENTS, VOCABULARY = "documents", "vocabulary"
_SPLIT = PartitionSpec(DOCUMENTS)
_TABLE = PartitionSpec(DOCUMENTS, None, None, VOCABULARY)


class CountState(NamedTuple):
    """Counts on the devices, one part of the documents for each row of the mesh.

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

    Raises `ValueError` if the devices do not divide into so many parts.

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
    """Shapes and shardings of the counts."""
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
    """State of a count without documents."""
    return jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding),
        abstract_state(settings, mesh),
    )


def batch_adder(
    settings: CountSettings, mesh: Mesh, tokens: Sequence[str]
) -> Callable[[CountState, TokenBatch], tuple[CountState, Array]]:
    """Function `(state, batch) -> (state, tokens counted)`, which donates its state.

    A batch holds the rows of this process. Devices that share the vocabulary get the same
    documents, and each counts its own words. So no device waits for another.

    Args:
        settings, mesh: settings and mesh of the state.
        tokens: the text of each id.
    """
    by_document = NamedSharding(mesh, _SPLIT)
    labels = _token_labels(settings, mesh, tokens)

    def add(state: CountState, batch: TokenBatch) -> tuple[CountState, Array]:
        arrays = jax.tree.map(
            lambda array: jax.make_array_from_process_local_data(by_document, array),
            batch._replace(place={}),  # of numbers and strings
        )
        return _add_batch(state, arrays, labels, settings=settings, mesh=mesh)

    return add


@functools.partial(jax.jit, static_argnames=("settings", "mesh"), donate_argnames="state")
def _add_batch(
    state: CountState,
    batch: TokenBatch,
    labels: UInt32[Array, " vocab"] | None,
    *,
    settings: CountSettings,
    mesh: Mesh,
) -> tuple[CountState, Int[Array, " parts"]]:
    specs: Any = CountState._make((_TABLE, _TABLE, _SPLIT))
    add = jax.shard_map(
        functools.partial(_add_local, settings=settings),
        mesh=mesh,
        in_specs=(specs, _SPLIT, PartitionSpec()),
        out_specs=(specs, _SPLIT),
        check_vma=False,
    )
    return add(state, batch, labels)


def _token_labels(
    settings: CountSettings, mesh: Mesh, tokens: Sequence[str]
) -> UInt32[Array, " vocab"] | None:
    """Hash of each token, for the hashes of documents; None where its id serves as one.

    Vocabularies of two corpora number the same words differently. Equal documents in both must
    still share folds and rotations.
    """
    if not vocabulary_occurs(settings.tokenizer):
        return None
    hashes = np.array([zlib.crc32(token.encode()) for token in tokens], np.uint32)
    return jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec()), hashes)


def _add_local(
    state: CountState,
    batch: TokenBatch,
    labels: UInt32[Array, " vocab"] | None,
    *,
    settings: CountSettings,
) -> tuple[CountState, Int[Array, " 1"]]:
    """Add a batch on one device: its part of the documents, its share of the vocabulary."""
    ids, words = jnp.asarray(batch.ids), state.tokens.shape[-1]
    first = jax.lax.axis_index(VOCABULARY) * words
    row = jnp.asarray(_row_of_position(settings))
    fold, copies = _folds_and_copies(batch, labels, settings)
    counted = batch.mask & ~jnp.isin(ids, jnp.asarray(settings.exclude, ids.dtype))

    def scattered(table: Array, ids: Array, block: Array) -> Array:
        is_local = counted & (ids >= first) & (ids < first + words)
        cell = block[:, None] * settings.rows + row[None, :]
        token = jnp.where(is_local, ids - first, words)
        # Position by position, so that successive cells are near in memory.
        return scatter_add(table, cell.T, token.T, jnp.ones((1, 1), jnp.int32))

    def add_null(number: Array, table: Array) -> Array:
        rotated = _null_documents(batch, copies, number, settings)
        return scattered(table, rotated, number * settings.null_folds + fold % settings.null_folds)

    tokens = scattered(state.tokens[0], ids, fold)
    nulls = state.nulls
    if nulls is not None:
        nulls = jax.lax.fori_loop(0, settings.nulls, add_null, nulls[0])[None]
    documents = state.documents + jnp.sum(batch.valid, dtype=jnp.int32)
    return CountState(tokens[None], nulls, documents), jnp.sum(counted)[None]


def _folds_and_copies(
    batch: TokenBatch, labels: UInt32[Array, " vocab"] | None, settings: CountSettings
) -> tuple[Int[Array, " documents"], UInt32[Array, " documents"] | None]:
    """Fold of each document, and a hash that its copies share; None if their ids serve as one."""
    copies = None if labels is None else content_labels(labels[batch.ids], batch.mask)
    in_fold: Any = copies if batch.groups is None else batch.groups
    fold = fold_of_documents(batch.ids, batch.mask, folds=settings.folds, groups=in_fold)
    return fold, copies


def _null_documents(
    batch: TokenBatch,
    copies: UInt32[Array, " documents"] | None,
    number: Int[Array, ""],
    settings: CountSettings,
) -> Int[Array, "documents n"]:
    """Rotated documents of a null corpus."""
    key = jax.random.fold_in(jax.random.key(settings.seed), number)
    return rotate_within_documents(
        key, batch.ids, batch.mask, exclude=settings.exclude, groups=copies
    )


def cells_of_batches(
    settings: CountSettings, tokens: Sequence[str]
) -> Callable[[TokenBatch], tuple[Int[np.ndarray, " cells"], Int[np.ndarray, " cells"]]]:
    """Function from a batch to the cells it adds to, ascending, and how much it adds to each.

    It is for engines that add cells themselves. A cell is an index into the flat array of all
    tables, `[folds + nulls * null_folds, rows, vocab]`.

    Args:
        settings: settings of the count.
        tokens: the text of each id.
    """
    labels = _token_labels(settings, Mesh(np.array(jax.local_devices()[:1]), "x"), tokens)
    row, numbers = _row_of_position(settings), np.arange(settings.nulls, dtype=np.int32)

    @jax.jit
    def folds_and_nulls(batch):
        fold, copies = _folds_and_copies(batch, labels, settings)
        return fold, jax.lax.map(
            lambda number: _null_documents(batch, copies, number, settings), numbers
        )

    def cells(batch: TokenBatch) -> tuple[np.ndarray, np.ndarray]:
        fold, rotated = jax.tree.map(np.asarray, folds_and_nulls(batch._replace(place={})))
        counted = batch.mask & ~np.isin(batch.ids, settings.exclude)
        first = settings.folds + numbers * settings.null_folds
        blocks = np.concatenate([fold[None], first[:, None] + fold % settings.null_folds])
        ids = np.concatenate([batch.ids[None], rotated])
        rows = blocks[:, :, None].astype(np.int64) * settings.rows + row
        return np.unique((rows * settings.vocab_size + ids)[:, counted], return_counts=True)

    return cells


def _row_of_position(settings: CountSettings) -> Int[np.ndarray, " n"]:
    """Row of the table in which each position is counted."""
    positions = np.arange(settings.length, dtype=np.int32)
    if settings.edges is None:
        return positions
    return (np.searchsorted(settings.edges, positions, side="right") - 1).astype(np.int32)


def total(
    state: CountState, settings: CountSettings, mesh: Mesh
) -> tuple[
    Int[np.ndarray, "folds rows vocab"], Int[np.ndarray, "nulls null_folds rows vocab"], int
]:
    """Sums over all parts on the host: the table, the nulls, and the number of documents.

    The tables are of `dtype_of_counts`.
    """
    documents = int(_host_sum(state.documents, np.dtype(np.int64), mesh)[0])
    dtype = dtype_of_counts(documents, settings)

    def table(parts: Array) -> np.ndarray:
        tables = _host_sum(parts, dtype, mesh, None, None, VOCABULARY)
        return tables[0, ..., : settings.vocab_size]

    nulls = np.zeros(0, dtype) if state.nulls is None else table(state.nulls)
    shape = (settings.nulls, settings.null_folds, settings.rows, settings.vocab_size)
    return table(state.tokens), nulls.reshape(shape), documents


def _host_sum(
    parts: Int[Array, "parts ..."], dtype: np.dtype, mesh: Mesh, *spec: str | None
) -> Int[np.ndarray, "1 ..."]:
    """Sum over parts, from the pieces on the devices of this process."""
    if mesh.shape[DOCUMENTS] > 1:
        add = functools.partial(jnp.sum, axis=0, keepdims=True, dtype=dtype)
        sharding = NamedSharding(mesh, PartitionSpec(None, *spec))
        with jax.enable_x64(True):  # a sum over processes may exceed int32
            parts = jax.jit(add, out_shardings=sharding)(parts)
    shards = {shard.index[-1].start or 0: shard.data for shard in parts.addressable_shards}
    pieces = [np.asarray(shards[start]) for start in sorted(shards)]
    # A single piece is not copied, for it may take half of the memory.
    return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-1)).astype(
        dtype, copy=False
    )


def documents_per_part(state: CountState) -> list[int]:
    """Documents in each part of the state that this process has."""
    shards = [shard for shard in state.documents.addressable_shards if shard.replica_id == 0]
    return [number for shard in shards for number in np.asarray(shard.data).tolist()]
