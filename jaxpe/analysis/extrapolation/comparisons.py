"""Significant differences between encodings, and the seeds that undecided ones would need."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import stdtrit

from jaxpe.analysis.extrapolation.intervals import (
    IN_0_1,
    lead_interval,
    pair_level,
    seed_means,
)
from jaxpe.analysis.extrapolation.ranks import LOWER_IS_BETTER
from jaxpe.analysis.extrapolation.result import Comparison, ExtrapolationCell, SeedInterval

# Largest number of seeds that a comparison recommends; leads that need more count as too small.
MOST_SEEDS = 100
_LEAST_ERROR = 1e-30  # whose logarithm is taken


def compared(cells: Sequence[ExtrapolationCell]) -> tuple[Comparison, ...]:
    """Comparisons of each task's best encoding with the others that learned the task.

    Encodings without finite scores beyond T, and encodings that have not learned the task at T
    (`ExtrapolationCell.learned`), are left out: their scores beyond T say nothing about length.

    Args:
        cells: cells of one suite, every task under every encoding.

    Returns:
        Comparisons task by task, the nearest to the best first; none without inputs longer than T.

    >>> [(x.best, x.encoding, x.decided) for x in compared(found.cells)]  # doctest: +SKIP
    [('none', 'alibi', True), ('none', 'rope', True)]
    """
    tasks = dict.fromkeys(cell.task for cell in cells if len(cell.lengths) > 1)
    by_task = [_learned_cells([cell for cell in cells if cell.task == task]) for task in tasks]
    level = pair_level([len(scored) for scored in by_task])
    return tuple(one for scored in by_task for one in _task_comparisons(scored, level))


def _learned_cells(cells: list[ExtrapolationCell]) -> list[ExtrapolationCell]:
    """Cells with finite scores beyond T and a task learned at T, in the order of mean scores."""
    finite = [cell for cell in cells if cell.learned and np.isfinite(worth(cell)).all()]
    return sorted(finite, key=lambda cell: -worth(cell).mean())


def _task_comparisons(cells: list[ExtrapolationCell], level: float) -> Iterator[Comparison]:
    for cell in cells[1:]:
        first, pair, trials = cells[0], (worth(cells[0]), worth(cell)), trials_beyond(cell)
        lead = lead_interval(*pair, trials=trials, level=level)
        decided = bool(lead.low > 0)
        known = not decided and np.isfinite(lead.low)
        seeds = seeds_needed(*pair, trials, level) if known else 0
        yield Comparison(cell.suite, cell.task, first.encoding, cell.encoding, lead, decided, seeds)


def trials_beyond(cell: ExtrapolationCell) -> int | float | None:
    """Number of rows tested beyond T; None for a metric that is no share of trials."""
    return (cell.tests or math.inf) * (len(cell.lengths) - 1) if cell.metric in IN_0_1 else None


def beyond_interval(cell: ExtrapolationCell) -> SeedInterval:
    """Interval over seeds of the mean score beyond T.

    >>> beyond_interval(found.cells[0]).low.round(2)  # doctest: +SKIP
    0.68
    """
    trials = trials_beyond(cell)
    metric, mean = cell.metric, beyond(cell)[:, None]
    rows = 0 if trials is None or math.isinf(trials) else int(trials)
    return SeedInterval(*(x[0] for x in seed_means({metric: mean}, tests=rows)[metric]))


def beyond(cell: ExtrapolationCell) -> np.ndarray:
    """Mean score of each seed beyond T, `[seeds]`: arithmetic for accuracies, geometric for errors.

    >>> beyond(found.cells[0]).round(2)  # doctest: +SKIP
    array([0.7, 0.71, 0.69])
    """
    values = cell.scores[cell.metric][:, 1:]
    if cell.metric in LOWER_IS_BETTER:
        return np.exp(np.log(np.maximum(values, _LEAST_ERROR)).mean(axis=1))
    return values.mean(axis=1)


def worth(cell: ExtrapolationCell) -> np.ndarray:
    """Mean scores beyond T on a scale where larger is better and differences are comparable."""
    return -np.log(beyond(cell)) if cell.metric in LOWER_IS_BETTER else beyond(cell)


def seeds_needed(
    values: np.ndarray, other: np.ndarray, trials: int | float | None, level: float
) -> int:
    """The least number of seeds whose interval lies above 0; 0 if unknown.

    It uses Student's t, and the trials as if all seeds equalled the mean. It is at least one more
    than the present number, because the bounded interval, which decides, is wider.
    """
    leads = values - other

    def enough(count: int) -> bool:
        a, b = (np.full(count, x.mean()) for x in (values, other))
        half = stdtrit(count - 1, (1 + level) / 2) * leads.std(ddof=1) / count**0.5
        return bool(
            min(leads.mean() - half, lead_interval(a, b, trials=trials, level=level).low) > 0
        )

    most = MOST_SEEDS if len(leads) > 1 and enough(MOST_SEEDS) else 0
    return next(filter(enough, range(len(leads) + 1, most + 1)), 0)
