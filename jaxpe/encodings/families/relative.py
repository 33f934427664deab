"""Encodings by relative position that depend on the content: Shaw et al. and Transformer-XL."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from jaxpe._core.arrays import Scalar
from jaxpe.encodings.base import (
    Encoding,
    align_positions,
    check_heads,
    check_sizes,
    compute_dtype,
    expand_rank,
    neighbours,
    position_offsets,
    repeat_heads,
    weight_offsets,
)
from jaxpe.encodings.families.bias import interpolate
from jaxpe.encodings.phases import phases
from jaxpe.encodings.registry import register
from jaxpe.encodings.tables import check_tables, normal_params
from jaxpe.plans.scaling import inverse_frequencies


@register(
    "shaw", source="Shaw et al. (2018)", make=lambda s: shaw(head_dim=s.head_dim, max_distance=16)
)
def shaw(
    *, head_dim: int, max_distance: int, values: bool = True, stddev: Scalar = 0.02
) -> Encoding:
    """Relative keys and values: learned vectors for clipped offsets (Shaw et al. 2018).

    Logits are q_i·(k_j + a^K_r)/√head_dim, outputs Σ_j w_ij (v_j + a^V_r).
    r is the offset j − i clipped to ±max_distance: Eqs. (3) and (4) of Shaw et al. (2018). A
    fractional offset interpolates linearly between the rows around it.

    Parameters: `key_table` and, with `values`, `value_table` for the term of the outputs, both
    `[2·max_distance + 1, head_dim]` with row max_distance for the offset 0, N(0, stddev²) at first.
    The heads share them; `per_head` gives each head its own. Products are taken with the tables,
    not with one vector for every pair: memory is `[..., heads, n_q, 2·max_distance + 1]` beside the
    weights. The bias keeps head_dim^−½ for any `scale` of attention, as published.

    Args:
        head_dim: width of a head.
        max_distance: distance from which all offsets of one sign share a row, in positions.
        values: whether outputs have the term a^V.
        stddev: standard deviation of the tables at first.

    >>> q, i = jnp.ones((3, 1, 1)), jnp.arange(3)
    >>> params = {"key_table": jnp.array([[-1.0], [0.0], [1.0]])}
    >>> encoding = shaw(head_dim=1, max_distance=1, values=False)
    >>> encoding.bias(params, q, q, i, i)[0].tolist()
    [[0.0, 1.0, 1.0], [-1.0, 0.0, 1.0], [-1.0, -1.0, 0.0]]
    """
    check_sizes(head_dim=head_dim, max_distance=max_distance)
    rows = 2 * max_distance + 1

    def init(key):
        table = (stddev, (rows, head_dim))
        params = normal_params(key, key_table=table, value_table=table)
        return params if values else {"key_table": params["key_table"]}

    def row_indices(offsets):
        return jnp.clip(offsets, -max_distance, max_distance) + max_distance

    def bias(params, q, k, q_positions, k_positions):
        check_heads(q.shape, head_dim=head_dim)
        check_tables(params, key_table=(rows, head_dim))
        dtype = compute_dtype(q)
        table = params["key_table"].astype(dtype)
        scores = jnp.einsum("...qhd,rd->...hqr", q.astype(dtype), table) * head_dim**-0.5
        return interpolate(scores, row_indices(position_offsets(q, k, q_positions, k_positions)))

    def value(params, weights, q_positions, k_positions):
        dtype = compute_dtype(weights)
        offsets = weight_offsets(weights, q_positions, k_positions)
        check_tables(params, value_table=(rows, head_dim))
        sums = _row_sums(weights.astype(dtype), row_indices(offsets), rows)
        return jnp.einsum("...hqr,rd->...qhd", sums, params["value_table"].astype(dtype))

    encoding = Encoding(init=init, bias=bias)
    return encoding._replace(value=value) if values else encoding


@register("transformer_xl", source="Dai et al. (2019)")
def transformer_xl(
    *,
    num_heads: int,
    head_dim: int,
    dim: int | None = None,
    base: Scalar = 10_000.0,
    stddev: Scalar = 0.02,
) -> Encoding:
    """Transformer-XL: sinusoids of the offset with learned projections (Dai et al. 2019).

    Logits have all four terms of Section 3.3, (q_i·k_j + q_i·W R_{i−j} + u·k_j + v·W
    R_{i−j})/√head_dim. The first term is the attention's own. R_p = (sin ω₁p, ..., cos ω₁p, ...)
    with ω from `inverse_frequencies(dim)`.

    Offsets of both signs are right, without the shift trick, which needs a causal mask. There is no
    table of offsets, so positions may be fractional, packed or shuffled. Each pair and head takes a
    product of width `dim`; memory is n·heads·dim. The bias keeps head_dim^−½ for any `scale` of
    attention, as published.

    Parameters: `projection` W `[dim, heads, head_dim]`, `content_bias` u and `position_bias` v
    `[heads, head_dim]`, N(0, stddev²) at first.

    Args:
        num_heads: query heads.
        head_dim: width of a head.
        dim: width of R, even; num_heads·head_dim when None, as published.
        base: θ of the frequencies.
        stddev: standard deviation of the parameters at first.

    >>> encoding = transformer_xl(num_heads=2, head_dim=4)
    >>> q, i = jnp.zeros((3, 2, 4)), jnp.arange(3)
    >>> encoding.bias(encoding.init(jax.random.key(0)), q, q, i, i).shape
    (2, 3, 3)
    """
    check_sizes(num_heads=num_heads, head_dim=head_dim)
    dim = num_heads * head_dim if dim is None else dim
    frequencies = inverse_frequencies(dim, base=base)

    bias_of_heads = (stddev, (num_heads, head_dim))
    projection = (stddev, (dim, num_heads, head_dim))
    init = partial(
        normal_params,
        projection=projection, content_bias=bias_of_heads, position_bias=bias_of_heads,
    )  # fmt: skip

    # With (a, b) = Wᵀ(q_i + v), the weights of sines and cosines, the addition theorem splits
    #   Σ a sin ω(i − j) + b cos ω(i − j)
    #     = Σ (a sin ωi + b cos ωi) cos ωj + (b sin ωi − a cos ωi) sin ωj
    # into features of the query times features of the key.
    def bias(params, q, k, q_positions, k_positions):
        check_heads(q.shape, num_heads, head_dim)
        dtype = compute_dtype(q)
        cast = {name: value.astype(dtype) for name, value in params.items()}
        i, j = (
            phases(align_positions(positions, x.shape, after=2), frequencies, dtype)
            for x, positions in ((q, q_positions), (k, k_positions))
        )
        sought = q.astype(dtype) + expand_rank(cast["position_bias"], q.ndim)
        a, b = jnp.split(jnp.einsum("...hd,chd->...hc", sought, cast["projection"]), 2, axis=-1)
        sin, cos = jnp.sin(i)[..., None, :], jnp.cos(i)[..., None, :]
        at_query = jnp.concatenate([a * sin + b * cos, b * sin - a * cos], axis=-1)
        at_key = jnp.concatenate([jnp.cos(j), jnp.sin(j)], axis=-1)
        at_key = jnp.broadcast_to(at_key, (*k.shape[:-2], dim))
        position = jnp.einsum("...qhc,...kc->...hqk", at_query, at_key)
        k = repeat_heads(k, num_heads).astype(dtype)
        content = jnp.einsum("hd,...khd->...hk", cast["content_bias"], k)[..., None, :]
        return (position + content) * head_dim**-0.5

    return Encoding(init=init, bias=bias)


def _row_sums(weights: Array, row_indices: Array, rows: int) -> Array:
    """Σ_j w_ij over the keys with the same row of the table, `[..., heads, n_q, rows]`.

    Weights are `[..., heads, n_q, n_k]`, row indices `[..., 1, n_q, n_k]`. A fractional index
    shares its weight between the two rows around it.
    """
    by_key, row_indices = jnp.moveaxis(weights, -3, -1), jnp.squeeze(row_indices, -3)
    if jnp.issubdtype(row_indices.dtype, jnp.integer):
        sums = _scattered_sums(by_key, row_indices, rows)
    else:
        low, high, part = neighbours(row_indices, rows)
        upper = by_key * part.astype(weights.dtype)[..., None]
        sums = _scattered_sums(by_key - upper, low, rows) + _scattered_sums(upper, high, rows)
    return jnp.moveaxis(sums, -1, -3)


def _scattered_sums(values: Array, row_indices: Array, rows: int) -> Array:
    """Σ of the values `[..., n_k, heads]` by row `[..., n_k]`, `[..., rows, heads]`."""

    def add(values, row_indices):
        return jnp.zeros((rows, values.shape[-1]), values.dtype).at[row_indices].add(values)

    axes = range(row_indices.ndim - 1)
    shared = tuple(axis for axis in axes if row_indices.shape[axis] != values.shape[axis])
    # Axis by axis: flattened into one axis, a batch could not stay sharded.
    for axis in reversed(axes):
        add = jax.vmap(add, in_axes=(0, None if axis in shared else 0))
    return add(values, jnp.squeeze(row_indices, shared))
