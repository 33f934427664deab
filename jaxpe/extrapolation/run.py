"""All cells of all suites, one after another; what is done already is read."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxpe._errors import InputError
from jaxpe.data import sequence_task
from jaxpe.extrapolation.cells import run_cell
from jaxpe.extrapolation.presets import Suite
from jaxpe.extrapolation.streams import streams
from jaxpe.report import ExtrapolationReport, prepare_directory

Say = Callable[[str], None]


def extrapolate(
    suites: Sequence[Suite], folder: str | Path, *, say: Say = lambda line: None
) -> ExtrapolationReport:
    """Train and test every task of every suite under every encoding.

    Each cell's result and models are written to the folder as soon as they are there, so a run that
    was stopped goes on from the last one.

    Args:
        suites: such as `preset("smoke")`.
        folder: for results and models.
        say: is told of every cell that was run.

    Raises:
        InputError: for a folder that cannot be written or has cells of other settings, and suites
            of one name.

    >>> import tempfile
    >>> from jaxpe.extrapolation import Suite, extrapolate
    >>> suite = Suite(name="tiny", tasks=("parity",), encodings=("none",), length=2, factors=(1, 2),
    ...               steps=2, batch=4, tests=4, rates=(1e-3,), seeds=2, dim=8, heads=1, layers=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = extrapolate([suite], folder)
    >>> report.cells[0].scores["accuracy"].shape
    (2, 2)
    """
    names = [suite.name for suite in suites]
    if len(set(names)) < len(names):
        raise InputError(f"suites are named {', '.join(names)}: pass each name once")
    folder = prepare_directory(folder)
    begun = time.perf_counter()
    cells = []
    for suite in suites:
        for task in suite.tasks:
            data = streams(suite, sequence_task(task))
            cells += [run_cell(suite, data, name, folder, say) for name in suite.encodings]
    settings = [dataclasses.asdict(suite) for suite in suites]
    return ExtrapolationReport(settings, cells, time.perf_counter() - begun)
