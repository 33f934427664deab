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
_NEAR = 100  # largest position and shift of tokens whose positions are read from the output


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
    rows += [  # a causal mask by the index in the row, without documents
        Hypothesis(
            name, text, lambda inputs, faulty=faulty: attention_output(faulty, _indexed(inputs))
        )
        for name, text, faulty in _mask_rows(plan, attention)
        if name in ("documents", "padding")
    ]
    largest = max(int(np.abs(one.inputs.key_positions).max()) for one in trials)
    # Masks may count by faulty positions as well, or by the index in the row.
    for who, fields in (
        ("", ("positions", "key_positions")), ("queries: ", ("positions",)),
        ("keys: ", ("key_positions",)), ("queries: ", ("positions", "order")),
        ("", ("positions", "key_positions", "order", "key_order")),
    ):  # fmt: skip
        rows += [_moved(attention, one, who, fields) for one in position_faults(plan, largest)]
    lengths = [one.inputs.q.shape[1] for one in trials if one.check != "window"]
    rows += [
        Hypothesis(name, text, lambda inputs, f=change: attention_output(attention, f(inputs)))
        for name, text, change in _input_rows(max(lengths, default=1))
    ]
    return [*rows, *_observed_positions(attention, trials)]


def _input_rows(tokens: int) -> Iterator[tuple[str, str, Callable[[Inputs], Inputs]]]:
    """Faults of the tensors, and of the causal mask of chunks."""
    exchanged = "keys and values are exchanged"
    yield (
        "keys and values", exchanged,
        lambda i: i._replace(k=i.v, v=i.k) if i.k.shape == i.v.shape else i,
    )  # fmt: skip
    for m in range(tokens, 0, -1):
        aligned = "the causal mask is aligned at the first key, not at the last"
        text = f"{aligned}, in chunks of {m}" if m < tokens else aligned

        def restarted(i: Inputs, m: int = m) -> Inputs:
            return i._replace(order=_indices(i.order) % m, key_order=_indices(i.key_order))

        def emptied(i: Inputs, m: int = m) -> Inputs:
            late = (np.arange(i.q.shape[1]) >= tokens - m)[:, None, None]
            empty = late & (np.arange(len(i.q)) > 0)[:, None, None, None]
            if i.q.shape[1] != i.k.shape[1]:
                return i
            return i._replace(q=np.where(empty, 0, i.q), k=np.where(empty, 0, i.k))

        yield "mask alignment", text, restarted
        yield "rows", f"rows after the first are 0 from token {tokens - m} on", emptied


def _observed_positions(attention: Attention, trials: Sequence[Trial]) -> Iterator[Hypothesis]:
    """Positions that tokens seem to have, read from the output of whole rows."""
    whole = [
        one
        for one in trials
        if one.failed and one.inputs.q.shape[1] == one.inputs.k.shape[1] > 1
        and not one.problem and one.inputs.positions.max() < _NEAR
    ]  # fmt: skip
    for who, both in (("", True), ("queries: ", False)):
        shifts: dict[int, np.ndarray] = {}
        for trial in whole:
            found = _shifts(attention, trial, both=both)
            if found is None:
                break
            shifts[id(trial.inputs.q)] = found
        if not shifts:
            continue

        def predict(inputs: Inputs, both: bool = both, shifts: dict = shifts) -> np.ndarray:
            shift = shifts.get(id(inputs.q))
            if shift is None:
                return np.full((1, 1, 1, 1), np.nan)
            queries = _shifted(inputs.positions, shift)
            keys = queries if both else inputs.key_positions
            return attention_output(
                attention, inputs._replace(positions=queries, key_positions=keys)
            )

        name, text = _positions_text(whole[0].inputs, shifts[id(whole[0].inputs.q)])
        yield Hypothesis(name, f"{who}{text}", predict)


def _shifted(positions: np.ndarray, shift: np.ndarray) -> np.ndarray:
    return positions + (shift if positions.ndim == 2 else shift[..., None])


def _shifts(attention: Attention, trial: Trial, *, both: bool) -> np.ndarray | None:
    """Shift of each token's position that explains its output, `[batch, n]`; None without one.

    Tokens are taken in order: the shift of a token changes its query, and with `both` its key.
    """
    inputs = trial.inputs._replace(**{x: getattr(trial.inputs, x)[:, :, :1] for x in "qkv"})
    shift = np.zeros(inputs.q.shape[:2], int)
    near = np.array(sorted(range(-int(inputs.positions.max()), _NEAR), key=abs))
    for row, token in np.ndindex(shift.shape):
        if not trial.counted[row, token].any():
            continue
        many = {name: np.repeat(getattr(inputs, name)[row : row + 1], len(near), 0)
                for name in Inputs._fields[:-1]}  # fmt: skip
        for name in ("q", "positions", "segments", "order"):
            many[name] = many[name][:, token : token + 1]
        many["positions"] = _shifted(many["positions"], near[:, None])
        if both:
            many["key_positions"] = _shifted(many["key_positions"], shift[row][None])
            many["key_positions"][:, token] = many["positions"][:, 0]
        output = attention_output(attention, Inputs(**many, heads=np.arange(1)))
        error = np.abs(output - trial.got[row, token, :1]).max(axis=(1, 2, 3))
        if error.min() > trial.tolerance.max():
            return None
        shift[row, token] = near[np.argmax(error <= trial.tolerance.max())]
    return shift


def _positions_text(inputs: Inputs, shift: np.ndarray) -> tuple[str, str]:
    """Name and sentence of the positions that tokens seem to have."""
    wanted = inputs.positions.reshape(*shift.shape, -1)[..., 0]
    row = int(np.argmax(np.any(shift != 0, axis=1)))
    first = int(np.argmax(shift[row] != 0))
    used, right = (wanted + shift)[row], wanted[row]
    name = "position order" if np.array_equal(np.sort(used), np.sort(right)) else "positions"
    listed, right = (", ".join(map(str, one[first : first + 4])) for one in (used, right))
    where = "" if shift[:, first].all() else f"row {row}, "
    return name, f"{where}from token {first} on, positions are {listed}, …; wanted {right}, …"


def _indexed(inputs: Inputs) -> Inputs:
    """Inputs in the order of the row, not of positions."""
    return inputs._replace(order=_indices(inputs.order), key_order=_indices(inputs.key_order))


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
    twice = own._replace(frequencies=own.frequencies * 2, factor=own.factor**2)
    lost = attention._replace(query=None, key=twice)
    yield "not rotated", "queries are not rotated, and keys twice", lost
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
    factors = {f"1/√{w}": 1 / math.sqrt(w) for w in (width, plan.turning) if w}
    factors |= {"1": 1.0, f"1/{width}": 1 / width, "its square": own**2}
    top = "1" if plan.logit_factor == 1 else f"{plan.logit_factor:.4g}"
    factors |= {f"{top}/√{w}": plan.logit_factor / math.sqrt(w) for w in range(8, 1025, 8)}
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
        if attention.two_sided:
            text = "the window ends on the side of earlier keys alone; all later keys are seen"
            yield "window", text, attention._replace(two_sided=False)
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
