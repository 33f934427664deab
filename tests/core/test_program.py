"""Eager calls as one program: what is compiled, what is not, and what comes back."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe._core.program import one_program
from tests.compilation import compilations


class Found(NamedTuple):
    total: jax.Array
    name: str
    sizes: tuple[int, ...]
    nothing: None = None


@one_program
def summed(x, *, times: int = 2, name: str = "x", mask=None):
    """The sum, by three operations."""
    if x.ndim != 1:
        raise ValueError(f"x has shape {x.shape}")
    kept = x if mask is None else jnp.where(mask, x, 0)
    return Found(jnp.sum(jnp.exp(kept)) * times, name, x.shape)


X = np.linspace(0.0, 1.0, 5)


def test_a_call_is_one_program_and_the_next_none():
    with compilations() as first:
        found = summed(X, times=3, mask=X > 0.5)
    assert len(first) == 1
    assert "summed" in first[0]
    with compilations() as second:
        summed(X + 1, times=3, mask=X > 0.2)
    assert not second
    np.testing.assert_allclose(found.total, 3 * np.exp(np.where(X > 0.5, X, 0)).sum())


def test_plain_values_go_in_and_come_out_as_they_are():
    found = summed(X, name="y")
    assert type(found) is Found
    assert found[1:] == ("y", (5,), None)
    assert type(found.sizes[0]) is int


def test_values_of_other_types_are_other_programs():
    """1 == True == 1.0, but what a function makes of them differs."""
    kinds = one_program(lambda x, value: (x, type(value).__name__))
    assert [kinds(X, value)[1] for value in (1, True, 1.0)] == ["int", "bool", "float"]


def test_under_every_transform():
    def total(x):
        return summed(x).total

    rows = np.stack([X, 2 * X])
    np.testing.assert_allclose(jax.grad(total)(jnp.asarray(X)), 2 * np.exp(X))
    np.testing.assert_allclose(jax.vmap(total)(rows), [total(row) for row in rows])
    np.testing.assert_allclose(jax.jit(total)(X), total(X))
    with jax.disable_jit():
        np.testing.assert_allclose(total(X), 2 * np.exp(X).sum())


def test_errors_are_those_of_the_function():
    with pytest.raises(ValueError, match=r"x has shape \(5, 1\)"):
        summed(X[:, None])


def test_functions_long_lists_and_wide_integers_are_not_compiled():
    looked = one_program(lambda *given: [isinstance(x, jax.core.Tracer) for x in given])
    assert looked(X) == [True]
    assert looked(X, jnp.sin) == [False, False]
    assert looked(X, *range(65)) == [False] * 66
    assert looked(np.array([2**31 - 1])) == [True]
    assert looked(np.array([2**31])) == [False]
    assert looked(jnp.array([2**40])) == [False]  # of a session with 64 bits


def test_it_reads_as_the_function():
    assert summed.__name__ == "summed"
    assert summed.__doc__ == "The sum, by three operations."
