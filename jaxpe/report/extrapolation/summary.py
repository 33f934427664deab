"""The first paragraph of an extrapolation report: what was found, and what to do."""

import math

import numpy as np

from jaxpe.analysis.extrapolation import (
    MOST_SEEDS,
    Comparison,
    ExtrapolationCell,
    ExtrapolationResult,
    SeedInterval,
    Suite,
    beyond,
    beyond_interval,
)
from jaxpe.report.extrapolation.text import (
    IN_PERCENT,
    Cells,
    by_task,
    joined,
    percent_ends,
    quoted,
    where,
    with_interval,
)
from jaxpe.report.text import number, percent, plural


def summary(result: ExtrapolationResult) -> str:
    """Summary of the result and of what to do next, for a reader who has read nothing else.

    >>> summary(found)  # doctest: +SKIP
    'In “strings”, models were trained on inputs up to length T = 6 and tested at 12 and 24. ...'
    """
    longer = [suite for suite in result.suites if len(suite.lengths) > 1]
    parts = [_of_suite(result, suite, defined=suite is longer[0]) for suite in longer]
    return " ".join([*parts, _advice(result)])


def _of_suite(result: ExtrapolationResult, suite: Suite, *, defined: bool) -> str:
    """Setting of a suite and its best encodings by task, with definitions where wanted."""
    cells = result.cells_of(suite)
    first, *longer = (f"{length:,}" for length in suite.lengths)
    reach = "of length" if suite.exact else "up to length"
    score = {
        "accuracy": "Accuracy, the share of the answer's tokens that are right, is averaged",
        "mse": "The mean squared error is averaged, geometrically,",
    }[cells[0].metric]
    parts = [
        f"{where(cells)}, models were trained on inputs {reach} T = {first} and tested at "
        f"{joined(longer)}. {score} over these longer lengths, and over "
        f"{plural(len(cells[0].loss), 'seed')}."
    ]
    if defined:
        parts.append(
            "Brackets and ± hold 95 % intervals; it is decided which encoding is better where the "
            "interval of the difference, seed by seed, lies above 0, wide enough for those of all "
            "pairs on all tasks to hold together at 95 %."
        )
    if "none" in suite.encodings:
        parts.append("NoPE (none) is no positional encoding at all.")
    for task, own in by_task(cells).items():
        found = [x for x in result.comparisons if (x.suite, x.task) == (suite.name, task)]
        parts.append(_of_best(task, own, found))
    return " ".join(parts)


def _of_best(task: str, cells: Cells, found: list[Comparison]) -> str:
    """The best encoding of a task, which are significantly worse, and which are not."""
    by_name = {cell.encoding: cell for cell in cells}
    if not found:
        return f"On “{task}”, fewer than two encodings have scores there."
    best = by_name[found[0].best]
    worse = [f"{quoted(x.encoding)} ({_level(by_name[x.encoding])})" for x in found if x.decided]
    open_ = [
        f"{quoted(x.encoding)} ({_level(by_name[x.encoding])}; {_needed(x)})"
        for x in found
        if not x.decided
    ]
    ends = beyond_interval(best)
    parts = [f"On “{task}”, {quoted(best.encoding)} has the best mean, {_level(best, ends)}"]
    if worse:
        parts.append(f"; decided: it is better than {joined(worse)}")
    if open_:
        parts.append(f"; not decided: whether it is better than {joined(open_)}")
    if lost := [x for x in by_name if x not in (best.encoding, *(one.encoding for one in found))]:
        parts.append(f"; without scores there: {joined(list(map(quoted, lost)))}")
    return "".join(parts) + "."


def _level(cell: ExtrapolationCell, found: SeedInterval | None = None) -> str:
    """The mean score beyond T in words, with its interval where one is given."""
    mean = float(beyond(cell).mean())
    if cell.metric not in IN_PERCENT:
        return with_interval(found, metric=cell.metric) if found else number(mean)
    if found is None or math.isnan(float(found.low)):
        return percent(mean)
    return f"{percent(mean)} {percent_ends(float(found.low), float(found.high))}"


def _needed(one: Comparison) -> str:
    """Number of seeds that would decide, from the spread of those there are."""
    if np.isnan(one.lead.low):
        return "one seed has no interval"
    if one.seeds:
        return f"about {one.seeds} seeds would decide"
    return f"even {MOST_SEEDS} seeds would not decide"


def _advice(result: ExtrapolationResult) -> str:
    found = result.comparisons
    if not found:
        return (
            "Nothing is compared beyond the length of the training: pass two encodings or more "
            "that are defined there, and factors above 1."
        )
    parts = []
    firsts: dict[str, list[str]] = {}
    for task, best in dict.fromkeys((x.task, x.best) for x in found if x.decided):
        firsts.setdefault(best, []).append(task)
    if firsts:
        names = [quoted(best) for best in firsts]
        if len(firsts) > 1:
            names = [f"{quoted(best)} ({joined(tasks)})" for best, tasks in firsts.items()]
        parts.append(
            f"Where inputs are longer than those of the training, try {' or '.join(names)} first."
        )
    if any(not x.decided for x in found):
        parts.append(
            "What is not decided is no reason to choose: take either, or pass more seeds, or "
            "more steps where no encoding has learned the task at T."
        )
    parts.append("These are small models: before it matters, compare at your own length and tasks.")
    return " ".join(parts)
