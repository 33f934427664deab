"""The built-in corpus."""

import ast
import subprocess
import sys

import pytest

from jaxpe._core.progress import SILENT
from jaxpe.data.corpora import docstrings, stdlib

SOURCE = '''
"""module"""
if True:
    def a():
        "a"
        try:
            class B:
                "B"
        except ValueError:
            def c(): "c"
        else:
            async def d(x=lambda: 1): "d"
match 1:
    case 1:
        def e(): "e"
def f(): "f"
'''


def test_statements_are_in_the_order_of_a_walk_of_all():
    tree, kinds = ast.parse(SOURCE), docstrings._DOCUMENTED
    documented = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    found = [node for node in docstrings._statements(tree) if isinstance(node, kinds)]
    assert found == documented
    assert len(found) == 7


@pytest.fixture
def library(monkeypatch, tmp_path):
    """A standard library of ten files."""
    monkeypatch.setattr(stdlib.sysconfig, "get_path", lambda name: str(tmp_path))
    for number in range(10):
        (tmp_path / f"m{number}.py").write_text(f"{SOURCE}\ndef g(): 'g{number}'\n")
    return tmp_path


@pytest.mark.parametrize("processors", [1, 3, 64])
def test_any_number_of_processes_reads_the_same(library, monkeypatch, processors):
    monkeypatch.setattr(stdlib, "cores", lambda: processors)
    first = docstrings.docstrings(library / "m0.py")
    assert len(first) == 8
    assert stdlib._collect(SILENT) == [*first, *(f"g{number}" for number in range(1, 10))]


@pytest.mark.parametrize("executable", ["false", "no_such_command", "", None])
def test_what_a_process_leaves_out_is_read_here(library, monkeypatch, executable):
    expected = stdlib._collect(SILENT)
    monkeypatch.setattr(sys, "executable", executable)
    assert stdlib._collect(SILENT) == expected


def test_reading_imports_nothing_of_the_package():
    code = f"import runpy, sys; runpy.run_path({docstrings.__file__!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert "ast" in done.stdout.split()
    assert "jaxpe" not in done.stdout.split()
