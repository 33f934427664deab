"""Attention of sequences that are divided over devices."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxpe.encodings.base import Encoding, Params, token_axis
from jaxpe.encodings.implementations import Call, Implementation, encoded_attention


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
    options: dict[str, Any] = {
        "cap": call.cap,
        "dropout_rate": call.dropout_rate,
    }  # no arguments of a program
    if callable(call.mask):
        options["mask"] = call.mask
    absent: dict[str, Any] = dict.fromkeys(options)
    arrays: dict[str, Any] = {"call": call._replace(**absent), "params": params}
    arrays |= {"q_context": q_context, "k_context": k_context}
    # Axes of arrays that have one entry a query. All others stay whole on every device: the
    # compiler gathers keys and values, and sums their cotangents. A ring (Liu et al. 2023) would
    # keep keys divided, but needs a rule for each implementation, and cannot form whole rows.
    axes = {"call.q": -3, "call.q_positions": token_axis(call.q_positions, lengths[0])}
    axes |= {"q_context": max(call.q.ndim, call.k.ndim) - 3, "call.bits.0": -1}
    axes |= {"call.mask.q_order": -1, "call.mask.q_segments": -1}
    mask = arrays["call"].mask
    if getattr(mask, "ndim", 0) > 1 and mask.shape[-2] > 1:
        axes["call.mask"] = -2

    def spec(path: Any, x: Any) -> PartitionSpec:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        at = axes.get(name, axes.get(name.partition(".")[0]))
        divided = [axis if at in (i, i - jnp.ndim(x)) else None for i in range(jnp.ndim(x))]
        return PartitionSpec(*divided)

    specs = jax.tree_util.tree_map_with_path(spec, arrays)
    if mesh.axis_types[mesh.axis_names.index(axis)] == AxisType.Explicit:
        shardings = jax.tree.map(partial(NamedSharding, mesh), specs)
        arrays = jax.sharding.reshard(arrays, shardings)

    def local(call: Call, params: Params, **contexts: Any) -> Array:
        call = call._replace(**options)
        return encoded_attention(
            encoding, params, call, implementation, block_size=block_size, **contexts
        )

    run = jax.shard_map(
        lambda arrays: local(**arrays), mesh=mesh, in_specs=(specs,), out_specs=specs["call"].q,
        axis_names={axis}, check_vma=False,
    )  # fmt: skip
    return jax.jit(run)(arrays)
