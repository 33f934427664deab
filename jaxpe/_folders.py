"""Output folders: one writer at a time, and files that are written whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from jaxpe._errors import InputError, require

_LOCK = ".lock"


@contextlib.contextmanager
def claimed(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """Keep other runs out of a folder, which is made if absent.

    The lock is the operating system's: it ends with the process, however that ends. The file
    `.lock` stays; it says nothing by itself.

    Raises:
        InputError: another run is writing into the folder, or it cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, claimed(folder):
    ...     with claimed(folder):
    ...         pass
    Traceback (most recent call last):
    jaxpe._errors.InputError: another run is writing into ...; wait for it, or pass another folder
    """
    filelock = require("filelock", extra="report")
    directory = Path(directory)
    lock = filelock.FileLock(directory / _LOCK)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise InputError(
            f"another run is writing into {directory}; wait for it, or pass another folder"
        ) from error
    except OSError as error:
        raise InputError(_refusal(directory, error)) from error
    try:
        yield directory
    finally:
        lock.release()


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write a file to, which takes its own name once it is whole and on the disk.

    Until then the file that had the name stays as it was, also where writing fails.

    Raises:
        InputError: no room or no permission.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "made" / "numbers.json"
    >>> with writing(path) as part:
    ...     _ = part.write_text("[1, 2]")
    >>> path.read_text()
    '[1, 2]'
    """
    path = Path(path)
    # The ending stays, since some writers add one of their own.
    part = path.with_name(f".part-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise InputError(_refusal(path, error)) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file whole or not at all, text as UTF-8; raises as `writing`."""
    with writing(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def _refusal(path: Path, error: OSError) -> str:
    return (
        f"cannot write {path} ({error.strerror or error}): make room, or pass a folder that you "
        "may write to; what was there before is kept"
    )
