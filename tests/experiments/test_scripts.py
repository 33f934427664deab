"""Scripts of the experiments run from end to end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "script",
    [
        "cirrincione2026.table_2_rank_stress",
        "cirrincione2026.erratum_2_geodesic",
        "bisset2026.encodings_claims",
    ],
)
def test_a_script_runs_from_end_to_end(script, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", f"experiments.{script}", "--quick", "--out", tmp_path],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / f"{script.split('.')[1]}.json").read_text())


def test_a_script_without_its_data_says_so(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "experiments.cirrincione2026.table_4_corpora", "--out", tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "JAXPE_DATA_DIR": str(tmp_path)},
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "skipped" in done.stdout
    assert "JAXPE_DATA_DIR" in done.stdout
