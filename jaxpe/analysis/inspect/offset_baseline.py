"""Positional baseline of attention: weights that are a function of the offset alone."""

import numpy as np
from jax import Array

from jaxpe.analysis.inspect.variance import Halves, Spread, ratio

_STEPS = 20


def offset_baseline(weights: np.ndarray) -> np.ndarray:
    """Weights b_ij = R_i f(j − i) / Σ_k f(k − i) closest in likelihood to mean weights.

    R_i are the sums of the rows, so that rows keep their mass, and f ≥ 0 maximises
    Σ_ij a_ij log b_ij. It is the limit of f(d) = Σ_i a_i,i+d / Σ_i (R_i / Σ_k f(k − i)), the
    minorisation of Hunter (2004) for choices from different sets. A causal model has f = 0 for
    later keys.

    Args:
        weights: mean weights, `[..., n, n]`.

    >>> even = np.tri(4) / np.arange(1, 5)[:, None]  # a causal head without preference
    >>> bool(np.allclose(offset_baseline(even), even))
    True
    """
    weights = np.asarray(weights, np.float64)
    n = weights.shape[-1]
    i, offsets = np.arange(n), np.arange(2 * n - 1)
    rows = weights.sum(axis=-1)
    sums = np.stack([np.diagonal(weights, k, -2, -1).sum(-1) for k in range(1 - n, n)], axis=-1)
    ends = np.minimum(n, 2 * n - 1 - offsets), np.maximum(0, n - 1 - offsets)

    def row_scale(profile: np.ndarray) -> np.ndarray:
        total = _cumulative(profile)
        return ratio(rows, total[..., 2 * n - 1 - i] - total[..., n - 1 - i])

    profile = sums
    for _ in range(_STEPS):
        seen = _cumulative(row_scale(profile))
        profile = ratio(sums, seen[..., ends[0]] - seen[..., ends[1]])
    return row_scale(profile)[..., None] * profile[..., n - 1 - i[:, None] + i]


def baseline_share(halves: Halves, *, causal: bool) -> np.ndarray:
    """Share of the variance of weights that `offset_baseline` explains, `[layers, heads]`.

    1 − E Σ (a − b)² / E Σ (a − u)², where u are equal weights of a row's sum. Products are of two
    halves of the documents, ā₁b₂ + ā₂b₁ − b₁b₂, so that noise adds nothing. It is at most 1, and
    below 0 only by noise.

    Args:
        halves: mean weights, with their spread around equal weights, of two halves.
        causal: whether tokens attend only backwards.
    """
    shape = halves[0].mean.shape
    visible = np.tri(shape[-1], dtype=bool) if causal else np.ones(shape[-2:], bool)
    total = np.asarray((halves[0].spread + halves[1].spread).variance, np.float64)

    def centred(x: np.ndarray) -> np.ndarray:
        return np.where(visible, x - x.sum(-1, keepdims=True) / visible.sum(-1)[:, None], 0)

    one, other = (centred(half.mean) for half in halves)
    fitted, other_fitted = (centred(offset_baseline(half.mean)) for half in halves)
    product = one * other_fitted + other * fitted - fitted * other_fitted
    return ratio(product.sum((-2, -1)) / visible.sum(), total)


def even_spread(weights: Array | np.ndarray, *, causal: bool) -> Spread:
    """Spread of weights around equal weights in each row; JAX or NumPy arrays.

    Args:
        weights: weights `[layers, documents, heads, n, n]` of a batch.
        causal: whether tokens attend only backwards.
    """
    n = weights.shape[-1]
    visible = np.tri(n, dtype=bool) if causal else np.ones((n, n), bool)
    even = (visible / visible.sum(axis=-1, keepdims=True)).astype(weights.dtype)
    apart = weights - weights.sum(axis=-1, keepdims=True) * even[None, None, None]
    squares = (apart**2).sum(axis=(-4, -2, -1))
    count = np.full((), weights.shape[-4] * visible.sum(), weights.dtype)
    return Spread(count, 0 * squares, squares)


def _cumulative(values: np.ndarray) -> np.ndarray:
    """Sums of the values before each index, `[..., length + 1]`."""
    return np.cumsum(np.insert(values, 0, 0, axis=-1), axis=-1)
