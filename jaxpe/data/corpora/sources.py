"""Sources of documents: built-in names, files, folders, patterns, and splits of datasets."""

import glob
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxpe._core.errors import InputError
from jaxpe._core.options import Choice
from jaxpe._core.progress import SILENT, Progress
from jaxpe.data.corpora.corpus import Source, Sources, as_sources
from jaxpe.data.corpora.published import NAMED, named_rows
from jaxpe.data.corpora.stdlib import stdlib_documents
from jaxpe.data.formats.columns import (
    TEXT,
    Fields,
    ReadLog,
    Row,
    chosen_column,
    missing_column,
    null_text,
)
from jaxpe.data.formats.files import (
    COMPRESSED,
    SHOWN,
    STANDARD_INPUT,
    file_name,
    listed,
    open_regular,
    quoted,
    readable,
)
from jaxpe.data.formats.saved_datasets import is_saved, saved_files, saved_splits
from jaxpe.data.formats.table import (
    SUPPORTED,
    TABLES,
    find_format,
    has_columns,
    holds_ids,
    iter_rows,
    list_within_memory,
    read_records,
)
from jaxpe.data.formats.tfds_folders import check_complete, is_tfds, tfds_name, tfds_splits

# Names of corpora without a path; sst2 and imdb are searched in the data folder.
BUILT_IN = ("stdlib", *NAMED, "synthetic")
TRAIN = "train"
# Usual names of splits to evaluate on; the labels of a test split are often not published.
_HELD_OUT = ("validation", "valid", "val", "dev", "eval", "test")
_ROWS, _ROWS_PER_FILE = 1000, 10  # least numbers of first rows that decide the column of text
_SHARD = re.compile(r"[-_]\d+(-of-\d+)?(-[0-9a-f]{16})?$")  # as in train-00000-of-00002
_COMPRESSED = re.compile("(" + "|".join(map(re.escape, COMPRESSED)) + ")$")
_OTHER_FILES = {
    b"version https://git-lfs": "a pointer of Git LFS; fetch the file by git lfs pull",
    b"PK\x03\x04": "a zip archive, such as an .xlsx or a .pt; save the data in another format",
    b"%PDF-": "a PDF; save its text",
}
# Files beside the data: notes, and caches that `map` of Hugging Face datasets leaves.
_NO_DATA = re.compile(r"(?i:readme|licen[cs]e|notice|changelog)\.txt|cache-\w+\.arrow")
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
    unpacked: dict[str, str] = {}
    for path in paths.values():
        other = unpacked.setdefault(re.sub(_COMPRESSED, "", path), path)
        if other != path:
            raise InputError(f"{other} and {path} seem to be one file; pass one")
    return [*paths.values()]


def chosen_fields(paths: Sequence[str], fields: Fields, log: ReadLog) -> Fields:
    """Fields of a job with the column of text or ids, which is decided once for all its files.

    A column that the user named must exist in one of the files. Otherwise the first rows of all
    files decide, at least a thousand together and ten of each, as `load_corpus` says.

    Args:
        paths: files of a job, from `source_paths`.
        fields: columns that the user named.
        log: receives the choice.

    Raises:
        InputError: no such column, it is not clear which column is meant, or a column of files
            without columns.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "films.csv"
    >>> _ = path.write_text("stars,review\\n4,good fun\\n")
    >>> chosen_fields([str(path)], Fields(None, None), ReadLog()).text
    'review'
    """
    tables = [path for path in paths if path not in BUILT_IN and has_columns(path)]
    for path in {*paths} - {*tables}:
        _check_without_columns(path, fields)
    where = "".join(tables[:1]) + (f", and {len(tables) - 1} more" if len(tables) > 1 else "")
    # Rows without the text are left out, so perhaps all of the first ones.
    text = None if fields.skip_nulls else fields.text
    for argument, name in ((fields.label_name, fields.label), ("text_field", text)):
        if name is None or any(name in record for record in _first_records(tables, [name])):
            continue
        if columns := dict.fromkeys(itertools.chain.from_iterable(_first_records(tables, None))):
            raise missing_column(where, [*columns], name, argument)
    records = [*_first_records(tables, None)] if fields.text is None else []
    if not records:
        return fields
    what = "ids" if hold_ids(tables) else "text"
    return fields._replace(text=chosen_column(where, records, fields, log, what=what))


def _first_records(paths: Sequence[str], columns: Any) -> Iterator[dict[str, Any]]:
    """First rows of each file; of long values the beginning, which may be large otherwise."""
    number = max(_ROWS_PER_FILE, -(-_ROWS // max(1, len(paths))))
    for path in paths:
        records = read_records(path, columns, ReadLog(), SILENT)
        for _, record in itertools.islice(records, number):
            yield {
                name: value[:SHOWN] if isinstance(value, str | bytes | list) else value
                for name, value in record.items()
            }


def _check_without_columns(path: str, fields: Fields) -> None:
    """Raise `InputError` for names of columns of a path without columns."""
    if fields.text is not None:
        raise InputError(f"{path} has no columns; leave `text_field` out (it is for {TABLES})")
    if fields.label is not None and not (path in NAMED and fields.label_name == "label_field"):
        remedy = f"pass {TABLES} or {', '.join(NAMED)}, or leave `{fields.label_name}` out"
        raise InputError(f"{path} has no columns; {remedy}")


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
        raise InputError(f"{kinds[True]} holds token ids, and {kinds[False]} text; pass one kind")
    return True in kinds


def read_documents(
    paths: Sequence[str],
    fields: Fields,
    log: ReadLog,
    *,
    split: str = TRAIN,
    data_dir: Source | None = None,
    progress: Progress,
) -> list[Row]:
    """Read the rows of all paths whose text is not blank, within memory."""
    chosen, name = chosen_fields(paths, fields, log), source_name([*paths])
    if chosen.text not in (fields.text, TEXT):
        progress.say(f"{name}: the texts are of the column {quoted(str(chosen.text))}")

    def rows() -> Iterator[Row]:
        for path in paths:
            if path == "stdlib":
                yield from (Row(text, None, path) for text in stdlib_documents(progress=progress))
            elif path in NAMED:
                options = {"label_field": fields.label, "data_dir": data_dir}
                yield from named_rows(path, split=split, **options, progress=progress)
            else:
                yield from iter_rows(path, chosen, log, progress)

    read = list_within_memory(rows(), lambda row: sys.getsizeof(row.text) + _ROW_BYTES, what=name)
    if log.null_texts and not read:
        raise null_text(name, str(chosen.text), f"in all {log.null_texts:,} rows")
    return read


def find_splits(path: str) -> dict[str, list[str]]:
    """Files and folders of each split, by its name; a source that is one split is "train"."""
    names = saved_splits(path) or tfds_splits(path)
    if is_saved(path) or is_tfds(path) or not os.path.isdir(path):
        return {name: [os.path.join(path, name)] for name in names} or {TRAIN: [path]}
    check_complete(path)
    files = _data_files(path)
    if not files and (nested := _nested_folders(path)):
        if len(nested) > 1:
            names = listed([*map(file_name, nested)])
            raise InputError(f"{path} has no files of its own; pass one of its folders {names}")
        return find_splits(nested[0])
    if len({find_format(file) for file in files}) > 1:
        names = listed([*map(file_name, files)])
        raise InputError(f"{path} holds several kinds of files ({names}); pass a pattern of one")
    _check_shards(files)
    words = {file: _split_word(file) for file in files}
    if len({*words.values()} - {None}) < 2:  # the word may be part of a title
        words = dict.fromkeys(files)
    splits: dict[str, list[str]] = {}
    for file, word in words.items():
        stem = _SHARD.sub("", file_name(file).partition(".")[0])
        splits.setdefault(word or stem, []).append(file)
    is_split = len(splits) > 1 and not splits.keys().isdisjoint((TRAIN, *_HELD_OUT))
    return splits if is_split else {TRAIN: files}


def _data_files(folder: str) -> list[str]:
    """Files of known kinds in a folder, also links and pipes, which are refused when read."""
    inside = sorted(glob.glob(os.path.join(glob.escape(folder), "*")))
    files = [file for file in inside if not os.path.isdir(file) and find_format(file)]
    return [file for file in files if not _NO_DATA.fullmatch(file_name(file))] or files


def _check_shards(files: Iterable[str]) -> None:
    """Raise `InputError` where names such as train-00000-of-00002 show that a file is missing."""
    shards: dict[tuple[str, str], set[str]] = {}
    for file in files:
        if found := re.match(r"(.*?)[-_.](\d+)-of-(\d+)\b", file):
            shards.setdefault((found[1], found[3]), set()).add(found[2])
    for (stem, total), numbers in shards.items():
        if len(numbers) < int(total):
            raise InputError(
                f"{stem}: {len(numbers)} of {int(total)} files are there; fetch the others, or "
                "pass a pattern of these"
            )


def _nested_folders(folder: str) -> list[str]:
    """Folders in a folder that are datasets, or hold files of known kinds at any depth."""
    inside = sorted(path for path in Path(folder).glob("*/") if path.name[0] != ".")
    return [
        str(path)
        for path in inside
        if is_tfds(path) or is_saved(path) or any(find_format(str(x)) for x in path.rglob("*.*"))
    ]


def _split_word(file: str) -> str | None:
    """Usual name of a split within the name of a file; None without one."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Za-z])(?=\d)", "_", file_name(file))
    words = [re.sub("(ing|set|data)$", "", x) for x in re.split(r"[\W_]+", parted.lower())]
    # The last one: train_test_split_test holds the test split.
    return next((word for word in reversed(words) if word in (TRAIN, *_HELD_OUT)), None)


def _source_files(source: str, split: str, log: ReadLog) -> list[str]:
    """Files of one source, checked."""
    if source in BUILT_IN or source == STANDARD_INPUT:
        return [source]
    # A file name may contain a star.
    is_path = os.path.lexists(source) or is_tfds(source)
    matches = [] if is_path else _matches(source)
    files = [file for path in matches or [source] for file in _split_files(path, split, log)]
    for file in files or [source]:
        _check_kind(file)
    return files


def _matches(pattern: str) -> list[str]:
    """Files and datasets of a pattern, sorted; links to folders are not followed by `**`."""
    parts = Path(pattern).parts
    fixed = [*itertools.takewhile(lambda part: not glob.has_magic(part), parts)]
    # `**` within a name is a star.
    rest = [x if x == "**" else re.sub(r"\*+", "*", x) for x in parts[len(fixed) :]]
    base = Path(*fixed)
    found = base.glob(os.path.join(*rest)) if rest else ()
    hidden = re.compile(r"\.(?!\.$)")
    if not any(map(hidden.match, rest)):
        found = (x for x in found if not any(map(hidden.match, x.parts[len(fixed) :])))
    return sorted(
        str(path)
        for path in found
        if not path.is_dir() or is_tfds(path) or is_saved(path) or _data_files(str(path))
    )


def _split_files(path: str, split: str, log: ReadLog) -> list[str]:
    """Files of a split of a file or folder."""
    splits = find_splits(path)
    if split not in splits:
        remedy = f"pass one of them, or its path, such as {next(iter(splits.values()))[0]}"
        raise InputError(f"{path} has no split {split!r}, but {listed([*splits])}; {remedy}")
    if len(splits) > 1 and split == TRAIN:
        name, files = next((name, files) for name, files in splits.items() if name != split)
        pattern = os.path.join(os.path.dirname(files[0]), f"*{name}*")
        is_exact = len(files) > 1 and sorted(glob.glob(pattern)) == files
        others = pattern if is_exact else " ".join(files)
        why = f"its usual name, among the splits {listed([*splits])}"
        log.choose(Choice("split", split, why, f"pass {others}"))
    return [file for x in splits[split] for file in (saved_files(x) if is_saved(x) else [x])]


def _check_kind(path: str) -> None:
    """Raise `InputError` for what is no regular file of a known kind."""
    if os.path.islink(path) and not os.path.exists(path):
        fault = f"{path} is a link to {os.readlink(path)}, which does not exist"
        raise InputError(f"{fault}; fetch that file (dvc pull, git annex get)")
    if is_tfds(path):
        return
    if os.path.exists(path) and find_format(path):
        with readable(path, OSError), open_regular(path) as file:
            head = file.read(64)
        for mark, what in _OTHER_FILES.items():
            if head.startswith(mark):
                raise InputError(f"{path} is {what}")
        return
    fault = f"{path}: unknown kind of file" if os.path.exists(path) else f"no such file: {path}"
    if os.path.isdir(path):
        fault = f"{path} is a folder without files to read"
    raise InputError(
        f"{fault}; pass paths, folders or patterns (in quotes) of {SUPPORTED}, the folder of a "
        f"TFDS or Hugging Face dataset, '-' for standard input, or {', '.join(BUILT_IN)}"
    )


def _name(source: str) -> str:
    """Name of one source, from its path."""
    if source not in BUILT_IN and is_tfds(source):
        return tfds_name(source) + ("" if os.path.isdir(source) else f" {Path(source).name}")
    return "stdin" if source == STANDARD_INPUT else file_name(source)
