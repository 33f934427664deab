"""Results that grow by rows: a run writes each row as soon as it has it, and keeps those it finds.

So a study goes on where it stopped, on this machine or on another: what is committed is not
computed again, and a run of some arms leaves the other arms alone.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.provenance import KEY, commit_at_start, write_result


def read_rows(path: Path) -> dict[str, Any]:
    """Rows of a results file, and none where there is no file."""
    if not path.is_file():
        return {}
    found = json.loads(path.read_text())
    return {name: value for name, value in found.items() if name != KEY}


def row_of(rows: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The row of these names, one for each level; None where there is none."""
    found: Any = rows
    for name in names:
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found


def with_row(rows: Mapping[str, Any], names: Sequence[str], row: Any) -> dict[str, Any]:
    """The rows and this one; what else is there stays, and a row of these names is replaced.

    >>> with_row({"a": {"b": 1}}, ("a", "c"), 2)
    {'a': {'b': 1, 'c': 2}}
    """
    first, *others = names
    inside = rows.get(first, {})
    return {**rows, first: with_row(inside, others, row) if others else row}


def add_row(path: Path, names: Sequence[str], row: Mapping[str, Any]) -> dict[str, Any]:
    """Write a row, and the commit it is of, into the file as it is now; all rows there are."""
    rows = with_row(read_rows(path), names, {**row, "commit": commit_at_start()})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_result(path, rows, grows=True)
    return rows


def cost(rows: Mapping[str, Any]) -> dict[str, float]:
    """Models that have a row, and CPU seconds of all rows, those of choosing rates among them."""
    models, seconds = 0, 0.0
    for name, inner in rows.items():
        if isinstance(inner, Mapping):
            models += len(inner) if name == "seeds" else 0
            deeper = cost(inner)
            models, seconds = models + deeper["models"], seconds + deeper["cpu_seconds"]
        elif name == "cpu_seconds":
            seconds += inner
    return {"models": models, "cpu_seconds": seconds}


def inside(loss_at: Callable[[int], float], *, first: int) -> dict[int, float]:
    """Losses at whole numbers around the first, until the least has larger ones on both sides."""
    losses: dict[int, float] = {}
    at = first
    while not {at - 1, at, at + 1} <= losses.keys():
        for k in (at, at + 1, at - 1):
            if k not in losses:
                losses[k] = loss_at(k)
        at = min(losses, key=losses.__getitem__)
    return losses
