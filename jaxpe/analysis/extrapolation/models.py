"""Model of a task under an encoding, with shared initial weights wherever shapes allow."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from jaxpe import nn
from jaxpe._core.errors import InputError
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.data import SequenceTask
from jaxpe.encodings import Encoding, EncodingSizes, LayerPattern, identity
from jaxpe.training import MeanMetric, cross_entropy, mean_squared_error

Params = Any
Batch = dict[str, Array]
# Makes a model from a suite, a task, an encoding and a random key.
ModelFactory = Callable[[Suite, SequenceTask, Encoding | LayerPattern, Array], nnx.Module]

METRICS = {"tokens": ("accuracy", "exact"), "numbers": ("mse", "relative_mse")}


def encoding_sizes(suite: Suite, task: SequenceTask) -> EncodingSizes:
    """Sizes for which encodings are built; the length is the number of tokens at input length T."""
    return _config(suite, task).encoding_sizes(task.tokens(suite.length))


def _config(suite: Suite, task: SequenceTask) -> nn.TransformerConfig:
    return nn.TransformerConfig(
        vocab_size=max(task.vocab_size, 1),
        dim=suite.dim,
        num_layers=suite.layers,
        num_heads=suite.heads,
        hidden_dim=suite.hidden,
        activation="relu",
        norm=suite.norm,
        init_scale=suite.dim**-0.5 if suite.init_scale is None else suite.init_scale,
        embedding_scale=1.0 if task.kind == "numbers" else 0.5,
    )


def build(
    suite: Suite, task: SequenceTask, encoding: Encoding | LayerPattern, key: Array
) -> nnx.Module:
    """A decoder of tokens, or an encoder or decoder from numbers to numbers."""
    config = _config(suite, task)
    below, head = (nnx.Rngs(part) for part in jax.random.split(key))
    if task.kind == "tokens":
        decoder = nn.Decoder(config, encoding=encoding, rngs=below)
        return nn.CausalLM(decoder, rngs=head)
    transformer = nn.Decoder if task.causal else nn.Encoder
    between = transformer(config, encoding=encoding, rngs=below)
    return nn.Regressor(between, inputs=1, outputs=1, rngs=head)


def functional_model(
    suite: Suite,
    task: SequenceTask,
    encoding: Encoding | LayerPattern,
    make: ModelFactory = build,
) -> tuple[Callable[..., Array], Callable[[Array, Params], Params]]:
    """Functions `apply(params, batch) -> logits` and `initial_params(key, plain) -> params`.

    `plain` are parameters from `plain_weights`, which replace parameters of equal path and shape.
    A model returns logits, or an object with `logits`.
    """
    model = nnx.eval_shape(lambda: make(suite, task, encoding, jax.random.key(0)))
    graphdef, _ = nnx.split(model, nnx.Param)
    reads = "ids" if task.kind == "tokens" else "values"
    width = max(task.vocab_size, 1)

    def apply(params: Params, batch: Batch) -> Array:
        out: Any = nnx.merge(graphdef, params)(batch[reads], mask=batch["mask"])
        logits, expected = getattr(out, "logits", out), (*batch["mask"].shape, width)
        if logits.shape != expected:
            raise InputError(f"logits of the model are {logits.shape}: return {expected}")
        return logits

    def initial_params(key: Array, plain: Params) -> Params:
        shared = dict(jax.tree_util.tree_leaves_with_path(plain))

        def choose(path: Any, leaf: Array) -> Array:
            other = shared.get(path, leaf)
            return other if other.shape == leaf.shape else leaf

        params = nnx.split(make(suite, task, encoding, key), nnx.Param)[1]
        return jax.tree_util.tree_map_with_path(choose, params)

    return apply, initial_params


def plain_weights(
    suite: Suite, task: SequenceTask, key: Array, make: ModelFactory = build
) -> Params:
    """Initial parameters of the model without an encoding."""
    return nnx.split(make(suite, task, identity(), key), nnx.Param)[1]


def build_loss(task: SequenceTask, apply: Callable[..., Array]) -> Callable[..., Any]:
    """Loss over the scored tokens or numbers, for `jaxpe.training`."""

    def loss(params: Params, batch: Batch, key: Array) -> tuple[MeanMetric, dict[str, MeanMetric]]:
        out = apply(params, batch)
        measure = cross_entropy if task.kind == "tokens" else mean_squared_error
        scored = batch["scored"] if task.kind == "tokens" else batch["scored"][..., None]
        return measure(out, batch["labels"], mask=scored), {}

    return loss


def scores(task: SequenceTask, logits: Array, batch: Batch) -> dict[str, MeanMetric]:
    """The metrics of a batch, `METRICS` of the task's kind, as sums and weights that add.

    "accuracy" is the share of correct scored tokens, "exact" the share of rows with all scored
    tokens correct. "mse" is the squared error of scored numbers; "relative_mse" divides it by the
    mean of their squares, so a model that always says 0 has 1. A scored logit that is not finite
    makes them NaN.
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
        sums = {"mse": (error, total(counted)), "relative_mse": (error, size)}
    return {
        name: MeanMetric(jnp.where(finite, part, jnp.nan), weight)
        for name, (part, weight) in sums.items()
    }
