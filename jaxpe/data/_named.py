"""SST-2 (Socher et al. 2013) and IMDB (Maas et al. 2011): local files first, TFDS otherwise."""

import contextlib
import os
import socket
import sys
import urllib.request
from pathlib import Path
from typing import NamedTuple

from jaxpe._errors import InputError, require
from jaxpe.data._files import read_documents
from jaxpe.data._types import Progress, Source


class _Home(NamedTuple):
    file: str  # below the data directory
    dataset: str  # in TFDS
    field: str  # of both
    module: str  # that registers the TFDS dataset
    host: str  # that TFDS downloads from


NAMED = {
    "sst2": _Home(
        "sst2/train.tsv",
        "glue/sst2",
        "sentence",
        "tensorflow_datasets.text.glue",
        "dl.fbaipublicfiles.com",
    ),
    "imdb": _Home(
        "imdb/train.jsonl.gz", "imdb_reviews", "text", "tensorflow_datasets", "ai.stanford.edu"
    ),
}


def named_documents(name: str, *, data_dir: Source | None, progress: Progress) -> list[str]:
    """The training texts of a named corpus."""
    home = NAMED[name]
    folder = data_dir or os.environ.get("JAXPE_DATA_DIR")
    if folder and (path := Path(folder) / home.file).is_file():
        return read_documents(str(path), text_field=home.field, progress=progress)
    try:
        return _from_tfds(home, progress)
    # TFDS fails in many ways (no package, no network, no disk), all of them with one remedy.
    except Exception as error:
        looked = f"{Path(folder) / home.file} does not exist" if folder else "none is set"
        raise InputError(
            f"{name} was found neither in a data directory ({looked}: pass data_dir or set "
            f"JAXPE_DATA_DIR to a directory with {home.file}) nor through TFDS "
            f"({home.dataset}: {type(error).__name__}: {error}; it needs pip install "
            "'jaxpe[data]' and, the first time, a network)"
        ) from error


def _from_tfds(home: _Home, progress: Progress) -> list[str]:
    require(home.module, extra="data")
    tfds = require("tensorflow_datasets", extra="data")
    # TFDS announces its downloads on standard output, which belongs to the caller.
    with contextlib.redirect_stdout(sys.stderr):
        builder = tfds.builder(home.dataset, file_format="array_record")
        if not builder.is_prepared():
            _check_network(home.host)
        builder.download_and_prepare()
    rows = builder.as_data_source("train")
    texts = (
        row[home.field].decode() for row in progress(rows, f"Reading {home.dataset}", len(rows))
    )
    return [text for text in texts if text.strip()]


def _check_network(host: str) -> None:
    # Without a network TFDS retries for minutes before it fails. Proxies resolve names themselves.
    if not urllib.request.getproxies():
        socket.getaddrinfo(host, 443)
