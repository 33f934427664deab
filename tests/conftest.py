"""Commands as a person types them, a corpus for them, few encodings, and a full disk."""

import contextlib
import resource
import sys
from collections.abc import Iterator

import pytest

from jaxpe import encodings
from jaxpe.cli import main as cli
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


def score_only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Have reports compare these encodings, and those that are passed.

    Vectors of the whole catalogue take longer to compile, for every length and width, than all
    other programs of a report, and `tests/cli/test_every_command.py` is on them.
    """
    few = encodings.catalogue(*names)
    monkeypatch.setattr(encodings, "catalogue", lambda: few)


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
