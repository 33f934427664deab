"""Job of `jaxpe extrapolate`: all cells of all suites, finished ones read from files."""

import dataclasses
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from jaxpe._core.errors import InputError
from jaxpe._core.files import output_folder
from jaxpe._core.progress import SILENT, Progress, duration
from jaxpe.analysis.extrapolation.cell_files import cell_path
from jaxpe.analysis.extrapolation.cells import run_cell
from jaxpe.analysis.extrapolation.comparisons import compared
from jaxpe.analysis.extrapolation.forecast import Forecast, Pair
from jaxpe.analysis.extrapolation.memory import check_memory
from jaxpe.analysis.extrapolation.models import ModelFactory, build
from jaxpe.analysis.extrapolation.presets import Suite, preset_suites
from jaxpe.analysis.extrapolation.ranks import mean_reciprocal_rank
from jaxpe.analysis.extrapolation.result import ExtrapolationCell, ExtrapolationResult
from jaxpe.analysis.extrapolation.streams import Streams, chance, streams
from jaxpe.data import sequence_task
from jaxpe.encodings.entries import own_encoding_errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtrapolationOptions:
    """Train on short inputs, test on longer ones, and rank encodings under equal budgets.

    Finished cells are kept in the folder: the same command resumes an interrupted one.

    Attributes:
        preset: suites of tasks and encodings, whose settings the other options replace. quick:
            about three minutes on two cores, shows differences between encodings; smoke: as long,
            only checks that everything runs; paper: hours; full: days.
        tasks: tasks to compare; the preset's when absent.
        encodings: encodings to compare; the preset's when absent.
        seeds: number of models of each task and encoding.
        steps: number of updates of each model.
        length: length T of the training inputs.
        batch: rows of an update.
        factors: multiples of T at which models are tested, 1 and larger ones.
        seed: random seed of all draws.
    """

    preset: str = "quick"
    tasks: tuple[str, ...] = ()
    encodings: tuple[str, ...] = ()
    seeds: int | None = None
    steps: int | None = None
    length: int | None = None
    batch: int | None = None
    factors: tuple[int, ...] | None = None
    seed: int | None = None


def extrapolate(
    options: ExtrapolationOptions,
    out: str | os.PathLike[str],
    *,
    model_factory: ModelFactory = build,
    progress: Progress = SILENT,
) -> ExtrapolationResult:
    """Train and test the suites of a preset, with some settings replaced by options.

    Args:
        options: options of the comparison.
        out: folder for models and results.
        model_factory: function that makes a model; by default a transformer of the suite's sizes.
        progress: receives a line for every cell.

    Raises:
        InputError: an unknown name, or as `Suite` and `extrapolate_suites`.

    >>> extrapolate(ExtrapolationOptions(preset="papr"), "nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: unknown preset 'papr': did you mean 'paper'? There are ...
    """
    suites = suites_of(options)
    return extrapolate_suites(suites, out, model_factory=model_factory, progress=progress)


def suites_of(options: ExtrapolationOptions) -> tuple[Suite, ...]:
    """The suites of the options; raises as `Suite`.

    >>> [suite.seeds for suite in suites_of(ExtrapolationOptions(preset="paper", seeds=2))]
    [2, 2]
    """
    settings = dict(vars(options))
    return preset_suites(settings.pop("preset"), **settings)


def extrapolate_suites(
    suites: Sequence[Suite],
    folder: str | os.PathLike[str],
    *,
    model_factory: ModelFactory = build,
    progress: Progress = SILENT,
) -> ExtrapolationResult:
    """Train and test every task of every suite under every encoding.

    Results and models are written as soon as they are computed: an interrupted run resumes.

    A model of your own is a function `(suite, task, encoding, key) -> nnx.Module`. The module is
    called as `model(inputs, mask=mask)`, with ids `[rows, n]` or numbers `[rows, n, 1]`, and mask
    `[rows, n]`, false on padding. It returns logits `[rows, n, task.vocab_size]`, or `[rows, n, 1]`
    for numbers, or an object with these `logits`. It is causal where `task.causal`. Encodings are
    made for `suite.dim` and `suite.heads`. All `nnx.Param` are trained, and parameters of equal
    path and shape start equal under all encodings. Results in the folder are reused by the
    function's name: pass another folder after a change of its code.

    Args:
        suites: suites, such as `preset("smoke")`.
        folder: folder for results and models.
        model_factory: function that makes a model; by default a transformer of the suite's sizes.
        progress: receives a line on each cell, with the number of cells left.

    Raises:
        InputError: a folder that cannot be written, has cells of other settings or is in use by
            another run, two suites of one name, too little memory, or logits of another shape.

    >>> import tempfile
    >>> suite = Suite(name="tiny", tasks=("parity",), encodings=("none",), length=2, factors=(1, 2),
    ...               steps=2, batch=4, tests=4, rates=(1e-3,), seeds=2, dim=8, heads=1, layers=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = extrapolate_suites([suite], folder)
    >>> result.cells[0].scores["accuracy"].shape
    (2, 2)
    """
    names = [suite.name for suite in suites]
    if len(set(names)) < len(names):
        raise InputError(f"suites are named {', '.join(names)}: pass each name once")
    check_memory(suites)
    begun = time.perf_counter()
    pairs = [(suite, task, name) for suite in suites for task in suite.tasks
             for name in suite.encodings]  # fmt: skip
    with output_folder(folder) as root:
        forecast = Forecast(pairs, root, progress)
        cells = run_pairs(pairs, root, forecast, model_factory=model_factory, progress=progress)
    result = ExtrapolationResult(tuple(suites), tuple(cells), {})
    ranks = {suite.name: mean_reciprocal_rank(result.cells_of(suite)) for suite in suites}
    comparisons = tuple(one for suite in suites for one in compared(result.cells_of(suite)))
    seconds = {"whole": time.perf_counter() - begun}
    return result._replace(mean_reciprocal_rank=ranks, comparisons=comparisons, seconds=seconds)


def run_pairs(
    pairs: Sequence[Pair],
    root: Path,
    forecast: Forecast,
    *,
    model_factory: ModelFactory = build,
    progress: Progress = SILENT,
) -> list[ExtrapolationCell]:
    """Cells of pairs of a task and an encoding, trained or read from a folder.

    Args:
        pairs: suite, task and encoding of each cell.
        root: folder of results and models.
        forecast: forecast of these pairs.
        model_factory: argument of `extrapolate_suites`.
        progress: receives a line on each cell, with the number of cells left.

    Raises:
        InputError: cells of other settings in the folder, or an encoding of one's own that fails.
    """
    data: dict[tuple[str, str], Streams] = {}
    chances: dict[tuple[str, str], float] = {}
    cells: list[ExtrapolationCell] = []
    for pair in pairs:
        suite, task, name = pair
        started = time.perf_counter()
        if (suite.name, task) not in data:
            data[suite.name, task] = streams(suite, sequence_task(task), model_factory)
            chances[suite.name, task] = chance(suite, data[suite.name, task])
        timed, done = partial(forecast.call, pair), cell_path(root, *pair).is_file()
        with own_encoding_errors(name):
            cell = run_cell(suite, data[suite.name, task], name, root, timed)
        cells.append(cell._replace(chance=chances[suite.name, task]))
        forecast.finish(pair, time.perf_counter() - started)
        pending, left = len(pairs) - len(cells), forecast.left()
        about = f", about {duration(left)}" if left > 0 else ""
        how = "kept from an earlier run" if done else f"{cell.seconds['training']:.0f} s"
        progress.say(f"{task}, {name}: {how}, {pending} to go{about}")
    return cells
