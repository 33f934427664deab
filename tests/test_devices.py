"""What divides its work over devices equals one device: eight host devices, one process for all."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpe
from jaxpe.encodings import AttentionMask
from jaxpe.encodings.base import Rows
from jaxpe.encodings.entries import resolve
from jaxpe.ntk import empirical_ntk
from tests.compilation import device_environment
from tests.encodings.test_block_attention import SIZES, largest_errors, normal


def equal(one, other, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), one, other)


def attention_of_divided_sequences():
    """Values and gradients, in a zigzag order too, beside axes that divide batch and heads."""
    n, index = 32, np.arange(32)
    pieces = index.reshape(16, 2)  # each of 8 devices has an early piece and a late one
    zigzag = np.concatenate([np.concatenate([pieces[d], pieces[15 - d]]) for d in range(8)])
    kinds = (AxisType.Auto,) * 3
    meshes = {
        "three axes": jax.make_mesh((2, 2, 2), ("data", "rows", "model"), axis_types=kinds),
        "explicit": jax.make_mesh((8,), ("rows",), axis_types=(AxisType.Explicit,)),
    }
    for name, kind, order in (("fox", "three axes", index), ("rope", "explicit", zigzag)):
        encoding, mesh = resolve(name).first_layer(SIZES), meshes[kind]
        params = encoding.init(jax.random.key(0))

        def project(arrays, encoding=encoding, order=order, **options):
            params, q, k, v, x = arrays
            context = None
            if encoding.defines("context"):
                context, _ = encoding.context(params, x, order, Rows())
            out = jaxpe.encodings.attend(
                encoding, params, q, k, v, q_positions=order, k_positions=order, q_context=context,
                mask=AttentionMask(order, order), k_context=context, implementation="blocks",
                block_size=4, dropout_rate=0.2, dropout_key=jax.random.key(1), **options,
            )  # fmt: skip
            return jnp.sum(out * jnp.cos(jnp.arange(out.size)).reshape(out.shape))

        def divided(arrays, project=project, mesh=mesh):
            return project(arrays, mesh=mesh, axis="rows")

        heads = [normal(s, 2, n, 4, 8) for s in range(3)]
        arrays = (params, *heads, normal(4, 2, n, SIZES.dim))
        wanted = jax.jit(jax.value_and_grad(project))(arrays)
        if kind == "three axes":  # the compiler divides heads and batch
            place = NamedSharding(mesh, P("data", "rows", "model"))
            arrays = (params, *(jax.device_put(x, place) for x in heads), arrays[-1])
        found = jax.jit(jax.value_and_grad(divided))(arrays)
        error = largest_errors(jax.device_get(found), jax.device_get(wanted))
        assert error < 1e-11, (name, kind, error)


def batches_on_explicit_devices():
    encodings = [
        jaxpe.encodings.learned(length=5, dim=4, interpolate=True),
        jaxpe.encodings.t5(num_heads=2),
        jaxpe.encodings.shaw(head_dim=4, max_distance=2),
    ]
    mesh = jax.make_mesh((2,), ("batch",), axis_types=(AxisType.Explicit,))
    for encoding in encodings:
        params = encoding.init(jax.random.key(0))

        def run(params, x, i, encoding=encoding):
            if encoding.defines("embed"):
                return encoding.embed(params, x[..., 0, :], i)
            return jaxpe.encodings.attend(encoding, params, x, x, x, q_positions=i, k_positions=i)

        x = jax.random.normal(jax.random.key(1), (4, 5, 2, 4))
        i = jnp.broadcast_to(jnp.arange(5), (4, 5))
        expected = jax.jit(run)(params, x, i)
        with jax.set_mesh(mesh):
            rows = NamedSharding(mesh, P("batch"))
            out = jax.jit(run)(params, jax.device_put(x, rows), jax.device_put(i, rows))
            assert jax.typeof(out).sharding.spec[0] == "batch"
            equal(out, expected, atol=1e-5)


def rows_of_kernels():
    rng = np.random.default_rng(0)
    x1, x2, params = (rng.standard_normal(shape) for shape in ((6, 4), (5, 4), (4, 3)))
    mesh = jax.make_mesh((4,), ("data",))

    @jax.jit
    def run(x1, x2, params):
        def kernel(*x, **options):
            return empirical_ntk(lambda params, x: jnp.tanh(x @ params), *x, params, **options)

        spread = kernel(x1, x2, mesh=mesh, block_size=2)
        alone = kernel(x1, None, mesh=mesh), kernel(x1, None, mesh=mesh, diagonal_axes=(0,))
        whole = kernel(x1, x2), kernel(x1, None), kernel(x1, None, diagonal_axes=(0,))
        return (spread, *alone), whole

    ours, whole = run(x1, x2, params)
    assert all(len(one.sharding.device_set) == 4 for one in ours)
    equal(ours, whole, rtol=1e-9)


CHECKS = (attention_of_divided_sequences, batches_on_explicit_devices, rows_of_kernels)


def test_several_devices_equal_one():
    calls = "\n".join(f"test_devices.{check.__name__}()" for check in CHECKS)
    done = subprocess.run(
        [sys.executable, "-c", f"from tests import test_devices\n{calls}"],
        env=device_environment(8) | {"JAX_ENABLE_X64": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_an_axis_that_does_not_divide_is_named():
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(AxisType.Auto,))
    x, i = np.zeros((3, 1, 2), np.float32), np.arange(3)
    options = {"q_positions": i, "k_positions": i, "mesh": mesh}
    with pytest.raises(ValueError, match="divides"):
        jaxpe.encodings.attend(jaxpe.encodings.identity(), (), x, x, x, axis="columns", **options)
    with pytest.raises(ValueError, match="both"):
        jaxpe.encodings.attend(jaxpe.encodings.identity(), (), x, x, x, **options)
