"""Will it fit? Asked before hours are spent."""

from jaxpe._errors import InputError
from jaxpe._memory import available_bytes, device_bytes
from jaxpe.counting.settings import CountSettings

# The counts, and again while they are saved, and in parts when brought together: 2.7 times at most
# was measured on counts of 0.5 GB.
_COPIES = 3
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
