"""Attention of sequences divided over eight host devices, in a process of its own."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import jaxpe
from tests.compilation import device_environment

DIVIDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import jaxpe
from jaxpe.encodings import AttentionMask, Rows, resolve
from tests.encodings.test_block_attention import SIZES, largest_errors, normal

n, index = 32, np.arange(32)
pieces = index.reshape(16, 2)  # each of 8 devices has an early piece and a late one
zigzag = np.concatenate([np.concatenate([pieces[d], pieces[15 - d]]) for d in range(8)])
kinds = (AxisType.Auto,) * 3
meshes = {
    "one axis": jax.make_mesh((8,), ("rows",), axis_types=kinds[:1]),
    "three axes": jax.make_mesh((2, 2, 2), ("data", "rows", "model"), axis_types=kinds),
    "explicit": jax.make_mesh((8,), ("rows",), axis_types=(AxisType.Explicit,)),
}
cases = [("cope", "one axis", index), ("t5", "three axes", zigzag), ("rope", "explicit", zigzag)]
for name, kind, order in cases:
    encoding, mesh = resolve(name).first_layer(SIZES), meshes[kind]
    params = encoding.init(jax.random.key(0))

    def project(arrays, **options):
        params, q, k, v, x = arrays
        context = None
        if encoding.defines("context"):
            context, _ = encoding.context(params, x, order, Rows())
        out = jaxpe.attend(
            encoding, params, q, k, v, q_positions=order, k_positions=order, q_context=context,
            mask=AttentionMask(order, order), k_context=context, implementation="blocks",
            block_size=4, dropout_rate=0.2, dropout_key=jax.random.key(1), **options)
        return jnp.sum(out * jnp.cos(jnp.arange(out.size)).reshape(out.shape))

    heads = [normal(s, 2, n, 4, 8) for s in range(3)]
    arrays = (params, *heads, normal(4, 2, n, SIZES.dim))
    wanted = jax.jit(jax.value_and_grad(project))(arrays)
    if kind == "three axes":  # the compiler divides heads and batch
        place = NamedSharding(mesh, P("data", "rows", "model"))
        arrays = (params, *(jax.device_put(x, place) for x in heads), arrays[-1])
    found = jax.jit(jax.value_and_grad(lambda a: project(a, mesh=mesh, axis="rows")))(arrays)
    error = largest_errors(jax.device_get(found), jax.device_get(wanted))
    assert error < 1e-11, (name, kind, error)
"""


def test_eight_devices_equal_one():
    """Values and gradients, in a zigzag order too, beside axes that divide batch and heads."""
    run = subprocess.run(
        [sys.executable, "-c", DIVIDED],
        env=device_environment(8) | {"JAX_ENABLE_X64": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]


def test_an_axis_that_does_not_divide_is_named():
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    x, i = np.zeros((3, 1, 2), np.float32), np.arange(3)
    options = {"q_positions": i, "k_positions": i, "mesh": mesh}
    with pytest.raises(ValueError, match="pass an axis of the mesh that divides both"):
        jaxpe.attend(jaxpe.identity(), (), x, x, x, axis="columns", **options)
    with pytest.raises(ValueError, match="pass both, or none"):
        jaxpe.attend(jaxpe.identity(), (), x, x, x, **options)
