"""Biases of the attention logits that depend on positions alone, and CoPE, on content too."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from jaxpe._core.arrays import ArrayLike, Scalar, is_traced, namespace
from jaxpe.encodings.attention_terms import dot_products
from jaxpe.encodings.base import (
    Encoding,
    align_positions,
    as_positions,
    check_choice,
    check_heads,
    check_plain,
    check_positive,
    check_sizes,
    compute_dtype,
    expand_rank,
    neighbours,
    position_offsets,
    vector_dtype,
)
from jaxpe.encodings.context import sums_to_the_end
from jaxpe.encodings.families.absolute import Positions
from jaxpe.encodings.registry import register
from jaxpe.encodings.tables import check_tables, network_params, take


def alibi_slopes(num_heads: int) -> Float[np.ndarray, " heads"]:
    """Slopes of ALiBi, one a head, positive; head 1 is the steepest (Press et al. 2022).

    2^(−8h/H) for a power of two H. Otherwise the slopes for the largest power of two below H, then
    every other slope of twice that number, as published.

    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    check_sizes(num_heads=num_heads)
    power = 2 ** (num_heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 / power * np.arange(1, power + 1))
    between = 2.0 ** (-4.0 / power * np.arange(1, 2 * power + 1, 2))
    return np.concatenate([slopes, between[: num_heads - power]])


def alibi_line(positions: Positions, *, slope: Scalar = 1.0) -> Float[Array, "*batch n 1"]:
    """ALiBi as points p_i = m·i on a line, whose distances m|i − j| are its biases, negated.

    ALiBi has no position vectors; its stress depends on the slope m. The best slope for given
    distances is the scale of `scaled_stress(alibi_line(positions), D)`.

    Args:
        positions: `[..., n]`.
        slope: m, the slope of one head.

    >>> alibi_line(jnp.arange(3), slope=0.5).tolist()
    [[0.0], [0.5], [1.0]]
    """
    dtype = vector_dtype(positions)
    return (as_positions(positions).astype(dtype) * jnp.asarray(slope, dtype))[..., None]


@register("alibi", source="Press et al. (2022)", vectors="a line")
def alibi(
    *,
    num_heads: int,
    slopes: float | Float[ArrayLike, ""] | Float[ArrayLike, " heads"] | None = None,
    learnable: bool = False,
    causal: bool = False,
) -> Encoding:
    """ALiBi: the bias −m_h|i − j|, linear in the distance (Press et al. 2022).

    Symmetric, as encoders need it. `vectors` are the points (m_1 i, ..., m_H i), `[..., n, heads]`,
    at distances ‖m‖·|i − j|; with one head they are `alibi_line`.

    Args:
        num_heads: query heads.
        slopes: m, one number or one a head, not negative; `alibi_slopes` when None. To extrapolate
            from the length L, `slopes=c / L` keeps the largest bias of training at a small c.
        learnable: whether the slopes are parameters, as `log_slopes`, so that they stay positive.
        causal: −m(i − j), linear. It equals −m|i − j| below the diagonal and is positive above, so
            it needs a causal mask. Then it differs from m·j by a constant a query, which softmax
            ignores.

    >>> q, i = jnp.zeros((3, 1, 2)), jnp.arange(3)
    >>> alibi(num_heads=1, slopes=0.5).bias((), q, q, i, i)[0, 2].tolist()
    [-1.0, -0.5, 0.0]
    """
    check_sizes(num_heads=num_heads)
    slopes = alibi_slopes(num_heads) if slopes is None else slopes
    if not is_traced(slopes):
        slopes = np.broadcast_to(np.asarray(slopes, np.float64), (num_heads,))
        if not (slopes > 0 if learnable else slopes >= 0).all():
            raise ValueError(
                f"slopes must be {'positive to be learned' if learnable else 'at least 0'}, not "
                f"{slopes.tolist()}; the bias is minus the slope times the distance"
            )

    def init(key):
        log_slopes = jnp.log(jnp.asarray(slopes, jnp.result_type(float)))
        return {"log_slopes": jnp.broadcast_to(log_slopes, (num_heads,))}

    def current(params, dtype):
        m = jnp.exp(params["log_slopes"].astype(dtype)) if learnable else slopes
        return jnp.broadcast_to(jnp.asarray(m, dtype), (num_heads,))

    def bias(params, q, k, q_positions, k_positions):
        check_heads(q.shape, num_heads)
        offsets = position_offsets(q, k, q_positions, k_positions)
        closeness = (offsets if causal else -jnp.abs(offsets)).astype(compute_dtype(q))
        m = current(params, closeness.dtype).reshape(-1, 1, 1)
        return expand_rank(m, q.ndim) * closeness

    def vectors(params, positions):
        points = as_positions(positions).astype(vector_dtype(positions))[..., None]
        return points * expand_rank(current(params, points.dtype), points.ndim)

    fixed = Encoding(bias=bias, vectors=vectors)
    return fixed._replace(init=init) if learnable else fixed


def t5_buckets(
    offsets: Int[ArrayLike, "..."] | Float[ArrayLike, "..."],
    *,
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> Int[Array, "..."]:
    """Buckets of T5 for offsets j − i of the key from the query (Raffel et al. 2020), int32.

    Distances below E = half of the buckets have one each; the others widen geometrically: number
    E + b of B begins at E·(max_distance/E)^(b/(B − E)). If bidirectional, the second half of the
    buckets is for keys after the query; otherwise such keys count as distance 0.

    Boundaries are computed in float64 at trace time and compared with offsets, so that no logarithm
    is rounded across a boundary. Fractional offsets are allowed: |j − i| < 1 is distance 0.

    >>> t5_buckets(jnp.array([-500, -20, -3, 0, 3, 20, 500])).tolist()
    [15, 10, 3, 0, 19, 26, 31]
    """
    starts = _bucket_starts(num_buckets, max_distance, bidirectional)
    offsets = as_positions(offsets)
    distance = jnp.abs(offsets) if bidirectional else jnp.maximum(-offsets, 0)
    if jnp.issubdtype(offsets.dtype, jnp.integer):
        starts = np.ceil(starts)
    starts = jnp.asarray(starts, offsets.dtype)
    buckets = jnp.searchsorted(starts, distance, side="right", method="compare_all")
    # Not offsets > 0: in T5 the first bucket of the second half is unused.
    second_half = (offsets >= 1) & bidirectional
    return buckets.astype(jnp.int32) + second_half.astype(jnp.int32) * (num_buckets // 2)


@register("t5", source="Raffel et al. (2020)")
def t5(
    *,
    num_heads: int,
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
    stddev: Scalar = 0.02,
) -> Encoding:
    """T5 bias: a learned number for each head and bucket of offsets (Raffel et al. 2020).

    Parameters: `table` `[num_buckets, num_heads]`, N(0, stddev²) at first; T5 itself has
    stddev = 1/√d_model. T5 does not scale its logits: use a table of its checkpoints with
    `attend(..., scale=1.0)`.

    Args:
        num_heads: query heads.
        num_buckets, max_distance: arguments of `t5_buckets`; distances from max_distance on share
            the last bucket.
        bidirectional: whether keys after the query have buckets; False for decoders.
        stddev: standard deviation of the table at first.

    >>> q, i = jnp.zeros((3, 2, 4)), jnp.arange(3)
    >>> t5(num_heads=2).bias({"table": jnp.ones((32, 2))}, q, q, i, i).shape
    (2, 3, 3)
    """
    check_sizes(num_heads=num_heads)
    _bucket_starts(num_buckets, max_distance, bidirectional)

    def init(key):
        shape = (num_buckets, num_heads)
        return {"table": stddev * jax.random.normal(key, shape, jnp.result_type(float))}

    def bias(params, q, k, q_positions, k_positions):
        check_heads(q.shape, num_heads)
        check_tables(params, table=(num_buckets, num_heads))
        buckets = t5_buckets(
            position_offsets(q, k, q_positions, k_positions),
            num_buckets=num_buckets,
            max_distance=max_distance,
            bidirectional=bidirectional,
        )
        table = params["table"].astype(compute_dtype(q))
        return jnp.moveaxis(take(table, jnp.squeeze(buckets, -3)), -1, -3)

    return Encoding(init=init, bias=bias)


@register(
    "kerple_power",
    description="KERPLE: the learned bias −r₁|i − j|^r₂ (Chi et al. 2022)",
    source="Chi et al. (2022)",
    make=lambda s: kerple(num_heads=s.num_heads, kind="power"),
)
@register("kerple_log", source="Chi et al. (2022)")
def kerple(*, num_heads: int, kind: Literal["log", "power"] = "log") -> Encoding:
    """KERPLE: the learned bias −r₁·log(1 + r₂|i − j|) or −r₁|i − j|^r₂ (Chi et al. 2022).

    Parameters: `log_r1` `[heads]` and, for "log", `log_r2`, so that both r stay positive; for
    "power" `logit_r2` with r₂ = 2σ(logit_r2) in (0, 2), where the kernel is conditionally positive
    definite. Initial r are uniform as in the authors' code, from a hundredth of their largest
    value: 2 for r₁ and 1 for r₂ with "log", 1 for r₁ and 2 for r₂ with "power".

    Args:
        num_heads: query heads.
        kind: "log" or "power": the first or the second form of the bias.

    >>> q, i = jnp.zeros((3, 1, 2)), jnp.arange(3)
    >>> params = {"log_r1": jnp.zeros(1), "logit_r2": jnp.zeros(1)}
    >>> kerple(num_heads=1, kind="power").bias(params, q, q, i, i)[0, 2].tolist()
    [-2.0, -1.0, -0.0]
    """
    check_sizes(num_heads=num_heads)
    check_choice("kind", kind, ("log", "power"))

    def init(key):
        dtype = jnp.result_type(float)
        r1, r2 = jax.random.uniform(key, (2, num_heads), dtype, minval=0.01)
        if kind == "log":
            return {"log_r1": jnp.log(2.0 * r1), "log_r2": jnp.log(r2)}
        return {"log_r1": jnp.log(r1), "logit_r2": jnp.log(r2) - jnp.log1p(-r2)}

    def bias(params, q, k, q_positions, k_positions):
        check_heads(q.shape, num_heads)
        dtype = compute_dtype(q)
        distance = jnp.abs(position_offsets(q, k, q_positions, k_positions)).astype(dtype)

        def by_head(name):
            return expand_rank(params[name].reshape(-1, 1, 1), q.ndim, dtype)

        r1 = jnp.exp(by_head("log_r1"))
        if kind == "log":
            return -r1 * jnp.log1p(jnp.exp(by_head("log_r2")) * distance)
        # At distance 0 the power is 0 for every exponent, but its derivatives there are 0·∞.
        apart = distance > 0
        r2 = 2.0 * jax.nn.sigmoid(by_head("logit_r2"))
        return -r1 * jnp.where(apart, jnp.where(apart, distance, 1.0) ** r2, 0.0)

    return Encoding(init=init, bias=bias)


@register("fire", source="Li et al. (2024)")
def fire(
    *, num_heads: int, hidden: int = 32, threshold: Scalar = 512.0, c: Scalar = 0.1
) -> Encoding:
    """FIRE: the learned bias f(ψ(i − j)/ψ(max(L, i))), ψ(x) = log(cx + 1) (Li et al. 2024).

    f is a network with one hidden ReLU layer and a number for each head. The normaliser is the
    query position, so the bias depends on i too and packed documents count from 0. The paper has j
    ≤ i; for j > i this takes the distance |i − j|. Where i < L, also for negative i, the normaliser
    is L.

    Parameters: `log_c` and `log_threshold` (c and L stay positive), `weight_in` and `bias_in`
    `[hidden]`, `weight_out` `[hidden, heads]`, `bias_out` `[heads]`; the network starts uniform in
    ±1/√inputs. The hidden layer takes n_q·n_k·hidden numbers.

    Args:
        num_heads: query heads.
        hidden: width of the hidden layer.
        threshold: L at first, in positions; positive.
        c: c at first; positive.

    >>> encoding = fire(num_heads=2)
    >>> q, i = jnp.zeros((3, 2, 4)), jnp.arange(3)
    >>> encoding.bias(encoding.init(jax.random.key(0)), q, q, i, i).shape
    (2, 3, 3)
    """
    check_sizes(num_heads=num_heads, hidden=hidden)
    check_positive(threshold=threshold, c=c)

    def init(key):
        dtype = jnp.result_type(float)
        network = network_params(jax.random.split(key, 4), 1, hidden, num_heads)
        logs = {"log_c": namespace(c).log(c), "log_threshold": namespace(threshold).log(threshold)}
        network["weight_in"] = network["weight_in"][0]  # of one input
        return network | {name: jnp.asarray(value, dtype) for name, value in logs.items()}

    def bias(params, q, k, q_positions, k_positions):
        check_heads(q.shape, num_heads)
        dtype = compute_dtype(q)
        cast = {name: value.astype(dtype) for name, value in params.items()}
        distance = jnp.abs(position_offsets(q, k, q_positions, k_positions)).astype(dtype)
        i = align_positions(q_positions, q.shape, after=2).astype(dtype)[..., None, :, None]
        c, threshold = jnp.exp(cast["log_c"]), jnp.exp(cast["log_threshold"])
        # Prevents 0/0 if c·L underflows, and an overflow of the derivative, which divides by its
        # square.
        least = float(jnp.finfo(dtype).tiny) ** (1 / 3)
        normaliser = jnp.maximum(jnp.log1p(c * jnp.maximum(threshold, i)), least)
        x = jnp.squeeze(jnp.log1p(c * distance) / normaliser, -3)[..., None]
        weight, shift = (expand_rank(cast[name], x.ndim) for name in ("weight_in", "bias_in"))
        out = jnp.einsum("...u,uh->...h", jax.nn.relu(x * weight + shift), cast["weight_out"])
        return jnp.moveaxis(out, -1, -3) + expand_rank(cast["bias_out"].reshape(-1, 1, 1), q.ndim)

    return Encoding(init=init, bias=bias)


@register(
    "cope",
    source="Golovneva et al. (2024)",
    make=lambda s: cope(head_dim=s.head_dim, max_positions=64),
)
def cope(*, head_dim: int, max_positions: int, stddev: Scalar = 0.0) -> Encoding:
    """CoPE: positions counted by gates that depend on content (Golovneva et al. 2024).

    Gates g_im = σ(q_i·k_m/√head_dim) are the amounts that keys m count; p_ij = Σ_{m=j..i} g_im, at
    most max_positions − 1, is the distance from i back to j, and the bias is q_i·e[p_ij], linear
    between the whole numbers.

    Keys count in the order of the array, from j on, if their position is at most the query's;
    entries with k_position > q_position are 0. So keys must be in order, and padding belongs on the
    left. Unused slots of a cache need positions beyond every query's, such as the length of the
    cache (near 2³¹ the offset from a negative position would overflow). The hook has no mask:
    documents packed into one row would count each other's tokens, so give each its own row. Gates
    keep head_dim^−½ for any `scale` of attention, as published.

    Parameters: `table` e `[max_positions, head_dim]`, shared by the heads, N(0, stddev²) at first.
    Memory: a few arrays `[..., heads, n_q, n_k]`, and `[..., heads, n_q, max_positions]`.

    Args:
        head_dim: width of a head.
        max_positions: rows of the table, for distances from 0 to max_positions − 1.
        stddev: standard deviation of the table at first; 0 gives the authors' initial values.

    >>> q, i = jnp.zeros((3, 1, 1)), jnp.arange(3)  # every gate is 1/2
    >>> params = {"table": jnp.array([[0.0], [1.0], [2.0]])}
    >>> cope(head_dim=1, max_positions=3).bias(params, q + 1, 0 * q, i, i)[0].tolist()
    [[0.5, 0.0, 0.0], [1.0, 0.5, 0.0], [1.5, 1.0, 0.5]]
    """
    check_sizes(head_dim=head_dim, max_positions=max_positions)

    def init(key):
        shape = (max_positions, head_dim)
        return {"table": stddev * jax.random.normal(key, shape, jnp.result_type(float))}

    def bias(params, q, k, q_positions, k_positions):
        check_heads(q.shape, head_dim=head_dim)
        check_tables(params, table=(max_positions, head_dim))
        past = position_offsets(q, k, q_positions, k_positions) <= 0
        gates = jnp.where(past, jax.nn.sigmoid(dot_products(q, k) * head_dim**-0.5), 0.0)
        count = sums_to_the_end(gates)
        dtype = compute_dtype(q)
        table = params["table"].astype(dtype)
        scores = jnp.einsum("...qhd,pd->...hqp", q.astype(dtype), table)
        return jnp.where(past, interpolate(scores, count), 0.0)

    return Encoding(init=init, bias=bias, whole_rows=True)


def interpolate(scores: Array, indices: Array) -> Array:
    """Entries of `scores` `[..., p]` at `indices` `[..., n]` in [0, p − 1], linearly interpolated.

    At whole indices no interpolation is computed.
    """
    if jnp.issubdtype(indices.dtype, jnp.integer):
        return jnp.take_along_axis(scores, indices, axis=-1)
    low, high, part = neighbours(indices, scores.shape[-1])
    below = jnp.take_along_axis(scores, low, axis=-1)
    above = jnp.take_along_axis(scores, high, axis=-1)
    return below + part.astype(scores.dtype) * (above - below)


def _bucket_starts(num_buckets: int, max_distance: int, bidirectional: bool) -> np.ndarray:
    """The smallest distance of every bucket but the first, in float64 NumPy."""
    check_plain(num_buckets=num_buckets, max_distance=max_distance)
    if num_buckets < (4 if bidirectional else 2) or (bidirectional and num_buckets % 2):
        raise ValueError(
            f"num_buckets is {num_buckets}: pass an even number from 4 if bidirectional, at least "
            "2 otherwise"
        )
    share = num_buckets // 2 if bidirectional else num_buckets
    exact = share // 2
    if max_distance <= exact:
        raise ValueError(
            f"max_distance is {max_distance}, but the first {exact} distances have buckets of "
            f"their own: pass at least {exact + 1}"
        )
    wide = share - exact
    starts = geometric_boundaries(exact, max_distance, np.arange(wide) / wide)
    return np.concatenate([np.arange(1.0, exact), starts])


def geometric_boundaries(first: int, last: int, part: np.ndarray) -> np.ndarray:
    """Distances first·(last/first)^part between buckets that widen geometrically.

    A power that is an integer in exact arithmetic stays an integer, so it falls on the right side
    of the boundary.
    """
    bounds = first * (last / first) ** part
    rounded = np.round(bounds)
    return np.where(np.abs(bounds - rounded) < 1e-9 * bounds, rounded, bounds)
