"""Accuracy of a linear probe for positions in hidden states."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from jaxpe._core.arrays import ArrayLike, dot
from jaxpe.geometry.distances.matrices import floating


class PositionDecodability(NamedTuple):
    """Accuracy of a linear probe for positions, on held-out rows.

    Attributes:
        r2: 1 − Σ(t − t̂)²/Σt², at most 1, with positions t counted from the middle of their row. A
            probe that always predicts the middle has 0, and a worse one less. 0 where positions do
            not differ.
        error: mean |t − t̂|, in positions.
        missed: Σ(t − t̂)² of each held-out row, so that r2 = 1 − Σ missed/Σ spread.
        spread: Σt² of each held-out row.
    """

    r2: Float[Array, ""]
    error: Float[Array, ""]
    missed: Float[Array, " judged"]
    spread: Float[Array, " judged"]


@partial(jax.jit, static_argnames="ridge")
def position_decodability(
    hidden: Float[ArrayLike, "rows n d"],
    *,
    mask: Bool[ArrayLike, "rows n"] | None = None,
    ridge: float = 1e-8,
) -> PositionDecodability:
    """Ridge regression of the position within its row on hidden states (Alain and Bengio 2017).

    Positions are counted from the middle of their row, the mean of its unmasked positions. The part
    of the states that is linear in the middles is subtracted. Otherwise rows of different lengths
    would show positions in states that have none: if a topic has longer documents, its words
    predict large positions. Rows of equal length have one middle, and nothing is subtracted.

    The probe is fitted on the rows 0, 2, 4, … and tested on the rows 1, 3, 5, …, so rows must be
    different documents. Entries are centred and divided by their standard deviations, so shifts and
    scales of single entries change nothing. Along a direction of standard deviation s, the slope
    shrinks by s²/(s² + `ridge`), which is one half at s = 1e-4. So positions far below the noise
    around them are read, and rotations hardly matter. Use `jax.vmap` for several layers.

    Float32 resolves directions above about s = 1e-5, enough for the default `ridge`. A constant
    entry is left out; an entry that is constant only up to rounding is not, and its rounding errors
    count. Equal hidden states give r2 = 0, and so do rows of one position (n = 1). Where a half has
    no unmasked position, r2 and error are 0. NaN at unmasked positions gives NaN.

    Args:
        hidden: hidden states of at least two rows.
        mask: True at the positions that count; all when None.
        ridge: regularisation, at least a hundredth of the relative rounding error of the dtype.

    Raises:
        ValueError: fewer than two rows, or a ridge that is too small.

    >>> noise = np.random.default_rng(0).normal(size=(8, 20, 3))
    >>> clock = noise + np.arange(20.0)[None, :, None]
    >>> probe = jax.jit(position_decodability)
    >>> [round(probe(x).r2.item(), 1) for x in (noise, clock)]
    [0.0, 1.0]
    """
    hidden = floating(hidden, "hidden")
    if hidden.ndim != 3 or hidden.shape[0] < 2 or not hidden.size:
        raise ValueError(
            f"hidden has shape {hidden.shape}: pass [rows, n, d] with at least two rows, one half "
            "to fit the probe to and one to judge it, and at least one position and entry"
        )
    least = float(jnp.finfo(hidden.dtype).eps) / 100
    if not ridge >= least:
        raise ValueError(
            f"ridge={ridge} is too small for a unique probe in {hidden.dtype}: pass at least "
            f"{least:.1e}"
        )
    rows, n, _ = hidden.shape
    counts = jnp.ones((rows, n), bool) if mask is None else jnp.asarray(mask)
    hidden = jnp.where(counts[..., None], hidden, 0.0)
    positions = jnp.broadcast_to(jnp.arange(n, dtype=hidden.dtype)[None, :], (rows, n))
    middles = jax.vmap(_mean)(positions, counts)
    # Relative to one of them: equal middles are exactly 0, and nothing is subtracted.
    away = middles - middles[jnp.argmax(jnp.any(counts, axis=1))]
    away, middles = (jnp.broadcast_to(x[:, None], (rows, n)) for x in (away, middles))
    arrays = hidden, positions - middles, counts, away
    fitted, judged = ([x[k::2].reshape(-1, *x.shape[2:]) for x in arrays] for k in (0, 1))
    slopes = _slopes(fitted[0], fitted[3], fitted[2])
    (x, t, seen), (y, u, tested) = (
        (states - dot(away[:, None], slopes[None]), targets, counted)
        for states, targets, counted, away in (fitted, judged)
    )
    standardised, mean = _standardisation(x, seen), _mean(t, seen)
    probe = _ridge(standardised(x, seen), jnp.where(seen, t - mean, 0.0), seen, ridge)
    missed = jnp.where(tested, u - (dot(standardised(y, tested), probe) + mean), 0.0)
    apart = jnp.where(tested, u - _mean(u, tested), 0.0)
    squares = [jnp.sum(z.reshape(-1, n) ** 2, axis=1) for z in (missed, apart)]
    total = jnp.sum(squares[1])
    r2 = jnp.where(total > 0, 1 - jnp.sum(squares[0]) / jnp.where(total > 0, total, 1.0), 0.0)
    return PositionDecodability(r2, _mean(jnp.abs(missed), tested), *squares)


def _slopes(x: Array, m: Array, counts: Array) -> Array:
    """Slopes of entries on m, 0 where m is constant."""
    x = jnp.where(counts[:, None], x - x[jnp.argmax(counts)][None, :], 0.0)
    m = jnp.where(counts, m - _mean(m, counts), 0.0)
    return _moment(x, m, counts) / _or_one(_moment(m, m, counts))


def _standardisation(x: Array, counts: Array) -> Callable[[Array, Array], Array]:
    """Map of entries to mean 0 and variance 1 over x, or to 0 where x does not vary."""
    # Relative to one of them: equal hidden states are exactly 0, not near it.
    origin = x[jnp.argmax(counts)]
    apart = jnp.where(counts[:, None], x - origin[None, :], 0.0)
    # Before squaring, which halves the range of exponents. No derivative: it cancels.
    largest = _or_one(jax.lax.stop_gradient(jnp.max(jnp.abs(apart), axis=0)))
    apart = apart / largest[None, :]
    centre = _mean(apart, counts)
    deviation = jnp.sqrt(_or_one(_mean((apart - centre[None, :]) ** 2, counts)))

    def standardised(x: Array, counts: Array) -> Array:
        x = (x - origin[None, :]) / largest[None, :]
        return jnp.where(counts[:, None], (x - centre[None, :]) / deviation[None, :], 0.0)

    return standardised


def _ridge(x: Array, t: Array, counts: Array, ridge: float) -> Array:
    """Slopes of the ridge regression of t on standardised entries."""
    # The Gram matrix loses singular values below √eps of the largest. Nearly white entries have
    # none so small, so it is as good as QR, at the cost of two products.
    white = _whitening(x, counts)
    y = dot(x, white.T)
    matrix = _moment(y, y, counts) + ridge * dot(white, white.T)
    slopes = jax.scipy.linalg.solve(matrix, _moment(y, t, counts), assume_a="pos")
    return dot(white.T, slopes)


def _whitening(x: Array, counts: Array) -> Array:
    """Whitening matrix W: Wx is white, but for directions that rounding would decide."""
    identity = jnp.eye(x.shape[1], dtype=x.dtype)
    rounding = len(identity) * jnp.finfo(x.dtype).eps * identity
    lower = jnp.linalg.cholesky(_moment(x, x, counts) + rounding)
    return jax.scipy.linalg.solve_triangular(lower, identity, lower=True)


def _moment(x: Array, y: Array, counts: Array) -> Array:
    """Mean of products over the entries that count; both are 0 elsewhere."""
    total = jnp.maximum(jnp.sum(counts), 1).astype(x.dtype)
    return dot(x.T, y) / total


def _or_one(x: Array) -> Array:
    return jnp.where(x > 0, x, 1.0)


def _mean(x: Array, counts: Array) -> Array:
    """Mean over the first axis of the entries that count; 0 where none does."""
    shape = (-1,) + (1,) * (x.ndim - 1)
    total = jnp.sum(jnp.where(counts.reshape(shape), x, 0.0), axis=0)
    return total / jnp.maximum(jnp.sum(counts), 1).astype(x.dtype)
