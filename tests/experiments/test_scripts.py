"""Scripts of the experiments run from end to end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.mark.parametrize(
    "script", ["table_2_rank_stress", "erratum_2_geodesic", "encodings_claims"]
)
def test_a_script_runs_from_end_to_end(script, tmp_path):
    root = str(EXPERIMENTS.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, EXPERIMENTS / f"{script}.py", "--quick", "--out", tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / f"{script}.json").read_text())


def test_a_script_without_its_data_says_so(tmp_path):
    root = str(EXPERIMENTS.parent)
    done = subprocess.run(
        [sys.executable, EXPERIMENTS / "table_4_corpora.py", "--out", tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root, "JAXPE_DATA_DIR": str(tmp_path)},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "skipped" in done.stdout
    assert "JAXPE_DATA_DIR" in done.stdout
