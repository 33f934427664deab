"""Cell of a comparison: choose a rate, train all seeds, test at every length, save."""

import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from flax import nnx

from jaxpe.analysis.extrapolation import cell_files
from jaxpe.analysis.extrapolation.batched_training import TrainedModels, score_models, trainer
from jaxpe.analysis.extrapolation.intervals import seed_means
from jaxpe.analysis.extrapolation.models import METRICS, encoding_sizes
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.analysis.extrapolation.result import ExtrapolationCell
from jaxpe.analysis.extrapolation.streams import Streams
from jaxpe.analysis.extrapolation.variants import defined_at, trained_as, variant

_TUNING_SEED = 1_000_000  # added to seeds; no tested model has such a seed
_LAST = 0.1  # share of the steps whose losses are averaged


Timed = Callable[[int, int, float], None] | None  # as `trainer` takes it


def run_cell(
    suite: Suite, data: Streams, name: str, folder: Path, timed: Timed = None
) -> ExtrapolationCell:
    """Train and test a task under an encoding, or read the result of an earlier run."""
    task = data.task.name
    path = cell_files.cell_path(folder, suite, task, name)
    stamp = cell_files.settings_hash(suite, task, name, make=data.make)
    if path.is_file():
        return cell_files.read_cell(path, stamp)
    models = trained_models(suite, data, trained_as(name), folder, timed)
    cell = _scored_cell(suite, data, name, models)
    cell_files.write_cell(path, stamp, cell)
    return cell


def trained_models(
    suite: Suite, data: Streams, name: str, folder: Path, timed: Timed = None
) -> cell_files.Trained:
    """Models of a task under an encoding, trained or read from the folder.

    Training does not depend on `factors` and `tests`: runs that differ in these share the models.
    """
    path = cell_files.cell_path(folder, suite, data.task.name, name).with_suffix(".npz")
    stamp = cell_files.settings_hash(
        suite, data.task.name, name, without=("name", "factors", "tests"), make=data.make
    )
    encoding = variant(name).trained(encoding_sizes(suite, data.task), data.task.causal)
    if path.is_file():
        shapes = jax.eval_shape(lambda: data.make(suite, data.task, encoding, jax.random.key(0)))
        return cell_files.read_models(path, stamp, nnx.split(shapes, nnx.Param)[1])
    started = time.perf_counter()
    train = trainer(suite, data, encoding, timed)
    rate, tuning = _best_rate(suite, train)
    seeds = np.arange(suite.seeds)
    params, losses = train(seeds=seeds, rates=np.full(suite.seeds, rate), steps=suite.steps)
    trained = cell_files.Trained(params, rate, tuning, losses, time.perf_counter() - started)
    cell_files.write_models(path, stamp, trained)
    return trained


def _best_rate(suite: Suite, train: Callable[..., TrainedModels]) -> tuple[float, list[float]]:
    """The rate of the lowest loss after a share of the steps, on a separate seed; NaN is worst.

    It trains as many models as the later training, so nothing is compiled twice.
    """
    if len(suite.rates) == 1:
        return suite.rates[0], [float("nan")]
    count = max(suite.seeds, len(suite.rates))
    rates = np.resize(np.array(suite.rates), count)
    models = train(seeds=np.full(count, _TUNING_SEED), rates=rates, steps=suite.tuning_steps)
    losses = _last(models.losses)[: len(suite.rates)]
    return float(rates[int(np.argmin(np.nan_to_num(losses, nan=np.inf)))]), losses.tolist()


def _last(losses: np.ndarray) -> np.ndarray:
    """Mean loss of the last steps, `[models]`, of losses `[steps, models]`."""
    steps = max(1, round(_LAST * len(losses)))
    return losses[-steps:].mean(axis=0)


def _scored_cell(
    suite: Suite, data: Streams, name: str, trained: cell_files.Trained
) -> ExtrapolationCell:
    """Metrics at every length; NaN where the encoding is not defined."""
    task, seeds = data.task, np.arange(suite.seeds)
    sizes, variation = encoding_sizes(suite, task), variant(name)
    failed = ~np.isfinite(trained.losses[-1])  # with the last finite parameters
    widths = [task.tokens(length) for length in suite.lengths]
    encodings = [variation.at(sizes, n, causal=task.causal) for n in widths]
    defined = [defined_at(e, sizes, n) for e, n in zip(encodings, widths, strict=True)]
    same: dict[int, list[int]] = {}  # lengths with the same encoding are tested by one program
    for index in np.flatnonzero(defined).tolist():
        same.setdefault(id(encodings[index]), []).append(index)
    # Float64, as read from a file.
    scores = {metric: np.full((suite.seeds, len(widths)), np.nan) for metric in METRICS[task.kind]}
    for indices in same.values():
        lengths, encoding = tuple(suite.lengths[i] for i in indices), encodings[indices[0]]
        tested = score_models(suite, data, encoding, trained.params, seeds=seeds, lengths=lengths)
        for metric, values in tested.items():
            scores[metric][:, indices] = np.where(failed, np.nan, values).T
    return ExtrapolationCell(
        suite=suite.name,
        task=task.name,
        encoding=name,
        metric=METRICS[task.kind][0],
        lengths=suite.lengths,
        scores=scores,
        summary=seed_means(scores, tests=suite.tests),
        defined=np.array(defined),
        rate=trained.rate,
        rates=suite.rates,
        tuning=np.array(trained.tuning),
        loss=_last(trained.losses).astype(float),
        seconds={"training": trained.seconds},
        tests=suite.tests,
    )
