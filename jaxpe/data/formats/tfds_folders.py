"""Folders that `export_corpus` wrote: TFDS datasets with a `metadata.json`."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jaxpe._core.errors import InputError, require
from jaxpe._core.json_values import from_json, read_json
from jaxpe._core.progress import Progress
from jaxpe.data.formats.columns import Fields, ReadLog, Row
from jaxpe.data.formats.files import file_name, readable
from jaxpe.data.formats.saved_datasets import is_saved

_INFO, _METADATA = "dataset_info.json", "metadata.json"  # names that TFDS gives
_LARGEST_METADATA = 2**27  # bytes; ten million tokens have less
_AT_ONCE = 1000  # rows that are read at once


class Metadata(NamedTuple):
    """Content of `metadata.json`: the fields of a corpus beside its rows."""

    kind: Literal["text", "tokens"]
    name: str
    tokenizer: str = ""
    vocab_size: int = 0
    exclude: tuple[int, ...] = ()
    tokens: list[str] = []  # noqa: RUF012
    longest: int = 0


def is_exported(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder looks like a TFDS dataset."""
    return (Path(folder) / _INFO).is_file() and not is_saved(folder)


def read_metadata(folder: str) -> Metadata:
    """Metadata of an exported corpus; raises `InputError` for another folder."""
    if not is_exported(folder):
        raise InputError(f"{folder} holds no corpus; pass a directory that export_corpus wrote")
    path = Path(folder) / _METADATA
    if not path.exists():
        raise InputError(
            f"{folder} is a data set that export_corpus did not write; pass its .parquet or "
            ".arrow files, or save its texts as .jsonl"
        )
    remedy = "export the corpus again"
    try:
        fields = read_json(path, remedy=remedy, largest=_LARGEST_METADATA)
        return from_json(Metadata, fields, where=str(path))
    except InputError as error:  # also of a version that wrote other fields
        raise InputError(f"{error}; {remedy}") from error


def exported_source(folder: str) -> Any:
    """The data source of TFDS for an exported corpus: random access to its rows."""
    read_metadata(folder)
    tfds = require("tensorflow_datasets", extra="data")
    with readable(folder, Exception):
        return tfds.builder_from_directory(folder).as_data_source("train")


def iter_exported(folder: str, progress: Progress) -> Iterator[dict[str, Any]]:
    """The rows of an exported corpus in order."""
    source = exported_source(folder)
    with readable(folder, Exception):
        yield from progress.track(
            batched_rows(source), f"Reading {file_name(folder)}", total=len(source)
        )


def batched_rows(source: Any) -> Iterator[dict[str, Any]]:
    """Rows of a TFDS data source, read in blocks, which is a hundred times faster."""
    numbers = range(len(source))
    for start in numbers[::_AT_ONCE]:
        yield from source.__getitems__(numbers[start : start + _AT_ONCE])


def exported_rows(folder: str, fields: Fields, log: ReadLog, progress: Progress) -> Iterator[Row]:
    """Read the texts of an exported corpus."""
    rows = enumerate(iter_exported(folder, progress))
    return (Row(row["text"].decode(), None, f"{folder}, row {number}") for number, row in rows)


def exported_files(folder: str) -> list[str]:
    """The record files of an exported corpus, in order."""
    return sorted(map(str, Path(folder).glob("*array_record*")))
