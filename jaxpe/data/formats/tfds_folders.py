"""TFDS datasets in array_record files."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxpe._core.errors import InputError, require
from jaxpe._core.files import check_regular
from jaxpe._core.json_values import from_json, read_json
from jaxpe._core.progress import Progress
from jaxpe.data.formats.columns import ReadLog, Record
from jaxpe.data.formats.files import file_name, readable
from jaxpe.data.formats.tfds_features import check_features

_INFO, _FEATURES = "dataset_info.json", "features.json"  # names that TFDS gives
_REMEDY = "pass a folder that TFDS wrote"
_AT_ONCE = 1000  # rows that are read at once


def is_tfds(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a TFDS dataset, or the folder of one with the name of a split after it."""
    folder, name = _folder(path), Path(path).name
    is_dataset = all((folder / file).is_file() for file in (_INFO, _FEATURES))
    return is_dataset and (Path(path).is_dir() or name in _splits(path))


def check_complete(folder: str) -> None:
    """Raise `InputError` for records of a TFDS dataset whose description is missing."""
    records = re.compile(r".*\.(array_record|tfrecord)\b")
    if not is_tfds(folder) and any(records.match(path.name) for path in Path(folder).glob("*")):
        raise InputError(
            f"{folder} holds records of TFDS, but not both files {_INFO} and {_FEATURES}; {_REMEDY}"
        )


def tfds_splits(path: str | os.PathLike[str]) -> list[str]:
    """Names of the splits of a TFDS dataset that has several; [] of other paths."""
    names = _splits(path) if os.path.isdir(path) and is_tfds(path) else []
    return names if len(names) > 1 else []


def tfds_name(path: str) -> str:
    """Name of a TFDS dataset."""
    return str(read_json(_folder(path) / _INFO, remedy=_REMEDY).get("name"))


def tfds_records(
    path: str, columns: Sequence[str] | None, log: ReadLog, progress: Progress
) -> Iterator[Record]:
    """Read the examples of a split.

    Raises:
        InputError: a damaged dataset, or one in other files.
        MissingExtraError: TFDS is not installed.
    """
    kind = read_json(_folder(path) / _INFO, remedy=_REMEDY).get("fileFormat")
    if kind != "array_record":
        remedy = "build the dataset with file_format='array_record', or tfds convert_format"
        raise InputError(f"{path} holds {kind} files; {remedy}")
    with readable(path, Exception):
        source = _builder(path).as_data_source(_split(path))
    return source_records(source, path, progress)


def source_records(source: Any, where: str, progress: Progress) -> Iterator[Record]:
    """Examples of a TFDS data source in order, read in blocks, which is a hundred times faster."""
    starts = range(0, len(source), _AT_ONCE)
    with readable(where, Exception):
        for start in progress.track(starts, f"Reading {file_name(where)}", total=len(starts)):
            numbers = range(start, min(start + _AT_ONCE, len(source)))
            for number, example in zip(numbers, source.__getitems__(numbers), strict=True):
                row = {name: _plain(value) for name, value in example.items()}
                yield f"{where}, row {number}", row


def tfds_classes(path: str, label: str) -> tuple[str, ...]:
    """Names of the classes of a feature; empty without any."""
    features = _builder(path).info.features
    return tuple(getattr(features[label], "names", None) or ()) if label in features else ()


def tfds_files(path: str) -> list[str]:
    """The record files of a split, in order."""
    return [str(file) for file in _builder(path).info.splits[_split(path)].filepaths]


def _folder(path: str | os.PathLike[str]) -> Path:
    """Folder of a dataset, from its path or the path of a split."""
    return Path(path) if Path(path).is_dir() else Path(path).parent


def _split(path: str) -> str:
    """Name of the split of a path; of a folder alone, its only one."""
    return _splits(path)[0] if Path(path).is_dir() else Path(path).name


def _splits(path: str | os.PathLike[str]) -> list[str]:
    info = _folder(path) / _INFO
    splits = read_json(info, remedy=_REMEDY).get("splits") or []
    splits = from_json(list[dict[str, Any]], splits, where=f"{info}: splits")
    return [str(split.get("name")) for split in splits]


def _builder(path: str) -> Any:
    check_regular(_folder(path))  # TFDS would wait for a pipe
    check_features(_folder(path))
    tfds = require("tensorflow_datasets", extra="data")
    with readable(path, Exception):
        return tfds.builder_from_directory(_folder(path))


def _plain(value: Any) -> Any:
    """Value of an example in Python's types; bytes that are not UTF-8 stay bytes."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return np.asarray(value).tolist()
