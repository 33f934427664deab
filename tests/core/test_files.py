"""One writer a folder, and files whole or not at all."""

import contextlib
import errno
import os

import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.files import (
    atomic_file,
    cache_directory,
    cache_problem,
    locked_folder,
    output_folder,
    write_file,
)


def _written_halfway(path):
    with atomic_file(path) as part:
        part.write_text("ne")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_is_claimed_by_one_run(tmp_path):
    for _ in range(2):
        with locked_folder(tmp_path), pytest.raises(InputError, match="another run"):
            locked_folder(tmp_path).__enter__()


def test_what_was_there_stays_until_the_new_file_is_whole(tmp_path):
    path = tmp_path / "numbers.json"
    write_file(path, "old")
    with pytest.raises(InputError, match=r"numbers\.json.*No space left"):
        _written_halfway(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    write_file(path, "new")
    assert path.read_text() == "new"


def test_a_folder_that_nothing_was_written_into_goes_again(tmp_path):
    for before in (False, True):
        if before:
            (tmp_path / "out").mkdir()
        with pytest.raises(InputError), output_folder(tmp_path / "out"):
            raise InputError("refused")
        assert (tmp_path / "out").exists() == before
    written = tmp_path / "other" / "kept.txt"
    with contextlib.suppress(InputError), output_folder(tmp_path / "other"):
        written.write_text("kept")
        raise InputError("refused")
    assert written.exists()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXPE_CACHE_DIR", str(tmp_path / "made" / "cache"))
    return tmp_path / "made" / "cache"


def test_a_folder_is_made_for_this_user_alone(folder):
    assert cache_directory() == folder
    assert folder.stat().st_mode & 0o077 == 0
    assert cache_problem() == ""


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o770, 0o1777])
def test_a_folder_that_others_can_write_to_is_not_used(folder, mode):
    folder.mkdir(parents=True)
    folder.chmod(mode)
    assert cache_directory() is None
    assert "JAXPE_CACHE_DIR" in cache_problem()
    folder.chmod(0o555)  # one that nobody can write to may hold programs
    assert cache_directory() == folder


def test_a_folder_of_another_user_is_not_used(folder, monkeypatch):
    folder.mkdir(parents=True)
    owner = folder.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert cache_directory() is None
    assert "another user" in cache_problem()
