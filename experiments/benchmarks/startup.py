"""Seconds and memory of each command but `report`, which `experiments.benchmarks.report` times.

    python -m experiments.benchmarks.startup [--rounds 1] [--quick] [--save]

Each command runs cold, with an empty folder for compiled programs, and warm, with the folder that
the cold run left. Numbers are medians over rounds. CPU seconds and memory are of all processes of a
command. `import numpy` in a process of its own runs beside them.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.benchmarks import _contest as contest

COMMANDS = {
    "help": "--help",
    "rope": "rope {config}",  # of Llama 3.1 8B: all programs and tables
    "encodings": "encodings",
    "count": "count stdlib --out {out}",
    "audit": "audit stdlib --out {out}",
    "spectral": "spectral stdlib --examples 64 --out {out}",
    "extrapolate": "extrapolate --steps 200 --seeds 3 --out {out}",
    "train": "train stdlib --steps 30 --out {out}",
}


def cold_and_warm(words: str, config: Path) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as cache:
        run = partial(contest.command, words.replace("{config}", str(config)), Path(cache))
        return {"cold": run(), "warm": run()}


def import_numpy() -> dict[str, float]:
    run: Callable = partial(subprocess.run, [sys.executable, "-c", "import numpy"], check=True)
    return dict(zip(("clock", "cpu"), contest.cost(run), strict=True))


def medians(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    return jax.tree.map(lambda *values: float(np.median(values)), *rounds)


def main() -> None:
    options = contest.options_of(__doc__, rounds=1)
    names = ["help", "rope"] if options.quick else list(COMMANDS)
    published = json.loads((contest.ROOT / "tests" / "plans" / "published.json").read_text())
    result: dict[str, Any] = {"machine": contest.machine(), "rounds": options.rounds}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(published["Llama 3.1 8B"]))
        runs: contest.Contestants = {
            name: partial(cold_and_warm, COMMANDS[name], config) for name in names
        }
        runs["import numpy"] = import_numpy
        taken = contest.take_turns(runs, options.rounds)
    result["commands"] = {name: medians([*rounds]) for name, rounds in taken.items()}
    contest.finish("startup", options, result)


if __name__ == "__main__":
    main()
