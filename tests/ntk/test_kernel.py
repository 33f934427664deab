"""Empirical kernels: equal to their definition, in blocks, by every axis, for every use."""

import re
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.ntk import empirical_ntk
from tests.ntk.networks import QUICK, dense_kernel, network, reduced
from tests.unchecked import unchecked


def kernel(f, x1, x2, params, **options):
    def run(x1, x2, params):
        return empirical_ntk(f, x1, x2, params, **options)

    return jax.jit(run, compiler_options=QUICK)(x1, x2, params)


def close(actual, desired, *, rtol=1e-9):
    desired = np.asarray(desired)
    np.testing.assert_allclose(actual, desired, rtol=0, atol=rtol * np.abs(desired).max())


def hidden(params, ids):
    """Outputs with three axes: tokens and two groups of coordinates."""
    x = jnp.tanh(params["table"][ids] + params["positions"][None])
    return (x @ params["w1"]).reshape(*ids.shape, 4, -1)


AXES = [((), ()), ((-1, 1), ()), ((2,), (1,)), ((1,), (3,)), ((), (1, 0)), ((0, 3), (2,)), (-1, 0)]


def test_axes_in_symmetric_blocks():
    """Of three blocks, one pair of which is the transpose of another."""
    _, params, (ids,) = network("transformer", batches=(3,))
    params = {key: params[key] for key in ("table", "positions", "w1")}
    whole = np.asarray(dense_kernel(hidden, ids, ids, params))

    @partial(jax.jit, compiler_options=QUICK)
    def run(params):
        options = [dict(zip(("trace_axes", "diagonal_axes"), axes, strict=True)) for axes in AXES]
        return [empirical_ntk(hidden, ids, None, params, block_size=1, **each) for each in options]

    for (trace_axes, diagonal_axes), found in zip(AXES, run(params), strict=True):
        axes = [np.atleast_1d(x).astype(int).tolist() for x in (trace_axes, diagonal_axes)]
        close(found, reduced(whole, trace_axes=axes[0], diagonal_axes=axes[1]))


def test_blocks_of_other_inputs(monkeypatch):
    """Given or by memory, for inputs that are pytrees."""
    f, params, (x1, x2) = network("mlp", batches=(4, 3))

    def g(params, batch):
        return f(params, batch["x"]) * batch["scale"][:, None]

    one, other = ({"x": x, "scale": jnp.arange(1.0, 1 + len(x))} for x in (x1, x2))
    dense = dense_kernel(g, one, other, params)
    close(kernel(g, one, other, params, trace_axes=(), block_size=3), dense)
    monkeypatch.setattr("jaxpe.ntk.kernel._BUDGET", 1)  # blocks of one example
    close(kernel(g, one, other, params, trace_axes=()), dense)


# Parameters used twice, in loops, through integers, and looked up outside a table.
def tied(params, ids):
    x = params["table"][ids]
    return (jnp.tanh(x @ params["w"].T) @ params["w"]) @ params["table"].T


def looped(params, x):
    def layer(x, w):
        return jnp.tanh(x @ w), None

    return jax.lax.scan(layer, x, params["layers"])[0] @ (2.0 * params["w"])[:, :2]


def rounded(params, x):
    return jnp.tanh(x @ params["a"].astype(jnp.int32).astype(jnp.float64)) @ params["b"]


def looked_up_outside(params, ids):
    rows = params["table"].at[ids].get(mode="fill", fill_value=0.0)
    clipped = params["more"].at[ids].get(mode="clip")
    return (rows * clipped).sum(1)


@pytest.mark.parametrize("f", [tied, looped, rounded, looked_up_outside])
def test_unusual_uses_of_parameters(f):
    rng = np.random.default_rng(0)

    def draw(*shape):
        return jnp.asarray(rng.standard_normal(shape))

    ids = rng.integers(0, 5, (4, 3))
    params, x = {
        tied: ({"table": draw(5, 3), "w": draw(3, 3)}, ids),
        looped: ({"layers": draw(3, 4, 4), "w": draw(4, 3)}, draw(4, 4)),
        rounded: ({"a": 3 * draw(4, 3), "b": draw(3, 2)}, draw(4, 4)),
        looked_up_outside: ({"table": draw(5, 4), "more": draw(5, 4)}, ids * 2 - 1),
    }[f]
    close(kernel(f, x, None, params, trace_axes=()), dense_kernel(f, x, x, params))


def test_gradient_equals_finite_differences():
    """In blocks, of a function that closes over a traced value."""
    f, params, (x,) = network("mlp", batches=(3,))
    weights = jnp.asarray(np.random.default_rng(1).standard_normal((3, 3)))
    rng = np.random.default_rng(2)
    direction = jax.tree.map(lambda a: jnp.asarray(rng.standard_normal(a.shape)), params)

    def along(t):
        moved = jax.tree.map(lambda p, d: p + t * d, params, direction)
        return jnp.sum(weights * empirical_ntk(lambda p, x: t * f(p, x), x, None, moved,
                                               block_size=2))  # fmt: skip

    value = jax.jit(along, compiler_options=QUICK)
    slope = jax.jit(jax.grad(along), compiler_options=QUICK)(0.5)
    numerical = (value(0.5 + 1e-6) - value(0.5 - 1e-6)) / 2e-6
    np.testing.assert_allclose(slope, numerical, rtol=1e-6)


def test_kernels_of_bfloat16_are_float32():
    f, params, (x,) = network("mlp", batches=(4,))
    narrow, (few,) = network("mlp", batches=(4,), dtype=jnp.bfloat16)[1:]
    ours = kernel(f, few, None, narrow, trace_axes=())
    assert ours.dtype == jnp.float32
    close(ours, dense_kernel(f, x, x, params), rtol=0.1)


X = jnp.asarray(np.random.default_rng(0).standard_normal((3, 4)))
PARAMS = {"w": jnp.eye(4), "w_out": jnp.ones((4, 3)), "b_out": jnp.zeros((1, 3))}


def F(params, x):
    return (x @ params["w"]) @ params["w_out"] + params["b_out"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_size": 0}, "block_size"),
        ({"trace_axes": (2,)}, "trace_axes"),
        ({"trace_axes": (1,), "diagonal_axes": (-1,)}, "share"),
        ({"x2": X[:2], "diagonal_axes": (0,)}, "x2"),
        ({"x1": {"x": X, "n": jnp.ones(2)}}, "leading"),
        ({"x1": X[:0]}, "examples"),
        ({"params": {"w": jnp.ones(2), "steps": jnp.ones(2, int)}}, "['steps']"),
        ({"params": {}}, "nothing"),
        ({"f": lambda p, x: F(p, x)[:2]}, "[2, 3]"),
        ({"f": lambda p, x: (F(p, x), x)}, "tuple"),
        ({"f": lambda p, x: F(p, x)[:, 0]}, "trace_axes=()"),
        ({"mesh": jax.make_mesh((1,), ("rows",))}, "data"),
    ],
)
def test_errors(change, message):
    given = {"f": F, "x1": X, "x2": None, "params": PARAMS} | change
    positional = [given.pop(name) for name in ("f", "x1", "x2", "params")]
    with unchecked(), pytest.raises(ValueError, match=re.escape(message)):
        empirical_ntk(*positional, **given)


def test_a_read_out_of_zeros_is_warned_of():
    zeroed = PARAMS | {"w_out": jnp.zeros_like(PARAMS["w_out"])}
    with pytest.warns(UserWarning, match="b_out and w_out"):
        empirical_ntk(F, X, None, zeroed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        empirical_ntk(F, X, None, zeroed, warn=False)
        empirical_ntk(F, X, None, PARAMS)
