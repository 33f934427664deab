"""Programs made of a caller's functions: which are the same, what they hold and when they go."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import Encoding
from jaxpe._core.compiled import compiled
from tests.compilation import compilations

X = np.arange(3.0)


@compiled("f", static=("times",))
def repeated(x, *, f, times=2):
    return jax.lax.fori_loop(0, times, lambda _, x: f(x), x)


@compiled("encoding")
def queried(x, *, encoding):
    return jax.lax.map(lambda x: encoding.query((), x, None), x)


class Adder:
    """Equal to none, without a hash, and with a method."""

    __hash__ = None

    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x + self.by

    def method(self, x):
        return x - self.by


class Pair(tuple):
    """A callable that nothing refers to weakly."""

    __slots__ = ()

    def __call__(self, x):
        return x + self[0]


def halve(params, x, positions):
    return x / 2


ADDER = Adder(jnp.arange(3.0))
FUNCTIONS = {
    "function": lambda: jnp.sin,
    "without a hash": lambda: ADDER,
    "method": lambda: ADDER.method,
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_same_function_is_compiled_once(kind):
    look = FUNCTIONS[kind]
    first = repeated(X, f=look())
    with compilations() as names:
        second = repeated(X + 1, f=look())
        jax.block_until_ready(second)
    assert not names
    np.testing.assert_allclose(first, look()(look()(X)))
    np.testing.assert_allclose(second, look()(look()(X + 1)))


def test_functions_in_a_tuple_with_plain_values():
    encoding = Encoding(query=halve)
    queried(X, encoding=encoding)
    with compilations() as names:
        found = queried(X, encoding=Encoding(query=halve))  # another tuple of the same functions
    assert not names
    np.testing.assert_array_equal(found, X / 2)


def test_other_functions_and_static_values_are_other_programs():
    assert repeated(X, f=lambda x: x + 1).tolist() == [2, 3, 4]
    assert repeated(X, f=lambda x: x + 3).tolist() == [6, 7, 8]
    assert repeated(X, f=jnp.square, times=1).tolist() == [0, 1, 4]
    assert repeated(X, f=jnp.square, times=2).tolist() == [0, 1, 16]


def test_what_cannot_be_referred_to_weakly_works():
    for by in (1.0, 2.0):
        f = Pair((by,))
        for same in (f, f.__call__):
            np.testing.assert_array_equal(repeated(X, f=same), X + 2 * by)


def test_a_program_goes_with_its_function():
    held = jnp.arange(3.0) + 1
    alive = weakref.ref(held)

    def add(x):
        return x + held

    repeated(X, f=add)
    del add, held
    gc.collect()
    assert alive() is None


def test_arrays_closed_over_are_arguments():
    large = jnp.asarray(np.random.default_rng(0).random(4000))
    made = jax.make_jaxpr(lambda x: repeated(x, f=lambda x: x * large))(jnp.ones(4000))
    (program,) = made.eqns
    assert len(program.invars) == 2
    assert program.params["jaxpr"].consts == []


def test_transformations_and_values_of_them():
    def total(scale):
        return jnp.sum(repeated(jnp.asarray(X), f=lambda x: scale * x))

    assert jax.grad(total)(3.0).item() == 2 * 3 * X.sum()
    assert jax.jit(jax.grad(total))(3.0).item() == 2 * 3 * X.sum()
    assert jax.vmap(total)(jnp.array([1.0, 2.0])).tolist() == [X.sum(), 4 * X.sum()]


def test_an_eager_gradient_is_compiled_once():
    def total(x):
        return jnp.sum(repeated(x, f=jnp.sin))

    gradient = jax.grad(total)(jnp.asarray(X))
    with compilations() as names:
        jax.grad(total)(jnp.asarray(X))
    assert not names
    np.testing.assert_allclose(gradient, np.cos(np.sin(X)) * np.cos(X))
