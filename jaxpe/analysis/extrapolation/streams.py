"""Draws of a seed, the same for all encodings: training and test rows, and initial weights."""

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe.analysis.extrapolation.models import Batch, Params, plain_weights
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.data import SequenceTask

_TRAINING, _TESTS, _WEIGHTS = 1, 2, 3
AT_ONCE = 100  # rows that are tested together


class Streams(NamedTuple):
    """Random numbers of one task, drawn on the device by programs that all encodings share.

    Attributes:
        task: task that they belong to.
        training: `(seeds, first, count)` to the batches of `count` steps from step `first` on,
            leaves `[count, seeds, batch, ...]`.
        tests: `(seeds, lengths)` to rows of these lengths of the suite, with padding to the longest
            of them, leaves `[lengths, parts, seeds, rows, ...]`.
        weights: `(seeds)` to a key for each, and to the initial parameters of the models without
            an encoding.
    """

    task: SequenceTask
    training: Callable[[np.ndarray, int, int], Batch]
    tests: Callable[[np.ndarray, tuple[int, ...]], dict[str, np.ndarray]]
    weights: Callable[[np.ndarray], tuple[Array, Params]]


def streams(suite: Suite, task: SequenceTask) -> Streams:
    """The streams of a suite's task.

    >>> from jaxpe.data import sequence_task
    >>> suite = Suite(name="tiny", tasks=("parity",), encodings=("none",), length=3, batch=4)
    >>> data = streams(suite, sequence_task("parity"))
    >>> data.training(np.arange(2), 0, 5)["ids"].shape  # steps, seeds, rows, places
    (5, 2, 4, 7)
    """
    sizes = {"length": suite.length, "exact": suite.exact}

    def keys_of(seeds: Array, *stream: int) -> Array:
        return seed_keys(suite, task, seeds, *stream)

    def fresh(numbers: Array, keys: Array, **shape: Any) -> Batch:
        def one(number: Array, key: Array) -> Batch:
            return task.sample(jax.random.fold_in(key, number), **shape)

        return jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))(numbers, keys)

    @jax.jit
    def of_steps(steps: Array, seeds: Array) -> Batch:
        return fresh(steps, keys_of(seeds, _TRAINING), rows=suite.batch, **sizes)

    @jax.jit
    def of_set(rows: Array, seeds: Array) -> Batch:
        whole = jax.vmap(partial(task.sample, rows=suite.rows, **sizes))(keys_of(seeds, _TRAINING))
        return jax.tree.map(lambda x: jnp.moveaxis(x[:, rows], 0, 1), whole)

    def training(seeds: np.ndarray, first: int, count: int) -> Batch:
        steps = np.arange(first, first + count, dtype=np.int32)
        if suite.rows is None:
            return of_steps(steps, seeds.astype(np.uint32))
        return of_set(_rows_of(suite, steps), seeds.astype(np.uint32))

    @jax.jit
    def of_lengths(seeds: Array) -> Batch:
        rows, width = min(suite.tests, AT_ONCE), task.tokens(max(suite.lengths))
        numbers = jnp.arange(suite.tests // rows, dtype=jnp.int32)

        def padded(length: int) -> Batch:
            keys = keys_of(seeds, _TESTS, length)
            drawn = fresh(numbers, keys, rows=rows, length=length, exact=True)
            return jax.tree.map(lambda x: _with_zeros(x, width), drawn)

        return jax.tree.map(lambda *x: jnp.stack(x), *map(padded, suite.lengths))

    def tests(seeds: np.ndarray, lengths: tuple[int, ...]) -> dict[str, np.ndarray]:
        chosen, width = [suite.lengths.index(n) for n in lengths], task.tokens(max(lengths))
        drawn = jax.device_get(of_lengths(seeds.astype(np.uint32)))
        return {name: x[chosen, :, :, :, :width] for name, x in drawn.items()}

    @jax.jit
    def weights_of(seeds: Array) -> tuple[Array, Params]:
        keys = keys_of(seeds, _WEIGHTS)
        return keys, jax.vmap(partial(plain_weights, suite, task))(keys)

    def weights(seeds: np.ndarray) -> tuple[Array, Params]:
        return weights_of(seeds.astype(np.uint32))

    return Streams(task, training, tests, weights)


def _with_zeros(x: Array, width: int) -> Array:
    """Rows `[parts, seeds, rows, places, ...]` with zeros behind them, so many places in all."""
    behind = [(0, 0)] * x.ndim
    behind[3] = (0, width - x.shape[3])
    return jnp.pad(x, behind)


def seed_keys(suite: Suite, task: SequenceTask, seeds: Array, *stream: int) -> Array:
    """A key for each seed of a stream of random numbers: tasks differ, encodings do not."""
    key = jax.random.key(suite.seed)
    for number in (zlib.crc32(task.name.encode()) % 2**31, *stream):
        key = jax.random.fold_in(key, number)
    return jax.vmap(lambda seed: jax.random.fold_in(key, seed))(seeds)


def _rows_of(suite: Suite, steps: np.ndarray) -> np.ndarray:
    """Rows of the training set that steps take, `[steps, batch]`: each epoch in another order."""
    rows = suite.rows or 0
    in_epoch = rows // suite.batch
    found = []
    for step in steps:
        epoch, place = divmod(int(step), in_epoch)
        order = np.random.default_rng([suite.seed, epoch]).permutation(rows)
        found.append(order[place * suite.batch : (place + 1) * suite.batch])
    return np.stack(found).astype(np.int32)
