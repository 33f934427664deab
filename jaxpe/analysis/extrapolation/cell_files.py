"""Files of a comparison from which it can resume: cells and models."""

import dataclasses
import hashlib
import json
import math
import zipfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.array_files import read_members
from jaxpe._core.errors import InputError
from jaxpe._core.files import atomic_file, write_file
from jaxpe._core.json_values import from_json, read_json, seal, to_json
from jaxpe.analysis.extrapolation.intervals import seed_means
from jaxpe.analysis.extrapolation.models import METRICS
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.analysis.extrapolation.result import ExtrapolationCell
from jaxpe.data import SequenceTask

_FORMAT = 3  # of what is kept; another number makes what was kept before of no use
_HEADERS = 2**16  # bytes that the names and shapes of arrays take at most
_LEAF = "params"  # what names of arrays in a file of models begin with
_REMEDY = "delete it to run it again"


class Trained(NamedTuple):
    """Models of a task under an encoding, one a seed.

    Attributes:
        params: `[seeds, ...]`.
        rate: chosen.
        tuning: metric of each rate at the training length, on a seed of its own.
        losses: `[steps, seeds]`.
        seconds: duration of choosing and training.
    """

    params: Any
    rate: float
    tuning: list[float]
    losses: np.ndarray
    seconds: float


class _Kept(NamedTuple):
    """A cell in a file, with what it depends on and a checksum of all the rest."""

    stamp: str
    cell: ExtrapolationCell
    checksum: str = ""


def path_of(folder: Path, suite: Suite, task: str, name: str) -> Path:
    """Path of the `.json` file of a cell, a task under an encoding; its models are beside it."""
    return folder / f"{suite.name.replace(' ', '_')}-{task}-{name.replace(':', '.')}.json"


def stamp_of(suite: Suite, task: str, name: str, *, but_for: tuple[str, ...] = ()) -> str:
    """Hash of the settings that a cell depends on, those of JAX included and other cells not."""
    settings = {
        name: value
        for name, value in dataclasses.asdict(suite).items()
        if name not in ("tasks", "encodings", *but_for)
    }
    wide = jnp.result_type(float).itemsize == 8
    generator = jax.config.jax_default_prng_impl  # pyrefly: ignore
    around = (_FORMAT, jaxpe.__version__, wide, str(generator))
    text = json.dumps([settings, task, name, around], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_cell(path: Path, stamp: str, cell: ExtrapolationCell) -> None:
    """Write a cell, whole or not at all."""
    values = to_json(_Kept(stamp, cell))
    write_file(path, json.dumps(values | {"checksum": seal(values, but_for="checksum")}))


def read_cell(
    path: Path, stamp: str, suite: Suite, task: SequenceTask, name: str
) -> ExtrapolationCell:
    """A cell that `write_cell` wrote; raises where the file is damaged, or of other settings."""
    values = read_json(path, remedy=f"it is damaged: {_REMEDY}")
    try:
        kept: _Kept = from_json(_Kept, values, place=str(path), finite=False)
    except InputError as error:
        raise InputError(f"{error} ({_REMEDY})") from error
    if seal(values, but_for="checksum") != kept.checksum:
        raise InputError(f"{path} is damaged: {_REMEDY}")
    _check_stamp(path, kept.stamp, stamp)
    try:
        _check_cell(kept.cell, suite, task, name)
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}): {_REMEDY}") from error
    summary = seed_means(kept.cell.scores, tests=suite.tests)
    return kept.cell._replace(summary=summary, tests=suite.tests)


def _check_cell(cell: ExtrapolationCell, suite: Suite, task: SequenceTask, name: str) -> None:
    """Raise where a result is not of the shape that the suite gives it."""
    metrics, count = METRICS[task.kind], len(suite.lengths)
    arrays = {"defined": cell.defined, "tuning": cell.tuning, "loss": cell.loss, **cell.scores}
    found = cell._asdict() | {name: (x.dtype.kind, x.shape) for name, x in arrays.items()}
    found |= {"metrics": sorted(cell.scores), "names of seconds": list(cell.seconds)}
    expected = {
        "suite": suite.name,
        "task": task.name,
        "encoding": name,
        "metric": metrics[0],
        "metrics": sorted(metrics),
        "lengths": suite.lengths,
        "rates": suite.rates,
        "names of seconds": ["training"],
        "defined": ("b", (count,)),
        "tuning": ("f", (len(suite.rates),)),
        "loss": ("f", (suite.seeds,)),
        **dict.fromkeys(metrics, ("f", (suite.seeds, count))),
    }
    for what, value in expected.items():
        if found[what] != value:
            raise ValueError(f"{what} is {found[what]}, not {value}")
    _check_rate(cell.rate, cell.seconds["training"], suite)


def _check_rate(rate: float, seconds: float, suite: Suite) -> None:
    if rate not in suite.rates or not 0 <= seconds < math.inf:
        raise ValueError(f"rate {rate} after {seconds} seconds")


def write_models(path: Path, stamp: str, trained: Trained) -> None:
    """Write models, whole or not at all."""
    named = jax.tree_util.tree_leaves_with_path(trained.params)
    leaves = {_LEAF + jax.tree_util.keystr(place): leaf for place, leaf in named}
    numbers = {name: value for name, value in trained._asdict().items() if name != "params"}
    with atomic_file(path) as part:
        np.savez(part, stamp=stamp, **numbers, **leaves)  # pyrefly: ignore


def read_models(path: Path, stamp: str, suite: Suite, like: Any) -> Trained:
    """Models of parameters `like` these shapes that `write_models` wrote; raises likewise."""
    try:
        with zipfile.ZipFile(path) as whole:
            _check_sizes(whole, suite, like)
            file = read_members(whole)
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
