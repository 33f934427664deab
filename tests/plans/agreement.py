"""Plans of layers against what the classes of transformers do: `tools/parity/make_rope_classes.py`.

A case is a configuration of a class, with its defaults, scaled, or with other sizes. Its groups are
what a forward pass of the model did.
"""

import gzip
import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.plans import RopeAnalysis, RopeOptions
from jaxpe.plans.job import read_plans
from jaxpe.plans.result import LayerPlan

PARITY = Path(__file__).parents[1] / "parity"
_RTOL = 2e-5  # classes compute in float32


class Verdict(NamedTuple):
    """How a case was read.

    Attributes:
        model_type: type of the configuration.
        variation: "defaults", "scaled", "sizes" and others.
        outcome: "agrees", "not judged", "refused", "named" (a key that no rule uses) or "differs".
        differences: what differs, of a case that does.
        rotates: whether any layer of the class rotates.
    """

    model_type: str
    variation: str
    outcome: str
    differences: tuple[str, ...]
    rotates: bool


@cache
def classes(name: str = "rope_classes") -> Mapping[str, Any]:
    """Stored classes, under "types": also of "class_positions" and "class_rules"."""
    with gzip.open(PARITY / f"{name}.json.gz") as file:
        return json.load(file)


def verdicts(folder: Path, *, sample: bool = False) -> Iterator[Verdict]:
    """How each case is read, of classes that could be built and are of text.

    A sample has one case of each class, of another variation for the next class.
    """
    for index, (model_type, entry) in enumerate(classes()["types"].items()):
        cases = list(entry["cases"].items())
        for variation, case in [cases[index % len(cases)]] if sample and cases else cases:
            groups = [group for group in case.get("groups") or () if _compared(group)]
            if groups and case.get("text") is not False:
                yield _verdict(model_type, variation, case["input"], groups, folder)


def _compared(group: Mapping[str, Any]) -> bool:
    known = group.get("kind") is not None and group.get("mixes") != "neither"
    return known and "cross" not in str(group.get("stack"))


def read(fields: Mapping[str, Any], folder: Path, length: int | None = None) -> RopeAnalysis:
    """The analysis of fields by the newest transformers, without findings."""
    return read_plans(written(fields, folder, length))[1]


def written(fields: Mapping[str, Any], folder: Path, length: int | None = None) -> RopeOptions:
    """Options that read the fields, from a file, as the newest transformers does."""
    path = folder / "config.json"
    path.write_text(json.dumps(fields))
    return RopeOptions(config=str(path), programs="transformers 5.24", length=length)


def outcome(
    fields: Mapping[str, Any], folder: Path, length: int | None = None
) -> tuple[str, tuple[LayerPlan, ...]]:
    """Why the newest transformers refuses fields, empty where it reads them; and the plans."""
    try:
        found = read(fields, folder, length)
    except InputError as error:
        return str(error), ()
    return found.programs[0].problem or "", found.groups


def _verdict(
    model_type: str, variation: str, fields: Mapping[str, Any], groups: list[Any], folder: Path
) -> Verdict:
    rotates = any(group["kind"] == "rotary" for group in groups)
    try:
        # The classes hold the short list of longrope until a longer text comes.
        length = next(originals(fields), None) if "longrope" in json.dumps(fields) else None
        found = read(fields, folder, length)
    except InputError as error:
        return Verdict(model_type, variation, "refused", (str(error),), rotates)
    if found.status != "judged":
        return Verdict(model_type, variation, "not judged", (), rotates)
    problem = found.programs[0].problem
    if problem is not None:
        return Verdict(model_type, variation, "refused", (problem,), rotates)
    differences = _differences(groups, found)
    outcome = "differs" if differences else "agrees"
    if found.unread:
        outcome, differences = "named", (*differences, *found.unread)
    return Verdict(model_type, variation, outcome, tuple(differences), rotates)


def originals(fields: Any) -> Iterator[int]:
    """Lengths before scaling, wherever they stand."""
    for name, value in fields.items() if isinstance(fields, Mapping) else ():
        if name == "original_max_position_embeddings" and isinstance(value, int):
            yield value
        yield from originals(value)


def _differences(groups: list[Any], found: RopeAnalysis) -> list[str]:
    """Groups of the class that no group of the plan is, and the other way round."""
    plans = [plan for plan in found.groups if "indexer" not in plan.place and plan.layers != ()]
    result = []
    for group in groups:
        own = [_difference(group, plan) for plan in plans if _overlap(group, plan)]
        if "" not in own:
            result.append(f"{group['stack']}: {min(own, key=len, default='no such layers')}")
    if len({plan.part for plan in plans}) > 1:  # not every stack was run
        return result
    for plan in plans:
        theirs = [_difference(group, plan) for group in groups if _overlap(group, plan)]
        if theirs and "" not in theirs:
            result.append(f"{plan.name}: {min(theirs, key=len)}")
    return result


def _overlap(group: Mapping[str, Any], plan: LayerPlan) -> bool:
    layers = set(group.get("layers") or ())
    return not layers or plan.layers is None or bool(layers & set(plan.layers))


def _difference(group: Mapping[str, Any], plan: LayerPlan) -> str:
    """What a plan has otherwise than the class; empty where they are alike."""
    if plan.kind != group["kind"] and "rotary" in (plan.kind, group["kind"]):
        return f"kind {plan.kind}, not {group['kind']}"
    if group["kind"] != "rotary":
        return ""
    for name in ("head_dim", "turning", "pairing"):
        wanted = group.get(name)
        if wanted is not None and getattr(plan, name) != wanted:
            return f"{name} {getattr(plan, name)}, not {wanted}"
    factor = group.get("attention_factor")
    if factor is not None and not math.isclose(factor, plan.attention_factor, rel_tol=_RTOL):
        return f"attention_factor {plan.attention_factor}, not {factor}"
    # Modules hold the positions seen, or one more; two-sided ones the distance, or one more.
    least = None if plan.window is None else plan.window - plan.two_sided
    windows = (least, None if least is None else least + 1)
    if "window" in group and group["window"] not in windows:
        return f"window {plan.window}, not {group['window']}"
    return _other_frequencies(group, plan)


def _other_frequencies(group: Mapping[str, Any], plan: LayerPlan) -> str:
    wanted = np.array(group["frequencies"] or ())
    frequencies = np.zeros(group["count"] or 0)
    turning = np.asarray(plan.frequencies)[: len(frequencies)]
    frequencies[: len(turning)] = turning
    chosen = frequencies[group["indices"]] if len(wanted) else wanted
    if np.allclose(chosen, wanted, rtol=_RTOL, atol=0):
        return ""
    return f"frequencies {chosen[:3]}, not {wanted[:3]}"
