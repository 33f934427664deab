"""SST-2 (Socher et al. 2013) and IMDB (Maas et al. 2011): local files first, TFDS otherwise."""

import contextlib
import os
import socket
import sys
import urllib.request
from collections.abc import Iterator
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
    file: str  # local file of a split in the data directory
    dataset: str  # name in TFDS
    field: str  # field of the text, in the files and in TFDS
    module: str  # module that registers the TFDS dataset
    host: str  # host that TFDS downloads from


NAMED = {
    "sst2": _Home(
        {"train": "train", "dev": "validation"},
        "sst2/{split}.tsv",
        "glue/sst2",
        "sentence",
        "tensorflow_datasets.text.glue",
        "dl.fbaipublicfiles.com",
    ),
    "imdb": _Home(
        {"train": "train", "test": "test"},
        "imdb/{split}.jsonl.gz",
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
    home = NAMED[name]
    if split not in home.splits:
        names = ", ".join(map(repr, home.splits))
        raise InputError(f"{name} has no split {split!r} with labels; pass one of {names}")
    fields = Fields(home.field, label_field)
    if path := named_file(name, split=split, data_dir=data_dir):
        rows = iter_rows(path, fields, ReadLog(), progress)
    else:
        rows = _tfds_rows(home, split, fields, progress)
    if label_field is None:
        return iter(rows)
    # An unknown class stays as it is, for an error message.
    return (row._replace(label=_CLASSES.get(str(row.label), row.label)) for row in rows)


def named_file(name: str, *, split: str = "train", data_dir: Source | None) -> str | None:
    """Local file of a named corpus; None without one."""
    folder = data_dir or os.environ.get("JAXPE_DATA_DIR")
    path = Path(folder) / NAMED[name].file.format(split=split) if folder else None
    return str(path) if path and path.is_file() else None


def _tfds_rows(home: _Home, split: str, fields: Fields, progress: Progress) -> list[Row]:
    try:
        require(home.module, extra="data")
        tfds = require("tensorflow_datasets", extra="data")
        # TFDS announces its downloads on standard output, which belongs to the caller.
        with contextlib.redirect_stdout(sys.stderr):
            builder = tfds.builder(home.dataset, file_format="array_record")
            # Without a network TFDS retries for minutes before it fails. Proxies resolve names.
            if not builder.is_prepared() and not urllib.request.getproxies():
                socket.getaddrinfo(home.host, 443)
            builder.download_and_prepare()
        source = builder.as_data_source(home.splits[split])
        records = source_records(source, f"{home.dataset} {split}", progress)
        return [*text_rows(records, fields, ReadLog())]
    # TFDS fails in many ways (no package, no network, no disk); the remedy is the same for all.
    except Exception as error:
        raise InputError(
            f"no file {home.file.format(split=split)} in a data directory; pass `data_dir`, set "
            f"JAXPE_DATA_DIR, or let TFDS download {home.dataset}, which needs pip install "
            f"'jaxpe[data]' and a network ({type(error).__name__}: {error})"
        ) from error


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
