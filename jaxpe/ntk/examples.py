"""Expectations over examples, a few at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpe.geometry.checks import check_size


def expectation(function: Callable[[Any], Any], examples: Any, batch_size: int) -> Any:
    """Mean of a function over examples, `batch_size` of them at a time."""
    check_size("batch_size", batch_size)
    count = jax.tree.leaves(examples)[0].shape[0]
    rest = count % batch_size

    def total(batch: Any) -> Any:
        return jax.tree.map(lambda x: jnp.sum(x, axis=0), jax.vmap(function)(batch))

    def add(sums: Any, batch: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, sums, total(batch)), None

    def batches(x: Array) -> Array:
        return jnp.reshape(x[: count - rest], (-1, batch_size, *x.shape[1:]))

    last = jax.tree.map(lambda x: x[count - rest :], examples)
    if rest:
        sums = total(last)
    else:
        sums = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(total, last))
    if rest < count:
        sums, _ = lax.scan(add, sums, jax.tree.map(batches, examples))
    return jax.tree.map(lambda x: x / count, sums)
