"""Spectra of attention logits, and their parts of content and position."""

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpe import nn, spectral
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.inspect.attention_result import PartShares, SpectralStage
from jaxpe.analysis.inspect.documents import Sample, row_batches
from jaxpe.analysis.inspect.flax_model import FlaxModel, sample_batch
from jaxpe.nn.heads import trunk
from jaxpe.nn.logit_decomposition import HiddenSums, position_means, sum_hidden
from jaxpe.spectral.decomposition import PartSums

_means = jax.jit(PartSums.means)
_toeplitz_shares = jax.jit(jax.vmap(lambda sums: spectral.toeplitz_shares(sums.means())))
_merged = jax.jit(operator.add)  # sums over the documents of both


def logit_spectra(sample: Sample, *, progress: Progress = SILENT) -> SpectralStage:
    """Spectra and parts of a model's attention logits.

    Args:
        sample: a model of `jaxpe.nn` with one encoding in all layers, and documents.
        progress: receiver of progress.

    >>> logit_spectra(sample).toeplitz.shape  # doctest: +SKIP
    (30, 9)
    """
    causal = FlaxModel(sample.module).causal
    sums = _summed(sample, progress)
    means = _means(sums)
    toeplitz, rank = _spectra(means.parts.total, causal=causal)
    return SpectralStage(
        causal=causal,
        toeplitz=_wide(toeplitz),
        effective_rank=_wide(rank),
        parts=_part_shares(sums),
    )


def _summed(sample: Sample, progress: Progress) -> PartSums:
    """Sums over the rows."""
    size = sample_batch(sample)
    means = _position_means(sample, size)
    method = functools.partial(_sum_batch, text=sample.text)
    apply, params = nn.functionalize(sample.module, method=method)
    run, total = jax.jit(apply), len(sample.rows) // size
    batches = progress.track(row_batches(sample.rows, size), "logits", total=total)
    return functools.reduce(_merged, (run(params, ids, means) for ids in batches))


def _position_means(sample: Sample, size: int) -> Array:
    """Mean hidden state of each position that enters each layer, over positions of text."""
    apply, params = nn.functionalize(sample.module, method=sum_hidden)
    run = jax.jit(apply)
    text = np.zeros(sample.rows.shape[1], bool)
    text[sample.text] = True

    def summed(ids: np.ndarray) -> HiddenSums:
        sums, counts = jax.device_get(run(params, ids))
        return HiddenSums(np.where(text[None, :, None], sums, 0), np.where(text, counts, 0))

    return position_means(summed, [{"ids": ids} for ids in row_batches(sample.rows, size)])


def _sum_batch(model: Any, ids: Array, means: Array, *, text: slice) -> PartSums:
    """Sums over one batch, layer by layer."""
    heads = nn.split_heads(model, ids, means=means)
    causal, encoding = trunk(model).causal, nn.head_encoding(model)
    at = {"q_positions": heads.positions, "k_positions": heads.positions}

    def layer_sums(layer: tuple[Any, ...]) -> PartSums:
        parts = spectral.logit_parts(encoding, layer[4], *layer[:4], **at, scale=heads.scale)
        parts = jax.tree.map(lambda x: x[..., text, text], parts)
        return spectral.sum_parts(parts, causal=causal)

    return lax.map(layer_sums, (*heads[:4], heads.params))


@functools.partial(jax.jit, static_argnames="causal")
def _spectra(logits: Array, *, causal: bool) -> tuple[Array, Array]:
    """Share beyond Toeplitz and effective rank of each matrix `[..., n, n]`."""
    attended = _attended_pairs(logits, causal=causal)
    diagonals = spectral.diagonal_means(logits, mask=attended)
    rest = jnp.where(attended, logits - spectral.toeplitz_matrix(diagonals), 0)
    total = jnp.sum(jnp.where(attended, logits, 0) ** 2, axis=(-2, -1))
    return (
        jnp.sum(rest**2, axis=(-2, -1)) / jnp.where(total == 0, 1.0, total),
        spectral.spectrum(logits, kind="singular", mask=attended).effective_rank,
    )


def _part_shares(sums: PartSums) -> PartShares:
    """Shares of the five parts in the logits of each layer."""
    share, mean_share, residual = (
        np.stack([_wide(part) for part in parts], -1) for parts in _toeplitz_shares(sums)
    )
    nonzero = share.sum(axis=-1, keepdims=True) > 0
    return PartShares(
        share=np.where(nonzero, share, np.nan),
        residual=np.where(mean_share > 0, residual, np.nan),
    )


def _attended_pairs(matrices: Array | np.ndarray, *, causal: bool) -> np.ndarray:
    """Whether query i attends to key j, in the shape of the matrices."""
    n = matrices.shape[-1]
    return np.broadcast_to(np.tri(n, dtype=bool) if causal else np.True_, matrices.shape)


def _wide(x: Any) -> np.ndarray:
    """NumPy array of float64."""
    return np.asarray(x, np.float64)
