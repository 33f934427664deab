"""What a comparison beyond the training length found."""

from typing import NamedTuple

import numpy as np

from jaxpe._core.results import Seconds
from jaxpe.analysis.extrapolation.presets import Suite


class SeedMean(NamedTuple):
    """A mean over seeds.

    Attributes:
        mean: over seeds.
        half: of its 95 % interval by Student's t; NaN of one seed.
    """

    mean: np.ndarray
    half: np.ndarray


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
        summary: of each metric `[lengths]` over seeds; NaN where any seed has no finite score.
        defined: whether the encoding says anything at each length, `[lengths]`.
        rate: learning rate chosen.
        rates: that it was chosen from.
        tuning: loss of each rate, after a share of the steps, on a seed of its own.
        loss: of training, at the end, `[seeds]`.
        seconds: of "training", choosing the rate included.
    """

    suite: str
    task: str
    encoding: str
    metric: str
    lengths: tuple[int, ...]
    scores: dict[str, np.ndarray]
    summary: dict[str, SeedMean]
    defined: np.ndarray
    rate: float
    rates: tuple[float, ...]
    tuning: np.ndarray
    loss: np.ndarray
    seconds: Seconds = {}  # noqa: RUF012


class ExtrapolationResult(NamedTuple):
    """What `extrapolate` found.

    Attributes:
        suites: settings of each comparison.
        cells: of all of them, in order.
        mean_reciprocal_rank: by suite and encoding, the first first; scalars. Empty where nothing
            ranks: of one encoding, or without inputs longer than those of the training.
        seconds: of the "whole" run, what was read from an earlier one not counted.
    """

    suites: tuple[Suite, ...]
    cells: tuple[ExtrapolationCell, ...]
    mean_reciprocal_rank: dict[str, dict[str, SeedMean]]
    seconds: Seconds = {}  # noqa: RUF012

    def cells_of(self, suite: Suite) -> list[ExtrapolationCell]:
        """The cells of one comparison."""
        return [cell for cell in self.cells if cell.suite == suite.name]
