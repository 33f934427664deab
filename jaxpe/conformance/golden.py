"""Golden vectors: what kinds of layers compute at given positions, for tests in any language."""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.files import atomic_file
from jaxpe._core.results import npz_bytes
from jaxpe.conformance.reference import STEPS, Rotation, plan_rotation
from jaxpe.plans import RopeOptions
from jaxpe.plans.job import read_plans
from jaxpe.plans.result import LayerPlan

VERSION = 1
_POSITIONS = (0, 1, 2, 2**15, 2**20)
_AXIAL_POSITIONS = (1.0, 2.0, 15.0, 0.0)
_IDENTITY = ("name", "part", "layers", "window", "two_sided")
_STATED = (
    "kind", "head_dim", "turning", "place", "pairing", "sections", "section_order", "layout",
    "unit", "rope_type", "attention_factor",
)  # fmt: skip
_REASONS = {
    "none": "queries and keys do not rotate",
    "linear": "the layers have no attention logits",
    "bias": "positions are a bias of the logits",
    "convolution": "positions come from a convolution over the text",
    "table": "positions are a table of vectors that is added to the embeddings",
}


class NotJudgedError(InputError):
    """Error for a configuration whose model type has no rules."""


def golden_vectors(
    plans: LayerPlan | Sequence[LayerPlan], *, long_plans: Sequence[LayerPlan] = (),
    context: int = 0, **about: Any,
) -> dict[str, Any]:  # fmt: skip
    """Golden vectors of groups of layers: positions, inputs, cos, sin, rotated q and k, and logits.

    All inputs and results are NumPy arrays, results in float64 and float32. The page "Golden
    vectors" of the documentation describes them. Groups without rotation have a `reason`.

    Args:
        plans: plan, or plans, from `jaxpe.plans`.
        long_plans: plans for texts of 2^20 + 1 positions; groups that differ are written twice.
        context: length n that adds positions n − 1 and n, as the lengths in the plans do.
        **about: further entries of the result, such as `source="config.json"`.

    >>> from jaxpe.plans import simple_plan
    >>> group = golden_vectors(simple_plan(head_dim=4, base=100.0))["groups"][0]
    >>> group["positions"].tolist()
    [0, 1, 2, 2047, 2048, 32768, 1048576]
    >>> group["float64"]["cos"][1].round(4).tolist()
    [0.5403, 0.995]
    """
    plans = [plans] if isinstance(plans, LayerPlan) else plans
    lengths = {context, *(plan.trained for plan in plans if plan.kind == "rotary")} - {0}
    text_positions = sorted({*_POSITIONS, *lengths, *(length - 1 for length in lengths)})
    groups = dict[str, dict[str, Any]]()
    for plan, long in zip(plans, long_plans or plans, strict=True):
        same = plan.kind == "axial" or np.array_equal(plan.frequencies, long.frequencies)
        same = same and plan.attention_factor == long.attention_factor
        texts = {"any": plan} if same else {"short": plan, "long": long}
        for text, one in texts.items():
            at = [i for i in text_positions if text != "short" or i < one.trained]
            identity = {name: getattr(one, name) for name in _IDENTITY}
            group = _group(one, text, at)
            key = json.dumps(group, default=_array_key)
            groups.setdefault(key, {"members": [], **group})["members"].append(identity)
    found = [*groups.values()]
    return {"format": "jaxpe golden vectors", "version": VERSION, **about, "groups": found}


def _group(plan: LayerPlan, text: str, text_positions: list[int]) -> dict[str, Any]:
    """Plan and vectors of one group of layers."""
    stated = {name: getattr(plan, name) for name in _STATED}
    stated["base"] = None if math.isnan(plan.base) else plan.base
    stated["query_scaling"] = plan.query_scaling and plan.query_scaling._asdict()
    reason = "; ".join(_REASONS[part] for part in plan.kind.split("+") if part in _REASONS)
    try:
        rotation = plan_rotation(plan)
    except InputError as error:
        rotation, reason = None, str(error)
    if rotation is None:
        return {**stated, "reason": reason}
    # The factor of latent attention is not on the logits of an indexer.
    factor = 1.0 if "indexer" in plan.place else plan.logit_factor
    scale = factor / math.sqrt(plan.head_dim)
    entries = np.arange(plan.head_dim)
    inputs = {
        "pairs": rotation.pairs,
        "axes": rotation.axes,
        "frequencies": _shared(rotation, rotation.frequencies),
        "positions": _positions(plan, text_positions),
        "q": ((7 * entries + 3) % 17 - 8) / 8,  # exact in every floating-point type
        "k": ((5 * entries + 11) % 19 - 9) / 8,
    }
    vectors = _vectors(plan, rotation, scale, inputs)
    exact = rotation.cos_sin(inputs["positions"])
    in_float32 = rotation._replace(low=np.float32, rounded=STEPS[:3])
    low = in_float32.cos_sin(inputs["positions"])
    return {
        **stated, "text": text, "scale": scale, **inputs, "float64": vectors,
        "float32": {name: value.astype(np.float32) for name, value in vectors.items()},
        "float32_error": np.abs(np.subtract(low, exact)).max(axis=(0, 2, 3)),
    }  # fmt: skip


def _shared(rotation: Rotation, values: np.ndarray) -> np.ndarray:
    """Values by pair, `[..., half]`; by entry, `[..., half, 2]`, if entries of a pair differ."""
    alike = rotation.axes.ndim == 1 and (rotation.frequencies[:, 0] == rotation.frequencies[:, 1])
    return values[..., 0] if np.all(alike) else values


def _positions(plan: LayerPlan, text_positions: list[int]) -> np.ndarray:
    """Positions, `[n]`, or `[n, axes]`: of text, equal on all axes; then different on each axis."""
    if plan.kind == "axial":
        rows = max(1, min(4, 2048 // plan.head_dim))  # files stay below a megabyte
        values, axes = np.array(_AXIAL_POSITIONS), len(plan.frequencies)
        values = values / 16 if plan.unit.startswith("half") else values  # up to 1
    else:
        rows, values, axes = None, np.array(text_positions), len(plan.sections)
    if axes < 2:
        return values[:rows]
    by_axis = np.stack([np.roll(values, -axis) for axis in range(axes)], 1)
    equal = np.repeat(values[:, None], axes, 1)
    return by_axis[:rows] if plan.kind == "axial" else np.concatenate([equal, by_axis])


def _vectors(
    plan: LayerPlan, rotation: Rotation, scale: float, inputs: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Cosines, sines, rotated q and k, and logits of every pair of positions, in float64."""
    positions = inputs["positions"]
    cos, sin = (_shared(rotation, values) for values in rotation.cos_sin(positions))
    x = np.broadcast_to([inputs["q"], inputs["k"]], (1, len(positions), 2, plan.head_dim))
    q, k = rotation.turn(x, positions[None])[0].swapaxes(0, 1)
    times = positions if positions.ndim == 1 else positions[:, 0]
    scaling = plan.query_scaling
    factor = np.array([1.0 if scaling is None else scaling.at(one) for one in times.tolist()])
    logits = scale * np.einsum("id,jd->ij", factor[:, None] * q, k)
    return {"cos": cos, "sin": sin, "q": q, "k": k, "logits": logits}


def write_golden(
    config: str | os.PathLike[str], folder: str | os.PathLike[str], **options: Any
) -> dict[str, Any]:
    """Golden vectors of a configuration, written to golden.json and golden.npz.

    Args:
        config: config.json, a folder with one, a .gguf, or a name such as Qwen/Qwen3-8B.
        folder: folder of the files, made if absent.
        **options: other fields of `RopeOptions`, except `length`.

    Raises:
        NotJudgedError: a model type without rules.
        InputError: a configuration that cannot be read, or files that cannot be written.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "config.json").write_text('{"model_type": "llama"}')
    >>> golden = write_golden(folder, folder)
    >>> sorted(path.name for path in folder.glob("golden.*"))
    ['golden.json', 'golden.npz']
    """
    fields: dict[str, Any] = {"config": str(config), **options}
    short, long = (read_plans(RopeOptions(length=n, **fields))[1] for n in (2, _POSITIONS[-1] + 1))
    if short.status != "judged":
        raise NotJudgedError(f"{short.source}: {short.reason}")
    golden = golden_vectors(
        (*short.groups, *short.towers), long_plans=(*long.groups, *long.towers),
        context=short.context, model_type=short.model_type, program=short.numbers_of,
    )  # fmt: skip
    arrays = {"version": np.array(VERSION)}
    for index, group in enumerate(golden["groups"]):
        parts = ("", group), *((f"{t}.", group.get(t, {})) for t in ("float64", "float32"))
        for prefix, part in parts:
            found = {name: one for name, one in part.items() if isinstance(one, np.ndarray)}
            arrays |= {f"{index}.{prefix}{name}": one for name, one in found.items()}
    with atomic_file(Path(folder) / "golden.npz") as path:
        path.write_bytes(npz_bytes(arrays))
    with atomic_file(Path(folder) / "golden.json") as path:
        path.write_text(_json(golden) + "\n")
    return golden


def _array_key(array: np.ndarray) -> list[str]:
    return [str(array.shape), array.dtype.str, array.tobytes().hex()]


def _json(value: Any) -> str:
    return json.dumps(value, default=_json_numbers, allow_nan=False, separators=(",", ":"))


def _json_numbers(array: np.ndarray) -> list[Any]:
    """Numbers for JSON, which parse to the same numbers of the array's type."""
    shortest = array.astype(str) if array.dtype == np.float32 else array
    return shortest.astype(array.dtype if array.dtype.kind == "i" else np.float64).tolist()
