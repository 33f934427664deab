"""Training step, as a pure function and compiled; evaluation.

A batch is a dict of arrays `[batch, ...]`. A loss is a function `(params, batch, key) -> (tally,
tallies)`. The mean of the tally is minimised; the other tallies are reported by name. A loss may
also return a number, or a number and numbers by name; each then has weight 1 per batch.
"""

from collections.abc import Callable, Iterable
from functools import cache, partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Bool, Int

from jaxpe.encodings.base import compute_dtype
from jaxpe.geometry.checks import check_size
from jaxpe.training.losses import MeanMetric
from jaxpe.training.optimizers import AverageState, Schedule
from jaxpe.training.placement import batch_mesh, placed_rows, placed_state

Params = Any
Batch = dict[str, Any]
Metrics = dict[str, Any]
# (params, batch, key) to the loss, and to further metrics by name.
LossFunction = Callable[[Params, Batch, Array], tuple[MeanMetric, dict[str, MeanMetric]]]
ScalarLoss = Callable[[Params, Batch, Array], Array | tuple[Array, dict[str, Array]]]


class TrainState(NamedTuple):
    """State of a training run, without the position in the data.

    Attributes:
        step: number of updates so far.
        params: pytree of floating-point arrays.
        opt_state: state of the Optax optimizer.
        key: typed PRNG key of the run; step s draws from `fold_in(key, s)`.
        finite: false after a loss, gradient or update that is not finite; the state then no longer
            changes.
    """

    step: Int[Array, "*seeds"]
    params: Params
    opt_state: Any
    key: Array
    finite: Bool[Array, "*seeds"]


Step = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


def init_state(
    params: Params,
    optimizer: optax.GradientTransformation,
    *,
    key: Array,
    mesh: Mesh | None = None,
) -> TrainState:
    """State before the first step; arrays are copied, since `train_step` donates their buffers.

    On a mesh, parameters that are divided over it stay divided, and so are the moments of the
    optimizer, which are made by `jnp.zeros_like`. All else is on every device.

    Args:
        params: initial parameters, a pytree of floating-point arrays.
        optimizer: Optax optimizer.
        key: typed PRNG key of the run.
        mesh: mesh of devices, as in `train_step`; None without one.

    >>> init_state({"w": jnp.ones(2)}, optax.sgd(0.1), key=jax.random.key(0)).step.item()
    0
    """
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise ValueError(f"key has dtype {key.dtype}: pass a typed one, jax.random.key(seed)")
    if mesh is None:
        return _first_state(params, key, init=optimizer.init)
    mesh = batch_mesh(mesh)[0]
    params, key = jax.tree.map(jnp.copy, placed_state((params, key), mesh))
    # Not under `jit`, where XLA chooses how to divide the moments: outside, `jnp.zeros_like` has
    # the sharding of its argument.
    state = TrainState(jnp.int32(0), params, optimizer.init(params), key, jnp.array(True))
    return placed_state(state, mesh)


@partial(jax.jit, static_argnames="init")
def _first_state(params: Params, key: Array, *, init: Callable[[Params], Any]) -> TrainState:
    params, key = jax.tree.map(jnp.copy, (params, key))
    return TrainState(jnp.int32(0), params, init(params), key, jnp.array(True))


def step_function(
    loss: LossFunction | ScalarLoss,
    optimizer: optax.GradientTransformation,
    *,
    accumulate: int = 1,
    schedule: Schedule | None = None,
) -> Step:
    """Training step as a pure function, to be jitted, or vmapped over seeds.

    The loss of a batch is the sum of its totals over the sum of its weights, which must not depend
    on the parameters. With `accumulate` microbatches the gradient is therefore exactly the whole
    batch's, even if microbatches have different weights. Of a loss that returns a number, it is the
    mean over microbatches. Sums and norms are in float32 or wider.

    A step whose loss, gradient or update is not finite changes only `finite`. Further steps change
    nothing. With `optax.apply_if_finite` as the outermost optimizer, only the update counts, and
    the metric "skipped" is the number of steps that were left out.

    Args:
        loss: function to minimise, to tallies or to a number.
        optimizer: Optax optimizer; it receives the loss as `value`, as for `reduce_on_plateau`.
        accumulate: number of microbatches, computed one after the other; it divides the batch.
        schedule: learning rate to report; the optimizer has its own.

    Returns:
        `(state, batch) -> (state, metrics)`. Metrics are scalars: loss, grad_norm, weight,
        learning_rate (with a schedule), the means of the loss's tallies, and finite.

    Raises:
        ValueError: (at the first call) a loss that is not a scalar, or a batch whose rows
            `accumulate` does not divide.

    >>> loss = lambda params, batch, key: jnp.mean((params * batch["x"] - 1) ** 2)
    >>> step = step_function(loss, optax.sgd(0.25))
    >>> state = init_state(jnp.array(0.0), optax.sgd(0.25), key=jax.random.key(0))
    >>> state, metrics = step(state, {"x": jnp.ones(2)})
    >>> state.params.item(), metrics["loss"].item()
    (0.5, 1.0)
    """
    check_size("accumulate", accumulate)
    optimizer = optax.with_extra_args_support(optimizer)

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        # Not split: a resumed run needs the first key and the step alone to draw the same numbers.
        key = jax.random.fold_in(state.key, state.step)
        gradient, tally, extra = _gradient(loss, state.params, batch, key, accumulate)
        with jax.numpy_dtype_promotion("standard"):  # Optax does not know the strict one
            grad_norm = _norm(gradient)
            updates, opt_state = optimizer.update(
                gradient, state.opt_state, state.params, value=tally.mean
            )
            update_norm = _norm(updates)  # not finite if any update is not
            rate = None if schedule is None else jnp.asarray(schedule(state.step))
        metrics = {"loss": tally.mean, "grad_norm": grad_norm, "weight": tally.weight}
        metrics |= {} if rate is None else {"learning_rate": rate}
        metrics |= {name: other.mean for name, other in extra.items()}
        numbers = (tally.mean, grad_norm, update_norm)
        if isinstance(opt_state, optax.ApplyIfFiniteState):  # without bad gradients in the update
            numbers, metrics["skipped"] = numbers[2:], opt_state.total_notfinite
        metrics["finite"] = finite = reduce(
            jnp.logical_and, map(jnp.isfinite, numbers), state.finite
        )
        new = optax.apply_updates(state.params, updates), opt_state
        # Not `lax.cond`, which `vmap` over seeds would turn into this.
        params, opt_state = jax.tree.map(
            lambda new, old: jnp.where(finite, new, old), new, (state.params, state.opt_state)
        )
        count = state.step + finite.astype(jnp.int32)
        return TrainState(count, params, opt_state, state.key, finite), metrics

    return step


def train_step(
    loss: LossFunction | ScalarLoss,
    optimizer: optax.GradientTransformation,
    *,
    accumulate: int = 1,
    schedule: Schedule | None = None,
    mesh: Mesh | None = None,
) -> Step:
    """Compiled `step_function`, which donates the buffers of the state passed to it.

    On a mesh, a state from `init_state(..., mesh=mesh)` keeps its layout; arrays of another state
    are copied to all devices. Each of several processes passes its own rows. The number of devices
    that divide rows should divide batch / accumulate.

    Args:
        loss, optimizer, accumulate, schedule: arguments of `step_function`.
        mesh: mesh of devices, whose axes "data" and "fsdp" divide the rows of a batch; None without
            one.

    Raises:
        ValueError: a mesh without an axis "data" or "fsdp".

    >>> loss = lambda params, batch, key: params @ batch["x"]
    >>> state = init_state(jnp.ones(2), optax.sgd(0.5), key=jax.random.key(0))
    >>> state, _ = train_step(loss, optax.sgd(0.5))(state, {"x": jnp.array([1.0, 2.0])})
    >>> state.params.tolist()
    [0.5, 0.0]
    """
    step = step_function(loss, optimizer, accumulate=accumulate, schedule=schedule)
    if mesh is None:
        return jax.jit(step, donate_argnums=0)
    devices, rows = batch_mesh(mesh)
    everywhere = NamedSharding(devices, PartitionSpec())

    # Without its layout, XLA might divide the new state in another way than the old one.
    @cache
    def compiled(tree: Any, shardings: tuple[NamedSharding, ...]) -> Step:
        outputs = jax.tree.unflatten(tree, shardings), everywhere
        return jax.jit(step, donate_argnums=0, out_shardings=outputs)

    def on_mesh(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        state = placed_state(state, devices)
        leaves, tree = jax.tree.flatten(state)
        shardings = tuple(leaf.sharding for leaf in leaves)
        return compiled(tree, shardings)(state, placed_rows(batch, devices, rows))

    return on_mesh


def averaged_params(state: TrainState) -> Params:
    """Average of the parameters.

    Args:
        state: state of a run whose optimizer has `parameter_average`.

    >>> from jaxpe.training import parameter_average
    >>> optimizer = optax.chain(optax.sgd(0.1), parameter_average(0.999))
    >>> averaged_params(init_state(jnp.ones(2), optimizer, key=jax.random.key(0))).tolist()
    [1.0, 1.0]
    """
    is_average = lambda node: isinstance(node, AverageState)  # noqa: E731
    nodes = filter(is_average, jax.tree.leaves(state.opt_state, is_leaf=is_average))
    if (found := next(nodes, None)) is None:
        raise ValueError(
            "the optimizer has no average of the parameters: pass "
            "optax.chain(optimizer, jaxpe.training.parameter_average(0.999))"
        )
    return jax.tree.map(lambda mean, p: mean.astype(p.dtype), found.average, state.params)


def evaluate(
    loss: LossFunction | ScalarLoss,
    params: Params,
    batches: Iterable[Batch],
    *,
    key: Array | None = None,
    mesh: Mesh | None = None,
) -> dict[str, float]:
    """Means of a loss and its tallies over all batches.

    Each shape of batch compiles once. Tallies are summed in float64 on the host. Of a loss that
    returns numbers, the result is the mean over batches, whatever their number of rows. Rows that
    only fill the last batch count, unless the loss uses `batch["valid"]` from `in_order`.

    Args:
        loss: function to evaluate, to tallies or to numbers.
        params: parameters that are passed to the loss.
        batches: batches, such as from `in_order`.
        key: random key, folded with the number of each batch; `jax.random.key(0)` when None.
        mesh: mesh of devices, as in `train_step`; None without one.

    >>> loss = lambda params, batch, key: (MeanMetric(jnp.sum(batch["x"]), jnp.array(2.0)), {})
    >>> evaluate(loss, (), [{"x": jnp.array([1.0, 2.0])}, {"x": jnp.array([3.0, 4.0])}])
    {'loss': 2.5}
    """
    key = jax.random.key(0) if key is None else key
    sharding, rows = None, PartitionSpec()
    if mesh is not None:
        mesh, rows = batch_mesh(mesh)
        sharding, params = NamedSharding(mesh, PartitionSpec()), placed_state(params, mesh)
    compiled = jax.jit(loss, out_shardings=sharding)
    sums: dict[str, tuple[float, float]] = {}
    for index, batch in enumerate(batches):
        inputs = batch, jax.random.fold_in(key, index)
        if mesh is not None:
            inputs = placed_rows(batch, mesh, rows), placed_state(inputs[1], mesh)
        tally, extra = _tallies(compiled(params, *inputs))
        for name, (total, weight) in {"loss": tally, **extra}.items():
            seen = sums.get(name, (0.0, 0.0))
            sums[name] = seen[0] + float(total), seen[1] + float(weight)
    return {name: total / weight if weight else 0.0 for name, (total, weight) in sums.items()}


def _tallies(output: Any) -> tuple[MeanMetric, dict[str, MeanMetric]]:
    """Output of a loss as tallies, in which a number has weight 1."""

    def tally(value: MeanMetric | Any) -> MeanMetric:
        if isinstance(value, MeanMetric):
            return value
        value = _wide(jnp.asarray(value))
        return MeanMetric(value, jnp.ones_like(value))

    loss, extra = output if type(output) is tuple else (output, {})
    return tally(loss), {name: tally(other) for name, other in extra.items()}


def _gradient(
    loss: LossFunction | ScalarLoss, params: Params, batch: Batch, key: Array, accumulate: int
) -> tuple[Params, MeanMetric, dict[str, MeanMetric]]:
    """Gradient of the mean loss of a batch, and the tallies of the batch."""

    def total(params, batch, key):
        tally, extra = _tallies(loss(params, batch, key))
        return tally.total, (tally, extra)

    def part(batch, numbers):
        key_here = jax.random.fold_in(key, numbers[0])
        gradient, tallies = jax.grad(total, has_aux=True)(params, batch, key_here)
        return jax.tree.map(_wide, gradient), tallies  # sums of float16 would overflow

    # Microbatch i has rows i, i + accumulate, ...: rows of a batch sharded in blocks stay on their
    # devices. Sums, as the mean of optax.MultiSteps weighs a microbatch with few tokens like one
    # with many.
    rows = len(next(iter(batch.values()))) if accumulate > 1 else 1
    if rows % accumulate:
        raise ValueError(f"accumulate={accumulate} does not divide a batch of {rows} rows")
    size = rows // accumulate if accumulate > 1 else None
    with jax.numpy_dtype_promotion("standard"):
        gradient, (tally, extra) = optax.microbatch(part, (0, 1), size)(batch, jnp.arange(rows))
    weight = jnp.where(tally.weight == 0, 1, tally.weight)
    mean = jax.tree.map(lambda g, p: (g / weight.astype(g.dtype)).astype(p.dtype), gradient, params)
    return mean, tally, extra


def _norm(tree: Any) -> Array:
    return optax.tree.norm(jax.tree.map(_wide, tree))


def _wide(x: Array) -> Array:
    return x.astype(compute_dtype(x))
