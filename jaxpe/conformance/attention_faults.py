"""Known faults of attention, as what each does to the reference."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxpe.conformance.diagnosis import Hypothesis, Trial
from jaxpe.conformance.faults import (
    Changes,
    fitted_bases,
    moved,
    position_faults,
    rotation_faults,
)
from jaxpe.conformance.reference import (
    T5,
    Alibi,
    Attention,
    Inputs,
    offset_buckets,
    plan_rotation,
    published_slopes,
    turned,
)
from jaxpe.plans import LayerPlan, simple_plan

_NEAR = 100  # largest position and shift of tokens whose positions are read from the output
_SIDES = (  # masks may count by faulty positions as well
    ("", ("positions", "key_positions")), ("queries: ", ("positions",)),
    ("keys: ", ("key_positions",)), ("queries: ", ("positions", "order")),
    ("", ("positions", "key_positions", "order", "key_order")),
)  # fmt: skip


def attention_hypotheses(
    plan: LayerPlan, attention: Attention, trials: Sequence[Trial]
) -> Iterator[Hypothesis]:
    """Known faults of a layer's attention, as predictions of its output; slow ones come last."""
    for table in (_mask_faults, _head_faults, _bias_faults, _rotation_faults):
        for name, text, changes in table(plan, attention):
            one = Hypothesis(name, text, attention._replace(**changes))
            yield one
            if name in ("documents", "padding"):
                yield one._replace(predict=_after(_indexed, one.predict))
    largest = max(int(np.abs(one.inputs.key_positions).max()) for one in trials)
    faults = position_faults(plan, largest)
    yield from (moved(attention, fault, fields, who) for who, fields in _SIDES for fault in faults)
    lengths = [one.inputs.q.shape[1] for one in trials if one.check != "window"]
    for name, text, change in _input_faults(attention, max(lengths, default=1)):
        yield Hypothesis(name, text, _after(change, attention))
    if attention.query is not None:
        for name, text, both in fitted_bases(plan, attention.query, trials, attention.rotated):
            yield Hypothesis(name, f"queries and keys {text}", attention.rotated(both))
    yield from _observed_positions(attention, trials)


def _after(change: Callable[[Inputs], Inputs], model: Callable[..., Any]) -> Callable[..., Any]:
    return lambda inputs: model(change(inputs))


def _indices(positions: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.arange(positions.shape[1]), positions.shape)


def _indexed(inputs: Inputs) -> Inputs:
    """Inputs in the order of the row, not of positions."""
    return inputs._replace(order=_indices(inputs.order), key_order=_indices(inputs.key_order))


def _input_faults(
    attention: Attention, tokens: int
) -> Iterator[tuple[str, str, Callable[[Inputs], Inputs]]]:
    """Faults of the tensors, and of the causal mask of chunks."""

    def exchanged(i: Inputs) -> Inputs:
        return i._replace(k=i.v, v=i.k) if i.k.shape == i.v.shape else i

    def rotated(i: Inputs) -> Inputs:
        same = i.k.shape == i.v.shape
        return i._replace(v=turned(attention.key, i.v, i.key_positions)) if same else i

    yield "keys and values", "keys and values are exchanged", exchanged
    yield "values rotated", "values are rotated, too", rotated
    aligned = "the causal mask is aligned at the first key, not at the last"
    for m in range(tokens, 0, -1):

        def restarted(i: Inputs, m: int = m) -> Inputs:
            return i._replace(order=_indices(i.order) % m, key_order=_indices(i.key_order))

        def emptied(i: Inputs, first: int = tokens - m) -> Inputs:
            late = (np.arange(i.q.shape[1]) >= first) & (np.arange(len(i.q)) > 0)[:, None]
            empty = late[:, :, None, None] & (i.q.shape[1] == i.k.shape[1])
            return i._replace(q=np.where(empty, 0, i.q))

        yield "mask alignment", f"{aligned}, in chunks of {m}" if m < tokens else aligned, restarted
        yield "rows", f"rows after the first are 0 from token {tokens - m} on", emptied


def _observed_positions(attention: Attention, trials: Sequence[Trial]) -> Iterator[Hypothesis]:
    """Positions that tokens seem to have, read from the output of whole rows."""
    whole = [
        one
        for one in trials
        if one.failed and one.inputs.q.shape[1] == one.inputs.k.shape[1] > 1
        and not one.problem and one.inputs.positions.max() < _NEAR
    ]  # fmt: skip
    for who, both in (("", 1), ("queries: ", 0)):
        found = {id(one.inputs.q): _shifts(attention, one, both) for one in whole}
        if not whole or (first := found[id(whole[0].inputs.q)]) is None:
            continue

        def predict(inputs: Inputs, both: int = both, found: dict = found) -> np.ndarray:
            shift = found.get(id(inputs.q))
            if shift is None:
                return np.full((1, 1, 1, 1), np.nan)
            return attention(_shifted(inputs, shift, both * shift))

        name, text = _positions_text(whole[0].inputs, first)
        yield Hypothesis(name, f"{who}{text}", predict)


def _shifted(inputs: Inputs, queries: np.ndarray, keys: np.ndarray) -> Inputs:
    """Inputs whose positions are larger by the shifts of each token, `[batch, n]`."""
    axes = [1] * (inputs.positions.ndim - 2)
    return inputs._replace(
        positions=inputs.positions + queries.reshape(*queries.shape, *axes),
        key_positions=inputs.key_positions + keys.reshape(*keys.shape, *axes),
    )


def _shifts(attention: Attention, trial: Trial, both: int) -> np.ndarray | None:
    """Shift of each token's position that explains its output, `[batch, n]`; None without one.

    Tokens are taken in order: the shift of a token changes its query, and if `both` is 1 its key.
    """
    inputs, shift = trial.inputs, np.zeros(trial.inputs.q.shape[:2], int)
    near = np.array(sorted(range(-int(inputs.positions.max()), _NEAR), key=abs))
    for row, token in np.argwhere(trial.counted[:, :, 0, 0]):
        many = [np.broadcast_to(x[row], (len(near), *x.shape[1:])) for x in inputs[:-1]]
        keys = np.tile(shift[row], (len(near), 1))
        keys[:, token] = near
        tried = Inputs(*many, heads=np.arange(1)).part(slice(token, token + 1))
        output = attention(_shifted(tried, near[:, None], both * keys))
        error = np.abs(output - trial.got[row, token, :1]).max(axis=(1, 2, 3))
        if error.min() > trial.tolerance.max():
            return None
        shift[row, token] = near[np.argmax(error <= trial.tolerance.max())]
    return shift


def _positions_text(inputs: Inputs, shift: np.ndarray) -> tuple[str, str]:
    """Name and sentence of the positions that tokens seem to have."""
    row = int(np.argmax(np.any(shift != 0, axis=1)))
    first = int(np.argmax(shift[row] != 0))
    right = inputs.positions.reshape(*shift.shape, -1)[row, :, 0]
    used = right + shift[row]
    name = "position order" if np.array_equal(np.sort(used), np.sort(right)) else "positions"
    listed, wanted = (", ".join(map(str, one[first : first + 4])) for one in (used, right))
    where = "" if shift[:, first].all() else f"row {row}, "
    return name, f"{where}from token {first} on, positions are {listed}, …; wanted {wanted}, …"


def _rotation_faults(plan: LayerPlan, attention: Attention) -> Iterator[Changes]:
    own = attention.query
    for base in (1e4, 1e5, 5e5, 1e6, 1e7) if own is None else ():
        text = f"queries and keys are rotated (base {base:,.0f}); this layer has no rotation"
        for pairing in ("half", "interleaved"):
            needless = simple_plan(head_dim=plan.head_dim // 2 * 2, base=base, pairing=pairing)
            turning = plan_rotation(needless)
            yield "needless rotation", text, {"query": turning, "key": turning}
    faults = [] if own is None else rotation_faults(plan, own)
    for name, text, faulty in faults:
        yield name, f"queries and keys {text}", {"query": faulty, "key": faulty}
    for name, text, faulty in faults:
        yield name, f"queries {text}; keys are right", {"query": faulty}
        yield name, f"keys {text}; queries are right", {"key": faulty}
        if name == "rotated twice":
            lost = "queries are not rotated, and keys twice"
            yield "not rotated", lost, {"query": None, "key": faulty}


def _head_faults(plan: LayerPlan, attention: Attention) -> list[Changes]:
    """Faults of heads and of the scale."""
    heads, count = len(attention.groups), int(attention.groups.max()) + 1
    tiled = f"head h of queries uses keys of head h mod {count}; wanted h // {heads // count}"
    own, width, top = attention.scale, plan.head_dim, plan.logit_factor
    factors = {f"1/√{w}": 1 / math.sqrt(w) for w in (width, plan.turning) if w}
    factors |= {"1": 1.0, f"1/{width}": 1 / width, "its square": own**2}
    factors |= {f"{top:.4g}/√{w}": top / math.sqrt(w) for w in range(8, 1025, 8)}
    return [
        ("grouped heads", tiled, {"groups": np.arange(heads) % count}),
        ("grouped heads", "all heads use the first keys", {"groups": 0 * attention.groups}),
        ("grouped heads", "heads of keys are in reverse order", {"groups": attention.groups[::-1]}),
        *(("scale", f"logits are scaled by {text}; wanted {own:.4g}", {"scale": factor})
          for text, factor in factors.items()),
        ("softcap", "logits are not capped", {"softcap": None}),
        ("sinks", "sinks take no attention", {"sinks": None}),
        ("query scaling", "queries are not scaled by their position", {"query_scaling": None}),
    ]  # fmt: skip


def _mask_faults(plan: LayerPlan, attention: Attention) -> list[Changes]:
    """Faults of windows, the causal mask, documents and padding."""
    window, chunked = attention.window, attention.chunked
    if window is None:
        rows: list[Changes] = [
            ("needless window", f"a query sees {size:,} keys; this layer has no window",
             {"window": size}) for size in (*range(1, 16), *(2**k for k in range(4, 13)))
        ]  # fmt: skip
    else:
        sizes = {window - 1, window + 1, window // 2, 2 * window, window + 2} - {0}
        later = "the window ends on the side of earlier keys alone; all later keys are seen"
        rows = [
            ("no window", f"a query sees all keys; wanted {window:,}", {"window": None}),
            *(("window", f"a query sees {size:,} keys, itself included; wanted {window:,}",
               {"window": size}) for size in sorted(sizes)),
            ("window", later, {"two_sided": False}),
            ("window", f"the window {'slides' if chunked else 'is a chunk'}",
             {"chunked": not chunked}),
        ]  # fmt: skip
    later = "queries see later keys" if attention.causal else "queries do not see later keys"
    return [
        *rows,
        ("causal mask", later, {"causal": not attention.causal}),
        ("documents", "documents of a row look at each other", {"documents": False}),
        ("padding", "padding is attended to", {"padding": False}),
        ("padding", "padding and other documents are attended to",
         {"padding": False, "documents": False}),
    ]  # fmt: skip


def _bias_faults(plan: LayerPlan, attention: Attention) -> list[Changes]:
    """Faults of biases, of ALiBi's slopes and of T5's buckets."""
    bias: Any = attention.bias
    if bias is None:
        return []

    def changed(change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
        return lambda positions, keys: change(bias(positions, keys))

    def by_index(positions: np.ndarray, keys: np.ndarray) -> np.ndarray:
        return bias(_indices(positions) + keys.shape[1] - positions.shape[1], _indices(keys))

    rows = [
        ("no bias", "there is no bias", None),
        ("bias scaled", "the bias is scaled like q·k", changed(lambda b: attention.scale * b)),
        ("bias sign", "the bias has the other sign", changed(np.negative)),
        ("bias index", "the bias counts tokens, not positions", by_index),
        (
            "bias heads",
            "the bias has the heads in reverse order",
            changed(lambda out: out[:, ::-1]),
        ),
        *(_slope_faults(bias) if isinstance(bias, Alibi) else ()),
        *(_bucket_faults(bias) if isinstance(bias, T5) else ()),
    ]
    return [(name, text, {"bias": faulty}) for name, text, faulty in rows]


def _slope_faults(bias: Alibi) -> list[tuple[str, str, Any]]:
    heads = len(bias.slopes)
    simple, lower = 2.0 ** (-8 * np.arange(1, heads + 1) / heads), 2 ** int(math.log2(heads))
    rows = (
        (f"2^(−8h/{heads}) from h = 0; wanted from h = 1", simple * 2 ** (8 / heads)),
        (f"2^(−8h/{heads}) for all heads; wanted the published rule", simple),
        ("for the next power of two of heads", published_slopes(2 * lower)[:heads]),
        ("for the lower power of two, repeated", np.resize(published_slopes(lower), heads)),
    )
    return [("slopes", f"the slopes are {text}", Alibi(faulty)) for text, faulty in rows]


def _bucket_faults(bias: T5) -> list[tuple[str, str, Any]]:
    kind = "an encoder" if bias.bidirectional else "a decoder"

    def bucketed(change: Callable[[np.ndarray], np.ndarray]) -> T5:
        return bias._replace(bucket_function=lambda o, *sizes: offset_buckets(change(o), *sizes))

    linear = bias._replace(bucket_function=lambda o, n, *rest: np.clip(np.abs(o), 0, n - 1))
    return [
        ("bucket direction", f"the buckets are for the other direction; this is {kind}",
         bias._replace(bidirectional=not bias.bidirectional)),
        ("bucket sign", "offsets have the other sign", bucketed(np.negative)),
        *(("bucket distance", f"the largest distance is {distance}; wanted {bias.max_distance}",
           bias._replace(max_distance=distance))
          for distance in (16, 20, 32, 64, 127, 128, 129, 256, 512, 800, 1024)
          if distance > len(bias.table) // 2),
        ("bucket offset", "offsets are off by one", bucketed(lambda o: o + 1)),
        ("bucket offset", "offsets are off by one", bucketed(lambda o: o - 1)),
        ("buckets", "each offset has a bucket of its own", linear),
    ]  # fmt: skip
