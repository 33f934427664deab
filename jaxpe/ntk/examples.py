"""Expectations over examples, a few at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def expectation(function: Callable[[Any], Any], examples: Any, batch_size: int) -> Any:
    """The mean over examples of a pytree of arrays.

    Args:
        function: of one example.
        examples: pytree of `[examples, ...]`.
        batch_size: examples at a time; it bounds memory and changes nothing else.

    Raises:
        ValueError: batch_size below 1.

    >>> expectation(lambda x: {"square": x**2}, jnp.array([1.0, 2.0, 3.0]), 2)["square"].item()
    4.666666666666667
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    count = jax.tree.leaves(examples)[0].shape[0]
    whole = count - count % batch_size

    def total(batch: Any) -> Any:
        return jax.tree.map(lambda x: jnp.sum(x, axis=0), jax.vmap(function)(batch))

    def add(a: Any, b: Any) -> Any:
        return jax.tree.map(jnp.add, a, b)

    parts = []
    if whole < count:
        parts.append(total(jax.tree.map(lambda x: x[whole:], examples)))
    if whole:
        batches = jax.tree.map(
            lambda x: jnp.reshape(x[:whole], (-1, batch_size, *x.shape[1:])), examples
        )
        shapes = jax.eval_shape(total, jax.tree.map(lambda x: x[0], batches))
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        parts.append(
            lax.scan(lambda sum_, batch: (add(sum_, total(batch)), None), zero, batches)[0]
        )
    whole_sum = parts[0] if len(parts) == 1 else add(*parts)
    return jax.tree.map(lambda x: x / count, whole_sum)
