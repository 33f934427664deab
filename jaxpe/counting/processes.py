"""Several processes as one run: how they find each other, and what they tell each other."""

import json
from typing import Any

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather

from jaxpe._errors import InputError

HEARTBEAT_S = 30  # a process that is silent for so long is dead, and the others stop


def start_processes(
    coordinator: str | None = None,
    *,
    processes: int | None = None,
    process: int | None = None,
    waiting_s: int = 300,
) -> None:
    """Join the processes of one run; to be called before anything else of JAX.

    Under SLURM, GKE and Open MPI nothing needs to be passed: `jax.distributed.initialize` finds
    out. Where a process dies, the others end with an error within a minute.

    Args:
        coordinator: host and port of process 0.
        processes: how many.
        process: which is this, from 0.
        waiting_s: seconds to wait for the others.

    Raises:
        InputError: some of the three are missing, out of range, or the others do not come.

    >>> start_processes("10.0.0.1:1234", processes=2, process=2)
    Traceback (most recent call last):
    jaxpe._errors.InputError: process is 2; pass a number from 0 to 1
    """
    given = (coordinator, processes, process)
    if any(value is None for value in given) and any(value is not None for value in given):
        raise InputError(
            "coordinator, processes and process go together; pass all three, such as "
            "10.0.0.1:1234, 2 and 0, or none where a cluster manager knows"
        )
    if processes is not None and processes < 1:
        raise InputError(f"processes is {processes}; pass at least 1")
    if processes is not None and process is not None and not 0 <= process < processes:
        raise InputError(f"process is {process}; pass a number from 0 to {processes - 1}")
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            initialization_timeout=waiting_s,
            heartbeat_timeout_seconds=HEARTBEAT_S,
        )
    except (ValueError, RuntimeError) as error:
        raise InputError(
            f"the processes did not come together: {error}; check that all {processes or ''} run "
            "and reach the coordinator"
        ) from error


def from_all(value: Any) -> list[Any]:
    """A plain value of each process, in their order, to all of them; they meet here."""
    if jax.process_count() == 1:
        return [value]
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = process_allgather(np.int32(len(text)))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: len(text)] = text
    rows = process_allgather(padded)
    return [json.loads(bytes(row[:size]).decode()) for row, size in zip(rows, sizes, strict=True)]
