"""Known faults of attention, as what each does to the reference."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxpe.conformance.diagnosis import Hypothesis, Trial
from jaxpe.conformance.faults import (
    PositionFault,
    moved_positions,
    position_faults,
    rotation_faults,
)
from jaxpe.conformance.reference import (
    T5,
    Alibi,
    Attention,
    Inputs,
    Rotation,
    attention_output,
    entry_pairs,
    offset_buckets,
    published_slopes,
)
from jaxpe.rope import LayerPlan

_Row = tuple[str, str, Attention]  # name, sentence, attention


def attention_hypotheses(
    plan: LayerPlan, attention: Attention, trials: Sequence[Trial]
) -> list[Hypothesis]:
    """Known faults of a layer's attention, as predictions of its output."""
    tables = (_mask_rows, _head_rows, _bias_rows, _rotation_rows)
    rows = [
        Hypothesis(name, text, lambda inputs, faulty=faulty: attention_output(faulty, inputs))
        for table in tables
        for name, text, faulty in table(plan, attention)
    ]
    largest = max(int(np.abs(one.inputs.key_positions).max()) for one in trials)
    tokens = max(one.inputs.q.shape[1] for one in trials if one.check != "window") if trials else 0
    faults = [*position_faults(plan, largest), *_late_faults(tokens)]
    for who, fields in (
        ("", ("positions", "key_positions")), ("queries: ", ("positions",)),
        ("keys: ", ("key_positions",)),
    ):  # fmt: skip
        rows += [_moved(attention, fault, who, fields) for fault in faults]
    rows += [
        Hypothesis(
            "mask alignment", "the causal mask is aligned at the first key, not at the last",
            lambda inputs: attention_output(attention, inputs._replace(
                order=_indices(inputs.order), key_order=_indices(inputs.key_order))),
        )
    ]  # fmt: skip
    return rows


def _indices(order: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.arange(order.shape[1]), order.shape)


def _moved(
    attention: Attention, fault: PositionFault, who: str, fields: tuple[str, ...]
) -> Hypothesis:
    """Attention with faulty positions of queries, keys or both."""

    def predict(inputs: Inputs) -> np.ndarray:
        moved = {name: moved_positions(fault, getattr(inputs, name)) for name in fields}
        return attention_output(attention, inputs._replace(**moved))

    within = {check: (name, f"{who}{text}") for check, (name, text) in fault.within.items()}
    return Hypothesis(fault.name, f"{who}{fault.text}", predict, within)


def _late_faults(tokens: int) -> Iterator[PositionFault]:
    """Faults that begin at a token, as where a prompt ends and decoding begins."""
    changes: tuple[tuple[str, str, Callable[..., Any]], ...] = (
        ("decode position", "have position 0", lambda p, m: p * 0),
        ("decode position", "count positions from 0 again", lambda p, m: p - p[:, m : m + 1]),
        ("off by one", "have positions 1 too large", lambda p, m: p + 1),
        ("off by one", "have positions 1 too small", lambda p, m: p - 1),
        ("decode position", "all have the position of the first of them",
         lambda p, m: np.broadcast_to(p[:, m : m + 1], p.shape)),
        ("rows", "have the positions of row 0", lambda p, m: np.broadcast_to(p[:1], p.shape)),
    )  # fmt: skip
    for m in range(1, tokens):
        for name, text, change in changes:

            def late(p: np.ndarray, m: int = m, change: Callable[..., Any] = change) -> np.ndarray:
                after = np.arange(p.shape[1]) >= m
                return np.where(after, change(p, min(m, p.shape[1] - 1)), p)

            yield PositionFault(name, f"tokens from index {m} on {text}", late)


def _rotation_rows(plan: LayerPlan, attention: Attention) -> Iterator[_Row]:
    own = attention.query
    if own is None:
        yield from _needless_rotation(plan, attention)
        return
    for name, text, faulty in rotation_faults(plan, own):
        who = "queries and keys"
        yield name, f"{who} {text}", attention._replace(query=faulty, key=faulty)
    for name, text, faulty in rotation_faults(plan, own):
        sides = (
            ("queries", "keys", attention._replace(query=faulty)),
            ("keys", "queries", attention._replace(key=faulty)),
        )
        for who, other, one_sided in sides:
            yield name, f"{who} {text}; {other} are right", one_sided
    if plan.head_dim == own.head_dim:
        yield "values rotated", "values are rotated, too", attention._replace(value=own)
    if attention.query_scaling is not None:
        text = "queries are not scaled by their position"
        yield "query scaling", text, attention._replace(query_scaling=None)


def _needless_rotation(plan: LayerPlan, attention: Attention) -> Iterator[_Row]:
    """Rotation of a layer that has none."""
    width = plan.head_dim
    for pairing in ("half", "interleaved"):
        pairs = entry_pairs(width - width % 2, 0, pairing)
        for base in (1e4, 1e5, 5e5, 1e6, 1e7):
            powers = base ** (-2 * np.arange(len(pairs)) / width)
            turned = Rotation(width, pairs, np.stack([powers] * 2, 1), np.zeros(len(pairs), int))
            text = f"queries and keys are rotated (base {base:,.0f}); this layer has no rotation"
            yield "needless rotation", text, attention._replace(query=turned, key=turned)


def _head_rows(plan: LayerPlan, attention: Attention) -> Iterator[_Row]:
    """Faults of heads and of the scale."""
    heads, count = len(attention.groups), int(attention.groups.max()) + 1
    group = heads // count
    if 1 < count < heads:
        tiled = np.arange(heads) % count
        text = f"head h of queries uses keys of head h mod {count}; wanted h // {group}"
        yield "grouped heads", text, attention._replace(groups=tiled)
    if count > 1:
        first = np.zeros(heads, int)
        yield "grouped heads", "all heads use the first keys", attention._replace(groups=first)
        turned = attention._replace(groups=attention.groups[::-1])
        yield "grouped heads", "heads of keys are in reverse order", turned
    own, width = attention.scale, plan.head_dim
    widths = {width, plan.turning, width - plan.turning, width // 2, 2 * width} - {0}
    factors = {f"1/√{w}": 1 / math.sqrt(w) for w in sorted(widths)}
    factors |= {"1": 1.0, f"1/{width}": 1 / width, "its square": own**2}
    factors |= {"without the plan's factor": own / plan.logit_factor}
    for text, factor in factors.items():
        if not math.isclose(factor, own):
            sentence = f"logits are scaled by {text}; wanted {own:.4g}"
            yield "scale", sentence, attention._replace(scale=factor)
    if attention.softcap:
        yield "softcap", "logits are not capped", attention._replace(softcap=None)
    if attention.sinks is not None:
        yield "sinks", "sinks take no attention", attention._replace(sinks=None)


def _mask_rows(plan: LayerPlan, attention: Attention) -> Iterator[_Row]:
    """Faults of windows, the causal mask, documents and padding."""
    window = attention.window
    if window is not None:
        no_window = attention._replace(window=None, chunked=False)
        yield "no window", f"a query sees all keys; wanted {window:,}", no_window
        sizes = {window - 1, window + 1, window // 2, 2 * window, window + 2} - {0}
        for size in sorted(sizes):
            text = f"a query sees {size:,} keys, itself included; wanted {window:,}"
            yield "window", text, attention._replace(window=size)
        text = "the window is a chunk" if not attention.chunked else "the window slides"
        yield "window", text, attention._replace(chunked=not attention.chunked)
    else:
        for size in (*range(1, 16), *(2**k for k in range(4, 13))):
            text = f"a query sees {size:,} keys; this layer has no window"
            yield "needless window", text, attention._replace(window=size)
    text = "queries see later keys" if attention.causal else "queries do not see later keys"
    yield "causal mask", text, attention._replace(causal=not attention.causal)
    seen = attention._replace(documents=False)
    yield "documents", "documents of a row look at each other", seen
    yield "padding", "padding is attended to", attention._replace(padding=False)
    yield (
        "padding", "padding and other documents are attended to",
        attention._replace(padding=False, documents=False),
    )  # fmt: skip


def _bias_rows(plan: LayerPlan, attention: Attention) -> Iterator[_Row]:
    """Faults of ALiBi's slopes and of T5's buckets."""
    bias = attention.bias
    if bias is None:
        return
    yield "no bias", "there is no bias", attention._replace(bias=None)
    scaled = _changed(bias, lambda out: attention.scale * out)
    yield "bias scaled", "the bias is scaled like q·k", attention._replace(bias=scaled)
    negative = _changed(bias, np.negative)
    yield "bias sign", "the bias has the other sign", attention._replace(bias=negative)
    by_index = _by_index(bias)
    yield "bias index", "the bias counts tokens, not positions", attention._replace(bias=by_index)
    reverse = _changed(bias, lambda out: out[:, ::-1])
    yield "bias heads", "the bias has the heads in reverse order", attention._replace(bias=reverse)
    rows = _alibi_rows(bias) if isinstance(bias, Alibi) else ()
    rows = _t5_rows(bias, plan.head_dim) if isinstance(bias, T5) else rows
    for name, text, faulty in rows:
        yield name, text, attention._replace(bias=faulty)


def _changed(bias: Any, change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda positions, key_positions: change(bias(positions, key_positions))


def _by_index(bias: Any) -> Callable[..., np.ndarray]:
    return lambda positions, keys: bias(
        _indices(positions) + keys.shape[1] - positions.shape[1], _indices(keys)
    )


def _alibi_rows(bias: Alibi) -> Iterator[tuple[str, str, Any]]:
    heads = len(bias.slopes)
    simple, lower = 2.0 ** (-8 * np.arange(1, heads + 1) / heads), 2 ** int(math.log2(heads))
    for text, slopes in (
        (f"2^(−8h/{heads}) from h = 0; wanted from h = 1", simple * 2 ** (8 / heads)),
        (f"2^(−8h/{heads}) for all heads; wanted the published rule", simple),
        ("those of the next power of two", published_slopes(2 * lower)[:heads]),
        ("those of the lower power of two, repeated", np.resize(published_slopes(lower), heads)),
        ("all equal to the first", np.full(heads, bias.slopes[0])),
        ("sorted", np.sort(bias.slopes)[::-1]),
        ("halved", bias.slopes / 2), ("doubled", bias.slopes * 2),
    ):  # fmt: skip
        yield "slopes", f"the slopes are {text}", Alibi(slopes)


def _t5_rows(bias: T5, head_dim: int) -> Iterator[tuple[str, str, Any]]:
    kind = "encoder" if bias.bidirectional else "decoder"
    other = bias._replace(bidirectional=not bias.bidirectional)
    yield "bucket direction", f"the buckets are not those of the {kind}", other
    mirrored = bias._replace(bucket_function=lambda o, *sizes: offset_buckets(-o, *sizes))
    yield "bucket sign", "offsets have the other sign", mirrored
    for distance in (16, 20, 32, 64, 127, 128, 129, 256, 512, 800, 1024):
        if distance not in (bias.max_distance, *range(len(bias.table) // 2 + 1)):
            text = f"the largest distance is {distance}; wanted {bias.max_distance}"
            yield "bucket distance", text, bias._replace(max_distance=distance)
    for shift in (1, -1):
        moved = bias._replace(
            bucket_function=lambda o, *sizes, shift=shift: offset_buckets(o + shift, *sizes)
        )
        yield "bucket offset", "offsets are off by one", moved
    linear = bias._replace(bucket_function=lambda o, n, *rest: np.clip(np.abs(o), 0, n - 1))
    yield "buckets", "each offset has a bucket of its own", linear
