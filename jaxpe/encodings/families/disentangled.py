"""Learned biases that depend on content or mix heads: DeBERTa, TUPE, DAPE, Inkling."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe._core.arrays import Scalar
from jaxpe.encodings.attention_terms import dot_products
from jaxpe.encodings.base import (
    Encoding,
    Rows,
    align_positions,
    as_positions,
    check_acts_by,
    check_context,
    check_heads,
    check_plain,
    check_sizes,
    compute_dtype,
    expand_rank,
    position_offsets,
    repeat_heads,
    scaled,
)
from jaxpe.encodings.families.bias import geometric_boundaries, interpolate, kerple
from jaxpe.encodings.registry import register
from jaxpe.encodings.tables import check_tables, network_params, normal_params


@register("deberta", source="He et al. (2021)")
def deberta(
    *,
    num_heads: int,
    head_dim: int,
    num_buckets: int = 256,
    max_distance: int | None = 512,
    stddev: Scalar = 0.02,
) -> Encoding:
    """DeBERTa: disentangled attention, content to position and back (He et al. 2021).

    Logits are (q_i·k_j + q_i·K_δ + k_j·Q_δ)/√(3·head_dim), with rows of the tables K and Q by the
    bucket δ of i − j. Distances up to num_buckets/2 have a bucket each, larger ones share buckets
    that widen geometrically up to `max_distance` (DeBERTa v2 and v3); where `max_distance` is None
    every distance below num_buckets has its own (v1). Both signs have buckets, so the encoding is
    bidirectional and also works under a causal mask.

    The paper indexes Q by δ(j, i). DeBERTa's and Hugging Face's code index it by δ(i, j), a
    mirrored table, as this function does. A bias alone cannot divide q·k by √3, so `query` does.
    The other terms keep head_dim^−½ for any `scale` of attention. There are no position vectors.

    Parameters: `key_table` K and `query_table` Q, both `[2·num_buckets, num_heads, head_dim]`, row
    num_buckets for the offset 0, N(0, stddev²) at first. In DeBERTa they are projections of one
    table that all layers share. Fractional offsets have the bucket of the next larger distance.
    Memory `[..., heads, n, 2·num_buckets]` beside the weights.

    Args:
        num_heads: query heads.
        head_dim: width of a head.
        num_buckets: buckets of one sign (`position_buckets`), even and at least 4.
        max_distance: distance from which all share the last bucket (`max_relative_positions`), more
            than num_buckets/2 + 1; None for no geometric buckets.
        stddev: standard deviation of the tables at first.

    >>> encoding = deberta(num_heads=2, head_dim=4)
    >>> q, i = jnp.zeros((3, 2, 4)), jnp.arange(3)
    >>> encoding.bias(encoding.init(jax.random.key(0)), q, q, i, i).shape
    (2, 3, 3)
    """
    check_sizes(num_heads=num_heads, head_dim=head_dim)
    ends = _bucket_ends(num_buckets, max_distance)
    shape = (2 * num_buckets, num_heads, head_dim)
    init = partial(normal_params, key_table=(stddev, shape), query_table=(stddev, shape))

    def query(params, q, positions):
        return scaled(q, 3**-0.5)

    def bias(params, q, k, q_positions, k_positions):
        check_heads(q.shape, num_heads, head_dim)
        check_tables(params, key_table=shape, query_table=shape)
        dtype = compute_dtype(q)
        behind = -position_offsets(q, k, q_positions, k_positions)
        rows = _bucket_rows(behind, ends, num_buckets)
        keys, queries = (params[name].astype(dtype) for name in ("key_table", "query_table"))
        to_position = jnp.einsum("...qhd,rhd->...hqr", q.astype(dtype), keys)
        k = repeat_heads(k, num_heads).astype(dtype)
        to_content = jnp.einsum("...khd,rhd->...hkr", k, queries) * 3**-0.5
        terms = interpolate(to_position, rows) + interpolate(to_content, rows.mT).mT
        return terms * head_dim**-0.5

    return Encoding(init=init, query=query, bias=bias)


@register(
    "dape",
    source="Zheng et al. (2024)",
    make=lambda s: dape(kerple(num_heads=s.num_heads), num_heads=s.num_heads),
)
def dape(encoding: Encoding, *, num_heads: int, hidden: int = 32) -> Encoding:
    """DAPE: a bias corrected by a network that sees the logits (Zheng et al. 2024).

    Logits are A + B + MLP([A; B]), B the bias and A_ij = q_i·k_j/√head_dim: for each pair the
    2·num_heads numbers of all heads pass one hidden layer with LeakyReLU (slope 0.01) to num_heads.
    A keeps head_dim^−½ for any `scale` of attention, and takes queries and keys from the rest of a
    chain: `chain(rope(...), dape(...))`. It is causal or bidirectional as B is; the authors' code
    sets B to 0 for keys after the query, which it masks. There are no position vectors.

    Parameters: `base`, the parameters of B; `weight_in` `[2·num_heads, hidden]`, `bias_in`
    `[hidden]`, `weight_out` `[hidden, num_heads]`, `bias_out` `[num_heads]`, uniform in ±1/√inputs
    at first. Memory n_q·n_k·(hidden + 3·num_heads).

    Args:
        encoding: an encoding that only adds a bias, such as `kerple`, `fire` or `alibi`.
        num_heads: query heads.
        hidden: width of the hidden layer.

    Raises:
        ValueError: an encoding that does more than add a bias, or adds none.

    >>> encoding = dape(jaxpe.encodings.alibi(num_heads=2), num_heads=2)
    >>> q, i = jnp.zeros((3, 2, 4)), jnp.arange(3)
    >>> encoding.bias(encoding.init(jax.random.key(0)), q, q, i, i).shape
    (2, 3, 3)
    """
    check_sizes(num_heads=num_heads, hidden=hidden)
    check_acts_by(encoding, "bias", such_as="alibi(num_heads=8)")

    def init(key):
        keys = jax.random.split(key, 5)
        network = network_params(keys[1:], 2 * num_heads, hidden, num_heads)
        return network | {"base": encoding.init(keys[0])}

    def bias(params, q, k, q_positions, k_positions):
        check_heads(q.shape, num_heads)
        dtype = compute_dtype(q)
        A = dot_products(q, k) * q.shape[-1] ** -0.5
        B = jnp.asarray(encoding.bias(params["base"], q, k, q_positions, k_positions), dtype)
        B = jnp.broadcast_to(expand_rank(B, A.ndim), A.shape)

        def layer(x, weight, shift):
            out = jnp.einsum("...cqk,cu->...uqk", x, params[weight].astype(dtype))
            return out + expand_rank(params[shift][:, None, None], x.ndim, dtype)

        units = layer(jnp.concatenate([A, B], axis=-3), "weight_in", "bias_in")
        return B + layer(jax.nn.leaky_relu(units, 0.01), "weight_out", "bias_out")

    return Encoding(init=init, bias=bias)


@register("inkling", source="Thinking Machines (2026)")
def inkling(
    *,
    num_heads: int,
    dim: int,
    rank: int = 16,
    extent: int = 1024,
    log_floor: int | None = None,
    alpha: Scalar = 0.1,
    stddev: Scalar = 0.02,
) -> Encoding:
    """Inkling: a bias by distance, mixed from learned profiles by each token.

    There is no paper yet. r_i = W x_i, `rank` numbers a head, from the hidden states x that enter
    attention; the bias is (r_i P)[i − j] where 0 ≤ i − j < extent and 0 elsewhere, also for keys
    after the query: it is made for causal attention. It is Hugging Face's `InklingRelativeLogits`
    and x-transformers' `RelativeProjPositionalBias`. Fractional offsets are interpolated, and
    constant beyond the last one.

    With `log_floor` n₀ queries and bias are multiplied by τ_i = 1 + alpha·ln max((i + 1)/n₀, 1), as
    in Inkling's global layers. Inkling scales logits by 1/head_dim after normalising queries and
    keys: pass it as `scale`. There are no position vectors and no induced distances, because the
    bias depends on the tokens.

    Parameters: `projection` W `[dim, num_heads, rank]`, N(0, 1/dim) at first, and `profiles` P
    `[rank, extent]`, N(0, stddev²), which all heads share. A cache keeps r, `[..., n, num_heads,
    rank]`, beside the keys. Memory `[..., heads, n_q, extent]`.

    Args:
        num_heads: query heads.
        dim: width of the hidden states.
        rank: profiles (`d_rel`).
        extent: distances that have a bias (`rel_extent`).
        log_floor: n₀ (`log_scaling_n_floor`), at least 1; no factor when None.
        alpha: strength of that factor (`log_scaling_alpha`).
        stddev: standard deviation of the profiles at first.

    >>> encoding = inkling(num_heads=2, dim=8, extent=4)
    >>> params = encoding.init(jax.random.key(0))
    >>> x, i = jnp.ones((6, 8)), jnp.arange(6)
    >>> r, _ = encoding.context(params, x, i, Rows())
    >>> bias = encoding.bias(params, x.reshape(6, 2, 4), x.reshape(6, 2, 4), i, i, r, r)
    >>> (bias[0, 5] != 0).tolist()
    [False, False, True, True, True, True]
    """
    check_sizes(num_heads=num_heads, dim=dim, rank=rank, extent=extent)
    floor = 1 if log_floor is None else log_floor
    check_sizes(log_floor=floor)
    shapes = {"projection": (dim, num_heads, rank), "profiles": (rank, extent)}

    init = partial(
        normal_params,
        projection=(dim**-0.5, shapes["projection"]),
        profiles=(stddev, shapes["profiles"]),
    )

    def context(params, x, positions, rows: Rows):
        x = jnp.asarray(x)
        check_heads(x.shape, dim=dim)
        check_tables(params, **shapes)
        dtype = compute_dtype(x)
        mixed = jnp.einsum("...nd,dhr->...nhr", x.astype(dtype), params["projection"].astype(dtype))
        return mixed.astype(x.dtype), None

    def growth(positions, dtype) -> Array:
        i = jnp.maximum(as_positions(positions), 0).astype(dtype)
        return 1 + jnp.log(jnp.maximum((i + 1) / floor, 1)) * alpha

    def query(params, q, positions, r):
        tau = growth(align_positions(positions, q.shape, after=2), compute_dtype(q))
        return scaled(q, tau[..., None, None])

    def bias(params, q, k, q_positions, k_positions, r, _):
        check_heads(q.shape, num_heads)
        check_context(r, q, after=2)
        dtype = compute_dtype(q)
        scores = jnp.einsum("...qhr,re->...hqe", r.astype(dtype), params["profiles"].astype(dtype))
        behind = -position_offsets(q, k, q_positions, k_positions)
        term = interpolate(scores, jnp.clip(behind, 0, extent - 1))
        term = jnp.where((behind >= 0) & (behind < extent), term, 0.0)
        if log_floor is None:
            return term
        tau = growth(align_positions(q_positions, q.shape, after=2), dtype)
        return term * tau[..., None, :, None]

    encoding = Encoding(init=init, context=context, bias=bias)
    return encoding if log_floor is None else encoding._replace(query=query)


def _bucket_ends(num_buckets: int, max_distance: int | None) -> np.ndarray:
    """The largest distance of every bucket but the last, from bucket 0 on, in float64 NumPy."""
    check_plain(num_buckets=num_buckets, max_distance=max_distance)
    middle = num_buckets // 2
    if num_buckets < 4 or num_buckets % 2:
        raise ValueError(f"num_buckets is {num_buckets}: pass an even number of at least 4")
    if max_distance is None:
        return np.arange(num_buckets, dtype=np.float64)
    if max_distance <= middle + 1:
        raise ValueError(
            f"max_distance is {max_distance}, but the first {middle} distances have buckets of "
            f"their own: pass at least {middle + 2}, or None"
        )
    wide = geometric_boundaries(middle, max_distance - 1, np.arange(middle) / (middle - 1))
    return np.concatenate([np.arange(middle, dtype=np.float64), wide])


def _bucket_rows(behind: Array, ends: np.ndarray, num_buckets: int) -> Array:
    """Rows of the tables, int32, for offsets i − j; offset 0 has row num_buckets."""
    distance = jnp.abs(behind)
    if jnp.issubdtype(behind.dtype, jnp.integer):
        ends = np.floor(ends)
    bucket = jnp.searchsorted(
        jnp.asarray(ends, behind.dtype), distance, side="left", method="compare_all"
    ).astype(jnp.int32)
    # The last bucket exists only for later keys, because one of the 2·num_buckets rows is offset 0.
    signed = jnp.where(behind < 0, -bucket, jnp.minimum(bucket, num_buckets - 1))
    return signed + num_buckets
