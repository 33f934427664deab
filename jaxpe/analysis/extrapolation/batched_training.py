"""Training of many models at once: a lane is a seed and a learning rate."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from jaxpe import training
from jaxpe.analysis.extrapolation.models import Batch, Params, loss_of, model_of, scores
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.analysis.extrapolation.streams import Streams
from jaxpe.encodings import Encoding, LayerPattern
from jaxpe.training import MeanMetric, TrainState

_CHUNK = 100  # steps of one call


class Lanes(NamedTuple):
    """Trained models.

    Attributes:
        params: `[lanes, ...]`.
        losses: losses of training, `[steps, lanes]`; NaN at the end where one was no longer finite.
    """

    params: Params
    losses: np.ndarray


def trainer(suite: Suite, data: Streams, encoding: Encoding | LayerPattern) -> Callable[..., Lanes]:
    """`train(seeds=, rates=, steps=)`: models of all seeds and rates, by one program.

    Data and initial weights of a seed do not depend on encoding or rate. The rate warms up over a
    twentieth of the steps and falls to 0 as a cosine. Another number of steps compiles nothing
    again, another number of lanes does.
    """
    apply, start = model_of(suite, data.task, encoding)
    loss = loss_of(data.task, apply)

    @jax.jit
    def begin(keys: Array, plain: Params) -> TrainState:
        return _first_states(keys, jax.vmap(start)(keys, plain))

    def begun(keys: Array, plain: Params) -> TrainState:
        alike = jax.eval_shape(jax.vmap(start), keys, plain) == jax.eval_shape(lambda: plain)
        return (_first_states if alike else begin)(keys, plain)

    @partial(jax.jit, donate_argnums=0)
    def some_steps(states: Any, batches: Batch, rates: Array, steps: Array) -> Any:
        def one(rate: Array, state: Any, batch: Batch) -> Any:
            state, metrics = training.step_function(loss, _optimizer(rate, steps))(state, batch)
            return state, metrics["loss"]

        return jax.lax.scan(partial(jax.vmap(one), rates), states, batches)

    def train(*, seeds: np.ndarray, rates: np.ndarray, steps: int) -> Lanes:
        states = begun(*data.weights(seeds))
        given, count = np.asarray(rates, np.float32), np.float32(steps)
        losses = []
        for at in range(0, steps, chunk := chunk_of(suite)):
            batches = data.training(seeds, at, chunk)
            states, loss = some_steps(states, batches, given, count)
            losses.append(np.array(loss))
        losses[-1][-1] = np.where(np.asarray(states.finite), losses[-1][-1], np.nan)
        return Lanes(jax.device_get(states.params), np.concatenate(losses))

    return train


def _optimizer(rate: Array | float, steps: Array | int) -> optax.GradientTransformation:
    in_percent = training.learning_rate_schedule(peak=1.0, steps=100, warmup=5, decay="cosine")
    adam = training.adamw(lambda count: in_percent(100 * count / steps))
    return optax.chain(adam, optax.scale(rate))


@jax.jit
def _first_states(keys: Array, params: Params) -> TrainState:
    """States of all lanes; rate and steps are none of their business."""
    return jax.vmap(lambda key, own: training.init_state(own, _optimizer(1.0, 1), key=key))(
        keys, params
    )


def chunk_of(suite: Suite) -> int:
    """Steps of one call: at most 100, and no rest is left that would be compiled by itself."""
    common = math.gcd(suite.steps, suite.tuning_steps)
    return max(size for size in range(1, _CHUNK + 1) if common % size == 0)


def judge_lanes(
    suite: Suite,
    data: Streams,
    encoding: Encoding | LayerPattern,
    params: Params,
    *,
    seeds: np.ndarray,
    lengths: tuple[int, ...],
) -> dict[str, np.ndarray]:
    """Metrics `[lengths, lanes]` of models at inputs of several lengths, by one program."""
    apply, _ = model_of(suite, data.task, encoding)

    def judge(params: Params, batches: Batch) -> dict[str, Array]:
        def part(batch: Batch) -> dict[str, MeanMetric]:
            return jax.vmap(lambda p, b: scores(data.task, apply(p, b), b))(params, batch)

        sums = jax.tree.map(lambda x: jnp.sum(x, axis=0), jax.lax.map(part, batches))
        return jax.vmap(lambda tallies: {name: x.mean for name, x in tallies.items()})(sums)

    @jax.jit
    def at_lengths(params: Params, batches: Batch) -> dict[str, Array]:
        return jax.lax.map(partial(judge, params), batches)

    return jax.device_get(at_lengths(params, data.tests(seeds, lengths)))
