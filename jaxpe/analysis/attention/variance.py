"""Shares of the variance of attention logits that positions explain, from sums over documents."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxpe import spectral
from jaxpe.analysis.attention.logit_sums import Spread, different_places
from jaxpe.analysis.attention.result import Variance, residual

# Here, so that nothing is compiled twice for one shape.
_by_offset = jax.jit(
    lambda mean, mask: spectral.toeplitz_matrix(spectral.diagonal_means(mean, mask=mask))
)


class MeanAndSpread(NamedTuple):
    """Logits of a set of documents, `[layers, heads, n, n]`.

    Attributes:
        mean: their mean over documents.
        spread: how they spread over documents and pairs of different places.
    """

    mean: np.ndarray
    spread: Spread


Halves = tuple[MeanAndSpread, MeanAndSpread]


def variance_decomposition(halves: Halves, shuffled: Halves, *, causal: bool) -> Variance:
    """Analysis of variance: over documents and pairs i ≠ j, what j − i and i, j explain.

    A token is like itself wherever it stands, so that i = j would tell of the tokens. The others
    explain nothing where a model has no positions and tokens are in random order.

    The mean logits of two halves of the documents have independent noise, whose product is 0 in the
    mean; so shares may come out below 0.

    Args:
        halves: of the documents.
        shuffled: of documents with their tokens in random order.
        causal: whether tokens look back only.
    """
    spread = halves[0].spread + halves[1].spread
    position, offset = _explained(halves, causal=causal)
    in_random_order, _ = _explained(shuffled, causal=causal)
    place = position - offset
    return Variance(
        level=_wide(spread.mean),
        total=_wide(spread.variance),
        offset=offset,
        place=place,
        shuffled=in_random_order,
        residual=residual(offset, place),
    )


def position_share(halves: Halves, *, causal: bool) -> np.ndarray:
    """Share of the variance that the places i, j explain, `[layers, heads]`."""
    (a, b), total = (_centred(half, causal=causal) for half in halves), _total(halves)
    return ratio(_product(a, b, causal=causal), total)


def _explained(halves: Halves, *, causal: bool) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the variance that places i, j explain, and the offset alone, `[layers, heads]`."""
    (a, b), total = (_centred(half, causal=causal) for half in halves), _total(halves)
    by_offset = _of_offsets((a, b), causal=causal)
    return (
        ratio(_product(a, b, causal=causal), total),
        ratio(_product(*by_offset, causal=causal), total),
    )


def _total(halves: Halves) -> np.ndarray:
    return _wide((halves[0].spread + halves[1].spread).variance)


def _product(a: np.ndarray, b: np.ndarray, *, causal: bool) -> np.ndarray:
    """Mean product over the pairs that are looked at."""
    return (a * b).sum((-2, -1)) / different_places(a.shape[-1], causal=causal).sum()


def _centred(half: MeanAndSpread, *, causal: bool) -> np.ndarray:
    """Mean logits less their level; 0 at pairs that are left out."""
    mean = _wide(half.mean)
    seen = np.broadcast_to(different_places(mean.shape[-1], causal=causal), mean.shape)
    return np.where(seen, mean - mean.mean(axis=(-2, -1), where=seen, keepdims=True), 0)


def _of_offsets(centred: Sequence[np.ndarray], *, causal: bool) -> list[np.ndarray]:
    """The same by offset."""
    seen = np.broadcast_to(different_places(centred[0].shape[-1], causal=causal), centred[0].shape)
    return [np.where(seen, _wide(_by_offset(mean, seen)), 0) for mean in centred]


def _wide(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Their quotient; 0 where there is nothing to have a share in."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
