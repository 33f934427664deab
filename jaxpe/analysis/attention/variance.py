"""Shares of the variance of attention logits that positions explain, from sums over documents."""

from typing import NamedTuple

import jax
import numpy as np

from jaxpe import spectral
from jaxpe.analysis.attention.logit_sums import Spread, different_positions
from jaxpe.analysis.attention.result import Variance, residual

_offset_means = jax.jit(
    lambda mean, mask: spectral.toeplitz_matrix(spectral.diagonal_means(mean, mask=mask))
)


class MeanAndSpread(NamedTuple):
    """Logits of a set of documents, `[layers, heads, n, n]`.

    Attributes:
        mean: their mean over documents.
        spread: their spread over documents and pairs of different positions.
    """

    mean: np.ndarray
    spread: Spread


Halves = tuple[MeanAndSpread, MeanAndSpread]


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
    positions = position_share(halves, causal=causal) - offset
    return Variance(
        level=np.asarray(spread.mean, np.float64),
        total=np.asarray(spread.variance, np.float64),
        offset=offset,
        place=positions,
        shuffled=position_share(shuffled, causal=causal),
        residual=residual(offset, positions),
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
    pairs = different_positions(shape[-1], causal=causal)
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
