"""One writer a folder, and files whole or not at all."""

import contextlib
import errno
import os
import subprocess
import sys

import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.folders import claimed, output_folder, write_whole, writing

_HOLD = """
import sys, time
from jaxpe._core.folders import claimed
with claimed(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def _written_halfway(path):
    with writing(path) as part:
        part.write_text("ne")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_is_claimed_by_one_process_and_free_once_that_is_killed(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, tmp_path], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InputError, match="another run"), claimed(tmp_path):
            pass
        other.kill()
    with claimed(tmp_path):
        pass


def test_a_folder_is_free_again_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), claimed(tmp_path):
        raise ZeroDivisionError
    with claimed(tmp_path) as folder:
        assert folder == tmp_path


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file"), claimed(tmp_path / "file" / "run"):
        pass


def test_what_was_there_stays_until_the_new_file_is_whole(tmp_path):
    path = tmp_path / "numbers.json"
    write_whole(path, "old")
    with pytest.raises(InputError, match=r"numbers\.json.*No space left"):
        _written_halfway(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    write_whole(path, "new")
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
