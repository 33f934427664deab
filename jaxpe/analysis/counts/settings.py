"""Settings that determine the counts of a corpus; counts of equal settings add."""

import itertools
from typing import NamedTuple

from jaxpe._core.errors import InputError, shortened
from jaxpe._core.memory import check_bytes
from jaxpe._core.options import check_range, check_seed

INT32_MAX = 2**31 - 1  # for positions and tables, beyond any memory
INT64_MAX = 2**63 - 1
_POSITION_BYTES = 100  # of a position of a document while it is counted


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
    def table_rows(self) -> int:
        """Rows of the tables of all folds, of the corpus and of the nulls."""
        return (self.folds + self.nulls * self.null_folds) * self.rows

    @property
    def widest(self) -> int:
        """Positions of the widest row, the most that a document adds to one count."""
        return 1 if self.edges is None else max(b - a for a, b in itertools.pairwise(self.edges))


def check_settings(settings: CountSettings) -> None:
    """Raise `InputError` for settings out of range, from options or from a file."""
    folds, null_folds, vocab_size = settings.folds, settings.null_folds, settings.vocab_size
    for name, least in (("length", 2), ("folds", 4), ("null_folds", 2), ("vocab_size", 0)):
        check_range(name, getattr(settings, name), least=least, most=INT32_MAX)
    check_range("nulls", settings.nulls, least=0, most=INT32_MAX)
    check_seed("seed", settings.seed)
    edges = settings.edges or (0, settings.length)
    ascending = all(a < b for a, b in itertools.pairwise(edges))
    rules = [
        # A jackknife leaves out one fold, and the others are halved.
        ("folds", folds % 2 == 0, "an even number, at least 4"),
        ("nulls", settings.nulls != 1, "0 for none, or at least 2"),
        ("null_folds", null_folds % 2 == 0 == folds % null_folds, f"an even divisor of {folds}"),
        ("exclude", all(0 <= x < vocab_size for x in settings.exclude), f"ids below {vocab_size}"),
        ("edges", ascending and (edges[0], edges[-1]) == (0, settings.length), "0 to the length"),
    ]
    for name, is_allowed, remedy in rules:
        if not is_allowed:
            value = shortened(getattr(settings, name))
            raise InputError(f"`{name}` is {value}; pass {remedy}")


def check_memory(settings: CountSettings) -> None:
    """Raise `InputError` for tables, or a batch of such long documents, that do not fit."""
    check_bytes(
        4 * settings.table_rows * settings.vocab_size + _POSITION_BYTES * settings.length,
        what=f"a count in {settings.table_rows:,} rows of tables x {settings.vocab_size:,} tokens",
        remedy="lower `nulls`, `folds`, the `length` or `bins`, or pass `max_vocab`",
    )
