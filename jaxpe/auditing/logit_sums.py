"""Sums over documents of attention logits, their parts of content and position, and their pairs."""

import functools
import operator
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpe.auditing.spectral_documents import SpectralSubject, transformer_of
from jaxpe.nn import (
    HeadParts,
    HiddenSums,
    functional,
    head_encoding,
    position_means,
    split_heads,
    sum_hidden,
)
from jaxpe.spectral import PartSums, logit_parts, pair_logits, sum_parts

_ENTRIES = 2**24  # logits of all layers and heads held at once


class LogitSums(NamedTuple):
    """Sums over documents, which add."""

    parts: PartSums  # [layers, ...]
    embedded: PartSums  # [1, ...]
    pairs: Array | None  # of squares, [layers, heads, pairs]

    def __add__(self, other: "LogitSums") -> "LogitSums":  # pyrefly: ignore
        return jax.tree.map(jnp.add, self, other)


class Turning(NamedTuple):
    """Which entries of queries and keys turn with position, found by turning unit vectors."""

    angles: np.ndarray  # at one position, a pair
    rotary_dim: int
    layout: Literal["half_split", "interleaved"]


def sum_logits(subject: SpectralSubject) -> tuple[list[LogitSums], Turning | None]:
    """Sums over each half of the documents."""
    module, text = subject.module, subject.text
    turning = find_turning(module)
    rows = [subject.rows[half::2] for half in (0, 1)]
    size = batch_size(subject)
    means = _means(subject, size)
    of_batch = functools.partial(_sum_batch, text=text, turning=turning)
    apply, params = functional(module, method=of_batch)
    run = jax.jit(apply)

    def total(half: np.ndarray) -> LogitSums:
        return functools.reduce(operator.add, (run(params, ids, means) for ids in cut(half, size)))

    return [total(half) for half in rows], turning


def _means(subject: SpectralSubject, size: int) -> Array:
    """The share of position in what enters each layer, over the places of text."""
    apply, params = functional(subject.module, method=sum_hidden)
    run = jax.jit(apply)
    places = np.zeros(subject.rows.shape[1], bool)
    places[subject.text] = True

    def summed(ids: np.ndarray) -> HiddenSums:
        sums, counts = run(params, ids)
        return HiddenSums(jnp.where(places[None, :, None], sums, 0), jnp.where(places, counts, 0))

    return position_means(summed, [{"ids": ids} for ids in cut(subject.rows, size)])


def _sum_batch(
    model: Any, ids: Array, means: Array, *, text: slice, turning: Turning | None
) -> LogitSums:
    """Sums over one batch, layer by layer."""
    parts, pairs = _sum_heads(model, split_heads(model, ids, means=means), text, turning)
    embedded, _ = _sum_heads(model, split_heads(model, ids), text, None)
    return LogitSums(parts, embedded, pairs)


def _sum_heads(
    model: Any, found: HeadParts, text: slice, turning: Turning | None
) -> tuple[PartSums, Array | None]:
    """Sums of the parts, and of the squares of the pairs, of the layers found."""
    causal, encoding = transformer_of(model).causal, head_encoding(model)
    where: dict[str, Any] = {
        "q_positions": found.positions,
        "k_positions": found.positions,
        "scale": found.scale,
    }

    def windowed(x: Array) -> Array:
        return x[..., text, text]

    def of_layer(layer: tuple[Any, ...]) -> tuple[PartSums, Array | None]:
        q_content, q_position, k_content, k_position, own = layer
        parts = logit_parts(encoding, own, *layer[:4], **where)
        sums = sum_parts(jax.tree.map(windowed, parts), causal=causal)
        if turning is None:
            return sums, None
        chosen = {"rotary_dim": turning.rotary_dim, "layout": turning.layout}
        q, k = q_content + q_position, k_content + k_position
        pairs = windowed(pair_logits(encoding, own, q, k, **where, **chosen).logits)
        if causal:
            pairs = jnp.tril(pairs)
        return sums, jnp.sum(pairs**2, axis=(0, -2, -1))

    return lax.map(of_layer, (*found[:4], found.params))


def find_turning(module: Any) -> Turning | None:
    """How queries turn; None where they do not, or heads differ, or pairs have no usual layout."""
    if not head_encoding(module).defines("query"):
        return None
    apply, params = functional(module, method=_turned)
    turned = np.asarray(jax.jit(apply)(params), np.float64)
    if (turned != turned[:, :1]).any():
        return None
    turned = turned[:, 0]
    off = np.abs(turned) * (1 - np.eye(len(turned)))
    moves, partner = np.flatnonzero(off.any(axis=1)), off.argmax(axis=1)
    dim = len(moves)
    if dim < 2 or dim % 2 or moves[-1] != dim - 1:
        return None
    half_split = partner[0] == dim // 2
    first = np.arange(dim // 2) if half_split else np.arange(0, dim, 2)
    if (partner[first] != first + (dim // 2 if half_split else 1)).any():
        return None
    angles = np.abs(np.arctan2(turned[first, partner[first]], turned[first, first]))
    return Turning(angles, dim, "half_split" if half_split else "interleaved")


def _turned(model: Any) -> Array:
    """What the first layer's encoding makes of queries that are unit vectors, at position 1."""
    below, encoding = transformer_of(model), head_encoding(model)
    width, heads = below.config.head_width, below.config.num_heads
    if below.config.latent is not None:
        width += below.config.latent.rotary_dim
    unit = jnp.broadcast_to(jnp.eye(width)[:, None], (width, heads, width))
    own = below.layers.attention.encoding_params.get_value()
    params = (below.encoding_params.get_value(), jax.tree.map(lambda leaf: leaf[0], own))
    return encoding.query(params, unit, jnp.ones(width, jnp.int32))


def batch_size(subject: SpectralSubject) -> int:
    """Rows at once; it divides their number."""
    config, (rows, n) = subject.transformer.config, subject.rows.shape
    most = max(1, _ENTRIES // (config.num_layers * config.num_heads * n**2))
    half = rows // 2
    return max(size for size in range(1, half + 1) if half % size == 0 and size <= most)


def cut(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Batches of rows, in order."""
    return (rows[start : start + size] for start in range(0, len(rows), size))
