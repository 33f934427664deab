"""The embedded corpus: the docstrings of the running Python's standard library."""

import ast
import collections
import contextlib
import gc
import json
import platform
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jaxpe._core.cache import cache_directory
from jaxpe._core.errors import InputError
from jaxpe._core.folders import write_whole
from jaxpe._core.json_values import from_json, read_json, seal
from jaxpe._core.progress import Progress

_SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
_HOLDERS = (ast.stmt, ast.excepthandler, ast.match_case)  # of definitions
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class _Cache(NamedTuple):
    """Content of the file in the cache."""

    documents: list[str]
    checksum: str


def stdlib_documents(*, progress: Progress) -> list[str]:
    """Docstrings of modules, classes, functions and methods, in the order of path and source."""
    cache = _cache_file()
    documents = _read_cache(cache)
    if documents is None:
        documents = _collect(progress)
        _write_cache(cache, documents)
    return documents


def _collect(progress: Progress) -> list[str]:
    root = Path(sysconfig.get_path("stdlib"))
    paths = sorted(
        path
        for path in root.rglob("*.py")
        if _SKIPPED_FOLDERS.isdisjoint(path.relative_to(root).parts[:-1])
    )
    shown = progress.track(paths, "Reading the standard library", total=len(paths))
    with _without_collection():
        return list(dict.fromkeys(text for path in shown for text in _texts(path)))


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """No search for cycles: trees have none, and it takes a third of the time to parse them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _texts(path: Path) -> Iterator[str]:
    for node in _statements(_parsed(path)):
        if isinstance(node, _DOCUMENTED):
            text = (ast.get_docstring(node) or "").strip()
            if text:
                yield text.encode(errors="replace").decode()


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes of `ast.walk`, in its order, but for those inside of expressions: nine in ten."""
    nodes = collections.deque[ast.AST]([tree])
    while nodes:
        node = nodes.popleft()
        yield node
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                nodes.extend(child for child in value if isinstance(child, _HOLDERS))


def _parsed(path: Path) -> ast.Module:
    # Some files are broken on purpose, and some hold escapes that Python warns about.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with tokenize.open(path) as file:
                return ast.parse(file.read())
        except (OSError, SyntaxError, ValueError, RecursionError):
            return ast.Module(body=[], type_ignores=[])


def _cache_file() -> Path | None:
    folder = cache_directory()
    name = f"stdlib-{platform.python_implementation()}-{platform.python_version()}.json"
    return folder / name.lower() if folder else None


def _read_cache(path: Path | None) -> list[str] | None:
    """Content of the cache, if it is complete."""
    if path is None:
        return None
    try:
        fields = read_json(path, remedy="remove it")
        cached = from_json(_Cache, fields, place=str(path))
    except InputError:
        return None
    whole = bool(cached.documents) and cached.checksum == seal(fields, but_for="checksum")
    return cached.documents if whole else None


def _write_cache(path: Path | None, documents: list[str]) -> None:
    # A folder that cannot be written costs the next run a few seconds, nothing else.
    if path is not None:
        with contextlib.suppress(InputError):
            fields = {"documents": documents}
            write_whole(path, json.dumps(fields | {"checksum": seal(fields)}))
