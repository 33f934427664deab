"""TFDS datasets in array_record files, among them those that `export_corpus` writes."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError, require
from jaxpe._core.json_values import from_json, read_json
from jaxpe._core.progress import Progress
from jaxpe.data.formats.columns import (
    Fields,
    ReadLog,
    Row,
    class_name,
    label_column,
    text_column,
)
from jaxpe.data.formats.files import file_name, listed, quoted, readable
from jaxpe.data.formats.tfds_features import check_features

# Names that TFDS gives.
_INFO, _FEATURES, _METADATA = "dataset_info.json", "features.json", "metadata.json"
_REMEDY = "pass a folder that TFDS wrote"
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


def is_tfds(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a TFDS dataset, or the folder of one with the name of a split after it."""
    folder, name = _folder(path), Path(path).name
    is_dataset = all((folder / file).is_file() for file in (_INFO, _FEATURES))
    return is_dataset and (Path(path).is_dir() or name in _splits(path))


def tfds_splits(path: str | os.PathLike[str]) -> list[str]:
    """Names of the splits of a TFDS dataset that has several; [] of other paths."""
    names = _splits(path) if os.path.isdir(path) and is_tfds(path) else []
    return names if len(names) > 1 else []


def tfds_name(path: str) -> str:
    """Name of a TFDS dataset, or of the corpus that was exported."""
    if is_exported(path):
        return read_metadata(path).name
    return str(read_json(_folder(path) / _INFO, remedy=_REMEDY).get("name"))


def tfds_columns(path: str) -> list[str]:
    """Names of the features of a TFDS dataset."""
    return [*_features(path)]


def tfds_rows(path: str, fields: Fields, log: ReadLog, progress: Progress) -> Iterator[Row]:
    """Read the texts of a split, with its labels; the names of classes are their labels.

    Raises:
        InputError: a damaged dataset, no such split or feature, or a feature that is no text.
        MissingExtraError: TFDS is not installed.
    """
    features = _features(path)
    label_column(path, [*features], fields)
    texts = [name for name, kind in features.items() if _is_text(kind)]
    if len(features) == 1 and fields.text is None:
        fields = fields._replace(text=texts[0] if texts else None)
    text = text_column(path, [*features], texts, fields, log)
    if text not in texts:
        raise InputError(
            f"{path}: feature {quoted(text)} is no text; pass one of {listed(texts)} as "
            "`text_field`"
        )
    if fields.label is not None:
        feature = _builder(path).info.features[fields.label]
        log.classes = tuple(getattr(feature, "names", None) or ())
    fields = fields._replace(text=text)
    return source_rows(tfds_source(path), fields, log.classes, path, progress)


def source_rows(
    source: Any, fields: Fields, classes: Sequence[str], where: str, progress: Progress
) -> Iterator[Row]:
    """Rows of a TFDS data source, by the names of its features of text and label."""
    with readable(where, UnicodeDecodeError):
        for number, row in enumerate(examples(source, where, progress)):
            text, label = row[fields.text], None if fields.label is None else row[fields.label]
            label = label.decode() if isinstance(label, bytes) else np.asarray(label).tolist()
            yield Row(text.decode(), class_name(label, classes), f"{where}, row {number}")


def examples(source: Any, where: str, progress: Progress) -> Iterator[Any]:
    """Examples of a TFDS data source in order, read in blocks, which is a hundred times faster."""
    starts = range(0, len(source), _AT_ONCE)
    with readable(where, Exception):
        for start in progress.track(starts, f"Reading {file_name(where)}", total=len(starts)):
            yield from source.__getitems__(range(start, min(start + _AT_ONCE, len(source))))


def tfds_source(path: str) -> Any:
    """The data source of TFDS for a split: random access to its rows."""
    kind = read_json(_folder(path) / _INFO, remedy=_REMEDY).get("fileFormat")
    if kind != "array_record":
        raise InputError(
            f"{path} holds {kind} files; build the dataset with file_format='array_record', or "
            "convert it by tfds convert_format"
        )
    with readable(path, Exception):
        return _builder(path).as_data_source(_split(path))


def tfds_files(path: str) -> list[str]:
    """The record files of a split, in order."""
    return [str(file) for file in _builder(path).info.splits[_split(path)].filepaths]


def is_exported(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a corpus that `export_corpus` wrote."""
    return is_tfds(path) and (_folder(path) / _METADATA).is_file()


def holds_tokens(path: str) -> bool:
    """Whether a path is an exported corpus of token ids."""
    return is_exported(path) and read_metadata(path).kind == "tokens"


def read_metadata(folder: str) -> Metadata:
    """Metadata of an exported corpus; raises `InputError` for another folder."""
    if not is_exported(folder):
        raise InputError(f"{folder} holds no corpus; pass a directory that export_corpus wrote")
    path, remedy = _folder(folder) / _METADATA, "export the corpus again"
    try:
        fields = read_json(path, remedy=remedy, largest=_LARGEST_METADATA)
        return from_json(Metadata, fields, where=str(path))
    except InputError as error:  # also of a version that wrote other fields
        raise InputError(f"{error}; {remedy}") from error


def _folder(path: str | os.PathLike[str]) -> Path:
    """Folder of a dataset, from its path or the path of a split."""
    return Path(path) if Path(path).is_dir() else Path(path).parent


def _split(path: str) -> str:
    """Name of the split of a path; of a folder alone, its only one."""
    return _splits(path)[0] if Path(path).is_dir() else Path(path).name


def _splits(path: str | os.PathLike[str]) -> list[str]:
    splits = read_json(_folder(path) / _INFO, remedy=_REMEDY).get("splits") or ()
    return [str(split["name"]) for split in splits]


def _builder(path: str) -> Any:
    check_features(_folder(path))
    tfds = require("tensorflow_datasets", extra="data")
    with readable(path, Exception):
        return tfds.builder_from_directory(_folder(path))


def _features(path: str) -> dict[str, Any]:
    """Kinds of the features of a dataset by name, as TFDS describes them."""
    kinds = read_json(_folder(path) / _FEATURES, remedy=_REMEDY)
    for name in ("featuresDict", "features"):
        kinds = kinds.get(name) or {}
    return kinds


def _is_text(kind: dict[str, Any]) -> bool:
    tensor = kind.get("tensor") or {}
    return "text" in kind or (tensor.get("dtype") == "string" and not tensor.get("shape"))
