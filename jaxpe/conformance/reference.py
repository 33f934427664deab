"""Rotation and attention in float64 NumPy: what every implementation is compared with."""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.plans.programs.base import QueryScaling
from jaxpe.plans.result import LayerPlan

# Bias of attention from positions of queries and keys, `[batch, n]`: `[batch, heads, n_q, n_k]`.
Bias = Callable[[np.ndarray, np.ndarray], np.ndarray]


STEPS = ("positions", "frequencies", "phases", "cos and sin")  # of a rotation, each may round


class Rotation(NamedTuple):
    """Rotation of pairs of entries of a head.

    Attributes:
        pairs: first and second entry of each pair, `[half, 2]`.
        frequencies: radians per position, for both entries of a pair, `[half, 2]`.
        axes: axis of the positions of each pair, `[half]`, or of both its entries, `[half, 2]`.
        factor: factor on cos and sin.
        written: entries that the rotated pairs are written to; None for the same entries.
        signs: signs of sin in the first and the second entry.
        low: floating-point type of the steps in `rounded`.
        rounded: steps that are rounded, of `STEPS`.
    """

    pairs: np.ndarray
    frequencies: np.ndarray
    axes: np.ndarray
    factor: float = 1.0
    written: np.ndarray | None = None
    signs: tuple[int, int] = (-1, 1)
    low: type = np.float64
    rounded: tuple[str, ...] = ()

    def cos_sin(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines, with the factor, `[..., half, 2]`.

        Args:
            positions: positions, `[...]`, or `[..., axes]` for a plan with sections.
        """

        def step(name: str, values: np.ndarray) -> np.ndarray:
            values = values.astype(np.float64, copy=False)
            return values.astype(self.low).astype(np.float64) if name in self.rounded else values

        axes = self.axes if self.axes.ndim == 2 else self.axes[:, None]
        by_entry = positions[..., axes] if axes.any() else positions[..., None, None]
        frequencies = step("frequencies", self.frequencies)
        phases = step("phases", step("positions", by_entry) * frequencies)
        cos, sin = (step("cos and sin", self.factor * f(phases)) for f in (np.cos, np.sin))
        return cos, sin

    def __call__(self, inputs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Rotated heads of the inputs of one call, x and positions."""
        return self.turn(*inputs)

    def turn(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Rotated heads, (a cos − b sin, b cos + a sin) for each pair (a, b).

        Args:
            x: heads, `[batch, n, heads, head_dim]`.
            positions: positions, `[batch, n]` or `[batch, n, axes]`.
        """
        several = self.axes.max() > 0
        if positions.ndim == 3 and not several:
            positions = positions[..., 0]
        elif positions.ndim == 2 and several:
            positions = np.stack([positions] * (1 + self.axes.max()), -1)
        cos, sin = (one[:, :, None] for one in self.cos_sin(positions))
        (i, j), out = self.pairs.T, x.astype(np.float64)
        k, m = (self.pairs if self.written is None else self.written).T
        a, b = out[..., i], out[..., j]
        out[..., k] = a * cos[..., 0] + self.signs[0] * b * sin[..., 0]
        out[..., m] = b * cos[..., 1] + self.signs[1] * a * sin[..., 1]
        return out


def entry_pairs(turning: int, first: int, pairing: str) -> np.ndarray:
    """Entries of each pair, `[turning / 2, 2]`.

    Args:
        turning: number of rotated entries.
        first: index of the first rotated entry.
        pairing: "half" or "interleaved".

    >>> entry_pairs(4, 0, "half").tolist(), entry_pairs(4, 2, "interleaved").tolist()
    ([[0, 2], [1, 3]], [[2, 3], [4, 5]])
    """
    entries = first + np.arange(turning)
    return entries.reshape(2, -1).T if pairing == "half" else entries.reshape(-1, 2)


def plan_rotation(plan: LayerPlan) -> Rotation | None:
    """Rotation of a layer's heads; None for layers that do not rotate.

    Args:
        plan: plan of the layer, from `jaxpe.plans`.

    Raises:
        InputError: a plan without frequencies, such as of a tower that learns them, or sections
            that do not add up to the pairs.

    >>> from jaxpe.plans import simple_plan
    >>> plan_rotation(simple_plan(head_dim=4, base=100.0)).frequencies.tolist()
    [[1.0, 1.0], [0.1, 0.1]]
    """
    if plan.kind not in ("rotary", "axial"):
        return None
    axial = plan.kind == "axial"
    by_axis = [np.asarray(one) for one in (plan.frequencies if axial else [plan.frequencies])]
    half = sum(map(len, by_axis))
    if not half:
        reason = "the checkpoint learns them" if axial else "no program reads the configuration"
        raise InputError(f"the layers {plan.name} ({plan.kind}) have no frequencies: {reason}")
    # The zero frequencies of "proportional" pair over the whole head.
    width = plan.head_dim if plan.rope_type == "proportional" else 2 * half
    last = plan.place in ("last", "latent", "indexer, last") or plan.unit == "half base size"
    first = plan.head_dim - width if last else 0
    counts = [len(one) for one in by_axis] if axial else plan.sections
    order = plan.layout or plan.section_order
    pairs, axes = entry_pairs(width, first, plan.pairing or "half")[:half], section_axes(plan, half)
    frequencies = np.empty(half)
    for axis, values in enumerate(by_axis):
        frequencies[axes == axis if axial else ...] = values
    both = np.stack([frequencies, frequencies], 1)
    if order == "blocks":
        starts = itertools.accumulate([first, *(2 * count for count in counts)])
        blocks = zip(counts, starts, strict=False)
        pairs = np.concatenate([entry_pairs(2 * count, i, "half") for count, i in blocks])
    elif order == "crossed":  # the order of the other pairing
        repeat = np.repeat if plan.pairing == "half" else np.tile
        both = np.concatenate([repeat(values, 2) for values in by_axis])[pairs - first]
        axes = np.repeat(axes, 2)[pairs - first]
    elif order == "entries" and counts:
        axes = np.repeat(np.arange(len(counts)), np.array(counts, int) * 2)[pairs - first]
    return Rotation(pairs, both, axes, plan.attention_factor)


def section_axes(plan: LayerPlan, half: int) -> np.ndarray:
    """Axis of the positions of each pair, `[half]`: 0 for one axis.

    Raises:
        InputError: sections that do not add up to the pairs.
    """
    counts = plan.sections if plan.kind == "rotary" else [len(one) for one in plan.frequencies]
    order, pairs, axes = plan.layout or plan.section_order, np.arange(half), len(counts)
    if not axes:
        return np.zeros(half, int)
    if order == "alternating":
        return pairs % axes
    if order in ("interleaved", "mixed sections"):
        return np.where(pairs // axes < np.array(counts)[pairs % axes], pairs % axes, 0)
    if sum(counts) != half:
        raise InputError(f"the sections {counts} do not add up to {half} pairs")
    if order == "height and width first":
        return np.where(pairs < counts[0] + counts[1], 1 + pairs % 2, 0)
    return np.repeat(np.arange(axes), counts)


class Inputs(NamedTuple):
    """Arguments of one call of attention.

    Attributes:
        q: queries, `[batch, n_q, heads, head_dim]`.
        k: keys, `[batch, n_k, key_value_heads, head_dim]`.
        v: values, `[batch, n_k, key_value_heads, value_dim]`.
        positions: positions of queries, `[batch, n_q]` or `[batch, n_q, axes]`.
        key_positions: positions of keys.
        segments: document of each query, from 1; 0 for padding, `[batch, n_q]`.
        key_segments: document of each key.
        order: order of the queries for the causal mask, `[batch, n_q]`.
        key_order: order of the keys.
        heads: heads of queries whose output is computed; default: all.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    positions: np.ndarray
    key_positions: np.ndarray
    segments: np.ndarray
    key_segments: np.ndarray
    order: np.ndarray
    key_order: np.ndarray
    heads: np.ndarray | slice = slice(None)

    def part(self, queries: Any, keys: Any = slice(None)) -> "Inputs":
        """Inputs of some tokens, such as of a slice: queries and keys."""
        of_queries = ("q", "positions", "segments", "order")
        of_keys = ("k", "v", "key_positions", "key_segments", "key_order")
        chosen = dict.fromkeys(of_queries, queries) | dict.fromkeys(of_keys, keys)
        return self._replace(**{name: getattr(self, name)[:, at] for name, at in chosen.items()})


class Attention(NamedTuple):
    """Attention of one layer.

    Attributes:
        query: rotation of queries; None for none.
        key: rotation of keys.
        groups: head of keys and values of each head of queries, `[heads]`.
        scale: factor on q·k.
        window: positions that a query sees, itself included; None for all.
        two_sided: whether the window extends to both sides.
        chunked: whether the window is a chunk of the text, as in Llama 4.
        causal: whether a query sees no later position.
        bias: bias of the logits.
        softcap: c of c·tanh(logits / c); None for none.
        sinks: logit of each head that takes a share of attention and has no value, `[heads]`.
        query_scaling: factor on queries by position.
        documents: whether documents are masked from each other.
        padding: whether padding is masked.
        counts: how often each query sees each key, `[batch, n_q, n_k]`, from the inputs; None for
            once, where the fields above allow it.
    """

    query: Rotation | None
    key: Rotation | None
    groups: np.ndarray
    scale: float
    window: int | None = None
    two_sided: bool = False
    chunked: bool = False
    causal: bool = True
    bias: Bias | None = None
    softcap: float | None = None
    sinks: np.ndarray | None = None
    query_scaling: QueryScaling | None = None
    documents: bool = True
    padding: bool = True
    counts: Callable[[Inputs], np.ndarray] | None = None

    def rotated(self, rotation: Rotation | None) -> "Attention":
        """Attention with another rotation of queries and keys."""
        return self._replace(query=rotation, key=rotation)

    def __call__(self, inputs: Inputs) -> np.ndarray:
        """Output softmax(s·q·k + bias) v, `[batch, n_q, heads, value_dim]`; 0 if no key is seen."""
        seen = self.visible(inputs) if self.counts is None else self.counts(inputs)
        with np.errstate(divide="ignore"):
            logits = self.logits(inputs) + np.log(seen, dtype=np.float64)[:, None]
        sinks = np.full(len(self.groups), -np.inf) if self.sinks is None else self.sinks
        sinks = np.asarray(sinks, np.float64)[inputs.heads][:, None, None]
        top = np.maximum(np.maximum(logits.max(axis=-1, keepdims=True), sinks), -1e300)
        weights = np.exp(logits - top)
        total = weights.sum(axis=-1, keepdims=True) + np.exp(sinks - top)
        values = inputs.v[:, :, self.groups[inputs.heads]].transpose(0, 2, 1, 3)
        return (weights / np.maximum(total, 1e-300) @ values).transpose(0, 2, 1, 3)

    def logits(self, inputs: Inputs) -> np.ndarray:
        """Logits of all pairs, also of those that a mask leaves out, `[batch, heads, n_q, n_k]`."""
        heads = inputs.heads
        q = turned(self.query, inputs.q[:, :, heads], inputs.positions)
        k = turned(self.key, inputs.k[:, :, self.groups[heads]], inputs.key_positions)
        if self.query_scaling is not None:
            whole = np.maximum(inputs.order, 0).astype(object)
            factor = np.vectorize(self.query_scaling.at)(whole)
            q = q * factor[..., None, None]
        logits = self.scale * (q.transpose(0, 2, 1, 3) @ k.transpose(0, 2, 3, 1))
        if self.bias is not None:
            logits = logits + self.bias(inputs.positions, inputs.key_positions)[:, heads]
        return self.softcap * np.tanh(logits / self.softcap) if self.softcap else logits

    def visible(self, inputs: Inputs) -> np.ndarray:
        """Keys that each query sees, `[batch, n_q, n_k]`."""
        order, key_order = inputs.order[:, :, None], inputs.key_order[:, None]
        documents, key_documents = inputs.segments[:, :, None], inputs.key_segments[:, None]
        alike = (documents == key_documents) | (documents == 0) | (key_documents == 0)
        seen = (order >= key_order) | (not self.causal)
        seen = seen & (alike | (not self.documents)) & ((key_documents > 0) | (not self.padding))
        if self.window is None:
            return seen
        if self.chunked:
            return seen & (order // self.window == key_order // self.window)
        back = order - key_order
        return seen & (back < self.window) & ((-back < self.window) | (not self.two_sided))


def turned(rotation: Rotation | None, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Rotated heads in float64, or the heads themselves without a rotation."""
    return np.asarray(x, np.float64) if rotation is None else rotation.turn(x, positions)


def layer_attention(
    plan: LayerPlan, heads: int, key_value_heads: int, *, scale: float | None = None,
    causal: bool = True, **rest,
) -> Attention:  # fmt: skip
    """Attention of a plan's layer.

    Args:
        plan: plan of the layer.
        heads: number of heads of queries.
        key_value_heads: number of heads of keys and values; divides `heads`.
        scale: factor on q·k; default: the plan's factor over √head_dim.
        causal: whether a query sees no later position.
        **rest: other fields of `Attention`.

    Raises:
        InputError: heads that do not divide, or a plan of linear layers.
    """
    if heads < 1 or key_value_heads < 1 or heads % key_value_heads:
        raise InputError(
            f"key_value_heads must divide heads; got {key_value_heads} and {heads}, pass for "
            "example heads=8, key_value_heads=2"
        )
    if plan.kind == "linear":
        raise InputError(f"the layers {plan.name} have no attention; choose another group of plans")
    rotation = plan_rotation(plan)
    return Attention(
        rotation, rotation, np.arange(heads) // (heads // key_value_heads),
        plan.logit_factor / math.sqrt(plan.head_dim) if scale is None else scale,
        plan.window, plan.two_sided, plan.name == "chunked_attention" and plan.window is not None,
        causal, query_scaling=plan.query_scaling, **rest,
    )  # fmt: skip


class Alibi(NamedTuple):
    """Bias −m_h·|i − j| of ALiBi (Press et al. 2022).

    Attributes:
        slopes: slopes m_h, `[heads]`.
    """

    slopes: np.ndarray

    def __call__(self, positions: np.ndarray, key_positions: np.ndarray) -> np.ndarray:
        """Bias `[batch, heads, n_q, n_k]` for positions `[batch, n]`."""
        distances = np.abs(positions[:, :, None] - key_positions[:, None])
        return -self.slopes[:, None, None] * distances[:, None]


def offset_buckets(
    offsets: np.ndarray, buckets: int, max_distance: int, bidirectional: bool
) -> np.ndarray:
    """Bucket of T5 for each offset j − i, of the shape of `offsets`.

    >>> offset_buckets(np.array([0, -5, 5, -500]), 32, 128, True).tolist()
    [0, 5, 21, 15]
    """
    later = np.zeros_like(offsets)
    if bidirectional:
        buckets //= 2
        later = np.where(offsets > 0, buckets, 0)
    distance = np.abs(offsets) if bidirectional else np.maximum(-offsets, 0)
    exact = buckets // 2
    share = np.log(np.maximum(distance, 1) / exact) / math.log(max_distance / exact)
    # In float32, 7.9999999 becomes 8, which is what the formula means.
    widening = exact + (share.astype(np.float32) * np.float32(buckets - exact)).astype(int)
    return later + np.where(distance < exact, distance, np.minimum(widening, buckets - 1))


class T5(NamedTuple):
    """Learned bias of T5 by bucket of the offset (Raffel et al. 2020).

    Attributes:
        table: bias of each bucket and head, `[buckets, heads]`.
        max_distance: distance from which on all offsets share the last bucket.
        bidirectional: whether half of the buckets are for later keys, as in encoders.
        bucket_function: bucket of each offset j − i.
    """

    table: np.ndarray
    max_distance: int = 128
    bidirectional: bool = False
    bucket_function: Callable[..., np.ndarray] = offset_buckets

    def __call__(self, positions: np.ndarray, key_positions: np.ndarray) -> np.ndarray:
        """Bias `[batch, heads, n_q, n_k]` for positions `[batch, n]`."""
        offsets = (key_positions[:, None] - positions[:, :, None]).astype(int)
        sizes = len(self.table), self.max_distance, self.bidirectional
        return np.moveaxis(self.table[self.bucket_function(offsets, *sizes)], -1, 1)


def alibi_bias(heads: int) -> Alibi:
    """Bias of ALiBi with the published slopes.

    Args:
        heads: number of heads, at least 1.

    >>> alibi_bias(2)(np.array([[2]]), np.array([[0, 2]]))[0, :, 0].tolist()
    [[-0.125, -0.0], [-0.0078125, -0.0]]
    """
    return Alibi(published_slopes(heads))


def published_slopes(heads: int) -> np.ndarray:
    """Slopes of ALiBi for any number of heads, `[heads]`.

    >>> published_slopes(3).tolist()
    [0.0625, 0.00390625, 0.25]
    """
    lower = 2 ** int(math.log2(heads))
    own = 2.0 ** (-8 / lower * np.arange(1, lower + 1))
    return np.concatenate([own, 2.0 ** (-4 / lower * np.arange(1, 2 * (heads - lower), 2))])


def t5_bias(table: np.ndarray, *, max_distance: int = 128, bidirectional: bool = False) -> T5:
    """Learned bias of T5.

    Args:
        table: bias of each bucket and head, `[buckets, heads]`.
        max_distance: distance from which on all offsets share the last bucket.
        bidirectional: whether half of the buckets are for later keys, as in encoders.

    >>> t5_bias(np.arange(32.0)[:, None])(np.array([[20]]), np.array([[20, 15, 0, 30]])).ravel()
    array([ 0.,  5., 17.,  0.])
    """
    return T5(np.asarray(table, np.float64), max_distance, bidirectional)
