"""Models of a task under an encoding: weights and rows shared by all encodings; training, tests."""

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import Array

from jaxpe import nn, training
from jaxpe._core.arrays import ArrayLike
from jaxpe._core.errors import InputError
from jaxpe.analysis.extrapolation.options import ExtrapolationOptions
from jaxpe.data.tasks.sequences import SequenceTask
from jaxpe.encodings import Encoding, EncodingSizes, LayerPattern, identity
from jaxpe.training.losses import MeanMetric, cross_entropy, mean_squared_error
from jaxpe.training.step import LossFunction, TrainState

Params = Any
Batch = dict[str, Array]
AnyEncoding = Encoding | LayerPattern
# Makes a model from options, a task, an encoding and a random key.
ModelFactory = Callable[[ExtrapolationOptions, SequenceTask, AnyEncoding, Array], nnx.Module]

_TRAINING, _TESTS, _WEIGHTS = 1, 2, 3  # streams of random numbers
AT_ONCE = 100  # rows tested together
_CHUNK = 100  # steps of one call, after which an interrupt is noticed


class TrainedModels(NamedTuple):
    """Trained models.

    Attributes:
        params: `[models, ...]`.
        losses: training losses, `[steps, models]`; NaN at the end of a diverged one.
    """

    params: Params
    losses: np.ndarray


def encoding_sizes(options: ExtrapolationOptions, task: SequenceTask) -> EncodingSizes:
    """Sizes for which encodings are built; the length is the number of tokens at input length T."""
    return _config(options, task).encoding_sizes(task.tokens(options.length))


def _config(options: ExtrapolationOptions, task: SequenceTask) -> nn.TransformerConfig:
    return nn.TransformerConfig(
        vocab_size=max(task.vocab_size, 1),
        dim=options.dim,
        num_layers=options.layers,
        num_heads=options.heads,
        hidden_dim=options.hidden,
        activation="relu",
        norm=options.norm,
        init_scale=options.dim**-0.5,
        embedding_scale=1.0 if task.kind == "numbers" else 0.5,
    )


def build(
    options: ExtrapolationOptions, task: SequenceTask, encoding: AnyEncoding, key: Array
) -> nnx.Module:
    """A decoder of tokens, or an encoder or decoder from numbers to numbers."""
    config = _config(options, task)
    below, head = (nnx.Rngs(part) for part in jax.random.split(key))
    if task.kind == "tokens":
        return nn.CausalLM(nn.Decoder(config, encoding=encoding, rngs=below), rngs=head)
    transformer = nn.Decoder if task.causal else nn.Encoder
    between = transformer(config, encoding=encoding, rngs=below)
    return nn.Regressor(between, inputs=1, outputs=1, rngs=head)


def functional_model(
    options: ExtrapolationOptions,
    task: SequenceTask,
    encoding: AnyEncoding,
    model: ModelFactory = build,
) -> tuple[Callable[..., Array], Callable[[Array, Params], Params]]:
    """Functions `apply(params, batch) -> logits` and `initial_params(key, plain) -> params`.

    `plain` are parameters of the model without an encoding, which replace parameters of equal path
    and shape.

    Raises:
        InputError: logits of another shape, at the first call of `apply`.
    """
    shapes = nnx.eval_shape(lambda: model(options, task, encoding, jax.random.key(0)))
    graphdef, _ = nnx.split(shapes, nnx.Param)
    reads = "ids" if task.kind == "tokens" else "values"

    def apply(params: Params, batch: Batch) -> Array:
        out: Any = nnx.merge(graphdef, params)(batch[reads], mask=batch["mask"])
        logits = getattr(out, "logits", out)
        expected = (*batch["mask"].shape, max(task.vocab_size, 1))
        if logits.shape != expected:
            raise InputError(f"logits of the model are {logits.shape}: return {expected}")
        return logits

    def initial_params(key: Array, plain: Params) -> Params:
        shared = dict(jax.tree_util.tree_leaves_with_path(plain))

        def choose(path: Any, leaf: Array) -> Array:
            other = shared.get(path, leaf)
            return other if other.shape == leaf.shape else leaf

        params = nnx.split(model(options, task, encoding, key), nnx.Param)[1]
        return jax.tree_util.tree_map_with_path(choose, params)

    return apply, initial_params


def loss_function(task: SequenceTask, apply: Callable[..., Array]) -> LossFunction:
    """Loss over the scored tokens or numbers, for `jaxpe.training`."""
    numbers = task.kind == "numbers"
    measure = mean_squared_error if numbers else cross_entropy

    def loss(params: Params, batch: Batch, key: Array) -> tuple[MeanMetric, dict[str, MeanMetric]]:
        scored = batch["scored"][..., None] if numbers else batch["scored"]
        return measure(apply(params, batch), batch["labels"], mask=scored), {}

    return loss


def seed_keys(
    options: ExtrapolationOptions, task: SequenceTask, seeds: ArrayLike, *stream: int
) -> Array:
    """A key for each seed of a stream of random numbers: tasks differ, encodings do not."""
    key = jax.random.key(options.seed)
    for number in (zlib.crc32(task.name.encode()) % 2**31, *stream):
        key = jax.random.fold_in(key, number)
    return jax.vmap(lambda seed: jax.random.fold_in(key, seed))(jnp.asarray(seeds, jnp.uint32))


class Streams(NamedTuple):
    """Rows and weights of a task, from programs that all its encodings share.

    Attributes:
        task: the task.
        training: `(seeds, steps)` to batches, leaves `[steps, seeds, rows, ...]`.
        tests: `(seeds, length)` to test rows, leaves `[parts, seeds, rows, ...]`.
        weights: `(seeds)` to a key for each, and to the initial parameters of the models without
            an encoding.
    """

    task: SequenceTask
    training: Callable[[np.ndarray, np.ndarray], Batch]
    tests: Callable[[np.ndarray, int], Batch]
    weights: Callable[[np.ndarray], tuple[Array, Params]]


def streams(
    options: ExtrapolationOptions, task: SequenceTask, *, model: ModelFactory = build
) -> Streams:
    """Rows and weights of a task; training rows are new at each step, and of lengths up to T.

    >>> from jaxpe.data import sequence_task
    >>> data = streams(ExtrapolationOptions(length=3, batch=4), sequence_task("parity"))
    >>> data.training(np.arange(2), np.arange(5))["ids"].shape  # steps, seeds, rows, places
    (5, 2, 4, 7)
    """
    keys, count = partial(seed_keys, options, task), min(options.tests, AT_ONCE)

    def drawn(keys: Array, numbers: Array, **shape: Any) -> Batch:
        def rows(number: Array, key: Array) -> Batch:
            return task.sample(jax.random.fold_in(key, number), **shape)

        return jax.vmap(jax.vmap(rows, in_axes=(None, 0)), in_axes=(0, None))(numbers, keys)

    @jax.jit
    def training_rows(seeds: Array, steps: Array) -> Batch:
        shape: Any = {"rows": options.batch, "length": options.length, "exact": False}
        return drawn(keys(seeds, _TRAINING), steps, **shape)

    @partial(jax.jit, static_argnums=1)
    def test_rows(seeds: Array, length: int) -> Batch:
        parts = jnp.arange(options.tests // count, dtype=jnp.int32)
        return drawn(keys(seeds, _TESTS, length), parts, rows=count, length=length)

    @jax.jit
    @jax.vmap
    def plain_params(key: Array) -> Params:
        return nnx.split(model(options, task, identity(), key), nnx.Param)[1]

    def weights(seeds: np.ndarray) -> tuple[Array, Params]:
        weight_keys = keys(seeds, _WEIGHTS)
        return weight_keys, plain_params(weight_keys)

    return Streams(task, training_rows, test_rows, weights)


def trainer(
    options: ExtrapolationOptions,
    data: Streams,
    encoding: AnyEncoding,
    *,
    model: ModelFactory = build,
) -> Callable[..., TrainedModels]:
    """Function `train(seeds=, rates=, steps=)`: one program trains models of all seeds and rates.

    Rows and initial weights of a seed do not depend on encoding or rate. The rate warms up over a
    twentieth of the steps and falls to 0 as a cosine. A different number of steps needs no
    compilation, a different number of models does.
    """
    apply, initial_params = functional_model(options, data.task, encoding, model)
    loss = loss_function(data.task, apply)

    @jax.jit
    @jax.vmap
    def first_states(key: Array, plain: Params) -> TrainState:
        return training.init_state(initial_params(key, plain), _optimizer(1.0, 1), key=key)

    @partial(jax.jit, donate_argnums=0)
    def some_steps(states: Any, batches: Batch, count: Array, rates: Array, steps: Array) -> Any:
        def one(state: Any, batch: Batch, rate: Array) -> Any:
            state, metrics = training.step_function(loss, _optimizer(rate, steps))(state, batch)
            return state, metrics["loss"]

        def step(index: Array, carry: Any) -> Any:
            batch = jax.tree.map(lambda x: x[index], batches)
            states, new = jax.vmap(one)(carry[0], batch, rates)
            return states, carry[1].at[index].set(new)

        losses = jnp.zeros((_CHUNK, len(rates)), rates.dtype)
        return jax.lax.fori_loop(0, count, step, (states, losses))

    def train(*, seeds: np.ndarray, rates: np.ndarray, steps: int) -> TrainedModels:
        states, losses = first_states(*data.weights(seeds)), []
        for first in range(0, steps, _CHUNK):
            batches = data.training(seeds, np.arange(first, first + _CHUNK, dtype=np.int32))
            count = np.int32(min(_CHUNK, steps - first))
            states, curve = some_steps(states, batches, count, np.float32(rates), np.float32(steps))
            losses.append(np.array(curve[:count]))
        losses[-1][-1] = np.where(np.asarray(states.finite), losses[-1][-1], np.nan)
        return TrainedModels(jax.device_get(states.params), np.concatenate(losses))

    return train


def _optimizer(rate: Array | float, steps: Array | int) -> optax.GradientTransformation:
    in_percent = training.learning_rate_schedule(peak=1.0, steps=100, warmup=5, decay="cosine")
    adam = training.adamw(lambda count: in_percent(100 * count / steps))
    return optax.chain(adam, optax.scale(rate))


def score_models(
    task: SequenceTask, apply: Callable[..., Array], params: Params, batches: Batch
) -> dict[str, np.ndarray]:
    """Metrics `[models]` of models on their test rows, leaves `[parts, models, rows, ...]`."""

    @jax.jit
    def means(params: Params, batches: Batch) -> dict[str, Array]:
        one = jax.vmap(lambda params, batch: scores(task, apply(params, batch), batch))
        parts = jax.lax.map(lambda batch: one(params, batch), batches)
        total = jax.tree.map(lambda x: jnp.sum(x, axis=0), parts)
        return {name: jax.vmap(lambda x: x.mean)(sums) for name, sums in total.items()}

    return jax.device_get(means(params, batches))


def scores(task: SequenceTask, logits: Array, batch: Batch) -> dict[str, MeanMetric]:
    """Metrics of a batch as sums and weights that add.

    "accuracy" is the share of correct scored tokens, "exact" the share of rows with all scored
    tokens correct. "relative_mse" is the squared error of scored numbers by the mean of their
    squares, so a model that always says 0 has 1; "mse" is not divided. A scored logit that is not
    finite makes them NaN.
    """
    scored = batch["scored"]
    finite = jnp.all(jnp.isfinite(logits) | ~scored[..., None])

    def total(values: Array) -> Array:
        return jnp.sum(values, dtype=logits.dtype)

    if task.kind == "tokens":
        right = jnp.argmax(logits, axis=-1).astype(jnp.int32) == batch["labels"]
        rows = jnp.all(right | ~scored, axis=-1)
        sums = {
            "accuracy": (total(right & scored), total(scored)),
            "exact": (total(rows), total(jnp.ones_like(rows))),
        }
    else:
        counted = scored[..., None]
        error = total(jnp.where(counted, logits - batch["labels"], 0) ** 2)
        size = total(jnp.where(counted, batch["labels"], 0) ** 2)
        sums = {"relative_mse": (error, size), "mse": (error, total(counted))}
    return {
        name: MeanMetric(jnp.where(finite, part, jnp.nan), weight)
        for name, (part, weight) in sums.items()
    }
