"""Ranks of encodings beyond the training length."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxpe.analysis.extrapolation.intervals import lead_interval, pair_level, seed_interval
from jaxpe.analysis.extrapolation.result import ExtrapolationCell, SeedInterval

LOWER_IS_BETTER = ("mse", "relative_mse")
_EQUAL = 1e-9  # mean reciprocal ranks closer than this count as equal


class Lead(NamedTuple):
    """The encodings that rank first, and their lead.

    Attributes:
        first: the encodings that share the first mean reciprocal rank.
        lead: lead over the next one, from paired differences of seeds; scalars.
        learned: whether the first ones have learned every task at T.
    """

    first: tuple[str, ...]
    lead: SeedInterval
    learned: bool

    @property
    def significant(self) -> bool:
        """Whether the interval of the lead lies above 0."""
        return bool(self.lead.low > 0)

    @property
    def sure(self) -> bool:
        """Whether the lead is significant, of encodings that have learned every task at T."""
        return self.significant and self.learned


def reciprocal_ranks(cells: Sequence[ExtrapolationCell]) -> dict[str, np.ndarray]:
    """Reciprocal rank 1/rank of each encoding, `[tasks, seeds, lengths − 1]`, beyond T.

    Encodings are ranked within a task, a seed (of data and weights) and a length, by the metric of
    the cell. Equal ones share the mean of 1/rank over their ranks; undefined ones, and ones with
    failed training, are last.

    Args:
        cells: cells of one suite, every task under every encoding.

    >>> {name: x.mean() for name, x in reciprocal_ranks(found.cells).items()}  # doctest: +SKIP
    {'alibi': 0.75, 'rope': 0.5}
    """
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    names = list(dict.fromkeys(cell.encoding for cell in cells))
    by_pair = {(cell.task, cell.encoding): cell for cell in cells}
    shares = []
    for task in tasks:
        worth = np.stack([_worth(by_pair[task, name]) for name in names])  # larger is better
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


def mean_reciprocal_rank(cells: Sequence[ExtrapolationCell]) -> dict[str, SeedInterval]:
    """Mean reciprocal rank by encoding over tasks, lengths and seeds, in (0, 1], with intervals.

    Args:
        cells: cells of one suite, every task under every encoding.

    Returns:
        Means in descending order; empty for one encoding, or without inputs longer than T.

    >>> list(mean_reciprocal_rank(found.cells))  # doctest: +SKIP
    ['alibi', 'rope']
    """
    if len({cell.encoding for cell in cells}) < 2 or len(cells[0].lengths) < 2:
        return {}
    means = {
        name: seed_interval(shares.mean(axis=(0, 2)), within=(0.0, 1.0), trials=shares[:, 0].size)
        for name, shares in reciprocal_ranks(cells).items()
    }
    return dict(sorted(means.items(), key=lambda item: -round(float(item[1].mean), 9)))


def leaders(cells: Sequence[ExtrapolationCell]) -> Lead:
    """The encodings that share the first mean reciprocal rank, and their lead over the next one.

    The interval belongs to the paired difference of the first and the next, at the level at which
    the intervals of all pairs hold jointly. A task is one trial: a model's ranks at several lengths
    are dependent, and three seeds may agree on one task by chance.

    Args:
        cells: cells of one suite in which encodings rank.

    >>> leaders(found.cells).first  # doctest: +SKIP
    ('alibi',)
    """
    means, shares = mean_reciprocal_rank(cells), reciprocal_ranks(cells)
    top = max(float(x.mean) for x in means.values())
    first = tuple(name for name, x in means.items() if top - float(x.mean) < _EQUAL)
    others = [name for name in means if name not in first]
    ahead, behind = shares[first[0]], shares[others[0] if others else first[0]]
    one, other = (x.mean(axis=(0, 2)) for x in (ahead, behind))
    trials, level = len(ahead), pair_level(len(means))
    learned = all(cell.learned for cell in cells if cell.encoding in first)
    return Lead(first, lead_interval(one, other, trials=trials, level=level), learned)


def best_first(cells: Sequence[ExtrapolationCell]) -> list[ExtrapolationCell]:
    """The cells of one task by rank beyond the training length, ties by score at this length."""
    beyond = mean_reciprocal_rank(cells)

    def sort_key(cell: ExtrapolationCell) -> tuple[float, float]:
        sign = 1.0 if cell.metric in LOWER_IS_BETTER else -1.0
        scores = np.nan_to_num(sign * cell.scores[cell.metric][:, 0], nan=np.inf, posinf=np.inf)
        share = float(beyond[cell.encoding].mean) if beyond else 0.0
        return -round(share, 9), float(scores.mean())

    return sorted(cells, key=sort_key)


def error_of_zero(cells: Sequence[ExtrapolationCell]) -> np.ndarray:
    """Squared error of always saying 0, `[lengths]`, from the ratio of the two metrics.

    The cells belong to one task of numbers. NaN at a length where no model has a finite error.
    """
    totals, counts = 0.0, 0
    for cell in cells:
        relative = cell.scores["relative_mse"]
        finite = np.isfinite(cell.scores["mse"]) & (relative > 0)
        sizes = np.divide(cell.scores["mse"], relative, out=np.zeros(relative.shape), where=finite)
        totals, counts = totals + sizes.sum(axis=0), counts + finite.sum(axis=0)
    return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)
