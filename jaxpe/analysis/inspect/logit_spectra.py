"""Spectra of attention logits, their parts of content and position, and their rotary pairs."""

import functools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpe import nn, spectral
from jaxpe._core.arrays import tree_add
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.inspect.attention_result import (
    LogitSpectra,
    PartShares,
    RotaryPairs,
    SpectralStage,
)
from jaxpe.analysis.inspect.documents import Sample, row_batches
from jaxpe.analysis.inspect.flax_model import FlaxModel, sample_batch
from jaxpe.analysis.inspect.rotary_bands import Rotation, find_rotation
from jaxpe.analysis.inspect.variance import ratio
from jaxpe.spectral import PartSums

_SINGLE = 16  # documents whose logits are analysed one by one

_means = jax.jit(PartSums.means)
_toeplitz_shares = jax.jit(jax.vmap(lambda sums: spectral.toeplitz_shares(sums.means())))
_merged = jax.jit(operator.add)  # sums over the documents of both


class _LogitSums(NamedTuple):
    """Sums over documents; they add."""

    parts: PartSums  # [layers, ...]
    embedded: PartSums  # [1, ...]
    pairs: Array | None  # of squares, [layers, heads, pairs]

    __add__ = tree_add


def logit_spectra(sample: Sample, *, progress: Progress = SILENT) -> SpectralStage:
    """Spectra and parts of a model's attention logits.

    Args:
        sample: a model of `jaxpe.nn` with one encoding in all layers, and documents.
        progress: receiver of progress.

    >>> logit_spectra(sample).mean.toeplitz.shape  # doctest: +SKIP
    (30, 9)
    """
    rotation, causal = find_rotation(sample.module), FlaxModel(sample.module).causal
    sums = _summed(sample, rotation, progress)
    means = _means(sums.parts)
    logits = _wide(means.parts.total)
    pairs = None
    if rotation is not None:
        squares = _wide(means.total_squares).sum((-2, -1))[..., None] * len(sample.rows)
        pairs = RotaryPairs(rotation.angles, ratio(_wide(sums.pairs), squares))
    return SpectralStage(
        causal=causal,
        logits=np.where(_attended_pairs(logits, causal=causal), logits, np.nan),
        mean=LogitSpectra(*map(_wide, _spectra(means.parts.total, causal=causal))),
        single=_single_documents(sample, causal=causal),
        parts=_part_shares(sums.parts),
        embedded=_part_shares(sums.embedded),
        pairs=pairs,
    )


def _summed(sample: Sample, rotation: Rotation | None, progress: Progress) -> _LogitSums:
    """Sums over the rows."""
    size = sample_batch(sample)
    means = _position_means(sample, size)
    method = functools.partial(_sum_batch, text=sample.text, rotation=rotation)
    apply, params = nn.functionalize(sample.module, method=method)
    run, total = jax.jit(apply), len(sample.rows) // size
    batches = progress.track(row_batches(sample.rows, size), "logits", total=total)
    return functools.reduce(_merged, (run(params, ids, means) for ids in batches))


def _position_means(sample: Sample, size: int) -> Array:
    """Mean hidden state of each position that enters each layer, over positions of text."""
    apply, params = nn.functionalize(sample.module, method=nn.sum_hidden)
    run = jax.jit(apply)
    text = np.zeros(sample.rows.shape[1], bool)
    text[sample.text] = True

    def summed(ids: np.ndarray) -> nn.HiddenSums:
        sums, counts = jax.device_get(run(params, ids))
        return nn.HiddenSums(np.where(text[None, :, None], sums, 0), np.where(text, counts, 0))

    return nn.position_means(summed, [{"ids": ids} for ids in row_batches(sample.rows, size)])


def _sum_batch(
    model: Any, ids: Array, means: Array, *, text: slice, rotation: Rotation | None
) -> _LogitSums:
    """Sums over one batch, layer by layer."""
    parts, pairs = _sum_heads(model, nn.split_heads(model, ids, means=means), text, rotation)
    embedded, _ = _sum_heads(model, nn.split_heads(model, ids), text, None)
    return _LogitSums(parts, embedded, pairs)


def _sum_heads(
    model: Any, heads: nn.HeadParts, text: slice, rotation: Rotation | None
) -> tuple[PartSums, Array | None]:
    """Sums of the parts, and squares of the rotary pairs, by layer."""
    causal, encoding = nn.trunk(model).causal, nn.head_encoding(model)
    at = {"q_positions": heads.positions, "k_positions": heads.positions}

    def layer_sums(layer: tuple[Any, ...]) -> tuple[PartSums, Array | None]:
        q_content, q_position, k_content, k_position, params = layer
        parts = spectral.logit_parts(encoding, params, *layer[:4], **at, scale=heads.scale)
        parts = jax.tree.map(lambda x: x[..., text, text], parts)
        sums = spectral.sum_parts(parts, causal=causal)
        if rotation is None:
            return sums, None
        q, k = q_content + q_position, k_content + k_position
        pairs = spectral.pair_logits(
            encoding, params, q, k, **at, scale=heads.scale,
            rotary_dim=rotation.rotary_dim, layout=rotation.layout,
        ).logits[..., text, text]  # fmt: skip
        pairs = jnp.tril(pairs) if causal else pairs
        return sums, jnp.sum(pairs**2, axis=(0, -2, -1))

    return lax.map(layer_sums, (*heads[:4], heads.params))


@functools.partial(jax.jit, static_argnames="causal")
def _spectra(logits: Array, *, causal: bool) -> tuple[Array, Array, Array]:
    """Fields of `LogitSpectra` of each matrix `[..., n, n]`."""
    attended = _attended_pairs(logits, causal=causal)
    diagonals = spectral.diagonal_means(logits, mask=attended)
    rest = jnp.where(attended, logits - spectral.toeplitz_matrix(diagonals), 0)
    total = jnp.sum(jnp.where(attended, logits, 0) ** 2, axis=(-2, -1))
    centred, n = _centred_diagonals(diagonals, causal=causal), logits.shape[-1]
    kind = "singular" if causal else "eigenvalues"
    return (
        jnp.sum(rest**2, axis=(-2, -1)) / jnp.where(total == 0, 1.0, total),
        spectral.szego(centred, n=n, kind=kind).distance,
        spectral.spectrum(logits, kind="singular", mask=attended).effective_rank,
    )


def _centred_diagonals(diagonals: Array, *, causal: bool) -> Array:
    """Diagonals `[..., 2n − 1]` of a matrix whose mean over the pairs seen is 0.

    A level would be an eigenvalue larger than all others, which makes every relative distance
    small.
    """
    n = (diagonals.shape[-1] + 1) // 2
    offsets = np.arange(1 - n, n)
    pairs = np.where(causal & (offsets > 0), 0, n - np.abs(offsets)).astype(diagonals.dtype)
    weights = np.broadcast_to(pairs / pairs.sum(), diagonals.shape)
    level = jnp.sum(diagonals * weights, axis=-1, keepdims=True)
    return jnp.where(weights > 0, diagonals - level, 0)


def _single_documents(sample: Sample, *, causal: bool) -> LogitSpectra:
    """Spectra of the logits of single documents, averaged over some of them."""
    text, model = sample.text, FlaxModel(sample.module)
    run = model.traced(lambda trace, ids: jnp.swapaxes(trace.logits[..., text, text], 0, 1))
    size = min(2, sample_batch(sample))
    batches = row_batches(sample.rows[: _SINGLE // size * size], size)
    spectra = [_spectra(one, causal=causal) for ids in batches for one in run(ids)]
    return LogitSpectra(
        *(np.mean(list(map(_wide, values)), axis=0) for values in zip(*spectra, strict=True))
    )


def _part_shares(sums: PartSums) -> PartShares:
    """Shares of the five parts in the logits of each layer."""
    share, mean_share, residual = (
        np.stack([_wide(part) for part in parts], -1) for parts in _toeplitz_shares(sums)
    )
    nonzero = share.sum(axis=-1, keepdims=True) > 0
    return PartShares(
        share=np.where(nonzero, share, np.nan),
        mean_share=np.where(nonzero, mean_share, np.nan),
        residual=np.where(mean_share > 0, residual, np.nan),
    )


def _attended_pairs(matrices: Array | np.ndarray, *, causal: bool) -> np.ndarray:
    """Whether query i attends to key j, in the shape of the matrices."""
    n = matrices.shape[-1]
    return np.broadcast_to(np.tri(n, dtype=bool) if causal else np.True_, matrices.shape)


def _wide(x: Any) -> np.ndarray:
    """NumPy array of float64."""
    return np.asarray(x, np.float64)
