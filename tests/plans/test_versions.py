"""Numbers of transformers 4.57, against what it computed itself."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.plans.conftest import read

CONFIGS = read("published") | read("reported")
PARITY = json.loads((Path(__file__).parents[1] / "parity" / "rope_versions.json").read_text())


@pytest.mark.parametrize("name", CONFIGS)
def test_numbers_are_those_of_the_version(explain, name):
    theirs, found = PARITY["4.57"][name], explain(CONFIGS[name], programs="transformers 4")
    (program,) = (one for one in found.programs if one.name == "transformers 4.57")
    if "error" in theirs:
        # Types of checkpoints with code of their own are run by their code.
        assert program.problem or found.status == "not judged" or "NaN" in theirs["error"]
        return
    assert program.problem is None
    plans = list(zip(found.groups, program.numbers, strict=True))
    for layers, expected in theirs.items():
        numbers = next((r for p, r in plans if p.name == layers), None)
        numbers = numbers or next(r for _, r in plans if r.turns)
        assert numbers.base == expected["base"]
        assert len(numbers.frequencies) == expected["count"]
        np.testing.assert_allclose(numbers.frequencies[::8], expected["inverse"], rtol=1e-7)
        np.testing.assert_allclose(numbers.attention_factor, expected["factor"], rtol=1e-9)
