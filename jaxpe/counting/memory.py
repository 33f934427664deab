"""Will it fit? Asked before hours are spent."""

import os

import jax

from jaxpe._errors import InputError
from jaxpe.counting.settings import CountSettings

# The counts; a second time while they are saved, or brought together at the end.
_COPIES = 2
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
    return free


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
    return (
        f"the counts need {needed / 1e9:.1f} GB of {what} and there are {there / 1e9:.1f} GB: "
        f"{tables} tables ({settings.folds} folds and {settings.nulls} nulls of "
        f"{settings.null_folds} folds) of {settings.rows:,} positions x {settings.vocab_size:,} "
        f"words x 4 bytes, twice; lower nulls (without: "
        f"{needed_bytes(settings._replace(nulls=0)) / 1e9:.1f} GB), the length or bins, "
        "the vocabulary or folds"
    )
