"""Expectations over examples, a few at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def expectation(function: Callable[[Any], Any], examples: Any, batch_size: int) -> Any:
    """The mean over examples, `batch_size` of them at a time, of what a function of one gives."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    count = jax.tree.leaves(examples)[0].shape[0]
    whole = count - count % batch_size

    def total(batch: Any) -> Any:
        return jax.tree.map(lambda x: jnp.sum(x, axis=0), jax.vmap(function)(batch))

    if whole == 0:
        return jax.tree.map(lambda x: x / count, total(examples))
    cut = lambda x: jnp.reshape(x[:whole], (-1, batch_size, *x.shape[1:]))  # noqa: E731
    batches = jax.tree.map(cut, examples)
    # The function is traced once, for the shapes of its results and for the loop: of a model's
    # derivatives, tracing takes as long as the run of a compiled program.
    of_one = jax.eval_shape(lambda rows: jax.tree.map(lambda x: x[0], rows), batches)
    traced, shapes = jax.make_jaxpr(total, return_shape=True)(of_one)
    leaves, structure = jax.tree.flatten(shapes)

    def add(sums: list[Any], batch: Any) -> tuple[list[Any], None]:
        found = jax.core.eval_jaxpr(traced.jaxpr, traced.consts, *jax.tree.leaves(batch))
        return [x + y for x, y in zip(sums, found, strict=True)], None

    sums = [jnp.zeros(x.shape, x.dtype) for x in leaves]
    if whole < count:
        sums = jax.tree.leaves(total(jax.tree.map(lambda x: x[whole:], examples)))
    sums, _ = lax.scan(add, sums, batches)
    return structure.unflatten([x / count for x in sums])
