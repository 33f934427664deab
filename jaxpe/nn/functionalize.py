"""Conversion of a module to a pure function of its parameters, once, at the boundary."""

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

Params = Any


def parameter_count(params: Params) -> int:
    """Numbers in a pytree of parameters, or in a model.

    >>> from flax import nnx
    >>> jaxpe.nn.parameter_count(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))
    8
    """
    if isinstance(params, nnx.Module):
        params = nnx.state(params, nnx.Param)
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def functionalize(
    model: nnx.Module, method: Callable[..., Any] | None = None
) -> tuple[Callable[..., Any], Params]:
    """A model as `(apply, params)`: `apply(params, *args, **options)` is what the model gives.

    All its state must be `nnx.Param`. A `method` `(model, *args, **options)` stands for its call.

    >>> from flax import nnx
    >>> apply, params = jaxpe.nn.functionalize(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))
    >>> jax.jit(apply)(params, jnp.ones((4, 3), jnp.float32)).shape
    (4, 2)
    """
    graphdef, params = nnx.split(model, nnx.Param)

    def apply(params: Params, *args: Any, **options: Any) -> Any:
        merged = nnx.merge(graphdef, params)
        return merged(*args, **options) if method is None else method(merged, *args, **options)

    return apply, params
