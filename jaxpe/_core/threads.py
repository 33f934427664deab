"""Programs side by side: on a CPU a loop of small steps leaves all but one processor idle."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax

Item = TypeVar("Item")
Result = TypeVar("Result")

# Each takes the memory of its program.
_AT_A_TIME = 4

# What JAX keeps for each thread.
_SETTINGS = (
    "jax_enable_x64",
    "jax_default_device",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_disable_jit",
    "jax_debug_nans",
)


def in_threads(f: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`map`, a few items at a time, the results in their order.

    One after another where the caller has other settings of JAX than a new thread, as inside of
    `with jax.enable_x64()`.

    >>> list(in_threads(lambda x: x + 1, [1, 2, 3]))
    [2, 3, 4]
    """
    pool = ThreadPoolExecutor(min(_AT_A_TIME, os.cpu_count() or 1))
    try:
        alike = pool.submit(_settings).result() == _settings()
        yield from pool.map(f, items) if alike else map(f, items)
    finally:  # an interrupt does not wait for what is at work
        pool.shutdown(wait=False, cancel_futures=True)


def side_by_side(*jobs: Callable[[], Any]) -> list[Any]:
    """Results of the jobs, run in threads: one compiles while another computes.

    >>> side_by_side(lambda: 1, lambda: "two")
    [1, 'two']
    """
    return list(in_threads(lambda job: job(), jobs))


def _settings() -> tuple[object, ...]:
    return tuple(getattr(jax.config, name) for name in _SETTINGS)
