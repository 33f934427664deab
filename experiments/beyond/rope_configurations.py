"""What published rotary configurations mean, and where the programs that read them disagree.

Eighteen configurations as models publish them (`tests/plans/published.json`), and seventeen of what
goes wrong (`reported.json`): of threads of users where these are named, else made to show one
cause. Each is read by the rules of all programs of `jaxpe rope`.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import Run, main
from jaxpe.plans import RopeAnalysis, RopeOptions, explain_rope
from jaxpe.plans.programs.table import PROGRAMS

TESTS = Path(__file__).parents[2] / "tests" / "plans"
# Codes of what is true of most files, and no fault of any.
QUIET = {"kinds_of_layers", "reported", "low_precision", "float32_precision", "refused_by_some"}


def analysed(fields: dict[str, Any], folder: Path) -> RopeAnalysis:
    """The analysis of a configuration."""
    path = folder / "config.json"
    path.write_text(json.dumps(fields))
    return explain_rope(RopeOptions(config=str(path)))


def row(found: RopeAnalysis) -> dict[str, Any]:
    """The numbers of a configuration in the table."""
    plan: Any = found.widest
    refused = [one.name for one in found.programs if one.problem]
    if plan is None:  # the newest transformers refuses it, and so do most programs
        return {"refused": refused, "findings": codes(found)}
    index = found.groups.index(plan)
    errors = [error for error in found.precision if error.length == found.length]
    numbers = {one.name: one.numbers[index] for one in found.programs if one.numbers}
    return {
        "rope_type": plan.rope_type,
        "logit_factor": plan.logit_factor,
        "trained": plan.trained,
        "longest": found.length,
        "frequencies": len(plan.frequencies),
        "never_round": plan.never_round,
        "unseen": plan.unseen,
        "error": {f"{e.dtype}, {e.rounded}": e.largest for e in errors},
        "lost": {f"{e.dtype}, {e.rounded}": e.lost for e in errors},
        "apart": found.differing,
        "differing_frequencies": differing_frequencies(numbers),
        "refused": refused,
        "findings": codes(found),
    }


def codes(found: RopeAnalysis) -> list[str]:
    """Codes of the findings that are of this file."""
    return [one.code for one in found.findings if one.code not in QUIET]


def differing_frequencies(numbers: dict[str, Any]) -> dict[str, Any]:
    """By program: frequencies that differ from the first program, and the largest ratio."""
    first = next(iter(numbers.values())).frequencies
    ratios = {
        name: np.abs(np.log(one.frequencies / first))
        for name, one in numbers.items()
        if len(one.frequencies) == len(first)
    }
    return {
        name: {"number": int(np.sum(of > 1e-6)), "largest": float(np.exp(of.max()))}
        for name, of in ratios.items()
        if of.max() > 1e-6
    }


def experiment(run: Run) -> dict[str, Any]:
    published, reported = (
        json.loads((TESTS / f"{name}.json").read_text()) for name in ("published", "reported")
    )
    with tempfile.TemporaryDirectory() as place:
        rows = {n: row(analysed(f, Path(place))) for n, f in (published | reported).items()}
    shown = {name: rows[name] for name in published}
    return {
        "programs": [one.name for one in PROGRAMS],
        "published": shown,
        "counts": {
            "published": len(shown),
            "alike": sum(not one.get("apart") for one in shown.values()),
            "apart": sum(bool(one.get("apart")) for one in shown.values()),
            "reported": len(reported),
            "reported_found": sum(bool(rows[name]["findings"]) for name in reported),
        },
    }


if __name__ == "__main__":
    main(experiment, "rope_configurations")
