"""Corpora by name: the standard library, SST-2 and IMDB."""

import builtins
import io
import os
import subprocess
import sys
import sysconfig
import urllib.request
from functools import partial

import pytest

from jaxpe._core.errors import InputError
from jaxpe.data import Corpus, load_corpus
from jaxpe.data.corpora import published, stdlib


@pytest.fixture
def small_stdlib(tmp_path, monkeypatch):
    """A standard library of a few files, and an empty cache."""
    root = tmp_path / "lib"
    files = {
        "b.py": '"""Module b."""\nclass C:\n  """Class."""\n  def m(self):\n    """Meth."""\n',
        "a.py": '"""Module a."""\nasync def f():\n    """Class."""\n',
        "broken.py": "def (:\n",
        "escape.py": '"""Bad \\d escape."""\n',
        "latin.py": "# coding: latin-1\n'''caf\xe9'''\n",
        "test/t.py": '"""Skipped."""\n',
        "site-packages/s.py": '"""Skipped."""\n',
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode("latin-1"))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(root))
    monkeypatch.setenv("JAXPE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


DOCSTRINGS = ["Module a.", "Class.", "Module b.", "Meth.", "Bad \\d escape.", "café"]


def test_stdlib_collects_docstrings_once_each(small_stdlib):
    assert load_corpus("stdlib") == Corpus("stdlib", DOCSTRINGS)


def test_stdlib_is_read_from_the_cache(small_stdlib, monkeypatch):
    load_corpus("stdlib")
    assert len(list((small_stdlib / "cache").iterdir())) == 1
    monkeypatch.setattr(stdlib, "docstrings", None)
    assert load_corpus("stdlib").documents == DOCSTRINGS


DAMAGED = [
    "",
    "[1, 2]",
    '["cut',
    "{}",
    "[" * 100_000,
    "[]",
    "\udcff",
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_corrupt_cache_is_replaced(small_stdlib, content):
    load_corpus("stdlib")
    (cache,) = (small_stdlib / "cache").iterdir()
    whole = cache.read_text()
    cache.write_bytes(content.encode(errors="surrogateescape"))
    assert load_corpus("stdlib").documents == DOCSTRINGS
    assert cache.read_text() == whole


def test_a_cache_that_cannot_be_written_is_no_error(small_stdlib, monkeypatch):
    (small_stdlib / "cache").write_text("a file where the folder should be")
    assert load_corpus("stdlib").documents == DOCSTRINGS
    monkeypatch.delenv("JAXPE_CACHE_DIR")
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert load_corpus("stdlib").documents == DOCSTRINGS


def test_an_interrupted_write_leaves_nothing(small_stdlib, monkeypatch):
    def fail(*paths):
        raise OSError("no")

    monkeypatch.setattr(os, "replace", fail)
    assert load_corpus("stdlib").documents == DOCSTRINGS
    assert not list((small_stdlib / "cache").iterdir())


def test_the_real_standard_library(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXPE_CACHE_DIR", str(tmp_path))
    documents = load_corpus("stdlib").documents
    assert len(documents) > 5000
    assert len(set(documents)) == len(documents)


def test_the_import_is_light():
    code = "import sys, jaxpe.data; print({'tokenizers', 'tensorflow_datasets'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


@pytest.fixture
def no_data_dir(monkeypatch):
    monkeypatch.delenv("JAXPE_DATA_DIR", raising=False)


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_a_data_directory(tmp_path, monkeypatch, no_data_dir, how):
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "train.tsv").write_text("label\tsentence\n1\tgood\n0\tbad\n")
    if how == "environment":
        monkeypatch.setenv("JAXPE_DATA_DIR", str(tmp_path))
    argument = tmp_path if how == "argument" else None
    assert load_corpus("sst2", data_dir=argument) == Corpus("sst2", ["good", "bad"])


class Source(list):
    """Examples of TFDS, read some at a time."""

    __iter__ = None

    def __getitems__(self, indices):
        assert len(self) >= len(indices) > 0
        return [self[index] for index in indices]


class Prepared:
    """What TFDS gives for a dataset on disk."""

    def __init__(self, name, file_format):
        assert file_format == "array_record"
        self.field = {"glue/sst2": "sentence", "imdb_reviews": "text"}[name]

    def is_prepared(self):
        return True

    def download_and_prepare(self):
        builtins.print("Downloading")

    def as_data_source(self, split):
        assert split == "train"
        return Source({self.field: text.encode(), "label": 1} for text in ("naïve", "two"))


@pytest.mark.parametrize("name", ["sst2", "imdb"])
def test_tfds_when_there_are_no_files(tmp_path, monkeypatch, no_data_dir, capsys, name):
    import tensorflow_datasets as tfds

    monkeypatch.setattr(tfds, "builder", Prepared)
    assert load_corpus(name, data_dir=tmp_path).documents == ["naïve", "two"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["sst2", "imdb"])
def test_tfds_knows_the_datasets(name):
    import importlib

    import tensorflow_datasets as tfds

    home = published.NAMED[name]
    importlib.import_module(home.module)
    features = tfds.builder(home.dataset, file_format="array_record").info.features
    assert home.field in features


def test_neither_files_nor_network(tmp_path, monkeypatch, no_data_dir):
    import tensorflow_datasets as tfds

    def offline(*where):
        raise OSError("Name or service not known")

    monkeypatch.setattr(published.socket, "getaddrinfo", offline)
    monkeypatch.setattr(urllib.request, "getproxies", dict)
    monkeypatch.setattr(Prepared, "is_prepared", lambda self: False)
    monkeypatch.setattr(tfds, "builder", Prepared)
    message = r"no file sst2/train\.tsv .*; pass `data_dir`, set JAXPE_DATA_DIR.*glue/sst2"
    with pytest.raises(InputError, match=message):
        load_corpus("sst2")
    with pytest.raises(InputError, match=r"no file imdb/train\.jsonl\.gz .*imdb_reviews"):
        load_corpus("imdb", data_dir=tmp_path)


def test_neither_files_nor_tfds(monkeypatch, no_data_dir):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(InputError, match=r"TFDS .*pip install 'jaxpe\[data\]'"):
        load_corpus("imdb")


def sst2_files(folder):
    """What GLUE's archive holds of SST-2."""
    (folder / "SST-2").mkdir()
    rows = "".join(f"{text}\t1\n" for text in FILMS)
    for name, text in (("train", f"sentence\tlabel\n{rows}"), ("dev", "sentence\tlabel\na\t0\n")):
        (folder / "SST-2" / f"{name}.tsv").write_text(text)
    (folder / "SST-2" / "test.tsv").write_text("index\tsentence\n0\ta\n")


def imdb_archive(self, path):
    """The files of IMDB's archive."""
    for split in ("train/pos", "train/unsup", "test/neg"):
        for number, text in enumerate(FILMS):
            yield f"aclImdb/{split}/{number}.txt", io.BytesIO(text.encode())


FILMS = [f"film number {number}" for number in range(5)]


@pytest.mark.parametrize("name", ["sst2", "imdb"])
def test_the_builders_of_tfds_on_files_made_here(tmp_path, monkeypatch, no_data_dir, name):
    import tensorflow_datasets as tfds

    manager = tfds.download.DownloadManager
    monkeypatch.setattr(manager, "download_and_extract", lambda self, url: str(tmp_path))
    monkeypatch.setattr(manager, "download", lambda self, url: "archive")
    monkeypatch.setattr(manager, "iter_archive", imdb_archive)
    monkeypatch.setattr(published.socket, "getaddrinfo", lambda *where: None)
    monkeypatch.setattr("jaxpe.data.formats.tfds_folders._AT_ONCE", 2)
    builder = partial(tfds.builder, data_dir=str(tmp_path / "tfds"), try_gcs=False)
    monkeypatch.setattr(tfds, "builder", builder)
    sst2_files(tmp_path)
    for _ in range(2):  # made, and read again
        assert sorted(load_corpus(name).documents) == FILMS
