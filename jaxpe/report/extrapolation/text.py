"""Text of an extrapolation report: summary, findings, and the cells of its tables."""

import math
from collections.abc import Sequence

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
    ranks,
)
from jaxpe.analysis.extrapolation.intervals import IN_0_1
from jaxpe.report.text import Advice, number, percent, plural, visible

Cells = list[ExtrapolationCell]

_ROUNDING = 1e-9  # of a percentage that is whole but for its last bit
_TIE = 1e-6  # lead that is rounding of float32
METRIC_WORDS = {
    "accuracy": "accuracy in %",
    "exact": "exact match in %",
    "mse": "squared error",
    "relative_mse": "relative squared error",
}


def title_of(encoding: str) -> str:
    """Title of an encoding; "none" is named NoPE.

    >>> title_of("none"), title_of("rope")
    ('NoPE (none)', 'rope')
    """
    return "NoPE (none)" if encoding == "none" else visible(encoding)


def by_task(cells: Cells) -> dict[str, Cells]:
    """Cells of a suite by task, in the order of scores beyond T, and ties by scores at T."""
    tasks = dict.fromkeys(cell.task for cell in cells)
    return {task: ranks.best_first([cell for cell in cells if cell.task == task]) for task in tasks}


def task_header(cells: Cells) -> list[str]:
    """Header of the table of a task."""
    first, *longer = cells[0].lengths
    multiples = [f"{length:,} = {length // first}T" for length in longer]
    return ["encoding", f"{first:,} = T", *multiples, "rate"]


def task_rows(cells: Cells) -> list[list[str]]:
    """A row for each encoding: the ranking metric at each length, and the rate chosen."""
    return [
        [
            title_of(cell.encoding),
            *(_score(cell, index) for index in range(len(cell.lengths))),
            f"{cell.rate:g}",
        ]
        for cell in cells
    ]


def rank_rows(cells: Cells) -> list[list[str]]:
    """A row for each encoding of a suite: its mean reciprocal rank."""
    means = ranks.mean_reciprocal_rank(cells)
    return [[title_of(name), with_interval(mean)] for name, mean in means.items()]


def _score(cell: ExtrapolationCell, index: int) -> str:
    """Table cell of the score at a length."""
    if not cell.defined[index]:
        return "undefined"
    finite = np.isfinite(cell.scores[cell.metric][:, index])
    if not finite.all():
        lost = f"{(~finite).sum()} of {len(finite)} " if finite.any() else ""
        return f"{lost}failed"
    interval = SeedInterval(*(ends[index] for ends in cell.summary[cell.metric]))
    return with_interval(interval, metric=cell.metric)


def with_interval(interval: SeedInterval, *, metric: str = "") -> str:
    """Mean and interval, or the mean alone.

    Errors, which have no upper bound, have ±. Percentages have ends that are rounded outwards.

    >>> with_interval(SeedInterval(0.704, 0.687, 0.7201), metric="accuracy")
    '70.4 [68–73]'
    """
    mean, low, high = map(float, interval)
    if metric in IN_0_1:
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
    scores, limits = (_rank_text, _accuracy_text, _zero_text), (_failures, _largest_rates)
    shares = dict.fromkeys(percent(s.tuning) for s in result.suites if len(s.rates) > 1)
    choice = (
        "Each encoding and task uses the learning rate of the lowest training loss on a separate "
        f"seed, after {' or '.join(shares)} of the steps with a full schedule. Inputs longer than "
        "T had no part in the choice."
    )
    return [
        *(text for cells in suites for finding in scores for text in finding(cells)),
        *(text for finding in limits for cells in suites for text in finding(cells)),
        *map(_budget, result.suites),
        *([choice] if shares else []),
    ]


def _rank_text(cells: Cells) -> list[str]:
    """Encodings that rank first beyond T, the significance of their lead, and their scores at T."""
    means = ranks.mean_reciprocal_rank(cells)
    if not means:
        return []
    ahead = ranks.leaders(cells)
    first, *tied = ahead.first
    top = with_interval(means[first])
    opening = f"{where(cells)}, beyond length {cells[0].lengths[0]:,}, {_quoted_names(ahead.first)}"
    if tied:
        return [f"{opening} share the first place by mean reciprocal rank ({top})."]
    second = next(name for name in means if name != first)
    significance = f", {'' if ahead.significant else 'not '}significantly different from 0"
    if len(cells[0].loss) < 2:
        significance = "; one seed gives no interval"
    texts = [
        f"{opening} ranks first: mean reciprocal rank {top}, and {with_interval(means[second])} "
        f"of {quoted(second)}, the second. Seed by seed the lead is {with_interval(ahead.lead)}"
        f"{significance}."
    ]
    if not ahead.learned:
        texts.append(f"{where(cells)}, {quoted(first)} has not learned every task at T.")
    # An encoding may rank first beyond T and be poor at T.
    at_t = [part for task, group in by_task(cells).items() if (part := _at_t(task, group, first))]
    if at_t:
        texts.append(f"{where(cells)}, scores of {quoted(first)} at T itself: {'; '.join(at_t)}.")
    return texts


def _at_t(task: str, cells: Cells, name: str) -> str:
    """Score of an encoding at T on a task, and the best one; empty without a finite score."""
    means = {cell.encoding: float(cell.summary[cell.metric].mean[0]) for cell in cells}
    finite = {encoding: mean for encoding, mean in means.items() if np.isfinite(mean)}
    if not finite:
        return ""
    lower = cells[0].metric in ranks.LOWER_IS_BETTER
    best = (min if lower else max)(finite, key=finite.__getitem__)
    shown = percent if cells[0].metric in IN_0_1 else number
    other = "" if best == name else f", the best {shown(means[best])} ({quoted(best)})"
    return f"“{task}” {shown(means[name]) if name in finite else 'nothing finite'}{other}"


def _accuracy_text(cells: Cells) -> list[str]:
    """Best accuracies at the longest inputs, which ranks hide."""
    if cells[0].metric not in IN_0_1:
        return []
    best = []
    for task, group in by_task(cells).items():
        means = {cell.encoding: float(cell.summary[cell.metric].mean[-1]) for cell in group}
        if np.isfinite(list(means.values())).any():
            top = np.nanmax(list(means.values()))
            names = [name for name, mean in means.items() if mean == top]
            best.append(f"{task} {percent(top)} ({_names(names, len(group) + 1)})")
    if not best:
        return []
    return [
        f"{where(cells)}, the best accuracies at length {cells[0].lengths[-1]:,} (the end of the "
        f"answer counts as a token): {', '.join(best)}."
    ]


def _zero_text(cells: Cells) -> list[str]:
    """Encodings that do better than a model that always says 0, by length."""
    if "relative_mse" not in cells[0].scores:
        return []
    how = "; of one seed" if len(cells[0].loss) < 2 else ", interval included"
    texts = []
    for task, group in by_task(cells).items():
        errors = {cell.encoding: cell.summary["relative_mse"] for cell in group}
        better = {k: np.where(np.isnan(x.high), x.mean, x.high) < 1 for k, x in errors.items()}
        parts = [
            f"at {length:,} {_names([name for name in better if better[name][index]], len(group))}"
            for index, length in enumerate(group[0].lengths)
        ]
        texts.append(
            f"{where(cells)}, on “{task}”, better than always saying 0 (relative squared error "
            f"below 1{how}): {'; '.join(parts)}."
        )
    return texts


def _failures(cells: Cells) -> list[str]:
    """Models whose training or scores are not finite."""
    failed = []
    for cell in cells:
        finite = np.isfinite(cell.scores[cell.metric][:, cell.defined])
        if lost := (~finite).any(axis=1).sum():
            failed.append(f"{quoted(cell.encoding)} on “{cell.task}” ({lost} of {len(finite)})")
    if not failed:
        return []
    return [f"{where(cells)}, seeds without a finite result, which rank last: {joined(failed)}."]


def _largest_rates(cells: Cells) -> list[str]:
    """Encodings for which the grid of learning rates may end too early."""
    last = [cell for cell in cells if len(cell.rates) > 1 and cell.rate == max(cell.rates)]
    if not last:
        return []
    return [
        f"{where(cells)}, the chosen rate is the largest of the grid for {len(last)} of "
        f"{plural(len(cells), 'pair')} of task and encoding: larger rates might do better."
    ]


def _budget(suite: Suite) -> str:
    lengths = "length" if suite.exact else "lengths up to"
    rows = f"{suite.rows:,} training rows" if suite.rows else "fresh training rows"
    return (
        f"Equal for all encodings of “{visible(suite.name)}”: {rows} of {lengths} "
        f"{suite.length:,}, test rows, {plural(suite.seeds, 'seed')}, initial weights "
        f"of shared parts, {plural(suite.steps, 'step')} of "
        f"{plural(suite.batch, 'row')}, and the learning rates to choose from: "
        f"{', '.join(f'{rate:g}' for rate in suite.rates)}."
    )


def summary(result: ExtrapolationResult) -> str:
    """First paragraph of a report: the best encodings of each task, and the next steps.

    >>> summary(found)  # doctest: +SKIP
    'In “strings”, models were trained on inputs up to length T = 6 and tested at 12 and 24. ...'
    """
    longer = [suite for suite in result.suites if len(suite.lengths) > 1]
    texts = [_suite_text(result, suite, defined=suite is longer[0]) for suite in longer]
    return " ".join(texts)


def _suite_text(result: ExtrapolationResult, suite: Suite, *, defined: bool) -> str:
    """Setting of a suite and its best encodings by task, with definitions if wanted."""
    cells = result.cells_of(suite)
    first, *longer = (f"{length:,}" for length in suite.lengths)
    score = "The mean squared error is averaged, geometrically,"
    if cells[0].metric in IN_0_1:
        score = "Accuracy, the share of the answer's tokens that are right, is averaged"
    parts = [
        f"{where(cells)}, models were trained on inputs {'of' if suite.exact else 'up to'} length "
        f"T = {first} and tested at {joined(longer)}. {score} over these longer lengths, and over "
        f"{plural(len(cells[0].loss), 'seed')}."
    ]
    if defined:
        parts.append(
            "Brackets and ± hold 95 % intervals. A comparison is decided where the interval of the "
            "difference, seed by seed, lies above 0; the intervals of all pairs on all tasks hold "
            "jointly at 95 %. Only encodings that learned the task at T are compared: "
            "there they do better than the best answer that ignores the input."
        )
    if "none" in suite.encodings:
        parts.append("NoPE (none) is no positional encoding at all.")
    for task, group in by_task(cells).items():
        pairs = [x for x in result.comparisons if (x.suite, x.task) == (suite.name, task)]
        parts.append(_best_text(task, group, pairs))
    return " ".join(parts)


def _best_text(task: str, cells: Cells, pairs: list[Comparison]) -> str:
    """The best encoding of a task, and the encodings that are significantly worse or not."""
    by_name = {cell.encoding: cell for cell in cells}
    failed = [cell for cell in cells if not np.isfinite(cell.scores[cell.metric][:, 1:]).all()]
    unlearned = [cell for cell in cells if not (cell.learned or cell in failed)]
    left_out = [
        f"{said}: {_quoted_names([cell.encoding for cell in group])}"
        for said, group in (
            (f"not learned at T{_chance_text(cells[0])}", unlearned),
            ("without scores beyond T", failed),
        )
        if group
    ]
    if not pairs:
        few = f"On “{task}”, fewer than two encodings have learned it and have scores beyond T"
        return "; ".join([few, *left_out]) + "."
    best = by_name[pairs[0].best]
    worse = [f"{quoted(x.encoding)} ({_level(by_name[x.encoding])})" for x in pairs if x.decided]
    level = _level(best, beyond_interval(best))
    tied = [best.encoding, *(x.encoding for x in pairs if abs(x.lead.mean) < _TIE)]
    shares = "share" if len(tied) > 1 else "has"
    parts = [f"On “{task}”, {_quoted_names(tied)} {shares} the best mean, {level}"]
    are = "they are" if len(tied) > 1 else "it is"
    if worse:
        parts.append(f"decided: {are} better than {joined(worse)}")
    undecided = [
        f"{quoted(x.encoding)} ({_level(by_name[x.encoding])}; {_seeds_text(x, best)})"
        for x in pairs
        if not (x.decided or x.encoding in tied)
    ]
    if undecided:
        parts.append(f"not decided: whether {are} better than {joined(undecided)}")
    return "; ".join([*parts, *left_out]) + "."


def _chance_text(cell: ExtrapolationCell) -> str:
    """Score at T of the best answer that ignores the input, in parentheses; empty if unknown."""
    if cell.metric not in IN_0_1:
        return " (no better than always saying 0)"
    return f" ({percent(cell.chance)} needs no input)" if cell.chance else ""


def _level(cell: ExtrapolationCell, interval: SeedInterval | None = None) -> str:
    """The mean score beyond T as text, with its interval if one is passed."""
    mean = float(beyond(cell).mean())
    if cell.metric not in IN_0_1:
        return with_interval(interval, metric=cell.metric) if interval else number(mean)
    if interval is None or math.isnan(float(interval.low)):
        return percent(mean)
    return f"{percent(mean)} {percent_ends(float(interval.low), float(interval.high))}"


def _seeds_text(pair: Comparison, best: ExtrapolationCell) -> str:
    """Number of seeds that would decide, by the spread of the present seeds."""
    if np.isnan(pair.lead.low):
        return f"{'one seed has' if len(best.loss) < 2 else 'seeds that agree have'} no interval"
    seeds = f"about {pair.seeds}" if pair.seeds else f"even {MOST_SEEDS}"
    return f"{seeds} seeds would {'' if pair.seeds else 'not '}decide"


def advice(result: ExtrapolationResult) -> list[Advice]:
    """Step to take: the encodings that no decided comparison rules out, or longer training."""
    return [Advice(_advice(result), "")]


def _advice(result: ExtrapolationResult) -> str:
    pairs, parts, choices = result.comparisons, list[str](), dict[str, list[str]]()
    for suite, task in dict.fromkeys((x.suite, x.task) for x in pairs if x.decided):
        own = [x for x in pairs if (x.suite, x.task) == (suite, task)]
        names = [own[0].best, *(x.encoding for x in own if not x.decided)]
        choices.setdefault(" or ".join(map(quoted, names)), []).append(task)
    if choices:
        named = [
            names + (f" ({joined(tasks)})" if len(choices) > 1 else "")
            for names, tasks in choices.items()
        ]
        parts.append(f"For inputs longer than in training, try {', '.join(named)} first.")
    if any(not x.decided for x in pairs):
        parts.append(
            "An undecided comparison is no reason to choose: take either, or pass more seeds."
        )
    unlearned = dict.fromkeys(
        f"“{task}”"
        for suite in result.suites
        for task, cells in by_task(result.cells_of(suite)).items()
        if not any(cell.learned for cell in cells)
    )
    if unlearned:
        parts.append(
            f"No encoding has learned {joined(list(unlearned))} at T, so nothing follows for "
            "longer inputs: pass more steps."
        )
    elif not pairs:
        parts.append(
            "Nothing is compared beyond the training length: pass at least two encodings that are "
            "defined beyond it and learn the task, and factors above 1."
        )
    parts.append("These are small models: compare at your own length and on your tasks to decide.")
    return " ".join(parts)


def quoted(encoding: str) -> str:
    """An encoding in quotation marks."""
    return f"“{title_of(encoding)}”"


def where(cells: Cells) -> str:
    """Beginning of a sentence: the name of the comparison."""
    return f"In “{visible(cells[0].suite)}”"


def _names(names: Sequence[str], count: int) -> str:
    """Short list of some of `count` encodings."""
    if not names:
        return "none"
    if len(names) == count > 1:
        return "all"
    return _quoted_names(names) if len(names) <= 4 else f"{len(names)} of {count}"


def _quoted_names(names: Sequence[str]) -> str:
    """Encodings in quotation marks."""
    return joined(list(map(quoted, names)))


def joined(words: Sequence[str]) -> str:
    """Words joined with commas, and "and" before the last."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
