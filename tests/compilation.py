"""Tests that mostly wait for the compiler look at what does not depend on its efforts."""

import contextlib
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def quick_compilation() -> Iterator[None]:
    """Compile with few optimisations."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
