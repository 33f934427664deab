"""Files and folders: locks, atomic writes, hashes, and the folder of caches."""

import contextlib
import errno
import hashlib
import importlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

from jaxpe._core.errors import InputError, require

_LOCK = ".lock"
_UNFINISHED: set[Path] = set()  # files that are being written, folders that were made


@contextlib.contextmanager
def locked_folder(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """Keep other runs out of a folder, which is made if absent.

    The lock is the operating system's: it ends with the process, however that ends. The file
    `.lock` stays; it says nothing by itself.

    Raises `InputError` where another run is writing into the folder, or it cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked_folder(folder):
    ...     with locked_folder(folder):
    ...         pass
    Traceback (most recent call last):
    jaxpe.InputError: another run is writing into ...; wait for it, or pass another folder
    """
    filelock = require("filelock", extra="report")
    directory = Path(directory)
    lock = filelock.FileLock(directory / _LOCK)
    with _refusing(directory):
        made = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout as error:
            raise InputError(
                f"another run is writing into {directory}; wait for it, or pass another folder"
            ) from error
    if made:
        _UNFINISHED.add(directory)
    try:
        yield directory
    except BaseException:
        lock.release()
        if made:
            _remove_empty(directory)
        raise
    finally:
        lock.release()
        _UNFINISHED.discard(directory)


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write a file to, which takes its own name once it is whole and on the disk.

    Until then the file that had the name stays as it was, also where writing fails, which raises
    `InputError`.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "made" / "numbers.json"
    >>> with atomic_file(path) as part:
    ...     _ = part.write_text("[1, 2]")
    >>> path.read_text()
    '[1, 2]'
    """
    path = Path(path)
    # The ending stays, since some writers add one of their own.
    part = path.with_name(f".part-{path.name}")
    try:
        with _refusing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _UNFINISHED.add(part)
            yield part
            with open(part, "rb") as file:
                os.fsync(file.fileno())
            os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        _UNFINISHED.discard(part)


def discard_unfinished() -> None:
    """Remove files that are being written and empty folders, where a process ends at once."""
    for path in list(_UNFINISHED):
        if path.is_dir():
            _remove_empty(path)
        else:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file whole or not at all, text as UTF-8; raises as `atomic_file`."""
    with atomic_file(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Context in which errors of writing to a path become an `InputError` of one line."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(
            f"cannot write {path}: there is a file in its place; pass a folder"
        ) from error
    except OSError as error:
        remedy = "make room, or pass a folder that you may write to; what was there before is kept"
        if error.errno == errno.ENAMETOOLONG:
            remedy = "pass a shorter name"
        raise InputError(f"cannot write {path} ({error.strerror or error}): {remedy}") from error


_HELD: ContextVar[frozenset[str]] = ContextVar("held", default=frozenset())


@contextlib.contextmanager
def output_folder(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """The folder of a report, made and written to once, with other runs kept out.

    Whoever has it may ask for it again, as a command does that then calls `jaxpe.report.write`.

    Raises `InputError` where it cannot be written or another run writes into it.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with output_folder(folder), output_folder(folder) as again:
    ...     sorted(path.name for path in again.iterdir())
    ['.lock', 'figures']
    """
    directory = Path(directory)
    place = os.path.realpath(directory)
    if place in _HELD.get():
        yield directory
        return
    with locked_folder(directory):
        with _refusing(directory):
            (directory / "figures").mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory) as file:
                file.write(b"1")
        before = _HELD.set(_HELD.get() | {place})
        try:
            yield directory
        finally:
            _HELD.reset(before)


def _remove_empty(directory: Path) -> None:
    """Take a folder away that nothing was written into, as where options were refused."""
    with contextlib.suppress(OSError):
        if (directory / "figures").exists():
            (directory / "figures").rmdir()
        if [path.name for path in directory.iterdir()] == [_LOCK]:
            (directory / _LOCK).unlink()
            directory.rmdir()


def short_names(folders: Sequence[Path]) -> list[str]:
    """Names of folders, with as many of the folders above them as tell them apart.

    >>> short_names([Path("/runs/a/rope"), Path("/runs/b/rope")])
    ['a/rope', 'b/rope']
    """
    for depth in range(1, max(len(folder.parts) for folder in folders)):
        names = ["/".join(folder.parts[-depth:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def remove_files(directory: Path, names: Iterable[str]) -> None:
    """Take files of a folder away that are there; raises `InputError` where that fails."""
    with _refusing(directory):
        for name in names:
            (directory / name).unlink(missing_ok=True)


Content = hashlib.blake2b  # a hash that bytes of a file are put into


def content_hash(content: bytes = b"") -> Content:
    """The hash of content, to which more may be added: BLAKE2b, 32 hexadecimal digits.

    >>> content_hash().hexdigest()
    'cae66941d9efbd404e4d88758ea67670'
    """
    return hashlib.blake2b(content, digest_size=16)


def file_hash(path: str | os.PathLike[str]) -> str:
    """The `content_hash` of a file; raises `OSError` where it cannot be read."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, content_hash).hexdigest()


def cache_directory() -> Path | None:
    """Folder of caches, `JAXPE_CACHE_DIR` or the user's; None if there is a `cache_problem`."""
    folder = _configured_cache()
    return None if cache_problem() else folder


def cache_problem() -> str:
    """Reason why nothing is cached, and the remedy; "" if the folder of caches can be used.

    Compiled programs are loaded from it, so nobody else may be able to write to it.
    """
    folder = _configured_cache()
    if folder is None:
        return ""
    remedy = "set JAXPE_CACHE_DIR"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        return f"nothing is cached in {folder}: {error.strerror or error}; {remedy}"
    if not hasattr(os, "getuid"):  # Windows, where a user's folder is private
        return ""
    if status.st_uid != os.getuid():
        return f"nothing is cached in {folder}: it belongs to another user; {remedy}"
    if status.st_mode & 0o022:
        remedy = f"run `chmod go-w {folder}`, or {remedy}"
        return f"nothing is cached in {folder}: others can write to it; {remedy}"
    return ""


def _configured_cache() -> Path | None:
    folder = os.environ.get("JAXPE_CACHE_DIR")
    try:
        return Path(folder or importlib.import_module("platformdirs").user_cache_dir("jaxpe"))
    except ImportError:
        return None
