"""Commands as a person types them."""

import sys

import pytest

from jaxpe import cli


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
