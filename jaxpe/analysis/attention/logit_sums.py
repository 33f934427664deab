"""Sums over documents of attention logits, their content and position parts, and rotary pairs."""

import functools
import operator
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpe import nn
from jaxpe._core.arrays import tree_add
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.attention.documents import Sample
from jaxpe.spectral import PartSums, logit_parts, pair_logits, sum_parts

_ENTRIES = 2**24  # logits of all layers and heads in memory at once


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


class LogitSums(NamedTuple):
    """Sums over documents; they add."""

    parts: PartSums  # [layers, ...]
    embedded: PartSums  # [1, ...]
    spread: Spread  # over documents and pairs of different positions, [layers, heads]
    pairs: Array | None  # of squares, [layers, heads, pairs]

    __add__ = tree_add


class HalfSums(NamedTuple):
    """Sums over the two halves of the documents, and the rotation.

    Attributes:
        halves: sums of the documents as they are.
        shuffled: sums of half of them, with the tokens of each in random order.
        rotation: None where no entries rotate.
    """

    halves: tuple[LogitSums, LogitSums]
    shuffled: tuple[LogitSums, LogitSums]
    rotation: "Rotation | None"


class Rotation(NamedTuple):
    """Entries of queries and keys that rotate with position, and their frequencies."""

    angles: np.ndarray  # radians a position, [pairs]
    rotary_dim: int
    layout: Literal["half_split", "interleaved"]


def sum_logits(sample: Sample, *, progress: Progress = SILENT) -> HalfSums:
    """Sums over each half of the documents, as they are and with tokens in random order."""
    module, text = sample.module, sample.text
    rotation = find_rotation(module)
    one, other = sample.rows[::2], sample.rows[1::2]
    size = batch_size(sample.rows.shape, sample.maps)
    means = _means(sample, size)
    method = functools.partial(_sum_batch, text=text, rotation=rotation)
    apply, params = nn.functionalize(module, method=method)
    run = jax.jit(apply)

    def total(half: np.ndarray) -> LogitSums:
        batches = progress.track(row_batches(half, size), "logits", total=-(-len(half) // size))
        return functools.reduce(merged, (run(params, ids, means) for ids in batches))

    rng = np.random.default_rng([sample.seed, 3])
    some = len(one) // 2  # half of the documents are enough in random order
    a, b = (total(shuffled_rows(half[:some], text, rng)) for half in (one, other))
    return HalfSums((total(one), total(other)), (a, b), rotation)


merged = jax.jit(operator.add)  # sums over the documents of both


def shuffled_rows(rows: np.ndarray, text: slice, rng: np.random.Generator) -> np.ndarray:
    """Rows with the tokens of each in random order at the text positions."""
    rows = rows.copy()
    rows[:, text] = rng.permuted(rows[:, text], axis=1)
    return rows


def _means(sample: Sample, size: int) -> Array:
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
) -> LogitSums:
    """Sums over one batch, layer by layer."""
    parts, spread, pairs = _sum_heads(
        model, nn.split_heads(model, ids, means=means), text, rotation
    )
    embedded, _, _ = _sum_heads(model, nn.split_heads(model, ids), text, None)
    return LogitSums(parts, embedded, spread._replace(count=spread.count[0]), pairs)


def _sum_heads(
    model: Any, heads: nn.HeadParts, text: slice, rotation: Rotation | None
) -> tuple[PartSums, Spread, Array | None]:
    """Sums of the parts, spread of the logits, and squares of the rotary pairs, by layer."""
    causal, encoding = nn.trunk(model).causal, nn.head_encoding(model)
    options: dict[str, Any] = {
        "q_positions": heads.positions,
        "k_positions": heads.positions,
        "scale": heads.scale,
    }

    def layer_sums(layer: tuple[Any, ...]) -> tuple[PartSums, Spread, Array | None]:
        q_content, q_position, k_content, k_position, params = layer
        parts = logit_parts(encoding, params, *layer[:4], **options)
        parts = jax.tree.map(lambda x: x[..., text, text], parts)
        sums, spread = sum_parts(parts, causal=causal), logit_spread(parts.total, causal=causal)
        if rotation is None:
            return sums, spread, None
        q, k = q_content + q_position, k_content + k_position
        pairs = pair_logits(
            encoding, params, q, k, rotary_dim=rotation.rotary_dim, layout=rotation.layout,
            **options,
        ).logits[..., text, text]  # fmt: skip
        pairs = jnp.tril(pairs) if causal else pairs
        return sums, spread, jnp.sum(pairs**2, axis=(0, -2, -1))

    return lax.map(layer_sums, (*heads[:4], heads.params))


def logit_spread(logits: Array, *, causal: bool) -> Spread:
    """Variance of logits `[documents, heads, n, n]` over pairs of different positions."""
    documents, _, n, _ = logits.shape
    attended = different_positions(n, causal=causal)
    count = jnp.asarray(documents * attended.sum(), logits.dtype)

    def summed(x: Array) -> Array:
        return jnp.sum(jnp.where(attended, x, 0), axis=(0, -2, -1))

    rough = summed(logits) / count
    deviation = logits - rough[None, :, None, None]
    error = summed(deviation)  # rounding of a sum of many numbers
    return Spread(count, rough + error / count, summed(deviation**2) - error**2 / count)


def different_positions(n: int, *, causal: bool) -> np.ndarray:
    """Pairs i ≠ j whose query i attends to key j, `[1, 1, n, n]`."""
    attended = np.tri(n, k=-1, dtype=bool) if causal else ~np.eye(n, dtype=bool)
    return attended[None, None]


def find_rotation(module: Any) -> Rotation | None:
    """Rotation of the queries, read from rotated unit vectors.

    None if queries do not rotate, heads differ, or pairs have no standard layout.
    """
    if not nn.head_encoding(module).defines("query"):
        return None
    apply, params = nn.functionalize(module, method=_rotated_basis)
    rotated = np.asarray(jax.jit(apply)(params), np.float64)
    if (rotated != rotated[:, :1]).any():
        return None
    rotated = rotated[:, 0]
    off = np.abs(rotated) * (1 - np.eye(len(rotated)))
    rotary, partner = np.flatnonzero(off.any(axis=1)), off.argmax(axis=1)
    dim = len(rotary)
    if dim < 2 or dim % 2 or rotary[-1] != dim - 1:
        return None
    half_split = partner[0] == dim // 2
    first = np.arange(dim // 2) if half_split else np.arange(0, dim, 2)
    if (partner[first] != first + (dim // 2 if half_split else 1)).any():
        return None
    angles = np.abs(np.arctan2(rotated[first, partner[first]], rotated[first, first]))
    return Rotation(angles, dim, "half_split" if half_split else "interleaved")


def _rotated_basis(model: Any) -> Array:
    """Unit vectors at position 1, after the query hook of the first layer's encoding."""
    below, encoding = nn.trunk(model), nn.head_encoding(model)
    width, heads = below.config.head_width, below.config.num_heads
    if below.config.latent is not None:
        width += below.config.latent.rotary_dim
    unit = jnp.broadcast_to(jnp.eye(width)[:, None], (width, heads, width))
    by_layer = below.layers.attention.encoding_params.get_value()
    params = (below.encoding_params.get_value(), jax.tree.map(lambda leaf: leaf[0], by_layer))
    return encoding.query(params, unit, jnp.ones(width, jnp.int32))


def batch_size(shape: tuple[int, ...], maps: int) -> int:
    """Rows in a batch, a divisor of a quarter of their number.

    Args:
        shape: shape `[rows, n]` of all rows.
        maps: number of attention maps of one row, layers times heads.
    """
    rows, n = shape
    most = max(1, _ENTRIES // (maps * n**2))
    quarter = rows // 4
    return max(size for size in range(1, quarter + 1) if quarter % size == 0 and size <= most)


def row_batches(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Batches of rows, in order."""
    return (rows[start : start + size] for start in range(0, len(rows), size))
