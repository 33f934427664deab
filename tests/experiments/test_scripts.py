"""Scripts of the experiments run from end to end."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_script(script, out, **environment):
    done = subprocess.run(
        [sys.executable, "-m", f"experiments.{script}", "--quick", "--out", out],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_script_runs_from_end_to_end(tmp_path):
    run_script("cirrincione2026.table_2_rank_stress", tmp_path)
    stored = json.loads((tmp_path / "table_2_rank_stress.json").read_text())
    assert {"mds", "sinusoidal", "made_by"} <= stored.keys()


def test_a_script_without_its_data_says_so(tmp_path):
    shown = run_script("cirrincione2026.table_4_corpora", tmp_path, JAXPE_DATA_DIR=str(tmp_path))
    assert "skipped" in shown
    assert not list(tmp_path.iterdir())
