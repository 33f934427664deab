"""The matrix of files that are read and of their damages, with random draws by a seed.

`attempts(seed, number)` visits the cells in turn; `attempt` tries one. Its answer is "refused", by
one line that names the file, or "read", which the surface has found right. All else is a
`PromiseError`: another error, a wrong result, a file that was lost or changed.
"""

import contextlib
import fnmatch
import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from tests.hardening.damage import DAMAGES, NOBODY, InapplicableError
from tests.hardening.surfaces import SURFACES


class Cell(NamedTuple):
    """A surface and a damage, by name, and the seed of what is drawn."""

    surface: str
    damage: str
    seed: tuple[int, ...]


class PromiseError(AssertionError):
    """A promise that was broken."""


def attempts(seed: int, number: int, surfaces: Sequence[str] = tuple(SURFACES)) -> Iterator[Cell]:
    """So many cells, each surface with each damage in turn."""
    pairs = [(surface, damage) for damage in DAMAGES for surface in surfaces]
    for index in range(number):
        surface, damage = pairs[index % len(pairs)]
        yield Cell(surface, damage, (seed, index, zlib.crc32(surface.encode())))


def attempt(cell: Cell, whole: Path, work: Path, expected: Any) -> str:
    """Damage one file in a copy, read it, and judge what comes of it.

    Args:
        cell: what is damaged, and how.
        whole: folder of the whole files.
        work: folder for the copy, which must not exist; it is removed.
        expected: what is read of the whole files.

    Returns:
        "refused", "read", or "not applicable".

    Raises:
        PromiseError: the message has the cell, the file and what is wrong.
    """
    surface, rng = SURFACES[cell.surface], np.random.default_rng(cell.seed)
    shutil.copytree(whole, work)
    files = files_of(work, surface.files)
    file = files[rng.integers(len(files))]
    try:
        DAMAGES[cell.damage](file, rng)
    except InapplicableError:
        shutil.rmtree(work)
        return "not applicable"
    others = (path for path in files_of(work, ("*",)) if path != file)
    before = {path: path.read_bytes() for path in others}
    try:
        with unprivileged() if cell.damage == "unreadable" else contextlib.nullcontext():
            answer = _answer(cell, work, file, expected)
        for path, content in before.items():
            if not path.is_file() or path.read_bytes() != content:
                raise PromiseError(f"{path.name} is lost or changed")
    except Exception as error:
        about = f"{cell}, {file.relative_to(work)}: {type(error).__name__}: {str(error)[:300]}"
        raise PromiseError(about) from error
    finally:
        shutil.rmtree(work)
    return answer


def _answer(cell: Cell, work: Path, file: Path, expected: Any) -> str:
    surface = SURFACES[cell.surface]
    try:
        found = surface.read(work, file)
    except InputError as error:
        message = str(error)
        if not message.isprintable() or len(message) > 6000:
            raise PromiseError(f"the message is not one line: {message!r}") from error
        inside = [path for path in file.parents if path.is_relative_to(work)]
        if not any(name in message for name in (file.name, *map(str, inside))):
            raise PromiseError(f"the message names no file: {message!r}") from error
        return "refused"
    surface.right(work, file, found, expected)
    return "read"


def files_of(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """Files to damage, sorted."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    names = ((path, str(path.relative_to(folder))) for path in paths)
    return sorted(p for p, name in names if any(fnmatch.fnmatch(name, x) for x in patterns))


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Without the permissions of root, where this process has them."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
