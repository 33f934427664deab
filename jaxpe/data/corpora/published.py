"""SST-2 (Socher et al. 2013) and IMDB (Maas et al. 2011): local files first, TFDS otherwise."""

import contextlib
import os
import socket
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from jaxpe._core.errors import InputError, require
from jaxpe._core.progress import Progress
from jaxpe.data.corpora.corpus import Source, Sources, as_sources
from jaxpe.data.formats.columns import Fields, ReadLog, Row, text_rows
from jaxpe.data.formats.table import iter_rows
from jaxpe.data.formats.tfds_folders import source_records


class _Home(NamedTuple):
    splits: dict[str, str]  # names of the splits in TFDS
    ending: str  # ending of the local files <name>/<split><ending> in the data directory
    dataset: str  # name in TFDS
    field: str  # field of the text, in the files and in TFDS
    module: str  # module that registers the TFDS dataset
    host: str  # host that TFDS downloads from


NAMED = {
    "sst2": _Home(
        {"train": "train", "dev": "validation"},
        ".tsv",
        "glue/sst2",
        "sentence",
        "tensorflow_datasets.text.glue",
        "dl.fbaipublicfiles.com",
    ),
    "imdb": _Home(
        {"train": "train", "test": "test"},
        ".jsonl.gz",
        "imdb_reviews",
        "text",
        "tensorflow_datasets",
        "ai.stanford.edu",
    ),
}
_CLASSES = {"0": "negative", "1": "positive"}


def named_rows(
    name: str,
    *,
    split: str = "train",
    label_field: str | None = None,
    data_dir: Source | None,
    progress: Progress,
) -> Iterator[Row]:
    """Read a split of a named corpus; with `label_field`, rows have labels."""
    rows = _rows(name, split, label_field, data_dir, progress)
    # An unknown class stays as it is, for an error message.
    return (row._replace(label=_CLASSES.get(str(row.label), row.label)) for row in rows)


def _rows(
    name: str, split: str, label_field: str | None, data_dir: Source | None, progress: Progress
) -> Iterable[Row]:
    home = NAMED[name]
    if split not in home.splits:
        names = ", ".join(map(repr, home.splits))
        raise InputError(f"{name} has no split {split!r} with labels; pass one of {names}")
    if path := named_file(name, split=split, data_dir=data_dir):
        return iter_rows(path, Fields(home.field, label_field), ReadLog(), progress)
    try:
        return _tfds_rows(home, home.splits[split], label_field, progress)
    # TFDS fails in many ways (no package, no network, no disk); the remedy is the same for all.
    except Exception as error:
        folder, file = _data_directory(data_dir), _file(name, split)
        reason = f"{Path(folder) / file} does not exist" if folder else "none is set"
        raise InputError(
            f"{name} was found neither in a data directory ({reason}: pass `data_dir` or set "
            f"JAXPE_DATA_DIR to a directory with {file}) nor through TFDS "
            f"({home.dataset}: {type(error).__name__}: {error}; it needs pip install "
            "'jaxpe[data]' and, the first time, a network)"
        ) from error


def named_file(name: str, *, split: str = "train", data_dir: Source | None) -> str | None:
    """Local file of a named corpus; None without one."""
    folder = _data_directory(data_dir)
    path = Path(folder) / _file(name, split) if folder else None
    return str(path) if path and path.is_file() else None


def _file(name: str, split: str) -> str:
    return f"{name}/{split}{NAMED[name].ending}"


def _data_directory(data_dir: Source | None) -> Source | None:
    return data_dir or os.environ.get("JAXPE_DATA_DIR")


def _tfds_rows(home: _Home, split: str, label_field: str | None, progress: Progress) -> list[Row]:
    require(home.module, extra="data")
    tfds = require("tensorflow_datasets", extra="data")
    # TFDS announces its downloads on standard output, which belongs to the caller.
    with contextlib.redirect_stdout(sys.stderr):
        builder = tfds.builder(home.dataset, file_format="array_record")
        # Without a network TFDS retries for minutes before it fails. Proxies resolve names alone.
        if not builder.is_prepared() and not urllib.request.getproxies():
            socket.getaddrinfo(home.host, 443)
        builder.download_and_prepare()
    records = source_records(builder.as_data_source(split), f"{home.dataset} {split}", progress)
    return [*text_rows(records, Fields(home.field, label_field), ReadLog())]


def check_data_dir(data_dir: Source | None, sources: Sources) -> None:
    """Refuse `data_dir` for a source that is not a named corpus; raises `InputError`.

    >>> check_data_dir("data", "stdlib")
    Traceback (most recent call last):
    jaxpe.InputError: `data_dir` is for sst2 and imdb, and the source is stdlib; ...
    """
    listed = as_sources(sources)
    if data_dir is not None and NAMED.keys().isdisjoint(listed):
        names = " and ".join(NAMED)
        raise InputError(
            f"`data_dir` is for {names}, and the source is {', '.join(listed)}; leave it out"
        )
