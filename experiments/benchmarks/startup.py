"""Seconds and memory of each command but `report`, which `experiments.benchmarks.report` times.

    python -m experiments.benchmarks.startup [--only COMMAND ...] [--rounds 1] [--quick] [--save]

Each command runs cold, with an empty folder for compiled programs, and warm, with the folder that
the cold run left. Numbers are medians over rounds. `import numpy` in a process of its own runs
beside them. --save keeps what was measured before of commands that are not named.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from experiments.benchmarks import _contest as contest

COMMANDS = {
    "help": "--help",
    "rope": "rope {config}",  # of Llama 3.1 8B: all programs and tables
    "encodings": "encodings",
    "count": "count stdlib --out {out}",
    "audit": "audit stdlib --out {out}",
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


def main() -> None:
    options = contest.options_of(__doc__, rounds=1, only=tuple(COMMANDS))
    names = ["help", "rope"] if options.quick else options.only
    published = json.loads((contest.ROOT / "tests" / "plans" / "published.json").read_text())
    result = contest.earlier("startup", options) | {"machine": contest.machine()}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(published["Llama 3.1 8B"]))
        runs: contest.Contestants = {
            name: partial(cold_and_warm, COMMANDS[name], config) for name in names
        }
        taken = contest.take_turns(runs | {"import numpy": import_numpy}, options.rounds)
    found = {name: contest.medians_over(rounds) for name, rounds in taken.items()}
    result["import numpy"] = found.pop("import numpy")
    result["commands"] = result.get("commands", {}) | found
    contest.finish("startup", options, result)


if __name__ == "__main__":
    main()
