"""Corpora by name: the standard library, SST-2 and IMDB."""

import importlib
import io
import os
import sys
import sysconfig
import urllib.request
from functools import partial

import numpy as np
import pytest

from jaxpe.data import Corpus, load_corpus, load_labelled
from jaxpe.data.corpora import published, stdlib
from tests.data.reading import refused


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


def test_stdlib_collects_docstrings_once_each_and_keeps_them(small_stdlib, monkeypatch):
    assert load_corpus("stdlib") == Corpus("stdlib", DOCSTRINGS)
    assert len(list((small_stdlib / "cache").iterdir())) == 1
    monkeypatch.setattr(stdlib, "docstrings", None)
    assert load_corpus("stdlib").documents == DOCSTRINGS


def test_a_corrupt_cache_is_replaced(small_stdlib):
    load_corpus("stdlib")
    (cache,) = (small_stdlib / "cache").iterdir()
    whole = cache.read_text()
    for content in (b"", b"[1, 2]", b'["cut', b"{}", b"[" * 100_000, b"[]", b"\xff"):
        cache.write_bytes(content)
        assert load_corpus("stdlib").documents == DOCSTRINGS
        assert cache.read_text() == whole


def test_a_cache_that_cannot_be_written_is_no_error(small_stdlib, monkeypatch):
    def fail(*paths):
        raise OSError("no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        assert load_corpus("stdlib").documents == DOCSTRINGS
    (small_stdlib / "cache").rmdir()  # nothing is left in it
    (small_stdlib / "cache").write_text("a file where the folder should be")
    assert load_corpus("stdlib").documents == DOCSTRINGS


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


@pytest.mark.parametrize("name", ["sst2", "imdb"])
def test_neither_files_nor_network_nor_tfds(tmp_path, monkeypatch, no_data_dir, name):
    def offline(*where):
        raise OSError("Name or service not known")

    importlib.import_module(published.NAMED[name].module)
    tfds = importlib.import_module("tensorflow_datasets")
    monkeypatch.setattr(published.socket, "getaddrinfo", offline)
    monkeypatch.setattr(urllib.request, "getproxies", dict)
    monkeypatch.setattr(tfds, "builder", partial(tfds.builder, data_dir=str(tmp_path)))
    refused(name, f"no file {name}/train.* Name or service")
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    refused(name, r"jaxpe\[data\]", data_dir=tmp_path)


FILMS = [f"film number {number} naïve" for number in range(5)]


def sst2_files(folder):
    """What GLUE's archive holds of SST-2."""
    (folder / "SST-2").mkdir()
    texts = {"train": "".join(f"{text}\t1\n" for text in FILMS), "dev": "a\t1\nb\t0\n"}
    for name, rows in texts.items():
        (folder / "SST-2" / f"{name}.tsv").write_text(f"sentence\tlabel\n{rows}")
    (folder / "SST-2" / "test.tsv").write_text("index\tsentence\n0\ta\n")


def imdb_archive(self, path):
    """The files of IMDB's archive."""
    for split in ("train/pos", "train/unsup", "test/neg", "test/pos"):
        for number, text in enumerate(FILMS):
            yield f"aclImdb/{split}/{number}.txt", io.BytesIO(text.encode())


@pytest.mark.parametrize(("name", "split"), [("sst2", "dev"), ("imdb", "test")])
def test_the_builders_of_tfds(tmp_path, monkeypatch, no_data_dir, capsys, name, split):
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
    assert capsys.readouterr().out == ""
    held_out = load_labelled(name, split=split, tokenizer="characters")
    assert held_out.names == ("negative", "positive")
    assert np.bincount(held_out.labels).tolist() == ([1, 1] if name == "sst2" else [5, 5])
