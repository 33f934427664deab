"""Corpus of the docstrings of the running Python's standard library."""

import ast
import contextlib
import json
import platform
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path

from jaxpe._core.errors import InputError
from jaxpe._core.files import cache_directory, write_file
from jaxpe._core.json_values import from_json, parse_json, read_small
from jaxpe._core.progress import Progress

_SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def stdlib_documents(*, progress: Progress) -> list[str]:
    """Docstrings of modules, classes, functions and methods, ordered by path and line.

    They are cached, since parsing the library takes seconds.
    """
    cache = _cache_file()
    if cache is not None and cache.exists():
        with contextlib.suppress(InputError):  # a damaged cache is made anew
            content = parse_json(read_small(cache, remedy=""), where=cache, remedy="")
            if documents := from_json(list[str], content, where=str(cache)):
                return documents
    root = Path(sysconfig.get_path("stdlib"))
    paths = sorted(
        path
        for path in root.rglob("*.py")
        if _SKIPPED_FOLDERS.isdisjoint(path.relative_to(root).parts[:-1])
    )
    shown = progress.track(paths, "Reading the standard library", total=len(paths))
    documents = list(dict.fromkeys(text for path in shown for text in docstrings(path)))
    if cache is not None:
        with contextlib.suppress(InputError):  # a cache that cannot be written is no error
            write_file(cache, json.dumps(documents))
    return documents


def docstrings(path: Path) -> Iterator[str]:
    """Docstrings of a Python file, in the order of `ast.walk`."""
    # Some files are invalid on purpose, and some have escapes that Python warns about.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with tokenize.open(path) as file:
                tree = ast.parse(file.read())
        except (OSError, SyntaxError, ValueError, RecursionError):
            return
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and (text := (ast.get_docstring(node) or "").strip()):
            yield text.encode(errors="replace").decode()


def _cache_file() -> Path | None:
    folder = cache_directory()
    name = f"stdlib-{platform.python_implementation()}-{platform.python_version()}-docstrings.json"
    return folder / name.lower() if folder else None
