"""Corpora as TFDS datasets, for reuse by any reader of ArrayRecord."""

import contextlib
import io
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxpe._errors import InputError, require
from jaxpe.data._types import Corpus, Progress, Source, TokenCorpus, no_progress

_CHUNK = 1000


def export_corpus(corpus: Corpus | TokenCorpus, directory: Source) -> Path:
    """Write a corpus as a TFDS dataset (ArrayRecord, documents in order), without TensorFlow.

    A row holds `text`, or `ids` and `mask`. Read it back with `open_corpus`, with `load_corpus` or
    `load_tokens`, or with `tfds.builder_from_directory`.

    Args:
        corpus: text or tokens.
        directory: where the dataset goes; it must not exist, or be empty.

    Returns:
        The directory.

    Raises:
        InputError: the directory is in use or cannot be written.
        MissingExtraError: TFDS is not installed.

    >>> import tempfile
    >>> folder = export_corpus(Corpus("two", ["to be", "or not"]), tempfile.mkdtemp())
    >>> open_corpus(folder)[1]
    {'text': b'or not'}
    """
    target = Path(directory)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise InputError(f"{target} is in use; pass a new or an empty directory")
    for module in ("tensorflow_datasets", "importlib_resources"):  # TFDS does not declare it
        require(module, extra="data")
    from jaxpe.data.tfds_corpus import JaxpeCorpus

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as work:
            builder = JaxpeCorpus(corpus=corpus, data_dir=work, file_format="array_record")
            with _silence():
                builder.download_and_prepare()
            os.replace(builder.data_path, target)
    except OSError as error:
        raise InputError(
            f"{target} cannot be written: {error}; pass a directory with room and permission"
        ) from error
    return target


def open_corpus(directory: Source) -> Any:
    """Open an exported corpus for random access: a sequence of rows that Grain reads as it is.

    Returns:
        A TFDS data source: `len(source)`, and `source[i]` a dictionary with `text` (bytes), or
        with `ids` int32 `[length]` and `mask` bool `[length]`.

    Raises:
        InputError: the directory holds no exported corpus.

    >>> import grain, tempfile
    >>> folder = export_corpus(Corpus("two", ["to be", "or not"]), tempfile.mkdtemp())
    >>> rows = grain.MapDataset.source(open_corpus(folder))
    >>> [text for text in rows.map(lambda row: row["text"].decode())]
    ['to be', 'or not']
    """
    return _builder(os.fspath(directory)).as_data_source("train")


def is_exported(directory: str) -> bool:
    """Whether the directory looks like a TFDS dataset."""
    return (Path(directory) / "dataset_info.json").is_file()


def kind(directory: str) -> str:
    """`"text"` or `"tokens"`."""
    return _builder(directory).info.metadata["kind"]


def read_text(directory: str, *, progress: Progress) -> Corpus:
    """An exported corpus of text."""
    rows = iter_rows(directory, progress=progress)
    name = _builder(directory).info.metadata["name"]
    return Corpus(name, [row["text"].decode() for row in rows])


def read_tokens(directory: str, *, progress: Progress) -> TokenCorpus:
    """An exported corpus of tokens."""
    rows = list(iter_rows(directory, progress=progress))
    fields = {k: v for k, v in _builder(directory).info.metadata.items() if k != "kind"}
    fields["exclude"] = tuple(fields["exclude"])
    ids = np.stack([row["ids"] for row in rows])
    return TokenCorpus(ids=ids, mask=np.stack([row["mask"] for row in rows]), **fields)


def iter_rows(directory: str, *, progress: Progress = no_progress) -> Iterator[dict[str, Any]]:
    """The rows of an exported corpus, one by one."""
    source = open_corpus(directory)
    starts = range(0, len(source), _CHUNK)
    for start in progress(starts, f"Reading {Path(directory).name}", len(starts)):
        yield from source.__getitems__(list(range(start, min(start + _CHUNK, len(source)))))


def _builder(directory: str) -> Any:
    if not is_exported(directory):
        raise InputError(f"{directory} holds no corpus; pass a directory that export_corpus wrote")
    tfds = require("tensorflow_datasets", extra="data")
    builder = tfds.builder_from_directory(directory)
    if "kind" not in (builder.info.metadata or {}):
        raise InputError(
            f"{directory} is a TFDS dataset, but export_corpus did not write it; "
            "save its texts as .jsonl"
        )
    return builder


@contextlib.contextmanager
def _silence() -> Generator[None]:
    # TFDS prints and draws bars of its own; the terminal belongs to the caller.
    sink = io.StringIO()
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        yield
