"""Every public function of geometry and encodings under every transform."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe import encodings, geometry
from tests.cases import CASES, EXEMPT, public_functions
from tests.compilation import compilations

NAMES = list(CASES)
# Their cases pass a new lambda at every call; tests/test_compiles_once.py passes the same one.
NEW_FUNCTIONS = ("principal_eigenpairs", "sum_over_pairs")
DIFFERENTIABLE = [name for name in NAMES if CASES[name].reduce is not None]


def arrays(name, seed):
    return CASES[name].make(np.random.default_rng(seed))


def close(actual, expected, rtol=1e-9, atol=1e-9):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol)


def test_every_public_function_is_in_the_table():
    covered = {name for name in public_functions() if any(row.startswith(name) for row in NAMES)}
    assert public_functions() - covered == set(EXEMPT)


@pytest.mark.parametrize("module", [geometry, encodings])
def test_flat_names_are_those_of_their_package(module):
    shared = (set(module.__all__) & set(dir(jaxpe))) - {"rope"}  # a package, called as the encoding
    assert len(shared) > 25
    assert all(getattr(jaxpe, name) is getattr(module, name) for name in shared)


@functools.cache
def jitted(name):
    return jax.jit(CASES[name].function)


@pytest.mark.parametrize("name", NAMES)
def test_jit_equals_eager_and_compiles_once(name):
    close(jitted(name)(*arrays(name, 0)), CASES[name].function(*arrays(name, 0)))
    with compilations() as compiled:
        jitted(name)(*arrays(name, 1))
    assert not compiled
    if name in NEW_FUNCTIONS:
        return
    with compilations() as compiled:  # called eagerly once more, with other values
        CASES[name].function(*arrays(name, 1))
    assert not compiled


@pytest.mark.parametrize("name", NAMES)
def test_vmap_equals_a_loop(name):
    rows = [arrays(name, seed) for seed in range(3)]
    stacked = map(np.stack, zip(*rows, strict=True))
    batched = jax.tree.map(np.asarray, jax.jit(jax.vmap(CASES[name].function))(*stacked))
    for number, row in enumerate(rows):
        close(jax.tree.map(lambda leaf, number=number: leaf[number], batched), jitted(name)(*row))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_equal_finite_differences_in_both_modes_and_in_a_batch(name):
    case, args = CASES[name], arrays(name, 0)
    floating = [k for k, x in enumerate(args) if np.issubdtype(x.dtype, np.floating)]
    rng = np.random.default_rng(9)
    direction = [rng.standard_normal(args[k].shape) for k in floating]

    def value(*xs):
        return case.reduce(case.function(*xs))

    def along(t, *xs):
        moved = list(xs)
        for k, e in zip(floating, direction, strict=True):
            moved[k] = xs[k] + t * e
        return value(*moved)

    @jax.jit
    def looked_at(t, stacked):
        """Values, derivatives along the direction and gradients, of a batch moved by t."""
        ahead = jax.vmap(lambda *xs: jax.jvp(lambda t: along(t, *xs), (t,), (1.0,)))(*stacked)
        return *ahead, jax.vmap(jax.grad(value, argnums=tuple(floating)))(*stacked)

    rows = [args, arrays(name, 1)]
    stacked = tuple(map(np.stack, zip(*rows, strict=True)))
    step = 1e-6
    _, forward, gradients = looked_at(0.0, stacked)
    (after, *_), (before, *_) = looked_at(step, stacked), looked_at(-step, stacked)
    for number, tangent in enumerate(np.asarray(forward)):
        expected = (after[number] - before[number]) / (2 * step)
        backward = sum(np.vdot(g[number], e) for g, e in zip(gradients, direction, strict=True))
        np.testing.assert_allclose(tangent, expected, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(backward, tangent, rtol=1e-9, atol=1e-11)


def to_float32(args):
    return tuple(x.astype(np.float32) if x.dtype == np.float64 else x for x in args)


@pytest.mark.parametrize("name", NAMES)
def test_float32_inputs_give_float32_results(name):
    args = to_float32(arrays(name, 0))
    if not any(x.dtype == np.float32 for x in args) or name in ("rotary_orbit", "alibi_line"):
        pytest.skip("made from integers: the default float, which the next test looks at")
    for leaf in jax.tree.leaves(jax.eval_shape(jitted(name), *args)):
        assert leaf.dtype != np.float64


@pytest.mark.parametrize("name", NAMES)
def test_float32_session_agrees_with_float64(name):
    exact = jitted(name)(*arrays(name, 0))
    with jax.enable_x64(False):
        rough = jitted(name)(*to_float32(arrays(name, 0)))
        for leaf in jax.tree.leaves(rough):
            assert jnp.asarray(leaf).dtype.itemsize <= 4
    if name == "random_vectors":
        return  # another stream of bits
    close(rough, exact, rtol=2e-4, atol=2e-4)
