"""Tests that mostly wait for the compiler look at what does not depend on its efforts."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax


@contextlib.contextmanager
def quick_compilation() -> Iterator[None]:
    """Compile with few optimisations."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def device_environment(number: int) -> dict[str, str]:
    """Variables of a process with so many devices that compiles as quickly as the tests do."""
    flags = (
        f"--xla_force_host_platform_device_count={number} --xla_cpu_use_fusion_emitters=false "
        "--xla_backend_optimization_level=0"
    )
    return os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


def counted(f: Callable[..., Any]) -> tuple[Callable[..., Any], list[None]]:
    """f, and a list that is as long as f was run: under `jit`, traced."""
    runs: list[None] = []

    def run(*args: Any, **options: Any) -> Any:
        runs.append(None)
        return f(*args, **options)

    return run, runs


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """Names of the programs that are asked of the compiler, those in the cache on disk too."""
    names: list[str] = []

    def listen(event: str, duration: float, **about: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(str(about.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield names
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
