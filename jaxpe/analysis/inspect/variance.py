"""Shares of the variance of attention logits that positions explain, from sums over documents."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe import spectral
from jaxpe.analysis.inspect.attention_result import Variance

_offset_means = jax.jit(
    lambda mean, mask: spectral.toeplitz_matrix(spectral.diagonal_means(mean, mask=mask))
)


class Spread(NamedTuple):
    """Mean and squared deviations of numbers; merging two samples adds them.

    Squared deviations are stored, because the mean of squares less the squared mean loses a small
    variance under a large level.

    Attributes:
        count: number of values summed, `[]`.
        mean: mean of each head, `[..., heads]`.
        squares: sum of squared deviations from it.
    """

    count: Array | np.ndarray
    mean: Array | np.ndarray
    squares: Array | np.ndarray

    def __add__(self, other: "Spread") -> "Spread":  # pyrefly: ignore
        """Merge two samples, after Chan, Golub & LeVeque (1983)."""
        count, apart = self.count + other.count, other.mean - self.mean
        return Spread(
            count,
            self.mean + apart * (other.count / count),
            self.squares + other.squares + apart**2 * (self.count * (other.count / count)),
        )

    @property
    def variance(self) -> Array | np.ndarray:
        """The mean squared deviation."""
        return self.squares / self.count


class MeanAndSpread(NamedTuple):
    """Logits of a set of documents, `[layers, heads, n, n]`.

    Attributes:
        mean: their mean over documents.
        spread: their spread over documents and pairs of different positions.
    """

    mean: np.ndarray
    spread: Spread


Halves = tuple[MeanAndSpread, MeanAndSpread]


def logit_spread(logits: Array, *, causal: bool) -> Spread:
    """Variance of logits `[documents, heads, n, n]` over pairs of different positions."""
    documents, _, n, _ = logits.shape
    attended = _different_positions(n, causal=causal)
    count = jnp.asarray(documents * attended.sum(), logits.dtype)

    def summed(x: Array) -> Array:
        return jnp.sum(jnp.where(attended, x, 0), axis=(0, -2, -1))

    rough = summed(logits) / count
    deviation = logits - rough[None, :, None, None]
    error = summed(deviation)  # rounding of a sum of many numbers
    return Spread(count, rough + error / count, summed(deviation**2) - error**2 / count)


def variance_decomposition(halves: Halves, shuffled: Halves, *, causal: bool) -> Variance:
    """Analysis of variance of the logits: shares of the offset j − i and of the positions i, j.

    Logits vary over documents and over pairs i ≠ j. Pairs i = j, which compare a token with itself,
    are left out, so a model without positions explains nothing for tokens in random order.

    Args:
        halves: sums over the two halves of the documents.
        shuffled: sums over halves of documents with their tokens in random order.
        causal: whether tokens attend only backwards.
    """
    spread = halves[0].spread + halves[1].spread
    offset = position_share(halves, causal=causal, by_offset=True)
    return Variance(
        level=np.asarray(spread.mean, np.float64),
        total=np.asarray(spread.variance, np.float64),
        offset=offset,
        place=position_share(halves, causal=causal) - offset,
        shuffled=position_share(shuffled, causal=causal),
    )


def position_share(halves: Halves, *, causal: bool, by_offset: bool = False) -> np.ndarray:
    """Share of the variance that positions i, j explain, `[layers, heads]`.

    The noise in the mean logits of two halves of the documents is independent, so its product is 0
    in expectation. Shares may therefore be negative.

    Args:
        halves: of the documents.
        causal: whether tokens attend only backwards.
        by_offset: whether to return the share that the offset j − i alone explains.
    """
    total = np.asarray((halves[0].spread + halves[1].spread).variance, np.float64)
    shape = halves[0].mean.shape
    pairs = _different_positions(shape[-1], causal=causal)
    attended = np.broadcast_to(pairs, shape)

    def centred(mean: np.ndarray) -> np.ndarray:
        mean = np.asarray(mean, np.float64)
        mean = np.where(attended, mean - mean.mean(axis=(-2, -1), where=attended, keepdims=True), 0)
        if by_offset:
            mean = np.where(attended, np.asarray(_offset_means(mean, attended), np.float64), 0)
        return mean

    product = centred(halves[0].mean) * centred(halves[1].mean)
    return ratio(product.sum((-2, -1)) / pairs.sum(), total)


def ratio(part: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Quotient; 0 where the total is 0."""
    return np.divide(part, total, out=np.zeros_like(part), where=total > 0)


def _different_positions(n: int, *, causal: bool) -> np.ndarray:
    """Pairs i ≠ j whose query i attends to key j, `[1, 1, n, n]`."""
    attended = np.tri(n, k=-1, dtype=bool) if causal else ~np.eye(n, dtype=bool)
    return attended[None, None]
