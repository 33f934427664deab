"""Every command that takes long, killed at random moments and started again."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tests.films import make_films
from tests.hardening.families import QUICK, SMALL_MODEL
from tests.hardening.kills import KillTest, killed_and_resumed
from tests.hardening.test_kills import killed_count

OFTEN = ("--evaluate-every", 5, "--checkpoint-every", 10, "--probe-at", 0, 30)


def killed_train(folder: Path, *, kills: int) -> KillTest:
    """The log to the byte and the parameters to the bit."""
    films = make_films(folder / "films.tsv")
    words = ("jaxpe", "train", films, *SMALL_MODEL, *OFTEN, "--steps", 60, "--model.dropout", 0.2)

    def again(out: Path) -> list[object]:
        begun = (out / "config.json").exists()
        return ["jaxpe", "train", "--resume", "--out", out] if begun else [*words, "--out", out]

    return killed_and_resumed(
        lambda out: [*words, "--out", out],
        folder,
        kills=kills,
        seed=1,
        same=_same_runs,
        begins=r"held out",
        again=again,
    )


def killed_report(folder: Path, *, kills: int) -> KillTest:
    """The numbers but for their timings; a report is whole or not there at every moment."""
    films = make_films(folder / "films.tsv")
    words = ("jaxpe", "report", films, *QUICK["report"])

    def again(out: Path) -> list[object]:
        if (out / "report.html").exists():
            json.loads((out / "report.json").read_text())
            assert len(list((out / "figures").glob("*.svg"))) == 5
        return [*words, "--out", out]

    return killed_and_resumed(
        lambda out: [*words, "--out", out],
        folder,
        kills=kills,
        seed=3,
        same=partial(_same_json, "report.json", {"timings"}),
        again=again,
    )


KILLED: dict[str, Callable[..., KillTest]] = {
    "count": killed_count,
    "train": killed_train,
    "report": killed_report,
}


def _same_runs(one: Path, other: Path) -> None:
    from jaxpe.training import load_run

    assert (one / "log.jsonl").read_bytes() == (other / "log.jsonl").read_bytes()
    ours, theirs = load_run(one), load_run(other)
    assert ours.step == theirs.step
    jax.tree.map(np.testing.assert_array_equal, ours.params, theirs.params)


def _same_json(name: str, but_for: set[str], one: Path, other: Path) -> None:
    ours, theirs = (json.loads((folder / name).read_text()) for folder in (one, other))
    assert _without(ours, but_for) == _without(theirs, but_for)


def _without(value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(item, names) for key, item in value.items() if key not in names}
    return [_without(item, names) for item in value] if isinstance(value, list) else value
