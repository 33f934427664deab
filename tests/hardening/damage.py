"""Damages of one file: its bytes, its place in the folder, or a value that it holds.

A damage is a function of a path and a random generator. It raises `InapplicableError` where it has
no meaning.
"""

import copy
import io
import json
import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

Damage = Callable[[Path, np.random.Generator], None]
NOBODY = 65534  # a user without permissions


class InapplicableError(Exception):
    """This damage has no meaning for this kind of file."""


# What readers trip over: ends, quotes, half characters, numbers that are none, deep nesting.
_PIECES = (
    b"\x00", b"\x00" * 5000, b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\n", b"\r", b"\n\n",
    b'"', b'"\n"', b"'", b",", b"\t", b"," * 3000, b"\\", b"\\ud800", b"\x1a", b"\xe2\x80\xa8",
    b"(" * 5000, b"[" * 20_000, b'{"a":' * 20_000, b"-" * 5000, b"9" * 5000, b"-1", b"1e400",
    b"NaN", b"null", b"true", b"{}", b"[]", b"../", b"PK\x03\x04", b"\x1f\x8b", b"\x93NUMPY",
)  # fmt: skip
_DEEP = json.loads("[" * 300 + "]" * 300)
_OTHER_TYPES = (None, True, 0, -1, 0.5, "", "text", "\ud800\n\x1b[31m", "../../etc", [], {}, [[]])
_NOT_FINITE = (math.nan, math.inf, -math.inf)
_HUGE = (2**31, 2**63, 10**400, 10**9, -(2**63), 1e308, 1e-320, "x" * 10_000, _DEEP)
_DTYPES = ("<f8", "<f2", ">f4", "<i8", "<u1", "?", "<c16", "<U2", "<M8[s]")


def truncated(path, rng):
    content = path.read_bytes()
    path.write_bytes(content[: rng.integers(len(content))])


def emptied(path, rng):
    path.write_bytes(b"")


def bit_flipped(path, rng):
    content = bytearray(path.read_bytes())
    content[rng.integers(len(content))] ^= 1 << rng.integers(8)
    path.write_bytes(content)


def overwritten(path, rng):
    """A slice of random bytes, or a slice of the file in the place of another."""
    content = path.read_bytes()
    start, source = rng.integers(len(content), size=2)
    size = int(rng.choice((1, 4, 30, 200)))
    piece = rng.bytes(size) if rng.random() < 0.5 else content[source : source + size]
    path.write_bytes(content[:start] + piece + content[start + len(piece) :])


def odd_bytes(path, rng):
    """A piece that readers trip over, between others."""
    content, piece = path.read_bytes(), _PIECES[rng.integers(len(_PIECES))]
    start = rng.integers(len(content) + 1)
    path.write_bytes(content[:start] + piece + content[start + rng.choice((0, 1, 4)) :])


def other_encoding(path, rng):
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        raise InapplicableError from None
    encodings = ("utf-16", "utf-16-be", "utf-32", "utf-8-sig", "latin-1", "cp037")
    encoding = str(rng.choice(encodings))
    path.write_bytes(text.replace("e", "é").encode(encoding, "replace"))


def absent(path, rng):
    path.unlink()


def a_folder(path, rng):
    path.unlink()
    path.mkdir()


def a_device(path, rng):
    """A pipe, which waits for a writer, a file without an end, or a link to itself."""
    path.unlink()
    kind = rng.integers(3)
    if kind == 0:
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == 1 else path.name)


def unreadable(path, rng):
    """Without permission; `matrix.attempt` reads as another user where this one is root."""
    path.chmod(0)


def other_type(path, rng):
    """A value of JSON of another type, or an array of another dtype."""
    if path.suffix in _ARRAYS:
        dtype = str(rng.choice(_DTYPES))
        return _change_array(path, rng, lambda array: array.astype(dtype))
    return _change_json(path, rng, lambda: _OTHER_TYPES[rng.integers(len(_OTHER_TYPES))])


def missing_key(path, rng):
    if path.suffix in _ARRAYS:
        return _change_array(path, rng, None)
    return _change_json(path, rng, None)


def other_shape(path, rng):
    if path.suffix not in _ARRAYS:
        raise InapplicableError
    shapes = (lambda x: x.reshape(-1), lambda x: x[None], lambda x: x[:-1], lambda x: x[:0])
    change = shapes[rng.integers(4)]
    return _change_array(path, rng, lambda x: change(np.atleast_1d(x)))


def not_finite(path, rng):
    value = _NOT_FINITE[rng.integers(3)]
    if path.suffix not in _ARRAYS:
        return _change_json(path, rng, lambda: value)

    def spoil(array):
        floats = array.astype(np.float32) if array.dtype.kind not in "f" else array.copy()
        if floats.size:
            floats.flat[rng.integers(floats.size)] = value
        return floats

    return _change_array(path, rng, spoil)


def huge(path, rng):
    if path.suffix not in _ARRAYS:
        return _change_json(path, rng, lambda: _HUGE[rng.integers(len(_HUGE))])

    def spoil(array):
        wide = array.astype(np.float64 if array.dtype.kind == "f" else np.uint64)
        if wide.size:
            wide.flat[rng.integers(wide.size)] = 1e300 if array.dtype.kind == "f" else 2**63
        return wide

    return _change_array(path, rng, spoil)


DAMAGES: dict[str, Damage] = {
    damage.__name__: damage
    for damage in (
        truncated, emptied, bit_flipped, overwritten, odd_bytes, other_encoding, absent, a_folder,
        a_device, unreadable, other_type, missing_key, other_shape, not_finite, huge,
    )
}  # fmt: skip


def _change_json(path: Path, rng: np.random.Generator, value: Callable[[], Any] | None) -> None:
    """Give one value in the file, or in a line of JSON lines, another; remove it without one."""
    if path.suffix not in (".json", ".jsonl"):
        raise InapplicableError
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    number = rng.integers(len(lines))
    changed = copy.deepcopy(json.loads(lines[number]))
    places = [*_places(changed)]
    parent, key = places[rng.integers(len(places))]
    if value is None:
        del parent[key]
    else:
        parent[key] = value()
    lines[number] = json.dumps(changed)
    path.write_text("\n".join([*lines, ""]))


def _places(value: Any):
    """Containers and the keys in them, at every depth."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _change_array(
    path: Path,
    rng: np.random.Generator,
    change: Callable[[np.ndarray], np.ndarray] | None,
) -> None:
    """Change one array of the file, whose checksums are then right; remove it without a change."""
    read, write = _ARRAYS[path.suffix]
    arrays = read(path)
    name = sorted(arrays)[rng.integers(len(arrays))]
    array = arrays.pop(name)
    if change is not None:
        try:
            with np.errstate(all="ignore"):
                arrays[name] = change(array)
        except (TypeError, ValueError):  # no such dtype of these values
            raise InapplicableError from None
    elif path.suffix == ".npy":
        raise InapplicableError
    try:
        write(path, arrays)
    except (KeyError, ValueError, safetensors.SafetensorError):  # a dtype that the format lacks
        raise InapplicableError from None


def _read_npz(path):
    with np.load(path) as arrays:
        return dict(arrays)


def _write_npz(path, arrays):
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array, allow_pickle=False)
            archive.writestr(f"{name}.npy", content.getvalue())


_ARRAYS: dict[str, tuple[Callable, Callable]] = {
    ".npz": (_read_npz, _write_npz),
    ".npy": (lambda path: {"": np.load(path)}, lambda path, arrays: np.save(path, arrays[""])),
    ".safetensors": (
        safetensors.numpy.load_file,
        lambda path, arrays: safetensors.numpy.save_file(arrays, path),
    ),
}
