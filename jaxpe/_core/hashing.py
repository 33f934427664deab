"""Checksums and hashes of files, read in parts: a file may be larger than the memory left."""

import hashlib
import os
import zlib
from collections.abc import Iterator
from typing import Any

Content = hashlib.blake2b  # a hash that bytes of a file are put into
_PART = 2**20  # bytes that are read at once


def content_hash(content: bytes = b"") -> Content:
    """The hash of content, to which more may be added: BLAKE2b, 32 hexadecimal digits.

    >>> content_hash().hexdigest()
    'cae66941d9efbd404e4d88758ea67670'
    """
    return hashlib.blake2b(content, digest_size=16)


def parts_of(file: Any, content: Content | None = None) -> Iterator[bytes]:
    """The content of a file opened for bytes, from where it stands, a part at a time.

    Args:
        file: the file.
        content: hash that each part is put into.

    >>> import io
    >>> [len(part) for part in parts_of(io.BytesIO(bytes(1_500_000)))]
    [1048576, 451424]
    """
    while part := file.read(_PART):
        if content is not None:
            content.update(part)
        yield part


def hash_of_file(path: str | os.PathLike[str]) -> str:
    """The `content_hash` of a file; raises `OSError` where it cannot be read."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, content_hash).hexdigest()


def checksum_of_file(path: str | os.PathLike[str]) -> int:
    """The CRC-32 of a file; raises `OSError` where it cannot be read."""
    checksum = 0
    with open(path, "rb") as file:
        for part in parts_of(file):
            checksum = zlib.crc32(part, checksum)
    return checksum
