"""The sum of the counts of disjoint sets of documents."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from jaxpe._core.errors import InputError, differences, shortened
from jaxpe._core.files import locked_folder
from jaxpe.analysis.counts.cells import STRIDE, Cells
from jaxpe.analysis.counts.settings import INT32_MAX, INT64_MAX, CountSettings, check_memory
from jaxpe.analysis.counts.stored import (
    CountedShard,
    CountHeader,
    StoredCounts,
    counts_file,
    is_counted,
    read_part,
    write_counts,
)
from jaxpe.data.tokens.vocabulary import UNKNOWN, sorted_vocabulary, vocabulary_occurs

_AT_ONCE = 2**22  # cells that are added at once


def read_counts(directory: str | os.PathLike[str]) -> StoredCounts:
    """Counts that `count` or `merge` wrote.

    Args:
        directory: folder with `counts.npz`.

    Raises:
        InputError: a folder without counts, or counts that are damaged, of another version, or too
            large for memory.

    >>> import tempfile
    >>> read_counts(tempfile.mkdtemp())
    Traceback (most recent call last):
    jaxpe.InputError: .../counts.npz cannot be read (...); delete it and count again, or ...
    """
    return sum_files([counts_file(directory)])


def merge(
    folders: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    weights: Sequence[int] = (),
) -> StoredCounts:
    """Add counts of different documents, such as from several machines, and write the sum.

    Vocabularies of words and of characters may differ: tables are aligned by the text of the
    tokens, and the sum has all tokens, sorted. So the order of the folders does not change a byte
    of the sum, which equals one count of all documents.

    Args:
        folders: folders that `count` wrote, all with the same tokenizer and settings.
        out: folder for their sum.
        weights: number of times that documents of each folder count, for a mixture; once when
            absent. A document that counts several times stays in its fold, so halves stay
            independent.

    Raises:
        InputError: a folder without counts; different tokenizers or settings; a shard that two
            folders counted; tokens that one of them counted as `[UNK]` and another may have; more
            documents than int64 holds; or an `out` that holds counts.

    >>> import tempfile
    >>> from jaxpe.analysis.counts import CountOptions, count
    >>> folder, parts = Path(tempfile.mkdtemp()), ("a", "b")
    >>> for name in parts:
    ...     _ = (folder / f"{name}.txt").write_text(f"to be {name}\\n")
    ...     source = {"sources": (str(folder / f"{name}.txt"),), "tokenizer": "bytes"}
    ...     _ = count(CountOptions(**source, length=8, folds=4, nulls=0), folder / name)
    >>> merge([folder / name for name in parts], folder / "both").header.documents
    2
    """
    if len(folders) < 2:
        raise InputError(f"{len(folders)} counts; pass at least two to merge")
    if len({Path(folder).resolve() for folder in folders}) < len(folders):
        raise InputError("a folder is passed twice; pass each once, with `weights` for a mixture")
    if weights and (len(weights) != len(folders) or min(weights) < 1):
        shown = shortened(tuple(weights))
        raise InputError(f"`weights` are {shown}; pass {len(folders)} whole numbers, at least 1")
    total = sum_files([*map(counts_file, folders)], weights=weights)
    if not total.table.any():
        raise InputError(f"no tokens in {len(folders)} counts; pass counts of files with text")
    with locked_folder(out):
        if is_counted(out):
            raise InputError(f"{out} holds counts already; pass another folder")
        write_counts(total, out)
    return total


def sum_files(
    files: Sequence[Path], *, weights: Sequence[int] = (), max_vocab: int | None = None
) -> StoredCounts:
    """Add the counts in files: the sum, of shards and of machines.

    Each file is read twice, and one at a time, so that memory holds the sum and one of them.

    Args:
        files: files of counts.
        weights: argument of `merge`.
        max_vocab: largest vocabulary of words; the counts of rarer ones are added up as `[UNK]`.

    Raises:
        InputError: as `merge`; or tables that do not fit into memory.
    """
    weights = weights or (1,) * len(files)
    header = _summed_header(files, weights, max_vocab)
    settings, vocab_size = header.settings, len(header.tokens)
    dtype = np.dtype(np.int32 if header.documents * settings.widest <= INT32_MAX else np.int64)
    check_memory(settings)
    tables = np.zeros((settings.table_rows, vocab_size), dtype)
    columns = {token: column for column, token in enumerate(header.tokens)}
    for file, weight in zip(files, weights, strict=True):
        _add_file(tables, file, weight, columns)
    table, nulls = np.split(tables, [settings.folds * settings.rows])
    shape = (settings.rows, vocab_size)
    return StoredCounts(
        table.reshape(settings.folds, *shape),
        nulls.reshape(settings.nulls, settings.null_folds, *shape),
        header,
    )


def _add_file(
    tables: Int[np.ndarray, "rows vocab"], file: Path, weight: int, columns: Mapping[str, int]
) -> None:
    """Add the counts in a file; a function, so that its arrays go before the next file is read."""
    header, cells = read_part(file)
    _refuse_lost(header, cells, file, columns)
    # Every token has a column, unless the vocabulary is cut; then [UNK] is the last.
    column = np.array([columns.get(token, len(columns) - 1) for token in header.tokens])
    for start in range(0, len(cells.numbers), _AT_ONCE):
        numbers, counts = (x[start : start + _AT_ONCE] for x in cells)
        row, token = np.divmod(numbers, STRIDE)
        index = row * len(columns) + column[token]  # where several tokens are [UNK], repeated
        np.add.at(tables.reshape(-1), index, (weight * counts).astype(tables.dtype))


def _summed_header(
    files: Sequence[Path], weights: Sequence[int], max_vocab: int | None
) -> CountHeader:
    """Header of the sum."""
    headers: list[CountHeader] = []
    occurrences, counted = Counter[str](), dict[str, tuple[CountedShard, Path]]()
    for file, weight in zip(files, weights, strict=True):
        header, number = _header_and_occurrences(file)
        _refuse_twice(header, file, counted)
        occurrences.update(dict(zip(header.tokens, number, strict=True)))
        shards = tuple(x._replace(documents=weight * x.documents) for x in header.shards)
        tokens = [] if aligns_tokens(header.settings) else header.tokens
        header = header._replace(shards=shards, tokens=tokens)
        first = headers[0] if headers else header
        refuse_differences(first, header, (f"{files[0]}", f"{file}"))
        headers.append(header._replace(tokens=[]) if headers else header)
    shards = sorted(shard for header in headers for shard in header.shards)
    documents, first = sum(shard.documents for shard in shards), headers[0]
    if documents > (most := INT64_MAX // first.settings.widest):
        raise InputError(f"{documents:,} documents; these counts hold at most {most:,}")
    tokens = first.tokens or _vocabulary(occurrences, max_vocab)
    fields = {header.text_field for header in headers}
    return CountHeader(
        documents,
        first.settings._replace(vocab_size=len(tokens)),
        tuple(shards),
        fields.pop() if len(fields) == 1 else None,
        tuple(dict.fromkeys(choice for header in headers for choice in header.choices)),
        tokens,
    )


def _header_and_occurrences(file: Path) -> tuple[CountHeader, list[int]]:
    """Header of a file, and how often each of its tokens was counted."""
    header, (numbers, counts) = read_part(file)
    is_of_corpus = numbers < header.settings.folds * header.settings.rows * STRIDE
    tokens = numbers[is_of_corpus] % STRIDE
    number = np.zeros(len(header.tokens), np.int64)
    np.add.at(number, tokens, counts[is_of_corpus])  # bincount adds floats
    return header, number.tolist()


def _vocabulary(occurrences: Counter[str], max_vocab: int | None) -> list[str]:
    """Sorted tokens, or the most frequent ones and `[UNK]`."""
    if max_vocab is None or len(occurrences) <= max_vocab:
        return sorted_vocabulary(occurrences)
    occurrences.pop(UNKNOWN, None)
    by_frequency = sorted(occurrences, key=lambda token: (-occurrences[token], token))
    return sorted_vocabulary([*by_frequency[: max_vocab - 1], UNKNOWN])


def aligns_tokens(settings: CountSettings) -> bool:
    """Whether tables are aligned by the text of their tokens.

    Folds and rotations of such counts come from the text too (`jaxpe.analysis.counts.cells`).
    """
    return vocabulary_occurs(settings.tokenizer) and not settings.exclude


def refuse_differences(one: CountHeader, other: CountHeader, names: tuple[str, str]) -> None:
    """Raise `InputError` for unequal settings, except vocabularies that can be aligned."""
    settings = other.settings
    if aligns_tokens(settings):
        settings = settings._replace(vocab_size=one.settings.vocab_size)
    differing = differences(one.settings._asdict(), settings._asdict())
    if not differing and one.tokens != other.tokens and not aligns_tokens(settings):
        differing = {"tokenizer": "the vocabularies differ"}
    if differing:
        raise InputError(
            f"{names[0]} and {names[1]} were counted differently: {'; '.join(differing.values())}; "
            "count both with the same options"
        )


def _refuse_lost(header: CountHeader, cells: Cells, file: Path, columns: Mapping[str, int]) -> None:
    """Raise for unknown tokens that another file may have by name."""
    size = len(header.tokens)
    is_cut = header.tokens[-1:] == [UNKNOWN] and len(columns) > size
    if is_cut and np.any(cells.numbers % STRIDE == size - 1):
        raise InputError(
            f"{file}: tokens were counted as {UNKNOWN}, since its vocabulary of {size:,} was cut. "
            f"The others have {len(columns) - size:,} more tokens, and which of these they were is "
            "lost; count all with one file as `vocab`, or without `max_vocab`"
        )


def _refuse_twice(
    header: CountHeader, file: Path, counted: dict[str, tuple[CountedShard, Path]]
) -> None:
    """Raise for a shard that an earlier file counted."""
    for shard in header.shards:
        earlier, where = counted.get(shard.digest, (shard, file))
        if shard.documents and where != file:
            raise InputError(
                f"{shard.name}, {shard.bytes:,} bytes, is counted in {where} (as {earlier.name}) "
                f"and in {file}; leave one of them out"
            )
        counted[shard.digest] = (shard, file)
