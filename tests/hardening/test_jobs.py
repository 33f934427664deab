"""Jobs that write: kills, interrupts, full disks and a second process lose nothing."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.hardening.jobs import EVENTS, JOBS


@pytest.fixture(scope="module", params=JOBS)
def faults(request):
    """Faults of each event of a job, tried in another process, which forks."""
    with tempfile.TemporaryDirectory() as folder:  # where another user may look, too
        done = subprocess.run(
            [sys.executable, "-m", "tests.hardening.jobs", request.param, folder, "0"],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
        )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout).values())


@pytest.mark.parametrize("number", range(len(EVENTS)), ids=EVENTS)
def test_nothing_is_lost(faults, number):
    assert faults[number] == []
