"""Folders of caches are used where nobody else can write to them."""

import os

import pytest

from jaxpe._core.cache import cache_directory, cache_warning


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXPE_CACHE_DIR", str(tmp_path / "made" / "cache"))
    return tmp_path / "made" / "cache"


def test_a_folder_is_made_for_this_user_alone(folder):
    assert cache_directory() == folder
    assert folder.stat().st_mode & 0o077 == 0
    assert cache_warning() == ""


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o770, 0o1777])
def test_a_folder_that_others_can_write_to_is_not_used(folder, mode):
    folder.mkdir(parents=True)
    folder.chmod(mode)
    assert cache_directory() is None
    assert "JAXPE_CACHE_DIR" in cache_warning()
    folder.chmod(0o555)  # one that nobody can write to may hold programs
    assert cache_directory() == folder


def test_a_folder_of_another_user_is_not_used(folder, monkeypatch):
    folder.mkdir(parents=True)
    owner = folder.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert cache_directory() is None
    assert "another user" in cache_warning()


def test_a_file_in_its_place_is_not_used(folder):
    folder.parent.mkdir()
    folder.write_text("")
    assert cache_directory() is None
    assert str(folder) in cache_warning()
