"""Commands as a person types them, a corpus for them, few encodings, and a disk that is full."""

import contextlib
import resource
import sys
from collections.abc import Iterator

import pytest

import jaxpe
from jaxpe.analysis.corpus import vectors
from jaxpe.cli import main as cli
from jaxpe.encodings import resolve
from jaxpe.report.pages import corpus as corpus_page
from tests.films import make_films


@pytest.fixture
def command(monkeypatch, capsys, tmp_path_factory):
    """Run `jaxpe ...` with a cache of its own; returns exit code, standard output and error."""
    monkeypatch.setenv("JAXPE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["jaxpe", *map(str, words)])
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def quick(monkeypatch):
    """Without figures and with few encodings: neither is what these tests are about."""
    score_only(monkeypatch, "sinusoidal", "learned", "alibi")
    monkeypatch.setattr(corpus_page, "corpus_figures", lambda result: [])


def score_only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Have reports compare these encodings, and those that are passed."""
    few = jaxpe.catalogue(*names)
    monkeypatch.setattr(
        vectors, "scored_entries", lambda further=(): [*few, *map(resolve, further)]
    )


@contextlib.contextmanager
def small_disk(size: int) -> Iterator[None]:
    """No file of this process can grow beyond so many bytes, as where a disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))  # Python ignores the signal
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """A table of 120 labelled documents of four to seven words, the first of which tells."""
    return make_films(tmp_path_factory.mktemp("corpus") / "films.tsv")
