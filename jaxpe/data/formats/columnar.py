"""Rows of Parquet and Arrow files, some at a time: a file may be larger than memory."""

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError, require
from jaxpe._core.files import Content
from jaxpe._core.progress import Progress
from jaxpe.data.formats.columns import (
    USUAL,
    Fields,
    Found,
    NullRow,
    Row,
    label_column,
    refuse_repeated,
    text_column,
)
from jaxpe.data.formats.files import (
    LARGEST_TEXT,
    hash_file,
    listed,
    name_of,
    open_regular,
    quoted,
    readable,
    text_ending,
)
from jaxpe.data.formats.json_rows import TURN_KEYS
from jaxpe.data.tokens.ragged import Ragged

_AT_ONCE, _BYTES_AT_ONCE = 1000, 2**26  # rows, and bytes of them, that are read at once
_BUFFER = 2**20
_TYPE = 100  # characters of a type that are shown
_TURNS = re.compile(rf"(large_)?list<\w+: struct<.*\b({'|'.join(TURN_KEYS)}): ")  # of a chat


class _Table(NamedTuple):
    """A file of columns."""

    schema: Any
    rows: int | None  # where the file tells
    batches: Callable[[list[str]], Iterator[Any]]  # of columns


def columnar_names(path: str) -> list[str]:
    """The columns of a file; raises as `columnar_rows`."""
    with _opened(path) as table:
        return list(table.schema.names)


def columnar_rows(
    path: str, fields: Fields, found: Found, *, content: Content | None, progress: Progress
) -> Iterator[Row | NullRow]:
    """The rows of a Parquet file, or of an Arrow file or stream.

    Raises:
        InputError: no regular file, a damaged one, or no such columns.
        MissingExtraError: pyarrow is not installed.
    """
    with _opened(path) as table:
        if content is not None:  # the reader goes to and fro
            hash_file(path, content)
        text = _columns(path, table.schema, fields, found)
        names = [name for name in dict.fromkeys((text, fields.label)) if name is not None]
        rows = _rows_of(_read(table.batches(names)), path, text, fields.label)
        yield from progress.track(rows, f"Reading {name_of(path)}", total=table.rows)


def id_columns(path: str) -> tuple[list[str], list[str]]:
    """The columns of a file that hold lists of integers, and those of text."""
    with _opened(path) as table:
        lists = [field.name for field in table.schema if _is_ids(field.type)]
        return lists, [field.name for field in table.schema if _is_text(field.type)]


def columnar_id_blocks(
    path: str, fields: Fields, found: Found, *, content: Content | None
) -> Iterator[tuple[Ragged, list[Any] | None]]:
    """The ids of rows, many at once, and their labels, if any; raises as `columnar_rows`."""
    with _opened(path) as table:
        if content is not None:  # the reader goes to and fro
            hash_file(path, content)
        names = table.schema.names
        label_column(path, names, fields)
        lists = [field.name for field in table.schema if _is_ids(field.type)]
        found.text = column = _ids_column(path, names, lists, fields.text)
        refuse_repeated(path, names, (column, fields.label))
        wanted = [name for name in dict.fromkeys((column, fields.label)) if name is not None]
        read, nulls = 0, 0
        for batch in table.batches(wanted):
            batch.validate(full=True)
            ids = batch.column(column)
            place = f"{path}, rows {read} to {read + len(ids) - 1}"
            read, nulls = read + len(ids), nulls + ids.null_count
            if ids.null_count and not fields.skip_nulls:
                raise InputError(
                    f"{place}: {quoted(column)} is null in {ids.null_count:,} of them; pass "
                    "`skip_nulls=True` to leave them out"
                )
            labels = None if fields.label is None else batch.column(fields.label).to_pylist()
            yield _ragged(ids, place), labels
        found.null_texts += nulls


def _ids_column(path: str, names: list[str], lists: list[str], wanted: str | None) -> str:
    """The column of ids: that asked for, one of a usual name, or the only one."""
    if wanted in lists:
        return wanted
    if wanted is not None and wanted in names:
        raise InputError(
            f"{path}: column {quoted(wanted)} holds no lists of integers; pass one of "
            f"{listed(lists)} as `text_field`"
        )
    usual = [name for name in _IDS if name in lists]
    if wanted is None and (usual or len(lists) == 1):
        return (usual or lists)[0]
    raise InputError(
        f"{path}: it is not clear which column holds the ids; pass one of {listed(lists or names)} "
        "as `text_field`"
    )


_IDS = ("input_ids", "ids", "tokens", "token_ids")


def _ragged(ids: Any, place: str) -> Ragged:
    """The lists of a column; those of null rows are empty."""
    flat = ids.flatten()
    if flat.null_count:
        raise InputError(f"{place}: {flat.null_count:,} ids are null; write rows without them")
    lengths = require("pyarrow.compute", extra="parquet").list_value_length(ids).fill_null(0)
    values, sizes = (x.to_numpy(zero_copy_only=False) for x in (flat, lengths))
    return Ragged(values, sizes.astype(np.int64))


def _is_ids(kind: Any) -> bool:
    types = require("pyarrow.types", extra="parquet")
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return lists and types.is_integer(kind.value_type)


def _columns(path: str, schema: Any, fields: Fields, found: Found) -> str:
    """The column of text, once it and that of the labels are known to be what they should."""
    label_column(path, schema.names, fields)
    strings = [field.name for field in schema if _is_text(field.type)]
    turns = [field.name for field in schema if _TURNS.match(str(field.type))]
    if fields.text is None and turns and not {*USUAL}.intersection(schema.names):
        fields = fields._replace(text=turns[0])  # which is refused, instead of a column of names
    text = text_column(path, schema.names, strings, fields, found)
    refuse_repeated(path, schema.names, (text, fields.label))
    if text not in strings:
        kind = _shown(schema.field(text).type)
        there = f"pass one of {listed(strings)} as `text_field`, or " if strings else ""
        raise InputError(
            f"{path}: column {quoted(text)} is of type {kind}, not string; {there}"
            "write a column of strings"
        )
    if fields.label is not None and _is_nested(kind := schema.field(fields.label).type):
        raise InputError(
            f"{path}: column {quoted(fields.label)} is of type {_shown(kind)}; pass a column of "
            f"strings or numbers as `{fields.label_name}`"
        )
    return text


def _rows_of(
    batches: Iterator[Any], path: str, text: str, label: str | None
) -> Iterator[Row | NullRow]:
    number = 0
    for batch in batches:
        texts = batch[text]
        labels = [None] * len(texts) if label is None else batch[label]
        for value, its_label in zip(texts, labels, strict=True):
            place = f"{path}, row {number}"
            number += 1
            if value is None:
                yield NullRow(text, place)
                continue
            if len(value) > LARGEST_TEXT:
                raise InputError(
                    f"{place} has a text of {len(value):,} characters, and may have "
                    f"{LARGEST_TEXT:,}; cut longer documents"
                )
            yield Row(value, its_label, place)


def _read(batches: Iterator[Any]) -> Iterator[dict[str, list[Any]]]:
    """The values of batches by column, a few rows at a time, once they are known to be sound."""
    for batch in batches:
        batch.validate(full=True)
        for start in range(0, batch.num_rows, _AT_ONCE):
            part = batch.slice(start, _AT_ONCE)
            yield {name: part.column(name).to_pylist() for name in part.schema.names}


@contextlib.contextmanager
def _opened(path: str) -> Iterator[_Table]:
    """The file; what is raised of a damaged one inside is an `InputError`."""
    parquet = text_ending(path) == ".parquet"
    module = require(f"pyarrow.{'parquet' if parquet else 'ipc'}", extra="parquet")
    # C++ raises errors of many kinds, and its bindings others, such as of names that are not UTF-8.
    with readable(path, Exception), open_regular(path) as file:
        yield (_parquet if parquet else _arrow)(module, file)


def _parquet(module: Any, file: io.FileIO) -> _Table:
    opened = module.ParquetFile(
        file, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True
    )

    def batches(names: list[str]) -> Iterator[Any]:
        rows = _rows_at_once(opened.metadata)
        return opened.iter_batches(batch_size=rows, columns=names, use_threads=False)

    return _Table(opened.schema_arrow, opened.metadata.num_rows, batches)


def _rows_at_once(metadata: Any) -> int:
    """Number of rows to read at once, by the group with the largest ones.

    Of all columns: that of one is read in a way that ends the process where it is damaged.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    fewest = [_BYTES_AT_ONCE * group.num_rows // max(1, group.total_byte_size) for group in groups]
    return max(1, min([_AT_ONCE, *fewest]))


def _arrow(module: Any, file: io.FileIO) -> _Table:
    """A file that is read at random, or a stream, as Hugging Face writes it."""
    magic = file.read(len(_MAGIC))
    file.seek(0)
    options = module.IpcReadOptions(use_threads=False)
    if magic != _MAGIC:
        stream = module.open_stream(file, options=options)
        return _Table(stream.schema, None, lambda names: (batch.select(names) for batch in stream))
    whole = module.open_file(file, options=options)
    numbers = range(whole.num_record_batches)
    return _Table(
        whole.schema, None, lambda names: (whole.get_batch(n).select(names) for n in numbers)
    )


_MAGIC = b"ARROW1"


def _is_text(kind: Any) -> bool:
    types = require("pyarrow.types", extra="parquet")
    if types.is_dictionary(kind):
        kind = kind.value_type
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_nested(kind: Any) -> bool:
    return require("pyarrow.types", extra="parquet").is_nested(kind)


def _shown(kind: Any) -> str:
    text = " ".join(str(kind).split())
    return text if len(text) <= _TYPE else f"{text[:_TYPE]}..."
