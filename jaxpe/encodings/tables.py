"""Tables in the parameters: their shapes, and entries taken from them by position."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

from jaxpe.encodings.base import Params


def check_tables(params: Params, **shapes: tuple[int, ...]) -> None:
    """Raise where params[name] has another shape than the encoding was built for.

    JAX clamps or fills indices beyond a table, so that a short one would give no error.
    """
    if not isinstance(params, Mapping) or not shapes.keys() <= params.keys():
        held = f"keys {sorted(params)}" if isinstance(params, Mapping) else type(params).__name__
        raise ValueError(
            f"params are {held}, and the encoding needs {sorted(shapes)}: pass what its init gives"
        )
    for name, shape in shapes.items():
        if jnp.shape(params[name]) != shape:
            raise ValueError(
                f"params[{name!r}] has shape {jnp.shape(params[name])}, but the encoding was built "
                f"for {shape}: pass what its init gives, or build it for this table"
            )


def take(table: Array, index: Array) -> Array:
    """table[index], spread over devices as `index` is.

    Where the axes of a mesh are explicit, JAX asks for the sharding of what is gathered.
    """
    sharding = jax.typeof(index).sharding
    if sharding.mesh.empty:
        return table[index]
    spec = PartitionSpec(*sharding.spec, *(None,) * (table.ndim - 1))
    return table.at[index].get(out_sharding=NamedSharding(sharding.mesh, spec))
