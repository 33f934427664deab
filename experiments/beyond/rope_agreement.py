"""Plans of layers against the classes of transformers, public threads, and spoilt configurations.

Three sources of truth, all stored with the tests: what the classes of the newest transformers do
(`tools/parity/make_rope_classes.py`), right values of configurations that users reported
(`tests/plans/threads.json`), and what the classes compute after each positional key was dropped,
misspelt or moved (`tools/parity/make_rope_mutations.py`).
"""

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from experiments.common import Run, main
from jaxpe.plans import RopeOptions, explain_rope
from tests.hardening import rope_mutations as mutations
from tests.plans import test_threads as threads
from tests.plans.agreement import Verdict, classes, read, verdicts

OUTCOMES = ("right", "named", "not judged", "refused", "wrong")
QUICK = 20  # mutations of a configuration that a quick run takes


def agreement(folder: Path) -> dict[str, Any]:
    """Classes that rotate: how many types agree in every case, and what becomes of the others."""
    every = list(verdicts(folder))
    by_type: dict[str, list[Verdict]] = {}
    for one in every:
        by_type.setdefault(one.model_type, []).append(one)
    rotating = {name: of for name, of in by_type.items() if any(one.rotates for one in of)}
    agree = [name for name, of in rotating.items() if {one.outcome for one in of} == {"agrees"}]
    without = sorted(classes()["no_rotary"])
    tables = [name for name in without if has_table(name, folder)]
    return {
        "version": classes()["transformers"],
        "types": len(rotating),
        "agree": len(agree),
        "others": {name: sorted({one.outcome for one in of if one.outcome != "agrees"})
                   for name, of in rotating.items() if name not in agree},
        "differ": sum(one.outcome == "differs" for one in every),
        "without": len(without),
        "tables": len(tables),
    }  # fmt: skip


def has_table(model_type: str, folder: Path) -> bool:
    """Whether a type without rotary code gets frequencies."""
    found = read({"model_type": model_type, "hidden_size": 64, "num_attention_heads": 2}, folder)
    return found.status == "judged" and any(plan.kind == "rotary" for plan in found.groups)


def reported(folder: Path) -> dict[str, Any]:
    """Threads whose values are right, and of those that a finding should tell, how many it does."""
    cases = {n: c for n, c in threads.THREADS.items() if "gguf" not in c["input"]}
    right = told = expected = 0
    for case in cases.values():
        path = folder / "config.json"
        path.write_text(json.dumps(case["input"]))
        found = explain_rope(RopeOptions(config=str(path), **case.get("options", {})))
        plans = [*found.groups, *found.towers]
        right += all(
            any(
                threads.same(threads.value_of(plan, one["field"]), one)
                for plan in threads.matching(plans, one["group"])
            )
            for one in case["right"]
        )
        expected += bool(case.get("finding"))
        told += bool(case.get("finding") and {f.code for f in found.findings} - threads.QUIET)
    return {"threads": len(cases), "right": right, "expected": expected, "told": told}


def spoilt(sample: int | None) -> dict[str, Any]:
    """Outcomes of every mutation."""
    outcomes = Counter(
        outcome
        for name in mutations.CONFIGURATIONS
        for outcome, change, _, _ in mutations.judged(name, sample)
        if change is not None
    )
    return {"configurations": len(mutations.CONFIGURATIONS), "mutations": outcomes.total(),
            "outcomes": {name: outcomes[name] for name in OUTCOMES}}  # fmt: skip


def experiment(run: Run) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return {
            "classes": agreement(Path(folder)),
            "threads": reported(Path(folder)),
            "mutations": spoilt(QUICK if run.quick else None),
        }


if __name__ == "__main__":
    main(experiment, "rope_agreement")
