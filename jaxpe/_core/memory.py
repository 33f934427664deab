"""Memory and processors of this machine, and an error before an allocation that does not fit."""

import os
import sys
from pathlib import Path

from jaxpe._core.errors import InputError

_GROUPS = (Path("/sys/fs/cgroup"),)


def check_bytes(needed: int, *, what: str, remedy: str, limit: int | None = None) -> None:
    """Refuse what needs more bytes than a limit: what is free, or none where that is unknown.

    `what` is the subject of the message, and `remedy`, what to pass instead, its end.

    >>> check_bytes(10**13, what="`dim=10000000`", remedy="pass less", limit=10**9)
    Traceback (most recent call last):
    jaxpe.InputError: `dim=10000000` needs 10,000.0 GB of memory and there are 1.0 GB; pass less
    """
    there = available_bytes() if limit is None else limit
    if there is not None and needed > there:
        raise InputError(
            f"{what} needs {needed / 1e9:,.1f} GB of memory and there are {there / 1e9:,.1f} GB; "
            f"{remedy}"
        )


def available_bytes() -> int | None:
    """Memory that is free on this host, for this process; None where that is unknown."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with open("/proc/meminfo", encoding="ascii") as lines:
            kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        free = 1024 * kilobytes.get("MemAvailable", free // 1024)
    except (OSError, ValueError, IndexError, AttributeError):
        return None  # not Linux
    return min(free, *_left_by_groups(), _left_by_ulimit())


def _left_by_ulimit() -> int:
    """Bytes left by the limit on addresses (`ulimit -v`) of this process; those in use count."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError, ValueError):
        return sys.maxsize
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(0, limit - pages * os.sysconf("SC_PAGE_SIZE"))


def _left_by_groups() -> list[int]:
    """Bytes left by the limits of a container (control groups, version 2)."""
    left = []
    for folder in _GROUPS:
        try:
            limit = (folder / "memory.max").read_text(encoding="ascii").strip()
            used = int((folder / "memory.current").read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if limit != "max":
            left.append(max(0, int(limit) - used))
    return left or [sys.maxsize]


def device_bytes() -> int | None:
    """Memory of the accelerators of this process together; None for those without their own."""
    import jax  # here, since `jaxpe rope` needs none

    limits = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.local_devices()]
    return sum(limits) if all(limits) else None


def cores() -> int:
    """Processors that this process may use.

    >>> cores() >= 1
    True
    """
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
