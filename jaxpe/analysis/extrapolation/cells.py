"""A task under an encoding: choose a rate, train all seeds, test at every length, keep it all."""

import dataclasses
import hashlib
import json
import math
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe._core.folders import write_whole, writing
from jaxpe._core.json_values import from_json, read_json, seal
from jaxpe.analysis.extrapolation.lanes import Lanes, judge_lanes, trainer
from jaxpe.analysis.extrapolation.models import METRICS, build, encoding_sizes
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.analysis.extrapolation.result import ExtrapolationCell
from jaxpe.analysis.extrapolation.streams import Streams
from jaxpe.analysis.extrapolation.variants import VARIANTS, defined_at, trained_as
from jaxpe.data import SequenceTask

Say = Callable[[str], None]

_TUNING_SEED = 1_000_000  # of no model that is tested
_FORMAT = 2  # of what is kept; another number makes what was kept before of no use
_HEADERS = 2**16  # bytes that the names and shapes of arrays take at most
_LEAF = "params"  # what names of arrays in a file of models begin with
_LAST = 0.1  # share of the steps whose losses are averaged


class Trained(NamedTuple):
    """Models of a task under an encoding, one a seed.

    Attributes:
        params: `[seeds, ...]`.
        rate: chosen.
        tuning: metric of each rate at the training length, on a seed of its own.
        losses: `[steps, seeds]`.
        seconds: of choosing and training.
    """

    params: Any
    rate: float
    tuning: list[float]
    losses: np.ndarray
    seconds: float


class _Kept(NamedTuple):
    """A result as JSON: an `ExtrapolationCell`, in which what is not finite is null."""

    stamp: str
    checksum: str
    suite: str
    task: str
    encoding: str
    metric: str
    lengths: tuple[int, ...]
    scores: dict[str, list[list[float | None]]]
    defined: list[bool]
    rate: float
    rates: tuple[float, ...]
    tuning: list[float | None]
    loss: list[float | None]
    seconds: float


def run_cell(
    suite: Suite, data: Streams, name: str, folder: Path, say: Say = lambda line: None
) -> ExtrapolationCell:
    """Train and test, or read what an earlier run left in the folder.

    Raises:
        InputError: where the folder has a result of other settings, or a file that is damaged.
    """
    task = data.task.name
    path = folder / f"{_stem(suite, task, name)}.json"
    stamp = _stamp(suite, task, name, but_for=())
    if path.is_file():
        return _read_cell(path, stamp, suite, data.task, name)
    trained = trained_models(suite, data, trained_as(name), folder)
    cell = _tested(suite, data, name, trained)
    fields = {"stamp": stamp} | _fields(cell)
    write_whole(path, json.dumps(fields | {"checksum": seal(fields)}))
    say(f"{task}, {name}: {trained.seconds:.0f} s")
    return cell


def trained_models(suite: Suite, data: Streams, name: str, folder: Path) -> Trained:
    """The models of a task under an encoding, trained or from the folder.

    They do not depend on how they are tested: other `factors` and `tests` find them again.
    """
    path = folder / f"{_stem(suite, data.task.name, name)}.npz"
    stamp = _stamp(suite, data.task.name, name, but_for=("name", "factors", "tests"))
    encoding = VARIANTS[name].trained(encoding_sizes(suite, data.task), data.task.causal)
    if path.is_file():
        shapes = jax.eval_shape(lambda: build(suite, data.task, encoding, jax.random.key(0)))
        return _read_models(path, stamp, suite, nnx.split(shapes, nnx.Param)[1])
    begun = time.perf_counter()
    train = trainer(suite, data, encoding)
    rate, tuning = _tuned(suite, train)
    lanes = train(seeds=np.arange(suite.seeds), rates=np.full(suite.seeds, rate), steps=suite.steps)
    trained = Trained(lanes.params, rate, tuning, lanes.losses, time.perf_counter() - begun)
    _write_models(path, stamp, trained)
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
    losses = _last(lanes)[: len(suite.rates)]
    return float(rates[int(np.argmin(np.nan_to_num(losses, nan=np.inf)))]), losses.tolist()


def _last(lanes: Lanes) -> np.ndarray:
    """Mean loss of the last steps, `[lanes]`."""
    steps = max(1, round(_LAST * len(lanes.losses)))
    return lanes.losses[-steps:].mean(axis=0)


def _tested(suite: Suite, data: Streams, name: str, trained: Trained) -> ExtrapolationCell:
    """Metrics at every length; NaN where the encoding is not defined there."""
    task, seeds = data.task, np.arange(suite.seeds)
    sizes = encoding_sizes(suite, task)
    nothing = np.full(suite.seeds, np.nan)
    failed = ~np.isfinite(trained.losses[-1])  # where the last finite parameters were kept
    found: dict[str, list[np.ndarray]] = {metric: [] for metric in METRICS[task.kind]}
    defined = []
    for length in suite.lengths:
        places = task.tokens(length)
        encoding = VARIANTS[name].at(sizes, places, causal=task.causal)
        defined.append(defined_at(encoding, sizes, places))
        judged = dict.fromkeys(found, nothing)
        if defined[-1]:
            judged = judge_lanes(suite, data, encoding, trained.params, seeds=seeds, length=length)
        for metric, values in judged.items():
            found[metric].append(np.where(failed, np.nan, values))
    return ExtrapolationCell(
        suite=suite.name,
        task=task.name,
        encoding=name,
        metric=METRICS[task.kind][0],
        lengths=suite.lengths,
        scores={metric: np.stack(values, axis=-1) for metric, values in found.items()},
        defined=np.array(defined),
        rate=trained.rate,
        rates=suite.rates,
        tuning=np.array(trained.tuning),
        loss=trained.losses[-max(1, round(_LAST * len(trained.losses))) :].mean(axis=0),
        seconds=trained.seconds,
    )


def _stem(suite: Suite, task: str, name: str) -> str:
    return "-".join((suite.name.replace(" ", "_"), task, name))


def _stamp(suite: Suite, task: str, name: str, *, but_for: tuple[str, ...]) -> str:
    """What a cell depends on: settings, but for which other cells there are, and how JAX is set."""
    settings = {
        name: value
        for name, value in dataclasses.asdict(suite).items()
        if name not in ("tasks", "encodings", *but_for)
    }
    wide = jnp.result_type(float).itemsize == 8
    generator = jax.random.key_impl(jax.random.key(0))
    around = (_FORMAT, jaxpe.__version__, wide, str(generator))
    text = json.dumps([settings, task, name, around], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _fields(cell: ExtrapolationCell) -> dict[str, Any]:
    """Values of JSON, which knows no NaN."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(x) for name, x in value.items()}
        if isinstance(value, np.ndarray):
            return plain(value.tolist())
        if isinstance(value, list | tuple):
            return [plain(x) for x in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return plain(cell._asdict())


def _read_cell(
    path: Path, stamp: str, suite: Suite, task: SequenceTask, name: str
) -> ExtrapolationCell:
    remedy = "delete it to run it again"
    fields = read_json(path, remedy=f"it is damaged: {remedy}")
    kept: _Kept = from_json(_Kept, fields, place=str(path))
    del fields["checksum"]
    if seal(fields) != kept.checksum:
        raise InputError(f"{path} is damaged: {remedy}")
    _check_stamp(path, kept.stamp, stamp)
    values: dict[str, Any] = {field: getattr(kept, field) for field in ExtrapolationCell._fields}
    try:
        values["scores"] = {metric: np.array(x, float) for metric, x in kept.scores.items()}
        for field, kind in (("defined", bool), ("tuning", float), ("loss", float)):
            values[field] = np.array(values[field], kind)
        cell = ExtrapolationCell(**values)
        _check_cell(cell, suite, task, name)
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}): {remedy}") from error
    return cell


def _check_cell(cell: ExtrapolationCell, suite: Suite, task: SequenceTask, name: str) -> None:
    """Raise where a result is not of the shape that the suite gives it."""
    shape = (suite.seeds, len(suite.lengths))
    metrics = METRICS[task.kind]
    expected = {
        "suite": suite.name,
        "task": task.name,
        "encoding": name,
        "metric": metrics[0],
        "lengths": suite.lengths,
        "rates": suite.rates,
    }
    shapes = {"tuning": suite.rates, "loss": range(suite.seeds), "defined": suite.lengths}
    for field, value in expected.items():
        _same(field, getattr(cell, field), value)
    for field, like in shapes.items():
        _same(f"shape of {field}", getattr(cell, field).shape, (len(like),))
    _same("metrics", sorted(cell.scores), sorted(metrics))
    for metric, values in cell.scores.items():
        _same(f"shape of {metric}", values.shape, shape)
    _check_rate(cell.rate, cell.seconds, suite)


def _check_rate(rate: float, seconds: float, suite: Suite) -> None:
    if rate not in suite.rates or not 0 <= seconds < math.inf:
        raise ValueError(f"rate {rate} after {seconds} seconds")


def _same(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise ValueError(f"{what} is {found}, not {expected}")


def _write_models(path: Path, stamp: str, trained: Trained) -> None:
    named = jax.tree_util.tree_leaves_with_path(trained.params)
    leaves = {_LEAF + jax.tree_util.keystr(place): leaf for place, leaf in named}
    numbers = {name: value for name, value in trained._asdict().items() if name != "params"}
    with writing(path) as part:
        np.savez(part, stamp=stamp, **numbers, **leaves)  # pyrefly: ignore


def _read_models(path: Path, stamp: str, suite: Suite, like: Any) -> Trained:
    try:
        with zipfile.ZipFile(path) as whole:  # NumPy does not look at the checksums
            _check_sizes(whole, suite, like)
            if (part := whole.testzip()) is not None:
                raise zipfile.BadZipFile(part)
        with np.load(path) as file:
            _check_stamp(path, str(file["stamp"]), stamp)
            trained = Trained(
                jax.tree_util.tree_map_with_path(partial(_leaf, file, suite.seeds), like),
                float(_numbers(file, "rate", ())),
                _numbers(file, "tuning", (len(suite.rates),)).tolist(),
                _numbers(file, "losses", (suite.steps, suite.seeds)),
                float(_numbers(file, "seconds", ())),
            )
        _check_rate(trained.rate, trained.seconds, suite)
    except InputError:
        raise
    except Exception as error:  # NumPy and zipfile raise many kinds of what they did not write
        raise InputError(f"{path} is damaged: delete it to train again") from error
    return trained


def _check_sizes(whole: zipfile.ZipFile, suite: Suite, like: Any) -> None:
    """Raise where there is more than the models take, before it is read."""
    models = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(like))
    most = suite.seeds * models + 8 * (suite.steps * suite.seeds + len(suite.rates))
    infos = whole.infolist()
    if sum(info.file_size for info in infos) > most + _HEADERS * len(infos):
        raise ValueError("more than the models take")


def _leaf(file: Any, seeds: int, place: Any, like: Any) -> np.ndarray:
    """The array of a parameter, `[seeds, ...]`, which must fit the model."""
    name = _LEAF + jax.tree_util.keystr(place)
    leaf = _numbers(file, name, (seeds, *like.shape))
    if leaf.dtype != like.dtype or not np.isfinite(leaf).all():
        raise ValueError(f"{name} is {leaf.dtype}, or not finite")
    return leaf


def _numbers(file: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of floats, of the shape that the suite gives it."""
    array = file[name]
    if array.shape != shape or array.dtype.kind != "f":
        raise ValueError(f"{name} is {array.dtype}{list(array.shape)}")
    return array


def _check_stamp(path: Path, found: str, wanted: str) -> None:
    if found != wanted:
        raise InputError(
            f"{path} was made with other settings: pass another folder, or delete it to make it "
            "again"
        )
