"""Placement of states and batches on the devices of a mesh, in one process or several."""

from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from jaxpe._core.arrays import auto_mesh

ROWS = ("data", "fsdp")  # axes over which the rows of a batch are divided


def batch_mesh(mesh: Mesh) -> tuple[Mesh, PartitionSpec]:
    """Mesh for batches, and the axes over which their rows are divided.

    Raises `ValueError` for a mesh without an axis "data" or "fsdp".
    """
    axes = tuple(name for name in ROWS if name in mesh.axis_names)
    if not axes:
        raise ValueError(
            f'the mesh has axes {mesh.axis_names}: name the axis of batches "data", or "fsdp" if '
            "it also divides parameters"
        )
    return auto_mesh(mesh), PartitionSpec(axes)


def placed_state(tree: Any, mesh: Mesh) -> Any:
    """Arrays on all devices of a mesh; those that are divided over them stay divided.

    In several processes, arrays of one process must be equal in all of them.
    """

    devices = set(mesh.devices.flat)

    def place(x: Any) -> Array:
        sharding = getattr(x, "sharding", None)
        single = isinstance(sharding, SingleDeviceSharding)  # even on the only device of a mesh
        if sharding is None or single or sharding.device_set != devices:
            sharding = NamedSharding(mesh, PartitionSpec())
        elif isinstance(sharding, NamedSharding):
            sharding = NamedSharding(auto_mesh(sharding.mesh), sharding.spec)
        return _placed(x, sharding)

    return jax.tree.map(place, tree)


def placed_rows(batch: Any, mesh: Mesh, rows: PartitionSpec) -> Any:
    """A batch divided over the axes `rows` of a mesh, from the rows that each process has."""
    sharding = NamedSharding(mesh, rows)
    if sharding.is_fully_addressable:
        return jax.device_put(batch, sharding)
    return jax.tree.map(
        lambda x: jax.make_array_from_process_local_data(sharding, np.asarray(x)), batch
    )


def _placed(x: Any, sharding: Sharding) -> Array:
    if getattr(x, "sharding", None) == sharding:
        return x
    if sharding.is_fully_addressable or not jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.device_put(x, sharding)
    # JAX cannot put a typed key on the devices of other processes.
    data = jax.device_put(jax.random.key_data(x), sharding)
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
