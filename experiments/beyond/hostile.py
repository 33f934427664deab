"""Hostile input to every command and reader: how much is answered, and what is not.

Damaged, crafted and odd input with fixed seeds: options out of range, files of text and of ids,
folders of counts and of runs, tokenizers, models, special files, array functions on degenerate
arrays. Each is tried in a process of its own. "Answered" is exit status 2 (or `InputError`) with
one line, "right" a result that is checked where a second way to it exists; "slow" was stopped at
its limit of time; "wrong" is all else: a traceback, a signal, another result, more than 2 GB of
memory, a result where there can be none.
"""

import collections
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from experiments.common import Run, main
from tests.hardening.attempts import Attempt, outcomes
from tests.hardening.families import FAMILIES, make_materials
from tests.hardening.surroundings import sources, surroundings

PRELOADED = (
    "jaxpe.cli.pages", "jaxpe.cli.count", "jaxpe.cli.train",
    "jaxpe.analysis.audit", "jaxpe.analysis.counts", "jaxpe.analysis.extrapolation",
    "jaxpe.training", "matplotlib.figure", "jinja2",
    "tyro", "orbax.checkpoint", "safetensors", "tokenizers", "scipy.stats",
)  # fmt: skip
ALL = FAMILIES | {"sources": sources, "surroundings": surroundings}
# How many of each family; --quick takes a twentieth.
NUMBERS = {
    "options": 600, "texts": 300, "arrays": 120, "folders": 200, "counted": 200, "runs": 120,
    "tokenizers": 120, "models": 300, "sources": 416, "surroundings": 156,
    "columns": 240, "vectors": 400, "configurations": 500, "ggufs": 400,
}  # fmt: skip


def experiment(run: Run) -> dict[str, Any]:
    _preload()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["JAXPE_CACHE_DIR"] = str(Path(folder) / "cache")
        materials = make_materials(Path(folder))
        part = 20 if run.quick else 1
        families = [
            ALL[name](materials, seed=seed, number=number // part)
            for seed, (name, number) in enumerate(NUMBERS.items())
        ]
        found = tallied([attempt for family in families for attempt in family])
    with tempfile.TemporaryDirectory() as folder:
        return found | {"kills": killed(Path(folder), 2 if run.quick else 20)}


def killed(folder: Path, kills: int) -> dict[str, Any]:
    """Kills that hit, and ends that were compared; anything unequal raises."""
    from tests.hardening.killed import KILLED

    found = {}
    for name, kill in KILLED.items():
        (folder / name).mkdir()
        test = kill(folder / name, kills=kills)
        found[name] = {"kills": test.kills, "compared": test.compared}
    return found


def tallied(attempts: list[Attempt]) -> dict[str, Any]:
    """How many of each family were tried, and what came of them."""
    tables: dict[str, collections.Counter[str]] = {}
    most = 0
    for found in outcomes(attempts):
        table = tables.setdefault(found.attempt.family, collections.Counter())
        table.update(["tried", found.verdict])
        most = max(most, found.bytes)
        if found.verdict in ("slow", "wrong"):
            print(found.attempt.family, found.attempt.about, found.verdict, found.said[-400:])
    columns = ("tried", "answered", "right", "slow", "wrong")
    families = {name: {c: table[c] for c in columns} for name, table in sorted(tables.items())}
    total = {c: sum(row[c] for row in families.values()) for c in columns}
    print(total)
    return {"families": families, "all": total, "most_bytes": most}


def _preload() -> None:
    """Imports that every attempt would make; JAX is not started, since threads end at a fork."""
    warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
    for module in PRELOADED:
        __import__(module)


if __name__ == "__main__":
    main(experiment, "hostile")
