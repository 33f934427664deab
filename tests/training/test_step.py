"""One step: exact gradients however the batch is split, and nothing lost when it is not finite."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpe.training import (
    adamw,
    evaluate,
    in_order,
    init_state,
    learning_rate_schedule,
    step_function,
    train_step,
)
from jaxpe.training.losses import MeanMetric
from tests.compilation import counted
from tests.training import factory
from tests.training.factory import OPTIMIZER, assert_close, assert_equal, masked_loss, quiet_loss

SGD = optax.sgd(0.5)


@jax.jit
def mean_loss(params, batch):
    return quiet_loss(params, batch, None)[0].mean


def test_microbatches_of_unequal_weight_make_the_step_of_the_whole_batch():
    """Which goes along the gradient of the mean, and not of the mean of the parts' means."""
    batch, state = factory.rows(12), factory.state(optimizer=SGD)
    batch["mask"][::2] = False  # the first microbatch of two weighs nothing at all
    gradient = jax.jit(jax.grad(mean_loss))(state.params, batch)
    expected = jax.tree.map(lambda p, g: p - 0.5 * g, state.params, gradient)
    loss, norm = mean_loss(state.params, batch), optax.tree.norm(gradient)
    for accumulate in (1, 2, 6):
        step = jax.jit(step_function(quiet_loss, SGD, accumulate=accumulate))
        after, metrics = step(state, batch)
        assert_close(after.params, expected, rtol=1e-5)
        found = [metrics[name] for name in ("loss", "grad_norm", "weight")]
        np.testing.assert_allclose(found, [loss, norm, batch["mask"].sum()], rtol=1e-5)
    means = [
        mean_loss(state.params, {name: rows[i::6] for name, rows in batch.items()})
        for i in range(6)
    ]
    assert abs(np.mean(means) - loss) > 0.01


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_dtype_changes(dtype):
    schedule = learning_rate_schedule(peak=0.1, steps=9, warmup=2, decay="cosine")
    chosen = adamw(schedule, weight_decay=0.1)
    state = factory.state(dtype, optimizer=chosen)
    kinds = jax.tree.map(lambda x: (x.shape, x.dtype), state)
    loss, traced = counted(masked_loss)
    step = train_step(loss, chosen, accumulate=2, schedule=schedule)
    state, _ = step(state, factory.rows(4))
    before = len(traced)
    state, metrics = step(state, factory.rows(4))
    assert len(traced) == before > 0  # not compiled again
    assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == kinds
    assert state.step == 2
    np.testing.assert_allclose(metrics["learning_rate"], 0.05, rtol=1e-6)


def test_steps_and_microbatches_draw_anew_and_runs_repeat():
    def noise(params, batch, key):
        total = jax.random.normal(key, (), jnp.float32)
        return MeanMetric(total + 0 * params["bias"].sum(), jnp.float32(1)), {}

    losses = []
    for accumulate in (1, 2):
        step = jax.jit(step_function(noise, SGD, accumulate=accumulate))
        for seed in (0, 0, 1):
            state = factory.state(seed=seed, optimizer=SGD)
            for _ in range(2):
                state, metrics = step(state, {"x": np.zeros(2)})
                losses.append(float(metrics["loss"]))
    first, again, other, *_ = np.reshape(losses, (6, 2))
    np.testing.assert_array_equal(first, again)
    assert len({*first, *other}) == 4
    assert len(set(losses)) == 8


def test_a_step_that_is_not_finite_changes_nothing_nor_does_any_after_it():
    step = jax.jit(step_function(masked_loss, OPTIMIZER))
    good = factory.rows(4)
    before, _ = step(factory.state(), good)
    bad = good | {"x": np.full_like(good["x"], np.nan), "mask": np.ones(4, bool)}
    after, metrics = step(before, bad)
    assert not metrics["finite"]
    assert np.isnan(metrics["loss"])
    assert_equal(after, before._replace(finite=jnp.array(False)))
    later, metrics = step(after, good)
    assert not metrics["finite"]
    assert np.isfinite(metrics["loss"])
    assert_equal(later, after)
    mended, metrics = step(after._replace(finite=jnp.array(True)), good)
    assert metrics["finite"]
    assert_equal(mended, step(before, good)[0])


def test_bad_gradients_are_left_out_if_the_optimizer_says_so():
    optimizer = optax.apply_if_finite(SGD, 2)
    step = jax.jit(step_function(quiet_loss, optimizer))
    good, bad = factory.rows(8), factory.rows(8)
    bad["x"][0, 0] = np.nan
    bad["mask"][0] = True
    before = factory.state(optimizer=optimizer)
    after, metrics = step(before, bad)
    assert metrics["finite"]
    assert np.isnan(metrics["loss"])
    assert (after.step, metrics["skipped"]) == (1, 1)
    assert_equal(after.params, before.params)
    after, metrics = step(after, good)
    alone, _ = jax.jit(step_function(quiet_loss, SGD))(factory.state(optimizer=SGD), good)
    assert_equal(after.params, alone.params)
    for _ in range(3):  # one more in a row than it leaves out
        after, metrics = step(after, bad)
    assert not metrics["finite"]
    assert_equal(after.params, alone.params)


def test_an_infinite_gradient_of_a_finite_loss_is_caught():
    def loss(params, batch, key):
        return MeanMetric(jnp.sqrt(params["x"]), jnp.array(1.0)), {}

    state = init_state({"x": jnp.array(0.0)}, SGD, key=jax.random.key(0))
    after, metrics = step_function(loss, SGD)(state, {})
    assert metrics["loss"] == 0
    assert not metrics["finite"]
    assert after.params["x"] == 0


def test_an_update_that_is_not_finite_is_not_made():
    def update(updates, state, params=None):
        return jax.tree.map(lambda g: jnp.where(g > 1, -np.inf, g), updates), state + 1

    def loss(params, batch, key):
        return MeanMetric(jnp.sum(params["x"] * batch["x"]), jnp.array(1.0)), {}

    optimizer = optax.GradientTransformation(lambda params: jnp.array(0), update)
    step = jax.jit(step_function(loss, optimizer))
    before = init_state({"x": jnp.zeros(3)}, optimizer, key=jax.random.key(0))
    after, metrics = step(before, {"x": jnp.array([0.0, 2.0, 0.0])})
    assert np.isfinite([metrics["loss"], metrics["grad_norm"]]).all()
    assert_equal(after, before._replace(finite=jnp.array(False)))


def test_float16_does_not_overflow_where_the_mean_does_not():
    def loss(params, batch, key):  # 70 000 and 60 000 a microbatch; float16 ends at 65 504
        total = params["x"].astype(jnp.float32).sum() * 60_000 / 2 * batch["x"].sum()
        return MeanMetric(total, jnp.float32(70_000)), {}

    state = init_state({"x": jnp.ones((), jnp.float16)}, SGD, key=jax.random.key(0))
    step = jax.jit(step_function(loss, SGD, accumulate=2))
    after, metrics = step(state, {"x": jnp.ones(4, jnp.float32)})
    assert metrics["finite"]
    assert after.params["x"].dtype == jnp.float16
    np.testing.assert_allclose(after.params["x"], 1 - 0.5 * 6 / 7, rtol=1e-3)


def scalar_loss(params, batch, key):
    return quiet_loss(params, batch, key)[0].mean


def scalars_loss(params, batch, key):
    tally, extra = quiet_loss(params, batch, key)
    return tally.mean, {"largest": extra["largest"].mean, "rows": len(batch["mask"])}


@pytest.mark.parametrize(("loss", "accumulate"), [(scalar_loss, 1), (scalars_loss, 2)])
def test_a_loss_may_return_numbers_which_weigh_one_a_batch(loss, accumulate):
    state = factory.state(optimizer=SGD)
    batch = factory.rows(8) | {"mask": np.ones(8, bool)}  # equal weights: the same mean
    step, tallied = (
        jax.jit(step_function(f, SGD, accumulate=accumulate)) for f in (loss, quiet_loss)
    )
    (after, metrics), (expected, told) = step(state, batch), tallied(state, batch)
    assert_close(after.params, expected.params, rtol=1e-5)
    assert_close(
        [metrics["loss"], metrics["grad_norm"]], [told["loss"], told["grad_norm"]], rtol=1e-5
    )
    assert metrics["weight"] == accumulate
    many = [batch, {name: rows[:2] for name, rows in batch.items()}]
    found = evaluate(loss, state.params, many)
    means = [mean_loss(state.params, part) for part in many]
    np.testing.assert_allclose(found["loss"], np.mean(means), rtol=1e-6)
    if loss is scalars_loss:
        assert metrics["rows"] == 8 / accumulate
        assert found["rows"] == 5
        assert metrics["largest"] > 0


def test_the_optimizer_receives_the_loss_of_the_whole_batch():
    optimizer = optax.chain(optax.sgd(0.5), optax.contrib.reduce_on_plateau(factor=0.5, patience=2))
    step = train_step(
        lambda params, batch, key: batch["x"].sum() + 0 * params, optimizer, accumulate=2
    )
    state = init_state(jnp.array(0.0), optimizer, key=jax.random.key(0))
    scales = []
    for loss in (4.0, 3.0, 3.0, 3.0, 3.0, 3.0):  # the mean of two microbatches
        state, metrics = step(state, {"x": jnp.array([0.5 * loss, 1.5 * loss])})
        assert metrics["loss"] == loss
        scales.append(float(optax.tree.get(state.opt_state, "scale")))
    assert scales == [1, 1, 1, 0.5, 0.5, 0.25]
    assert optax.tree.get(state.opt_state, "best_value") == 3


def test_a_batch_of_no_weight_is_no_step():
    batch = factory.rows(4) | {"mask": np.zeros(4, bool)}
    state = factory.state(optimizer=SGD)
    after, metrics = jax.jit(step_function(quiet_loss, SGD))(state, batch)
    assert metrics["finite"]
    assert metrics["loss"] == 0
    assert_equal(after.params, state.params)


def test_vmapped_seeds_are_single_runs():
    step, batch = step_function(masked_loss, OPTIMIZER, accumulate=2), factory.rows(8)
    starts = [factory.state(seed=seed) for seed in range(3)]
    single, many = jax.jit(step), jax.jit(jax.vmap(step, in_axes=(0, None)))
    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
    for _ in range(3):
        states, metrics = many(states, batch)
        starts = [single(start, batch)[0] for start in starts]
    expected = jax.tree.map(lambda *leaves: np.stack(leaves), *(s.params for s in starts))
    assert_close(states.params, expected, rtol=1e-5)
    assert len(set(np.asarray(metrics["loss"]).tolist())) == 3


def test_evaluation_adds_tallies_and_compiles_once_a_shape():
    traces = []

    def loss(params, batch, key):
        traces.append(batch["x"].shape)
        keep = batch["mask"] & batch["valid"]
        return quiet_loss(params, batch | {"mask": keep}, key)

    params, rows = factory.params(), factory.rows(11)
    whole = mean_loss(params, rows)
    batches = in_order(rows, batch_size=4)
    for _ in range(2):
        found = evaluate(loss, params, batches)
        np.testing.assert_allclose(found["loss"], whole, rtol=1e-6)
    assert set(found) == {"loss", "largest"}
    assert traces == [(4, 3)]
    nothing = evaluate(loss, params, in_order(rows | {"mask": np.zeros(11, bool)}, batch_size=4))
    assert nothing["loss"] == 0.0


def test_evaluation_draws_anew_for_each_batch():
    def draw(params, batch, key):
        return jax.random.uniform(key)

    one, two = (evaluate(draw, (), [factory.rows(4)] * count)["loss"] for count in (1, 2))
    assert one != two


def test_wrong_arguments_are_named():
    state, rows = factory.state(optimizer=SGD), factory.rows(4)
    with pytest.raises(ValueError, match="accumulate"):
        step_function(masked_loss, SGD, accumulate=0)
    with pytest.raises(ValueError, match="accumulate=3"):
        step_function(masked_loss, SGD, accumulate=3)(state, rows)
    with pytest.raises(ValueError, match="uint32"):
        init_state({}, SGD, key=jax.random.PRNGKey(0))
    with pytest.raises(ValueError, match="mesh"):
        train_step(masked_loss, SGD, mesh=jax.make_mesh((1,), ("x",)))
