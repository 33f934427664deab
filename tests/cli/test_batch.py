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


def test_right_batches_pass_and_wrong_ones_fail_with_the_fault(command, file, tmp_path):
    code, out, err = command("batch", file(**RIGHT), file("other.npz", **RIGHT))
    assert code == 0, err
    assert "2 batches: passed" in out
    assert "0.5556" in out  # share of pairs of a token and itself
    code, out, _ = command("batch", file(**WRONG), "--junit", tmp_path / "junit.xml")
    assert (code, "row 0, column 3" in out) == (1, True)
    assert ElementTree.parse(tmp_path / "junit.xml").getroot().get("failures") == "1"
    code, out, _ = command("batch", file(**WRONG), "--json")
    found = json.loads(out)
    assert (code, found["passed"], found["faults"][0]["name"]) == (1, False, "not reset")


def test_options_say_what_is_meant(command, file):
    assert command("batch", file(**WRONG), "--no-resets")[0] == 0
    shards = ("--shards", "zigzag", 2, 0)
    assert command("batch", file(positions=[[0, 1, 2, 9, 10, 11]]), *shards)[0] == 0
    assert command("batch", file(positions=[[0, 1, 2, 3, 4, 5]]), *shards)[0] == 1


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
    assert (code, out, err.count("\n"), "batch.npz" in err) == (2, "", 1, True)


@pytest.mark.parametrize("dtype", [bool, np.uint64, float])
def test_segments_of_other_types_count_from_0(command, file, dtype):
    segments = np.array([[0, 0, 0, 1, 1]], dtype)
    mask = np.ones((1, 5), bool)
    assert command("batch", file(**RIGHT | {"segment_ids": segments}, mask=mask))[0] == 0
    assert command("batch", file(**WRONG | {"segment_ids": segments}, mask=mask))[0] == 1
