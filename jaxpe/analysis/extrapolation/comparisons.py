"""Significant differences between encodings, and the number of seeds that others would need."""

from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from jaxpe.analysis.extrapolation.intervals import seed_interval
from jaxpe.analysis.extrapolation.ranks import LOWER_IS_BETTER
from jaxpe.analysis.extrapolation.result import Comparison, ExtrapolationCell

# Largest number of seeds that a comparison recommends; leads that need more are called too small.
MOST_SEEDS = 100
_LEVEL = 0.95
_LEAST_ERROR = 1e-30  # whose logarithm is taken


def compared(cells: Sequence[ExtrapolationCell]) -> tuple[Comparison, ...]:
    """The best encoding of each task with every other one that has finite scores beyond T.

    Args:
        cells: cells of one suite, every task under every encoding.

    Returns:
        Task by task, the nearest to the best first; none without inputs longer than T.

    >>> [(x.best, x.encoding, x.decided) for x in compared(found.cells)]  # doctest: +SKIP
    [('none', 'alibi', True), ('none', 'rope', True)]
    """
    tasks = dict.fromkeys(cell.task for cell in cells)
    return tuple(
        one for task in tasks for one in _of_task([cell for cell in cells if cell.task == task])
    )


def _of_task(cells: Sequence[ExtrapolationCell]) -> list[Comparison]:
    if len(cells[0].lengths) < 2:
        return []
    worth = {cell.encoding: _worth(cell) for cell in cells}
    known = {name: values for name, values in worth.items() if np.isfinite(values).all()}
    first, *others = sorted(known, key=lambda name: -known[name].mean()) or [""]
    level = 1 - (1 - _LEVEL) / max(1, len(others))
    within = None if cells[0].metric in LOWER_IS_BETTER else (-1.0, 1.0)
    found = []
    for name in others:
        leads = known[first] - known[name]
        lead = seed_interval(leads, within=within, level=level)
        decided = bool(lead.low > 0)
        seeds = 0 if decided else _seeds_needed(leads, level)
        cell = cells[0]
        found.append(Comparison(cell.suite, cell.task, first, name, lead, decided, seeds))
    return found


def beyond(cell: ExtrapolationCell) -> np.ndarray:
    """Mean score of each seed beyond T, `[seeds]`: of accuracies, or the geometric one of errors.

    >>> beyond(found.cells[0]).round(2)  # doctest: +SKIP
    array([0.7, 0.71, 0.69])
    """
    values = cell.scores[cell.metric][:, 1:]
    if cell.metric in LOWER_IS_BETTER:
        return np.exp(np.log(np.maximum(values, _LEAST_ERROR)).mean(axis=1))
    return values.mean(axis=1)


def _worth(cell: ExtrapolationCell) -> np.ndarray:
    """The same as larger is better, such that differences compare."""
    return -np.log(beyond(cell)) if cell.metric in LOWER_IS_BETTER else beyond(cell)


def _seeds_needed(leads: np.ndarray, level: float) -> int:
    """The least number whose interval by Student's t lies above 0; 0 where there is none to tell.

    One more than there are at least: the bounded interval, which decides, is the wider one.
    """
    count, mean = len(leads), leads.mean()
    if count < 2 or not mean > 0:
        return 0
    spread = leads.std(ddof=1)
    more = np.arange(count + 1, MOST_SEEDS + 1)
    enough = stdtrit(more - 1, (1 + level) / 2) * spread / np.sqrt(more) < mean
    return int(more[np.argmax(enough)]) if enough.any() else 0
