"""Text files: decompression, decoding, lines, and how error messages name them."""

import bz2
import codecs
import contextlib
import functools
import gzip
import io
import lzma
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxpe._core.errors import InputError, reason, require
from jaxpe._core.progress import Progress

STANDARD_INPUT = "-"
# Bytes of a line, ten times the longest novels.
LARGEST_TEXT = 2**26
SHOWN = 40  # characters of a value, or columns, that an error message quotes
_DAMAGE = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
# The byte order mark of UTF-32LE begins with the mark of UTF-16LE.
_UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def _zstd_file(stream: io.BufferedReader) -> io.BufferedReader:
    arrow = require("pyarrow", extra="parquet")  # Python has none before 3.14
    return io.BufferedReader(arrow.CompressedInputStream(arrow.PythonFile(stream, "r"), "zstd"))


class _Streams(io.RawIOBase):
    """Decompressed content of all streams of a .bz2 or .xz file.

    Python's own readers end without an error at a damaged second stream and at trailing bytes.
    """

    def __init__(self, stream: Any, decompressor: Callable[[], Any]):
        self._stream, self._new, self._current = stream, decompressor, decompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data:
            has_ended, chunk = self._current.eof, b""
            if has_ended or self._current.needs_input:
                chunk = self._current.unused_data or self._stream.read(io.DEFAULT_BUFFER_SIZE)
                if not chunk and has_ended:
                    return 0
                if not chunk:
                    raise EOFError("it ends within a compressed stream")
            if has_ended:
                self._current = self._new()
            data = self._current.decompress(chunk, len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _reader(decompressor: Callable[[], Any]) -> Callable[[Any], io.BufferedReader]:
    return lambda stream: io.BufferedReader(_Streams(stream, decompressor))


# Suffix, first bytes and reader of each compression.
_COMPRESSIONS: dict[str, tuple[bytes, Callable[[Any], Any]]] = {
    ".gz": (b"\x1f\x8b", lambda stream: gzip.GzipFile(fileobj=stream)),
    ".bz2": (b"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", _reader(bz2.BZ2Decompressor)),
    ".xz": (b"\xfd7zXZ\0", _reader(lzma.LZMADecompressor)),
    ".zst": (re.escape(b"\x28\xb5\x2f\xfd"), _zstd_file),
}
COMPRESSED = tuple(_COMPRESSIONS)


def text_lines(path: str, progress: Progress) -> Iterator[str]:
    """Read the lines of a text file with their ends, without byte order marks.

    The first bytes tell whether the file is compressed, and whether it is UTF-16 or UTF-32.

    Args:
        path: path of the file, or `"-"` for standard input.
        progress: receiver of progress.

    Raises:
        InputError: no regular file, a damaged one, or a line that is too long, holds a NUL or
            cannot be decoded. The message has the line number.
    """
    name = "standard input" if path == STANDARD_INPUT else file_name(path)
    with contextlib.ExitStack() as stack:
        stack.enter_context(readable(path, *_DAMAGE))
        stream = stack.enter_context(_open_stream(path))
        lines = stack.enter_context(contextlib.closing(_utf8_lines(stream)))  # ends before stream
        for number, line in enumerate(progress.track(lines, f"Reading {name}"), start=1):
            if len(line) > LARGEST_TEXT:
                fault = f"has more than {LARGEST_TEXT:,} bytes; cut longer documents"
                raise InputError(f"{where(path, number)} {fault}")
            text = decoded(line, path, line=number)
            if "\0" in text:
                remedy = "remove it by tr -d '\\000', or convert UTF-16 by iconv -f UTF-16LE"
                raise InputError(f"{where(path, number)} holds a NUL byte; {remedy} -t UTF-8")
            yield text


def holds_byte(path: str, byte: bytes) -> bool:
    """Whether a file holds a byte, decompressed; faster than reading its lines."""
    with readable(path, *_DAMAGE), _open_stream(path) as stream:
        return any(byte in chunk for chunk in iter(functools.partial(stream.read, 2**20), b""))


def decoded(content: bytes, path: str, *, line: int = 1) -> str:
    """Decode UTF-8 without its byte order mark.

    Args:
        content: bytes of a file, or of one line.
        path: path of the file.
        line: number of the first line of the content.

    Raises:
        InputError: other bytes. The message names the line and suggests Windows-1252 where
            that decodes.
    """
    try:
        # Files with marks that were put together have them in the middle, too.
        return content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        data, start = error.object, error.start
        remedy = "mend the line, or convert the file with iconv -f ENCODING -t UTF-8"
        with contextlib.suppress(UnicodeDecodeError):
            text = data[max(0, start - SHOWN) : start + SHOWN].decode("cp1252").strip()
            remedy += f" (WINDOWS-1252 if {quoted(text)} is right)"
        location = where(path, line + data.count(b"\n", 0, start))
        raise InputError(f"{location}: byte 0x{data[start]:02x} is not UTF-8; {remedy}") from error


def where(path: str, line: int) -> str:
    """Name a line of a file for error messages."""
    return f"{'standard input' if path == STANDARD_INPUT else path}, line {line}"


def open_regular(path: str | os.PathLike[str]) -> io.FileIO:
    """Open a file for reading; a pipe or a device is refused.

    Raises:
        InputError: not a regular file.
        OSError: no file, or no permission.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer, perhaps for ever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        remedy = f"save its output to one, or pipe it into standard input ({STANDARD_INPUT!r})"
        raise InputError(f"{path} is not a regular file; {remedy}")
    return io.FileIO(handle)


@contextlib.contextmanager
def _open_stream(path: str) -> Iterator[Any]:
    """The decompressed content of a file or of standard input."""
    with contextlib.ExitStack() as stack:
        if path == STANDARD_INPUT:
            stream = getattr(sys.stdin, "buffer", None)  # sys.stdin is None if it was closed
        else:
            stream = stack.enter_context(io.BufferedReader(open_regular(path)))
        if stream is None or stream.closed:
            raise InputError("standard input is closed; pipe lines of text into it, or pass a file")
        head = stream.peek(16)
        readers = (read for mark, read in _COMPRESSIONS.values() if re.match(mark, head))
        yield next(readers, lambda unpacked: unpacked)(stream)


def _utf8_lines(stream: Any) -> Generator[bytes, None, None]:
    """Lines of a stream in UTF-8, UTF-16 or UTF-32, as UTF-8."""
    head = stream.peek(4)
    if not head.startswith(_UTF32 + _UTF16):
        yield from iter(functools.partial(stream.readline, LARGEST_TEXT + 1), b"")
        return
    encoding = "utf-32" if head.startswith(_UTF32) else "utf-16"
    text = io.TextIOWrapper(stream, encoding, newline="\n")
    try:
        for line in iter(functools.partial(text.readline, LARGEST_TEXT + 1), ""):
            yield line.encode()
    finally:
        text.detach()  # otherwise it closes the stream, which may be standard input


@contextlib.contextmanager
def readable(path: str, *errors: type[Exception]) -> Iterator[None]:
    """Context in which errors of some types, from a damaged file or folder, become `InputError`."""
    try:
        yield
    except InputError:
        raise
    except errors as error:
        fault = f"{path} cannot be read: {reason(error)}"
        raise InputError(f"{fault}; check that it is complete and readable") from error


def check_text(text: str, *, what: str, remedy: str) -> None:
    """Raise `InputError` for half of a surrogate pair, which cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} holds half of a surrogate pair; {remedy}") from error


def file_name(path: str) -> str:
    """Last part of a path, with a mark for bytes that are not UTF-8."""
    return os.fsencode(Path(path).name).decode(errors="replace")


def quoted(text: str) -> str:
    """Quote text for an error message: on one line, the beginning of a long one."""
    return repr(text) if len(text) <= SHOWN else f"{text[:SHOWN]!r}..."


def listed(columns: Sequence[str]) -> str:
    """List names for an error message, the first ones of many."""
    more = ", ..." if len(columns) > SHOWN else ""
    return ", ".join(map(quoted, columns[:SHOWN])) + more or "(no columns)"
