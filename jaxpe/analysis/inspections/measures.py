"""Key measures of inspections: comparison of models, and the usual range of each measure."""

import itertools
import math
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import from_json, parse_json
from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect.result import InspectResult, Kind, TextReach

Unit = Literal["share", "tokens", "nats", "cosine", "number"]
_FEWEST = 3  # models whose range is called usual
_LENGTHS = 1.25  # ratio of lengths that tokenizers cause on one text


class Measure(NamedTuple):
    """A key measure of a model.

    Attributes:
        name: name in files.
        label: name on pages.
        unit: unit.
        value: function of an inspection that returns the measure with its interval, or None.
    """

    name: str
    label: str
    unit: Unit
    value: Callable[[InspectResult], Interval | None]


class ModelMeasures(NamedTuple):
    """Key measures of an inspected model, and the sizes they depend on.

    Attributes:
        model: name of the folder or file.
        kind: kind of the model.
        encoding: ways in which positions enter.
        parameters: number of parameters.
        context: positions for which the model was configured; 0 if unknown.
        source: corpus.
        positions: text positions of a row in attention, probe and ablation.
        longest: tokens of the longest text in loss and needles.
        tried: largest effective length that was tried; 0 without one.
        values: measures by name; the interval of a bound is infinite.
    """

    model: str
    kind: Kind
    encoding: str
    parameters: int
    context: int
    source: str
    positions: int
    longest: int
    tried: int
    values: dict[str, Interval]


class UsualRange(NamedTuple):
    """Range of a measure over models inspected before.

    Attributes:
        low: least estimate.
        high: largest estimate; infinite if one of them is a bound.
        models: number of models.
        alike: whether they were inspected on the same text at the same sizes.
    """

    low: float
    high: float
    models: int
    alike: bool


class InspectionComparison(NamedTuple):
    """Comparison of inspections.

    Attributes:
        models: key measures of each model.
        decided: for each measure whether the intervals of every two models are disjoint; only
            measures that two models have.
        warnings: differences of text or sizes that keep numbers from being compared.
    """

    models: list[ModelMeasures]
    decided: dict[str, bool]
    warnings: list[str]


def _field(*path: str) -> Callable[[InspectResult], Interval | None]:
    """Function that follows fields of a result; None where one of them is None."""

    def value(found: Any) -> Interval | None:
        for name in path:
            found = found and getattr(found, name)
        return found

    return value


def text_reach(found: InspectResult) -> TextReach | None:
    """Length of the text that matters, from the loss of a decoder or the output of an encoder.

    >>> text_reach(inspect_model(options)).effective  # doctest: +SKIP
    256
    """
    stage = found.ablation if found.loss is None else found.loss
    return None if stage is None else stage.reach


def _reach(found: InspectResult) -> Interval | None:
    if (reach := text_reach(found)) is None:
        return None
    if not reach.open:
        return Interval(float(reach.effective), float(reach.low), float(reach.high))
    least = reach.effective if reach.measure == "loss" else reach.low
    return Interval(float(least), float(reach.low), math.inf)


def _probe(found: InspectResult) -> Interval | None:
    if found.probe is None:
        return None
    best = int(np.argmax(found.probe.r2.mean))
    return Interval(*(float(ends[best]) for ends in found.probe.r2))


def _shuffled(*kinds: str) -> Callable[[InspectResult], Interval | None]:
    def value(found: InspectResult) -> Interval | None:
        if found.ablation is None or found.ablation.measure not in kinds:
            return None
        moved = next(move for move in found.ablation.moved if move.name == "shuffled")
        return moved.value if kinds == ("embedding",) else moved.change

    return value


def _retrieved(found: InspectResult) -> Interval | None:
    if found.needles is None:
        return None
    return Interval(*(float(ends[-1]) for ends in found.needles.by_length))


# Key measures, in the order of tables.
MEASURES = (
    Measure("position_share", "logits explained by positions", "share",
            _field("attention", "overall")),
    Measure("reach", "effective length", "tokens", _reach),
    Measure("sinks", "attention to sinks", "share",
            _field("attention", "sinks", "weight_overall")),
    Measure("baseline", "attention explained by the offset alone", "share",
            _field("attention", "baseline", "overall")),
    Measure("probe", "linear probe of position, R² of the best layer", "number", _probe),
    Measure("loss_shuffled", "loss added by shuffled positions", "nats",
            _shuffled("causal", "masked")),
    Measure("output_shuffled", "output under shuffled positions", "cosine",
            _shuffled("embedding")),
    Measure("retrieved", "facts retrieved from the longest text", "share", _retrieved),
)  # fmt: skip


def key_measures(found: InspectResult) -> ModelMeasures:
    """Key measures of an inspection; measures of stages without a result are missing.

    >>> key_measures(inspect_model(options)).values["position_share"]  # doctest: +SKIP
    Interval(estimate=0.36, low=0.35, high=0.38)
    """
    facts, reach = found.facts, text_reach(found)
    values = {one.name: value for one in MEASURES if (value := one.value(found)) is not None}
    return ModelMeasures(
        facts.model, facts.kind, facts.encoding, facts.parameters, facts.context, facts.source,
        facts.positions, facts.longest, int(reach.lengths[-1]) if reach else 0, values,
    )  # fmt: skip


def inspected_models() -> list[ModelMeasures]:
    """Key measures of the models that were inspected before, as the package stores them.

    >>> sorted({one.source for one in inspected_models()})
    ['sequences.txt', 'stdlib']
    """
    text = files("jaxpe.analysis.inspections").joinpath("inspected.json").read_bytes()
    stored = parse_json(text, where="inspected.json", remedy="install jaxpe again")
    return from_json(list[ModelMeasures], stored, where="inspected.json", finite=False)


def usual_range(of: ModelMeasures, name: str) -> UsualRange | None:
    """Range of a measure over the other inspected models of its kind; None for under three.

    Decoders are compared with decoders, and encoders with encoders. Models of sequences are
    compared only with models inspected on the same ones. Models inspected on the same text at the
    same sizes are preferred to all models.

    Args:
        of: measures of a model.
        name: name of the measure.

    >>> usual_range(inspected_models()[0], "position_share").models  # doctest: +SKIP
    3
    """
    others = [
        one for one in inspected_models()
        if one.model != of.model and name in one.values
        and (one.kind == "causal") == (of.kind == "causal")
        and one.source in ("stdlib", of.source)
    ]  # fmt: skip
    alike = [one for one in others if _alike(one, of)]
    chosen = alike if len(alike) >= _FEWEST else others
    if len(chosen) < _FEWEST:
        return None
    values = [one.values[name] for one in chosen]
    high = max(x.estimate if math.isfinite(x.high) else math.inf for x in values)
    low = min(x.estimate for x in values)
    return UsualRange(low, high, len(chosen), chosen is alike)


def compare_inspections(found: Sequence[InspectResult | ModelMeasures]) -> InspectionComparison:
    """Comparison of two or more inspections by their key measures.

    Args:
        found: results of `inspect_model`, or their `key_measures`.

    Raises:
        InputError: fewer than two inspections.

    >>> one, other = inspected_models()[:2]
    >>> len(compare_inspections([one, other]).models)
    2
    """
    models = [one if isinstance(one, ModelMeasures) else key_measures(one) for one in found]
    if len(models) < 2:
        raise InputError(f"{len(models)} inspection; pass two or more")
    decided = {}
    for measure in MEASURES:
        values = [one.values[measure.name] for one in models if measure.name in one.values]
        if len(values) > 1:
            values.sort()
            pairs = itertools.pairwise(values)
            decided[measure.name] = all(left.high < right.low for left, right in pairs)
    warnings = []
    for what in ("source", "positions", "longest"):
        seen = list(dict.fromkeys(getattr(one, what) for one in models))
        if not all(_alike(models[0], one, what) for one in models):
            warnings.append(f"`{what}` differs: {', '.join(map(str, seen))}.")
    return InspectionComparison(models, decided, warnings)


def _alike(one: ModelMeasures, other: ModelMeasures, *names: str) -> bool:
    """Whether texts are the same, and lengths within a quarter of each other."""
    for name in names or ("source", "positions", "longest"):
        a, b = getattr(one, name), getattr(other, name)
        if a != b and (isinstance(a, str) or max(a, b) > _LENGTHS * min(a, b)):
            return False
    return True
