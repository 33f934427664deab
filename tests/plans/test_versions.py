"""Numbers of transformers 4.57 and 4.55, against what those versions computed themselves."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.plans.conftest import read

CONFIGS = read("published") | read("reported")
PARITY = json.loads((Path(__file__).parents[1] / "parity" / "rope_readers.json").read_text())


@pytest.mark.parametrize("version", ["4.55", "4.57"])
@pytest.mark.parametrize("name", CONFIGS)
def test_numbers_are_those_of_the_version(explain, version, name):
    theirs, found = PARITY[version][name], explain(CONFIGS[name], readers="transformers 4")
    program = next(one for one in found.readers if one.name == f"transformers {version}")
    if "error" in theirs:
        # Types of checkpoints with code of their own are run by their code.
        assert program.problem or found.status == "not judged" or "NaN" in theirs["error"]
        return
    assert program.problem is None
    plans = [(plan, reading) for plan, reading in zip(found.groups, program.readings, strict=True)]
    for layers, numbers in theirs.items():
        reading = next((r for p, r in plans if p.name == layers), None)
        reading = reading or next(r for _, r in plans if r.turns)
        assert reading.base == numbers["base"]
        assert len(reading.frequencies) == numbers["count"]
        np.testing.assert_allclose(reading.frequencies[::8], numbers["inverse"], rtol=1e-7)
        np.testing.assert_allclose(reading.attention_factor, numbers["factor"], rtol=1e-9)
