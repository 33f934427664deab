"""Learning rates and AdamW."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxpe.training import (
    TrainConfig,
    adamw,
    averaged_params,
    init_state,
    learning_rate_schedule,
    parameter_average,
    step_function,
    train_step,
)
from jaxpe.training.build import build_optimizer
from jaxpe.training.losses import MeanMetric
from jaxpe.training.optimizers import weight_decay_mask


@pytest.mark.parametrize("decay", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 5])
def test_rates_rise_to_the_peak_and_fall_to_the_end(decay, warmup):
    schedule = learning_rate_schedule(peak=2.0, steps=20, warmup=warmup, decay=decay)
    step = np.arange(25)
    done = np.clip((step - warmup) / (20 - warmup), 0, 1)
    cosine = (1 + np.cos(np.pi * done)) / 2
    falling = {"constant": 0 * done + 1, "linear": 1 - done, "cosine": cosine}
    expected = 2 * np.where(step < warmup, step / max(warmup, 1), falling[decay])
    with jax.numpy_dtype_promotion("standard"):  # of Optax
        rates = jax.jit(jax.vmap(schedule))(step)
    np.testing.assert_allclose(rates, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("steps", "warmup", "expected"),
    [(8, 0.5, [0, 0.25, 0.5, 0.75, 1, 0.75, 0.5, 0.25, 0]), (1, 0.9, [1, 0]), (2, 0.9, [0, 1, 0])],
)
def test_the_warm_up_of_a_run_ends_at_its_share_of_the_steps(steps, warmup, expected):
    config = TrainConfig(learning_rate=1.0, warmup=warmup)
    rates = [float(build_optimizer(config, steps=steps)[1](step)) for step in range(steps + 1)]
    np.testing.assert_allclose(rates, expected)


class Model(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(4, 3, rngs=rngs)
        self.embedding_norm = nnx.LayerNorm(3, rngs=rngs)
        self.blocks = nnx.List([nnx.Linear(3, 2, rngs=rngs)])
        self.encoding_params = nnx.Dict(kernel=nnx.Param(jnp.ones(3)))


def test_matrices_and_embeddings_of_a_flax_state_are_decayed_and_nothing_else():
    params = nnx.split(Model(nnx.Rngs(0)), nnx.Param)[1]
    chosen = weight_decay_mask(params)
    assert jax.tree.structure(chosen) == jax.tree.structure(params)
    names = {
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, choice in jax.tree_util.tree_leaves_with_path(chosen)
        if choice
    }
    assert names == {"embed/embedding/value", "blocks/0/kernel/value"}


def still(params, batch, key):
    """A loss without a gradient: what moves, moves by decay alone."""
    return MeanMetric(jnp.float32(0), jnp.float32(1)), {}


def test_decay_acts_where_it_should_and_by_the_learning_rate():
    params = nnx.split(Model(nnx.Rngs(0)), nnx.Param)[1]
    optimizer = adamw(0.5, weight_decay=0.1)
    state = init_state(params, optimizer, key=jax.random.key(0))
    after = jax.jit(step_function(still, optimizer))(state, {})[0].params
    shrunk = jax.tree.map(lambda p, d: p * (0.95 if d else 1.0), params, weight_decay_mask(params))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), after, shrunk)


def test_clipping_makes_large_gradients_alike_and_leaves_small_ones():
    """By the moments, because Adam itself does not care for the scale."""
    params = {"kernel": jnp.zeros(2)}
    gradient = {"kernel": jnp.array([3.0, 4.0])}
    for clip, expected in ((1.0, [0.6, 0.8]), (10.0, [3.0, 4.0]), (None, [3.0, 4.0])):
        optimizer = adamw(0.1, clip=clip, b1=0.0)
        with jax.numpy_dtype_promotion("standard"):
            _, state = optimizer.update(gradient, optimizer.init(params), params)
        np.testing.assert_allclose(optax.tree.get(state, "mu")["kernel"], expected, rtol=1e-6)


def test_decay_that_acts_on_nothing_is_an_error():
    params = {"w": jnp.ones(2)}
    with pytest.raises(ValueError, match="weight decay"):
        adamw(0.1, weight_decay=0.1).init(params)
    adamw(0.1).init(params)
    adamw(0.1, weight_decay=0.1, decay_mask=lambda p: {"w": True}).init(params)


def test_wrong_schedules_and_averages_are_named():
    for wrong, options in (("warmup", {"peak": 1.0, "warmup": 5}), ("peak", {"peak": 0.0})):
        with pytest.raises(ValueError, match=wrong):
            learning_rate_schedule(steps=5, **options)
    state = init_state(jnp.ones(2), optax.adam(0.1), key=jax.random.key(0))
    with pytest.raises(ValueError, match="parameter_average"):
        averaged_params(state)
    with pytest.raises(ValueError, match="between 0 and 1"):
        parameter_average(1.0)


@pytest.mark.parametrize(("dtype", "decay"), [(np.float64, 0.5), (jnp.bfloat16, 0.9999)])
def test_the_average_weighs_the_steps_and_not_the_start(dtype, decay):
    optimizer = optax.chain(optax.sgd(1.0), parameter_average(decay))
    start = jnp.asarray([1.0, 5.0], dtype)
    state = init_state(start, optimizer, key=jax.random.key(0))
    np.testing.assert_array_equal(averaged_params(state), start)
    step = train_step(lambda params, batch, key: -jnp.sum(params * batch["g"]), optimizer)
    seen = []
    for number in range(5):
        state, _ = step(state, {"g": jnp.asarray([number, 1.0], dtype)})
        seen.append(np.asarray(state.params, np.float64))
    np.testing.assert_array_equal(state.params, start + jnp.asarray([10, 5], dtype))  # as without
    expected = np.average(seen, axis=0, weights=decay ** np.arange(4, -1, -1.0))
    average = averaged_params(state)
    assert average.dtype == dtype
    rtol = 1e-2 if dtype == jnp.bfloat16 else 1e-6
    np.testing.assert_allclose(np.asarray(average, np.float64), expected, rtol=rtol)


def test_seeds_have_averages_of_their_own_and_a_step_that_is_not_finite_none():
    optimizer = optax.chain(optax.adam(0.1), parameter_average(0.9))
    step = step_function(lambda params, batch, key: jnp.sum(params * batch["x"]), optimizer)
    keys = jax.random.split(jax.random.key(0), 2)
    states = [init_state(jnp.ones(2), optimizer, key=key) for key in keys]
    both = jax.tree.map(lambda *x: jnp.stack(x), *states)
    after, _ = jax.vmap(step)(both, {"x": jnp.asarray([[1.0, -1.0], [np.inf, 1.0]])})
    np.testing.assert_allclose(jax.vmap(averaged_params)(after), [[0.9, 1.1], [1, 1]], rtol=1e-6)
