"""Sources of documents: built-in names, files, folders, patterns, and splits of datasets."""

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from jaxpe._core.errors import InputError
from jaxpe._core.options import Choice
from jaxpe._core.progress import Progress
from jaxpe.data.corpora.corpus import Source, Sources, as_sources
from jaxpe.data.corpora.published import NAMED, named_rows
from jaxpe.data.corpora.stdlib import stdlib_documents
from jaxpe.data.formats.columns import Fields, ReadLog, Row
from jaxpe.data.formats.files import STANDARD_INPUT, file_name, listed
from jaxpe.data.formats.saved_datasets import is_saved, saved_files, saved_splits
from jaxpe.data.formats.table import (
    SUPPORTED,
    find_format,
    holds_ids,
    iter_rows,
    list_within_memory,
)
from jaxpe.data.formats.tfds_folders import is_tfds, tfds_name, tfds_splits

# Names of corpora without a path; sst2 and imdb are searched in the data folder.
BUILT_IN = ("stdlib", *NAMED, "synthetic")
TRAIN = "train"
# Usual names of splits to evaluate on; the labels of a test split are often not published.
_HELD_OUT = ("validation", "valid", "val", "dev", "eval", "test")
_SHARD = re.compile(r"[-_]\d+(-of-\d+)?(-[0-9a-f]{16})?$")  # as in train-00000-of-00002
_ROW_BYTES = 200  # bytes of a row without its text
_NAMES = 3  # names of sources that the name of a corpus lists


def source_paths(sources: Sources, *, split: str = TRAIN, log: ReadLog | None = None) -> list[str]:
    """Files of sources, each once, sorted in a folder or pattern; datasets by one split.

    Built-in names stay as they are. A split of a TFDS dataset is its folder with the name of the
    split after it.

    Args:
        sources: names, paths of files and folders, and patterns (`**` enters folders).
        split: split of datasets that have several, by their metadata or the names of their files.
        log: receives the split that was chosen where the source has several.

    Raises:
        InputError: no such file, an unknown kind, several kinds in a folder, or no such split.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("test.txt", "train-0.txt", "train-1.txt"):
    ...     _ = (folder / name).write_text("To be, or not to be\\n")
    >>> [Path(path).name for path in source_paths([folder, folder / "*.txt"])]
    ['train-0.txt', 'train-1.txt', 'test.txt']
    """
    paths: dict[str, str] = {}  # by resolved path
    for source in as_sources(sources):
        for path in _source_files(source, split, log or ReadLog()):
            paths.setdefault(os.path.realpath(path) if os.path.exists(path) else path, path)
    if not paths:
        raise InputError(f"no files; pass paths, folders or patterns of {SUPPORTED}")
    return [*paths.values()]


def held_out_split(sources: Sources) -> str | None:
    """Name of the published split of a source to evaluate on; None if it has none.

    >>> held_out_split("sst2"), held_out_split("stdlib")
    ('dev', None)
    """
    source = as_sources(sources)[0]
    if len(as_sources(sources)) > 1 or not (source in NAMED or os.path.isdir(source)):
        return None
    splits = NAMED[source].splits if source in NAMED else find_splits(source)
    return next((name for name in _HELD_OUT if TRAIN in splits and name in splits), None)


def source_name(sources: Sources) -> str:
    """Name of a corpus from its sources.

    >>> source_name("poems/haiku.txt"), source_name(["a.txt", "b.txt"])
    ('haiku.txt', 'a.txt + b.txt')
    """
    names = [*map(_name, as_sources(sources))]
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return " + ".join(names[:_NAMES]) + more


def hold_ids(paths: Iterable[str], text_field: str | None = None) -> bool:
    """Whether the documents of paths are token ids; raises `InputError` if only some are."""
    kinds = {
        path == "synthetic" or (path not in BUILT_IN and holds_ids(path, text_field)): path
        for path in paths
    }
    if len(kinds) > 1:
        raise InputError(
            f"{kinds[True]} holds token ids, and {kinds[False]} text; read one after the other"
        )
    return True in kinds


def read_documents(
    paths: Iterable[str],
    fields: Fields,
    log: ReadLog,
    *,
    split: str = TRAIN,
    data_dir: Source | None = None,
    progress: Progress,
) -> list[Row]:
    """Read the rows of all paths whose text is not blank, within memory."""

    def rows() -> Iterator[Row]:
        for path in paths:
            if path == "stdlib":
                yield from (Row(text, None, path) for text in stdlib_documents(progress=progress))
            elif path in NAMED:
                options = {"label_field": fields.label, "data_dir": data_dir}
                yield from named_rows(path, split=split, **options, progress=progress)
            else:
                part = ReadLog()
                yield from iter_rows(path, fields, part, progress)
                log.add(part, path)

    return list_within_memory(
        rows(), lambda row: sys.getsizeof(row.text) + _ROW_BYTES, what=source_name([*paths])
    )


def find_splits(path: str) -> dict[str, list[str]]:
    """Files and folders of each split, by its name; a source that is one split is "train"."""
    names = saved_splits(path) or tfds_splits(path)
    if is_saved(path) or is_tfds(path) or not os.path.isdir(path):
        return {name: [os.path.join(path, name)] for name in names} or {TRAIN: [path]}
    inside = sorted(glob.glob(os.path.join(glob.escape(path), "*")))
    files = [file for file in inside if os.path.isfile(file) and find_format(file)]
    if len({find_format(file) for file in files}) > 1:
        names = listed([*map(file_name, files)])
        raise InputError(f"{path} holds several kinds of files ({names}); pass a pattern of one")
    splits: dict[str, list[str]] = {}
    for file in files:
        splits.setdefault(_SHARD.sub("", file_name(file).partition(".")[0]), []).append(file)
    is_split = len(splits) > 1 and not splits.keys().isdisjoint((TRAIN, *_HELD_OUT))
    return splits if is_split else {TRAIN: files}


def _source_files(source: str, split: str, log: ReadLog) -> list[str]:
    """Files of one source, checked."""
    if source in BUILT_IN or source == STANDARD_INPUT:
        return [source]
    # A file name may contain a star.
    is_path = os.path.exists(source) or is_tfds(source)
    matches = [] if is_path else sorted(glob.glob(source, recursive=True))
    files = [file for path in matches or [source] for file in _split_files(path, split, log)]
    for file in files or [source]:
        _check_kind(file)
    return files


def _split_files(path: str, split: str, log: ReadLog) -> list[str]:
    """Files of a split of a file or folder."""
    splits = find_splits(path)
    if split not in splits:
        raise InputError(
            f"{path} has no split {split!r}, but {listed([*splits])}; pass one of them, or leave "
            f"`split` out and pass the file of {split!r}"
        )
    if len(splits) > 1 and split == TRAIN:
        name, files = next((name, files) for name, files in splits.items() if name != split)
        pattern = files[0] if len(files) == 1 else f"{os.path.join(path, name)}*"
        why = f"its usual name, among the splits {listed([*splits])}"
        log.choices += (Choice("split", split, why, f"pass {pattern}"),)
    return [file for x in splits[split] for file in (saved_files(x) if is_saved(x) else [x])]


def _check_kind(path: str) -> None:
    """Raise `InputError` for what is no file of a known kind."""
    exists = os.path.exists(path)
    if is_tfds(path) or (exists and find_format(path)):
        return
    fault = f"{path}: unknown kind of file" if exists else f"no such file: {path}"
    if os.path.isdir(path):
        fault = f"{path} is a folder without files to read"
    raise InputError(
        f"{fault}; pass paths, folders or patterns (in quotes) of {SUPPORTED}, the folder of a "
        "TFDS dataset (with dataset_info.json and features.json) or of a Hugging Face dataset, '-' "
        f"for standard input, or one of the built-in corpora {', '.join(BUILT_IN)}"
    )


def _name(source: str) -> str:
    """Name of one source, from its path."""
    if source not in BUILT_IN and is_tfds(source):
        return tfds_name(source) + ("" if os.path.isdir(source) else f" {Path(source).name}")
    return "stdin" if source == STANDARD_INPUT else file_name(source)


def chosen_fields(paths, fields, log):
    return fields
