"""Hugging Face datasets that were saved to disk: a folder of Arrow files."""

import os
from pathlib import Path

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import read_json

_STATE, _SPLITS = "state.json", "dataset_dict.json"
_REMEDY = "pass a folder that save_to_disk of Hugging Face datasets wrote"


def is_saved(directory: str | os.PathLike[str]) -> bool:
    """Whether a folder is a dataset that was saved to disk, or several splits of one.

    >>> import tempfile
    >>> is_saved(tempfile.mkdtemp())
    False
    """
    return any((Path(directory) / name).is_file() for name in (_STATE, _SPLITS))


def saved_splits(directory: str | os.PathLike[str]) -> list[str]:
    """Names of the splits of a `DatasetDict` that was saved to disk; [] of a single dataset."""
    path = Path(directory) / _SPLITS
    splits = read_json(path, remedy=_REMEDY).get("splits") if path.is_file() else ()
    return [split for split in splits or () if isinstance(split, str)]


def saved_files(directory: str | os.PathLike[str]) -> list[str]:
    """The Arrow files of a dataset that was saved to disk, in its order.

    Raises:
        InputError: rows chosen by indices beside the files, or no such files.
    """
    folder = Path(directory)
    state = read_json(folder / _STATE, remedy=_REMEDY)
    if state.get("_indices_data_files"):
        remedy = "call flatten_indices of the dataset before save_to_disk"
        raise InputError(f"{folder} was saved with rows chosen by indices; {remedy}")
    files = state.get("_data_files")
    names = [str(file.get("filename")) for file in files or () if isinstance(file, dict)]
    if not names or any(Path(name).name != name for name in names):
        raise InputError(f"{folder / _STATE} names no files of the folder; {_REMEDY}")
    return [str(folder / name) for name in names]
