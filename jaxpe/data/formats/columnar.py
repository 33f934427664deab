"""Rows and token ids of Parquet and Arrow files, which may be larger than memory."""

import contextlib
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError, require
from jaxpe._core.json_values import parse_json, read_json
from jaxpe._core.progress import Progress
from jaxpe.data.formats.columns import Fields, ReadLog, Record, missing_column, null_text
from jaxpe.data.formats.files import file_name, open_regular, quoted, readable
from jaxpe.data.formats.token_files import Stream
from jaxpe.data.tokens.ragged import Ragged

_AT_ONCE, _BYTES_AT_ONCE = 1000, 2**26  # rows, and bytes of them, that are read at once
_BUFFER = 2**20
_ARROW_MAGIC = b"ARROW1"


class _Table(NamedTuple):
    """An open file of columns."""

    schema: Any
    rows: int | None  # where the file tells
    batches: Callable[[list[str]], Iterator[Any]]  # from names of columns

    def checked(self, names: list[str]) -> Iterator[Any]:
        """Batches of some columns; raises errors of pyarrow for a damaged one."""
        for batch in self.batches(names):
            batch.validate(full=True)
            yield batch

    def columns(self, is_kind: Callable[[Any], bool]) -> list[str]:
        """Names of the columns of a type."""
        return [field.name for field in self.schema if is_kind(field.type)]


def columnar_records(
    path: str, columns: Sequence[str] | None, log: ReadLog, progress: Progress
) -> Iterator[Record]:
    """Read the rows of a Parquet file, or of an Arrow file or stream; only some columns, if any.

    Raises:
        InputError: no regular file, or a damaged one.
        MissingExtraError: pyarrow is not installed.
    """
    with _open_table(path) as table:
        names = table.schema.names
        for name in columns or names:
            if names.count(name) > 1:
                raise InputError(f"{path}: several columns are named {quoted(name)}; rename them")
        names = names if columns is None else [name for name in columns if name in names]
        rows = enumerate(_rows(table.checked(names), names))
        for number, row in progress.track(rows, f"Reading {file_name(path)}", total=table.rows):
            yield f"{path}, row {number}", row


def columnar_classes(path: str, label: str) -> tuple[str, ...]:
    """Names of the classes of a column that Hugging Face datasets wrote; empty without any."""
    with _open_table(path) as table:
        content = (table.schema.metadata or {}).get(b"huggingface")
    file, remedy = Path(path).parent / "dataset_info.json", "write the dataset again"
    value: Any = {"info": read_json(file, remedy=remedy)} if file.is_file() else None
    if content is not None:
        value = parse_json(content, where=f"{path}, metadata", remedy=remedy)
    for name in ("info", "features", label, "names"):
        value = value.get(name) if isinstance(value, dict) else None
    return tuple(map(str, value)) if isinstance(value, list) else ()


def columnar_holds_ids(path: str, field: str | None) -> bool:
    """Whether a column holds lists of integers: the one named, or one where none holds text."""
    with _open_table(path) as table:
        lists = table.columns(_is_ids)
        return field in lists if field else bool(lists) and not table.columns(_is_text)


def columnar_id_blocks(
    path: str, fields: Fields, stream: Stream, log: ReadLog
) -> Iterator[tuple[Ragged, list[Any] | None]]:
    """Read token ids of many rows at once, with their labels; raises as `columnar_records`.

    Rows are documents already, so that `stream` has no effect.
    """
    column = str(fields.text)
    with _open_table(path) as table:
        names = table.schema.names
        if column in names and column not in table.columns(_is_ids):
            raise InputError(f"{path}: column {quoted(column)} holds no lists of integers")
        if fields.label is not None and fields.label not in names:
            raise missing_column(path, names, fields.label, fields.label_name)
        start = 0
        for batch in table.checked([name for name in fields.columns() if name in names]):
            location = f"{path}, rows {start} to {start + batch.num_rows - 1}"
            start += batch.num_rows
            ids = batch.column(column) if column in names else None
            nulls = batch.num_rows if ids is None else ids.null_count
            if nulls and not fields.skip_nulls:
                raise null_text(location, column, f"in {nulls:,} of them")
            log.null_texts += nulls
            if ids is not None:
                labels = None if fields.label is None else batch.column(fields.label).to_pylist()
                yield _ragged_column(ids, location), labels


def _ragged_column(ids: Any, location: str) -> Ragged:
    """Lists of a column as `Ragged`; null rows are empty."""
    flat = ids.flatten()
    if flat.null_count:
        raise InputError(f"{location}: {flat.null_count:,} ids are null; write rows without them")
    lengths = require("pyarrow.compute", extra="parquet").list_value_length(ids).fill_null(0)
    values, sizes = (x.to_numpy(zero_copy_only=False) for x in (flat, lengths))
    return Ragged(values, sizes.astype(np.int64))


def _rows(batches: Iterator[Any], names: Sequence[str]) -> Iterator[dict[str, Any]]:
    # Python has no nanoseconds and fewer years, and names of time zones may be unknown.
    for batch in batches:
        dated = (x.cast("int64") if hasattr(x.type, "unit") else x for x in batch.columns)
        columns = [column.to_pylist() for column in dated]
        rows = zip(*columns, strict=True) if columns else itertools.repeat((), batch.num_rows)
        yield from (dict(zip(names, row, strict=True)) for row in rows)


@contextlib.contextmanager
def _open_table(path: str) -> Iterator[_Table]:
    """Open a file; errors of a damaged one become `InputError`."""
    is_parquet = path.lower().endswith(".parquet")
    module = require(f"pyarrow.{'parquet' if is_parquet else 'ipc'}", extra="parquet")
    # C++ raises errors of many kinds, and its bindings others, such as of names that are not UTF-8.
    with readable(path, Exception), open_regular(path) as file:
        yield (_parquet if is_parquet else _arrow)(module, file)


def _parquet(module: Any, file: io.FileIO) -> _Table:
    options = {"buffer_size": _BUFFER, "pre_buffer": False, "page_checksum_verification": True}
    opened = module.ParquetFile(file, **options)
    rows = _rows_per_batch(opened.metadata)
    batches = partial(opened.iter_batches, rows, use_threads=False)
    return _Table(
        opened.schema_arrow, opened.metadata.num_rows, lambda names: batches(columns=names)
    )


def _rows_per_batch(metadata: Any) -> int:
    """Number of rows to read at once, from the group with the largest rows.

    Bytes are of all columns: pyarrow's reader of one column's size ends the process if damaged.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    fewest = [_BYTES_AT_ONCE * group.num_rows // max(1, group.total_byte_size) for group in groups]
    return max(1, min([_AT_ONCE, *fewest]))


def _arrow(module: Any, file: io.FileIO) -> _Table:
    """Open an Arrow file, or a stream, as Hugging Face writes it."""
    is_file = file.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
    file.seek(0)
    options = module.IpcReadOptions(use_threads=False)
    opened = (module.open_file if is_file else module.open_stream)(file, options=options)
    batches = map(opened.get_batch, range(opened.num_record_batches)) if is_file else opened
    return _Table(opened.schema, None, lambda names: (batch.select(names) for batch in batches))


def _is_text(kind: Any) -> bool:
    types = require("pyarrow.types", extra="parquet")
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return str(kind) in ("string", "large_string", "string_view")


def _is_ids(kind: Any) -> bool:
    types = require("pyarrow.types", extra="parquet")
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return is_list and types.is_integer(kind.value_type)
