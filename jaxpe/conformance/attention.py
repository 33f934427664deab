"""Checks of attention: `attend(q, k, v, positions)` of any framework against a plan."""

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.conformance.attention_faults import attention_hypotheses
from jaxpe.conformance.cases import (
    SEGMENTS,
    TOKENS,
    image_positions,
    of_length,
    on_axes,
    positions_in,
    random_heads,
)
from jaxpe.conformance.diagnosis import (
    Convert,
    Trial,
    asked,
    call_implementation,
    conformance,
)
from jaxpe.conformance.reference import Attention, Bias, Inputs, layer_attention
from jaxpe.conformance.result import Conformance
from jaxpe.plans.result import LayerPlan

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
_OF_PATHS = ("values", "left padding", "packed", "window")  # checks of each path
_LARGEST = 2**28  # logits of one call of an implementation, 1 GB of float32
_LONG = 300  # keys of a decoded token
_EDGES = (slice(-8, None), slice(0, 8))  # queries that see the left edge, the right edge
_SPREAD = np.array([0, 1, 2, 5, 11, 23, 41, 77, 151, 301, 483, 1003, 1601, 2503, 3301, 4001])


def check_attention(
    attend: Callable[..., Any], plan: LayerPlan, *, heads: int, key_value_heads: int | None = None,
    value_dim: int | None = None, bias: Bias | None = None, causal: bool = True,
    scale: float | None = None, softcap: float | None = None, sinks: np.ndarray | None = None,
    paths: Mapping[str, Callable[..., Any]] | None = None, convert: Convert | None = None,
    dtype: str | None = None, only: Collection[str] | None = None,
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
        plan: plan of the layer, from `jaxpe.plans`.
        heads: number of heads of queries.
        key_value_heads: number of heads of keys and values, default: `heads`.
        value_dim: width of a value, default: `head_dim`.
        bias: bias of the logits, `alibi_bias(heads)` or `t5_bias(table)`.
        causal: whether a query sees no later position.
        scale: factor on q·k, default: 1/√head_dim with the plan's factor on logits.
        softcap: c of c·tanh(logits / c).
        sinks: logits of learned sinks, `[heads]`.
        paths: other ways of the same implementation, such as token by token through a cache, by
            name; each takes what `attend` takes, for whole rows.
        convert: function that makes an array of the framework from a NumPy array.
        dtype: floating-point type of the computation; default: the type of the result.
        only: names of checks, from `ATTENTION_CHECKS` and `paths`, or one check of a path, such as
            "cache, left padding"; default: all.

    Raises:
        InputError: heads that do not divide or fit the bias, a plan without attention, or an
            unknown check.

    >>> import jaxpe
    >>> plan = jaxpe.plans.simple_plan(head_dim=8)
    >>> def without_positions(q, k, v, positions):
    ...     logits = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(8)
    ...     logits = np.where(np.tri(q.shape[1], dtype=bool), logits, -np.inf)
    ...     weights = np.exp(logits)
    ...     return np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v)
    >>> check_attention(without_positions, plan, heads=2).faults[0].text
    'queries and keys are not rotated'
    """
    groups, ways = key_value_heads or heads, {"": attend, **(paths or {})}
    of_paths = [f"{path}, {check}" for path in ways if path for check in _OF_PATHS]
    chosen = asked(only, (*ATTENTION_CHECKS, *(paths or {}), *of_paths))
    attention = layer_attention(
        plan, heads, groups, scale=scale, causal=causal, bias=bias, softcap=softcap, sinks=sinks
    )
    if bias is not None and (given := bias(*np.zeros((2, 1, 1), int)).shape[1]) != heads:
        raise InputError(f"`bias` has {given} heads; wanted {heads}, as `heads`")
    sizes = heads, groups, plan.head_dim, value_dim or plan.head_dim
    trials, skipped = list[Trial](), dict[str, str]()
    for path, call in ways.items():
        full = {x: f"{path}, {x}" if path else x for x in (_OF_PATHS if path else ATTENTION_CHECKS)}
        wanted = {x for x, name in full.items() if {path, name} & chosen}
        taken = _arguments(call) - ({"key_positions"} if path else set())
        calls, unchecked = _calls(plan, attention, sizes, taken, path or "attend")
        trials += [
            _trial(check, call, attention, inputs, convert or np.asarray, dtype)._replace(path=path)
            for check, inputs in calls
            if check in wanted
        ]
        skipped |= {full[x]: reason for x, reason in unchecked.items() if x in wanted}
    return conformance(
        f"attention, {plan.name}", trials,
        lambda own: attention_hypotheses(plan, attention, own), skipped,
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
    if check == "window":  # the queries at the edge of the window
        edge = _EDGES[0 if inputs.v[:, 0].any() else 1]
        inputs, got = inputs.part(edge), got[:, edge]
    tolerance = np.asarray(2 * rounding + 16 * 2.0**-24 * np.abs(inputs.positions).max())
    counted = (inputs.segments > 0)[:, :, None, None]
    trial = Trial(check, inputs, attention(inputs), got, tolerance, counted, problem)
    if problem or not trial.failed:
        return trial
    first = int(np.argwhere(trial.excess(trial.wanted) > 1)[:, 2].min())
    some = np.unique([first, got.shape[2] - 1])
    few = inputs._replace(heads=some)
    probe = trial._replace(inputs=few, wanted=trial.wanted[:, :, some], got=got[:, :, some])
    return trial._replace(probe=(probe,))


def _calls(
    plan: LayerPlan, attention: Attention, sizes: tuple[int, int, int, int], taken: set[str],
    path: str = "attend",
) -> tuple[list[tuple[str, Inputs]], dict[str, str]]:  # fmt: skip
    """Inputs of each check, and the reasons for those without."""
    window = plan.window or 2**62
    trained = max(plan.trained, 64) if plan.trained else 512

    def whole(*rows: np.ndarray, segments: np.ndarray | None = None) -> Inputs:
        positions = of_length(plan, np.stack(rows))
        return _inputs(plan, attention, sizes, positions, on_axes(plan, positions), segments)

    spread = _SPREAD[min(window, trained) > _SPREAD]
    gapped = whole(TOKENS + 2, 7 + 3 * TOKENS) if window > 52 else whole(TOKENS, TOKENS)
    calls = {
        "values": [whole(TOKENS, TOKENS)],
        "spread": [whole(spread, spread)],
        "rows": [gapped],
        "lengths": [whole(*[TOKENS + trained - 8] * 2)],
        **{check: [whole(*positions_in(one), segments=one)] for check, one in SEGMENTS.items()},
        "decode": [gapped.part([t], slice(t + 1)) for t in (0, 1, 7, 15)],
        "shards": [gapped.part(one, slice(16)) for one in (np.r_[:4, 12:16], slice(4, 12))],
    }  # fmt: skip
    needs = {check: _NEEDS[check] for check in calls if _NEEDS.get(check, "") not in {"", *taken}}
    skipped = {check: f"{path} takes no {name}" for check, name in needs.items()}
    n, every = window + 8, "key_positions" not in taken
    if "segments" in taken:
        calls["decode"] += [one.part([15]) for one in calls["left padding"]]
    if plan.window is None:
        skipped["window"] = "the plan has no window"
        calls["decode"].append(whole(np.arange(_LONG)).part([_LONG - 1]))
    elif every and n**2 * sizes[0] > _LARGEST:
        skipped["window"] = f"{path} takes no key_positions; a window of {window:,} is too large"
    else:
        long = whole(np.arange(n))
        edges = [_edge(long, window, side) for side in _EDGES[: 1 + plan.two_sided]]
        calls["window"] = edges if every else [
            one.part(side) for one, side in zip(edges, _EDGES, strict=False)
        ]  # fmt: skip
        calls["decode"].append(edges[0].part([n - 1]))
    if plan.sections:
        order = np.stack([TOKENS, TOKENS])
        positions = np.repeat(image_positions(plan), 2, 0)
        calls["axes"] = [_inputs(plan, attention, sizes, order, positions)]
    else:
        skipped["axes"] = "positions have one axis"
    rows = [(check, one) for check, many in calls.items() if check not in skipped for one in many]
    return rows, skipped


def _edge(inputs: Inputs, window: int, queries: slice) -> Inputs:
    """Whole rows, in which only keys at the edge of the window of some queries have values."""
    keys = np.arange(inputs.q.shape[1])
    edge = keys < 16 if queries == _EDGES[0] else (keys > max(window - 8, 0)) & (keys < window + 8)
    size = 2.0 ** round(math.log2(max(window, 8) / 8))  # so that one key of a window is seen
    return inputs._replace(v=inputs.v * np.float32(size) * edge[:, None, None])


def _inputs(
    plan: LayerPlan, attention: Attention, sizes: tuple[int, int, int, int],
    order: np.ndarray, positions: np.ndarray, segments: np.ndarray | None = None,
) -> Inputs:  # fmt: skip
    """Random queries, keys and values, whose logits have a standard deviation near 1."""
    heads, groups, head_dim, value_dim = sizes
    q, k, v = (
        random_heads((*order.shape, *size), seed)
        for seed, size in enumerate(((heads, head_dim), (groups, head_dim), (groups, value_dim)))
    )
    if plan.place == "latent":  # heads share the rotated part of keys
        k[..., head_dim - plan.turning :] = k[:, :, :1, head_dim - plan.turning :]
    factor = 1 if attention.query is None else attention.query.factor**2
    q = q * np.float32(2.0 ** -round(math.log2(attention.scale * factor * math.sqrt(head_dim))))
    if segments is None:
        segments = np.ones_like(order)
    extra = order.shape[1] - segments.shape[1]
    segments = np.pad(segments, ((0, 0), (0, extra)), "maximum")
    return Inputs(q, k, v, positions, positions, segments, segments, order, order)
