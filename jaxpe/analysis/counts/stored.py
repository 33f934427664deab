"""Counts in memory and in a file: tables, and the settings by which they add."""

import itertools
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
from jaxpe._core.json_values import from_json, to_json
from jaxpe._core.options import Choice
from jaxpe._core.results import npz_bytes, read_npz, short_repr
from jaxpe.analysis.counts.cells import STRIDE, Cells
from jaxpe.analysis.counts.settings import CountSettings, check_settings
from jaxpe.geometry import PositionCounts

_FORMAT = 6
_REMEDY = "delete it and count again, or pass a folder that jaxpe count wrote"
_FASTEST = 1  # zlib's default takes six times as long for a file a sixth smaller


class CountedShard(NamedTuple):
    """A shard with its number of counted documents, or the reason why it was left out.

    Attributes:
        name, bytes: name and size of the file.
        digest: hash of its content, which identifies the shard; empty if it was left out.
        documents: number of documents counted.
        null_texts: rows that were left out because their text is null or missing.
        unreadable: reason why it was left out; "" if it was counted.
    """

    name: str
    bytes: int
    digest: str
    documents: int
    null_texts: int = 0
    unreadable: str = ""


class CountHeader(NamedTuple):
    """Everything about counts but the numbers in their tables.

    Attributes:
        documents: number of documents counted.
        settings: settings of the count.
        shards: shards that were read.
        text_field: the column or key with the text, or with the ids.
        choices: settings that were chosen automatically, such as the column.
        tokens: the text of each id.
    """

    documents: int
    settings: CountSettings
    shards: tuple[CountedShard, ...]
    text_field: str | None
    choices: tuple[Choice, ...]
    tokens: list[str]

    @property
    def null_texts(self) -> int:
        """Rows that were left out because their text is null or missing."""
        return sum(shard.null_texts for shard in self.shards)


class StoredCounts(NamedTuple):
    """Counts of a corpus with their settings, for sums and reports.

    Attributes:
        table: `[folds, rows, vocab]`, int32, or int64 if so many documents may exceed it.
        nulls: `[nulls, null_folds, rows, vocab]`, likewise, of rotated documents.
        header: documents, settings, shards and tokens.
    """

    table: Int[np.ndarray, "folds rows vocab"]
    nulls: Int[np.ndarray, "nulls null_folds rows vocab"]
    header: CountHeader

    @property
    def counts(self) -> PositionCounts:
        """The counts in folds, for the geometry.

        Raises:
            InputError: int64 counts without JAX's 64-bit mode.
        """
        dtype, documents = self.table.dtype, self.header.documents
        if jax.dtypes.canonicalize_dtype(dtype) != dtype:
            raise InputError(
                f"{documents:,} documents are counted in {dtype}, which JAX cuts to 32 bits; "
                "set JAX_ENABLE_X64=1, or call jax.config.update('jax_enable_x64', True)"
            )
        zero = jnp.zeros((), dtype)
        return PositionCounts(jnp.asarray(self.table), zero + documents, zero)

    __repr__ = short_repr


class CountPart(NamedTuple):
    """Counts as a file holds them: the occupied cells of the tables, and the header."""

    header: CountHeader
    cells: Cells


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


def write_counts(stored: StoredCounts, directory: str | os.PathLike[str]) -> Path:
    """Write counts into a folder, completely or not at all; returns the folder.

    Raises:
        InputError: no disk space or no permission, which leaves older counts unchanged; or
            inconsistent numbers.

    >>> import tempfile
    >>> from jaxpe.analysis.counts import CountOptions, read_counts
    >>> from jaxpe.analysis.counts.job import tokenizer_and_settings
    >>> options = CountOptions(sources=(), tokenizer="bytes", length=2, folds=4, nulls=0)
    >>> tokenizer, settings = tokenizer_and_settings(options)
    >>> shards = (CountedShard("a.txt", 40, "5f" * 16, 8),)
    >>> header = CountHeader(8, settings, shards, None, (), list(tokenizer.tokens))
    >>> table, nulls = np.ones((4, 2, 256), np.int32), np.zeros((0, 4, 2, 256), np.int32)
    >>> folder = write_counts(StoredCounts(table, nulls, header), tempfile.mkdtemp())
    >>> read_counts(folder).counts.documents.item()
    8
    """
    rows, table_and_nulls = stored.header.settings.rows, (stored.table, stored.nulls)
    size = sum(map(np.count_nonzero, table_and_nulls))
    cells = Cells(np.empty(size, np.int64), np.empty(size, stored.table.dtype))
    start = first = 0  # filled in place: a corpus may have more cells than half of memory holds
    for table in itertools.chain(*(x.reshape(-1, *x.shape[-2:]) for x in table_and_nulls)):
        row, token = np.nonzero(table != 0)  # of booleans, which is faster
        filled = slice(start, start + len(row))
        cells.numbers[filled] = (first + row) * STRIDE + token
        cells.counts[filled] = table[row, token]
        start, first = start + len(row), first + rows
    write_part(CountPart(stored.header, cells), counts_file(directory))
    return Path(directory)


def write_part(part: CountPart, path: str | os.PathLike[str]) -> None:
    """Write counts into a file, as distances between occupied cells, which compress well.

    Raises:
        InputError: no disk space or no permission, or inconsistent numbers; older counts remain.
    """
    _check(part)
    header, tokens = part.header._replace(tokens=[]), part.header.tokens
    texts = {"header": {"format": _FORMAT, **to_json(header)}, "tokens": tokens}
    arrays = {name: np.frombuffer(json.dumps(x).encode(), np.uint8) for name, x in texts.items()}
    numbers = part.cells.numbers
    steps = numbers // STRIDE
    steps *= len(tokens) - STRIDE
    steps += numbers  # row · vocabulary + token
    steps[1:] = np.diff(steps)
    for name, values in (("steps", steps), ("counts", part.cells.counts)):
        smallest = np.min_scalar_type(values.max(initial=0)).newbyteorder("<")
        arrays[name] = values.astype(smallest)
    write_file(path, npz_bytes(arrays, level=_FASTEST))


def read_part(path: str | os.PathLike[str]) -> CountPart:
    """Read counts of a file; raises `InputError` for a damaged one, or of another version."""
    arrays = read_npz(path, remedy=_REMEDY)
    try:
        values, tokens = (json.loads(bytes(arrays[name])) for name in ("header", "tokens"))
        if (version := values.pop("format")) != _FORMAT:
            raise InputError(f"they are of format {shortened(version)}, not {_FORMAT}")
        header = from_json(CountHeader, values, where="their header")._replace(tokens=tokens)
        if any((arrays[x].dtype.kind, arrays[x].ndim) != ("u", 1) for x in ("steps", "counts")):
            raise InputError("their numbers are not whole")
        index = np.cumsum(arrays["steps"], dtype=np.int64)
        row, token = np.divmod(index, max(1, len(tokens)))
        cells = Cells(row * STRIDE + token, arrays["counts"].astype(np.int64))
        part = CountPart(header, cells)
        _check(part)
    except (InputError, LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise InputError(f"{path} holds no counts: {reason(error)}; {_REMEDY}") from error
    return part


def _check(part: CountPart) -> None:
    """Raise `InputError` for inconsistent numbers."""
    header, (numbers, counts) = part
    settings = header.settings
    check_settings(settings)
    for is_wrong, problem in (
        (len(header.tokens) != settings.vocab_size, "the tokens are not of the vocabulary"),
        (not all(isinstance(x, str) for x in header.tokens), "a token is no text"),
        (sum(x.documents for x in header.shards) != header.documents, "documents of no shard"),
        (len(numbers) != len(counts), "not one count for each cell"),
        (numbers.min(initial=0) < 0, "a cell lies outside the tables"),
        (numbers.max(initial=0) >= settings.table_rows * STRIDE, "a cell lies outside the tables"),
        (np.any(numbers[1:] <= numbers[:-1]), "a cell is there twice"),
        (counts.min(initial=1) < 1, "a count is not positive"),
    ):
        if is_wrong:
            raise InputError(f"{problem}; count again, in another folder")
