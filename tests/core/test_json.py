"""JSON from outside ends as a typed value or as an InputError with its place."""

import dataclasses
import math
import os
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import from_json, read_json


class _Pair(NamedTuple):
    name: str
    weight: float = 1.0


@dataclasses.dataclass(frozen=True)
class _Everything:
    count: int
    rate: float
    on: bool = False
    way: Literal["left", "right"] = "left"
    out: Path = Path("run")
    most: int | None = None
    sizes: tuple[int, ...] = ()
    ends: tuple[int, float] = (0, 1.0)
    pairs: list[_Pair] = dataclasses.field(default_factory=list)
    by_name: dict[str, _Pair] = dataclasses.field(default_factory=dict)


FIELDS = {
    "count": 3,
    "rate": 2,
    "on": True,
    "way": "right",
    "out": "folder",
    "most": None,
    "sizes": [1, 2],
    "ends": [1, 2],
    "pairs": [{"name": "a"}],
    "by_name": {"b": {"name": "b", "weight": 0.5}},
}


def test_every_kind_of_field_is_made():
    made = from_json(_Everything, FIELDS, where="config")
    by_name = {"b": _Pair("b", 0.5)}
    pairs, out = [_Pair("a")], Path("folder")
    expected = (3, 2.0, True, "right", out, None, (1, 2), (1, 2.0), pairs, by_name)
    assert made == _Everything(*expected)
    assert isinstance(made.rate, float)
    assert isinstance(made.ends[1], float)


WRONG = [
    ("count", True),
    ("rate", float("nan")),
    ("rate", 10**400),
    ("on", 1),
    ("way", "up"),
    ("out", 3),
    ("sizes", [1, "2"]),
    ("ends", [1, 2, 3]),
    ("pairs", [{"title": "a"}]),
    ("by_name", {"b": {"weight": 1}}),
    ("unknown", 1),
]


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_a_value_of_another_type_is_named(field, value):
    with pytest.raises(InputError, match=field):
        from_json(_Everything, FIELDS | {field: value}, where="config")


@pytest.mark.parametrize("value", [None, [], "text", 3])
def test_what_is_no_object_is_no_record(value):
    with pytest.raises(InputError, match="config"):
        from_json(_Everything, value, where="config")


def test_only_regular_files_of_an_object_and_a_bounded_size_are_read(tmp_path):
    def fails(path, word, **options):
        with pytest.raises(InputError, match=word):
            read_json(path, remedy="write it again", **options)

    path, pipe = tmp_path / "config.json", tmp_path / "pipe"
    for content in (b"", b"{", b"[1]", b"null", b"\xff\xfe{}", b'{"a": ' * 10**5, b"9" * 5000):
        path.write_bytes(content)
        fails(path, "config.json")
    os.mkfifo(pipe)
    for other in (pipe, Path("/dev/zero"), tmp_path):
        fails(other, "regular file")
    path.write_text('{"a": 1}')
    fails(path, "more than 4", largest=4)
    fails(tmp_path / "absent.json", "cannot be read")


def test_null_is_none_where_a_field_may_be_none_and_nan_where_it_may_not():
    none, number = (from_json(x, None, where="x", finite=False) for x in (float | None, float))
    assert none is None
    assert math.isnan(number)
