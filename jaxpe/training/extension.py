"""Extension of a run beyond its last step, and the learning rate before and after."""

import dataclasses

import jax
import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.training.build import build_schedule, total_steps
from jaxpe.training.config import TrainConfig, differences, is_longer
from jaxpe.training.log import Record

_TOLERANCE = 1e-5  # relative difference of learning rates beyond rounding to float32


def check_resumption(config: TrainConfig, saved: TrainConfig) -> None:
    """Raise if a run is resumed with other settings, except for more steps or epochs."""
    if is_longer(config, saved) or not differences(config, saved):
        return
    alike = dataclasses.replace(config, steps=saved.steps, epochs=saved.epochs)
    if differences(alike, saved):
        raise InputError(
            f"{config.out} resumes with its own settings, "
            f"{', '.join(differences(config, saved))}: leave these options out, or pass another "
            "`out`"
        )
    unit = "steps" if saved.epochs is None else "epochs"
    length = total_steps(saved, 0) if saved.epochs is None else saved.epochs
    raise InputError(
        f"{config.out} has `{unit}={length:g}`: pass more `{unit}` to extend it, or leave "
        "`steps` and `epochs` out to resume it"
    )


def extension_line(config: TrainConfig, saved: TrainConfig, *, rows: int) -> str:
    """Message about an extended run: its steps, and the learning rate before and after."""
    before, after = total_steps(saved, rows), total_steps(config, rows)
    old, new = _rates(saved, before)[-1], _rates(config, after)[before]
    return (
        f"extended from {before:,} to {after:,} steps; the learning rate continues as in a run of "
        f"{after:,}: {new:.2g} at step {before + 1:,}, after {old:.2g} at step {before:,}"
    )


def extended_after(config: TrainConfig, history: list[Record], *, steps: int) -> int:
    """Last step whose learning rate differs from a run of `steps` steps; 0 for none."""
    rates = {record["step"]: record.get("learning_rate") for record in history}
    pairs = ((step, rates.get(step), new) for step, new in enumerate(_rates(config, steps), 1))
    known = ((step, old, new) for step, old, new in pairs if old is not None)
    other = (s for s, old, new in known if not np.isclose(old, new, rtol=_TOLERANCE, atol=0))
    return max(other, default=0)


def _rates(config: TrainConfig, steps: int) -> np.ndarray:
    """Learning rate at every step, for a run of `steps` steps."""
    with jax.numpy_dtype_promotion("standard"):  # Optax does not know the strict one
        rates = jax.jit(build_schedule(config, steps=steps))(np.arange(steps, dtype=np.int32))
    return np.broadcast_to(np.asarray(rates, np.float32), (steps,))
