"""Counts of several processes survive kills: the same command resumes, to the byte."""

import re

import pytest

from tests.hardening.test_processes import (
    assert_same,
    finished,
    kill,
    start,
    start_two,
    wait_for_saves,
    write_documents,
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folder, exit codes and messages of runs side by side: some killed and started again.

    Of two processes one is killed, and the other ends by itself.
    """
    folder = write_documents(tmp_path_factory.mktemp("runs"))
    shards = folder / "?.txt"
    one, killed = start(shards, out=folder / "one"), start(shards, out=folder / "killed")
    two = start_two(shards, out=folder / "two")
    wait_for_saves(killed)
    kill(killed)
    wait_for_saves(two[0])
    kill(two[1])
    code, _ = finished(two[0], 60)
    widowed = code, (folder / "two" / "counts.json").exists()
    again = start(shards, out=folder / "killed")
    two = start_two(shards, out=folder / "two")
    ends = {"one": [one], "again": [again], "two": two}
    ends = {name: [*map(finished, processes)] for name, processes in ends.items()}
    return folder, ends | {"widowed": widowed}


def test_killed_at_any_moment_it_goes_on(runs):
    folder, ends = runs
    assert ends["one"][0][0] == 0, ends["one"]
    ((code, errors),) = ends["again"]
    assert code == 0, errors
    assert re.search(r"^going on from step \d+", errors, re.MULTILINE), errors
    assert_same(folder / "one", folder / "killed")


def test_two_processes_go_on_after_the_death_of_one(runs):
    folder, ends = runs
    (code, first), (other_code, _) = ends["two"]
    assert code == other_code == 0, ends["two"]
    assert "going on from step" in first
    assert_same(folder / "one", folder / "two")


def test_the_death_of_one_ends_the_other(runs):
    code, wrote_counts = runs[1]["widowed"]
    assert code != 0
    assert not wrote_counts
