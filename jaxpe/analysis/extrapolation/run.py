"""All cells of all suites, one after another; what is done already is read."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxpe._core.errors import InputError
from jaxpe._core.folders import output_folder
from jaxpe.analysis.extrapolation.cells import run_cell
from jaxpe.analysis.extrapolation.memory import check_memory
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.analysis.extrapolation.result import ExtrapolationReport
from jaxpe.analysis.extrapolation.streams import streams
from jaxpe.data import sequence_task

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
        InputError: for a folder that cannot be written, has cells of other settings or is written
            by another run, suites of one name, and those that need more memory than there is.

    >>> import tempfile
    >>> from jaxpe.analysis.extrapolation import Suite, extrapolate
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
    check_memory(suites)
    begun = time.perf_counter()
    cells = []
    with output_folder(folder) as made:
        for suite in suites:
            for task in suite.tasks:
                data = streams(suite, sequence_task(task))
                cells += [run_cell(suite, data, name, made, say) for name in suite.encodings]
    settings = [dataclasses.asdict(suite) for suite in suites]
    return ExtrapolationReport(settings, cells, time.perf_counter() - begun)
