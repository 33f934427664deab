"""Check of the classes and file names in a TFDS folder, before TFDS reads it."""

import re
from pathlib import Path
from typing import Any

from jaxpe._core.errors import InputError, shortened
from jaxpe._core.json_values import read_json

_INFO, _FEATURES = "dataset_info.json", "features.json"
_REMEDY = "pass a folder that TFDS wrote"
# TFDS imports the module of any other class that it reads the name of. A subclass would bring its
# own `from_json_content`, so the names are listed, and not looked up in TFDS.
_CLASSES = tuple(
    f"tensorflow_datasets.core.features.{name}"
    for name in (
        "audio_feature.Audio",
        "bounding_boxes.BBoxFeature",
        "class_label_feature.ClassLabel",
        "dataset_feature.Dataset",
        "feature.Tensor",  # the name of earlier versions
        "features_dict.FeaturesDict",
        "image_feature.Image",
        "labeled_image.LabeledImage",
        "scalar.Scalar",
        "sequence_feature.Sequence",
        "tensor_feature.Tensor",
        "text_feature.Text",
        "translation_feature.Translation",
        "translation_feature.TranslationVariableLanguages",
        "video_feature.Video",
    )
)
# Fields of feature.proto. Not among them is jsonFeature, whose text may hold further classes.
_COMMON = {"pythonClassName", "description", "valueRange"}
_KINDS = {
    *("audio", "boundingBox", "classLabel", "featuresDict", "image", "sequence", "tensor", "text"),
    *("translation", "video"),
}
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
    path = folder / _INFO
    info, features = (read_json(folder / name, remedy=_REMEDY) for name in (_INFO, _FEATURES))
    _check_tree(features, folder / _FEATURES)
    if "features" in info:
        _check_tree(info["features"], path)
    listed = info.get("splits", [])
    splits = [_fields(x, path) for x in (listed if isinstance(listed, list) else [listed])]
    for name in [info.get("name"), *(split.get(key) for split in splits for key in _NAMES)]:
        if name is not None and not _FILE_NAME.fullmatch(str(name)):
            raise InputError(f"{path}: {shortened(name)!r} is no file name; {_REMEDY}")


def _check_tree(tree: Any, path: Path) -> None:
    """Check the classes of a feature and of all features in it."""
    features = [tree]
    while features:
        feature = _fields(features.pop(), path)
        name, kinds = str(feature.get("pythonClassName")), feature.keys() - _COMMON
        if name not in _CLASSES:
            raise InputError(
                f"{path}: {shortened(name)!r} is no class of TFDS, and no other class is imported; "
                "build the dataset from features of TFDS"
            )
        if len(kinds) != 1 or not kinds <= _KINDS:
            raise InputError(
                f"{path} describes a feature by {', '.join(sorted(map(shortened, kinds)))}, "
                f"which is not read; {_REMEDY}"
            )
        content = _fields(feature[kinds.pop()], path)
        features += _fields(content.get("features", {}), path).values()
        if "feature" in content:
            features.append(content["feature"])


def _fields(value: Any, path: Path) -> dict[str, Any]:
    """Fields of a JSON object; raises for another value."""
    if not isinstance(value, dict):
        raise InputError(f"{path}: {shortened(value)} is no JSON object; {_REMEDY}")
    return value
