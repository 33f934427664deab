"""Tests that mostly wait for the compiler look at what does not depend on its efforts."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax


@contextlib.contextmanager
def quick_compilation() -> Iterator[None]:
    """Compile with few optimisations."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def counted(f: Callable[..., Any]) -> tuple[Callable[..., Any], list[None]]:
    """f, and a list that is as long as f was run: under `jit`, traced."""
    runs: list[None] = []

    def run(*args: Any, **options: Any) -> Any:
        runs.append(None)
        return f(*args, **options)

    return run, runs
