"""Several processes as one run: what `jax.distributed` leaves to the program."""

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather

from jaxpe._core.errors import InputError, differences, require

_HEARTBEAT_S = 30  # seconds of silence after which a process counts as dead and the others stop
_BARRIER_S = 7200  # seconds to wait for live processes, which may be reading a large shard
_BARRIERS = itertools.count()


def join_processes() -> None:
    """Join the processes of a cluster manager (SLURM, GKE, Open MPI, TPU pods), once.

    Raises:
        InputError: no cluster manager, or processes that do not come together.
    """
    if jax.distributed.is_initialized():
        return
    try:
        jax.distributed.initialize(heartbeat_timeout_seconds=_HEARTBEAT_S)
    except (ValueError, RuntimeError) as error:
        raise InputError(
            f"the processes did not come together: {error}; start them by a cluster manager, or "
            "call jax.distributed.initialize in a script before jaxpe.training.train"
        ) from error


def wait_for_all() -> None:
    """Barrier of all processes, with a time limit, which JAX's collectives lack."""
    if jax.process_count() == 1:
        return
    multihost = require("orbax.checkpoint.multihost", extra="train")
    barrier = multihost.get_barrier_sync_fn()
    barrier(key=f"barrier {next(_BARRIERS)}", timeout_ms=1000 * _BARRIER_S)


def gather_values(value: Any) -> list[Any]:
    """Values of all processes, in their order, as JSON; every process must call it."""
    if jax.process_count() == 1:
        return [value]
    wait_for_all()
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = process_allgather(np.int32(len(text)))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: len(text)] = text
    rows = process_allgather(padded)
    return [json.loads(bytes(row[:size]).decode()) for row, size in zip(rows, sizes, strict=True)]


def run_on_first_process(work: Callable[[], Any]) -> None:
    """`work` in process 0, before any process goes on; its error is raised in all of them."""
    problem: Exception | None = None
    if jax.process_index() == 0:
        try:
            work()
        except (InputError, OSError) as error:
            problem = error
    message = gather_values(str(problem or ""))[0]
    if message:
        raise problem or InputError(f"process 0: {message}")


def require_equal_values(facts: Mapping[str, Any]) -> None:
    """Raise at the first value that differs between processes."""
    expected, *others = gather_values(facts)
    for process, values in enumerate(others, 1):
        if problems := differences(expected, values):
            raise InputError(
                f"{next(iter(problems.values()))}, in processes 0 and {process}; start all "
                "processes with the same arguments"
            )
