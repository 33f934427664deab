"""Checks of a rotary embedding: `apply(x, positions)` of any framework against a plan."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.conformance.diagnosis import Hypothesis, Trial, call_implementation, conformance
from jaxpe.conformance.faults import (
    PositionFault,
    RotationFault,
    moved_positions,
    position_faults,
    rotation_faults,
)
from jaxpe.conformance.reference import Rotation, plan_rotation
from jaxpe.conformance.result import Conformance
from jaxpe.rope import LayerPlan

Convert = Callable[[np.ndarray], Any]

# Checks of `check_rotary`, in their order.
ROTARY_CHECKS = (
    "values", "heads", "rows", "decode", "left padding", "right padding", "packed", "shards",
    "chunks", "lengths", "norm", "offsets", "axes", "rerotated",
)  # fmt: skip
_LONG = 8200  # tokens of the trial that finds restarts at chunks of up to 4,096
_FAR = (2**15, 2**20)


class RotaryInputs(NamedTuple):
    """Arguments of one call: heads `[batch, n, heads, head_dim]` and their positions."""

    x: np.ndarray
    positions: np.ndarray


def check_rotary(
    apply: Callable[..., Any], plan: LayerPlan, *, rerotate: Callable[..., Any] | None = None,
    convert: Convert | None = None, dtype: str | None = None, only: Collection[str] = (),
) -> Conformance:  # fmt: skip
    """Checks of a rotary embedding against the plan of a layer.

    The result is compared with x rotated in float64: each pair (a, b) of entries becomes
    (a cos φ − b sin φ, b cos φ + a sin φ) at the phase φ = position·ω.

    Args:
        apply: function of heads x, `[batch, n, heads, head_dim]`, and integer positions,
            `[batch, n]`, or `[batch, n, axes]` for a plan with sections. It returns rotated heads
            of the same shape, as an array of any framework.
        plan: plan of the layer, from `jaxpe.rope.read_config(...).plan()` or
            `jaxpe.rope.simple_plan`.
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
    >>> plan = jaxpe.rope.simple_plan(head_dim=8)
    >>> def interleaved(x, positions):
    ...     angles = positions[..., None, None] * 10000.0 ** (-np.arange(4) / 4)
    ...     a, b, cos, sin = x[..., ::2], x[..., 1::2], np.cos(angles), np.sin(angles)
    ...     return np.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)
    >>> print(check_rotary(interleaved, plan).faults[0].text)
    heads are paired interleaved, entry 2i with 2i + 1; wanted half, entry i with i + 4
    """
    rotation = plan_rotation(plan)
    if rotation is None:
        raise InputError(
            f"the layers {plan.name} do not rotate ({plan.kind}); choose a plan of kind 'rotary'"
        )
    known_names(only, ROTARY_CHECKS)
    made = convert or (lambda array: array)

    def run(x: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, float, str]:
        return call_implementation(apply, (made(x), made(positions)), x.shape, dtype)

    calls = [one for one in _calls(plan, rotation) if not only or one[0] in only]
    trials = [_trial(check, inputs, rotation, run) for check, inputs in calls]
    skipped = _skipped(plan, rerotate)
    if rerotate is not None and "rerotated" in (only or ROTARY_CHECKS):
        trials.append(_rerotation(rotation, rerotate, made, dtype))
    largest = max(int(one.inputs.positions.max()) for one in trials)
    return conformance(
        f"rotary embedding, {plan.name}", trials,
        lambda own: _hypotheses(plan, rotation, largest, trials), skipped,
    )  # fmt: skip


def known_names(only: Collection[str], names: tuple[str, ...]) -> None:
    """Raise `InputError` for a name of no check."""
    unknown = sorted({*only} - {*names})
    if unknown:
        raise InputError(f"no check {', '.join(unknown)}; the checks are {', '.join(names)}")


def _skipped(plan: LayerPlan, rerotate: Callable[..., Any] | None) -> dict[str, str]:
    skipped = {}
    if not plan.sections:
        skipped["axes"] = "positions have one axis"
    if rerotate is None:
        skipped["rerotated"] = "pass rerotate(rotated, positions, new_positions) to check it"
    return skipped


def depends_on_length(plan: LayerPlan) -> bool:
    """Whether the frequencies of a plan depend on the length of the text."""
    return plan.rope_type in ("dynamic", "longrope")


def random_heads(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random heads that every floating-point type holds exactly: multiples of 1/8 below 2."""
    whole = np.random.default_rng(seed).integers(-15, 16, shape)
    return (whole / 8).astype(np.float32)


def _calls(plan: LayerPlan, rotation: Rotation) -> list[tuple[str, RotaryInputs]]:
    """Positions of each check; rows of a batch always differ."""
    run = np.arange(16)
    later = 7 + 3 * run
    lengths = np.array([0, 1, 2, max(plan.trained - 1, 3), max(plan.trained, 4), *_FAR])
    places = np.array([0, 1, 2, 5, 17, 40, 100, 300])
    rows = [
        ("norm", [run + 100], 2), ("offsets", [[*places, *places + 9]], 2),
        ("values", [run], 2), ("heads", [run], 5), ("rows", [run + 2, later], 2),
        *(("decode", [[p], [2 * p + 1]], 2) for p in (0, 1, 7)),
        ("left padding", [[0] * n + [*run[: 16 - n]] for n in (2, 5)], 2),
        ("right padding", [[*run[: 16 - n]] + [0] * n for n in (2, 5)], 2),
        ("packed", [[*run[:7], *run[:5], *run[:4]], [*run[:3], *run[:13]]], 2),
        ("shards", [[0, 1, 2, 3, 12, 13, 14, 15]] * 2, 2), ("shards", [[*range(4, 12)]] * 2, 2),
        ("chunks", [np.arange(_LONG)], 1), ("lengths", [lengths], 2),
    ]  # fmt: skip
    calls = []
    for seed, (check, positions, heads) in enumerate(rows):
        one = np.asarray(positions)
        if depends_on_length(plan):  # every call is of a text of the plan's length
            last = np.full((len(one), 1), plan.reach - 1)
            one = np.concatenate([np.minimum(one, plan.reach - 1), last], 1)
        several = np.repeat(one[..., None], len(plan.sections), -1) if plan.sections else one
        x = random_heads((*one.shape, heads, plan.head_dim), seed)
        if check == "offsets":  # one query and one key, at eight places
            x[:, :8], x[:, 8:16] = x[:, :1], x[:, 8:9]
        calls.append((check, RotaryInputs(x, several)))
    if plan.sections:
        grid = np.stack([run * 0 + 5, 5 + run // 4, 5 + run % 4, *[run] * len(plan.sections)], -1)
        positions = grid[None, :, : len(plan.sections)]
        calls.append(("axes", RotaryInputs(random_heads((1, 16, 2, plan.head_dim), 99), positions)))
    return calls


def _trial(check: str, inputs: RotaryInputs, rotation: Rotation, run: Callable[..., Any]) -> Trial:
    got, rounding, problem = run(*inputs)
    wanted = rotation.turn(*inputs)
    tolerance = _tolerance(inputs, rotation, rounding)
    measure = _MEASURES.get(check, np.asarray)
    if check in _MEASURES:
        tolerance = 8 * tolerance.max()
    return Trial(check, inputs, wanted, got, tolerance, np.array(True), problem, measure)


def _tolerance(inputs: RotaryInputs, rotation: Rotation, rounding: float) -> np.ndarray:
    """Largest error of a right implementation with float32 phases, `[batch, n, 1, 1]`.

    A float32 phase p·ω with ω ≤ 1 has an error of at most p·2⁻²³, from frequency and product.
    """
    positions = inputs.positions.reshape(*inputs.x.shape[:2], -1).max(axis=-1)
    phase = 4 * 2.0**-24 * np.abs(positions)
    return 2 * abs(rotation.factor) * (rounding + phase)[..., None, None]


def _norms(heads: np.ndarray) -> np.ndarray:
    """Norm of each head, which rotation changes by its factor alone."""
    return np.linalg.norm(heads, axis=-1, keepdims=True)


def _product_changes(heads: np.ndarray) -> np.ndarray:
    """Change of q·k with positions, at one offset; 0 for every right rotation."""
    half = heads.shape[1] // 2
    products = (heads[:, :half] * heads[:, half : 2 * half]).sum(axis=-1, keepdims=True)
    return (products - products[:, :1]) / np.sqrt(heads.shape[-1])


_MEASURES = {"norm": _norms, "offsets": _product_changes}


def _rerotation(
    rotation: Rotation, rerotate: Callable[..., Any], made: Convert, dtype: str | None
) -> Trial:
    """Rotated heads that move from positions 20, 21, … to 5, 6, …, as when a cache drops tokens."""
    x, old = (
        random_heads((2, 12, 2, rotation.head_dim), 52),
        np.arange(20, 32) + np.array([[0], [9]]),
    )
    count = int(rotation.axes.max()) + 1
    on_axes = (np.repeat(one[..., None], count, -1) for one in (old, old - 15))
    before, after = on_axes if count > 1 else (old, old - 15)
    rotated = rotation.turn(x, before).astype(np.float32)
    arguments = [made(one) for one in (rotated, before, after)]
    got, rounding, problem = call_implementation(rerotate, arguments, x.shape, dtype)
    inputs = RotaryInputs(x, after)
    tolerance = 2 * _tolerance(inputs, rotation, rounding)
    return Trial(
        "rerotated", inputs, rotation.turn(*inputs), got, tolerance, np.array(True), problem
    )


def _hypotheses(
    plan: LayerPlan, rotation: Rotation, largest: int, trials: list[Trial]
) -> list[Hypothesis]:
    """Known faults as predictions of the output, the frequencies that it has last."""
    faults = rotation_faults(plan, rotation)
    values = [one for one in trials if one.check == "values" and not one.problem]
    faults += [_observed(plan, rotation, one) for one in values]
    rows = [
        Hypothesis(name, f"heads {text}", lambda inputs, faulty=faulty: faulty.turn(*inputs))
        for name, text, faulty in faults
    ]
    for fault in position_faults(plan, largest):

        def predict(inputs: RotaryInputs, fault: PositionFault = fault) -> np.ndarray:
            return rotation.turn(inputs.x, moved_positions(fault, inputs.positions))

        rows.append(Hypothesis(fault.name, fault.text, predict, fault.within))

    def by_head(inputs: RotaryInputs) -> np.ndarray:
        x = inputs.x.swapaxes(1, 2)
        return rotation.turn(x, np.arange(x.shape[1])[None]).swapaxes(1, 2)

    def first_head(inputs: RotaryInputs) -> np.ndarray:
        return np.concatenate([rotation.turn(*inputs)[:, :, :1], inputs.x[:, :, 1:]], axis=2)

    rows.append(Hypothesis("head axis", "heads rotate by the index of the head", by_head))
    rows.append(Hypothesis("heads", "head 0 is rotated, the others are not", first_head))
    return rows


def _observed(plan: LayerPlan, rotation: Rotation, trial: Trial) -> RotationFault:
    """Rotation with the frequencies and the factor that the output has at position 1."""
    (i, j), (x, _) = rotation.pairs.T, trial.inputs
    before, after = (one[0, 1, :, i] + 1j * one[0, 1, :, j] for one in (x, trial.got))
    ratio = (after * before.conj()).sum(axis=1) / (np.abs(before) ** 2).sum(axis=1)
    frequencies, factor = np.angle(ratio), float(np.median(np.abs(ratio)))
    faulty = rotation._replace(frequencies=np.stack([frequencies] * 2, 1), factor=factor)
    powers, wanted = -2 * np.arange(len(i)) / plan.turning, rotation.frequencies[:, 0]
    logs = np.log(np.maximum(np.abs(frequencies), 1e-30))
    base = float(np.exp(np.polyfit(powers, logs, 1)[0])) if len(i) > 1 else plan.base
    name, k = "frequencies", int(np.argmax(np.abs(logs - np.log(wanted))))
    text = f"have the frequency {frequencies[k]:.4g} in pair {k}; wanted {wanted[k]:.4g}"
    if np.allclose(frequencies, wanted, rtol=1e-3):
        name, text = "attention factor", f"have cos and sin times {factor:.4g}"
        text += f"; wanted {rotation.factor:.4g}"
    elif np.allclose(frequencies, base**powers, rtol=1e-3):
        name, text = "base", f"have base {float(f'{base:.4g}'):,.0f}; wanted {plan.base:,.0f}"
    return name, text, faulty
