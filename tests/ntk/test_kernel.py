"""Empirical kernels: equal to their definition in every block and transform."""

import functools
import re
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe import nn
from jaxpe.ntk import empirical_ntk
from jaxpe.ntk.sensitivity import warn_of_dead_parameters
from tests.nn import models
from tests.ntk.networks import NAMES, QUICK, dense_kernel, network, reduced


def kernel(f, x1, x2, params, **options):
    def run(x1, x2, params):
        return empirical_ntk(f, x1, x2, params, **options)

    return jax.jit(run, compiler_options=QUICK)(x1, x2, params)


def close(actual, desired, *, rtol=1e-9):
    desired = np.asarray(desired)
    np.testing.assert_allclose(actual, desired, rtol=0, atol=rtol * np.abs(desired).max())


@functools.cache
def example(name):
    """A network, two batches, and the kernel between them."""
    f, params, (x1, x2) = network(name, batches=(4, 3))
    return f, x1, x2, params, dense_kernel(f, x1, x2, params)


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_definition(name):
    f, x1, x2, params, dense = example(name)
    close(kernel(f, x1, x2, params, trace_axes=()), dense)


def hidden(params, ids):
    """Outputs with three axes: tokens and two groups of coordinates."""
    x = jnp.tanh(params["table"][ids] + params["positions"][None])
    return (x @ params["w1"]).reshape(*ids.shape, 4, -1)


AXES = [((), ()), ((-1, 1), ()), ((2,), (1,)), ((1,), (3,)), ((), (1, 0)), ((0, 3), (2,))]


def test_axes():
    _, params, (ids,) = network("transformer", batches=(3,))
    params = {key: params[key] for key in ("table", "positions", "w1")}
    whole = np.asarray(dense_kernel(hidden, ids, ids, params))
    for trace_axes, diagonal_axes in AXES:
        axes = {"trace_axes": trace_axes, "diagonal_axes": diagonal_axes}
        close(kernel(hidden, ids, None, params, block_size=2, **axes), reduced(whole, **axes))


def test_an_axis_is_an_axis_alone():
    f, x1, _, params, _ = example("mlp")
    whole = dense_kernel(f, x1, x1, params)
    ours = kernel(f, x1, None, params, trace_axes=-1, diagonal_axes=0)
    close(ours, reduced(whole, trace_axes=(-1,), diagonal_axes=(0,)))


def test_outputs_with_no_axis_but_the_batch():
    f, params, (x,) = network("mlp", batches=(4,))

    def first(params, x):
        return f(params, x)[:, 0]

    whole = dense_kernel(first, x, x, params)
    close(kernel(first, x, None, params, trace_axes=()), whole)
    close(kernel(first, x, None, params, trace_axes=(0,)), np.trace(whole) / 4)


@pytest.mark.parametrize("size", [1, 3])
def test_block_size_changes_nothing(size):
    f, x1, x2, params, dense = example("mlp")
    run = partial(kernel, f, trace_axes=(), block_size=size)
    close(run(x1, x2, params), dense)
    close(run(x1, None, params), dense_kernel(f, x1, x1, params))


def test_a_small_budget_changes_nothing(monkeypatch):
    monkeypatch.setattr("jaxpe.ntk.kernel._BUDGET", 1)  # blocks of one example
    f, x1, x2, params, dense = example("cnn")
    close(kernel(lambda *args: f(*args), x1, x2, params, trace_axes=()), dense)


def test_batches_of_different_shapes():
    """Sentences of two lengths, with outputs of one shape."""

    def f(params, x):
        return jnp.tanh(x @ params).mean(1)

    rng = np.random.default_rng(0)
    x1, x2, params = (jnp.asarray(rng.standard_normal(s)) for s in ((3, 4, 2), (2, 6, 2), (2, 3)))
    close(kernel(f, x1, x2, params, trace_axes=()), dense_kernel(f, x1, x2, params))


def test_the_kernel_is_symmetric_and_positive():
    f, params, (x,) = network("mlp", batches=(5,))
    whole = kernel(f, x, None, params, trace_axes=(), block_size=2)
    matrix = np.asarray(whole).transpose(0, 2, 1, 3).reshape(15, 15)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    assert np.linalg.eigvalsh(matrix)[0] > -1e-10


# Parameters used twice, in loops, through integers, and looked up outside a table.
def tied(params, ids):
    x = params["table"][ids]
    return (jnp.tanh(x @ params["w"].T) @ params["w"]) @ params["table"].T


def looped(params, x):
    def layer(x, w):
        return jnp.tanh(x @ w), None

    return jax.lax.scan(layer, x, params["layers"])[0] @ (2.0 * params["w"])[:, :2]


def products_of_weights(params, x):
    return jax.jit(lambda a, b: x @ (a @ b))(params["a"], params["b"]) ** 2


def itself(params, x):
    return params["w"] + 0.0 * x


def rounded(params, x):
    return jnp.tanh(x @ params["a"].astype(jnp.int32).astype(jnp.float64)) @ params["b"]


def looked_up_outside(params, ids):
    rows = params["table"].at[ids].get(mode="fill", fill_value=0.0)
    clipped = params["more"].at[ids].get(mode="clip")
    return (rows * clipped).sum(1)


@pytest.mark.parametrize(
    "f", [tied, looped, products_of_weights, itself, rounded, looked_up_outside]
)
def test_unusual_uses_of_parameters(f):
    rng = np.random.default_rng(0)

    def draw(*shape):
        return jnp.asarray(rng.standard_normal(shape))

    ids = rng.integers(0, 5, (4, 3))
    params, x = {
        tied: ({"table": draw(5, 3), "w": draw(3, 3)}, ids),
        looped: ({"layers": draw(3, 4, 4), "w": draw(4, 3)}, draw(4, 4)),
        products_of_weights: ({"a": draw(4, 3), "b": draw(3, 2)}, draw(4, 4)),
        itself: ({"w": draw(1, 4)}, draw(4, 4)),
        rounded: ({"a": 3 * draw(4, 3), "b": draw(3, 2)}, draw(4, 4)),
        looked_up_outside: ({"table": draw(5, 4), "more": draw(5, 4)}, ids * 2 - 1),
    }[f]
    dense = dense_kernel(f, x, x, params)
    close(kernel(f, x, None, params, trace_axes=()), dense)


def test_a_transformer_of_the_library():
    apply, params = models.encoder(
        jaxpe.chain(jaxpe.rope(head_dim=4), jaxpe.t5(num_heads=2)), scan=False
    )

    def f(params, ids):
        return apply(params, ids).hidden[:, 0]

    ids = models.some_ids(3, models.N)
    dense = dense_kernel(f, ids, ids, params, trace_axes=(-1,))
    close(kernel(f, ids, None, params), dense)


def test_without_input_features_the_kernel_is_zero():
    x, w = jnp.ones((4, 0)), jnp.ones((0, 2))
    found = kernel(lambda w, x: x @ w, x, None, w, trace_axes=())
    np.testing.assert_array_equal(found, np.zeros((4, 4, 2, 2)))


def test_inputs_are_pytrees():
    f, params, (x,) = network("mlp")

    def g(params, batch):
        return f(params, batch["x"]) * batch["scale"][:, None]

    batch = {"x": x, "scale": jnp.arange(1.0, 6.0)}
    close(
        kernel(g, batch, None, params, trace_axes=(), block_size=2),
        dense_kernel(g, batch, batch, params),
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("dtype", "rtol"), [(jnp.float32, 1e-5), (jnp.bfloat16, 0.1)])
def test_kernels_are_float32_or_wider(name, dtype, rtol):
    *_, dense = example(name)
    f, params, (x1, x2) = network(name, batches=(4, 3), dtype=dtype)
    ours = kernel(f, x1, x2, params, trace_axes=())
    assert ours.dtype == jnp.float32
    close(ours, dense, rtol=rtol)


def test_an_ensemble_by_vmap():
    f, _, (x,) = network("mlp")
    members = [network("mlp", seed=seed)[1] for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
    many = jax.jit(jax.vmap(lambda params: empirical_ntk(f, x, None, params)))(stacked)
    for member, one in zip(members, many, strict=True):
        close(one, dense_kernel(f, x, x, member, trace_axes=(-1,)))


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_gradient_equals_finite_differences(name):
    f, params, (x,) = network(name, batches=(3,))
    weights = jnp.asarray(np.random.default_rng(1).standard_normal((3, 3)))
    rng = np.random.default_rng(2)
    direction = jax.tree.map(lambda a: jnp.asarray(rng.standard_normal(a.shape)), params)

    def along(t):
        moved = jax.tree.map(lambda p, d: p + t * d, params, direction)
        return jnp.sum(weights * empirical_ntk(f, x, None, moved, block_size=2))

    def slopes(t):
        forwards = jax.jvp(along, (t,), (1.0,))[1]
        return forwards, jax.grad(along)(t)

    value, slopes = (jax.jit(g, compiler_options=QUICK) for g in (along, slopes))
    numerical = (value(1e-6) - value(-1e-6)) / 2e-6
    for slope in slopes(0.0):
        np.testing.assert_allclose(slope, numerical, rtol=1e-6)


def test_closes_over_traced_values():
    """f may use values of the transformation it is called in."""
    f, params, (x,) = network("mlp")

    def scaled(scale):
        return empirical_ntk(lambda params, x: scale * f(params, x), x, None, params, block_size=2)

    close(jax.jit(scaled)(2.0), 4.0 * dense_kernel(f, x, x, params, trace_axes=(-1,)))


X = jnp.asarray(np.random.default_rng(0).standard_normal((3, 4)))
PARAMS = {"w": jnp.eye(4), "w_out": jnp.ones((4, 3)), "b_out": jnp.zeros((1, 3))}


def F(params, x):
    return (x @ params["w"]) @ params["w_out"] + params["b_out"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_size": 0}, "at least 1"),
        ({"trace_axes": (2,)}, "trace_axes: axis 2 is out of bounds"),
        ({"diagonal_axes": (-3,)}, "diagonal_axes: axis -3 is out of bounds"),
        ({"trace_axes": (1, -1)}, "repeated axis in `trace_axes`"),
        ({"trace_axes": (1,), "diagonal_axes": (-1,)}, "share an axis of an output"),
        ({"x2": X[:2], "diagonal_axes": (0,)}, "3 examples and x2 2"),
        ({"x1": {"x": X, "n": jnp.ones(2)}}, "one leading axis"),
        ({"x1": jnp.ones(())}, "one leading axis"),
        ({"x1": X[:0]}, "no examples"),
        ({"params": {"w": jnp.ones(2), "steps": jnp.ones(2, int)}}, "params['steps'] is int64"),
        ({"params": {}}, "nothing to differentiate"),
        ({"f": lambda p, x: F(p, x).sum()}, "must have the batch as leading axis"),
        ({"f": lambda p, x: F(p, x)[:2]}, "3 examples to shape [2, 3]"),
        ({"f": lambda p, x: (F(p, x), x)}, "f returns tuple, not one array"),
        ({"f": lambda p, x: F(p, x)[:, :0]}, "at least one number"),
        ({"f": lambda p, x: F(p, x)[:, 0]}, "pass trace_axes=() for a kernel [n1, n2]"),
    ],
)
def test_errors(change, message, monkeypatch):
    # Types are checked in tests only, and would be first.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    given = {"f": F, "x1": X, "x2": None, "params": PARAMS} | change
    positional = [given.pop(name) for name in ("f", "x1", "x2", "params")]
    with pytest.raises(ValueError, match=re.escape(message)):
        empirical_ntk(*positional, **given)


def test_a_mesh_needs_its_axis():
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    with pytest.raises(ValueError, match="name one of them 'data'"):
        empirical_ntk(F, X, None, PARAMS, mesh=mesh)


def test_a_read_out_of_zeros_is_warned_of():
    zeroed = PARAMS | {"w_out": jnp.zeros_like(PARAMS["w_out"])}
    with pytest.warns(UserWarning, match="of all parameters b_out and w_out moves"):
        empirical_ntk(F, X, None, zeroed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        empirical_ntk(F, X, None, zeroed, warn=False)
        jax.jit(lambda p: empirical_ntk(F, X, None, p))(zeroed)
        empirical_ntk(F, X, None, PARAMS)


def test_a_read_out_of_zeros_is_found_in_a_model_of_the_library():
    def make():
        encoder = nn.Encoder(models.config(), encoding=jaxpe.identity(), rngs=nnx.Rngs(0))
        return nn.Classifier(encoder, num_classes=2, rngs=nnx.Rngs(1))

    apply, params = models.split(make)
    params["output"]["kernel"].set_value(jnp.zeros((8, 2)))
    f = jax.jit(lambda params, ids: apply(params, ids).logits)
    with pytest.warns(UserWarning, match="output/bias and output/kernel"):
        warn_of_dead_parameters(f, params, models.some_ids(2, 3))
