"""The built-in corpus."""

import ast
import gc

from jaxpe._core.progress import SILENT
from jaxpe.data import stdlib

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
    tree = ast.parse(SOURCE)
    documented = [node for node in ast.walk(tree) if isinstance(node, stdlib._DOCUMENTED)]
    found = [node for node in stdlib._statements(tree) if isinstance(node, stdlib._DOCUMENTED)]
    assert found == documented
    assert len(found) == 7


def test_the_collector_of_cycles_is_on_again(monkeypatch, tmp_path):
    monkeypatch.setattr(stdlib.sysconfig, "get_path", lambda name: str(tmp_path))
    (tmp_path / "one.py").write_text(SOURCE)
    assert gc.isenabled()
    assert len(stdlib._collect(SILENT)) == 7
    assert gc.isenabled()
