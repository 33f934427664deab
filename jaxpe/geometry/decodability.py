"""How well a linear probe reads positions from hidden states."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from jaxpe._types import ArrayLike
from jaxpe.geometry.distances import floating


class PositionDecodability(NamedTuple):
    """What a linear probe tells of positions in rows that it was not fitted to.

    Attributes:
        r2: 1 − Σ(t − t̂)²/Σ(t − t̄)², at most 1; 0 for a probe that says the mean everywhere, below
            0 for one that does worse, and 0 where positions do not differ.
        error: mean |t − t̂|, in positions.
    """

    r2: Float[Array, ""]
    error: Float[Array, ""]


def position_decodability(
    hidden: Float[ArrayLike, "rows n d"],
    *,
    mask: Bool[ArrayLike, "rows n"] | None = None,
    ridge: float = 1e-4,
) -> PositionDecodability:
    """Ridge regression of the position 0 … n − 1 on hidden states (Alain and Bengio 2017).

    Fitted on the rows 0, 2, 4, …, judged on the rows 1, 3, 5, …, so that nothing is told of rows
    that are seen twice only where rows are different documents. The hidden states are centred, and
    the penalty is `ridge` times the mean variance of their entries: neither shifts, rotations nor a
    scale change the result. Layers by `jax.vmap`.

    Hidden states that are all alike give r2 = 0; so do rows of one position (n = 1). Where a half
    has no place that counts, r2 and error are 0. Float32 is enough for the default `ridge`.

    Args:
        hidden: of at least two rows.
        mask: places that count; all when None.
        ridge: positive.

    Raises:
        ValueError: where there are fewer than two rows, or the ridge is not positive.

    >>> noise = np.random.default_rng(0).normal(size=(8, 20, 3))
    >>> clock = noise + np.arange(20.0)[None, :, None]
    >>> probe = jax.jit(position_decodability)
    >>> [round(probe(x).r2.item(), 1) for x in (noise, clock)]
    [0.0, 1.0]
    """
    hidden = floating(hidden)
    if hidden.ndim != 3 or hidden.shape[0] < 2:
        raise ValueError(
            f"hidden has shape {hidden.shape}: pass [rows, n, d] with at least two rows, one half "
            "to fit the probe to and one to judge it"
        )
    if ridge <= 0:
        raise ValueError(f"ridge={ridge} must be positive: without it the probe is not unique")
    rows, n, _ = hidden.shape
    counts = jnp.ones((rows, n), bool) if mask is None else jnp.asarray(mask)
    hidden = hidden.astype(jnp.float32) if hidden.dtype.itemsize < 4 else hidden
    places = jnp.broadcast_to(jnp.arange(n, dtype=hidden.dtype)[None, :], (rows, n))
    fitted, judged = (
        (_flat(hidden[half]), _flat(places[half]), _flat(counts[half]))
        for half in (slice(0, None, 2), slice(1, None, 2))
    )
    return _judge(_fit(*fitted, ridge), *judged)


class _Probe(NamedTuple):
    """t̂ = (x − centre)·slopes + mean."""

    centre: Array
    slopes: Array
    mean: Array


def _fit(x: Array, t: Array, counts: Array, ridge: float) -> _Probe:
    # From one of them on: hidden states that are all alike then lie at 0 exactly, not near it.
    origin = x[jnp.argmax(counts)]
    x = jnp.where(counts[:, None], x - origin[None, :], 0.0)
    middle, mean = _mean(x, counts), _mean(t, counts)
    x = jnp.where(counts[:, None], x - middle[None, :], 0.0)
    t = jnp.where(counts, t - mean, 0.0)
    gram = jnp.matmul(x.T, x, precision="highest")
    size = jnp.trace(gram) / max(len(gram), 1)
    penalty = jnp.where(size > 0, jnp.asarray(ridge, size.dtype) * size, 1.0)
    regular = gram + penalty * jnp.eye(len(gram), dtype=gram.dtype)
    slopes = jax.scipy.linalg.solve(
        regular, jnp.matmul(x.T, t, precision="highest"), assume_a="pos"
    )
    return _Probe(origin + middle, slopes, mean)


def _judge(probe: _Probe, x: Array, t: Array, counts: Array) -> PositionDecodability:
    said = jnp.matmul(x - probe.centre[None, :], probe.slopes, precision="highest") + probe.mean
    missed = jnp.where(counts, t - said, 0.0)
    spread = jnp.sum(jnp.where(counts, t - _mean(t, counts), 0.0) ** 2)
    r2 = 1 - jnp.sum(missed**2) / jnp.where(spread > 0, spread, 1.0)
    return PositionDecodability(jnp.where(spread > 0, r2, 0.0), _mean(jnp.abs(missed), counts))


def _flat(x: Array) -> Array:
    return x.reshape(-1, *x.shape[2:])


def _mean(x: Array, counts: Array) -> Array:
    """Over the first axis, of what counts; 0 where nothing does."""
    shape = (-1,) + (1,) * (x.ndim - 1)
    total = jnp.sum(jnp.where(counts.reshape(shape), x, 0.0), axis=0)
    return total / jnp.maximum(jnp.sum(counts), 1).astype(x.dtype)
