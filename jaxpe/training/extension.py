"""Going on beyond the last step of a run, and what that changes of the learning rate."""

import dataclasses

import jax
import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.training.build import schedule_of, steps_of
from jaxpe.training.config import TrainConfig, differences, is_longer
from jaxpe.training.log import Record

_SAME = 1e-5  # relative difference of learning rates that rounding to float32 does not make


def check_resumption(config: TrainConfig, saved: TrainConfig) -> None:
    """Raise where a run is resumed with other settings; more steps or epochs are the same run."""
    changed = differences(config, saved)
    if not changed or is_longer(config, saved):
        return
    if differences(as_long_as(config, saved), saved):
        raise InputError(
            f"{config.out} resumes with its own settings, {', '.join(changed)}: leave "
            "these options out, or pass another `out`"
        )
    unit = "steps" if saved.epochs is None else "epochs"
    asked = steps_of(saved, 0) if saved.epochs is None else saved.epochs
    raise InputError(
        f"{config.out} has `{unit}={asked:g}`: pass more `{unit}` to extend it, or leave "
        "`steps` and `epochs` out to resume it"
    )


def as_long_as(config: TrainConfig, other: TrainConfig) -> TrainConfig:
    """A configuration with the steps and epochs of another."""
    return dataclasses.replace(config, steps=other.steps, epochs=other.epochs)


def extension_line(config: TrainConfig, saved: TrainConfig, *, rows: int) -> str:
    """Message about an extended run: the steps it has, and its learning rate from there."""
    before, after = steps_of(saved, rows), steps_of(config, rows)
    said = f"extended from {before:,} to {after:,} steps; "
    old, new = rates_of(saved, before), rates_of(config, after)
    if np.allclose(old, new[:before], rtol=_SAME, atol=0):
        return said + f"the learning rate of the first {before:,} is that of {after:,} at once"
    return said + (
        f"the learning rate continues as that of a run of {after:,}: {new[before]:.2g} at step "
        f"{before + 1:,}, after {old[-1]:.2g} at step {before:,} as it was"
    )


def rates_of(config: TrainConfig, steps: int) -> np.ndarray:
    """The learning rate of every step of a run of so many, the first first."""
    with jax.numpy_dtype_promotion("standard"):  # Optax does not know the strict one
        rates = jax.jit(schedule_of(config, steps=steps))(np.arange(steps, dtype=np.int32))
    return np.broadcast_to(np.asarray(rates, np.float32), (steps,))


def extended_after(config: TrainConfig, history: list[Record], *, steps: int) -> int:
    """The last step that had the learning rate of fewer steps in all, 0 where none had."""
    rates = rates_of(config, steps)
    others = [
        record["step"]
        for record in history
        if 0 < record["step"] <= steps and record.get("learning_rate") is not None
        if not np.isclose(record["learning_rate"], rates[record["step"] - 1], rtol=_SAME, atol=0)
    ]
    return max(others, default=0)
