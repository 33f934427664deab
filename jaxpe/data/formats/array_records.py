"""Documents of .array_record files: one text or JSON object per record."""

import re
from collections.abc import Iterator

from jaxpe._core.errors import InputError, require
from jaxpe._core.progress import Progress
from jaxpe.data.formats.columns import Fields, NullRow, ReadLog, Row
from jaxpe.data.formats.files import LARGEST_TEXT, file_name, open_regular, readable
from jaxpe.data.formats.json_rows import json_rows

_AT_ONCE = 256  # records that are read at once
# A tf.train.Example: lengths of the features and of the first one, and its name.
_EXAMPLE = re.compile(rb"\n.{1,5}?\n.{1,5}?\n.[\w/ -]+\x12", re.DOTALL)


def record_rows(
    path: str, fields: Fields, log: ReadLog, progress: Progress
) -> Iterator[Row | NullRow]:
    """Read the records of a file: texts, or with a text or label field JSON objects.

    Raises:
        InputError: no regular file, a damaged one, or a record that is too long or not UTF-8.
    """
    if fields.text is None and fields.label is None:
        return (Row(text, None, location) for location, text in _texts(path, progress))
    return json_rows(_texts(path, progress), fields, log)


def _texts(path: str, progress: Progress) -> Iterator[tuple[str, str]]:
    """Place and text of each record."""
    reader = require("array_record.python.array_record_data_source", extra="data")
    with readable(path, Exception):  # errors of C++ are of many types
        open_regular(path).close()
        source = reader.ArrayRecordDataSource([path])
        starts = range(0, len(source), _AT_ONCE)
        numbers = progress.track(starts, f"Reading {file_name(path)}", total=len(starts))
        for start in numbers:
            batch = source.__getitems__(range(start, min(start + _AT_ONCE, len(source))))
            for number, record in enumerate(batch, start=start):
                yield _record_text(record, f"{path}, record {number}")


def _record_text(record: bytes, location: str) -> tuple[str, str]:
    if len(record) > LARGEST_TEXT:
        raise InputError(
            f"{location} has {len(record):,} bytes, and may have {LARGEST_TEXT:,}; cut longer "
            "documents"
        )
    try:
        if _EXAMPLE.match(record):
            raise ValueError("it is a serialized example")
        return location, record.decode()
    except ValueError as error:  # also of bytes that are not UTF-8
        raise InputError(
            f"{location} is not text in UTF-8: {error}; write texts or JSON objects, or pass the "
            "folder of the TFDS dataset, with dataset_info.json and features.json"
        ) from error
