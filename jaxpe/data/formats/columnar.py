"""Rows and token ids of Parquet and Arrow files, which may be larger than memory."""

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError, require
from jaxpe._core.json_values import parse_json, read_json
from jaxpe._core.progress import Progress
from jaxpe.data.formats.columns import (
    Fields,
    NullRow,
    ReadLog,
    Row,
    class_name,
    label_column,
    text_column,
)
from jaxpe.data.formats.files import LARGEST_TEXT, file_name, listed, open_regular, quoted, readable
from jaxpe.data.formats.token_files import Stream
from jaxpe.data.tokens.ragged import Ragged

_AT_ONCE, _BYTES_AT_ONCE = 1000, 2**26  # rows, and bytes of them, that are read at once
_BUFFER = 2**20
_ARROW_MAGIC = b"ARROW1"
_TYPE = 100  # characters of a type that are shown
_ID_COLUMNS = ("input_ids", "ids", "tokens", "token_ids")  # usual names


class _Table(NamedTuple):
    """An open file of columns."""

    schema: Any
    rows: int | None  # where the file tells
    batches: Callable[[list[str]], Iterator[Any]]  # from names of columns

    def columns(self, is_kind: Callable[[Any], bool]) -> list[str]:
        """Names of the columns of a type."""
        return [field.name for field in self.schema if is_kind(field.type)]


def columnar_names(path: str) -> list[str]:
    """Names of the columns of a file."""
    with _open_table(path) as table:
        return list(table.schema.names)


def columnar_rows(
    path: str, fields: Fields, log: ReadLog, progress: Progress
) -> Iterator[Row | NullRow]:
    """Read the rows of a Parquet file, or of an Arrow file or stream.

    Raises:
        InputError: no regular file, a damaged one, or no such columns.
        MissingExtraError: pyarrow is not installed.
    """
    with _open_table(path) as table:
        text = _text_column(path, table, fields, log)
        names = [name for name in dict.fromkeys((text, fields.label)) if name is not None]
        log.classes = _classes(path, table.schema, fields.label)
        rows = _rows(table.batches(names), path, text, fields.label, log.classes)
        yield from progress.track(rows, f"Reading {file_name(path)}", total=table.rows)


def columnar_holds_ids(path: str, field: str | None) -> bool:
    """Whether a column holds lists of integers: the one named, or one where none holds text."""
    with _open_table(path) as table:
        lists = table.columns(_is_ids)
        return field in lists if field else bool(lists) and not table.columns(_is_text)


def columnar_id_blocks(
    path: str, fields: Fields, stream: Stream, log: ReadLog
) -> Iterator[tuple[Ragged, list[Any] | None]]:
    """Read token ids of many rows at once, with their labels; raises as `columnar_rows`.

    Rows are documents already, so that `stream` has no effect.
    """
    with _open_table(path) as table:
        names = table.schema.names
        label_column(path, names, fields)
        lists = table.columns(_is_ids)
        column = text_column(path, names, lists, fields, log, usual=_ID_COLUMNS, what="ids")
        if column not in lists:
            raise InputError(
                f"{path}: column {quoted(column)} holds no lists of integers; pass one of "
                f"{listed(lists)} as `text_field`"
            )
        classes = _classes(path, table.schema, fields.label)
        wanted = [name for name in dict.fromkeys((column, fields.label)) if name is not None]
        start, nulls = 0, 0
        for batch in table.batches(wanted):
            batch.validate(full=True)
            ids = batch.column(column)
            location = f"{path}, rows {start} to {start + len(ids) - 1}"
            start, nulls = start + len(ids), nulls + ids.null_count
            if ids.null_count and not fields.skip_nulls:
                raise InputError(
                    f"{location}: {quoted(column)} is null in {ids.null_count:,} of them; pass "
                    "`skip_nulls=True` to leave them out"
                )
            labels = None if fields.label is None else _labels(batch, fields.label, classes)
            yield _ragged_column(ids, location), labels
        log.null_texts += nulls


def _ragged_column(ids: Any, location: str) -> Ragged:
    """Lists of a column as `Ragged`; null rows are empty."""
    flat = ids.flatten()
    if flat.null_count:
        raise InputError(f"{location}: {flat.null_count:,} ids are null; write rows without them")
    lengths = require("pyarrow.compute", extra="parquet").list_value_length(ids).fill_null(0)
    values, sizes = (x.to_numpy(zero_copy_only=False) for x in (flat, lengths))
    return Ragged(values, sizes.astype(np.int64))


def _text_column(path: str, table: _Table, fields: Fields, log: ReadLog) -> str:
    """Name of the column of text, after a check of both columns' types."""
    names, strings = table.schema.names, table.columns(_is_text)
    label_column(path, names, fields)
    # The turns of a chat come first: their error names the type.
    text = text_column(path, names, table.columns(_is_turns)[:1] or strings, fields, log)
    if text not in strings:
        kind = " ".join(str(table.schema.field(text).type).split())[:_TYPE]
        other = f"pass one of {listed(strings)} as `text_field`, or " if strings else ""
        raise InputError(
            f"{path}: column {quoted(text)} is of type {kind}, not string; {other}write a column "
            "of strings"
        )
    return text


def _rows(
    batches: Iterator[Any], path: str, text: str, label: str | None, classes: tuple[str, ...]
) -> Iterator[Row | NullRow]:
    number = 0
    for batch in batches:
        batch.validate(full=True)
        texts = batch.column(text).to_pylist()
        labels = [None] * len(texts) if label is None else _labels(batch, label, classes)
        for value, its_label in zip(texts, labels, strict=True):
            location = f"{path}, row {number}"
            number += 1
            if value is None:
                yield NullRow(text, location)
                continue
            if len(value) > LARGEST_TEXT:
                raise InputError(
                    f"{location} has a text of {len(value):,} characters, and may have "
                    f"{LARGEST_TEXT:,}; cut longer documents"
                )
            yield Row(value, its_label, location)


def _labels(batch: Any, label: str, classes: tuple[str, ...]) -> list[Any]:
    return [class_name(value, classes) for value in batch.column(label).to_pylist()]


def _classes(path: str, schema: Any, label: str | None) -> tuple[str, ...]:
    """Names of the classes of a column that Hugging Face datasets wrote; empty without any."""
    if label is None:
        return ()
    content = (schema.metadata or {}).get(b"huggingface")
    file, remedy = Path(path).parent / "dataset_info.json", "write the dataset again"
    value: Any = None
    if content is not None:
        value = parse_json(content, where=f"{path}, metadata", remedy=remedy)
    elif file.is_file():
        value = {"info": read_json(file, remedy=remedy)}
    for name in ("info", "features", label, "names"):
        value = value.get(name) if isinstance(value, dict) else None
    return tuple(map(str, value)) if isinstance(value, list) else ()


@contextlib.contextmanager
def _open_table(path: str) -> Iterator[_Table]:
    """Open a file; errors of a damaged one become `InputError`."""
    is_parquet = path.lower().endswith(".parquet")
    module = require(f"pyarrow.{'parquet' if is_parquet else 'ipc'}", extra="parquet")
    # C++ raises errors of many kinds, and its bindings others, such as of names that are not UTF-8.
    with readable(path, Exception), open_regular(path) as file:
        yield (_parquet if is_parquet else _arrow)(module, file)


def _parquet(module: Any, file: io.FileIO) -> _Table:
    opened = module.ParquetFile(
        file, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True
    )

    def batches(names: list[str]) -> Iterator[Any]:
        rows = _rows_per_batch(opened.metadata)
        return opened.iter_batches(batch_size=rows, columns=names, use_threads=False)

    return _Table(opened.schema_arrow, opened.metadata.num_rows, batches)


def _rows_per_batch(metadata: Any) -> int:
    """Number of rows to read at once, from the group with the largest rows.

    Bytes are of all columns: pyarrow's reader of one column's size ends the process if damaged.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    fewest = [_BYTES_AT_ONCE * group.num_rows // max(1, group.total_byte_size) for group in groups]
    return max(1, min([_AT_ONCE, *fewest]))


def _arrow(module: Any, file: io.FileIO) -> _Table:
    """Open an Arrow file, or a stream, as Hugging Face writes it."""
    magic = file.read(len(_ARROW_MAGIC))
    file.seek(0)
    options = module.IpcReadOptions(use_threads=False)
    if magic != _ARROW_MAGIC:
        stream = module.open_stream(file, options=options)
        return _Table(stream.schema, None, lambda names: (batch.select(names) for batch in stream))
    opened = module.open_file(file, options=options)
    numbers = range(opened.num_record_batches)
    return _Table(
        opened.schema, None, lambda names: (opened.get_batch(n).select(names) for n in numbers)
    )


def _is_text(kind: Any) -> bool:
    types = require("pyarrow.types", extra="parquet")
    if types.is_dictionary(kind):
        kind = kind.value_type
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_ids(kind: Any) -> bool:
    types = require("pyarrow.types", extra="parquet")
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return is_list and types.is_integer(kind.value_type)


def _is_turns(kind: Any) -> bool:
    """Whether a type is a list of objects, such as the turns of a chat."""
    types = require("pyarrow.types", extra="parquet")
    return (types.is_list(kind) or types.is_large_list(kind)) and types.is_struct(kind.value_type)
