"""Results as JSON and arrays, and back."""

import math
import zipfile
from typing import Any, NamedTuple

import numpy as np
import pytest

from jaxpe import InputError
from jaxpe._core.json_values import from_json, to_json
from jaxpe._core.results import LargeArray, Seconds, load_result, result_files


class Part(NamedTuple):
    name: str
    distances: LargeArray


class Found(NamedTuple):
    value: float
    ends: tuple[float, float]
    spectrum: np.ndarray
    parts: list[Part]
    by_name: dict[str, Part]
    rank: int | None = None
    seconds: Seconds = {}  # noqa: RUF012


FOUND = Found(
    value=math.nan,
    ends=(-math.inf, math.inf),
    spectrum=np.array([1 + 2j, 3j]),
    parts=[Part("a", np.eye(2)), Part("b", np.ones((1, 3)))],
    by_name={"c": Part("c", np.zeros((2, 2)))},
    seconds={"reading": 1.0},
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple | list):
        pairs = zip(one, other, strict=True)
        return type(one) is type(other) and all(same(a, b) for a, b in pairs)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, np.ndarray | float):
        return np.array_equal(one, other, equal_nan=True)
    return one == other


def write(found: Any, folder, name: str = "found"):
    for file, content in result_files(found, name).items():
        (folder / file).write_bytes(content)
    return folder / f"{name}.json"


def test_a_result_comes_back_from_its_files_and_from_json_alone(tmp_path):
    path, expected = write(FOUND, tmp_path), FOUND._replace(seconds={})
    assert same(load_result(Found, path), expected)
    assert same(from_json(Found, to_json(expected), where="it", finite=False), expected)
    assert not any(name in path.read_text() for name in ("distances", "seconds"))
    with zipfile.ZipFile(path.with_suffix(".npz")) as archive:
        assert len(archive.namelist()) == 3


def test_the_same_result_has_the_same_bytes():
    assert result_files(FOUND, "x") == result_files(FOUND._replace(seconds={"a": 2.0}), "x")


def test_damage_is_one_error(tmp_path):
    path = write(FOUND, tmp_path)
    arrays = path.with_suffix(".npz")
    whole = arrays.read_bytes()
    arrays.unlink()
    with pytest.raises(InputError, match="lacks 'distances'"):
        load_result(Found, path)
    for content in (b"", whole[:40], b"PK" + whole[2:-30]):
        arrays.write_bytes(content)
        with pytest.raises(InputError, match=r"found\.npz cannot be read"):
            load_result(Found, path)
    arrays.write_bytes(whole)
    path.write_text("{}")
    with pytest.raises(InputError, match="no place"):
        load_result(Found, path)
    write(Part("a", np.eye(2)), tmp_path)
    with pytest.raises(InputError, match="unknown fields"):
        load_result(Found, path)
