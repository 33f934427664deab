"""Attention of sequences that are divided over devices."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxpe.encodings.attention_mask import AttentionMask, joined_mask, split_mask
from jaxpe.encodings.base import Encoding, Params, token_axis
from jaxpe.encodings.implementations import Call, Implementation, encoded_attention

Tree = Any


def sharded_attention(
    encoding: Encoding,
    params: Params,
    call: Call,
    implementation: Implementation | None,
    *,
    mesh: Mesh,
    axis: str,
    q_context: Any = None,
    k_context: Any = None,
    block_size: int | None = None,
) -> Array:
    """Attention of encoded queries and keys, with tokens divided over an axis of a mesh.

    Every device gathers all keys and values, linear memory, and attends with its own queries. As
    positions and masks are numbers of tokens, any order of tokens is right, such as the zigzag that
    balances causal attention. Other axes of the mesh stay to the compiler: heads and batches may be
    divided over them.
    """
    devices = dict(mesh.shape).get(axis)
    lengths = call.q.shape[-3], call.k.shape[-3]
    if devices is None or any(n % devices for n in lengths):
        raise ValueError(
            f"{lengths[0]} queries and {lengths[1]} keys over axis {axis!r} of a mesh with axes "
            f"{dict(mesh.shape)}: pass an axis of the mesh that divides both"
        )
    lead = max(call.q.ndim, call.k.ndim) - 3
    axes = {"q": -3, "k": -3, "v": -3, "mask": -1, "bits": -1, "context": lead}
    of_queries = axes | {"positions": token_axis(call.q_positions, lengths[0])}
    of_keys = axes | {"positions": token_axis(call.k_positions, lengths[1])}
    pairs, masks = None, (None, None)
    if isinstance(call.mask, AttentionMask):
        masks = split_mask(call.mask)
    elif not callable(call.mask):
        pairs = call.mask
    bits = (None, None) if call.bits is None else call.bits
    queries = {"q": call.q, "positions": call.q_positions, "context": q_context}
    queries |= {"mask": masks[0], "bits": bits[0]}
    keys = {"k": call.k, "v": call.v, "positions": call.k_positions, "context": k_context}
    keys |= {"mask": masks[1], "bits": bits[1]}
    rest = {"params": params, "scale": call.scale, "sink": call.sink}

    def local(queries: Any, keys: Any, pairs: Array | None, rest: Any) -> Array:
        keys = _each(partial(_gathered, axis), keys, of_keys)
        contexts = {"q_context": queries["context"], "k_context": keys["context"]}
        own = _joined_call(call, queries, keys, pairs, rest)
        return encoded_attention(
            encoding, rest["params"], own, implementation, block_size=block_size, **contexts
        )

    whole = PartitionSpec()
    rows = whole if pairs is None or pairs.shape[-2] == 1 else _spec(axis, -2, pairs)
    spec = partial(_spec, axis)
    divided = (_each(spec, queries, of_queries), _each(spec, keys, of_keys), rows)
    inputs = queries, keys, pairs
    if mesh.axis_types[mesh.axis_names.index(axis)] == AxisType.Explicit:
        shardings = jax.tree.map(partial(NamedSharding, mesh), divided)
        inputs = jax.sharding.reshard(inputs, shardings)
    run = jax.shard_map(
        local, mesh=mesh, in_specs=(*divided, whole), out_specs=spec(-3, call.q),
        axis_names={axis}, check_vma=False,
    )  # fmt: skip
    return jax.jit(run)(*inputs, rest)


def _joined_call(call: Call, queries: Any, keys: Any, pairs: Array | None, rest: Any) -> Call:
    """The call of one device."""
    mask = call.mask if callable(call.mask) else pairs
    if queries["mask"] is not None:
        mask = joined_mask(queries["mask"], keys["mask"])
    bits = None if queries["bits"] is None else (queries["bits"], keys["bits"])
    positions = queries["positions"], keys["positions"]
    arrays = queries["q"], keys["k"], keys["v"], *positions, mask, rest["scale"]
    return Call(*arrays, call.cap, rest["sink"], bits, call.dropout_rate)


def _each(
    function: Callable[[int, Array], Any], tree: dict[str, Tree], axes: dict[str, int]
) -> dict[str, Tree]:
    """Apply a function of token axis and array to all arrays of a tree."""
    return {name: jax.tree.map(partial(function, axes[name]), x) for name, x in tree.items()}


def _spec(axis: str, at: int, x: Any) -> PartitionSpec:
    """Partition of an array whose axis `at` is divided over an axis of the mesh."""
    names: list[str | None] = [None] * jnp.ndim(x)
    names[at] = axis
    return PartitionSpec(*names)


def _gathered(axis: str, at: int, x: Array) -> Array:
    return lax.all_gather(x, axis, axis=at % x.ndim, tiled=True)
