"""A task under an encoding: choose a rate, train all seeds, test at every length, keep it all."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
from flax import nnx

from jaxpe.analysis.extrapolation import cell_files
from jaxpe.analysis.extrapolation.batched_training import Lanes, judge_lanes, trainer
from jaxpe.analysis.extrapolation.intervals import seed_means
from jaxpe.analysis.extrapolation.models import METRICS, build, encoding_sizes
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.analysis.extrapolation.result import ExtrapolationCell
from jaxpe.analysis.extrapolation.streams import Streams
from jaxpe.analysis.extrapolation.variants import defined_at, trained_as, variant
from jaxpe.encodings import Encoding, LayerPattern

_TUNING_SEED = 1_000_000  # of no model that is tested
_LAST = 0.1  # share of the steps whose losses are averaged


def run_cell(suite: Suite, data: Streams, name: str, folder: Path) -> ExtrapolationCell:
    """Train and test a task under an encoding, or read the result of an earlier run."""
    task = data.task.name
    path = cell_files.cell_path(folder, suite, task, name)
    stamp = cell_files.settings_hash(suite, task, name)
    if path.is_file():
        return cell_files.read_cell(path, stamp)
    cell = _tested(suite, data, name, trained_models(suite, data, trained_as(name), folder))
    cell_files.write_cell(path, stamp, cell)
    return cell


def trained_models(suite: Suite, data: Streams, name: str, folder: Path) -> cell_files.Trained:
    """Models of a task under an encoding, trained or read from the folder.

    Training does not depend on `factors` and `tests`: runs with other ones share the models.
    """
    path = cell_files.cell_path(folder, suite, data.task.name, name).with_suffix(".npz")
    stamp = cell_files.settings_hash(
        suite, data.task.name, name, without=("name", "factors", "tests")
    )
    encoding = variant(name).trained(encoding_sizes(suite, data.task), data.task.causal)
    if path.is_file():
        shapes = jax.eval_shape(lambda: build(suite, data.task, encoding, jax.random.key(0)))
        return cell_files.read_models(path, stamp, nnx.split(shapes, nnx.Param)[1])
    begun = time.perf_counter()
    train = trainer(suite, data, encoding)
    rate, tuning = _tuned(suite, train)
    lanes = train(seeds=np.arange(suite.seeds), rates=np.full(suite.seeds, rate), steps=suite.steps)
    trained = cell_files.Trained(
        lanes.params, rate, tuning, lanes.losses, time.perf_counter() - begun
    )
    cell_files.write_models(path, stamp, trained)
    return trained


def _tuned(suite: Suite, train: Callable[..., Lanes]) -> tuple[float, list[float]]:
    """The rate of the least loss after a share of the steps, on a seed of its own; NaN is worst.

    As many lanes as models to come where these are more, so that nothing is compiled twice.
    """
    if len(suite.rates) == 1:
        return suite.rates[0], [float("nan")]
    count = max(suite.seeds, len(suite.rates))
    rates = np.resize(np.array(suite.rates), count)
    lanes = train(seeds=np.full(count, _TUNING_SEED), rates=rates, steps=suite.tuning_steps)
    losses = _last(lanes.losses)[: len(suite.rates)]
    return float(rates[int(np.argmin(np.nan_to_num(losses, nan=np.inf)))]), losses.tolist()


def _last(losses: np.ndarray) -> np.ndarray:
    """Mean loss of the last steps, `[lanes]`, of losses `[steps, lanes]`."""
    steps = max(1, round(_LAST * len(losses)))
    return losses[-steps:].mean(axis=0)


def _alike(
    encodings: list[Encoding | LayerPattern], places: np.ndarray
) -> Iterator[tuple[Encoding | LayerPattern, list[int]]]:
    """The encodings at these places, each once, and the places that have it."""
    found: dict[int, list[int]] = {}
    for place in places.tolist():
        found.setdefault(id(encodings[place]), []).append(place)
    return ((encodings[same[0]], same) for same in found.values())


def _tested(
    suite: Suite, data: Streams, name: str, trained: cell_files.Trained
) -> ExtrapolationCell:
    """Metrics at every length; NaN where the encoding is not defined there."""
    task, seeds = data.task, np.arange(suite.seeds)
    sizes, own = encoding_sizes(suite, task), variant(name)
    failed = ~np.isfinite(trained.losses[-1])  # where the last finite parameters were kept
    places = [task.tokens(length) for length in suite.lengths]
    encodings = [own.at(sizes, n, causal=task.causal) for n in places]
    defined = [defined_at(e, sizes, n) for e, n in zip(encodings, places, strict=True)]
    # As wide as they come back from a file.
    scores = {metric: np.full((suite.seeds, len(places)), np.nan) for metric in METRICS[task.kind]}
    for encoding, chosen in _alike(encodings, np.flatnonzero(defined)):
        lengths = tuple(suite.lengths[i] for i in chosen)
        judged = judge_lanes(suite, data, encoding, trained.params, seeds=seeds, lengths=lengths)
        for metric, values in judged.items():
            scores[metric][:, chosen] = np.where(failed, np.nan, values).T
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
