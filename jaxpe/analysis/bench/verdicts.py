"""Verdicts on one encoding against each rival, which hold jointly."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from jaxpe.analysis.extrapolation import ExtrapolationCell, SeedInterval, lead_interval
from jaxpe.analysis.extrapolation.comparisons import seeds_needed, trials_beyond, worth


class Verdict(NamedTuple):
    """Comparison of an encoding with a rival on a task, by mean score beyond the training length.

    Attributes:
        task: name of the task.
        rival: the other encoding.
        verdict: "better" or "worse" if the interval of the lead excludes 0; "not decided" if it
            includes 0, or with one seed; "not learned" if either has not learned the task at T;
            "undefined" if either has no finite score beyond T.
        lead: score of the encoding less the score of the rival, seed by seed; scalars, NaN without
            a comparison.
        seeds: number of seeds that would decide it at the present mean and spread; 0 if it is
            decided or not compared, or if the number is unknown or above `MOST_SEEDS`.
    """

    task: str
    rival: str
    verdict: Literal["better", "worse", "not decided", "not learned", "undefined"]
    lead: SeedInterval
    seeds: int


def verdict_level(looks: int, *, level: float = 0.95) -> float:
    """Bonferroni level of each interval, at which all of them hold jointly.

    Args:
        looks: number of comparisons, rivals times tasks.
        level: joint confidence level.

    >>> round(verdict_level(12), 5)
    0.99583
    """
    return 1 - (1 - level) / max(1, looks)


def verdicts(cells: Sequence[ExtrapolationCell], encoding: str) -> tuple[Verdict, ...]:
    """Verdicts on an encoding against every other one, task by task.

    The encoding is chosen before the scores are known, so the comparisons are as many as rivals
    times tasks (`verdict_level`): if no encoding differs from it, all verdicts are "not decided"
    with a probability of at least 95 %.

    Args:
        cells: cells of one suite, every task under every encoding.
        encoding: the encoding that is judged.

    >>> [(x.task, x.rival, x.verdict) for x in verdicts(cells, "mine:slow")]  # doctest: +SKIP
    [('copy', 'rope', 'worse'), ('copy', 'alibi', 'not decided')]
    """
    own = {cell.task: cell for cell in cells if cell.encoding == encoding}
    rivals = [cell for cell in cells if cell.encoding != encoding]
    level = verdict_level(len(rivals))
    return tuple(_verdict(own[cell.task], cell, level) for cell in rivals)


def _verdict(own: ExtrapolationCell, rival: ExtrapolationCell, level: float) -> Verdict:
    pair, trials = (worth(own), worth(rival)), trials_beyond(own)
    none = SeedInterval(*(np.array(float("nan")) for _ in range(3)))
    named = own.task, rival.encoding
    if not (own.learned and rival.learned):
        return Verdict(*named, "not learned", none, 0)
    if not all(np.isfinite(values).all() for values in pair):
        return Verdict(*named, "undefined", none, 0)
    lead = lead_interval(*pair, trials=trials, level=level)
    if lead.low > 0 or lead.high < 0:
        return Verdict(*named, "better" if lead.low > 0 else "worse", lead, 0)
    ahead = pair if lead.mean > 0 else pair[::-1]
    known = np.isfinite(lead.low)
    return Verdict(*named, "not decided", lead, seeds_needed(*ahead, trials, level) if known else 0)
