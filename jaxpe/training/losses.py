"""Losses as sums with their weights, so that batches, shards and epochs add exactly."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Num

from jaxpe._core.arrays import ArrayLike, tree_add
from jaxpe.encodings.base import compute_dtype


class MeanMetric(NamedTuple):
    """Weighted sum and its weight, such as the number of tokens.

    Metrics of shards, microbatches and epochs add exactly.

    Attributes:
        total: weighted sum.
        weight: sum of the weights.

    >>> one = MeanMetric(jnp.array(3.0), jnp.array(1.0))
    >>> other = MeanMetric(jnp.array(1.0), jnp.array(3.0))
    >>> (one + other).mean.item()
    1.0
    """

    total: Float[Array, ""]
    weight: Float[Array, ""]

    __add__ = __radd__ = tree_add

    @property
    def mean(self) -> Float[Array, ""]:
        """Mean: total / weight; 0 for weight 0."""
        nothing = self.weight == 0
        return jnp.where(nothing, 0, self.total) / jnp.where(nothing, 1, self.weight)


def cross_entropy(
    logits: Float[ArrayLike, "*batch classes"],
    labels: Int[ArrayLike, "*batch"],
    *,
    mask: Bool[ArrayLike, "*batch"] | None = None,
) -> MeanMetric:
    """Cross-entropy in nats, in float32 or wider: −Σ log softmax(logits)[label].

    Masked entries do not count, whatever their logits and labels, NaN or −100 included. A label out
    of range that is not masked gives NaN.

    >>> labels = jnp.array([0, 1, -100])
    >>> metric = cross_entropy(jnp.zeros((3, 4)), labels, mask=jnp.arange(3) < 2)
    >>> metric.weight.item(), round(jnp.exp(metric.mean).item(), 5)
    (2.0, 4.0)
    """
    logits, labels = jnp.asarray(logits), jnp.asarray(labels)
    keep = _all_true(labels) if mask is None else jnp.asarray(mask)
    # Masked before and after the softmax: otherwise the gradient at masked entries is 0 · NaN.
    logits = jnp.where(keep[..., None], logits, 0).astype(compute_dtype(logits))
    log_p = jax.nn.log_softmax(logits, axis=-1)
    labels = jnp.where(keep, labels, 0)
    chosen = jnp.take_along_axis(log_p, labels[..., None], axis=-1)[..., 0]
    chosen = jnp.where(labels < 0, jnp.nan, chosen)  # negative indices would count from the end
    return _tally(-chosen, keep)


def accuracy(
    logits: Float[ArrayLike, "*batch classes"],
    labels: Int[ArrayLike, "*batch"],
    *,
    mask: Bool[ArrayLike, "*batch"] | None = None,
) -> MeanMetric:
    """Accuracy: share of labels with the largest logit (the first of equal ones), in [0, 1].

    >>> accuracy(jnp.eye(3), jnp.array([0, 1, 0])).mean.round(2).item()
    0.67
    """
    labels = jnp.asarray(labels)
    right = jnp.argmax(jnp.asarray(logits), axis=-1).astype(labels.dtype) == labels
    return _tally(right.astype(compute_dtype(logits)), mask)


def mean_squared_error(
    predictions: Float[ArrayLike, "*shape"],
    targets: Num[ArrayLike, "*shape"],
    *,
    mask: Bool[ArrayLike, "*shape"] | None = None,
) -> MeanMetric:
    """Mean squared error: Σ (prediction − target)² over the number of entries.

    >>> mean_squared_error(jnp.array([1.0, 5.0]), jnp.array([3.0, 5.0])).mean.item()
    2.0
    """
    predictions = jnp.asarray(predictions)
    dtype = compute_dtype(predictions)
    error = predictions.astype(dtype) - jnp.asarray(targets).astype(dtype)
    error = error if mask is None else jnp.where(jnp.asarray(mask), error, 0)
    return _tally(jnp.square(error), mask)


def causal_lm_loss(
    logits: Float[ArrayLike, "*batch n vocab"],
    ids: Int[ArrayLike, "*batch n"],
    *,
    mask: Bool[ArrayLike, "*batch n"] | None = None,
    segments: Int[ArrayLike, "*batch n"] | None = None,
) -> MeanMetric:
    """Cross-entropy of the next token, over tokens that are unmasked together with the next one.

    In packed rows, `segments` has the document of each token: the last token of a document does not
    predict the first of the next.

    >>> logits, ids = jnp.zeros((1, 5, 2)), jnp.zeros((1, 5), jnp.int32)
    >>> causal_lm_loss(logits, ids).weight.item()
    4.0
    >>> causal_lm_loss(logits, ids, segments=jnp.array([[0, 0, 1, 1, 1]])).weight.item()
    3.0
    """
    ids = jnp.asarray(ids)
    mask = _all_true(ids) if mask is None else mask
    following = next_in_document(mask, segments)
    return cross_entropy(jnp.asarray(logits)[..., :-1, :], ids[..., 1:], mask=following)


def next_in_document(
    mask: Bool[ArrayLike, "*batch n"], segments: Int[ArrayLike, "*batch n"] | None = None
) -> Bool[Array, "*batch n-1"]:
    """Mask of tokens whose next token is neither padding nor of another document."""
    mask = jnp.asarray(mask)
    following = mask[..., :-1] & mask[..., 1:]
    if segments is None:
        return following
    segments = jnp.asarray(segments)
    return following & (segments[..., :-1] == segments[..., 1:])


def perplexity(metric: MeanMetric) -> Float[Array, ""]:
    """Perplexity: exp of the mean cross-entropy; 1 for weight 0.

    >>> perplexity(MeanMetric(jnp.array(0.0), jnp.array(0.0))).item()
    1.0
    """
    return jnp.exp(metric.mean)


def _tally(values: Array, mask: ArrayLike | None) -> MeanMetric:
    keep = _all_true(values) if mask is None else jnp.asarray(mask)
    return MeanMetric(jnp.where(keep, values, 0).sum(), keep.sum(dtype=values.dtype))


def _all_true(values: Array) -> Array:
    return jnp.ones(values.shape, jnp.bool_)
