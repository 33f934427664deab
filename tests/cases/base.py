"""A row of the table, and what a gradient looks at."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

N = 6

Call = Callable[[np.random.Generator], Any]


class Case(NamedTuple):
    """A function of arrays alone, example arrays from a seed, and what a gradient may look at.

    `reduce` maps the result to the scalar whose gradient is compared with finite differences; None
    where the function has no useful derivative.
    """

    function: Callable[..., Any]
    make: Callable[[np.random.Generator], tuple[np.ndarray, ...]]
    reduce: Callable[[Any], jax.Array] | None = None


def key() -> jax.Array:
    """A key that nothing has drawn from."""
    return jax.random.key(0)


def total(result: Any) -> jax.Array:
    """Sum of squares of every floating leaf."""
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(result)]
    floats = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return sum(jnp.sum(leaf**2) for leaf in floats)


def cubed(x: jax.Array) -> jax.Array:
    """Of unit rows the sum of squares is constant."""
    return jnp.sum(x**3)
