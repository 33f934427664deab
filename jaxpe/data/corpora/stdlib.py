"""The embedded corpus: the docstrings of the running Python's standard library."""

import contextlib
import json
import platform
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jaxpe._core.errors import InputError
from jaxpe._core.files import cache_directory, write_file
from jaxpe._core.json_values import from_json, read_json, seal
from jaxpe._core.processes import OWN_GROUP, cores
from jaxpe._core.progress import Progress
from jaxpe.data.corpora import docstrings

_SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
_MOST_PROCESSES = 4  # that read


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
    # One processor is left to what is compiled meanwhile.
    number = min(max(cores() - 1, 1), _MOST_PROCESSES)
    with contextlib.ExitStack() as stack:
        parts = [stack.enter_context(_reading(paths[i::number])) for i in range(number)]
        in_order = (next(parts[place % number]) for place in range(len(paths)))
        shown = progress.track(in_order, "Reading the standard library", total=len(paths))
        return list(dict.fromkeys(text for texts in shown for text in texts))


@contextlib.contextmanager
def _reading(paths: list[Path]) -> Iterator[Iterator[list[str]]]:
    """Docstrings of each file, which a process of its own reads meanwhile."""
    lines = "".join(f"{json.dumps(str(path))}\n" for path in paths)
    with tempfile.TemporaryFile() as asked:
        asked.write(lines.encode())
        asked.seek(0)
        try:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                _command(), stdin=asked, stdout=subprocess.PIPE, **OWN_GROUP
            )
        except OSError:
            yield map(docstrings.docstrings, paths)
            return
    with process:
        try:
            yield _answers(process, paths)
        finally:
            process.kill()


def _command() -> list[str]:
    """The script on the running Python; raises OSError where that is a part of an application."""
    if not sys.executable or getattr(sys, "frozen", False):
        raise FileNotFoundError("no executable of Python")
    return [sys.executable, "-I", docstrings.__file__]


def _answers(process: subprocess.Popen[bytes], paths: list[Path]) -> Iterator[list[str]]:
    """Docstrings of each file, from the process; a file that it leaves out is read here."""
    assert process.stdout is not None
    for path in paths:
        line = process.stdout.readline()
        yield json.loads(line) if line.endswith(b"\n") else docstrings.docstrings(path)


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
            write_file(path, json.dumps(fields | {"checksum": seal(fields)}))
