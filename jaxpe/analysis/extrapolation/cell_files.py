"""Files of a comparison: finished cells and trained models, from which it resumes."""

import dataclasses
import hashlib
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe._core.files import atomic_file, file_hash, write_file
from jaxpe._core.json_values import from_json, read_json, to_json
from jaxpe._core.results import read_npz
from jaxpe.analysis.extrapolation.models import ModelFactory, build
from jaxpe.analysis.extrapolation.presets import Suite
from jaxpe.analysis.extrapolation.result import ExtrapolationCell

_FORMAT = 3  # version of the files; another number makes earlier files unusable
_LEAF = "params"  # prefix of the names of arrays in a file of models
_REMEDY = "delete it to run it again"


class Trained(NamedTuple):
    """Models of a task under an encoding, one a seed.

    Attributes:
        params: `[seeds, ...]`.
        rate: chosen learning rate.
        tuning: metric of each rate at the training length, on a separate seed.
        losses: `[steps, seeds]`.
        seconds: duration of choosing the rate and training.
    """

    params: Any
    rate: float
    tuning: list[float]
    losses: np.ndarray
    seconds: float


class _StampedCell(NamedTuple):
    """A cell and the hash of the settings it depends on."""

    stamp: str
    cell: ExtrapolationCell


def cell_path(folder: Path, suite: Suite, task: str, name: str) -> Path:
    """Path of the `.json` file of a cell, a task under an encoding; its models are beside it.

    The name of an encoding of one's own ends with a hash of its module: after a change of the code
    its cells are made again.
    """
    named = f"{name.replace(':', '.')}{module_hash(name)}"
    return folder / f"{suite.name.replace(' ', '_')}-{task}-{named}.json"


def module_hash(name: str) -> str:
    """Hash of the file of the module in `my_module:my_encoding`, after a hyphen; empty without."""
    module = sys.modules.get(name.partition(":")[0]) if ":" in name else None
    file = getattr(module, "__file__", None)
    return f"-{file_hash(file)[:8]}" if file else ""


def settings_hash(
    suite: Suite,
    task: str,
    name: str,
    *,
    without: tuple[str, ...] = (),
    make: ModelFactory = build,
) -> str:
    """Hash of the settings that a cell depends on, which do not include other cells.

    Another factory of models than the default one counts by its name.
    """
    settings = {
        key: value
        for key, value in dataclasses.asdict(suite).items()
        if key not in ("tasks", "encodings", *without)
    }
    environment = [_FORMAT, jaxpe.__version__, str(jnp.result_type(float))]
    if make is not build:
        named = getattr(make, "func", make)  # of a partial function
        named = named if hasattr(named, "__qualname__") else type(named)
        environment.append(f"{named.__module__}.{named.__qualname__}")
    text = json.dumps([settings, task, name, environment], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_cell(path: Path, stamp: str, cell: ExtrapolationCell) -> None:
    """Write a cell atomically."""
    write_file(path, json.dumps(to_json(_StampedCell(stamp, cell))))


def read_cell(path: Path, stamp: str) -> ExtrapolationCell:
    """A cell that `write_cell` wrote; raises for a damaged file, or one of other settings."""
    values = read_json(path, remedy=f"it is damaged: {_REMEDY}")
    try:
        stamped: _StampedCell = from_json(_StampedCell, values, where=str(path), finite=False)
    except InputError as error:
        raise InputError(f"{error} ({_REMEDY})") from error
    _check_stamp(path, stamped.stamp, stamp)
    return stamped.cell


def write_models(path: Path, stamp: str, trained: Trained) -> None:
    """Write models atomically."""
    numbers = {name: value for name, value in trained._asdict().items() if name != "params"}
    with atomic_file(path) as part:
        np.savez(part, stamp=stamp, **numbers, **_named_leaves(trained.params))  # pyrefly: ignore


def read_models(path: Path, stamp: str, shapes: Any) -> Trained:
    """Models that `write_models` wrote.

    Args:
        path: the file.
        stamp: hash of the settings.
        shapes: shapes and dtypes of the parameters of one model.

    Raises:
        InputError: a damaged file, or one of other settings.
    """
    remedy = "delete it to train again"
    arrays = read_npz(path, remedy=remedy)
    damaged = InputError(f"{path} is damaged: {remedy}")
    try:
        params = jax.tree.unflatten(
            jax.tree.structure(shapes), [arrays[name] for name in _named_leaves(shapes)]
        )
        rate, seconds = float(arrays["rate"]), float(arrays["seconds"])
        trained = Trained(params, rate, arrays["tuning"].tolist(), arrays["losses"], seconds)
    except (ValueError, TypeError, LookupError) as error:
        raise damaged from error
    _check_stamp(path, str(arrays["stamp"]), stamp)
    if any(
        x.shape[1:] != y.shape for x, y in zip(*map(jax.tree.leaves, (params, shapes)), strict=True)
    ):
        raise damaged
    return trained


def _named_leaves(params: Any) -> dict[str, Any]:
    """Arrays of a pytree by their paths in it."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {_LEAF + jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _check_stamp(path: Path, stamp: str, expected: str) -> None:
    if stamp != expected:
        raise InputError(
            f"{path} was made with other settings: pass another folder, or delete it to make it "
            "again"
        )
