"""Words of an extrapolation report: sentences, and the cells of its tables."""

import math
from collections.abc import Sequence

import numpy as np

from jaxpe.analysis.extrapolation import (
    ExtrapolationCell,
    ExtrapolationResult,
    Lead,
    SeedInterval,
    Suite,
    ranks,
)
from jaxpe.report.text import number, percent, plural, visible

Cells = list[ExtrapolationCell]

IN_PERCENT = ("accuracy", "exact")
_ROUNDING = 1e-9  # of a percentage that is whole but for its last bit
METRIC_WORDS = {
    "accuracy": "accuracy in %",
    "exact": "exact match in %",
    "mse": "squared error",
    "relative_mse": "relative squared error",
}


def title_of(encoding: str) -> str:
    """Title of an encoding; the one of no positional encoding says so.

    >>> title_of("none"), title_of("rope")
    ('NoPE (none)', 'rope')
    """
    return "NoPE (none)" if encoding == "none" else visible(encoding)


def by_task(cells: Cells) -> dict[str, Cells]:
    """A suite's cells by task, the best encoding beyond T of each first, and among equals at T."""
    tasks = dict.fromkeys(cell.task for cell in cells)
    return {task: ranks.best_first([cell for cell in cells if cell.task == task]) for task in tasks}


def task_header(cells: Cells) -> list[str]:
    """The columns of a task's table."""
    first, *longer = cells[0].lengths
    multiples = [f"{length:,} = {length // first}T" for length in longer]
    return ["encoding", f"{first:,} = T", *multiples, "rate"]


def task_rows(cells: Cells) -> list[list[str]]:
    """A row for each encoding: the ranking metric at each length, and the rate chosen."""
    return [
        [
            title_of(cell.encoding),
            *(_score(cell, k) for k in range(len(cell.lengths))),
            f"{cell.rate:g}",
        ]
        for cell in cells
    ]


def rank_rows(cells: Cells) -> list[list[str]]:
    """A row for each encoding of a suite: its mean reciprocal rank."""
    found = ranks.mean_reciprocal_rank(cells)
    return [[title_of(name), with_interval(mean)] for name, mean in found.items()]


def _score(cell: ExtrapolationCell, place: int) -> str:
    if not cell.defined[place]:
        return "undefined"
    finite = np.isfinite(cell.scores[cell.metric][:, place])
    if not finite.any():
        return "failed"
    if not finite.all():
        return f"{(~finite).sum()} of {len(finite)} failed"
    found = SeedInterval(*(ends[place] for ends in cell.summary[cell.metric]))
    return with_interval(found, metric=cell.metric)


def with_interval(found: SeedInterval, *, metric: str = "") -> str:
    """Mean and interval, the mean alone where there is none.

    Errors, which have no upper bound, have ±; percentages have ends that are rounded outwards.

    >>> with_interval(SeedInterval(0.704, 0.687, 0.7201), metric="accuracy")
    '70.4 [68–73]'
    """
    mean, low, high = map(float, found)
    if metric in IN_PERCENT:
        ends = "" if math.isnan(low) else f" {percent_ends(low, high)}"
        return f"{100 * mean:.1f}{ends}"
    if math.isnan(low):
        return number(mean)
    if metric in METRIC_WORDS:
        return f"{number(mean)} ± {number(high - mean)}"
    return f"{number(mean)} [{low:.2f}, {high:.2f}]"


def percent_ends(low: float, high: float) -> str:
    """Ends of an interval of shares in percent, rounded outwards."""
    return f"[{math.floor(100 * low + _ROUNDING)}–{math.ceil(100 * high - _ROUNDING)}]"


def extrapolation_findings(result: ExtrapolationResult) -> list[str]:
    """Findings of a comparison, in sentences; encodings and tasks are in quotation marks."""
    suites = [result.cells_of(suite) for suite in result.suites]
    found = []
    for cells in suites:
        found += [*_of_ranks(cells), *_of_answers(cells), *_of_zero(cells)]
    for one in (_of_reach, _of_failures, _of_rates):
        found += [sentence for cells in suites for sentence in one(cells)]
    return [*found, *map(_of_fairness, result.suites), *_of_choice(result.suites)]


def _of_ranks(cells: Cells) -> list[str]:
    found = ranks.mean_reciprocal_rank(cells)
    if not found:
        return []
    ahead = ranks.leaders(cells)
    first, lead = ahead
    at_top = with_interval(found[first[0]])
    begun = f"{where(cells)}, beyond length {cells[0].lengths[0]:,}, {_listed(first)}"
    if len(first) > 1:
        return [f"{begun} share the first place by mean reciprocal rank ({at_top})."]
    second = next(name for name in found if name not in first)
    return [
        f"{begun} ranks first: mean reciprocal rank {at_top}, and {with_interval(found[second])} "
        f"of {_listed([second])}, the second. Seed by seed the lead is {with_interval(lead)}"
        f"{_told(ahead, len(cells[0].loss))}.",
        *_of_learning(cells, first[0]),
    ]


def _told(ahead: Lead, seeds: int) -> str:
    """Statement on an interval of the lead."""
    if seeds < 2:
        return "; one seed gives no interval"
    return f", {'' if ahead.sure else 'not '}significantly different from 0"


def _of_learning(cells: Cells, name: str) -> list[str]:
    """Ranks beyond T say nothing of T: how the first does there, task by task, and the best."""
    parts = []
    for task, own in by_task(cells).items():
        lower = own[0].metric in ranks.LOWER_IS_BETTER
        means = {cell.encoding: float(cell.summary[cell.metric].mean[0]) for cell in own}
        if not np.isfinite(list(means.values())).any():
            continue
        worth = {x: -v if lower else v for x, v in means.items() if np.isfinite(v)}
        best = max(worth, key=worth.__getitem__)
        said = percent if own[0].metric in IN_PERCENT else number
        other = "" if best == name else f", the best {said(means[best])} ({quoted(best)})"
        mine = said(means[name]) if name in worth else "nothing finite"
        parts.append(f"“{task}” {mine}{other}")
    if not parts:
        return []
    return [f"{where(cells)}, {_listed([name])} has at T itself: {'; '.join(parts)}."]


def _of_answers(cells: Cells) -> list[str]:
    """Ranks hide levels: the best accuracies at the longest inputs."""
    if cells[0].metric not in IN_PERCENT:
        return []
    best = []
    for task, own in by_task(cells).items():
        means = [float(cell.summary[cell.metric].mean[-1]) for cell in own]
        if np.isfinite(means).any():
            top = np.nanmax(means)
            names = [c.encoding for c, mean in zip(own, means, strict=True) if mean == top]
            best.append(f"{task} {percent(top)} ({_some(names, len(own) + 1)})")
    if not best:
        return []
    return [
        f"{where(cells)} the best accuracies at length {cells[0].lengths[-1]:,}, the end of the "
        f"answer counted as a token, are: {', '.join(best)}."
    ]


def _of_zero(cells: Cells) -> list[str]:
    """Sentences on encodings that do better than a model that always says 0, by length."""
    if "relative_mse" not in cells[0].scores:
        return []
    sentences = []
    for task, own in by_task(cells).items():
        worth = {cell.encoding: cell.summary["relative_mse"] for cell in own}
        sure = np.stack([np.where(np.isnan(x.high), x.mean, x.high) < 1 for x in worth.values()])
        parts = []
        for place, length in enumerate(own[0].lengths):
            names = [name for name, better in zip(worth, sure[:, place], strict=True) if better]
            parts.append(f"at {length:,} {_some(names, len(own))}")
        one = len(own[0].loss) < 2
        sentences.append(
            f"{where(cells)}, on “{task}”, better than always saying 0 (relative squared error "
            f"below 1{'; of one seed' if one else ', interval included'}): {'; '.join(parts)}."
        )
    return sentences


def _of_reach(cells: Cells) -> list[str]:
    """Encodings that are not defined at every length."""
    last: dict[str, int] = {}
    for cell in cells:
        reach = int(np.max(np.array(cell.lengths), where=cell.defined, initial=0))
        last[cell.encoding] = min(reach, last.get(cell.encoding, reach))
    short = {limit for limit in last.values() if limit < cells[0].lengths[-1]}
    return [
        f"{where(cells)}, {_listed(names)} {'is' if len(names) == 1 else 'are'} not defined "
        f"beyond length {limit:,}: nothing is measured there, and the rank is the last."
        for limit in sorted(short)
        if (names := [name for name, reach in last.items() if reach == limit])
    ]


def _of_failures(cells: Cells) -> list[str]:
    failed = []
    for cell in cells:
        finite = np.isfinite(cell.scores[cell.metric][:, cell.defined])
        count, lost = len(finite), (~finite).any(axis=1).sum()
        if lost:
            failed.append(f"{quoted(cell.encoding)} on “{cell.task}” ({lost} of {count})")
    if not failed:
        return []
    return [f"{where(cells)}, seeds without a finite result, which rank last: {joined(failed)}."]


def _of_rates(cells: Cells) -> list[str]:
    """A grid that ends too early holds back whom its last rate is best for."""
    last = [cell for cell in cells if len(cell.rates) > 1 and cell.rate == max(cell.rates)]
    if not last:
        return []
    return [
        f"{where(cells)} the rate chosen is the largest of the grid for {len(last)} of "
        f"{plural(len(cells), 'pair')} of task and encoding: larger ones might do better there."
    ]


def _of_fairness(suite: Suite) -> str:
    drawn = "length" if suite.exact else "lengths up to"
    rows = f"{suite.rows:,} training rows" if suite.rows else "fresh training rows"
    return (
        f"Equal for all encodings of “{visible(suite.name)}”: {rows} of {drawn} "
        f"{suite.length:,}, test rows, {plural(suite.seeds, 'seed')}, initial weights "
        f"of what models have in common, {plural(suite.steps, 'step')} of "
        f"{plural(suite.batch, 'row')}, and the learning rates to choose from: "
        f"{', '.join(f'{rate:g}' for rate in suite.rates)}."
    )


def _of_choice(suites: Sequence[Suite]) -> list[str]:
    shares = dict.fromkeys(percent(suite.tuning) for suite in suites if len(suite.rates) > 1)
    if not shares:
        return []
    return [
        "Of several learning rates, each encoding and task has that of the least training loss "
        f"after a whole schedule of {' or '.join(shares)} of the steps, on a seed of its own: "
        "inputs longer than T had no part in the choice."
    ]


def quoted(encoding: str) -> str:
    """An encoding in quotation marks."""
    return f"“{title_of(encoding)}”"


def where(cells: Cells) -> str:
    """The comparison, as sentences begin."""
    return f"In “{visible(cells[0].suite)}”"


def _some(names: Sequence[str], count: int) -> str:
    """Names of some of `count` encodings, in few words."""
    if not names:
        return "not one"
    if len(names) == count:
        return "all" if count > 1 else _listed(names)
    return _listed(names) if len(names) <= 4 else f"{len(names)} of {count}"


def _listed(names: Sequence[str]) -> str:
    """Encodings in quotation marks."""
    return joined([quoted(name) for name in names])


def joined(words: Sequence[str]) -> str:
    """Words joined with commas, and "and" before the last."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
