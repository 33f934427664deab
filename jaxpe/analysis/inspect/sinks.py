"""Attention sinks anywhere in a row, and the norm of their hidden states."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxpe.analysis.inspect.attention_result import AttentionSinks
from jaxpe.analysis.inspect.averages import Means, document_mean, document_means
from jaxpe.analysis.inspect.flax_model import Trace

THRESHOLD = 0.3  # mean weight over later queries, after Gu et al. (2024)
_MOST = 5  # positions, and tokens


class SinkSums(NamedTuple):
    """Sinks of documents.

    Attributes:
        found: whether a head has a sink, `[layers, documents, heads]`.
        weight: weight of each query on sinks, `[layers, documents, heads, n]`.
        heads: share of the heads for which a key is a sink, `[1, documents, n]`.
        norm: norm of each hidden state over the median token's, `[layers + 1, documents, n]`.
    """

    found: Any
    weight: Any
    heads: Any
    norm: Any


def sink_sums(trace: Trace, *, causal: bool) -> SinkSums:
    """Sinks of the documents of a batch, by the definition of `AttentionSinks`.

    Args:
        trace: attention and hidden states.
        causal: whether tokens attend only backwards.

    >>> first = jnp.zeros((1, 1, 1, 8, 8)).at[..., 0].set(1.0)  # all look at the first key
    >>> sums = sink_sums(Trace(first, first, jnp.ones((2, 1, 8, 3))), causal=True)
    >>> sums.heads[0, 0].tolist(), sums.weight[0, 0, 0, -1].item()
    ([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 1.0)
    """
    weights, n = trace.weights, trace.weights.shape[-1]
    queries = np.arange(n)[::-1] if causal else np.full(n, n - 1)  # but the token itself
    mean = np.where(4 * queries >= n, 1 / np.maximum(queries, 1), 0).astype(weights.dtype)
    received = jnp.sum(weights, axis=-2) - jnp.diagonal(weights, axis1=-2, axis2=-1)
    sinks = (received * mean[None, None, None] > THRESHOLD).astype(weights.dtype)
    norm = jnp.linalg.norm(trace.hidden_states, axis=-1)
    return SinkSums(
        found=jnp.max(sinks, axis=-1),
        weight=jnp.einsum("ldhij,ldhj->ldhi", weights, sinks),
        heads=jnp.mean(sinks, axis=(0, 2))[None],
        norm=norm / jnp.median(norm, axis=-1, keepdims=True),
    )


def attention_sinks(sums: SinkSums, ids: np.ndarray, tokens: list[str]) -> AttentionSinks:
    """Statistics of the sinks of all documents.

    Args:
        sums: NumPy arrays; `weight` as means over queries, `[layers, documents, heads]`.
        ids: token ids of the documents, `[documents, n]`.
        tokens: all tokens.
    """
    heads, norm = sums.heads[0], sums.norm
    has_sinks = heads.any(axis=-1)
    main = norm[:, np.arange(len(heads)), heads.argmax(axis=-1)][:, has_sinks].T
    unknown = np.full(len(norm), np.nan)
    positions, position_share = _most_frequent(heads.sum(axis=0))
    tokens_found, token_share = _most_frequent(np.bincount(ids.ravel(), heads.ravel()))
    return AttentionSinks(
        rate=sums.found.mean(axis=1),
        rate_overall=document_mean(sums.found.mean(axis=(0, 2)), within=(0.0, 1.0)),
        weight=sums.weight.mean(axis=1),
        weight_overall=document_mean(sums.weight.mean(axis=(0, 2)), within=(0.0, 1.0)),
        positions=positions,
        position_share=position_share,
        tokens=[tokens[k] for k in tokens_found],
        token_share=token_share,
        norm=document_means(main) if has_sinks.any() else Means(unknown, unknown, unknown),
    )


def _most_frequent(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the largest counts, and their shares of all."""
    order = np.argsort(-counts, kind="stable")[:_MOST]
    order = order[counts[order] > 0]
    return order, counts[order] / max(counts.sum(), 1e-12)
