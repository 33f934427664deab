"""Programs side by side."""

import threading

import jax
import jax.numpy as jnp
import pytest

from jaxpe._core.threads import in_threads


def test_results_come_in_their_order_from_several_threads():
    both = threading.Barrier(2, timeout=20)

    def meet(x):
        if x < 2:  # passes only when two items are at work at the same time
            both.wait()
        return x * x, threading.current_thread().name

    squares, names = zip(*in_threads(meet, range(6)), strict=True)
    assert squares == (0, 1, 4, 9, 16, 25)
    assert threading.current_thread().name not in names


def test_settings_of_the_caller_hold():
    def dtype(x):
        return jnp.asarray(float(x)).dtype, threading.current_thread().name

    with jax.enable_x64(not jax.config.jax_enable_x64):
        found = list(in_threads(dtype, range(3)))
        expected = jnp.asarray(0.0).dtype
    assert {own for own, _ in found} == {expected}
    assert {name for _, name in found} == {threading.current_thread().name}


def test_an_error_is_the_caller_s():
    with pytest.raises(ZeroDivisionError):
        list(in_threads(lambda x: 1 / x, [1, 0, 2]))
