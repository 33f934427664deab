"""Checks of attention: `attend(q, k, v, positions)` of any framework against a plan."""

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from jaxpe.conformance.attention_faults import attention_hypotheses
from jaxpe.conformance.diagnosis import Trial, call_implementation, conformance
from jaxpe.conformance.reference import (
    Attention,
    Bias,
    Inputs,
    attention_output,
    layer_attention,
)
from jaxpe.conformance.result import Conformance
from jaxpe.conformance.rotary import (
    Convert,
    asked,
    depends_on_length,
    known_names,
    random_heads,
)
from jaxpe.rope import LayerPlan

# Checks of `check_attention`, in their order; paths are checked by their names.
ATTENTION_CHECKS = (
    "values", "spread", "rows", "lengths", "window", "left padding", "right padding", "packed",
    "decode", "shards", "axes",
)  # fmt: skip
_OPTIONAL = ("key_positions", "segments", "key_segments")  # arguments that a callable may take
_NEEDS = {
    "left padding": "segments", "right padding": "segments", "packed": "segments",
    "decode": "key_positions", "shards": "key_positions",
}  # fmt: skip
_LARGEST = 2**28  # logits of one call of an implementation, 1 GB of float32
_EDGES = (slice(-8, None), slice(0, 8))  # queries that see the left edge, the right edge
_SPREAD = np.array([0, 1, 2, 5, 11, 23, 41, 77, 151, 301, 483, 1003, 1601, 2503, 3301, 4001])


def check_attention(
    attend: Callable[..., Any], plan: LayerPlan, *, heads: int, key_value_heads: int | None = None,
    value_dim: int | None = None, bias: Bias | None = None, causal: bool = True,
    scale: float | None = None, softcap: float | None = None, sinks: np.ndarray | None = None,
    paths: Mapping[str, Callable[..., Any]] | None = None, convert: Convert | None = None,
    dtype: str | None = None, only: Collection[str] = (),
) -> Conformance:  # fmt: skip
    """Checks of attention against the plan of a layer.

    The output is compared with softmax(scale·q·k + bias) v in float64, with q and k rotated as the
    plan says.

    Args:
        attend: function of queries, `[batch, n_q, heads, head_dim]`, keys and values,
            `[batch, n_k, key_value_heads, head_dim]`, and integer positions `[batch, n_q]`, or
            `[batch, n_q, axes]` for a plan with sections. It returns
            `[batch, n_q, heads, value_dim]`. If it takes `key_positions`, decoding and shards are
            checked; if it takes `segments` (1 for the first document, 0 for padding), padding and
            packing; with both, it takes `key_segments`, too.
        plan: plan of the layer, from `jaxpe.rope`.
        heads: number of heads of queries.
        key_value_heads: number of heads of keys and values, default: `heads`.
        value_dim: width of a value, default: that of a head.
        bias: bias of the logits, `alibi_bias(heads)` or `t5_bias(table)`.
        causal: whether a query sees no later position.
        scale: factor on q·k, default: 1/√head_dim with the plan's factor on logits.
        softcap: c of c·tanh(logits / c).
        sinks: logits of learned sinks, `[heads]`.
        paths: other ways of the same implementation, such as token by token through a cache, by
            name; each takes what `attend` takes, for whole rows.
        convert: function that makes an array of the framework from a NumPy array.
        dtype: floating-point type of the computation; default: the type of the result.
        only: names of checks, from `ATTENTION_CHECKS` and `paths`; default: all.

    Raises:
        InputError: heads that do not divide, a plan without attention, or an unknown check.

    >>> import jaxpe
    >>> plan = jaxpe.rope.simple_plan(head_dim=8)
    >>> def without_positions(q, k, v, positions):
    ...     logits = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(8)
    ...     logits = np.where(np.tri(q.shape[1], dtype=bool), logits, -np.inf)
    ...     weights = np.exp(logits)
    ...     return np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v)
    >>> check_attention(without_positions, plan, heads=2).faults[0].text
    'queries and keys are not rotated'
    """
    paths = dict(paths or {})
    known_names(only, (*ATTENTION_CHECKS, *paths))
    groups = key_value_heads or heads
    attention = layer_attention(
        plan, heads, groups, scale=scale, causal=causal, bias=bias, softcap=softcap, sinks=sinks
    )
    sizes = heads, groups, plan.head_dim, value_dim or plan.head_dim
    calls, skipped = _calls(plan, attention, sizes, _arguments(attend))
    calls = [("", check, attend, inputs) for check, inputs in calls]
    calls += [
        (name, check, path, inputs)
        for name, path in paths.items()
        for check, inputs in _calls(plan, attention, sizes, _arguments(path))[0]
        if check in ("values", "left padding", "packed")
    ]
    trials = [
        _trial(check, function, attention, inputs, convert or np.asarray, dtype)._replace(path=path)
        for path, check, function, inputs in calls
        if not only or (path or check) in only
    ]
    return conformance(
        f"attention, {plan.name}", trials,
        lambda own: attention_hypotheses(plan, attention, own), asked(skipped, only),
    )  # fmt: skip


def _arguments(function: Callable[..., Any]) -> set[str]:
    """Optional arguments that a callable takes."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return set()
    every = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return {name for name in _OPTIONAL if every or name in parameters}


def _trial(
    check: str, function: Callable[..., Any], attention: Attention, inputs: Inputs,
    made: Convert, dtype: str | None,
) -> Trial:  # fmt: skip
    taken = {name: made(getattr(inputs, name)) for name in sorted(_arguments(function))}
    shape = (*inputs.q.shape[:3], inputs.v.shape[-1])
    arguments = [made(one) for one in inputs[:4]]
    got, rounding, problem = call_implementation(function, arguments, shape, dtype, **taken)
    if check == "window" and inputs.q.shape[1] > 8:  # the queries at the edge of the window
        edge = _EDGES[0 if inputs.v[:, 0].any() else 1]
        names = ("q", "positions", "order", "segments")
        inputs = inputs._replace(**{name: getattr(inputs, name)[:, edge] for name in names})
        got = got[:, edge]
    largest = np.abs(inputs.positions).max()
    tolerance = np.asarray(2 * rounding + 16 * 2.0**-24 * largest)
    counted = (inputs.segments > 0)[:, :, None, None]
    wanted = attention_output(attention, inputs)
    trial = Trial(check, inputs, wanted, got, tolerance, counted, problem)
    if not trial.failed or problem:
        return trial
    first = int(np.argwhere(trial.excess(wanted) > 1)[:, 2].min())
    some = np.unique([first, wanted.shape[2] - 1])
    few = inputs._replace(heads=some)
    return trial._replace(
        probe=(trial._replace(inputs=few, wanted=wanted[:, :, some], got=got[:, :, some]),)
    )


def _calls(
    plan: LayerPlan, attention: Attention, sizes: tuple[int, int, int, int], taken: set[str]
) -> tuple[list[tuple[str, Inputs]], dict[str, str]]:
    """Inputs of each check, and the reasons for those without."""
    run, ones = np.arange(16), np.ones((2, 16), int)
    window = plan.window or 2**62
    trained = max(plan.trained, 64) if plan.trained else 512

    def whole(positions: Any, segments: Any = ones, order: Any = None) -> Inputs:
        return _inputs(plan, attention, sizes, np.asarray(positions), np.asarray(segments), order)

    spread = _SPREAD[min(window, trained) > _SPREAD]
    gapped = whole([run + 2, 7 + 3 * run] if window > 52 else [run, run])
    calls = {
        "values": [whole([run, run])],
        "spread": [whole([spread, spread], np.ones((2, len(spread)), int))],
        "rows": [gapped],
        "lengths": [whole([run + trained - 8] * 2)],
        "left padding": [whole(*_padded(run, left=True))],
        "right padding": [whole(*_padded(run, left=False))],
        "packed": [whole(*_packed())],
        "decode": [_queries(gapped, [t], t + 1) for t in (0, 1, 7, 15)],
        "shards": [_queries(gapped, one, 16) for one in ((*range(4), *run[12:]), range(4, 12))],
    }  # fmt: skip
    skipped = {check: f"attend takes no {_NEEDS[check]}" for check in calls if _lacks(check, taken)}
    if plan.window is None:
        skipped["window"] = "the plan has no window"
    elif "key_positions" in taken or (window + 8) ** 2 * sizes[0] <= _LARGEST:
        n = window + 8
        long = whole([np.arange(n)], np.ones((1, n), int))
        sides = _EDGES[: 1 + plan.two_sided]
        every = "key_positions" not in taken
        calls["window"] = [_edge(long, window, side, every=every) for side in sides]
    else:
        skipped["window"] = (
            f"attend takes no key_positions, and a window of {window:,} is too large"
        )
    if plan.sections:
        grid = np.stack([run * 0 + 5, 5 + run // 4, 5 + run % 4, *[run] * len(plan.sections)], -1)
        positions = np.stack([grid[:, : len(plan.sections)]] * 2)
        calls["axes"] = [whole(positions, ones, np.stack([run, run]))]
    else:
        skipped["axes"] = "positions have one axis"
    rows = [(check, one) for check, many in calls.items() if check not in skipped for one in many]
    return rows, skipped


def _edge(inputs: Inputs, window: int, queries: slice, *, every: bool) -> Inputs:
    """Queries at one end of a text; only keys at the edge of their window have values."""
    n = inputs.q.shape[1]
    keys = np.arange(n)
    edge = keys < 16 if queries == _EDGES[0] else (keys > max(window - 8, 0)) & (keys < window + 8)
    size = 2.0 ** round(math.log2(max(window, 8) / 8))  # so that one key of a window is seen
    v = np.where(edge[:, None, None], inputs.v * np.float32(size), np.float32(0))
    return _queries(inputs._replace(v=v), range(n) if every else range(n)[queries], n)


def _lacks(check: str, taken: set[str]) -> bool:
    return check in _NEEDS and _NEEDS[check] not in taken


def _padded(run: np.ndarray, *, left: bool) -> tuple[np.ndarray, np.ndarray]:
    """Positions and segments of two rows with 2 and 5 tokens of padding."""
    rows = [(np.roll(run[:16] * (run < 16 - n), n * left), np.roll(run < 16 - n, n * left))
            for n in (2, 5)]  # fmt: skip
    positions, segments = (np.stack(one) for one in zip(*rows, strict=True))
    return positions, segments.astype(int)


def _packed() -> tuple[np.ndarray, np.ndarray]:
    """Positions and segments of two rows of documents."""
    lengths = ((7, 5, 4), (3, 13))
    positions = [np.concatenate([np.arange(n) for n in row]) for row in lengths]
    segments = [np.repeat(np.arange(1, len(row) + 1), row) for row in lengths]
    return np.stack(positions), np.stack(segments)


def _inputs(
    plan: LayerPlan, attention: Attention, sizes: tuple[int, int, int, int],
    positions: np.ndarray, segments: np.ndarray, order: np.ndarray | None,
) -> Inputs:  # fmt: skip
    """Random queries, keys and values, whose logits have a standard deviation near 1."""
    heads, groups, head_dim, value_dim = sizes
    if depends_on_length(plan) and order is None:  # every call is of a text of the plan's length
        last = np.full((len(positions), 1), plan.reach - 1)
        positions = np.concatenate([np.minimum(positions, plan.reach - 1), last], 1)
        segments = np.concatenate([segments, segments.max(axis=1, keepdims=True)], 1)
    shape = positions.shape[:2]
    q, k, v = (
        random_heads((*shape, *size), seed)
        for seed, size in enumerate(((heads, head_dim), (groups, head_dim), (groups, value_dim)))
    )
    if plan.place == "latent":  # heads share the rotated part of keys
        k[..., head_dim - plan.turning :] = k[:, :, :1, head_dim - plan.turning :]
    factor = 1 if attention.query is None else attention.query.factor**2
    q = q * np.float32(2.0 ** -round(math.log2(attention.scale * factor * math.sqrt(head_dim))))
    order = positions if order is None else order
    if plan.sections and positions.ndim == 2:
        positions = np.repeat(positions[..., None], len(plan.sections), -1)
    return Inputs(q, k, v, positions, positions, segments, segments, order, order)


def _queries(inputs: Inputs, queries: Collection[int], keys: int) -> Inputs:
    """Some queries of whole rows, with the first keys."""
    some = list(queries)
    return Inputs(
        inputs.q[:, some], inputs.k[:, :keys], inputs.v[:, :keys], inputs.positions[:, some],
        inputs.key_positions[:, :keys], inputs.segments[:, some], inputs.key_segments[:, :keys],
        inputs.order[:, some], inputs.key_order[:, :keys],
    )  # fmt: skip
