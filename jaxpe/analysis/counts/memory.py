"""Memory check before a count begins."""

from jaxpe._core.memory import check_bytes, device_bytes
from jaxpe.analysis.counts.settings import CELL_BYTES, CountSettings

# The counts, a copy while they are saved, and parts that are added at the end. At most 2.7 copies
# were measured with counts of 0.5 GB.
_COPIES = 3
_RUNTIME = 2**29  # Python and JAX
# Bytes of a position of a document, in queued batches and while it is counted and rotated.
_POSITION = 72


def needed_bytes(settings: CountSettings, *, batch_size: int = 4096) -> int:
    """Memory of a count on this host, in bytes.

    >>> from jaxpe.analysis.counts import count_settings
    >>> from jaxpe.data import open_tokenizer
    >>> settings = count_settings(open_tokenizer("bytes"), length=4096, nulls=0)
    >>> f"{needed_bytes(settings) / 1e9:.1f} GB"
    '1.9 GB'
    """
    return _COPIES * settings.bytes + _POSITION * batch_size * settings.length + _RUNTIME


def check_memory(
    settings: CountSettings, *, batch_size: int = 4096, limit: int | None = None
) -> None:
    """Raise for counts that do not fit in memory.

    Args:
        settings: settings of the count.
        batch_size: documents of a step.
        limit: bytes; free memory by default.

    Raises:
        InputError: too little memory.

    >>> from jaxpe.analysis.counts import count_settings
    >>> from jaxpe.data import open_tokenizer
    >>> check_memory(count_settings(open_tokenizer("bytes")), limit=10**9)
    """
    tables = settings.folds + settings.nulls * settings.null_folds
    without = needed_bytes(settings._replace(nulls=0), batch_size=batch_size)
    nulls = f"nulls (without: {without / 1e9:.1f} GB), " if settings.nulls else ""
    what = (
        f"a count in {tables} tables ({settings.folds} folds, {settings.nulls} nulls of "
        f"{settings.null_folds} folds) of {settings.rows:,} positions x {settings.vocab_size:,} "
        f"words x {CELL_BYTES} bytes, {_COPIES} times, and in batches of {batch_size:,} documents "
        f"of {settings.length:,} positions,"
    )
    remedy = f"lower {nulls}the length or bins, the vocabulary, folds or the batch size"
    check_bytes(
        needed_bytes(settings, batch_size=batch_size), what=what, remedy=remedy, limit=limit
    )
    if (devices := device_bytes()) is not None:
        check_bytes(settings.bytes, what=f"on the devices, {what}", remedy=remedy, limit=devices)
