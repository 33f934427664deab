"""Time of `jaxpe rope config.json`, beside `python -c "import numpy"`, in turn.

python -m experiments.benchmarks.rope_command [--rounds 9] [--save]
"""

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks import _contest as contest


def main() -> None:
    options = contest.options_of(__doc__, rounds=9)
    published = json.loads((contest.ROOT / "tests" / "plans" / "published.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(published["Llama 3.1 8B"]))
        run: Any = partial(subprocess.run, check=True, capture_output=True, cwd=contest.ROOT)
        runs: contest.Contestants = {
            "command": partial(run, [sys.executable, "-m", "jaxpe", "rope", str(path)]),
            "numpy": partial(run, [sys.executable, "-c", "import numpy"]),
        }
        seconds = contest.measure(runs, options.rounds, warm_up=1)
    result: dict[str, Any] = {"machine": contest.machine(), "rounds": options.rounds}
    result["ratio"] = float(np.median(seconds["command"] / seconds["numpy"]))
    result["seconds"] = contest.medians(seconds)
    contest.finish("rope_command", options, result)


if __name__ == "__main__":
    main()
