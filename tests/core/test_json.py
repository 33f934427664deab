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


def test_every_kind_of_field_is_made():
    made = from_json(
        _Everything,
        {
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
        },
        where="config",
    )
    assert made == _Everything(
        3, 2.0, True, "right", Path("folder"), None, (1, 2), (1, 2.0), [_Pair("a")],
        {"b": _Pair("b", 0.5)},
    )  # fmt: skip
    assert isinstance(made.rate, float)
    assert isinstance(made.ends[1], float)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("count", True),
        ("count", 1.5),
        ("rate", float("nan")),
        ("rate", 10**400),
        ("on", 1),
        ("way", "up"),
        ("way", ["left"]),
        ("out", 3),
        ("most", 2.5),
        ("sizes", 3),
        ("sizes", [1, "2"]),
        ("ends", [1, 2, 3]),
        ("pairs", [{"title": "a"}]),
        ("by_name", {"b": {"weight": 1}}),
        ("unknown", 1),
    ],
)
def test_a_value_of_another_type_is_named(field, value):
    fields = {"count": 1, "rate": 1.0} | {field: value}
    with pytest.raises(InputError, match=field):
        from_json(_Everything, fields, where="config")


@pytest.mark.parametrize("value", [None, [], "text", 3])
def test_what_is_no_object_is_no_record(value):
    with pytest.raises(InputError, match="config"):
        from_json(_Everything, value, where="config")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1]", b"null", b"\xff\xfe{}", b'{"a": ' * 10**5, b'{"a": ' + b"9" * 5000 + b"}"],
)
def test_a_file_that_holds_no_object_is_named(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"config\.json"):
        read_json(path, remedy="write it again")


def test_only_regular_files_of_a_bounded_size_are_read(tmp_path):
    pipe, large = tmp_path / "pipe", tmp_path / "large.json"
    os.mkfifo(pipe)
    large.write_text('{"a": 1}')
    for path in (pipe, Path("/dev/zero"), tmp_path):
        with pytest.raises(InputError, match="not a regular file"):
            read_json(path, remedy="pass a file")
    with pytest.raises(InputError, match="more than 4"):
        read_json(large, remedy="pass a file", largest=4)
    with pytest.raises(InputError, match="cannot be read"):
        read_json(tmp_path / "absent.json", remedy="pass a file")


def test_null_is_none_where_a_field_may_be_none_and_nan_where_it_may_not():
    def read(kind):
        return from_json(kind, None, where="x", finite=False)

    assert read(float | None) is None
    assert read(int | float | None) is None
    assert math.isnan(read(float))
