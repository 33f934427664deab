"""Several processes as one run: they join, exchange values and end together."""

import contextlib
import itertools
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather

from jaxpe._core.errors import InputError, LostProcessError, differences, require, shortened
from jaxpe._core.options import check_range

HEARTBEAT_S = 30  # seconds of silence after which a process counts as dead and the others stop
BARRIER_S = 7200  # seconds to wait for live processes, which may be reading a large shard
SHUTDOWN_S = 10  # seconds to wait for others at the end
_LOST = "another process ended, hangs or cannot be reached"
_GO_ON = "see the messages of the others, and start all processes again to resume"
# Names in the errors of collectives and of the service that connects processes.
_OF_OTHERS = re.compile("Gloo|NCCL|UNAVAILABLE|DEADLINE_EXCEEDED|oordination")
_BARRIERS = itertools.count()
Result = TypeVar("Result")


def start_processes(
    coordinator: str | None = None,
    *,
    processes: int | None = None,
    process: int | None = None,
    waiting_s: int = 300,
) -> None:
    """Join the processes of one run, before any other call of JAX.

    Under SLURM, GKE and Open MPI no argument is needed: `jax.distributed.initialize` detects them.
    If a process ends or does not start, JAX ends the others within a minute.

    Args:
        coordinator: host and port of process 0.
        processes: number of processes.
        process: number of this process, from 0.
        waiting_s: seconds to wait for the others.

    Raises:
        InputError: one of the three is missing or out of range.

    >>> start_processes("10.0.0.1:1234", processes=2, process=2)
    Traceback (most recent call last):
    jaxpe.InputError: `process` is 2; pass at most 1
    """
    if len({value is None for value in (coordinator, processes, process)}) > 1:
        raise InputError(
            "`coordinator`, `processes` and `process` go together; pass all three, such as "
            "10.0.0.1:1234, 2 and 0, or none under a cluster manager"
        )
    port = re.fullmatch(r"[^\s]+:(\d{1,5})", coordinator or "a:1")
    if port is None or not 0 < int(port[1]) < 2**16:
        raise InputError(f"`coordinator` is {shortened(coordinator)}; pass host:port, 10.0.0.1:123")
    check_range("processes", processes, least=1)
    check_range("process", process, least=0, most=(processes or 1) - 1)
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            initialization_timeout=waiting_s,
            heartbeat_timeout_seconds=HEARTBEAT_S,
            shutdown_timeout_seconds=SHUTDOWN_S,
        )
    except (ValueError, RuntimeError) as error:
        raise InputError(
            f"the processes did not come together: {error}; check that all {processes or ''} run "
            "and reach the coordinator"
        ) from error


def join_processes(options: Any) -> None:
    """`start_processes` where options of a command ask for it, once."""
    if has_processes(options) and not jax.distributed.is_initialized():
        start_processes(options.coordinator, processes=options.processes, process=options.process)


def has_processes(options: Any) -> bool:
    """Whether options of a command make this one of several processes."""
    by_hand = (options.coordinator, options.processes, options.process)
    return options.distributed or any(value is not None for value in by_hand)


def gather_values(value: Any) -> list[Any]:
    """Values of all processes, in their order, as JSON; every process must call it."""
    if jax.process_count() == 1:
        return [value]
    _barrier(f"barrier {next(_BARRIERS)}")
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = process_allgather(np.int32(len(text)))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: len(text)] = text
    rows = process_allgather(padded)
    return [json.loads(bytes(row[:size]).decode()) for row, size in zip(rows, sizes, strict=True)]


def _barrier(name: str) -> None:
    """Barrier with a time limit, which JAX's collectives lack."""
    multihost = require("orbax.checkpoint.multihost", extra="data")
    try:
        multihost.get_barrier_sync_fn()(key=name, timeout_ms=1000 * BARRIER_S)
    except jax.errors.JaxRuntimeError as error:
        raise LostProcessError(
            f"process {jax.process_index()} waited for another, which ended or did not start "
            f"within {BARRIER_S:,} s; {_GO_ON}"
        ) from error


def run_on_all_processes(work: Callable[[], Result]) -> Result:
    """Result of `work` in this process; an error in any process is raised in all of them."""
    if jax.process_count() == 1:
        return work()
    result, problem = None, ""
    try:
        result = work()
    except (InputError, ImportError, OSError) as error:
        problem = str(error) or repr(error)
    for process, message in enumerate(gather_values(problem)):
        if message:
            raise InputError(f"process {process}: {message}")
    return cast(Result, result)


def run_on_first_process(work: Callable[[], Any]) -> None:
    """`work` in process 0, before any process goes on; an error is raised in all of them."""
    run_on_all_processes(lambda: None if jax.process_index() else work())


def require_equal_values(facts: Mapping[str, Any]) -> None:
    """Raise at the first value that differs between processes."""
    expected, *others = gather_values(facts)
    for process, values in enumerate(others, 1):
        if problems := differences(expected, values):
            raise InputError(
                f"{next(iter(problems.values()))}, in processes 0 and {process}; start all "
                "processes with the same arguments"
            )


def require_common_folder(directory: Path) -> None:
    """Raise if a process does not see the folder that process 0 writes into."""
    if jax.process_count() == 1:
        return
    mark = directory / f".seen-{gather_values(secrets.token_hex(8))[0]}"
    run_on_first_process(mark.touch)
    visible = gather_values(mark.exists())
    if jax.process_index() == 0:
        mark.unlink(missing_ok=True)
    if not all(visible):
        raise InputError(
            f"{directory} of process {visible.index(False)} is not the folder of process 0; pass a "
            "folder that all processes see"
        )


@contextlib.contextmanager
def one_line_process_errors() -> Iterator[None]:
    """Context that raises `InputError` if another process ended, hangs or cannot be reached.

    The loss shows first in a joint operation, such as a collective or a save. JAX itself ends a
    process whose coordinator is gone, by `abort`.

    >>> with one_line_process_errors():  # doctest: +SKIP
    ...     start_processes("10.0.0.1:1234", processes=2, process=0)
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # InputError, and some of compiling
        reason = (str(error.__cause__ or error).splitlines() or [""])[0]
        if jax.process_count() == 1 or not _OF_OTHERS.search(reason):
            raise
        raise LostProcessError(f"{_LOST} ({reason:.200}); {_GO_ON}") from error
