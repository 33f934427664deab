"""Will it fit? Asked before hours are spent."""

import os
import sys
from pathlib import Path

import jax

from jaxpe._errors import InputError
from jaxpe.counting.settings import CountSettings

# The counts, and again while they are saved, and in parts when brought together: 2.7 times at most
# was measured on counts of 0.5 GB.
_COPIES = 3
_GROUPS = (Path("/sys/fs/cgroup"),)
_RUNTIME = 2**29  # Python, JAX, batches on their way


def needed_bytes(settings: CountSettings) -> int:
    """Memory that a count will take on this host.

    >>> from jaxpe.counting import count_settings
    >>> from jaxpe.data import open_tokenizer
    >>> settings = count_settings(open_tokenizer("bytes"), length=4096, nulls=0)
    >>> f"{needed_bytes(settings) / 1e9:.1f} GB"
    '0.7 GB'
    """
    return _COPIES * settings.bytes + _RUNTIME


def available_bytes() -> int | None:
    """Memory that is free on this host, and on its accelerators where they have their own."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with open("/proc/meminfo", encoding="ascii") as lines:
            kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        free = 1024 * kilobytes.get("MemAvailable", free // 1024)
    except (OSError, ValueError, IndexError, AttributeError):
        return None  # not Linux
    return min(free, *_left_by_groups())


def _left_by_groups() -> list[int]:
    """What the limits of a container (control groups, version 2) leave."""
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
    limits = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.local_devices()]
    return sum(limits) if all(limits) else None


def check_memory(settings: CountSettings, *, limit: int | None = None) -> None:
    """Refuse counts that do not fit, with the number and what to lower.

    Args:
        settings: of the count.
        limit: bytes; default: what is free.

    Raises:
        InputError: more is needed than there is.

    >>> from jaxpe.counting import count_settings
    >>> from jaxpe.data import open_tokenizer
    >>> check_memory(count_settings(open_tokenizer("bytes")), limit=10**9)
    """
    free = available_bytes() if limit is None else limit
    checks = [(needed_bytes(settings), free, "memory")]
    checks += [(settings.bytes, device_bytes(), "memory of the devices")]
    for needed, there, what in checks:
        if there is not None and needed > there:
            raise InputError(_refusal(settings, needed, there, what))


def _refusal(settings: CountSettings, needed: int, there: int, what: str) -> str:
    tables = settings.folds + settings.nulls * settings.null_folds
    without = needed_bytes(settings._replace(nulls=0))
    nulls = f"nulls (without: {without / 1e9:.1f} GB), " if settings.nulls else ""
    return (
        f"the counts need {needed / 1e9:.1f} GB of {what} and there are {there / 1e9:.1f} GB: "
        f"{tables} tables ({settings.folds} folds and {settings.nulls} nulls of "
        f"{settings.null_folds} folds) of {settings.rows:,} positions x {settings.vocab_size:,} "
        f"words x 4 bytes, {_COPIES} times; lower {nulls}the length or bins, the vocabulary or "
        "folds"
    )
