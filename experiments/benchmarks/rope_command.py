"""Time of `jaxpe rope config.json`, beside `python -c "import numpy"`: `[--rounds 9] [--save]`.

Both run in turn, each in a process of its own; medians over rounds, and the ratio of each round.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from experiments.benchmarks._machine import write_result

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "experiments" / "results" / "benchmark_rope_command.json"
MODEL = "Llama 3.1 8B"


def seconds(words: list[str]) -> float:
    """Wall time of a process that must succeed."""
    start = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True, cwd=ROOT)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    published = json.loads((ROOT / "tests" / "rope" / "published.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(published[MODEL]))
        contestants = {
            "command": [sys.executable, "-m", "jaxpe", "rope", str(path)],
            "numpy": [sys.executable, "-c", "import numpy"],
        }
        times = {
            name: [seconds(words) for _ in range(options.rounds)]
            for name, words in contestants.items()
        }
    ratios = [a / b for a, b in zip(times["command"], times["numpy"], strict=True)]
    result = {
        "rounds": options.rounds,
        "seconds": {name: statistics.median(of) for name, of in times.items()},
        "ratio": statistics.median(ratios),
    }
    print(json.dumps(result, indent=1))
    if options.save:
        write_result(OUT, result)


if __name__ == "__main__":
    main()
