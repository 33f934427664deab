"""Stages are stored under a stamp of all that they depend on."""

import os

from jaxpe.analysis.stage_cache import settings_stamp


def test_a_stamp_changes_with_settings_and_with_files_of_the_same_size(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("one")
    os.utime(path, ns=(0, 0))
    stamps = [settings_stamp({"length": 8}, inputs=[str(path)]) for _ in range(2)]
    assert stamps[0] == stamps[1]
    assert settings_stamp({"length": 9}, inputs=[str(path)]) != stamps[0]
    assert settings_stamp({"length": 8}, inputs=[str(tmp_path)]) == stamps[0]
    path.write_text("two")
    os.utime(path, ns=(1, 1))
    assert settings_stamp({"length": 8}, inputs=[str(path)]) != stamps[0]
