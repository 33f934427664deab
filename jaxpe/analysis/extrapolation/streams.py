"""Draws of a seed, the same for all encodings: training and test rows, and initial weights."""

import zlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

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
        tests: `(seeds, length)` to rows of that length, leaves `[parts, seeds, rows, ...]`.
        weights: `(seeds)` to a key for each, and to the initial parameters of the models without
            an encoding.
    """

    task: SequenceTask
    training: Callable[[np.ndarray, int, int], Batch]
    tests: Callable[[np.ndarray, int], Batch]
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

    @partial(jax.jit, static_argnames=("rows", "length", "exact"))
    def fresh(numbers: Array, keys: Array, *, rows: int, length: int, exact: bool) -> Batch:
        def one(number: Array, key: Array) -> Batch:
            key = jax.random.fold_in(key, number)
            return task.sample(key, rows=rows, length=length, exact=exact)

        return jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))(numbers, keys)

    @jax.jit
    def of_set(rows: Array, keys: Array) -> Batch:
        whole = jax.vmap(partial(task.sample, rows=suite.rows, **sizes))(keys)
        return jax.tree.map(lambda x: jnp.moveaxis(x[:, rows], 0, 1), whole)

    def training(seeds: np.ndarray, first: int, count: int) -> Batch:
        keys = seed_keys(suite, task, seeds, _TRAINING)
        steps = np.arange(first, first + count)
        if suite.rows is None:
            return fresh(jnp.asarray(steps), keys, rows=suite.batch, **sizes)
        return of_set(jnp.asarray(_rows_of(suite, steps)), keys)

    def tests(seeds: np.ndarray, length: int) -> Batch:
        keys, rows = seed_keys(suite, task, seeds, _TESTS, length), min(suite.tests, AT_ONCE)
        return fresh(jnp.arange(suite.tests // rows), keys, rows=rows, length=length, exact=True)

    plain = jax.jit(jax.vmap(partial(plain_weights, suite, task)))

    def weights(seeds: np.ndarray) -> tuple[Array, Params]:
        keys = seed_keys(suite, task, seeds, _WEIGHTS)
        return keys, plain(keys)

    return Streams(task, training, tests, weights)


def seed_keys(suite: Suite, task: SequenceTask, seeds: np.ndarray, *stream: int) -> Array:
    """A key for each seed of a stream of random numbers: tasks differ, encodings do not."""
    key = jax.random.key(suite.seed)
    for number in (zlib.crc32(task.name.encode()) % 2**31, *stream):
        key = jax.random.fold_in(key, number)
    return jax.vmap(lambda seed: jax.random.fold_in(key, seed))(jnp.asarray(seeds, jnp.uint32))


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
