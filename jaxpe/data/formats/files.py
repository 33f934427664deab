"""Files of text from outside, read within limits, and how error messages name them."""

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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxpe._core.errors import InputError, require
from jaxpe._core.files import Content, file_chunks
from jaxpe._core.json_values import LARGEST_FILE
from jaxpe._core.progress import Progress

STANDARD_INPUT = "-"
COLUMNAR = (".parquet", ".arrow")
_TABLES_OF_TEXT = (".tsv", ".csv", ".jsonl", ".json")
_TEXT = (".txt", *_TABLES_OF_TEXT)
_PACKED = (".gz", ".bz2", ".xz", ".zst")  # endings of text that is compressed
TABLES = (*_TABLES_OF_TEXT, *COLUMNAR)
SUPPORTED_TABLES = f"{', '.join(_TABLES_OF_TEXT)} (also {' '.join(_PACKED)}), {', '.join(COLUMNAR)}"
SUPPORTED = f".txt, {SUPPORTED_TABLES}"
# Of a document, with the rest of its line; the longest novels have a tenth of it.
LARGEST_TEXT = 2**26
_BUFFER = 2**20
SHOWN = 40  # characters of a value, or columns, that an error message quotes
_REASON = 300  # characters of what a reader says of a damaged file
_DAMAGE = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
_CONTROLS = re.compile(r"[\0-\x08\x0e-\x1f]")  # which no text has
# The byte order mark of UTF-32LE begins with the mark of UTF-16LE.
_WIDE = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")


def text_ending(path: str) -> str | None:
    """The text format that a file name announces, without `.gz` and its like; None for others."""
    root, last = os.path.splitext(path.lower())
    packed = last in _PACKED
    suffix = os.path.splitext(root)[1] if packed else last
    return suffix if suffix in (_TEXT if packed else (*_TEXT, *COLUMNAR)) else None


def text_lines(path: str, *, progress: Progress, content: Content | None = None) -> Iterator[str]:
    """Lines of a file of text with their ends, without byte order marks.

    The file is in UTF-8, UTF-16 or UTF-32, perhaps compressed, as its first bytes tell.

    Args:
        path: path of the file.
        progress: receiver of progress.
        content: hash that is given the bytes of the file.

    Raises:
        InputError: no regular file, a damaged one, one that holds no text, or a line that is too
            long, holds a NUL or cannot be decoded, by its number.
    """
    name = "standard input" if path == STANDARD_INPUT else name_of(path)
    lines = progress.track(_byte_lines(path, content), f"Reading {name}")
    utf8 = False  # whether characters beyond ASCII were read
    for number, line in enumerate(lines, start=1):
        text = decoded(line, path, line=number, utf8=utf8)
        if "\0" in text:
            raise _with_nul(where(path, number), text)
        utf8 = utf8 or not text.isascii()
        yield text


def whole_text(path: str, *, content: Content | None = None) -> str:
    """The text of a file that is read at once, and not larger than a limit; see `text_lines`."""
    with readable(path, *_DAMAGE), _opened(path, content) as stream:
        data = stream.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise InputError(
            f"{path} has more than {LARGEST_FILE:,} bytes, the most that is read at once; write "
            "one JSON object a line into a .jsonl"
        )
    return decoded(data, path)


def hash_file(path: str, content: Content) -> None:
    """Put the bytes of a file into a hash; raises `InputError` and `OSError`."""
    with open_regular(path) as file:
        for part in file_chunks(file):
            content.update(part)


def decoded(content: bytes, path: str, *, line: int = 1, utf8: bool = False) -> str:
    """The content of a UTF-8 file, or a line of one, without the byte order mark.

    Args:
        content: what is decoded.
        path: path of the file.
        line: number of the first line.
        utf8: whether characters beyond ASCII came before.

    Raises:
        InputError: other bytes; it names the line, and Windows-1252 only with what it makes of it.
    """
    try:
        # Files with marks that were put together have them in the middle, too.
        return content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        data, start = error.object, error.start
        remedy = "convert the file: iconv -f ENCODING -t UTF-8, with the encoding that it has"
        with contextlib.suppress(UnicodeDecodeError):
            text = data[max(0, start - SHOWN) : start + SHOWN].decode("cp1252").strip()
            remedy += f" (WINDOWS-1252 if {quoted(text)} is right)"
        if utf8 or not data[:start].isascii():
            remedy = "what is before it is, so that this line is damaged; mend or remove it"
        place = where(path, line + data.count(b"\n", 0, start))
        raise InputError(f"{place}: byte 0x{data[start]:02x} is not UTF-8; {remedy}") from error


def _with_nul(place: str, text: str) -> InputError:
    remedy = "remove NULs: tr -d '\\000'"
    if _CONTROLS.search(text.replace("\0", "")):
        remedy = "is it UTF-16 without a mark? iconv -f UTF-16LE -t UTF-8, or -f UTF-16BE"
    return InputError(f"{place} holds a NUL byte, as no text in UTF-8 does; {remedy}")


def where(path: str, line: int) -> str:
    """A place in a file, as error messages name it."""
    return f"{'standard input' if path == STANDARD_INPUT else path}, line {line}"


def open_regular(path: str | os.PathLike[str]) -> io.FileIO:
    """Open a file for reading; a pipe or a device is refused, not waited for.

    Raises:
        InputError: not a regular file.
        OSError: none there, or no permission.
    """
    # Without O_NONBLOCK a pipe waits for its writer, for ever where there is none.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(
            f"{path} is not a regular file; save what it gives in one, or pipe lines of text into "
            f"standard input and pass {STANDARD_INPUT!r}"
        )
    return io.FileIO(handle)


def _byte_lines(path: str, content: Content | None) -> Iterator[bytes]:
    with readable(path, *_DAMAGE), _opened(path, content) as stream:
        lines = iter(functools.partial(stream.readline, LARGEST_TEXT + 1), b"")
        for number, line in enumerate(lines, start=1):
            if len(line) > LARGEST_TEXT:
                raise InputError(
                    f"{where(path, number)} has more than {LARGEST_TEXT:,} bytes, the most "
                    "that a line may have; write one document a line, and cut longer ones"
                )
            yield line


@contextlib.contextmanager
def _opened(path: str, content: Content | None) -> Iterator[Any]:
    if path == STANDARD_INPUT:
        stream = getattr(sys.stdin, "buffer", None)  # sys.stdin is None where it came closed
        if stream is None or stream.closed:
            raise InputError("standard input is closed; pipe lines of text into it, or pass a file")
        yield _text(path, iter(functools.partial(stream.read1, _BUFFER), b""))
        return
    with open_regular(path) as file:
        yield _text(path, file_chunks(file, content))


def _text(path: str, parts: Iterator[bytes]) -> io.BufferedReader:
    """The text in UTF-8 of bytes that are compressed or in another encoding, or neither."""
    stream = _unpacked(_stream(parts))
    head = stream.peek()
    zeros = [6 * head[i::4].count(0) > len(head) for i in range(4)]  # of two thirds of such bytes
    for encoding in _WIDE:
        latin = [byte == 0 for byte in "ab".encode(encoding)[:4]]
        is_latin = zeros == latin and not _CONTROLS.search(head.decode(encoding, "ignore"))
        if is_latin or head.startswith("\ufeff".encode(encoding)):
            text = io.TextIOWrapper(stream, encoding, newline="")
            return _stream(map(str.encode, iter(functools.partial(text.read, _BUFFER), "")))
    if 0 in head:
        place = where(path, 1 + head.count(b"\n", 0, head.index(0)))
        raise _with_nul(place, head.decode(errors="ignore"))
    return stream


def _unpacked(stream: io.BufferedReader) -> io.BufferedReader:
    """The content of a stream, which its first bytes tell where it is compressed."""
    head = stream.peek()[:16]
    if head.startswith(b"\x1f\x8b"):
        return _stream(file_chunks(gzip.GzipFile(fileobj=stream)))
    if re.match(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", head):
        return _stream(_decompressed(stream, bz2.BZ2Decompressor))
    if head.startswith(b"\xfd7zXZ\0"):
        # The header may ask for a dictionary of 4 GB.
        return _stream(_decompressed(stream, lambda: lzma.LZMADecompressor(memlimit=2**29)))
    if re.match(rb"[\x50-\x5f]\x2a\x4d\x18|\x28\xb5\x2f\xfd", head):
        arrow = require("pyarrow", extra="parquet")  # Python has none before 3.14
        return _stream(
            file_chunks(arrow.CompressedInputStream(arrow.PythonFile(stream, "r"), "zstd"))
        )
    return stream


def _decompressed(stream: io.BufferedReader, make: Callable[[], Any]) -> Iterator[bytes]:
    """The content of streams, one behind the other.

    `BZ2File` and `LZMAFile` end in silence at a damaged stream after the first.
    """
    unpacker = make()
    for packed in iter(stream.read1, b""):
        packed = packed.lstrip(b"\0") if unpacker.eof else packed
        while packed or not (unpacker.eof or unpacker.needs_input):
            unpacker = make() if unpacker.eof else unpacker
            yield unpacker.decompress(packed, _BUFFER)
            packed = unpacker.unused_data.lstrip(b"\0")  # .xz may be padded
    if not unpacker.eof:
        raise EOFError("it ends in the middle")


class _Parts(io.RawIOBase):
    """Parts of bytes as a stream."""

    def __init__(self, parts: Iterator[bytes]):
        self._parts, self._rest = parts, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._parts, b"")
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _stream(parts: Iterator[bytes]) -> io.BufferedReader:
    return io.BufferedReader(_Parts(filter(None, parts)), _BUFFER)


@contextlib.contextmanager
def readable(path: str, *errors: type[Exception]) -> Iterator[None]:
    """Context in which errors of these types, from a damaged file or folder, become an
    `InputError`.
    """
    try:
        yield
    except InputError:
        raise
    except errors as error:
        reason = " ".join(str(error).split())[:_REASON]
        raise InputError(
            f"{path} cannot be read: {reason}; check that it is whole and readable"
        ) from error


def check_text(text: str, *, what: str, remedy: str) -> None:
    """Refuse half of a surrogate pair, which cannot be written as UTF-8; raises `InputError`."""
    if not is_text(text):
        raise InputError(f"{what} holds half of a surrogate pair, which is no character; {remedy}")


def is_text(text: str) -> bool:
    """Whether a text can be written as UTF-8: no half of a surrogate pair is in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def name_of(path: str) -> str:
    """The last part of a path, with a mark for what is no UTF-8 in it."""
    return os.fsencode(Path(path).name).decode(errors="replace")


def quoted(text: str) -> str:
    """Text as error messages quote it: on one line, and not all of a long one."""
    return repr(text) if len(text) <= SHOWN else f"{text[:SHOWN]!r}..."


def listed(columns: Sequence[str]) -> str:
    """Names as error messages list them, the first ones of many."""
    more = ", ..." if len(columns) > SHOWN else ""
    return ", ".join(map(quoted, columns[:SHOWN])) + more or "(no columns)"
