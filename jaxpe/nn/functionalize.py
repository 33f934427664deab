"""Modules as pure functions of their parameters."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax import Array
from jax.sharding import Mesh

from jaxpe.nn.partition_rules import partition_rules

Params = Any


def init_model(
    make: Callable[[nnx.Rngs], nnx.Module], *, seed: int, mesh: Mesh | None = None
) -> Any:
    """Model `make(nnx.Rngs(seed))`, with all parameters initialised in one `jax.jit`.

    Eager Flax compiles several programs for each shape of a parameter. In a single program,
    products are rounded one time less, so weights differ in the last digit.

    Args:
        make: function from random streams to the model. Its encodings may not close over arrays
            that it computes, since these are tracers.
        seed: random seed, in [0, 2**32).
        mesh: devices that the parameters are divided over from the beginning, by
            `partition_rules`.

    >>> from flax import nnx
    >>> make = lambda rngs: nnx.Linear(3, 2, rngs=rngs)
    >>> model = jaxpe.nn.init_model(make, seed=0)
    >>> np.allclose(model.kernel.get_value(), make(nnx.Rngs(0)).kernel.get_value())
    True
    """
    graphdefs = []

    def initial_state(seed: Array) -> Any:
        graphdef, state = nnx.split(make(nnx.Rngs(jax.random.key(seed))))
        graphdefs.append(graphdef)
        return state

    shardings = None
    if mesh is not None:
        shardings = partition_rules(jax.eval_shape(initial_state, np.uint32(seed)), mesh)
    state = jax.jit(initial_state, out_shardings=shardings)(np.uint32(seed))
    return nnx.merge(graphdefs[0], state)


def parameter_count(params: Params) -> int:
    """Number of parameters in a pytree or in a model.

    >>> from flax import nnx
    >>> parameter_count(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))
    8
    """
    if isinstance(params, nnx.Module):
        params = nnx.state(params, nnx.Param)
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def functionalize(
    model: nnx.Module, method: Callable[..., Any] | None = None
) -> tuple[Callable[..., Any], Params]:
    """Split a model into `(apply, params)`, where `apply(params, *args, **options)` calls it.

    Args:
        model: module whose whole state is `nnx.Param`.
        method: `(model, *args, **options)`, which replaces the call; None for the call.

    >>> from jaxpe import nn
    >>> from flax import nnx
    >>> apply, params = nn.functionalize(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))
    >>> jax.jit(apply)(params, jnp.ones((4, 3), jnp.float32)).shape
    (4, 2)
    """
    graphdef, params = nnx.split(model, nnx.Param)

    def apply(params: Params, *args: Any, **options: Any) -> Any:
        merged = nnx.merge(graphdef, params)
        return merged(*args, **options) if method is None else method(merged, *args, **options)

    return apply, params
