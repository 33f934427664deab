"""What a result is computed from, through every kind of equation that has a program of its own."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jaxpe._core.jaxprs import used_arguments

X = jnp.arange(3.0)


@jax.custom_jvp
def first(x, y):
    return x


first.defjvp(lambda at, along: (at[0], along[0]))


@jax.custom_vjp
def second(x, y):
    return y


second.defvjp(lambda x, y: (y, None), lambda kept, along: (0 * along, along))


def turned(x, y):
    """Each step hands on the next of three: y is the first of them after two steps."""
    return lax.scan(lambda all, _: ((*all[1:], all[0]), None), (x, x, y), None, length=2)[0][0]


def rows(x, y):
    return lax.scan(lambda total, row: (total + row[0], row[1]), jnp.zeros(()), (x, y))


@pytest.mark.parametrize(
    ("f", "used"),
    [
        (lambda x, y: x * 0, [True, False]),
        (lambda x, y: jnp.ones(3), [False, False]),
        (jax.jit(lambda x, y: jnp.sin(y)), [False, True]),
        (lambda x, y: jax.jit(lambda x, y: (x, y))(x, y)[0], [True, False]),
        (first, [True, False]),
        (second, [False, True]),
        (jax.checkpoint(lambda x, y: jnp.sin(x)), [True, False]),
        (turned, [True, True]),
        (lambda x, y: rows(x, y)[0], [True, False]),
        (lambda x, y: rows(x, y)[1], [False, True]),
        (lambda x, y: rows(x, y), [True, True]),
        (lambda x, y: lax.cond(True, lambda x, y: x, lambda x, y: 2 * x, x, y), [True, False]),
        (lambda x, y: lax.cond(x[0] > 0, lambda y: y, lambda y: y + 1, y), [True, True]),
        (lambda x, y: lax.switch(1, [lambda x, y: x, lambda x, y: y], x, y), [True, True]),
        (lambda x, y: lax.fori_loop(0, x.size, lambda i, total: total + y[i], 0.0), [False, True]),
        (lambda x, y: jax.jvp(lambda x: x * x, (x,), (y,))[1], [True, True]),
        (lambda x, y: jax.jvp(lambda x: 2 * x, (x,), (y,))[1], [False, True]),
        (lambda x, y: jax.grad(lambda x: jnp.sum(x * y))(x), [False, True]),
    ],
)
def test_used_arguments(f, used):
    assert used_arguments(f, X, X) == used


def test_leaves_are_told_apart():
    assert used_arguments(lambda tree: tree["b"][0], {"a": X, "b": (X, X)}) == [False, True, False]


def test_a_loop_without_a_known_end_uses_all_that_enters():
    def f(x, y):
        return lax.while_loop(lambda pair: pair[0] < 9, lambda pair: (pair[0] + 1, pair[1]), (x, y))

    assert used_arguments(lambda x, y: f(x, y)[0], 0.0, 1.0) == [True, True]
