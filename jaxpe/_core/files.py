"""Files and folders: locks, atomic writes, hashes, and the folder of caches."""

import contextlib
import errno
import hashlib
import importlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

from jaxpe._core.errors import InputError, require

_LOCK = ".lock"
_UNFINISHED: set[Path] = set()  # files that are being written, folders that were made


@contextlib.contextmanager
def locked_folder(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """Keep other runs out of a folder, which is made if absent.

    The operating system releases the lock when the process ends, for any reason. The file `.lock`
    remains; its existence does not mean that the folder is locked.

    Raises `InputError` if another run is writing into the folder, or if it cannot be written.

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
    with _write_errors(directory):
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
    """Temporary path to write a file to, which gets its final name once it is complete on disk.

    Until then, an existing file of that name stays unchanged. An error of writing raises
    `InputError`.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "made" / "numbers.json"
    >>> with atomic_file(path) as part:
    ...     _ = part.write_text("[1, 2]")
    >>> path.read_text()
    '[1, 2]'
    """
    path = Path(path)
    # The suffix stays, since some writers append one to a name without it.
    part = path.with_name(f".part-{path.name}")
    try:
        with _write_errors(path):
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
    """Remove incomplete files and empty folders, before the process ends at once."""
    for path in list(_UNFINISHED):
        if path.is_dir():
            _remove_empty(path)
        else:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a complete file or none, text as UTF-8; raises as `atomic_file` does."""
    with atomic_file(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    """Context in which an error of writing to a path becomes an `InputError` of one line."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"cannot write {path}: a file has this name; pass a folder") from error
    except OSError as error:
        remedy = "make room, or pass a folder that you may write to; earlier files remain"
        if error.errno == errno.ENAMETOOLONG:
            remedy = "pass a shorter name"
        raise InputError(f"cannot write {path} ({error.strerror or error}): {remedy}") from error


_LOCKED: ContextVar[frozenset[str]] = ContextVar("held", default=frozenset())


@contextlib.contextmanager
def output_folder(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """Folder of a report: made, tested by writing to it, and locked against other runs.

    Contexts may nest, as in a command that then calls `jaxpe.report.write`.

    Raises `InputError` if it cannot be written, or if another run is writing into it.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with output_folder(folder), output_folder(folder) as again:
    ...     sorted(path.name for path in again.iterdir())
    ['.lock', 'figures']
    """
    import tempfile  # slow to import

    directory = Path(directory)
    real_path = os.path.realpath(directory)
    if real_path in _LOCKED.get():
        yield directory
        return
    with locked_folder(directory):
        with _write_errors(directory):
            (directory / "figures").mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory) as file:
                file.write(b"1")
        before = _LOCKED.set(_LOCKED.get() | {real_path})
        try:
            yield directory
        finally:
            _LOCKED.reset(before)


def _remove_empty(directory: Path) -> None:
    """Remove a folder that nothing was written into, such as after refused options."""
    with contextlib.suppress(OSError):
        if (directory / "figures").exists():
            (directory / "figures").rmdir()
        if [path.name for path in directory.iterdir()] == [_LOCK]:
            (directory / _LOCK).unlink()
            directory.rmdir()


def short_names(folders: Sequence[Path]) -> list[str]:
    """Shortest endings of the paths of folders that differ from each other.

    >>> short_names([Path("/runs/a/rope"), Path("/runs/b/rope")])
    ['a/rope', 'b/rope']
    """
    for depth in range(1, max(len(folder.parts) for folder in folders)):
        names = ["/".join(folder.parts[-depth:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def remove_files(directory: Path, names: Iterable[str]) -> None:
    """Remove files from a folder, if they exist; raises `InputError` if that fails."""
    with _write_errors(directory):
        for name in names:
            (directory / name).unlink(missing_ok=True)


def check_regular(directory: str | os.PathLike[str]) -> None:
    """Raise `InputError` for a pipe, a device or a broken link anywhere in a folder."""
    for folder, _, names in os.walk(directory):
        for path in (os.path.join(folder, name) for name in names):
            if os.path.lexists(path) and not os.path.isfile(path):  # not deleted meanwhile
                raise InputError(f"{path} is not a regular file; remove it")


def content_hash(content: bytes = b"") -> hashlib.blake2b:
    """Hash of bytes, which can be updated: BLAKE2b, 32 hexadecimal digits.

    >>> content_hash().hexdigest()
    'cae66941d9efbd404e4d88758ea67670'
    """
    return hashlib.blake2b(content, digest_size=16)


def cache_directory() -> Path | None:
    """Folder of caches, `JAXPE_CACHE_DIR` or the user's; None if `cache_problem` finds one."""
    folder = _cache_folder()
    return None if cache_problem() else folder


def cache_problem() -> str:
    """Reason why nothing is cached, and the remedy; "" if the folder of caches can be used.

    JAX runs compiled programs from this folder, so no other user may be able to write to it.
    """
    folder = _cache_folder()
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


def _cache_folder() -> Path | None:
    folder = os.environ.get("JAXPE_CACHE_DIR")
    try:
        return Path(folder or importlib.import_module("platformdirs").user_cache_dir("jaxpe"))
    except ImportError:
        return None
