"""Key measures of inspections, and their range over models that were inspected before.

key_measures(inspect_model(options)).values["position_share"]
"""

import math
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from jaxpe._core.json_values import from_json, parse_json
from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect.result import InspectResult, Kind, TextReach

_FEWEST = 3  # models whose range is called usual
_LENGTHS = 1.25  # ratio of lengths that tokenizers cause on one text

# Name and unit of each key measure on pages, in the order of tables.
MEASURES = {
    "position_share": ("logits explained by positions", "share"),
    "reach": ("effective length", "tokens"),
    "sinks": ("attention to sinks", "share"),
    "baseline": ("attention explained by the offset alone", "share"),
    "probe": ("linear probe of position, R² of the best layer", ""),
    "loss_shuffled": ("loss added by shuffled positions", "nats"),
    "output_shuffled": ("output under shuffled positions", "cosine"),
    "retrieved": ("facts retrieved from the longest text", "share"),
}


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
        values: measures by their names in `MEASURES`; the interval of a bound is infinite.
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


def text_reach(found: InspectResult) -> TextReach | None:
    """Length of the text that matters, from the loss of a decoder or the output of an encoder.

    >>> text_reach(inspect_model(options)).effective  # doctest: +SKIP
    256
    """
    stage = found.ablation if found.loss is None else found.loss
    return None if stage is None else stage.reach


def key_measures(found: InspectResult) -> ModelMeasures:
    """Key measures of an inspection; measures of stages without a result are missing.

    >>> key_measures(inspect_model(options)).values["position_share"]  # doctest: +SKIP
    Interval(estimate=0.36, low=0.35, high=0.38)
    """
    facts, reach, attention = found.facts, text_reach(found), found.attention
    values: dict[str, Interval | None] = {"reach": _reach(reach) if reach else None}
    if attention is not None:
        values["position_share"] = attention.overall
        values["sinks"] = attention.sinks.weight_overall
        values["baseline"] = attention.baseline.overall
    if found.probe is not None:
        best = int(np.argmax(found.probe.r2.mean))
        values["probe"] = Interval(*(float(ends[best]) for ends in found.probe.r2))
    if found.ablation is not None:
        shuffled = next(move for move in found.ablation.moved if move.name == "shuffled")
        if found.ablation.measure == "embedding":
            values["output_shuffled"] = shuffled.value
        else:
            values["loss_shuffled"] = shuffled.change
    if found.needles is not None:
        values["retrieved"] = Interval(*(float(ends[-1]) for ends in found.needles.by_length))
    return ModelMeasures(
        facts.model, facts.kind, facts.encoding, facts.parameters, facts.context, facts.source,
        facts.positions, facts.longest, int(reach.lengths[-1]) if reach else 0,
        {name: value for name in MEASURES if (value := values.get(name)) is not None},
    )  # fmt: skip


def _reach(reach: TextReach) -> Interval:
    """Effective length; with an open end it is a bound."""
    if not reach.open:
        return Interval(float(reach.effective), float(reach.low), float(reach.high))
    least = reach.effective if reach.measure == "loss" else reach.low
    return Interval(float(least), float(reach.low), math.inf)


def inspected_models() -> list[ModelMeasures]:
    """Key measures of the models that were inspected before, as the package stores them.

    >>> sorted({one.source for one in inspected_models()})
    ['sequences.txt', 'stdlib']
    """
    text = files("jaxpe.analysis").joinpath("inspected.json").read_bytes()
    stored = parse_json(text, where="inspected.json", remedy="install jaxpe again")
    return from_json(list[ModelMeasures], stored, where="inspected.json", finite=False)


def usual_range(of: ModelMeasures, name: str) -> UsualRange | None:
    """Range of a measure over the other inspected models of its kind; None for under three.

    Decoders are compared with decoders, and encoders with encoders. Models of sequences are
    compared only with models inspected on the same ones. Models inspected on the same text at
    sizes within a quarter of each other are preferred to all models.

    Args:
        of: measures of a model.
        name: name of the measure, a key of `MEASURES`.

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


def _alike(one: ModelMeasures, other: ModelMeasures) -> bool:
    """Whether texts are the same, and lengths within a quarter of each other."""
    pairs = ((one.positions, other.positions), (one.longest, other.longest))
    return one.source == other.source and all(max(x) <= _LENGTHS * min(x) for x in pairs)
