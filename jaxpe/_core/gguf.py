"""Metadata and tensors of llama.cpp's files (.gguf).

The package `gguf` decodes the numbers. Its reader trusts the lengths in a file, so a few bytes can
request any amount of memory. This module checks each length against the size of the file first.
"""

import math
import os
import struct
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError, require

_VERSIONS = (2, 3)
_LARGEST_HEADER = 2**26  # bytes; a vocabulary of 260,000 tokens takes a quarter of it
_MOST_AXES = 4
_MOST_ENTRIES = 8  # entries of an array that are kept by default, enough for messages
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_SCALARS[12] = "d"
_STRING, _ARRAY = 8, 9


class GgufTensor(NamedTuple):
    """Tensor of a GGUF file, read when asked for."""

    kind: Any  # how its numbers are stored, a `gguf.GGMLQuantizationType`
    shape: tuple[int, ...]  # the slowest axis first
    data: np.ndarray  # bytes [..., bytes of a row], mapped from the file

    def read(self) -> np.ndarray:
        """The numbers, as float32; `NotImplementedError` for a kind that `gguf` cannot decode."""
        dequantize = require("gguf.quants", extra="gguf").dequantize
        with np.errstate(all="ignore"):  # callers check for numbers that are not finite
            values = dequantize(self.data, self.kind).reshape(self.shape)
        # JAX may keep a view of the file without a copy, which would change with the file.
        return values.copy() if np.may_share_memory(values, self.data) else values


def read_gguf(
    path: str | os.PathLike[str], *, full_prefix: str | None = None
) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    """Metadata and tensors of a little-endian .gguf file, version 2 or 3.

    Arrays are cut to their first entries, except under keys that begin with `full_prefix`.
    `InputError` for another kind of file or a damaged one: lengths beyond its end, repeated names,
    text that is not UTF-8, tensors that overlap.
    """
    require("gguf", extra="gguf")
    if not os.path.isfile(path):
        raise InputError(f"{path} is not a regular file; pass the path of a .gguf")
    try:
        # As a plain array: slices of a memmap cost as much as small blocks take to decode.
        return _read(np.memmap(path, np.uint8, mode="r").view(np.ndarray), full_prefix)
    except (ValueError, KeyError, OSError) as error:
        raise InputError(f"{path} is not a whole .gguf file ({error}): fetch it again") from error


def _read(
    content: np.ndarray, full_prefix: str | None
) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    header = _Header(content)
    if bytes(header.take(4)) != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    if (version := header.number("I")) not in _VERSIONS:
        raise ValueError(f"its version is {version}; 2 and 3 of little-endian files can be read")
    tensors, entries = header.number("Q"), header.number("Q")
    metadata: dict[str, Any] = {}
    for _ in range(entries):
        key = header.text()
        most = None if full_prefix is not None and key.startswith(full_prefix) else _MOST_ENTRIES
        _put(metadata, key, header.value(header.number("I"), most))
    infos: dict[str, _Info] = {}
    for _ in range(tensors):
        _put(infos, header.text(), _Info.read(header))
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"general.alignment is {alignment!r}, not a power of two")
    start = -(-header.at // alignment) * alignment
    _check_apart(infos, content.size - start)
    return metadata, {name: info.tensor(content[start:]) for name, info in infos.items()}


class _Header:
    """Header of a file, read from front to back."""

    def __init__(self, content: np.ndarray):
        self.content = content.data[:_LARGEST_HEADER]
        self.at = 0

    def take(self, count: int) -> memoryview:
        if count > len(self.content) - self.at:
            raise ValueError(f"at byte {self.at}, {count:,} bytes should follow")
        self.at += count
        return self.content[self.at - count : self.at]

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(code)))[0]

    def text(self) -> str:
        return bytes(self.take(self.number("Q"))).decode()

    def value(self, kind: int, most: int | None) -> Any:
        """Value of a kind; an array is cut to at most `most` entries."""
        if kind != _ARRAY:
            return self._entries(kind, 1, 1)[0]
        kind, count = self.number("I"), self.number("Q")
        return self._entries(kind, count, count if most is None else min(count, most))

    def _entries(self, kind: int, count: int, first: int) -> list[Any]:
        """First entries of an array of `count` entries; the others are skipped."""
        if kind == _STRING:
            texts = [self.text() for _ in range(first)]
            for _ in range(count - first):
                self.take(self.number("Q"))
            return texts
        if kind not in _SCALARS:
            raise ValueError(f"at byte {self.at}, a value of the unknown kind {kind}")
        content = self.take(count * struct.calcsize(_SCALARS[kind]))
        return [*struct.unpack_from(f"<{first}{_SCALARS[kind]}", content)]


class _Info(NamedTuple):
    """Entry of the header about a tensor: its kind, axes (fastest first) and offset."""

    kind: Any
    axes: tuple[int, ...]
    offset: int
    row: int  # bytes of a row

    @classmethod
    def read(cls, header: _Header) -> "_Info":
        gguf = require("gguf", extra="gguf")
        if (count := header.number("I")) > _MOST_AXES:
            raise ValueError(f"at byte {header.at}, a tensor of {count} axes")
        axes = struct.unpack(f"<{count}Q", header.take(8 * count))
        if 0 in axes:
            raise ValueError(f"at byte {header.at}, a tensor of no numbers")
        kind = gguf.GGMLQuantizationType(header.number("I"))
        numbers, size = gguf.GGML_QUANT_SIZES[kind]
        width = axes[0] if axes else 1
        if width % numbers:
            raise ValueError(f"{width} numbers are not whole blocks of {kind.name}")
        return cls(kind, axes, header.number("Q"), width // numbers * size)

    @property
    def end(self) -> int:
        return self.offset + self.row * math.prod(self.axes[1:])

    def tensor(self, content: np.ndarray) -> GgufTensor:
        shape = self.axes[::-1]
        data = content[self.offset : self.end].reshape(*shape[:-1], self.row)
        return GgufTensor(self.kind, shape, data)


def _put(entries: dict[str, Any], name: str, value: Any) -> None:
    if name in entries:
        raise ValueError(f"it has {name!r} twice")
    entries[name] = value


def _check_apart(infos: dict[str, _Info], size: int) -> None:
    """Raise for tensors that overlap, or that extend beyond the end of the file."""
    before = 0
    for name, info in sorted(infos.items(), key=lambda item: (item[1].offset, item[1].end)):
        if info.offset < before:
            raise ValueError(f"the tensor {name!r} begins inside another")
        before = info.end
        if before > size:
            raise ValueError(f"the tensor {name!r} ends {before - size:,} bytes after the file")
