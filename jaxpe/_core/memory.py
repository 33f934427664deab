"""Free memory and processors, and an error before an allocation that does not fit."""

import os
import sys
from pathlib import Path

from jaxpe._core.errors import InputError

_CGROUPS = (Path("/sys/fs/cgroup"),)


def check_bytes(needed: int, *, what: str, remedy: str, limit: int | None = None) -> None:
    """Raise `InputError` if an allocation needs more bytes than a limit.

    Args:
        needed: number of bytes.
        what: subject of the message.
        remedy: end of the message: what to pass instead.
        limit: most bytes; default: free memory, or no limit if that is unknown.

    >>> check_bytes(10**13, what="`dim=10000000`", remedy="pass less", limit=10**9)
    Traceback (most recent call last):
    jaxpe.InputError: `dim=10000000` needs 10,000.0 GB of memory, and 1.0 GB are free; pass less
    """
    available = available_bytes() if limit is None else limit
    if available is not None and needed > available:
        raise InputError(
            f"{what} needs {needed / 1e9:,.1f} GB of memory, and {available / 1e9:,.1f} GB are "
            f"free; {remedy}"
        )


def available_bytes() -> int | None:
    """Free memory of this host for this process, in bytes; None if unknown, as outside Linux."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with open("/proc/meminfo", encoding="ascii") as lines:
            kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        free = 1024 * kilobytes.get("MemAvailable", free // 1024)
    except (OSError, ValueError, IndexError, AttributeError):
        return None  # not Linux
    return min(free, *_cgroup_bytes(), _ulimit_bytes())


def _ulimit_bytes() -> int:
    """Bytes left under the process's limit on address space (`ulimit -v`)."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError, ValueError):
        return sys.maxsize
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(0, limit - pages * os.sysconf("SC_PAGE_SIZE"))


def _cgroup_bytes() -> list[int]:
    """Bytes left under the limits of a container (control groups, version 2)."""
    left = []
    for folder in _CGROUPS:
        try:
            limit = (folder / "memory.max").read_text(encoding="ascii").strip()
            used = int((folder / "memory.current").read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if limit != "max":
            left.append(max(0, int(limit) - used))
    return left or [sys.maxsize]


def device_bytes() -> int | None:
    """Total memory of this process's devices, in bytes; None for devices without their own."""
    import jax  # imported late, since `jaxpe rope` runs without JAX

    limits = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.local_devices()]
    return sum(limits) if all(limits) else None


def cores() -> int:
    """Processors that this process may use.

    >>> cores() >= 1
    True
    """
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
