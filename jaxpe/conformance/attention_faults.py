"""Known faults of attention, as what each does to the reference."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
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
from jaxpe.plans import simple_plan
from jaxpe.plans.result import LayerPlan

_NEAR = 100  # largest position and shift of tokens whose positions are read from the output
_MANY = 32  # largest number of keys that are read from the output
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
    yield from _observed(attention, trials)


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

    def emptied(i: Inputs) -> Inputs:
        whole = i.q.shape[1] == i.k.shape[1]
        return i._replace(
            q=np.where(whole & (np.arange(len(i.q)) > 0)[:, None, None, None], 0, i.q)
        )

    yield "keys and values", "keys and values are exchanged", exchanged
    yield "values rotated", "values are rotated, too", rotated
    yield "rows", "rows after the first are 0", emptied
    aligned = "the causal mask is aligned at the first key, not at the last"
    for m in range(tokens, 0, -1):

        def restarted(i: Inputs, m: int = m) -> Inputs:
            return i._replace(order=_indices(i.order) % m, key_order=_indices(i.key_order))

        yield "mask alignment", f"{aligned}, in chunks of {m}" if m < tokens else aligned, restarted


_Reading = tuple[str, str, Callable[[Inputs], np.ndarray]]  # name, sentence, prediction


def _observed(attention: Attention, trials: Sequence[Trial]) -> Iterator[Hypothesis]:
    """Positions that tokens seem to have, and keys that queries seem to see, read from outputs."""
    whole = [
        one.numbers()
        for one in trials
        if one.failed and 1 < one.inputs.q.shape[1] <= one.inputs.k.shape[1] <= _MANY
        and not one.problem and one.inputs.positions.max() < _NEAR
    ]  # fmt: skip
    readers = [partial(_read_positions, who=who) for who in ("", "queries: ")]
    readers += [partial(_read_keys, shift=shift) for shift in (0, -1, 1)]
    for read in readers if whole else ():
        found = {id(one.inputs.q): read(attention, one) for one in whole}
        if (first := found[id(whole[0].inputs.q)]) is None:
            continue

        def predict(inputs: Inputs, found: dict[int, _Reading | None] = found) -> np.ndarray:
            reading = found.get(id(inputs.q))
            return np.full((1, 1, 1, 1), np.inf) if reading is None else reading[2](inputs)

        yield Hypothesis(*first[:2], predict)


def _shifted(inputs: Inputs, queries: np.ndarray, keys: np.ndarray) -> Inputs:
    """Inputs whose positions are larger by the shifts of each token, `[batch, n]`."""
    axes = [1] * (inputs.positions.ndim - 2)
    return inputs._replace(
        positions=inputs.positions + queries.reshape(*queries.shape, *axes),
        key_positions=inputs.key_positions + keys.reshape(*keys.shape, *axes),
    )


def _read_positions(attention: Attention, trial: Trial, who: str) -> _Reading | None:
    """Position of each token that explains its output, of its query, or of its key as well.

    Tokens are taken in order: the shift of a token changes its query, and its key if `who` is "".
    """
    inputs, shift, both = trial.inputs, np.zeros(trial.inputs.q.shape[:2], int), not who
    if inputs.q.shape[1] != inputs.k.shape[1]:
        return None
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
    row = int(np.argmax(np.any(shift != 0, axis=1)))
    first = int(np.argmax(shift[row] != 0))
    right = inputs.positions.reshape(*shift.shape, -1)[row, :, 0]
    used = right + shift[row]
    name = "position order" if np.array_equal(np.sort(used), np.sort(right)) else "positions"
    listed, wanted = (", ".join(map(str, one[first : first + 4])) for one in (used, right))
    where = "" if shift[:, first].all() else f"row {row}, "
    text = f"{who}{where}from token {first} on, positions are {listed}, …; wanted {wanted}, …"
    return name, text, lambda inputs: attention(_shifted(inputs, shift, both * shift))


def _read_keys(attention: Attention, trial: Trial, shift: int) -> _Reading | None:
    """Keys that each query seems to see, with other positions from the first wrong token on.

    The output o of a query is Σ c_j e_j v_j / Σ c_j e_j, with exponentials e of the logits and
    counts c of the keys. So Σ c_j e_j (v_j − o) = 0 in all entries of all heads, and c is the
    singular vector of the least singular value.
    """
    if attention.sinks is not None or trial.tolerance.max() > 1e-3:
        return None
    first, inputs = trial.first, trial.inputs
    late = [shift * (np.arange(x.shape[1]) >= first)[None] for x in (inputs.q, inputs.k)]
    shifted = _shifted(inputs, *late)
    logits, values = attention.logits(shifted), inputs.v[:, :, attention.groups]
    seen = attention.visible(inputs)
    counts = seen.astype(float)
    wrong = (trial.excess(attention(shifted)) > 1).any(axis=(2, 3))
    for row, token in np.argwhere(wrong):
        own = np.exp(logits[row, :, token] - logits[row, :, token].max(axis=1, keepdims=True)).T
        columns = own[..., None] * (values[row] - trial.got[row, token])
        columns = columns.reshape(len(own), -1)
        size = own.max(axis=1)
        least = np.linalg.svd(columns.T, full_matrices=True)[2][-1]
        strongest = np.argmax(np.abs(least) * size)
        tried = [most * least / least[strongest] for most in (1, 2)]
        found = min(tried, key=lambda one: np.abs((one - np.rint(one)) * size).max())
        counts[row, token] = np.where(size > 1e-3 * size.max(), np.rint(found), seen[row, token])
        counts[row, token] *= np.abs(trial.got[row, token]).max() > 1e-3  # without keys it is 0
    if counts.min() < 0 or not wrong.any():
        return None
    name, text = _keys_text(attention, seen, counts)
    if shift:
        text += f"; positions from there on are 1 too {'large' if shift > 0 else 'small'}"
    other = attention._replace(counts=lambda _: counts)
    return name, text, lambda inputs: other(_shifted(inputs, *late))


def _keys_text(attention: Attention, seen: np.ndarray, counts: np.ndarray) -> tuple[str, str]:
    """Name and sentence of the keys that queries seem to see."""
    kinds = (
        ("repeated keys", "count twice", counts > 1),
        ("needless keys", "are seen", (counts > 0) & ~seen),
        ("lost keys", "are not seen", (counts == 0) & seen),
    )
    for name, text, pairs in kinds:
        if pairs.any():
            row = int(np.argmax(pairs.any(axis=(1, 2))))
            tokens = np.flatnonzero(pairs[row].any(axis=1))[:2]
            each = [f"of token {t}, keys {_listed(np.flatnonzero(pairs[row, t]))}" for t in tokens]
            windowed = attention.window is not None and name != "repeated keys"
            return "window" if windowed else name, f"{'; '.join(each)} {text}"
    return "keys", "other keys are seen"


def _listed(numbers: np.ndarray) -> str:
    shown = ", ".join(map(str, numbers[:4]))
    return f"{shown}, …" if len(numbers) > 4 else shown


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
        if name == "precision":  # of both, as they share a table
            continue
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
