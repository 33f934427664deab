"""Every file that jaxpe reads, with every damage: refused by name, or read right; nothing lost."""

import gc
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.hardening.damage import DAMAGES
from tests.hardening.matrix import PromiseError, attempt, attempts, files_of
from tests.hardening.surfaces import SURFACES

TURNS = 2  # attempts of each cell


# Orbax leaves coroutines of a load that failed, which are collected here and not in another test.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", SURFACES)
def test_damage_is_one_line_that_names_the_file_or_changes_nothing(name):
    surface, answers, faults = SURFACES[name], Counter(), []
    with tempfile.TemporaryDirectory() as folder:  # where another user may look, too
        place = Path(folder)
        place.chmod(0o755)
        whole = place / "whole"
        whole.mkdir()
        surface.make(whole)
        expected = surface.read(whole, files_of(whole, surface.files)[0])
        for number, cell in enumerate(attempts(0, TURNS * len(DAMAGES), [name])):
            try:
                answers[attempt(cell, whole, place / f"{number}", expected)] += 1
            except PromiseError as error:
                faults.append(str(error))
    if name == "checkpoints":
        gc.collect()
    assert faults == []
    assert answers["refused"] >= 5
