"""Job of `jaxpe bench`: one encoding against others, in parts and merged."""

import dataclasses
import hashlib
import json
import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe._core.files import output_folder, write_file
from jaxpe._core.json_values import from_json, read_json, to_json
from jaxpe._core.progress import SILENT, Progress
from jaxpe._core.results import Seconds
from jaxpe.analysis.bench.measures import (
    COST_LENGTH,
    COST_TASK,
    EncodingMeasures,
    measure_encodings,
)
from jaxpe.analysis.bench.verdicts import Verdict, verdict_level, verdicts
from jaxpe.analysis.extrapolation import ExtrapolationCell, Suite, check_memory
from jaxpe.analysis.extrapolation.cell_files import cell_path, module_hash
from jaxpe.analysis.extrapolation.forecast import Forecast, Pair, step_work
from jaxpe.analysis.extrapolation.job import run_pairs
from jaxpe.analysis.extrapolation.variants import trained_as
from jaxpe.data import sequence_task

# Settings of each budget. A constant offset gives `copy`, an offset that grows `reverse`, and the
# tokens themselves `sort`; all have the same sizes, so they share compiled programs.
BUDGETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "length": 4, "steps": 300, "batch": 32, "seeds": 3, "dim": 32, "hidden": 64,
        "rates": (1e-2,), "tests": 200,
    },
    "small": {
        "length": 8, "steps": 1000, "batch": 32, "seeds": 5, "dim": 64, "hidden": 128,
        "rates": (3e-3, 1e-2), "tests": 500,
    },
    "medium": {
        "length": 12, "steps": 3000, "batch": 32, "seeds": 8, "dim": 128, "hidden": 256,
        "rates": (1e-3, 3e-3), "tests": 500,
    },
}  # fmt: skip
_PART = "part.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Compare an encoding with others: properties, cost, stress, and accuracy on three tasks.

    Models are trained at length T and tested at T, 2T and 4T. Finished cells, each a task under an
    encoding, are kept in the folder: the same command resumes an interrupted one, and after a
    change of your module trains only your encoding again.

    Attributes:
        encoding: encoding to judge, such as my_module:my_encoding.
        against: encodings to compare it with.
        budget: sizes and number of seeds; CPU time for two encodings, and for five. smoke: T = 4,
            300 steps, width 32, 3 seeds (2 minutes; 3). small: T = 8, 1,000 steps, width 64, 5
            seeds (6 minutes; 15). medium: T = 12, 3,000 steps, width 128, 8 seeds (about 2 hours;
            4).
        tasks: tasks of tokens.
        seeds: number of models of each task and encoding; the budget's when absent.
        steps: number of updates of each model; the budget's when absent.
        length: length T of the training inputs; the budget's when absent.
        batch: rows of an update; the budget's when absent.
        seed: random seed of all draws.
    """

    encoding: str
    against: tuple[str, ...] = ("none", "sinusoidal", "rope", "alibi")
    budget: Literal["smoke", "small", "medium"] = "smoke"
    tasks: tuple[str, ...] = ("copy", "reverse", "sort")
    seeds: int | None = None
    steps: int | None = None
    length: int | None = None
    batch: int | None = None
    seed: int = 0


class _Rows(NamedTuple):
    """Measures in a file."""

    rows: tuple[EncodingMeasures, ...]


class BenchResult(NamedTuple):
    """Result of `bench`.

    Attributes:
        options: options of the job.
        suite: settings of the models.
        level: confidence level of each interval, at which all comparisons hold jointly at 95 %.
        measures: properties, cost and stress of each encoding, the judged one first.
        cells: accuracies of each task under each encoding.
        verdicts: verdicts on the encoding, task by task and rival by rival.
        seconds: duration of the "whole" run, without cells read from an earlier one.
    """

    options: BenchOptions
    suite: Suite
    level: float
    measures: tuple[EncodingMeasures, ...]
    cells: tuple[ExtrapolationCell, ...]
    verdicts: tuple[Verdict, ...]
    seconds: Seconds = {}  # noqa: RUF012


def suite_of(options: BenchOptions) -> Suite:
    """Settings of the models.

    Raises:
        InputError: as `Suite`, or for a task of numbers.

    >>> suite = suite_of(BenchOptions(encoding="t5", budget="small", seeds=2))
    >>> suite.encodings, suite.lengths, suite.seeds
    (('t5', 'none', 'sinusoidal', 'rope', 'alibi'), (8, 16, 32), 2)
    """
    names = ("seeds", "steps", "length", "batch", "seed")
    changes = {name: x for name in names if (x := getattr(options, name)) is not None}
    settings = BUDGETS[options.budget] | changes
    encodings = tuple(dict.fromkeys((options.encoding, *options.against)))
    if len(encodings) < 2:
        raise InputError("`against` names no other encoding: pass one, such as `against=rope`")
    suite = Suite(
        name=f"bench {options.budget}", tasks=options.tasks, encodings=encodings, factors=(1, 2, 4),
        **settings,
    )  # fmt: skip
    if numbers := [task for task in suite.tasks if sequence_task(task).kind != "tokens"]:
        raise InputError(f"`tasks`: {', '.join(numbers)} have no accuracy: pass tasks of tokens")
    return suite


def bench(
    options: BenchOptions, out: str | os.PathLike[str], *, progress: Progress = SILENT
) -> BenchResult:
    """Compare an encoding with others, or read what earlier runs have in the folder.

    Args:
        options: options of the comparison.
        out: folder for measures, cells and models.
        progress: receives a forecast before the training, and a line on every cell.

    Raises:
        InputError: as `suite_of`; a folder that cannot be written or is in use; too little memory;
            or an encoding of one's own that fails.

    >>> bench(BenchOptions(encoding="ropee"), "nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: unknown encoding 'ropee': did you mean 'rope'? `jaxpe encodings` lists them
    """
    began, suite = time.perf_counter(), suite_of(options)
    check_memory([suite])
    with output_folder(out) as root:
        measures = _measures(suite, root, progress)
        pairs = _pairs(suite)
        forecast = _forecast(pairs, root, measures, progress)
        cells = tuple(run_pairs(pairs, root, forecast, progress=progress))
    found = verdicts(cells, options.encoding)
    level, seconds = verdict_level(len(found)), {"whole": time.perf_counter() - began}
    return BenchResult(options, suite, level, measures, cells, found, seconds)


def bench_part(
    options: BenchOptions,
    out: str | os.PathLike[str],
    *,
    part: tuple[int, int],
    progress: Progress = SILENT,
) -> int:
    """Compute one of several parts of a comparison, to be merged by `merge_parts`.

    The first part has the measures of all encodings, because times of one machine compare.

    Args:
        options: options of the whole comparison.
        out: folder of this part.
        part: number of the part, from 1, and number of all parts.
        progress: receives a forecast, and a line on every cell.

    Returns:
        Number of cells in the part.

    Raises:
        InputError: a part that does not exist, or as `bench`.

    >>> bench_part(BenchOptions(encoding="rope", against=("none",)), "nowhere", part=(4, 3))
    Traceback (most recent call last):
    jaxpe.InputError: `part` is 4/3: pass a number from 1/3 to 3/3
    """
    index, count = part
    if not 1 <= index <= count:
        raise InputError(
            f"`part` is {index}/{count}: pass a number from 1/{count} to {count}/{count}"
        )
    suite = suite_of(options)
    check_memory([suite])
    with output_folder(out) as root:
        write_file(root / _PART, json.dumps({"part": index, "parts": count}))
        names = suite.encodings if index == 1 else suite.encodings[:1]
        measures = _measures(suite, root, progress, names=names)
        pairs = _pairs(suite, part)
        run_pairs(pairs, root, _forecast(pairs, root, measures, progress), progress=progress)
    return len(pairs)


def merge_parts(
    options: BenchOptions, folders: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]
) -> None:
    """Copy the measures and cells of all parts into one folder, where `bench` reads them.

    Args:
        options: options of the whole comparison.
        folders: folders of the parts, in any order.
        out: folder of the whole.

    Raises:
        InputError: parts that are missing or incomplete, with the commands that complete them.

    >>> merge_parts(BenchOptions(encoding="rope", against=("none",)), ["nowhere"], "whole")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere/part.json cannot be read: ...; pass the folder of a part
    """
    suite, sources = suite_of(options), list(map(Path, folders))
    remedy = "pass the folder of a part"
    parts = {path: read_json(path / _PART, remedy=remedy) for path in sources}
    by_number = {values["part"]: path for path, values in parts.items()}
    count = max(values["parts"] for values in parts.values())
    missing = []
    with output_folder(out) as root:
        for number in range(1, count + 1):
            wanted = [cell_path(root, *pair) for pair in _pairs(suite, (number, count))]
            wanted += [_measures_path(suite, suite.encodings, root)] if number == 1 else []
            for path in wanted:
                copies = [
                    folder / path.name for folder in sources if (folder / path.name).is_file()
                ]
                if copies and not path.is_file():
                    write_file(path, copies[0].read_bytes())
            if lacking := [path.name for path in wanted if not path.is_file()]:
                folder = by_number.get(number, Path(f"part-{number}"))
                missing.append(
                    f"part {number}/{count} lacks {_lack(lacking, suite, sources)}: run "
                    f"{bench_command(options, part=f'{number}/{count}', out=folder)}"
                )
    if missing:
        raise InputError("; ".join(missing))


def _lack(names: Sequence[str], suite: Suite, folders: Sequence[Path]) -> str:
    """Text on files that a part lacks, and on a module that changed after it."""
    cells = [name for name in names if not name.startswith("measures-")]
    parts = [f"{len(cells)} cell{'s' * (len(cells) != 1)}"] * bool(cells) + ["the costs"] * (
        len(cells) < len(names)
    )
    own, stamp = suite.encodings[0], module_hash(suite.encodings[0])
    earlier = [name.replace(stamp, "-*") for name in cells if stamp]
    changed = any(any(folder.glob(name)) for name in earlier for folder in folders)
    return " and ".join(parts) + f" (the module of {own} has changed since)" * changed


def bench_command(options: BenchOptions, **more: Any) -> str:
    """Command line of the options, without those that are defaults.

    Args:
        options: options of the job.
        more: changes of the options, and options of the command.

    >>> bench_command(BenchOptions(encoding="rope"), seeds=9).split()[:3]
    ['jaxpe', 'bench', 'rope']
    """
    fields = {field.name: field.default for field in dataclasses.fields(options)}
    values = {name: getattr(options, name) for name in fields} | more
    words = ["jaxpe", "bench", str(values.pop("encoding"))]
    for name, value in values.items():
        if value != fields.get(name):
            words += [f"--{name}", *map(str, value if isinstance(value, tuple) else (value,))]
    return shlex.join(words)


def _pairs(suite: Suite, part: tuple[int, int] = (1, 1)) -> list[Pair]:
    """Pairs of a part; variants that share models are in one part."""
    pairs = [(suite, task, name) for task in suite.tasks for name in suite.encodings]
    groups = list(dict.fromkeys((task, trained_as(name)) for _, task, name in pairs))
    index, count = part
    chosen = set(groups[index - 1 :: count])
    return [pair for pair in pairs if (pair[1], trained_as(pair[2])) in chosen]


def _measures_path(suite: Suite, names: Sequence[str], root: Path) -> Path:
    """Path of the measures, which is another one after a change of their settings."""
    coded = [f"{name}{module_hash(name)}" for name in names]
    model = suite.dim, suite.layers, suite.heads, suite.hidden, COST_LENGTH
    text = json.dumps([jaxpe.__version__, coded, model])
    return root / f"measures-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"


def _measures(
    suite: Suite, root: Path, progress: Progress, *, names: Sequence[str] = ()
) -> tuple[EncodingMeasures, ...]:
    """Measures of the encodings, from the folder if it has them."""
    names = names or suite.encodings
    path = _measures_path(suite, names, root)
    if not path.is_file():
        rows = _Rows(measure_encodings(suite, names, progress=progress))
        write_file(path, json.dumps(to_json(rows)))
    values = read_json(path, remedy="it is damaged: delete it to measure again")
    return from_json(_Rows, values, where=str(path), finite=False).rows


def _forecast(
    pairs: Sequence[Pair], root: Path, measures: Sequence[EncodingMeasures], progress: Progress
) -> Forecast:
    """Forecast from the programs and the pace of the measures."""
    programs = {row.name: row.program for row in measures}
    measured = dataclasses.replace(pairs[0][0], length=COST_LENGTH, batch=1)
    seconds = measures[0].token_seconds * sequence_task(COST_TASK).tokens(COST_LENGTH)
    pace = seconds / step_work(measured, COST_TASK)
    return Forecast(pairs, root, progress, programs=programs, pace=pace)
