"""Check of the classes and file names in a TFDS folder, before TFDS reads it."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxpe._core.errors import InputError, shortened
from jaxpe._core.json_values import read_json

_INFO, _FEATURES = "dataset_info.json", "features.json"
_REMEDY = "pass a folder that TFDS wrote"
# TFDS imports the module of any other class that it reads the name of. A subclass would bring its
# own `from_json_content`, so the names are listed, and not looked up in TFDS.
_CLASS = re.compile(
    r"tensorflow_datasets\.core\.features\.(audio_feature\.Audio|bounding_boxes\.BBoxFeature"
    r"|class_label_feature\.ClassLabel|dataset_feature\.Dataset|feature\.Tensor"  # an earlier name
    r"|features_dict\.FeaturesDict|image_feature\.Image|labeled_image\.LabeledImage|scalar\.Scalar"
    r"|sequence_feature\.Sequence|tensor_feature\.Tensor|text_feature\.Text"
    r"|translation_feature\.Translation(VariableLanguages)?|video_feature\.Video)"
)
# Other names of a class: an earlier version, and text that may hold further classes.
_UNREAD = ("type", "python_class_name", "jsonFeature")
_NAMES = ("name", "filepathTemplate", "filepath_template")  # the last two are one field
# A file of the folder: no separator, and in braces only the names of TFDS.
_FILE_NAME = re.compile(r"([^/\\{}]|\{[A-Z_]+\})*")


def check_features(folder: Path) -> None:
    """Check that a TFDS folder names only classes of TFDS, and only files of the folder.

    Raises:
        InputError: another class, also inside of a feature; an unknown kind of feature; or the name
            of a dataset, split or file that is a path.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "dataset_info.json").write_text("{}")
    >>> feature = {"pythonClassName": "my_module.Feature", "text": {}}
    >>> _ = (folder / "features.json").write_text(json.dumps(feature))
    >>> check_features(folder)
    Traceback (most recent call last):
    jaxpe.InputError: ...features.json: ...'my_module.Feature' is no class of TFDS...
    """
    info, features = (read_json(folder / name, remedy=_REMEDY) for name in (_INFO, _FEATURES))
    for name, value in itertools.chain(_entries(features), _entries(info.get("features"))):
        if name == "pythonClassName" and not _CLASS.fullmatch(str(value)):
            fault = f"{shortened(value)!r} is no class of TFDS, and no other is imported"
            raise InputError(f"{folder / _FEATURES}: {fault}; build it from features of TFDS")
        if name in _UNREAD:
            raise InputError(f"{folder / _FEATURES} has a field {name}, not read; {_REMEDY}")
    for name, value in itertools.chain(_entries(info.get("splits")), [("name", info.get("name"))]):
        if name in _NAMES and not _FILE_NAME.fullmatch(str(value)):
            raise InputError(f"{folder / _INFO}: {shortened(value)!r} is no file name; {_REMEDY}")


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of all objects inside of a JSON value."""
    items = value.items() if isinstance(value, dict) else ()
    yield from items
    for inside in [*(x for _, x in items), *(value if isinstance(value, list) else ())]:
        yield from _entries(inside)
