"""Damaged and crafted copies of a small valid file, the same ones for the same seed."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

# What readers trip over: ends, quotes, half characters, numbers that are none, deep nesting.
_PIECES = (
    b"",
    b"\x00",
    b"\x00" * 5000,
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\n",
    b"\r",
    b"\n\n",
    b'"',
    b'"\n"',
    b"'",
    b",",
    b"\t",
    b"," * 3000,
    b"\\",
    b"\\ud800",
    b"\x1a",
    b"\xe2\x80\xa8",
    b"(" * 5000,
    b"[" * 20_000,
    b'{"a":' * 20_000,
    b"-" * 5000,
    b"9" * 5000,
    b"-1",
    b"--5",
    b"1e400",
    b"NaN",
    b"null",
    b"true",
    b"{}",
    b"[]",
    b"../",
    b"{DATASET}",
    b"PK\x03\x04",
    b"\x1f\x8b",
    b"\x93NUMPY",
)
_VALUES = (
    None,
    True,
    0,
    -1,
    2**31,
    2**63,
    10**400,
    -0.5,
    float("nan"),
    float("inf"),
    "",
    "\x00",
    "\ud800",
    "../../etc",
    "text",
    "x" * 10_000,
    [],
    {},
    [[]],
    {"a": 1},
    json.loads("[" * 300 + "]" * 300),
)


def mutations(content: bytes, *, seed: int, number: int) -> Iterator[bytes]:
    """So many copies of a file, each with one to three changes."""
    for index in range(number):
        rng = random.Random(f"{seed} {index}")
        changed = content
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            changed = rng.choice(_CHANGES)(changed, rng)
        yield changed


def json_mutations(content: bytes, *, seed: int, number: int) -> Iterator[bytes]:
    """So many copies of a JSON file, each with a value replaced, removed, moved or repeated."""
    for index in range(number):
        rng = random.Random(f"{seed} {index}")
        value = json.loads(content)
        for _ in range(rng.choice((1, 1, 2))):
            value = _changed_value(value, rng)
        yield json.dumps(value).encode()


def _flip(content: bytes, rng: random.Random) -> bytes:
    """One bit."""
    if not content:
        return content
    place = rng.randrange(len(content))
    bit = content[place] ^ (1 << rng.randrange(8))
    return content[:place] + bytes([bit]) + content[place + 1 :]


def _cut(content: bytes, rng: random.Random) -> bytes:
    """The beginning."""
    return content[: rng.randrange(len(content) + 1)]


def _drop(content: bytes, rng: random.Random) -> bytes:
    """All but a slice."""
    start, stop = _slice(content, rng)
    return content[:start] + content[stop:]


def _repeat(content: bytes, rng: random.Random) -> bytes:
    """A slice twice."""
    start, stop = _slice(content, rng)
    return content[:stop] + content[start:]


def _move(content: bytes, rng: random.Random) -> bytes:
    """A slice in the place of another."""
    start, stop = _slice(content, rng)
    place, end = _slice(content, rng)
    return content[:place] + content[start:stop] + content[end:]


def _insert(content: bytes, rng: random.Random) -> bytes:
    """A piece that readers trip over, between or instead of others."""
    place = rng.randrange(len(content) + 1)
    behind = place + rng.choice((0, 0, 1, 4))
    return content[:place] + rng.choice(_PIECES) + content[behind:]


def _noise(content: bytes, rng: random.Random) -> bytes:
    """A slice of random bytes."""
    start, stop = _slice(content, rng)
    return content[:start] + rng.randbytes(stop - start) + content[stop:]


_CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...]
_CHANGES = (_flip, _flip, _flip, _cut, _drop, _repeat, _move, _insert, _insert, _noise)


def _slice(content: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + rng.choice((1, 2, 4, 8, 30, 200)))


def _changed_value(value: Any, rng: random.Random) -> Any:
    value = copy.deepcopy(value)
    paths = [path for path in _paths(value) if path]
    if not paths:
        return rng.choice(_VALUES)
    *above, last = rng.choice(paths)
    parent = _at(value, above)
    match rng.choice(("replace", "replace", "replace", "remove", "move", "rename")):
        case "replace":
            parent[last] = rng.choice(_VALUES)
        case "remove":
            del parent[last]
        case "move":
            parent[last] = copy.deepcopy(_at(value, rng.choice(paths)))
        case "rename" if isinstance(parent, dict):
            parent[rng.choice(("", "x", "kind", "__class__"))] = parent.pop(last)
    return value


def _paths(value: Any, above: tuple = ()) -> Iterator[tuple]:
    yield above
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _paths(value[key], (*above, key))


def _at(value: Any, path: Any) -> Any:
    for key in path:
        value = value[key]
    return value
