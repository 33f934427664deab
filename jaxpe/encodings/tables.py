"""Tables in the parameters: initial values, shapes, and rows by position."""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

from jaxpe._core.arrays import Scalar
from jaxpe.encodings.base import Params


def normal_params(key: Array, **tables: tuple[Scalar, tuple[int, ...]]) -> dict[str, Array]:
    """Normal tables N(0, stddev²), from a standard deviation and a shape each, with separate keys.

    >>> normal_params(jax.random.key(0), u=(1.0, (3,)), v=(0.1, (2, 2)))["v"].shape
    (2, 2)
    """
    keys, dtype = jax.random.split(key, len(tables)), jnp.result_type(float)
    return {
        name: jax.random.normal(table_key, shape, dtype) * stddev
        for table_key, (name, (stddev, shape)) in zip(keys, tables.items(), strict=True)
    }


def network_params(keys: Array, inputs: int, hidden: int, outputs: int) -> dict[str, Array]:
    """Weights of a network with one hidden layer, uniform in ±1/√inputs of the layer."""
    layers = {
        "weight_in": (inputs, (inputs, hidden)),
        "bias_in": (inputs, (hidden,)),
        "weight_out": (hidden, (hidden, outputs)),
        "bias_out": (hidden, (outputs,)),
    }
    return {
        name: jax.random.uniform(key, shape, jnp.result_type(float), -1.0, 1.0) * width**-0.5
        for key, (name, (width, shape)) in zip(keys, layers.items(), strict=True)
    }


def check_tables(params: Params, **shapes: tuple[int, ...]) -> None:
    """Raise where params[name] has another shape than the encoding was built for.

    JAX clamps or fills indices beyond a table, so a short table would give no error.
    """
    if not isinstance(params, Mapping) or not shapes.keys() <= params.keys():
        kind = f"keys {sorted(params)}" if isinstance(params, Mapping) else type(params).__name__
        raise ValueError(
            f"params are {kind}, and the encoding needs {sorted(shapes)}: pass what its init gives"
        )
    for name, shape in shapes.items():
        if jnp.shape(params[name]) != shape:
            raise ValueError(
                f"params[{name!r}] has shape {jnp.shape(params[name])}, but the encoding was built "
                f"for {shape}: pass what its init gives, or build it for this table"
            )


def take(table: Array, index: Array) -> Array:
    """table[index], spread over devices as `index` is.

    Where the axes of a mesh are explicit, JAX requires the sharding of a gather's result.
    """
    sharding = jax.typeof(index).sharding
    if sharding.mesh.empty:
        return _indexed(table, index)
    spec = PartitionSpec(*sharding.spec, *(None,) * (table.ndim - 1))
    return table.at[index].get(out_sharding=NamedSharding(sharding.mesh, spec))


@partial(jax.jit, inline=True)
def _indexed(table: Array, index: Array) -> Array:
    return table[index]
