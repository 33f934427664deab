"""Sums over documents of attention logits, their parts of content and position, and their pairs."""

import functools
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpe import nn
from jaxpe._core.progress import SILENT, Progress
from jaxpe._core.trees import tree_add
from jaxpe.analysis.attention.documents import Sample
from jaxpe.spectral import PartSums, logit_parts, pair_logits, sum_parts

_ENTRIES = 2**24  # logits of all layers and heads held at once


class Spread(NamedTuple):
    """Numbers by how they spread about their mean, which add.

    The mean of squares less the squared mean would lose a small variance under a large level.

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
    """Sums over documents, which add."""

    parts: PartSums  # [layers, ...]
    embedded: PartSums  # [1, ...]
    spread: Spread  # over documents and pairs of different places, [layers, heads]
    pairs: Array | None  # of squares, [layers, heads, pairs]

    __add__ = tree_add


class Halves(NamedTuple):
    """Sums over the two halves of the documents, and what turns.

    Attributes:
        halves: sums of the documents as they are.
        shuffled: sums of half of them, with the tokens of each in random order.
        turning: None where nothing does.
    """

    halves: tuple[LogitSums, LogitSums]
    shuffled: tuple[LogitSums, LogitSums]
    turning: "Turning | None"


class Turning(NamedTuple):
    """Entries of queries and keys that turn with position, found by turning unit vectors."""

    angles: np.ndarray  # at one position, a pair
    rotary_dim: int
    layout: Literal["half_split", "interleaved"]


def sum_logits(sample: Sample, *, progress: Progress = SILENT) -> Halves:
    """Sums over each half of the documents, as they are and with tokens in random order."""
    module, text = sample.module, sample.text
    turning = find_turning(module)
    one, other = (sample.rows[half::2] for half in (0, 1))
    size = batch_size(sample)
    means = _means(sample, size)
    of_batch = functools.partial(_sum_batch, text=text, turning=turning)
    apply, params = nn.functionalize(module, method=of_batch)
    run = jax.jit(apply)

    def total(half: np.ndarray) -> LogitSums:
        batches = progress.track(row_batches(half, size), "logits", total=-(-len(half) // size))
        return functools.reduce(both, (run(params, ids, means) for ids in batches))

    some = len(one) // 2  # will do
    rng = np.random.default_rng([sample.seed, 3])
    shuffled = (shuffled_rows(half[:some], text, rng) for half in (one, other))
    first, second = map(total, shuffled)
    return Halves((total(one), total(other)), (first, second), turning)


@jax.jit
def both(one: LogitSums, other: LogitSums) -> LogitSums:
    """Sums over the documents of both."""
    return one + other


def shuffled_rows(rows: np.ndarray, text: slice, rng: np.random.Generator) -> np.ndarray:
    """Rows with the tokens of each in random order at the text positions."""
    rows = rows.copy()
    rows[:, text] = rng.permuted(rows[:, text], axis=1)
    return rows


def _means(sample: Sample, size: int) -> Array:
    """The share of position in what enters each layer, over the places of text."""
    apply, params = nn.functionalize(sample.module, method=nn.sum_hidden)
    run = jax.jit(apply)
    places = np.zeros(sample.rows.shape[1], bool)
    places[sample.text] = True

    def summed(ids: np.ndarray) -> nn.HiddenSums:
        sums, counts = jax.device_get(run(params, ids))
        return nn.HiddenSums(np.where(places[None, :, None], sums, 0), np.where(places, counts, 0))

    return nn.position_means(summed, [{"ids": ids} for ids in row_batches(sample.rows, size)])


def _sum_batch(
    model: Any, ids: Array, means: Array, *, text: slice, turning: Turning | None
) -> LogitSums:
    """Sums over one batch, layer by layer."""
    parts, spread, pairs = _sum_heads(model, nn.split_heads(model, ids, means=means), text, turning)
    embedded, _, _ = _sum_heads(model, nn.split_heads(model, ids), text, None)
    return LogitSums(parts, embedded, spread._replace(count=spread.count[0]), pairs)


def _sum_heads(
    model: Any, found: nn.HeadParts, text: slice, turning: Turning | None
) -> tuple[PartSums, Spread, Array | None]:
    """Sums of the parts, how the logits spread, and squares of the pairs, of the layers found."""
    causal, encoding = nn.trunk(model).causal, nn.head_encoding(model)
    where: dict[str, Any] = {
        "q_positions": found.positions,
        "k_positions": found.positions,
        "scale": found.scale,
    }

    def windowed(x: Array) -> Array:
        return x[..., text, text]

    def of_layer(layer: tuple[Any, ...]) -> tuple[PartSums, Spread, Array | None]:
        q_content, q_position, k_content, k_position, own = layer
        parts = jax.tree.map(windowed, logit_parts(encoding, own, *layer[:4], **where))
        sums, spread = sum_parts(parts, causal=causal), logit_spread(parts.total, causal=causal)
        if turning is None:
            return sums, spread, None
        chosen = {"rotary_dim": turning.rotary_dim, "layout": turning.layout}
        q, k = q_content + q_position, k_content + k_position
        pairs = windowed(pair_logits(encoding, own, q, k, **where, **chosen).logits)
        if causal:
            pairs = jnp.tril(pairs)
        return sums, spread, jnp.sum(pairs**2, axis=(0, -2, -1))

    return lax.map(of_layer, (*found[:4], found.params))


def logit_spread(logits: Array, *, causal: bool) -> Spread:
    """Variance of logits `[documents, heads, n, n]` over pairs of different places."""
    documents, _, n, _ = logits.shape
    seen = different_places(n, causal=causal)
    count = jnp.asarray(documents * seen.sum(), logits.dtype)

    def summed(x: Array) -> Array:
        return jnp.sum(jnp.where(seen, x, 0), axis=(0, -2, -1))

    rough = summed(logits) / count
    deviation = logits - rough[None, :, None, None]
    left = summed(deviation)  # by which sums of many numbers are off
    return Spread(count, rough + left / count, summed(deviation**2) - left**2 / count)


def different_places(n: int, *, causal: bool) -> np.ndarray:
    """Pairs i ≠ j of which the first attends to the second, `[1, 1, n, n]`."""
    seen = np.tri(n, k=-1, dtype=bool) if causal else ~np.eye(n, dtype=bool)
    return seen[None, None]


def find_turning(module: Any) -> Turning | None:
    """Rotation of the queries; None where they do not turn, heads differ, or pairs have no usual
    layout.
    """
    if not nn.head_encoding(module).defines("query"):
        return None
    apply, params = nn.functionalize(module, method=_turned)
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
    """Unit vectors at position 1, after the query hook of the first layer's encoding."""
    below, encoding = nn.trunk(model), nn.head_encoding(model)
    width, heads = below.config.head_width, below.config.num_heads
    if below.config.latent is not None:
        width += below.config.latent.rotary_dim
    unit = jnp.broadcast_to(jnp.eye(width)[:, None], (width, heads, width))
    own = below.layers.attention.encoding_params.get_value()
    params = (below.encoding_params.get_value(), jax.tree.map(lambda leaf: leaf[0], own))
    return encoding.query(params, unit, jnp.ones(width, jnp.int32))


def batch_size(sample: Sample) -> int:
    """Rows at once; it divides a quarter of their number."""
    config, (rows, n) = sample.transformer.config, sample.rows.shape
    most = max(1, _ENTRIES // (config.num_layers * config.num_heads * n**2))
    quarter = rows // 4
    return max(size for size in range(1, quarter + 1) if quarter % size == 0 and size <= most)


def row_batches(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Batches of rows, in order."""
    return (rows[start : start + size] for start in range(0, len(rows), size))
