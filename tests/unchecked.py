"""The library as users call it: without the type checks that the tests add."""

import contextlib
from collections.abc import Iterator

import jaxtyping


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Turn off the checks of annotations, which come before the library's own."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)
