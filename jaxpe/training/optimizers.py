"""AdamW and its learning-rate schedule, from Optax; average of the parameters."""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Int

from jaxpe.encodings.base import compute_dtype

Params = Any
Schedule = Callable[[Any], Any]

DECAYED = ("kernel", "embedding")


def learning_rate_schedule(
    *,
    peak: float,
    steps: int,
    warmup: int = 0,
    decay: Literal["constant", "linear", "cosine"] = "constant",
) -> Schedule:
    """Linear warm-up from 0 to `peak`, then constant, or linear or cosine decay to 0.

    Args:
        peak: largest rate, at step `warmup`; without warm-up, at the first step.
        steps: number of training steps, warm-up included; a decay ends with them.
        warmup: number of warm-up steps.
        decay: shape of the decay; "constant" never decays.

    Raises:
        ValueError: a warm-up as long as the training, or a rate that is not positive.

    >>> rate = learning_rate_schedule(peak=1.0, steps=10, warmup=2, decay="linear")
    >>> [float(rate(step)) for step in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if not 0 <= warmup < steps:
        raise ValueError(f"warmup={warmup} must be at least 0 and less than steps={steps}")
    if not peak > 0:
        raise ValueError(f"peak={peak} must be positive")
    after = {
        "constant": optax.constant_schedule(peak),
        "linear": optax.linear_schedule(peak, 0.0, steps - warmup),
        "cosine": optax.cosine_decay_schedule(peak, steps - warmup),
    }
    if decay not in after:
        raise ValueError(f"decay={decay!r} is unknown: pass one of {', '.join(after)}")
    # Not optax.warmup_cosine_decay_schedule and its kin: they have no linear or constant decay.
    parts = [optax.linear_schedule(0.0, peak, warmup), after[decay]]
    return optax.join_schedules(parts, [warmup]) if warmup else after[decay]


def weight_decay_mask(params: Params) -> Params:
    """Mask of the parameters that weight decay shrinks: names with kernel or embedding.

    Biases, scales of norms and everything below `encoding_params` are excluded. Fixed encodings
    store arrays in `encoding_params` that have no gradient, and weight decay would shrink them.

    >>> params = {"dense": {"kernel": 0, "bias": 0}, "encoding_params": {"embedding": 0}}
    >>> weight_decay_mask(params)
    {'dense': {'bias': False, 'kernel': True}, 'encoding_params': {'embedding': False}}
    """

    def decays(path, leaf):
        names = [jax.tree_util.keystr((entry,), simple=True) for entry in path]
        names = names[:-1] if names[-1:] == ["value"] else names  # of an nnx.Variable
        matrix = bool(names) and any(word in names[-1] for word in DECAYED)
        return matrix and not any(name.endswith("encoding_params") for name in names)

    return jax.tree_util.tree_map_with_path(decays, params)


def adamw(
    schedule: Schedule | float,
    *,
    weight_decay: float = 0.0,
    clip: float | None = 1.0,
    decay_mask: Callable[[Params], Params] = weight_decay_mask,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> optax.GradientTransformation:
    """AdamW (Loshchilov & Hutter 2019), with the gradient clipped by its global norm.

    Args:
        schedule: learning rate, a number or a function of the step.
        weight_decay: decoupled weight decay; each step shrinks by it times the learning rate.
        clip: largest norm of the whole gradient; None for no clipping.
        decay_mask: function from parameters to booleans of the same structure.
        b1, b2: decay of the first and the second moment.
        eps: number added to the root of the second moment.

    Raises:
        ValueError: (at `init`) weight decay, but no parameter that it acts on.

    >>> from jaxpe.training import init_state, step_function
    >>> from jaxpe.training.losses import MeanMetric
    >>> flat = lambda params, batch, key: (MeanMetric(jnp.array(0.0), jnp.array(1.0)), {})
    >>> optimizer = adamw(0.1, weight_decay=0.5)
    >>> start = {"kernel": jnp.ones(()), "bias": jnp.ones(())}
    >>> state = init_state(start, optimizer, key=jax.random.key(0))
    >>> state, _ = step_function(flat, optimizer)(state, {})
    >>> round(state.params["kernel"].item(), 6), state.params["bias"].item()
    (0.95, 1.0)
    """

    def mask(params):
        chosen = decay_mask(params)
        if weight_decay and not any(jax.tree.leaves(chosen)):
            raise ValueError(
                "weight decay acts on no parameter: decay_mask is false for all of them "
                f"(weight_decay_mask looks for names with {' or '.join(DECAYED)})"
            )
        return chosen

    adam = optax.adamw(schedule, b1=b1, b2=b2, eps=eps, weight_decay=weight_decay, mask=mask)
    return adam if clip is None else optax.chain(optax.clip_by_global_norm(clip), adam)


class AverageState(NamedTuple):
    """State of `parameter_average`: number of updates, and the average in float32 or wider."""

    count: Int[Array, "*seeds"]
    average: Params


def parameter_average(decay: float) -> optax.GradientTransformation:
    """Exponential moving average of the parameters (Polyak & Juditsky 1992), in the Optax state.

    Chain it after an optimizer, whose updates it leaves unchanged. After t steps, the parameters of
    step s have a weight proportional to decay^(t−s). The weights sum to 1 from the first step, and
    initial parameters have none. `averaged_params` returns the average.

    Args:
        decay: factor of the weights per step, in (0, 1). The average is over about 1 / (1 − decay)
            steps.

    >>> optimizer = optax.chain(optax.sgd(1.0), parameter_average(0.5))
    >>> state = optimizer.init(jnp.array(0.0))
    >>> for params in (0.0, 1.0):  # both updates are 1
    ...     updates, state = optimizer.update(jnp.array(-1.0), state, jnp.array(params))
    >>> round(state[1].average.item(), 4)  # (0.5 · 1 + 1 · 2) / 1.5
    1.6667
    """
    if not 0 < decay < 1:
        raise ValueError(f"decay={decay} must be between 0 and 1, such as 0.999")

    def init(params):
        # A copy: `train_step` donates the buffers of both.
        copies = jax.tree.map(lambda p: jnp.array(p, compute_dtype(p)), params)
        return AverageState(jnp.int32(0), copies)

    # Not optax.ema: in float32 its weights do not sum to 1. It averages the constant 1 to 0.9995
    # for decay=0.9999, and to 0.9986 for 0.99999.
    def update(updates: Params, state: Any, params: Params = None) -> tuple[Params, Any]:
        count = state.count + 1
        rate = (1 - decay) / -jnp.expm1(count.astype(float) * math.log(decay))
        average = jax.tree.map(
            lambda mean, new: mean + rate.astype(mean.dtype) * (new.astype(mean.dtype) - mean),
            state.average,
            optax.apply_updates(params, updates),
        )
        return updates, AverageState(count, average)

    return optax.GradientTransformation(init, update)
