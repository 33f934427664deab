"""The options of `jaxpe report`, and their checks."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from jaxpe._core.errors import InputError
from jaxpe._core.memory import check_bytes
from jaxpe._core.options import (
    DEFAULT_SPLITS,
    EmptyPolicy,
    Source,
    check_range,
    check_ranges,
    option,
)

DEFAULT_DIM = 64
DEFAULT_EMPTY: EmptyPolicy = "drop"
MAX_LENGTH = 4096  # matrices of positions are dense
MAX_SPLITS = 10_000  # more splits only take time
_VECTORS = 16  # tables [n, dim] in memory at once: random encodings and their gradients
# Options that apply to stored counts.
_BESIDE_COUNTS = {"counts", "dim", "empty", "encodings", "splits", "seed"}


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(Source):
    """Measure what position means in a corpus, and write a report on it.

    Attributes:
        counts: folder that `jaxpe count` or `jaxpe merge` wrote, in place of a source; it brings
            tokenizer and length.
        align: number of tokens before the site at which the documents are aligned, or "middle". The
            token at the site is position 0, those before it are −1, −2, ...; of longer documents
            the `length` positions around the site are read.
        dim: width at which encodings are compared; even, since frequencies come in pairs.
        empty: treatment of positions without tokens; "drop" when absent. Needed when the length
            exceeds every document.
        encodings: further encodings to compare, as module:function.
        special: add [CLS] and [SEP] and leave them out of the counts, as BERT does.
        splits: number of halvings of the corpus, over which the geometry of position is averaged.
        cohort: leave out documents that end before the last position, so that all positions are of
            the same documents.
        limit: largest number of documents; of more, a random sample by `seed` is read.
        group_field: column or key with the author, source or whatever documents share that are not
            independent of each other.
    """

    counts: Path | None = None
    align: int | Literal["middle"] | None = None
    dim: int = option(DEFAULT_DIM, least=2)
    empty: EmptyPolicy | None = None
    encodings: tuple[str, ...] = ()
    special: bool = False
    splits: int = option(DEFAULT_SPLITS, least=1, most=MAX_SPLITS)
    cohort: bool = False
    limit: int | None = option(None, least=2)
    group_field: str | None = None


def check_options(options: CorpusOptions) -> None:
    """Raise for options that cannot work, before any computation."""
    from jaxpe.analysis.corpus.vectors import scored_entries  # late: a help needs no JAX
    from jaxpe.data.corpora.published import check_data_dir

    check_numbers(options, length=options.length)
    scored_entries(options.encodings)
    if options.counts is None:
        check_data_dir(options.data_dir, options.source)
        return
    for field in fields(CorpusOptions):  # a command adds its own, such as `out`
        if field.name not in _BESIDE_COUNTS and getattr(options, field.name) != field.default:
            raise InputError(f"`counts` fixes what was read; leave `{field.name}` out")


def check_numbers(options: CorpusOptions, *, length: int | None) -> None:
    """Raise `InputError` for numbers out of range, at this number of positions."""
    dim = options.dim
    check_range("length", length, least=1, most=MAX_LENGTH)  # also that of stored counts
    check_ranges(options)
    if dim % 2:
        raise InputError(f"`dim` must be even, not {dim}: try `dim={DEFAULT_DIM}`")
    remedy = f"pass a smaller one, such as `dim={DEFAULT_DIM}`"
    check_bytes(4 * _VECTORS * (length or 2) * dim, what=f"`dim={dim}`", remedy=remedy)
