"""Counts in memory and in a file: tables, and the settings by which they add."""

import json
import os
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from jaxpe._core.errors import InputError, reason, shortened
from jaxpe._core.files import write_file
from jaxpe._core.json_values import from_json, parse_json, to_json
from jaxpe._core.options import Choice
from jaxpe._core.results import npz_bytes, read_npz, short_repr
from jaxpe.analysis.counts.cells import STRIDE, Cells
from jaxpe.analysis.counts.settings import CountSettings, check_settings
from jaxpe.geometry import PositionCounts

_FORMAT = 6
_REMEDY = "pass a folder that jaxpe count wrote, or count again"
_FASTEST = 1  # zlib's default takes six times as long for a file a sixth smaller


class CountedShard(NamedTuple):
    """A shard with its number of counted documents, or the reason why it was left out.

    Attributes:
        name, bytes: name and size of the file.
        digest: hash of its content, which identifies the shard; empty if it was left out.
        documents: number of documents counted.
        unreadable: reason why it was left out; None if it was counted.
        null_texts: rows that were left out because their text is null or missing.
    """

    name: str
    bytes: int
    digest: str
    documents: int
    unreadable: str | None = None
    null_texts: int = 0


class StoredCounts(NamedTuple):
    """Counts of a corpus with their settings, for sums and reports.

    Attributes:
        table: `[folds, rows, vocab]`, int32, or int64 if so many documents may exceed it.
        nulls: `[nulls, null_folds, rows, vocab]`, likewise, of rotated documents.
        documents: number of documents counted.
        settings: settings of the count.
        tokens: the text of each id.
        shards: shards that were read.
        text_field: the column or key with the text, or with the ids.
        separator: the id that ended documents in streams of ids.
        choices: settings that were chosen automatically, such as the column.
    """

    table: Int[np.ndarray, "folds rows vocab"]
    nulls: Int[np.ndarray, "nulls null_folds rows vocab"]
    documents: int
    settings: CountSettings
    tokens: list[str]
    shards: tuple[CountedShard, ...]
    text_field: str | None = None
    separator: int | None = None
    choices: tuple[Choice, ...] = ()

    @property
    def counts(self) -> PositionCounts:
        """The counts in folds, for the geometry.

        Raises:
            InputError: int64 counts without JAX's 64-bit mode.
        """
        dtype = self.table.dtype
        if jax.dtypes.canonicalize_dtype(dtype) != dtype:
            raise InputError(
                f"{self.documents:,} documents are counted in {dtype}, which JAX cuts to 32 bits; "
                "set JAX_ENABLE_X64=1, or call jax.config.update('jax_enable_x64', True)"
            )
        documents = jnp.asarray(self.documents, dtype)
        return PositionCounts(jnp.asarray(self.table), documents, jnp.zeros((), dtype))

    @property
    def null_texts(self) -> int:
        """Rows that were left out because their text is null or missing."""
        return sum(shard.null_texts for shard in self.shards)

    __repr__ = short_repr


class _Header(NamedTuple):
    """Fields of `StoredCounts` that a file holds as JSON."""

    format: int
    documents: int
    settings: CountSettings
    tokens: list[str]
    shards: tuple[CountedShard, ...]
    text_field: str | None
    separator: int | None
    choices: tuple[Choice, ...]


class CountPart(NamedTuple):
    """Counts as a file holds them: occupied cells, and `StoredCounts` without tables."""

    stored: StoredCounts
    cells: Cells


def part_of_counts(stored: StoredCounts) -> CountPart:
    """The occupied cells of counts in memory."""
    start, numbers, counts = 0, [], []
    for table in (stored.table, stored.nulls):
        flat = table.reshape(-1, table.shape[-1])
        row, token = np.nonzero(flat)
        numbers.append((start + row) * STRIDE + token)
        counts.append(flat[row, token])
        start += len(flat)
    return CountPart(stored, Cells(np.concatenate(numbers), np.concatenate(counts)))


def write_part(part: CountPart, path: str | os.PathLike[str]) -> None:
    """Write counts into a file, as distances between occupied cells, which compress well.

    Raises:
        InputError: no disk space or no permission, or inconsistent numbers; older counts remain.
    """
    _check(part)
    row, token = np.divmod(part.cells.numbers, STRIDE)
    steps = np.diff(row * len(part.stored.tokens) + token, prepend=0)
    header = json.dumps(to_json(_Header(_FORMAT, *part.stored[2:]))).encode()
    arrays = {"header": np.frombuffer(header, np.uint8)}
    for name, values in (("steps", steps), ("counts", part.cells.counts)):
        smallest = np.min_scalar_type(values.max(initial=0)).newbyteorder("<")
        arrays[name] = values.astype(smallest)
    write_file(path, npz_bytes(arrays, level=_FASTEST))


def read_part(path: str | os.PathLike[str]) -> CountPart:
    """Read counts of a file; raises `InputError` for a damaged one, or of another version."""
    arrays = read_npz(path, remedy=_REMEDY)
    try:
        values = parse_json(bytes(arrays["header"]), where="its header", remedy="")
        if (version := values.get("format")) != _FORMAT:
            raise InputError(f"they are of format {shortened(version)}, not {_FORMAT}")
        stored = StoredCounts(*_NO_TABLES, *from_json(_Header, values, where="its header")[1:])
        check_settings(stored.settings)
        index = np.cumsum(arrays["steps"], dtype=np.int64)
        row, token = np.divmod(index, len(stored.tokens))
        part = CountPart(stored, Cells(row * STRIDE + token, arrays["counts"].astype(np.int64)))
        _check(part)
    except (InputError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} holds no counts: {reason(error)}; {_REMEDY}") from error
    return part


_NO_TABLES = np.zeros((0, 0, 0), np.int32), np.zeros((0, 0, 0, 0), np.int32)


def write_counts(stored: StoredCounts, directory: str | os.PathLike[str]) -> Path:
    """Write counts into a folder, completely or not at all; returns the folder.

    Raises:
        InputError: no disk space or no permission, which leaves older counts unchanged; or
            inconsistent numbers.

    >>> import tempfile
    >>> from jaxpe.analysis.counts import count_settings, read_counts
    >>> from jaxpe.data import open_tokenizer
    >>> words = open_tokenizer(vocabulary=["be", "to"])
    >>> settings = count_settings(words, length=2, folds=4, nulls=0)
    >>> table, nulls = np.ones((4, 2, 2), np.int32), np.zeros((0, 4, 2, 2), np.int32)
    >>> shards = (CountedShard("a.txt", 40, "5f" * 16, 8),)
    >>> stored = StoredCounts(table, nulls, 8, settings, words.tokens, shards)
    >>> folder = write_counts(stored, tempfile.mkdtemp())
    >>> read_counts(folder).counts.documents.item()
    8
    """
    settings = stored.settings
    shape = (settings.rows, settings.vocab_size)
    expected = (settings.folds, *shape), (settings.nulls, settings.null_folds, *shape)
    if (stored.table.shape, stored.nulls.shape) != expected:
        raise InputError(
            f"the tables are of shapes {stored.table.shape} and {stored.nulls.shape}, and the "
            f"settings ask for {expected[0]} and {expected[1]}; count again"
        )
    write_part(part_of_counts(stored), counts_file(directory))
    return Path(directory)


def counts_file(directory: str | os.PathLike[str]) -> Path:
    """File of the counts in a folder."""
    return Path(directory) / "counts.npz"


def is_counted(directory: str | os.PathLike[str]) -> bool:
    """Whether the folder holds counts.

    >>> import tempfile
    >>> is_counted(tempfile.mkdtemp())
    False
    """
    return counts_file(directory).exists()


def _check(part: CountPart) -> None:
    """Raise `InputError` for inconsistent numbers."""
    stored, (numbers, counts) = part
    settings, vocab_size = stored.settings, len(stored.tokens)
    rows = (settings.folds + settings.nulls * settings.null_folds) * settings.rows
    problem = None
    if vocab_size != settings.vocab_size:
        problem = f"there are {vocab_size:,} tokens, and the settings name {settings.vocab_size:,}"
    elif sum(shard.documents for shard in stored.shards) != stored.documents:
        problem = f"there are {stored.documents} documents, and other ones in the shards"
    elif len(numbers) != len(counts) or numbers.max(initial=-1) >= rows * STRIDE:
        problem = "a cell lies outside the tables"
    elif counts.min(initial=1) < 1 or np.any(np.diff(numbers, prepend=-1) < 1):
        problem = "a count is not positive, or there twice"
    if problem:
        raise InputError(f"{problem}; count again, in another folder")
