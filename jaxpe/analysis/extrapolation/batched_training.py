"""Batched training: one program trains many models, each a seed with a learning rate."""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from jaxpe import training
from jaxpe.analysis.extrapolation.models import Batch, Params, build_loss, functional_model, scores
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.analysis.extrapolation.streams import Streams
from jaxpe.encodings import Encoding, LayerPattern
from jaxpe.training import MeanMetric, TrainState

_CHUNK = 100  # steps of one call


class TrainedModels(NamedTuple):
    """Trained models.

    Attributes:
        params: `[models, ...]`.
        losses: training losses, `[steps, models]`; NaN at the end of a diverged one.
    """

    params: Params
    losses: np.ndarray


def trainer(
    suite: Suite,
    data: Streams,
    encoding: Encoding | LayerPattern,
    timed: Callable[[int, int, float], None] | None = None,
) -> Callable[..., TrainedModels]:
    """Function `train(seeds=, rates=, steps=)` for models of all seeds and rates, in one program.

    Data and initial weights of a seed do not depend on encoding or rate. The rate warms up over a
    twentieth of the steps and falls to 0 as a cosine. A different number of steps needs no
    compilation, a different number of models does. `timed` receives the number of models, of steps
    and of seconds of each call of the program.
    """
    apply, initial_params = functional_model(suite, data.task, encoding, data.make)
    loss = build_loss(data.task, apply)

    @jax.jit
    @jax.vmap
    def first_states(key: Array, plain: Params) -> TrainState:
        return training.init_state(initial_params(key, plain), _optimizer(1.0, 1), key=key)

    @partial(jax.jit, donate_argnums=0)
    def some_steps(states: Any, batches: Batch, rates: Array, steps: Array) -> Any:
        def one(rate: Array, state: Any, batch: Batch) -> Any:
            state, metrics = training.step_function(loss, _optimizer(rate, steps))(state, batch)
            return state, metrics["loss"]

        return jax.lax.scan(partial(jax.vmap(one), rates), states, batches)

    def train(*, seeds: np.ndarray, rates: np.ndarray, steps: int) -> TrainedModels:
        states = first_states(*data.weights(seeds))
        losses = []
        for first in range(0, steps, chunk := chunk_of(suite)):
            batches = jax.block_until_ready(data.training(seeds, first, chunk))
            started = time.perf_counter()
            states, loss = some_steps(states, batches, np.float32(rates), np.float32(steps))
            losses.append(np.array(loss))
            if timed is not None:
                timed(len(seeds), chunk, time.perf_counter() - started)
        losses[-1][-1] = np.where(np.asarray(states.finite), losses[-1][-1], np.nan)
        return TrainedModels(jax.device_get(states.params), np.concatenate(losses))

    return train


def _optimizer(rate: Array | float, steps: Array | int) -> optax.GradientTransformation:
    in_percent = training.learning_rate_schedule(peak=1.0, steps=100, warmup=5, decay="cosine")
    adam = training.adamw(lambda count: in_percent(100 * count / steps))
    return optax.chain(adam, optax.scale(rate))


def chunk_of(suite: Suite) -> int:
    """Steps of one call: at most 100, and a divisor of all steps, so one program suffices."""
    common = math.gcd(suite.steps, suite.tuning_steps)
    return max(size for size in range(1, _CHUNK + 1) if common % size == 0)


def score_models(
    suite: Suite,
    data: Streams,
    encoding: Encoding | LayerPattern,
    params: Params,
    *,
    seeds: np.ndarray,
    lengths: tuple[int, ...],
) -> dict[str, np.ndarray]:
    """Metrics `[lengths, models]` at inputs of several lengths, by one program."""
    apply, _ = functional_model(suite, data.task, encoding, data.make)

    @jax.jit
    def at_lengths(params: Params, batches: Batch) -> dict[str, Array]:
        def sums(batch: Batch) -> dict[str, MeanMetric]:
            return jax.vmap(lambda p, b: scores(data.task, apply(p, b), b))(params, batch)

        def means(batches: Batch) -> dict[str, Array]:
            total = jax.tree.map(lambda x: jnp.sum(x, axis=0), jax.lax.map(sums, batches))
            return jax.vmap(lambda sums: {name: x.mean for name, x in sums.items()})(total)

        return jax.lax.map(means, batches)

    return jax.device_get(at_lengths(params, data.tests(seeds, lengths)))
