"""Seconds and memory of each command, beside an earlier checkout.

    python -m experiments.benchmarks.startup [--before FOLDER] [--rounds 1] [--save]

FOLDER is a checkout (`git worktree add FOLDER COMMIT`) whose package runs in this environment. Each
round runs every command of both, in turn: cold, with an empty folder for compiled programs, and
warm, with the folder that the cold run left. Numbers are medians over rounds. CPU seconds and
memory are of all processes of a command. IMDB is read where JAXPE_DATA_DIR names it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.benchmarks import _contest as contest

DATA = Path(os.environ.get("JAXPE_DATA_DIR", "."))
COMMANDS = {
    "help": "--help",
    "report stdlib": "report stdlib --out {out}",
    "report imdb": "report imdb --tokenizer {vocab} --length 256 --out {out}",
    "encodings": "encodings",
    "count": "count stdlib --out {out}",
    "audit": "audit stdlib --out {out}",
    "spectral": "spectral stdlib --examples 64 --out {out}",
    "extrapolate": "extrapolate --steps 200 --seeds 3 --out {out}",
    "train": "train stdlib --steps 30 --out {out}",
}
MAIN = "from jaxpe.cli.main import main; main()"
NOT_SET = ("JAX_", "XLA_", "PYTHONDONTWRITEBYTECODE")  # by most users


def cold_and_warm(name: str, checkout: Path) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        return {when: measured(name, checkout, Path(folder), when) for when in ("cold", "warm")}


def measured(name: str, checkout: Path, folder: Path, when: str) -> dict[str, float]:
    """One run of a command in a process of its own."""
    vocab = DATA / "bert-base-uncased" / "vocab.txt"
    places = {"out": folder / f"out_{when}", "vocab": vocab}
    words = [word.format(**places) for word in COMMANDS[name].split()]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(NOT_SET)}
    kept |= {"PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(folder / "cache")}
    with open(folder / "errors", "wb") as errors:
        begun = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, *words],
            env=kept,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begun
    if status:
        raise SystemExit(f"{name} of {checkout}: {(folder / 'errors').read_text()[-2000:]}")
    return {"wall": wall, "cpu": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1024}


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over rounds."""
    return jax.tree.map(lambda *values: float(np.median(values)), *rounds)


def main() -> None:
    options = contest.options_of(__doc__, rounds=1, before=None)
    checkouts = {"before": options.before and Path(options.before).resolve(), "after": contest.ROOT}
    checkouts = {which: path for which, path in checkouts.items() if path}
    names = [n for n in COMMANDS if n != "report imdb" or (DATA / "imdb").is_dir()]
    names = ["help"] if options.quick else names
    runs: dict[str, Any] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name, rounds in runs.items():
            rounds.append({which: cold_and_warm(name, path) for which, path in checkouts.items()})
            print(name, json.dumps(rounds[-1]), flush=True)
    result = {"machine": contest.machine(), "rounds": options.rounds}
    result["commands"] = {name: summary(rounds) for name, rounds in runs.items()}
    contest.finish("startup", options, result)


if __name__ == "__main__":
    main()
