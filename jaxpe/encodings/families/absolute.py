"""Absolute encodings: a vector for every position, added to embeddings or appended to them.

Frozen numbers (random features, a fixed table) are parameters that receive no gradient, and neither
do options that their initial values depend on. Decoupled weight decay would still shrink them:
exclude them with a mask of the optimiser.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int, Real

from jaxpe._core.arrays import ArrayLike, Scalar, is_traced, namespace
from jaxpe.encodings.base import (
    Encoding,
    Params,
    align_positions,
    as_positions,
    check_choice,
    check_even,
    check_sizes,
    compute_dtype,
    identity,
    vector_dtype,
)
from jaxpe.encodings.phases import phases
from jaxpe.encodings.registry import register
from jaxpe.encodings.tables import check_tables, normal_params, take
from jaxpe.geometry import (
    PositionCounts,
    classical_mds_from_gram,
    count_tokens,
    fisher_rao_distances,
    hellinger_gram,
    positional_distributions,
)
from jaxpe.geometry.counts.distributions import EmptyPolicy
from jaxpe.geometry.distances.matrices import gram_matrix
from jaxpe.plans.scaling import inverse_frequencies

Positions = Int[ArrayLike, "*batch n"] | Float[ArrayLike, "*batch n"]
Mode = Literal["add", "concat"]
Layout = Literal["interleaved", "concatenated"]


def from_vectors(
    function: Callable[[Params, ArrayLike], Array],
    *,
    init: Callable[[Array], Params] | None = None,
    scale: Scalar = 1.0,
    mode: Mode = "add",
    coordinates: int = 1,
) -> Encoding:
    """The encoding whose position vectors are scale·function(params, positions).

    `embed` adds them to x `[..., n, dim]` ("add") or appends them, `[..., n, d + dim]` ("concat"),
    in float32 or wider, and returns the dtype of x. `vectors` is exactly what is added.

    Args:
        function: `(params, positions) -> [..., n, dim]` for positions `[..., n]`; it is traced at
            position 0 at once, so that its errors are raised early.
        init: `key -> params`; () when None.
        scale: factor of the vectors.
        mode: "add" or "concat".
        coordinates: coordinates of a position; from 2 on positions are `[..., n, coordinates]`.

    >>> line = from_vectors(lambda params, i: jnp.asarray(i, float)[..., None])
    >>> line.embed((), jnp.zeros((3, 1)), jnp.arange(3)).ravel().tolist()
    [0.0, 1.0, 2.0]
    """
    check_choice("mode", mode, ("add", "concat"))
    make = Encoding().init if init is None else init
    axes = min(coordinates - 1, 1)
    first = np.zeros((1, coordinates)[: 1 + axes], np.int32)
    dim = jax.eval_shape(lambda: function(make(jax.random.key(0)), first)).shape[-1]

    def vectors(params, positions):
        rows = function(params, positions)
        return rows * jnp.asarray(scale, rows.dtype)

    def embed(params, x, positions):
        x = jnp.asarray(x)
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise ValueError(f"embeddings are {x.dtype}, which would truncate: pass floats")
        if mode == "add" and x.shape[-1] != dim:
            raise ValueError(
                f"vectors of width {dim} cannot be added to embeddings of width "
                f"{x.shape[-1]}: build the encoding with dim={x.shape[-1]}, or with mode='concat'"
            )
        lead = align_positions(positions, x.shape, after=1, axes=axes).shape
        dtype = compute_dtype(x)
        rows = vectors(params, positions).astype(dtype)
        rows = rows.reshape(*lead[: len(lead) - axes], dim)
        if mode == "add":
            return (x.astype(dtype) + rows).astype(x.dtype)
        rows = jnp.broadcast_to(rows, (*x.shape[:-1], dim))
        return jnp.concatenate([x, rows.astype(x.dtype)], axis=-1)

    return Encoding(init=make, embed=embed, vectors=vectors)


def fixed_vectors(
    function: Callable[..., Array], *, scale: Scalar, mode: Mode, **options: Any
) -> Encoding:
    """The encoding without parameters whose vectors are scale·function(positions, **options)."""
    return from_vectors(lambda _, i: function(i, **options), scale=scale, mode=mode)


# Registered in this module, because the registry imports the module that defines it.
register("none", family="absolute", source="Haviv et al. (2022)")(identity)


@register("sinusoidal", source="Vaswani et al. (2017)", vectors="its vectors (base 10,000)")
def sinusoidal(
    *,
    dim: int,
    base: Scalar = 10_000.0,
    layout: Layout = "interleaved",
    scale: Scalar = 1.0,
    mode: Mode = "add",
) -> Encoding:
    """Sinusoidal encoding: sines and cosines of the position, added (Vaswani et al. 2017).

    `vectors` are scale·`sinusoidal_vectors`.

    Args:
        dim, base, layout: arguments of `sinusoidal_vectors`.
        scale: factor of the vectors.
        mode: "add" adds the vectors to the embeddings, "concat" appends them.

    >>> x = sinusoidal(dim=2).embed((), jnp.zeros((1, 2)), jnp.asarray([0]))
    >>> x.tolist()
    [[0.0, 1.0]]
    """
    options = {"dim": dim, "base": base, "layout": layout}
    return fixed_vectors(sinusoidal_vectors, scale=scale, mode=mode, **options)


@register(
    "learned", source="Gehring et al. (2017)", vectors="its table, at initialisation N(0, 0.02²)"
)
def learned(
    *, length: int, dim: int, stddev: Scalar = 0.02, interpolate: bool = False, mode: Mode = "add"
) -> Encoding:
    """Learned positions: a trained vector for each of `length` positions (BERT, GPT-2).

    Gehring et al. (2017). `vectors` are the rows of params["table"] `[length, dim]`, drawn from
    N(0, stddev²).

    **A position outside 0..length − 1 has no vector.** Concrete positions raise ValueError
    (eagerly, and as NumPy constants under `jit`; `jnp.arange` inside `jit` is traced). Traced
    positions get a row of NaN, because clamping or wrapping would be silently wrong. So do
    fractional positions, unless `interpolate`: then
    `scale_positions(encoding, (length - 1) / (n - 1))` stretches a trained table over n positions,
    as vision transformers do (Dosovitskiy et al. 2021).

    Padding needs positions within the table, such as 0, even when masked: a row of NaN reaches
    every output through its weight of 0, because 0·NaN is NaN.

    Args:
        length: number of positions, the rows of the table.
        dim: width of the vectors.
        stddev: standard deviation of the table at first.
        interpolate: whether fractional positions are allowed; rows are then interpolated linearly.
        mode: argument of `sinusoidal`.

    >>> table = learned(length=3, dim=2, interpolate=True)
    >>> longer = scale_positions(table, (3 - 1) / (5 - 1))
    >>> params = table.init(jax.random.key(0))
    >>> rows = longer.vectors(params, jnp.arange(5))
    >>> bool((rows[::2] == params["table"]).all())
    True
    """
    return _random_table(length, dim, stddev, trainable=True, interpolate=interpolate, mode=mode)


@register("random", source="Cirrincione (2026)", vectors="N(0, 1)")
def random_fixed(
    *, length: int, dim: int, scale: Scalar = 1.0, interpolate: bool = False, mode: Mode = "add"
) -> Encoding:
    """Random positions: a fixed table `[length, dim]` of N(0, scale²) entries.

    The table receives no gradient. At scale 1 it is the "random initialisation" of Table 4 of
    Cirrincione (2026). `vectors` are its rows; positions are as for `learned`.

    Args:
        length, dim, interpolate, mode: arguments of `learned`.
        scale: standard deviation of the entries.

    >>> table = random_fixed(length=4, dim=2)
    >>> params = table.init(jax.random.key(0))
    >>> jax.grad(lambda p: table.vectors(p, jnp.arange(4)).sum())(params)["table"].max().item()
    0.0
    """
    return _random_table(length, dim, scale, trainable=False, interpolate=interpolate, mode=mode)


@register("fourier", source="Rahimi & Recht (2007)", vectors="cos and sin of random frequencies")
def fourier(
    *,
    dim: int,
    sigma: Scalar = 0.1,
    learnable: bool = False,
    scale: Scalar = 1.0,
    mode: Mode = "add",
) -> Encoding:
    """Random Fourier features scale·[cos ω_k i, sin ω_k i] with ω_k ~ N(0, sigma²).

    `vectors` are these features. Rahimi & Recht (2007); Tancik et al. (2020); with `learnable`
    frequencies Li et al. (2021). The mean product of two rows tends to the Gaussian kernel
    exp(−sigma²(i − j)²/2)/2, so positions nearer than 1/sigma are nearly equal. Entries lie in
    [−scale, scale]; scale = √(2/dim) gives the unit rows of Rahimi & Recht. Phases are products in
    the dtype of the positions, the default for integers: 6e-8·|ω i| off in float32.

    Args:
        dim: even.
        sigma: standard deviation of the frequencies, in radians a position.
        learnable: whether params["frequencies"] `[dim/2]` receive a gradient.
        scale, mode: arguments of `sinusoidal`.

    >>> features = fourier(dim=4)
    >>> v = features.vectors(features.init(jax.random.key(0)), jnp.arange(3))
    >>> (v**2).sum(axis=-1).round(6).tolist()
    [2.0, 2.0, 2.0]
    """
    check_even(dim=dim)

    def init(key):
        return {"frequencies": sigma * jax.random.normal(key, (dim // 2,), jnp.result_type(float))}

    def vectors(params, positions):
        frequencies = jnp.asarray(params["frequencies"])
        if not learnable:
            frequencies = lax.stop_gradient(frequencies)
        angles = phases(positions, frequencies, vector_dtype(positions))
        return _merged_halves(jnp.cos(angles), jnp.sin(angles), "concatenated")

    return from_vectors(vectors, init=init, scale=scale, mode=mode)


def from_matrix(
    P: Real[ArrayLike, "n k"],
    *,
    dim: int | None = None,
    scale: Scalar = 1.0,
    trainable: bool = False,
    interpolate: bool = False,
    mode: Mode = "add",
) -> Encoding:
    """The rows of scale·P as position vectors, with P from MDS, PCA or a trained model.

    `vectors` are the rows of params["table"] `[n, dim]`; positions are as for `learned`.

    Args:
        P: one row a position.
        dim: width of the vectors, k when None; columns beyond k are 0, which does not change
            distances.
        trainable: whether the table receives a gradient.
        interpolate: whether fractional positions are allowed.
        scale, mode: arguments of `sinusoidal`.

    >>> square = from_matrix(np.array([[0, 0], [0, 1], [1, 1], [1, 0]]), dim=3)
    >>> square.vectors(square.init(jax.random.key(0)), jnp.asarray([2])).tolist()
    [[1.0, 1.0, 0.0]]
    """
    if np.ndim(P) != 2 or 0 in np.shape(P):
        raise ValueError(f"P has shape {np.shape(P)}: pass [n, k] with n, k ≥ 1")
    n, k = np.shape(P)
    dim = k if dim is None else dim
    if dim < k:
        raise ValueError(
            f"P has {k} columns, more than dim={dim}: pass dim={k} or more, or fewer columns (of "
            f"MDS coordinates the first {dim} carry most)"
        )

    def init(key):
        table = jnp.asarray(P).astype(jnp.result_type(float))
        return {"table": jnp.pad(table * jnp.asarray(scale, table.dtype), ((0, 0), (0, dim - k)))}

    shapes = {"table": (n, dim)}
    return _tables(init, shapes, trainable=trainable, interpolate=interpolate, mode=mode)


@register(
    "information_optimal",
    source="Cirrincione (2026)",
    vectors="classical MDS of the corpus",
    make=lambda s: information_optimal(_synthetic_counts(s.length), dim=s.dim),
    fitted=True,
)
def information_optimal(
    counts: PositionCounts | Int[ArrayLike, "n vocab"],
    *,
    dim: int,
    scale: Scalar | Literal["rms"] = 1.0,
    metric: Literal["hellinger", "fisher_rao"] = "hellinger",
    empty: EmptyPolicy = "drop",
    trainable: bool = False,
    interpolate: bool = False,
    mode: Mode = "add",
) -> Encoding:
    """Information-optimal encoding: classical MDS of the token distributions by position.

    Algorithm 1 of Cirrincione (2026). `vectors` are the MDS coordinates. Plug-in distances are
    mostly sampling noise on small corpora: see `split_half_geometry` before trusting many columns.

    Args:
        counts: counts of the corpus, from `count_tokens`.
        dim: width of the vectors; columns beyond the rank are 0.
        scale: a factor; 1 keeps the units of the metric, in which the stress at dim ≥ rank is 0.
            "rms" gives present rows a mean square entry of ½, as sinusoidal vectors have.
        metric: "hellinger" (chords, an exact isometry) or "fisher_rao" (geodesics, negative
            eigenvalues cut off).
        empty: policy for positions without a token; under "drop" their rows are 0.
        trainable, interpolate, mode: arguments of `from_matrix`.

    >>> counts = count_tokens(np.array([[0, 1, 2], [0, 2, 1]]), vocab_size=3)
    >>> optimal = information_optimal(counts, dim=4)
    >>> v = optimal.vectors(optimal.init(jax.random.key(0)), jnp.arange(3))
    >>> euclidean_distances(v).values[0].round(3).tolist()
    [0.0, 1.414, 1.414]
    """
    check_choice("metric", metric, ("hellinger", "fisher_rao"))
    mu = positional_distributions(counts, empty=empty)
    fisher_rao = metric == "fisher_rao"
    gram = gram_matrix(fisher_rao_distances(mu)) if fisher_rao else hellinger_gram(mu)
    P = classical_mds_from_gram(gram, dim=dim, present=mu.present).coordinates
    if scale == "rms":
        square = jnp.sum(P**2) / (dim * jnp.maximum(jnp.sum(mu.present), 1).astype(P.dtype))
        P, scale = P / jnp.sqrt(2.0 * jnp.where(square > 0, square, 0.5)), 1.0
    elif isinstance(scale, str):
        raise ValueError(f"scale is {scale!r}: pass a number or 'rms'")
    return from_matrix(P, scale=scale, trainable=trainable, interpolate=interpolate, mode=mode)


@register(
    "low_rank",
    source="Cirrincione (2026)",
    vectors="the product A Bᵀ of rank 16, at random initialisation",
    make=lambda s: low_rank(length=s.length, dim=s.dim, rank=min(16, s.length, s.dim)),
)
def low_rank(
    *,
    length: int,
    dim: int,
    rank: int,
    stddev: Scalar = 0.02,
    interpolate: bool = False,
    mode: Mode = "add",
) -> Encoding:
    """Low-rank learned positions P = A Bᵀ, with rank·(length + dim) parameters.

    Remark 8 of Cirrincione (2026). `vectors` are the requested rows; the rest of A Bᵀ is never
    computed. The params are A `[length, rank]` and B `[dim, rank]`, normal entries that give A Bᵀ
    entries of variance stddev². Positions are as for `learned`. Factors of known vectors, as
    `low_rank_factors` gives them, are params too: {"A": factors.A, "B": factors.B}.

    Args:
        length, dim, interpolate, mode: arguments of `learned`.
        rank: rank of A Bᵀ, at most length and at most dim.
        stddev: standard deviation of the entries of A Bᵀ at first.

    >>> slim = low_rank(length=8, dim=4, rank=1)
    >>> sum(leaf.size for leaf in jax.tree.leaves(slim.init(jax.random.key(0))))
    12
    """
    if not 1 <= rank <= min(length, dim):
        raise ValueError(
            f"rank must lie in [1, {min(length, dim)}] for length={length} and dim={dim}, "
            f"not {rank}"
        )
    entry = namespace(stddev).sqrt(stddev) / rank**0.25
    shapes = {"A": (length, rank), "B": (dim, rank)}
    init = partial(normal_params, A=(entry, shapes["A"]), B=(entry, shapes["B"]))
    return _tables(init, shapes, trainable=True, interpolate=interpolate, mode=mode)


def sinusoidal_vectors(
    positions: Positions, *, dim: int, base: Scalar = 10_000.0, layout: Layout = "interleaved"
) -> Float[Array, "*batch n dim"]:
    """Sinusoidal vectors, PE_{i,2k} = sin(ω_k i) and PE_{i,2k+1} = cos(ω_k i), in [−1, 1].

    Vaswani et al. (2017); Eq. (2) of Cirrincione (2026). Phases are right at any int32 position,
    also in float32.

    Args:
        positions: `[..., n]`.
        dim: width of the vectors, even.
        base: θ of the frequencies ω_k = base^(−2k/dim).
        layout: "interleaved", or "concatenated": all sines first, then all cosines.

    >>> sinusoidal_vectors(jnp.arange(2), dim=2).round(4).tolist()
    [[0.0, 1.0], [0.8415, 0.5403]]
    """
    check_even(dim=dim)
    frequencies = inverse_frequencies(dim, base=base)
    angles = phases(positions, frequencies, vector_dtype(positions))
    return _merged_halves(jnp.sin(angles), jnp.cos(angles), layout)


def random_vectors(
    key: Array, length: int, *, dim: int, scale: Scalar = 1.0
) -> Float[Array, "length dim"]:
    """Independent N(0, scale²) entries: the "random initialisation" of Table 4 has scale 1.

    Args:
        key: PRNG key that draws the entries.
        length: number of positions.
        dim: width of the vectors.
        scale: standard deviation of the entries.

    >>> random_vectors(jax.random.key(0), 3, dim=2).shape
    (3, 2)
    """
    check_sizes(length=length, dim=dim)
    return jax.random.normal(key, (length, dim), jnp.result_type(float)) * scale


def table_rows(
    table: Float[ArrayLike, "length dim"], positions: Positions, *, interpolate: bool = False
) -> Float[Array, "*batch n dim"]:
    """Rows of a table at positions; see `learned` for positions outside it or between rows."""
    table, length = jnp.asarray(table), len(table)
    _check_concrete_positions(positions, length, interpolate)
    positions = as_positions(positions)
    floating = jnp.issubdtype(positions.dtype, jnp.floating)
    between = interpolate and floating
    # Between rows the last one is the end of a step, whose slope its derivative has.
    last = max(length - 2, 0) if between else length - 1
    row = jnp.clip(jnp.floor(positions) if floating else positions, 0, last).astype(jnp.int32)
    part, rows = positions - row.astype(positions.dtype), take(table, row)
    inside = part == 0
    if between:
        inside = (positions >= 0) & (positions <= _last_position(length, positions.dtype))
        dtype = compute_dtype(table)
        part = part.astype(dtype)[..., None]
        following = take(table, jnp.minimum(row + 1, length - 1)).astype(dtype)
        rows = (1 - part) * rows.astype(dtype) + part * following
    return jnp.where(inside[..., None], rows, jnp.nan)


def _check_concrete_positions(positions: ArrayLike, length: int, interpolate: bool) -> None:
    """Raise for positions without a row, unless traced."""
    if is_traced(positions):
        return
    values = np.asarray(positions)
    outside = ~((values >= 0) & (values <= _last_position(length, values.dtype)))
    if not interpolate:
        outside |= values != np.floor(values)
    if outside.any():
        raise ValueError(
            f"position {values[outside][0]} has no row in a table of length {length}: build a "
            "longer one, or stretch it, also between rows, with interpolate=True and "
            f"scale_positions(encoding, {length - 1} / {values.max()}); padding needs positions "
            "inside too"
        )


def _last_position(length: int, dtype: np.dtype) -> float:
    """length − 1; for floats plus rounding, as (length − 1)/(n − 1) times n − 1 may exceed it."""
    if not jnp.issubdtype(dtype, jnp.floating):
        return float(length - 1)
    return (length - 1) * (1 + 2 * float(jnp.finfo(dtype).eps))


def _random_table(length: int, dim: int, stddev: Scalar, **options: Any) -> Encoding:
    """The encoding of a table N(0, stddev²), with options of `_tables`."""

    def init(key):
        return {"table": random_vectors(key, length, dim=dim, scale=stddev)}

    return _tables(init, {"table": (length, dim)}, **options)


def _tables(
    init: Callable[[Array], Params],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    trainable: bool,
    interpolate: bool,
    mode: Mode,
) -> Encoding:
    """The encoding of a table in the params, or of a table A Bᵀ with its factors in the params."""

    def vectors(params, positions):
        check_tables(params, **shapes)
        params = params if trainable else lax.stop_gradient(params)
        if "table" in shapes:
            return table_rows(params["table"], positions, interpolate=interpolate)
        A, B = (jnp.asarray(params[name], compute_dtype(params[name])) for name in ("A", "B"))
        rows = table_rows(A, positions, interpolate=interpolate)
        return jnp.matmul(rows, B.T, precision="highest")

    return from_vectors(vectors, init=init, mode=mode)


def _merged_halves(first: Array, second: Array, layout: str) -> Array:
    """Two halves `[..., half]` as one `[..., 2·half]`, interleaved or concatenated."""
    check_choice("layout", layout, ("interleaved", "concatenated"))
    pairs = jnp.stack([first, second], axis=-1 if layout == "interleaved" else -2)
    return pairs.reshape(*first.shape[:-1], 2 * first.shape[-1])


def _synthetic_counts(length: int) -> PositionCounts:
    """Counts of synthetic documents whose words drift with position, for `information_optimal`."""
    rng = np.random.default_rng(0)
    progress = np.arange(length) / max(length - 1, 1)
    ids = (progress + 0.3 * rng.random((64, length))) * 49 / 1.3
    return count_tokens(ids.astype(np.int32), vocab_size=50)
