"""Repeated computations: one program for each repetition, with progress, or one for all.

Called eagerly, each item runs a compiled program, with progress; inside of `jax.jit` or `jax.vmap`
the same is a loop of the program.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import PyTree

from jaxpe._core.arrays import is_traced
from jaxpe._core.progress import Progress
from jaxpe._core.threads import in_threads

State = TypeVar("State")


def map_items(
    f: Callable[..., PyTree[Array]],
    items: Array,
    *arrays: Any,
    progress: Progress,
    description: str,
) -> PyTree[Array]:
    """`f(item, *arrays)`, of compiled parts, of each item along the leading axis, stacked again.

    Items are taken, and results stacked, on the host, where that compiles nothing.
    """
    if is_traced(*jax.tree.leaves((items, arrays))):
        return jax.lax.map(lambda item: f(item, *arrays), items)

    def compute(number: int) -> PyTree[Array]:
        return jax.block_until_ready(f(_item(items, number), *arrays))

    first = map(compute, range(min(1, len(items))))  # which compiles
    rest = in_threads(compute, range(1, len(items)))
    shown = progress.track(itertools.chain(first, rest), description, total=len(items))
    return stacked(*shown)


def items_of(items: Array) -> Iterator[Array]:
    """The items along the leading axis, taken on the host where that compiles nothing."""
    if is_traced(items):
        return iter(items)
    return (_item(items, number) for number in range(len(items)))


def _item(items: Array, number: int) -> Array:
    if not jnp.issubdtype(items.dtype, jax.dtypes.prng_key):
        return jax.device_put(np.asarray(items)[number])
    own = np.asarray(jax.random.key_data(items))[number]
    return jax.random.wrap_key_data(own, impl=jax.random.key_impl(items))


def stacked(*trees: PyTree[Array]) -> PyTree[Array]:
    """Trees stacked along a new leading axis, on the host where that compiles nothing."""
    if is_traced(*jax.tree.leaves(trees)):  # of what `f` closes over
        return jax.tree.map(lambda *values: jnp.stack(values), *trees)
    return jax.tree.map(lambda *values: jax.device_put(np.stack(values)), *jax.device_get(trees))


def fold_items(
    step: Callable[..., State],
    state: State,
    items: Array,
    *arrays: Any,
    progress: Progress,
    description: str,
) -> State:
    """Result of `state = step(state, item, *arrays)`, compiled, over all items in their order."""
    if is_traced(*jax.tree.leaves((state, items, arrays))):
        return jax.lax.scan(lambda state, item: (step(state, item, *arrays), None), state, items)[0]
    for number in progress.track(range(len(items)), description, total=len(items)):
        state = jax.block_until_ready(step(state, _item(items, number), *arrays))
    return state
