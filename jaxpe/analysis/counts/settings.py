"""Settings that determine the counts of a corpus; counts of equal settings add."""

import itertools
from typing import NamedTuple

import numpy as np

from jaxpe._core.errors import InputError, shortened
from jaxpe._core.options import check_range
from jaxpe.data import Tokenizer
from jaxpe.data.tokens.vocabulary import vocabulary_occurs

INT32_MAX = 2**31 - 1  # for positions and tables, beyond any memory
INT64_MAX = 2**63 - 1


class CountSettings(NamedTuple):
    """Settings of a count. Counts add where all settings are equal.

    Attributes:
        tokenizer, checksum: name of the tokenizer, and hash of its content; empty for words and
            characters, whose counts are aligned by their text.
        length: positions of a document that are read.
        edges: first position of each bin of positions, and the length; None counts every position.
        vocab_size, exclude: number of tokens; ids that are never counted.
        folds: number of folds; a hash of its content assigns each document to one.
        nulls, null_folds: corpora of rotated documents, and their folds.
        seed: random seed of the rotations.
        group_field: column or key whose value decides the fold instead.
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
        """Positions of the widest row, the most that a document adds to one count."""
        return 1 if self.edges is None else max(b - a for a, b in itertools.pairwise(self.edges))


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
    """Checked settings of a count.

    Args:
        tokenizer: tokenizer from `jaxpe.data.open_tokenizer`.
        length: positions of a document that are read.
        edges: edges of bins of positions, from `jaxpe.geometry.position_bins`. Default: every
            position is counted.
        folds: an even number, at least 4; more folds give finer intervals and take more memory.
        nulls: number of corpora of rotated documents, the null of significant dimensions; at
            least 2, or 0 for none.
        null_folds: folds of each null corpus, an even number that divides `folds`. Default: 4 or 2.
        seed: random seed of the rotations.
        group_field: column or key with the author or source. Documents of one value depend on each
            other and share a fold. Default: equal documents share a fold.

    Raises:
        InputError: a setting out of range.

    >>> from jaxpe.data import open_tokenizer
    >>> settings = count_settings(open_tokenizer("bytes"), length=32)
    >>> settings.rows, settings.vocab_size, settings.null_folds
    (32, 256, 4)
    """
    check_range("length", length, least=max(2, 1 + len(tokenizer.prefix) + len(tokenizer.suffix)))
    settings = CountSettings(
        tokenizer.name,
        "" if vocabulary_occurs(tokenizer.name) else tokenizer.checksum,
        length,
        None if edges is None else tuple(int(edge) for edge in edges),
        max(1, len(tokenizer.tokens)),  # a vocabulary that grows has none yet
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
    """Dtype of host tables: int32 if no count of so many documents can exceed it, else int64.

    >>> from jaxpe.data import open_tokenizer
    >>> dtype_of_counts(2**31, count_settings(open_tokenizer("bytes")))
    dtype('int64')
    """
    return np.dtype(np.int32 if documents * settings.widest <= INT32_MAX else np.int64)


def check_settings(settings: CountSettings) -> None:
    """Raise for settings out of range, built by hand or read from a file."""
    length, folds, null_folds = settings.length, settings.folds, settings.null_folds
    vocab_size, edges = settings.vocab_size, settings.edges or ()
    inside = all(0 <= token < vocab_size for token in settings.exclude)
    ascending = all(a < b for a, b in itertools.pairwise(edges))
    divides = null_folds >= 2 and null_folds % 2 == 0 == folds % null_folds
    rules = [
        (name, abs(getattr(settings, name)) <= INT32_MAX, f"at most {INT32_MAX:,}")
        for name in ("length", "folds", "nulls", "null_folds", "vocab_size")
    ] + [
        ("length", length >= 2, "at least 2"),
        # A jackknife leaves out one fold, and the others are halved.
        ("folds", folds >= 4 and folds % 2 == 0, "an even number, at least 4"),
        ("nulls", settings.nulls == 0 or settings.nulls >= 2, "0 for none, or at least 2"),
        ("null_folds", divides, f"an even divisor of folds, which is {folds}"),
        ("seed", 0 <= settings.seed < 2**32, "a number in [0, 2**32)"),
        ("vocab_size", vocab_size >= 1, "at least 1"),
        ("exclude", inside, f"ids in [0, {vocab_size})"),
        (
            "edges",
            settings.edges is None or (ascending and edges[:1] + edges[-1:] == (0, length)),
            f"0, ascending to {length}",
        ),
    ]
    for name, is_allowed, remedy in rules:
        if not is_allowed:
            value = shortened(getattr(settings, name))
            raise InputError(f"`{name}` is {value}; pass {remedy}")
