"""The sum of the counts of disjoint sets of documents, and their tables over one vocabulary."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from jaxtyping import Int

from jaxpe._core.errors import InputError, differences, shortened
from jaxpe._core.files import locked_folder
from jaxpe._core.memory import check_bytes
from jaxpe._core.options import check_range
from jaxpe.analysis.counts.cells import STRIDE
from jaxpe.analysis.counts.settings import INT64_MAX, CountSettings, dtype_of_counts
from jaxpe.analysis.counts.stored import (
    CountedShard,
    CountPart,
    StoredCounts,
    counts_file,
    is_counted,
    part_of_counts,
    read_part,
    write_counts,
)
from jaxpe.data.tokens.vocabulary import UNKNOWN, sorted_vocabulary, vocabulary_occurs

Read = Callable[[], CountPart]


def read_counts(directory: str | os.PathLike[str]) -> StoredCounts:
    """Counts that `count`, `merge` or `write_counts` wrote.

    Raises:
        InputError: a folder without counts, or counts that are damaged, of another version, or too
            large for memory.

    >>> import tempfile
    >>> read_counts(tempfile.mkdtemp())
    Traceback (most recent call last):
    jaxpe.InputError: .../counts.npz cannot be read (...); pass a folder ...
    """
    return sum_counts([partial(read_part, counts_file(directory))], names=[str(directory)])


def merge(
    folders: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    weights: Sequence[int] = (),
) -> StoredCounts:
    """Add counts of different documents, such as from several machines, and write the sum.

    Args:
        folders: folders that `count` wrote, all with the same tokenizer and settings; vocabularies
            of words and characters may differ. Their order does not change a byte of the sum.
        out: folder for their sum.
        weights: number of times that documents of each folder count, for a mixture; once when
            absent. A document that counts several times stays in its fold, so halves stay
            independent.

    Raises:
        InputError: a folder without counts, counts that do not add (as `merge_counts`), or an `out`
            that holds counts.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from jaxpe.analysis.counts import CountOptions, count
    >>> folder, parts = Path(tempfile.mkdtemp()), ("a", "b")
    >>> for name in parts:
    ...     _ = (folder / f"{name}.txt").write_text(f"to be {name}\\n")
    ...     source = {"sources": (str(folder / f"{name}.txt"),), "tokenizer": "bytes"}
    ...     _ = count(CountOptions(**source, length=8, folds=4, nulls=0), folder / name)
    >>> merge([folder / name for name in parts], folder / "both").documents
    2
    """
    # Each folder is read twice, and one at a time, so memory holds the sum and one of them.
    reads = [partial(read_part, counts_file(folder)) for folder in folders]
    total = sum_counts(reads, names=[*map(str, folders)], weights=_checked(weights, folders))
    with locked_folder(out):
        if is_counted(out):
            raise InputError(f"{out} holds counts already; pass another folder")
        write_counts(total, out)
    return total


def merge_counts(
    parts: Sequence[StoredCounts], *, names: Sequence[str] = (), weights: Sequence[int] = ()
) -> StoredCounts:
    """Sum of the counts of disjoint sets of documents.

    Vocabularies of words and of characters may differ: tables are aligned by the text of the
    tokens, and the sum has all tokens, sorted. So the order of merging does not matter, and the sum
    equals one count of all documents.

    Args:
        parts: counts of equal settings.
        names: names of the counts in error messages.
        weights: number of times that the documents of each part count, at least 1. Default: once.

    Raises:
        InputError: different tokenizers or settings, a shard that two parts counted, tokens that
            one part counted as `[UNK]` and another may have, or more documents than int64 holds.

    >>> merge_counts([read_counts("a"), read_counts("b")]).documents  # doctest: +SKIP
    2
    """
    reads = [partial(part_of_counts, part) for part in parts]
    names = names or [f"part {number}" for number in range(len(parts))]
    return sum_counts(reads, names=names, weights=_checked(weights, parts))


def _checked(weights: Sequence[int], parts: Sequence[object]) -> Sequence[int]:
    if len(parts) < 2:
        raise InputError(f"{len(parts)} counts; pass at least two to merge")
    if weights and (len(weights) != len(parts) or min(weights) < 1):
        raise InputError(
            f"`weights` are {shortened(tuple(weights))}; pass {len(parts)} whole numbers, at least "
            "1"
        )
    return weights


def sum_counts(
    reads: Sequence[Read],
    *,
    names: Sequence[str],
    weights: Sequence[int] = (),
    max_vocab: int | None = None,
) -> StoredCounts:
    """Add counts: the sum, of shards and of folders.

    Args:
        reads: functions that read each part; each is called twice, so that memory holds one part.
        names, weights: arguments of `merge_counts`.
        max_vocab: largest vocabulary of words; rarer words are added up as `[UNK]`.

    Raises:
        InputError: as `merge_counts`; or tables that do not fit into memory.
    """
    weights = weights or (1,) * len(names)
    total = _summed_header(reads, names, weights, max_vocab)
    settings, vocab_size = total.settings, len(total.tokens)
    dtype, folds = dtype_of_counts(total.documents, settings), settings.folds
    rows = (folds + settings.nulls * settings.null_folds) * settings.rows
    check_bytes(
        rows * vocab_size * dtype.itemsize,
        what=f"the sum of counts in tables of {rows:,} rows x {vocab_size:,} tokens",
        remedy="lower `nulls`, `folds`, the `length` or `bins`, or cut the vocabulary by "
        "`max_vocab`",
    )
    tables = np.zeros((rows, vocab_size), dtype)
    columns = {token: column for column, token in enumerate(total.tokens)}
    for read, name, weight in zip(reads, names, weights, strict=True):
        part, (numbers, counts) = read()
        if max_vocab is None:
            _refuse_lost(part, name, columns, counts[numbers % STRIDE == len(part.tokens) - 1])
        row, token = np.divmod(numbers, STRIDE)
        if part.tokens != total.tokens:
            column = [columns.get(x, vocab_size - 1) for x in part.tokens]  # [UNK] is the last
            token = np.array(column, np.int64)[token]
        np.add.at(tables, (row, token), (weight * counts).astype(dtype))
    table, nulls = np.split(tables, [folds * settings.rows])
    shape = (settings.rows, vocab_size)
    return total._replace(
        table=table.reshape(folds, *shape),
        nulls=nulls.reshape(settings.nulls, settings.null_folds, *shape),
    )


def _summed_header(
    reads: Sequence[Read], names: Sequence[str], weights: Sequence[int], max_vocab: int | None
) -> StoredCounts:
    """The sum without its tables."""
    first, documents, fields = None, 0, set()
    occurrences: Counter[str] = Counter()
    shards: list[CountedShard] = []
    counted: dict[str, tuple[CountedShard, str]] = {}
    choices = {}
    for read, name, weight in zip(reads, names, weights, strict=True):
        part, cells = read()
        first = part if first is None else first
        _refuse_differences(first, part, (names[0], name))
        _refuse_twice(part, name, counted)
        documents += weight * part.documents
        shards += [shard._replace(documents=weight * shard.documents) for shard in part.shards]
        fields.add((part.text_field, part.separator))
        choices |= dict.fromkeys(part.choices)
        if is_aligned(part.settings):
            of_corpus = cells.numbers < part.settings.folds * part.settings.rows * STRIDE
            tokens, counts = cells.numbers[of_corpus] % STRIDE, cells.counts[of_corpus]
            number = np.bincount(tokens, counts, len(part.tokens)).tolist()
            occurrences.update(dict(zip(part.tokens, number, strict=True)))
    assert first is not None
    settings, tokens = first.settings, first.tokens
    if documents > (most := INT64_MAX // settings.widest):
        raise InputError(f"{documents:,} documents; these counts hold at most {most:,}")
    if is_aligned(settings):
        tokens = _vocabulary(occurrences, max_vocab)
    text_field, separator = (
        values.pop() if len(values) == 1 else None for values in map(set, zip(*fields, strict=True))
    )
    return first._replace(
        documents=documents,
        settings=settings._replace(vocab_size=len(tokens)),
        tokens=tokens,
        shards=tuple(sorted(shards, key=lambda s: (s[:4], s.null_texts, s.unreadable or ""))),
        text_field=text_field,
        separator=separator,
        choices=tuple(choices),
    )


def _vocabulary(occurrences: Counter[str], max_vocab: int | None) -> list[str]:
    """Sorted tokens, or the most frequent ones and `[UNK]`."""
    check_range("max_vocab", max_vocab, least=2)
    if max_vocab is not None and len(occurrences) > max_vocab:
        occurrences.pop(UNKNOWN, None)
        by_frequency = sorted(occurrences, key=lambda token: (-occurrences[token], token))
        return sorted_vocabulary([*by_frequency[: max_vocab - 1], UNKNOWN])
    return sorted_vocabulary(occurrences)


def aligned_tables(
    parts: Sequence[StoredCounts], *, names: Sequence[str]
) -> list[Int[np.ndarray, "folds rows vocab"]]:
    """Tables of counts that may share documents, over the union of their vocabularies.

    Raises:
        InputError: different tokenizers, lengths or bins, or different vocabularies that were not
            made from the corpus.
    """
    first = parts[0]
    ignored = ("folds", "nulls", "null_folds", "seed", "group_field")
    same = {name: getattr(first.settings, name) for name in ignored}
    for part, name in zip(parts, names, strict=True):
        other = part._replace(settings=part.settings._replace(**same))
        _refuse_differences(first, other, (names[0], name))
    if all(part.tokens == first.tokens for part in parts):
        return [part.table for part in parts]
    tokens = sorted_vocabulary({token for part in parts for token in part.tokens})
    columns = {token: column for column, token in enumerate(tokens)}
    tables = []
    for part in parts:
        table = np.zeros((*part.table.shape[:2], len(tokens)), part.table.dtype)
        table[..., [columns[token] for token in part.tokens]] = part.table
        tables.append(table)
    return tables


def is_aligned(settings: CountSettings) -> bool:
    """Whether tables are aligned by the text of their tokens.

    Folds and rotations of such counts come from the text too (`jaxpe.analysis.counts.cells`).
    """
    return vocabulary_occurs(settings.tokenizer) and not settings.exclude


# Options of a count whose settings have another name.
_OPTIONS = {
    "checksum": ("tokenizer",),
    "vocab_size": ("tokenizer",),
    "exclude": ("special",),
    "edges": ("bins", "spacing"),
    "null_folds": ("folds",),
}


def _refuse_differences(first: StoredCounts, part: StoredCounts, names: tuple[str, str]) -> None:
    """Raise for unequal settings, except vocabularies that can be aligned."""
    one, other = first.settings, part.settings
    if is_aligned(one) and is_aligned(other):
        other = other._replace(vocab_size=one.vocab_size)
    differing = differences(one._asdict(), other._asdict())
    if not differing and first.tokens != part.tokens and not is_aligned(one):
        differing = {"tokenizer": "the vocabularies differ"}
    if differing:
        options = [f"`{o}`" for name in differing for o in _OPTIONS.get(name, (name,))]
        raise InputError(
            f"{names[0]} and {names[1]} were counted differently: {'; '.join(differing.values())}; "
            f"count both with the same {' and '.join(dict.fromkeys(options))}"
        )


def _refuse_lost(
    part: StoredCounts, name: str, columns: dict[str, int], unknown: Int[np.ndarray, " cells"]
) -> None:
    """Raise for a part with unknown tokens that another part may have by name."""
    if part.tokens[-1] == UNKNOWN and len(columns) > len(part.tokens) and len(unknown):
        raise InputError(
            f"{name}: tokens were counted as {UNKNOWN}, since its vocabulary of "
            f"{len(part.tokens):,} was cut. The other counts have "
            f"{len(columns) - len(part.tokens):,} more tokens, and which of these they were is "
            "lost; count all parts with the same vocabulary file as `vocab`, or without `max_vocab`"
        )


def _refuse_twice(
    part: StoredCounts, name: str, counted: dict[str, tuple[CountedShard, str]]
) -> None:
    """Raise for a shard that an earlier part counted, unless that part left it out."""
    shards = {shard.digest: shard for shard in part.shards if shard.documents}
    for digest in sorted(shards.keys() & counted.keys()):
        earlier, earlier_name = counted[digest]
        raise InputError(
            f"{shards[digest].name}, {shards[digest].bytes:,} bytes, is counted in {earlier_name} "
            f"(as {earlier.name}) and in {name}; leave one of them out"
        )
    counted |= {digest: (shard, name) for digest, shard in shards.items()}
