"""Checks of a rotary embedding: `apply(x, positions)` of any framework against a plan."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
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
    Hypothesis,
    Trial,
    asked,
    call_implementation,
    conformance,
)
from jaxpe.conformance.faults import fitted_bases, moved, position_faults, rotation_faults
from jaxpe.conformance.reference import Rotation, plan_rotation
from jaxpe.conformance.result import Conformance
from jaxpe.plans.result import LayerPlan

# Checks of `check_rotary`, in their order.
ROTARY_CHECKS = (
    "values", "heads", "rows", "decode", "left padding", "right padding", "packed", "shards",
    "chunks", "lengths", "norm", "offsets", "axes", "rerotated",
)  # fmt: skip
_HEADS = 5  # another number than of rows and tokens
_LONG = 8200  # tokens of the trial that finds restarts at chunks of up to 4,096
_KEPT, _MOVE = np.arange(20, 32), 15  # keys that a cache keeps when it drops 15 tokens
_MOVES = (
    ("keys keep their old positions", lambda p: p + _MOVE),
    ("keys move in the other direction", lambda p: p + 2 * _MOVE),
    ("keys move twice as far", lambda p: p - _MOVE),
    ("keys are rotated by the new positions, not by the difference", lambda p: 2 * p + _MOVE),
)


class RotaryInputs(NamedTuple):
    """Arguments of one call: heads `[batch, n, heads, head_dim]` and their positions."""

    x: np.ndarray
    positions: np.ndarray


def check_rotary(
    apply: Callable[..., Any], plan: LayerPlan, *, rerotate: Callable[..., Any] | None = None,
    convert: Convert | None = None, dtype: str | None = None, only: Collection[str] | None = None,
) -> Conformance:  # fmt: skip
    """Checks of a rotary embedding against the plan of a layer.

    The result is compared with x rotated in float64: each pair (a, b) of entries becomes
    (a cos φ − b sin φ, b cos φ + a sin φ) at the phase φ = position·ω.

    Args:
        apply: function of heads x, `[batch, n, heads, head_dim]`, and integer positions,
            `[batch, n]`, or `[batch, n, axes]` for a plan with sections. It returns rotated heads
            of the same shape, as an array of any framework.
        plan: plan of the layer, from `jaxpe.plans.read_config(...).plan()` or
            `jaxpe.plans.simple_plan`.
        rerotate: function of rotated heads, their positions and new positions, as for a cache that
            moves; None without one.
        convert: function that makes an array of the framework from a NumPy array, such as
            `torch.from_numpy`; default: arrays stay NumPy.
        dtype: floating-point type of the computation, such as "bfloat16"; default: the type of the
            result.
        only: names of checks, from `ROTARY_CHECKS`; default: all.

    Raises:
        InputError: a plan whose layers do not rotate along one axis, or an unknown check.

    >>> import jaxpe
    >>> plan = jaxpe.plans.simple_plan(head_dim=8)
    >>> def interleaved(x, positions):
    ...     angles = positions[..., None, None] * 10000.0 ** (-np.arange(4) / 4)
    ...     a, b, cos, sin = x[..., ::2], x[..., 1::2], np.cos(angles), np.sin(angles)
    ...     return np.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)
    >>> print(check_rotary(interleaved, plan).faults[0].text)
    heads are paired interleaved, entry 2i with 2i + 1; wanted half, entry i with i + 4
    """
    rotation, chosen = plan_rotation(plan), asked(only, ROTARY_CHECKS)
    if rotation is None:
        raise InputError(
            f"the layers {plan.name} do not rotate ({plan.kind}); choose a plan of kind 'rotary'"
        )
    made = convert or np.asarray

    def trial(check: str, inputs: RotaryInputs, function: Callable[..., Any], *given: Any) -> Trial:
        arguments = [made(one) for one in given]
        output = call_implementation(function, arguments, inputs.x.shape, dtype)
        return _trial(check, inputs, rotation, *output)

    calls = [one for one in _calls(plan) if one[0] in chosen]
    trials = [trial(check, inputs, apply, *inputs) for check, inputs in calls]
    skipped = {} if plan.sections else {"axes": "positions have one axis"}
    if rerotate is None:
        skipped["rerotated"] = "pass rerotate(rotated, positions, new_positions) to check it"
    elif "rerotated" in chosen:
        x, old = random_heads((2, 12, 2, plan.head_dim), 52), _KEPT + np.array([[0], [9]])
        before, after = (on_axes(plan, one) for one in (old, old - _MOVE))
        rotated = rotation.turn(x, before).astype(np.float32)
        trials.append(trial("rerotated", RotaryInputs(x, after), rerotate, rotated, before, after))
    return conformance(
        f"rotary embedding, {plan.name}", trials,
        lambda own: _hypotheses(plan, rotation, own),
        {check: reason for check, reason in skipped.items() if check in chosen},
    )  # fmt: skip


def _calls(plan: LayerPlan) -> list[tuple[str, RotaryInputs]]:
    """Inputs of each check, in three shapes, as compilers make a program for each."""
    run, trained = TOKENS, plan.trained
    lengths = [0, 1, 2, max(trained - 1, 3), max(trained, 4), *2 ** np.arange(5, 14), 2**15, 2**20]
    places = np.array([0, 1, 2, 5, 17, 40, 100, 300])
    rows = [
        ("norm", [run + 100, run + 200]), ("offsets", [[*places, *places + 9]] * 2),
        ("values", [run, run + 16]), ("heads", [run, run + 16]), ("rows", [run + 2, 7 + 3 * run]),
        *(("decode", [[p], [2 * p + 1]]) for p in (0, 1, 7)),
        *((check, positions_in(segments)) for check, segments in SEGMENTS.items()),
        ("shards", [[*run[:8], *run[8:] + 16]] * 2), ("shards", [run + 8] * 2),
        ("chunks", [np.arange(_LONG)]), ("lengths", [lengths] * 2),
    ]  # fmt: skip
    calls = []
    for seed, (check, positions) in enumerate(rows):
        whole = of_length(plan, np.asarray(positions))
        x = random_heads((*whole.shape, 1 if check == "chunks" else _HEADS, plan.head_dim), seed)
        if check == "offsets":  # one query and one key, at eight places
            x[:, :8], x[:, 8:16] = x[:, :1], x[:, 8:9]
        calls.append((check, RotaryInputs(x, on_axes(plan, whole))))
    if plan.sections:
        x = random_heads((2, 16, _HEADS, plan.head_dim), 99)
        calls.append(("axes", RotaryInputs(x, np.repeat(image_positions(plan), 2, axis=0))))
    return calls


def _trial(
    check: str, inputs: RotaryInputs, rotation: Rotation,
    got: np.ndarray, rounding: float, problem: str,
) -> Trial:  # fmt: skip
    """Trial whose tolerance allows for float32 phases.

    A float32 phase p·ω with ω ≤ 1 has an error of at most p·2⁻²³, from frequency and product.
    """
    positions = np.abs(inputs.positions.reshape(*inputs.x.shape[:2], -1)).max(axis=-1)
    slack = 4 if check == "rerotated" else 2
    tolerance = slack * abs(rotation.factor) * (rounding + 4 * 2.0**-24 * positions)
    tolerance = tolerance[..., None, None]
    if check in _MEASURES:
        tolerance = 8 * tolerance.max()
    measure = _MEASURES.get(check, np.asarray)
    return Trial(check, inputs, rotation(inputs), got, tolerance, problem=problem, measure=measure)


def _norms(heads: np.ndarray) -> np.ndarray:
    """Norm of each head, which rotation changes by its factor alone."""
    return np.linalg.norm(heads, axis=-1, keepdims=True)


def _product_changes(heads: np.ndarray) -> np.ndarray:
    """Change of q·k with positions, at one offset; 0 for every right rotation."""
    products = (heads[:, :8] * heads[:, 8:16]).sum(axis=-1, keepdims=True)
    return (products - products[:, :1]) / np.sqrt(heads.shape[-1])


_MEASURES = {"norm": _norms, "offsets": _product_changes}


def _hypotheses(
    plan: LayerPlan, rotation: Rotation, trials: Sequence[Trial]
) -> Iterator[Hypothesis]:
    """Known faults as predictions of the output; what is fitted to it comes last."""

    def by_head(inputs: RotaryInputs) -> np.ndarray:
        x = inputs.x.swapaxes(1, 2)
        return rotation.turn(x, np.arange(x.shape[1])[None]).swapaxes(1, 2)

    def first_head(inputs: RotaryInputs) -> np.ndarray:
        return np.concatenate([rotation(inputs)[:, :, :1], inputs.x[:, :, 1:]], axis=2)

    for name, text, faulty in rotation_faults(plan, rotation):
        yield Hypothesis(name, f"heads {text}", faulty)
    largest = max(int(one.inputs.positions.max()) for one in trials)
    moves = [("moved keys", text, change) for text, change in _MOVES]
    yield from (moved(rotation, fault) for fault in (*moves, *position_faults(plan, largest)))
    yield Hypothesis("head axis", "heads rotate by the index of the head", by_head)
    yield Hypothesis("heads", "head 0 is rotated, the others are not", first_head)
    values = [one for one in trials if one.check == "values" and not one.problem]
    values = [one for one in values if one.tolerance.max() < 1e-3]
    fitted = fitted_bases(plan, rotation, trials, lambda faulty: faulty)
    fitted += [_observed(plan, rotation, one) for one in values]
    fitted += [fault for one in values for fault in _other_factor(plan, rotation, one)]
    yield from (Hypothesis(name, f"heads {text}", faulty) for name, text, faulty in fitted)


def _observed(plan: LayerPlan, rotation: Rotation, trial: Trial) -> tuple[str, str, Rotation]:
    """Rotation with the frequencies and the factor that the output has at position 1."""
    (i, j), (x, _) = rotation.pairs.T, trial.inputs
    before, after = (one[0, 1, :, i] + 1j * one[0, 1, :, j] for one in (x, trial.got))
    ratio = (after * before.conj()).sum(axis=1) / (np.abs(before) ** 2).sum(axis=1)
    frequencies, factor = np.angle(ratio), float(np.median(np.abs(ratio)))
    faulty = rotation._replace(frequencies=np.stack([frequencies] * 2, 1), factor=factor)
    wanted = rotation.frequencies[:, 0]
    distance = np.abs(np.log(np.maximum(np.abs(frequencies), 1e-30) / wanted))
    if distance.max() < 1e-3 < abs(factor / rotation.factor - 1):
        text = f"have cos and sin times {factor:.4g}; wanted {rotation.factor:.4g}"
        return "attention factor", text, faulty
    off = (distance > 1e-5) & (np.abs(frequencies - wanted) > 1e-6)  # of outputs in float32
    k, differ = int(np.argmax(distance * off)), int(off.sum())
    text = f"have other frequencies in {differ} of {len(wanted)} pairs"
    text += f", such as {frequencies[k]:.6g} in pair {k}; wanted {wanted[k]:.6g}"
    return "frequencies", text, faulty


def _other_factor(
    plan: LayerPlan, rotation: Rotation, trial: Trial
) -> list[tuple[str, str, Rotation]]:
    """Known faults together with another factor on cos and sin, which norms of heads show."""
    entries = np.unique(rotation.pairs)
    got, x = (np.linalg.norm(one[..., entries], axis=-1) for one in (trial.got, trial.inputs.x))
    factor = float(np.median(got / x))
    if not np.ptp(got / x) < 1e-3 * factor < abs(factor - rotation.factor):
        return []
    also = f", and have cos and sin times {factor:.4g}; wanted {rotation.factor:.4g}"
    faults = rotation_faults(plan, rotation._replace(factor=factor))
    return [(name, text + also, one) for name, text, one in faults if name != "attention factor"]
