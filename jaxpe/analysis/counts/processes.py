"""Several processes as one run: how they find each other, and what they tell each other."""

import contextlib
import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather

from jaxpe._core.errors import InputError, require
from jaxpe.analysis.counts.settings import shortened

HEARTBEAT_S = 30  # a process that is silent for so long is dead, and the others stop
PATIENCE_S = 7200  # that one waits for others that live: a large shard may be read through first
FAREWELL_S = 10  # that one waits for others at its end
_LOST = "another process ended, hangs or cannot be reached"
_GO_ON = "see the messages of the others, and start all processes again to resume"
# Names in the errors of collectives and of the service that connects processes.
_OF_OTHERS = re.compile("Gloo|NCCL|UNAVAILABLE|DEADLINE_EXCEEDED|oordination")
_MEETINGS = itertools.count()
Result = TypeVar("Result")


def start_processes(
    coordinator: str | None = None,
    *,
    processes: int | None = None,
    process: int | None = None,
    waiting_s: int = 300,
) -> None:
    """Join the processes of one run; to be called before anything else of JAX.

    Under SLURM, GKE and Open MPI nothing needs to be passed: `jax.distributed.initialize` finds
    out. Where a process ends or does not start, JAX ends the others within a minute.

    Args:
        coordinator: host and port of process 0.
        processes: number of processes.
        process: number of this process, from 0.
        waiting_s: seconds to wait for the others.

    Raises:
        InputError: some of the three are missing or out of range.

    >>> start_processes("10.0.0.1:1234", processes=2, process=2)
    Traceback (most recent call last):
    jaxpe.InputError: `process` is 2; pass a number from 0 to 1
    """
    given = (coordinator, processes, process)
    if any(value is None for value in given) and any(value is not None for value in given):
        raise InputError(
            "`coordinator`, `processes` and `process` go together; pass all three, such as "
            "10.0.0.1:1234, 2 and 0, or none under a cluster manager"
        )
    port = re.fullmatch(r"[^\s]+:(\d{1,5})", coordinator or "a:1")
    if port is None or not 0 < int(port[1]) < 2**16:
        raise InputError(
            f"`coordinator` is {shortened(coordinator)}; pass host:port, 10.0.0.1:1234"
        )
    if processes is not None and processes < 1:
        raise InputError(f"`processes` is {processes}; pass at least 1")
    if processes is not None and process is not None and not 0 <= process < processes:
        raise InputError(f"`process` is {process}; pass a number from 0 to {processes - 1}")
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            initialization_timeout=waiting_s,
            heartbeat_timeout_seconds=HEARTBEAT_S,
            shutdown_timeout_seconds=FAREWELL_S,
        )
    except (ValueError, RuntimeError) as error:
        raise InputError(
            f"the processes did not come together: {error}; check that all {processes or ''} run "
            "and reach the coordinator"
        ) from error


def gather_values(value: Any) -> list[Any]:
    """A plain value of each process, in their order, to all of them; they meet here."""
    if jax.process_count() == 1:
        return [value]
    _meet(f"meeting {next(_MEETINGS)}")
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = process_allgather(np.int32(len(text)))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: len(text)] = text
    rows = process_allgather(padded)
    return [json.loads(bytes(row[:size]).decode()) for row, size in zip(rows, sizes, strict=True)]


def _meet(name: str) -> None:
    """Wait for the others, which collectives of JAX do without end."""
    multihost = require("orbax.checkpoint.multihost", extra="data")
    try:
        multihost.get_barrier_sync_fn()(key=name, timeout_ms=1000 * PATIENCE_S)
    except jax.errors.JaxRuntimeError as error:
        raise InputError(
            f"process {jax.process_index()} waited for another, which ended or did not start "
            f"within {PATIENCE_S:,} s; {_GO_ON}"
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
    for process, found in enumerate(gather_values(problem)):
        if found:
            raise InputError(f"process {process}: {found}")
    return cast(Result, result)


def require_equal_values(facts: Mapping[str, Any]) -> None:
    """Raise at the first fact that differs between processes, and of lists at its first item."""
    # Most often nothing differs, so little is sent.
    checksums = gather_values([zlib.crc32(_plain(value)) for value in facts.values()])
    for name, *found in zip(facts, *checksums, strict=True):
        if len(set(found)) > 1:
            first, *others = gather_values(facts[name])
            process, other = next((k, o) for k, o in enumerate(others, 1) if o != first)
            raise InputError(
                f"{_difference(name, process, first, other)}; start all processes with the "
                "same arguments"
            )


def _plain(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _difference(name: str, process: int, first: Any, other: Any) -> str:
    if isinstance(first, list) and isinstance(other, list):
        if len(first) != len(other):
            return f"{name}: process 0 has {len(first):,} and process {process} {len(other):,}"
        index = next(i for i, (a, b) in enumerate(zip(first, other, strict=True)) if a != b)
        name, first, other = f"{name}[{index}]", first[index], other[index]
    return f"{name} is {shortened(first)} in process 0 and {shortened(other)} in process {process}"


@contextlib.contextmanager
def one_line_process_errors() -> Iterator[None]:
    """Raise `InputError` where another process ended, hangs or cannot be reached.

    It shows first in whatever was under way with it, such as a collective or a save. JAX itself
    ends a process whose coordinator is gone, by `abort`.

    >>> with one_line_process_errors():  # doctest: +SKIP
    ...     start_processes("10.0.0.1:1234", processes=2, process=0)
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # InputError, and some of compiling
        reason = (str(error.__cause__ or error).splitlines() or [""])[0]
        if not _OF_OTHERS.search(reason):
            raise
        raise InputError(f"{_LOST} ({reason:.200}); {_GO_ON}") from error
