"""What `jaxpe extrapolate` found, and the ranks that follow from it."""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

LOWER_IS_BETTER = ("mse", "relative_mse")


class ExtrapolationCell(NamedTuple):
    """A task under an encoding.

    Attributes:
        suite: the comparison it belongs to.
        task: its name.
        encoding: its name.
        metric: that of `scores` which ranks.
        lengths: of inputs tested; the first is that of the training.
        scores: metrics by name, `[seeds, lengths]`; NaN where not defined, or where training came
            to NaN.
        defined: whether the encoding says anything at each length, `[lengths]`.
        rate: learning rate chosen.
        rates: that it was chosen from.
        tuning: loss of each rate, after a share of the steps, on a seed of its own.
        loss: of training, at the end, `[seeds]`.
        seconds: of choosing the rate and training.
    """

    suite: str
    task: str
    encoding: str
    metric: str
    lengths: tuple[int, ...]
    scores: dict[str, np.ndarray]
    defined: np.ndarray
    rate: float
    rates: tuple[float, ...]
    tuning: np.ndarray
    loss: np.ndarray
    seconds: float


class ExtrapolationReport(NamedTuple):
    """All that `jaxpe extrapolate` found.

    Attributes:
        suites: settings of each comparison.
        cells: of all of them, in order.
        seconds: of the whole run, what was read from an earlier one not counted.
    """

    suites: list[dict[str, Any]]
    cells: list[ExtrapolationCell]
    seconds: float


class Summary(NamedTuple):
    """A mean over seeds and half of its 95 % interval by Student's t; NaN of one seed."""

    mean: np.ndarray
    half: np.ndarray


def summary(values: np.ndarray) -> Summary:
    """Over the first axis.

    >>> from jaxpe.analysis.extrapolation.result import summary
    >>> found = summary(np.array([[1.0], [2.0], [3.0]]))
    >>> found.mean.item(), round(found.half.item(), 3)
    (2.0, 2.484)
    """
    values = np.asarray(values, float)
    count, mean = len(values), values.mean(axis=0)
    if count < 2:
        return Summary(mean, np.full(mean.shape, np.nan))
    return Summary(mean, stdtrit(count - 1, 0.975) * values.std(axis=0, ddof=1) / count**0.5)


def reciprocal_ranks(cells: list[ExtrapolationCell]) -> dict[str, np.ndarray]:
    """1/rank of each encoding, `[tasks, seeds, lengths − 1]`, at the lengths beyond the training's.

    Encodings are ranked within a task, a seed (of data and weights) and a length, by the metric of
    the cell. Those that are equal share the mean of 1/rank over their places; those that are not
    defined, or whose training failed, are last.

    Args:
        cells: of one suite, every task under every encoding.
    """
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    names = list(dict.fromkeys(cell.encoding for cell in cells))
    found = {(cell.task, cell.encoding): cell for cell in cells}
    shares = []
    for task in tasks:
        worth = np.stack([_worth(found[task, name]) for name in names])  # larger is better
        better = (worth[None, :] > worth[:, None]).sum(axis=1)
        equal = (worth[None, :] == worth[:, None]).sum(axis=1)
        harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, len(names) + 1))])
        shares.append((harmonic[better + equal] - harmonic[better]) / equal)
    stacked = np.stack(shares)  # [tasks, encodings, seeds, lengths]
    return {name: stacked[:, index] for index, name in enumerate(names)}


def _worth(cell: ExtrapolationCell) -> np.ndarray:
    values = cell.scores[cell.metric][:, 1:]
    sign = -1.0 if cell.metric in LOWER_IS_BETTER else 1.0
    return np.nan_to_num(sign * values, nan=-np.inf, neginf=-np.inf)


def mean_reciprocal_rank(cells: list[ExtrapolationCell]) -> dict[str, Summary]:
    """Mean over tasks, lengths and seeds of 1/rank by encoding, in (0, 1]; intervals over seeds."""
    return {
        name: summary(shares.mean(axis=(0, 2))) for name, shares in reciprocal_ranks(cells).items()
    }
