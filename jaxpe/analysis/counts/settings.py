"""Settings that determine the counts of a corpus; counts of equal settings add."""

import itertools
import zlib
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.data import Tokenizer

CELL_BYTES = 4  # int32
INT32_MAX = 2**31 - 1  # of a count on a device; of positions and tables, beyond any memory
INT64_MAX = 2**63 - 1  # of a count on the host


class CountSettings(NamedTuple):
    """Settings of a count. Counts add where all settings are equal.

    Attributes:
        tokenizer, checksum: name and content of the tokenizer.
        length: positions of a document that are read.
        edges: first position of each bin of positions, and the length; None counts every position.
        vocab_size, exclude: number of tokens of the tokenizer; ids that are never counted.
        folds: number of folds, in which a hash of the content puts each document.
        nulls, null_folds: corpora with positions shuffled inside documents, and their folds.
        seed: random seed of the shuffles.
        group_field: the column or key whose value decides the fold instead, where there is one.
    """

    tokenizer: str
    checksum: str
    length: int
    edges: tuple[int, ...] | None
    vocab_size: int
    exclude: tuple[int, ...]
    folds: int
    nulls: int
    null_folds: int
    seed: int
    group_field: str | None = None

    @property
    def rows(self) -> int:
        """Rows of the table: positions, or bins of them."""
        return self.length if self.edges is None else len(self.edges) - 1

    @property
    def widest(self) -> int:
        """Positions of the widest row: a document adds at most so many to one count."""
        return 1 if self.edges is None else max(b - a for a, b in itertools.pairwise(self.edges))

    @property
    def bytes(self) -> int:
        """Memory of the counts, int32."""
        tables = self.folds + self.nulls * self.null_folds
        return CELL_BYTES * tables * self.rows * self.vocab_size


def count_settings(
    tokenizer: Tokenizer,
    *,
    length: int = 128,
    edges: tuple[int, ...] | None = None,
    folds: int = 16,
    nulls: int = 20,
    null_folds: int | None = None,
    seed: int = 0,
    group_field: str | None = None,
) -> CountSettings:
    """Settings that were looked at.

    Args:
        tokenizer: tokenizer from `jaxpe.data.open_tokenizer`.
        length: positions of a document that are read.
        edges: edges of bins of positions, from `jaxpe.geometry.position_bins`; all positions
            without.
        folds: an even number, at least 4; more make finer intervals and take more memory.
        nulls: corpora with shuffled positions, against which dimensions are judged; at least 2,
            or 0 for none.
        null_folds: an even number that divides folds: null corpora are halved in so many parts.
            Default: 4 or 2.
        seed: random seed of the shuffles.
        group_field: column or key with the author, the source or whatever documents share that
            are not independent of each other; those of one value share a fold. Equal documents do
            when absent.

    Raises:
        InputError: a setting out of range.

    >>> from jaxpe.data import open_tokenizer
    >>> settings = count_settings(open_tokenizer("bytes"), length=32)
    >>> settings.rows, settings.vocab_size, settings.null_folds
    (32, 256, 4)
    """
    least = max(2, 1 + len(tokenizer.prefix) + len(tokenizer.suffix))
    _check(length >= least, f"`length` is {shortened(length)}", f"at least {least}")
    settings = CountSettings(
        tokenizer.name,
        tokenizer.checksum,
        length,
        None if edges is None else tuple(int(edge) for edge in edges),
        len(tokenizer.tokens),
        tokenizer.exclude,
        folds,
        nulls,
        (2 if folds % 4 else 4) if null_folds is None else null_folds,
        seed,
        group_field,
    )
    check_settings(settings)
    return settings


def dtype_of_counts(documents: int, settings: CountSettings) -> np.dtype:
    """Dtype of host tables: int32 where no count of so many documents exceeds it, else int64.

    >>> from jaxpe.data import open_tokenizer
    >>> dtype_of_counts(2**31, count_settings(open_tokenizer("bytes")))
    dtype('int64')
    """
    return np.dtype(np.int32 if documents * settings.widest <= INT32_MAX else np.int64)


def check_settings(settings: CountSettings) -> None:
    """Refuse settings out of range, made by hand or read from a file."""
    length, edges, folds, nulls = settings.length, settings.edges, settings.folds, settings.nulls
    for name in ("length", "folds", "nulls", "null_folds", "vocab_size"):
        value = getattr(settings, name)
        _check(abs(value) <= INT32_MAX, f"`{name}` is {shortened(value)}", f"at most {INT32_MAX:,}")
    _check(length >= 2, f"`length` is {length}", "at least 2")
    # A jackknife leaves out one fold, and the others are halved.
    _check(folds >= 4 and folds % 2 == 0, f"`folds` is {folds}", "an even number, at least 4")
    _check(nulls == 0 or nulls >= 2, f"`nulls` is {nulls}", "0 for none, or at least 2")
    _check(
        settings.null_folds >= 2 and settings.null_folds % 2 == 0 == folds % settings.null_folds,
        f"`null_folds` is {settings.null_folds}",
        f"an even divisor of folds, which is {folds}",
    )
    _check(
        0 <= settings.seed < 2**32,
        f"`seed` is {shortened(settings.seed)}",
        "a number in [0, 2**32)",
    )
    _check(settings.vocab_size >= 1, f"`vocab_size` is {settings.vocab_size}", "at least 1")
    inside = all(0 <= token < settings.vocab_size for token in settings.exclude)
    _check(
        inside, f"`exclude` is {shortened(settings.exclude)}", f"ids in [0, {settings.vocab_size})"
    )
    if edges is not None:
        ascend = all(a < b for a, b in itertools.pairwise(edges))
        ends = (edges[0], edges[-1]) if edges else None
        _check(
            ascend and ends == (0, length),
            f"`edges` are {shortened(edges)}",
            f"0, ascending to {length}",
        )


def _check(fine: bool, found: str, wanted: str) -> None:
    if not fine:
        raise InputError(f"{found}; pass {wanted}")


def differences(one: CountSettings, other: CountSettings) -> list[str]:
    """The settings that two counts do not share, in words."""
    return [
        f"{name} is {shortened(a)} and {shortened(b)}"
        for name, a, b in zip(CountSettings._fields, one, other, strict=True)
        if a != b
    ]


_OPTIONS = {
    "tokenizer": ("tokenizer",),
    "checksum": ("tokenizer",),
    "vocab_size": ("tokenizer",),
    "exclude": ("special",),
    "edges": ("bins", "spacing"),
    "null_folds": ("folds",),
}


def differing_options(one: CountSettings, other: CountSettings) -> list[str]:
    """The options of a count that decide the settings which two counts do not share."""
    named = zip(CountSettings._fields, one, other, strict=True)
    differ = [name for name, a, b in named if a != b]
    return [*dict.fromkeys(option for name in differ for option in _OPTIONS.get(name, (name,)))]


def shortened(value: Any) -> str:
    """A value in an error message: its beginning, and what tells it from others."""
    text = str(value) if str(value).isprintable() else ascii(value)
    short = f"{text[:40]}... (CRC-32 {zlib.crc32(text.encode(errors='surrogatepass')):08x})"
    return text if len(text) <= 60 else short
