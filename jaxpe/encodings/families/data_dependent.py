"""Encodings that depend on the hidden states: gates, paths of reflections, chosen frequencies."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpe._core.arrays import ArrayLike, Scalar
from jaxpe.encodings.base import (
    Encoding,
    Params,
    check_context,
    check_even,
    check_heads,
    check_sizes,
    compute_dtype,
    expand_rank,
    position_offsets,
    repeat_heads,
)
from jaxpe.encodings.context import causal_convolution, running_sum
from jaxpe.encodings.families.bias import alibi_slopes
from jaxpe.encodings.registry import register
from jaxpe.encodings.rotation import rotate
from jaxpe.encodings.tables import check_tables, normal_params


@register("fox", source="Lin et al. (2025)")
def fox(*, dim: int, num_heads: int, gate_bias: Scalar = 0.0, stddev: Scalar = 0.02) -> Encoding:
    """Forgetting Transformer: the bias Σ log f_l over the tokens between (Lin et al. 2025).

    f_l = σ(W x_l + b), one gate a head, from the hidden state that enters attention. With c_i =
    Σ_{l ≤ i} log f_l the published bias of key j ≤ i is c_i − c_j. This one is −|c_i − c_j|, which
    is equal below the diagonal and lets an encoder forget in both directions. A constant gate f
    gives ALiBi of slope −log f. Sums are float32 or wider.

    Parameters: `kernel` W `[dim, heads]`, N(0, stddev²), and `bias` b `[heads]`.

    Args:
        dim: width of the hidden states.
        num_heads: query heads.
        gate_bias: b at first; large values forget little.
        stddev: standard deviation of W at first.

    >>> encoding = fox(dim=4, num_heads=2)
    >>> x, q, i = jnp.zeros((3, 4)), jnp.zeros((3, 2, 4)), jnp.arange(3)
    >>> params = encoding.init(jax.random.key(0))
    >>> c, _ = encoding.context(params, x, i, Rows())
    >>> np.asarray(encoding.bias(params, q, q, i, i, c, c)[0, 2]).round(3).tolist()
    [-1.386, -0.693, -0.0]
    """
    return _gated(dim, num_heads, gate_bias, stddev, sign=1)


@register("cable", source="Veisi et al. (2025)")
def cable(*, dim: int, num_heads: int, gate_bias: Scalar = 0.0, stddev: Scalar = 0.02) -> Encoding:
    """CABLE: the bias −Σ softplus(W x_l + b) over the tokens between (Veisi et al. 2025).

    It is `fox` with W and b negated, because log σ(z) = −softplus(−z). The official code does not
    divide it by √head_dim. Parameters are as in `fox`.

    Args:
        dim, num_heads, stddev: arguments of `fox`.
        gate_bias: b at first; large values forget much.

    >>> cable(dim=4, num_heads=2).defines("context")
    True
    """
    return _gated(dim, num_heads, gate_bias, stddev, sign=-1)


def _gated(dim: int, num_heads: int, gate_bias: Scalar, stddev: Scalar, *, sign: int) -> Encoding:
    """Biases −|c_i − c_j|, c the running sum of log σ(sign·(W x + b))."""
    check_sizes(dim=dim, num_heads=num_heads)

    def init(key):
        dtype = jnp.result_type(float)
        kernel = stddev * jax.random.normal(key, (dim, num_heads), dtype)
        return {"kernel": kernel, "bias": jnp.full(num_heads, gate_bias, dtype)}

    def context(params, x, positions, rows):
        z = sign * _affine_gates(params, x, dim, num_heads)
        return running_sum(jax.nn.log_sigmoid(z), rows)

    def bias(params, q, k, q_positions, k_positions, q_sums, k_sums):
        check_heads(q.shape, num_heads)
        check_context(q_sums, q)
        check_context(k_sums, k)
        i, j = (jnp.swapaxes(sums, -1, -2) for sums in (q_sums, k_sums))
        return -jnp.abs(i[..., :, None] - j[..., None, :])

    return Encoding(init=init, context=context, bias=bias)


@register("grape_a", source="Zhang et al. (2025)")
def grape_additive(*, num_heads: int, head_dim: int, stddev: Scalar = 0.02) -> Encoding:
    """GRAPE-A: ALiBi with slopes that keys choose (Zhang et al. 2025).

    The bias is −|i − j|·slope_h·softplus(ω_h)·softplus(u_h·k_j/√d). It depends on keys, not on
    hidden states. The published form has i − j under a causal mask. The authors' module differs by
    default: it divides u by its norm, and starts at softplus(ω) = 1.

    Parameters: `rate` ω `[heads]`, 0 at first, and `gate` u `[heads, head_dim]`, N(0, stddev²).

    Args:
        num_heads: query heads.
        head_dim: width of a head, d.
        stddev: standard deviation of u at first.

    >>> encoding = grape_additive(num_heads=1, head_dim=2)
    >>> q, i = jnp.zeros((3, 1, 2)), jnp.arange(3)
    >>> params = {"rate": jnp.zeros(1), "gate": jnp.zeros((1, 2))}
    >>> (np.asarray(encoding.bias(params, q, q, i, i)[0, 2]) * 2**8).round(3).tolist()
    [-0.961, -0.48, -0.0]
    """
    check_sizes(num_heads=num_heads, head_dim=head_dim)

    def init(key):
        dtype = jnp.result_type(float)
        gate = stddev * jax.random.normal(key, (num_heads, head_dim), dtype)
        return {"rate": jnp.zeros(num_heads, dtype), "gate": gate}

    def bias(params, q, k, q_positions, k_positions):
        check_heads(q.shape, num_heads, head_dim)
        dtype = compute_dtype(q)
        keys = repeat_heads(k, num_heads).astype(dtype)
        gate = jnp.einsum("...khd,hd->...hk", keys, params["gate"].astype(dtype))
        slopes = jnp.asarray(alibi_slopes(num_heads), dtype)
        rate = jax.nn.softplus(params["rate"].astype(dtype)) * slopes
        size = jax.nn.softplus(gate * head_dim**-0.5) * expand_rank(rate[:, None], gate.ndim)
        offsets = jnp.abs(position_offsets(q, k, q_positions, k_positions)).astype(dtype)
        return -offsets * size[..., None, :]

    return Encoding(init=init, bias=bias)


@register("path", source="Yang et al. (2025)")
def path_attention(
    *,
    dim: int,
    num_heads: int,
    head_dim: int,
    rank: int = 32,
    conv_width: int = 3,
    chunk: int = 64,
    stddev: Scalar = 0.02,
) -> Encoding:
    """PaTH: products of Householder-like matrices along the tokens (Yang et al. 2025).

    Products are q_iᵀ H_i H_{i−1} ⋯ H_{j+1} k_j. H_l = I − β_l w_l w_lᵀ with β_l = 2σ(W_β x_l + b)
    and w_l = SiLU(conv(U V x_l)), normalised: Householder-like matrices, one a token and head. A
    key after its query has the plain product q·k, so it is meant for causal attention. β = 0 is
    attention without positions.

    Keys are processed `chunk` at a time. With T = (I + strict lower part of B W Wᵀ)⁻¹ B, the
    product of the H_l of a chunk is I − Wᵀ T W. So time is n²·head_dim instead of n² matrix
    products. The order is the order of the tokens in the row, from the context.

    Parameters: `down` V `[dim, rank]`, `up` U `[rank, heads, head_dim]`, `conv` `[conv_width,
    heads, head_dim]`, `kernel` W_β `[dim, heads]`, `bias` b `[heads]`.

    Args:
        dim: width of the hidden states.
        num_heads: query heads; each has its own reflections.
        head_dim: width of a head.
        rank: width between the two projections of w.
        conv_width: tokens that the convolution sees.
        chunk: keys processed at once; only time and memory depend on it.
        stddev: standard deviation of `kernel` at first; projections keep the variance.

    >>> encoding = path_attention(dim=4, num_heads=2, head_dim=4)
    >>> x, q, i = jnp.ones((3, 4)), jnp.ones((3, 2, 4)), jnp.arange(3)
    >>> params = encoding.init(jax.random.key(0))
    >>> c, _ = encoding.context(params, x, i, Rows())
    >>> still = c | {"beta": jnp.zeros((3, 2))}
    >>> encoding.products(params, q, q, i, i, still, still)[0, 2].tolist()
    [4.0, 4.0, 4.0]
    """
    check_sizes(
        dim=dim, num_heads=num_heads, head_dim=head_dim, rank=rank, conv_width=conv_width,
        chunk=chunk,
    )  # fmt: skip
    heads = (num_heads, head_dim)

    def init(key):
        params = normal_params(
            key,
            down=(dim**-0.5, (dim, rank)),
            up=(rank**-0.5, (rank, *heads)),
            conv=(conv_width**-0.5, (conv_width, *heads)),
            kernel=(stddev, (dim, num_heads)),
        )
        return params | {"bias": jnp.zeros(num_heads, jnp.result_type(float))}

    def context(params, x, positions, rows):
        x = jnp.asarray(x)
        beta = 2 * jax.nn.sigmoid(_affine_gates(params, x, dim, num_heads))
        dtype = beta.dtype
        narrow = jnp.einsum("...d,dr->...r", x.astype(dtype), params["down"].astype(dtype))
        wide = jnp.einsum("...r,rhe->...he", narrow, params["up"].astype(dtype))
        conv, carry = causal_convolution(wide, params["conv"].astype(dtype), rows.part(0), after=2)
        w = jax.nn.silu(conv)
        w = w * lax.rsqrt(jnp.sum(w**2, axis=-1, keepdims=True) + 1e-6)
        # Indices in the whole row: masks separate segments, the path only needs the order.
        one = jnp.ones(beta.shape[:-1], dtype)
        index, last = running_sum(one, rows.part(1)._replace(starts=None), after=0)
        if rows.valid is not None:
            beta = jnp.where(jnp.asarray(rows.valid)[..., None], beta, 0)
        return {"w": w, "beta": beta, "index": index}, (carry, last)

    def products(params, q, k, q_positions, k_positions, q_context, k_context):
        check_heads(q.shape, num_heads, head_dim)
        check_context(q_context["w"], q, after=2)
        check_context(k_context["w"], k, after=2)
        k = repeat_heads(k, num_heads)
        return path_products(q, k, q_context, k_context, chunk=chunk)

    return Encoding(init=init, context=context, products=products, whole_rows=True)


def path_products(
    q: ArrayLike,
    k: ArrayLike,
    q_context: dict[str, ArrayLike],
    k_context: dict[str, ArrayLike],
    *,
    chunk: int = 64,
) -> Array:
    """Products q_iᵀ H_i ⋯ H_{j+1} k_j of `path_attention`, `[..., heads, n_q, n_k]`.

    Args:
        q, k: `[..., n, heads, head_dim]`, of as many heads.
        q_context, k_context: contexts of `path_attention`: `w` `[..., n, heads, head_dim]`, `beta`
            `[..., n, heads]` and `index` `[..., n]`, the index of each token in its row.
        chunk: keys processed at once; all of them is the naive form.

    >>> ones = jnp.ones((2, 1, 1))
    >>> context = {"w": ones, "beta": jnp.full((2, 1), 0.5), "index": jnp.arange(2.0)}
    >>> path_products(ones, ones, context, context)[0].tolist()
    [[1.0, 1.0], [0.5, 1.0]]
    """
    q, k = jnp.asarray(q), jnp.asarray(k)
    dtype, n = compute_dtype(q), k.shape[-3]
    chunk = max(1, min(chunk, n))
    count = -(-n // chunk)

    def by_chunk(a: ArrayLike, axis: int) -> Array:
        """Chunks `[chunks, ..., chunk, *]`, padded with zeros, for which H is the identity."""
        a = jnp.asarray(a, dtype)
        widths = [(0, 0)] * a.ndim
        widths[axis] = (0, count * chunk - n)
        a = jnp.pad(a, widths)
        a = a.reshape(*a.shape[:axis], count, chunk, *a.shape[axis + 1 :])
        return jnp.moveaxis(a, axis, 0)

    at = k.ndim - 3
    along_keys = (k, *(k_context[name] for name in ("w", "beta", "index")))
    pieces = tuple(by_chunk(a, at) for a in along_keys)
    query_index = jnp.asarray(q_context["index"], dtype)[..., None, :, None]
    strict = jnp.tri(chunk, k=-1, dtype=dtype)

    # At full precision: in TF32, the default on GPUs, the factors of a long path would lose their
    # orthogonality.
    def step(turned: Array, piece: tuple[Array, ...]) -> tuple[Array, Array]:
        keys, w, beta, index = piece
        w, keys = (jnp.moveaxis(a, -2, -3) for a in (w, keys))  # [..., heads, chunk, d]
        beta = jnp.swapaxes(beta, -1, -2)[..., :, None]
        gram = jnp.einsum("...ad,...bd->...ab", w, w, precision="highest")
        unit = expand_rank(jnp.eye(chunk, dtype=dtype), gram.ndim)
        lower = unit + beta * gram * expand_rank(strict, gram.ndim)
        overlaps = jnp.einsum("...qd,...ad->...qa", turned, w, precision="highest")
        overlaps = jnp.where(index[..., None, None, :] <= query_index, overlaps, 0)
        # overlaps·T with T = lower⁻¹ B.
        solved = jnp.matmul(overlaps, inverse_of_unit_lower(lower), precision="highest")
        mixed = solved * jnp.swapaxes(beta, -1, -2)
        across = jnp.einsum("...bd,...kd->...bk", w, keys, precision="highest")
        plain = jnp.einsum("...qd,...kd->...qk", turned, keys, precision="highest")
        block = plain - mixed @ (across * expand_rank(strict, across.ndim))
        return turned - mixed @ w, block

    start = jnp.moveaxis(q.astype(dtype), -2, -3)
    _, blocks = lax.scan(step, start, pieces, reverse=True)
    blocks = jnp.moveaxis(blocks, 0, -2)  # [..., heads, n_q, chunks, chunk]
    return blocks.reshape(*blocks.shape[:-2], count * chunk)[..., :n]


def inverse_of_unit_lower(lower: Array) -> Array:
    """The inverse of lower triangular matrices `[..., n, n]` with a diagonal of ones.

    By halves, from single entries up: [[A, 0], [C, B]]⁻¹ = [[A⁻¹, 0], [−B⁻¹ C A⁻¹, B⁻¹]], all
    blocks of a size at once. It uses products alone: a triangular solver calls LAPACK on CPUs,
    whose threads wait for one another, and is slow on accelerators for such small matrices.

    >>> inverse_of_unit_lower(jnp.asarray([[1.0, 0.0], [0.5, 1.0]])).tolist()
    [[1.0, 0.0], [-0.5, 1.0]]
    """
    n = lower.shape[-1]
    size, lead = 1 << (n - 1).bit_length(), lower.shape[:-2]
    missing = size - n
    padded = jnp.pad(lower, [(0, 0)] * len(lead) + [(0, missing)] * 2)
    product = partial(jnp.matmul, precision="highest")
    inverse, half = jnp.ones((*lead, size, 1, 1), lower.dtype), 1
    while half < size:
        count = size // (2 * half)
        below = padded.reshape(*lead, count, 2, half, count, 2, half)[..., 1, :, :, 0, :]
        below = jnp.einsum("...iaib->...iab", below)
        A, B = inverse[..., ::2, :, :], inverse[..., 1::2, :, :]
        corner = -product(B, product(below, A))
        upper = jnp.concatenate([A, jnp.zeros_like(A)], axis=-1)
        inverse = jnp.concatenate([upper, jnp.concatenate([corner, B], axis=-1)], axis=-2)
        half *= 2
    return inverse[..., 0, :n, :n]


@register("selective_rope", source="Movahedi et al. (2025)")
def selective_rope(
    *, dim: int, num_heads: int, head_dim: int, base: Scalar = 500_000.0, conv_width: int = 4
) -> Encoding:
    """Selective RoPE: rotations by angles that tokens choose (Movahedi et al. 2025).

    Angles are τ_k·Σ_{l ≤ i} conv(W x_l/‖x_l‖). Pair k of head h turns by τ_k times the running sum
    of its own channel, τ_k = base^(−2k/head_dim). Steps of 1 everywhere are RoPE. Pairs are (k, k +
    head_dim/2). It works for encoders and decoders: logits depend on the difference of two running
    sums.

    The authors' module differs by default. It normalises x in slices, one a head; it has a gate;
    its W has rank 16.

    Parameters: `projection` W `[dim, heads, head_dim/2]`, `conv` `[conv_width, heads,
    head_dim/2]`.

    Args:
        dim: width of the hidden states.
        num_heads: key heads; query heads that share a key turn alike.
        head_dim: width of a head, even.
        base: θ of τ.
        conv_width: tokens that the convolution sees.

    >>> encoding = selective_rope(dim=4, num_heads=1, head_dim=2)
    >>> params = encoding.init(jax.random.key(0))
    >>> c, _ = encoding.context(params, jnp.ones((3, 4)), jnp.arange(3), Rows())
    >>> c.shape
    (3, 1, 1)
    """
    check_sizes(dim=dim, num_heads=num_heads, conv_width=conv_width)
    check_even(head_dim=head_dim)
    half = head_dim // 2
    shapes = {"projection": (dim, num_heads, half), "conv": (conv_width, num_heads, half)}

    init = partial(
        normal_params,
        projection=(1.0, shapes["projection"]),
        conv=(conv_width**-0.5, shapes["conv"]),
    )

    def context(params, x, positions, rows):
        x = jnp.asarray(x)
        check_tables(params, **shapes)
        check_heads(x.shape, dim=dim)
        wide = x.astype(compute_dtype(x))
        unit = wide * lax.rsqrt(jnp.sum(wide**2, axis=-1, keepdims=True) + 1e-12)
        projection, kernel = (params[name].astype(wide.dtype) for name in shapes)
        steps = jnp.einsum("...d,dhe->...he", unit, projection)
        steps, window = causal_convolution(steps, kernel, rows.part(0), after=2)
        sums, last = running_sum(steps, rows.part(1), after=2)
        return sums, (window, last)

    return _summed_rotation(init, context, head_dim, base ** (-2 * np.arange(half) / head_dim))


@register("carope", source="Veisi et al. (2025)")
def carope(*, dim: int, num_heads: int, head_dim: int, stddev: Scalar = 0.02) -> Encoding:
    """CARoPE: RoPE whose base frequency each token chooses for each head (Veisi et al. 2025).

    RoPE turns pair k at position i by Σ_{l ≤ i} θ^k, with θ = base^(−2/d). Here θ is f_l = 1/(1 +
    softplus(W x_l)), one a head, in (0, 1), from the hidden state that enters attention: the angle
    is Σ_{l ≤ i} f_l^k, k = 0, ..., d/2 − 1. A constant f is RoPE; pair 0 counts the tokens. Pairs
    are (k, k + d/2). Logits depend on the difference of two running sums.

    The paper starts at RoPE and does not say how; its f has no constant. With W near 0, as here, f
    starts near 1/(1 + log 2), RoPE of base 0.59^(−d/2).

    Parameters: `kernel` W `[dim, heads]`, N(0, stddev²).

    Args:
        dim: width of the hidden states.
        num_heads: key heads; query heads that share a key turn alike.
        head_dim: width of a head, d, even.
        stddev: standard deviation of W at first.

    >>> from jaxpe import encodings
    >>> encoding, still = carope(dim=4, num_heads=1, head_dim=4), {"kernel": jnp.zeros((4, 1))}
    >>> c, _ = encoding.context(still, jnp.ones((3, 4)), jnp.arange(3), Rows())
    >>> c[:, 0].round(4).tolist()
    [[1.0, 0.5906], [2.0, 1.1812], [3.0, 1.7718]]
    """
    check_sizes(dim=dim, num_heads=num_heads)
    check_even(head_dim=head_dim)
    half = head_dim // 2

    init = partial(normal_params, kernel=(stddev, (dim, num_heads)))

    def context(params, x, positions, rows):
        x = jnp.asarray(x)
        check_heads(x.shape, dim=dim)
        dtype = compute_dtype(x)
        z = jnp.einsum("...d,dh->...h", x.astype(dtype), params["kernel"].astype(dtype))
        # Powers f^k by their logarithm, whose derivative is finite at k = 0.
        log_f = -jnp.log1p(jax.nn.softplus(z))
        steps = jnp.exp(log_f[..., None] * expand_rank(np.arange(half), z.ndim + 1, dtype))
        return running_sum(steps, rows, after=2)

    return _summed_rotation(init, context, head_dim, np.ones(half))


def _summed_rotation(init, context, head_dim: int, scale: ArrayLike) -> Encoding:
    """The encoding that turns pairs by running sums `[..., n, heads, half]` times a scale."""

    def turn(params, x, positions, sums):
        check_heads(x.shape, head_dim=head_dim)
        check_context(sums, x, after=2)
        angles = repeat_heads(sums, x.shape[-2]) * expand_rank(scale, sums.ndim, sums.dtype)
        return rotate(x, jnp.cos(angles), jnp.sin(angles), interleaved=False)

    return Encoding(init=init, context=context, query=turn, key=turn)


def _affine_gates(params: Params, x: ArrayLike, dim: int, num_heads: int) -> Array:
    """W x + b, `[..., n, heads]`, float32 or wider."""
    check_tables(params, kernel=(dim, num_heads), bias=(num_heads,))
    x = jnp.asarray(x)
    check_heads(x.shape, dim=dim)
    dtype = compute_dtype(x)
    z = jnp.einsum("...d,dh->...h", x.astype(dtype), params["kernel"].astype(dtype))
    return z + expand_rank(params["bias"].astype(dtype), z.ndim)
