"""`jaxpe batch`: what it prints, writes and refuses."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest


@pytest.fixture
def file(tmp_path):
    def write(name="batch.npz", **arrays):
        np.savez(tmp_path / name, **arrays)
        return tmp_path / name

    return write


RIGHT = {"position_ids": [[0, 1, 2, 0, 1]], "segment_ids": [[1, 1, 1, 2, 2]]}
WRONG = RIGHT | {"position_ids": [[0, 1, 2, 3, 4]]}


def test_right_batches_pass(command, file):
    code, out, err = command("batch", file(**RIGHT), file("other.npz", **RIGHT), "--longest", "8k")
    assert code == 0, err
    assert "2 batches: passed" in out
    assert "0.5556" in out  # share of pairs of a token and itself


def test_wrong_batches_fail_with_the_fault(command, file, tmp_path):
    code, out, _ = command("batch", file(**WRONG), "--junit", tmp_path / "junit.xml")
    assert code == 1
    assert "not reset" in out
    assert "row 0, column 3" in out
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert suite.get("failures") == "1"


def test_json_alone(command, file):
    code, out, _ = command("batch", file(**WRONG), "--json")
    found = json.loads(out)
    assert (code, found["passed"], found["faults"][0]["name"]) == (1, False, "not reset")


def test_options_say_what_is_meant(command, file):
    assert command("batch", file(**WRONG), "--no-resets")[0] == 0
    shards = ("--shards", "zigzag", 2, 0)
    path = file(positions=[[0, 1, 2, 9, 10, 11]])
    assert command("batch", path, *shards)[0] == 0
    assert command("batch", file(positions=[[0, 1, 2, 3, 4, 5]]), *shards)[0] == 1


@pytest.mark.parametrize("words", [[], ["--shards", "zigzag", "2", "2"], ["--first", "-1"]])
def test_options_out_of_range_are_refused(command, file, words):
    path = [file(**RIGHT)] if words else []
    code, _, _ = command("batch", *path, *words)
    assert code == 2


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut"])
def test_damaged_files_are_one_line(command, tmp_path, content):
    path = tmp_path / "batch.npz"
    path.write_bytes(content)
    code, out, err = command("batch", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "batch.npz" in err


@pytest.mark.parametrize("change", ["method", "data"])
def test_archives_that_cannot_be_unpacked_are_one_line(command, tmp_path, change):
    path = tmp_path / "batch.npz"
    np.savez_compressed(path, positions=np.tile(np.arange(40), (9, 1)))
    content = bytearray(path.read_bytes())
    if change == "method":  # 99, in both headers
        for signature, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
            content[content.index(signature) + at] = 99
    else:
        start = content.index(b"positions.npy") + 40
        content[start : start + 40] = b"\xff" * 40
    path.write_bytes(content)
    code, out, err = command("batch", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "batch.npz" in err


def test_other_arrays_are_one_line(command, file, tmp_path):
    np.save(tmp_path / "one.npy", np.arange(3))
    for path in (tmp_path / "one.npy", tmp_path / "none.npz", file(ids=[[1, 2]])):
        code, out, err = command("batch", path)
        assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("dtype", ["S3", "V8", [("a", "i4"), ("b", "f4")]])
def test_arrays_without_numbers_are_one_line(command, file, dtype):
    code, out, err = command("batch", file(**RIGHT, labels=np.zeros((1, 5), dtype)))
    assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.uint64, float])
def test_segments_of_other_types_count_from_0(command, file, dtype):
    segments = np.array([[0, 0, 0, 1, 1]], dtype)
    mask = np.ones((1, 5), bool)
    assert command("batch", file(**RIGHT | {"segment_ids": segments}, mask=mask))[0] == 0
    assert command("batch", file(**WRONG | {"segment_ids": segments}, mask=mask))[0] == 1
