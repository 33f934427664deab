"""Random streams of a seed, shared by all encodings: training rows, test rows, weights."""

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpe.analysis.extrapolation.models import (
    Batch,
    ModelFactory,
    Params,
    build,
    plain_weights,
)
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.data import SequenceTask

_TRAINING, _TESTS, _WEIGHTS = 1, 2, 3
AT_ONCE = 100  # rows tested together


class Streams(NamedTuple):
    """Random streams of one task, drawn on the device by programs that all encodings share.

    Attributes:
        task: the task.
        training: `(seeds, first, count)` to the batches of `count` steps from step `first` on,
            leaves `[count, seeds, batch, ...]`.
        tests: `(seeds, lengths)` to rows of these lengths of the suite, with padding to the longest
            of them, leaves `[lengths, parts, seeds, rows, ...]`.
        weights: `(seeds)` to a key for each, and to the initial parameters of the models without
            an encoding.
        make: function that makes the models.
    """

    task: SequenceTask
    training: Callable[[np.ndarray, int, int], Batch]
    tests: Callable[[np.ndarray, tuple[int, ...]], dict[str, np.ndarray]]
    weights: Callable[[np.ndarray], tuple[Array, Params]]
    make: ModelFactory = build


def streams(suite: Suite, task: SequenceTask, make: ModelFactory = build) -> Streams:
    """The streams of a suite's task, for models of a factory.

    >>> from jaxpe.data import sequence_task
    >>> suite = Suite(name="tiny", tasks=("parity",), encodings=("none",), length=3, batch=4)
    >>> data = streams(suite, sequence_task("parity"))
    >>> data.training(np.arange(2), 0, 5)["ids"].shape  # steps, seeds, rows, places
    (5, 2, 4, 7)
    """
    sizes = {"length": suite.length, "exact": suite.exact}

    def fresh(numbers: Array, keys: Array, **shape: Any) -> Batch:
        def one(number: Array, key: Array) -> Batch:
            return task.sample(jax.random.fold_in(key, number), **shape)

        return jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))(numbers, keys)

    @jax.jit
    def fresh_batches(steps: Array, seeds: Array) -> Batch:
        return fresh(steps, seed_keys(suite, task, seeds, _TRAINING), rows=suite.batch, **sizes)

    @jax.jit
    def batches_of_set(rows: Array, seeds: Array) -> Batch:
        keys = seed_keys(suite, task, seeds, _TRAINING)
        training_rows = jax.vmap(partial(task.sample, rows=suite.rows, **sizes))(keys)
        return jax.tree.map(lambda x: jnp.moveaxis(x[:, rows], 0, 1), training_rows)

    def training(seeds: np.ndarray, first: int, count: int) -> Batch:
        steps = np.arange(first, first + count, dtype=np.int32)
        if suite.rows is None:
            return fresh_batches(steps, seeds.astype(np.uint32))
        return batches_of_set(_epoch_rows(suite, steps), seeds.astype(np.uint32))

    @jax.jit
    def padded_tests(seeds: Array) -> Batch:
        rows, width = min(suite.tests, AT_ONCE), task.tokens(max(suite.lengths))
        numbers = jnp.arange(suite.tests // rows, dtype=jnp.int32)

        def padded(length: int) -> Batch:
            keys = seed_keys(suite, task, seeds, _TESTS, length)
            test_rows = fresh(numbers, keys, rows=rows, length=length, exact=True)
            return jax.tree.map(lambda x: _padded_rows(x, width), test_rows)

        return jax.tree.map(lambda *x: jnp.stack(x), *map(padded, suite.lengths))

    def tests(seeds: np.ndarray, lengths: tuple[int, ...]) -> dict[str, np.ndarray]:
        indices, width = [suite.lengths.index(n) for n in lengths], task.tokens(max(lengths))
        test_rows = jax.device_get(padded_tests(seeds.astype(np.uint32)))
        return {name: x[indices, :, :, :, :width] for name, x in test_rows.items()}

    weight_keys = jax.jit(lambda seeds: seed_keys(suite, task, seeds, _WEIGHTS))
    # Apart from the keys, so that tasks of equal sizes share this program in the compilation cache.
    plain = jax.jit(jax.vmap(partial(plain_weights, suite, task, make=make)))

    def weights(seeds: np.ndarray) -> tuple[Array, Params]:
        keys = weight_keys(seeds.astype(np.uint32))
        return keys, plain(keys)

    return Streams(task, training, tests, weights, make)


def chance(suite: Suite, data: Streams) -> float:
    """Accuracy at T of the best answer that ignores the input, over the test rows of all seeds.

    This answer says at each place the token that is most frequent there; 0 for numbers.
    """
    if data.task.kind != "tokens":
        return 0.0
    rows = data.tests(np.arange(suite.seeds), suite.lengths[:1])
    scored, labels = (rows[name].reshape(-1, rows[name].shape[-1]) for name in ("scored", "labels"))
    places = np.cumsum(scored, axis=1)[scored]
    counts = np.zeros((places.max() + 1, data.task.vocab_size), int)
    np.add.at(counts, (places, labels[scored]), 1)
    return float(counts.max(axis=1).sum() / counts.sum())


def _padded_rows(x: Array, width: int) -> Array:
    """Rows `[parts, seeds, rows, tokens, ...]`, padded with zeros to so many tokens."""
    return jnp.pad(x, [(0, width - x.shape[3] if axis == 3 else 0) for axis in range(x.ndim)])


def seed_keys(suite: Suite, task: SequenceTask, seeds: Array, *stream: int) -> Array:
    """A key for each seed of a stream of random numbers: tasks differ, encodings do not."""
    key = jax.random.key(suite.seed)
    for number in (zlib.crc32(task.name.encode()) % 2**31, *stream):
        key = jax.random.fold_in(key, number)
    return jax.vmap(lambda seed: jax.random.fold_in(key, seed))(seeds)


def _epoch_rows(suite: Suite, steps: np.ndarray) -> np.ndarray:
    """Rows of the training set for each step, `[steps, batch]`, shuffled anew each epoch."""
    rows = suite.rows or 0
    batches = []
    for step in steps:
        epoch, number = divmod(int(step), rows // suite.batch)
        order = np.random.default_rng([suite.seed, epoch]).permutation(rows)
        batches.append(order[number * suite.batch : (number + 1) * suite.batch])
    return np.stack(batches).astype(np.int32)
