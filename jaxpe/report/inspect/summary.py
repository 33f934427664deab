"""Top of the page on a model: a paragraph, three numbers beside usual ones, and what to do."""

import math
from collections.abc import Iterator

from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect import AblationStage, InspectResult
from jaxpe.analysis.inspections import (
    MEASURES,
    Measure,
    ModelMeasures,
    UsualRange,
    key_measures,
    text_reach,
    usual_range,
)
from jaxpe.report.inspect import text
from jaxpe.report.text import Headline, percent, plural, visible

MOST_WORDS = 60  # of the paragraph
SINK = 0.3  # share of attention from which the first token matters to users (Gu et al. 2025)
_MEASURES = {measure.name: measure for measure in MEASURES}
_ON_TOP = ("position_share", "reach", "sinks", "loss_shuffled", "output_shuffled", "probe")


def inspect_summary(result: InspectResult) -> str:
    """Paragraph on what positions do, how far the model reads, and what is unusual.

    It has at most 60 words: sentences that do not fit are left out, least important ones first.

    >>> inspect_summary(inspect_model(options))  # doctest: +SKIP
    'Positions enter all-MiniLM-L6-v2 as learned vectors and explain 30 % of the attention ...'
    """
    said: list[str] = []
    for sentence in _sentences(result):
        if len(" ".join([*said, sentence]).split()) <= MOST_WORDS:
            said.append(sentence)
    return " ".join(said)


def _sentences(result: InspectResult) -> Iterator[str]:
    """Sentences of the summary, the most important first."""
    facts, attention = result.facts, result.attention
    entry = f"Positions enter {visible(facts.model)} as {text.entry_names(facts.encoding)}"
    share = "" if attention is None else percent(attention.overall.estimate)
    yield f"{entry}.{f' They explain {share} of the variance of attention logits.' * bool(share)}"
    if (reach := text_reach(result)) is not None:
        yield text.reach_summary(reach)
    yield from _unusual(key_measures(result))
    if result.ablation is not None:
        yield _order_sentence(result.ablation)
    if attention is not None and attention.sinks and attention.sinks.weight_overall.low > SINK:
        yield f"Sinks take {percent(attention.sinks.weight_overall.estimate)} of attention."


def _order_sentence(stage: AblationStage) -> str:
    shuffled = next(move for move in stage.moved if move.name == "shuffled")
    if stage.measure == "embedding":
        cosine = f"{shuffled.value.estimate:.2f}".replace("-", "−")
        return f"With shuffled positions the output has cosine {cosine} to the original."
    change, added = shuffled.change, abs(shuffled.change.estimate)
    if change.low <= 0 <= change.high:
        return "Shuffled positions do not change the loss measurably."
    verb, to = ("adds", "to") if change.low > 0 else ("takes", "off")
    return f"Shuffling the positions {verb} {added:.2f} nats a token {to} the loss."


def _unusual(of: ModelMeasures) -> Iterator[str]:
    """Sentence on the measures outside the range of models inspected before."""
    usual = {name: found for name in of.values if (found := usual_range(of, name)) is not None}
    ends = {name: (of.values[name].low, of.values[name].high) for name in usual}
    above = [_MEASURES[name].label for name in usual if ends[name][0] > usual[name].high]
    below = [_MEASURES[name].label for name in usual if ends[name][1] < usual[name].low]
    count = max((found.models for found in usual.values()), default=0)
    others = f"the {count} {_kinds(of)} inspected before"
    for labels, where in ((above, "above"), (below, "below")):
        if labels:
            yield f"{where.capitalize()} {others}: {', '.join(labels)}."
    if usual and not above and not below:
        yield f"Its measures are in the range of {others}."


def _kinds(of: ModelMeasures) -> str:
    return "decoders" if of.kind == "causal" else "encoders"


def headlines(result: InspectResult) -> list[Headline]:
    """Three numbers of the model, with the range of models inspected before."""
    of = key_measures(result)
    chosen = [_MEASURES[name] for name in _ON_TOP if name in of.values][:3]
    return [_headline(of, measure) for measure in chosen]


def _headline(of: ModelMeasures, measure: Measure) -> Headline:
    (value, detail), usual = measure_texts(of, measure), usual_range(of, measure.name)
    detail = detail if value.startswith("≥") else f"interval {detail}"
    few = f"too few other {_kinds(of)} for a range"
    detail += f"; {few if usual is None else _usual(of, usual, measure.unit)}"
    label = measure.label[0].upper() + measure.label[1:]
    return Headline(label, value, detail)


def measure_texts(of: ModelMeasures, measure: Measure) -> tuple[str, str]:
    """Value and interval of a measure; of a bound, how far was tried."""
    value = of.values[measure.name]
    if math.isinf(value.high):
        return f"≥ {in_unit(value.estimate, measure.unit)}", f"tried to {of.tried:,}"
    return in_unit(value.estimate, measure.unit), ends_in_unit(value, measure.unit)


def _usual(of: ModelMeasures, usual: UsualRange, unit: str) -> str:
    ends = ends_in_unit(usual, unit)
    return f"{usual.models} other {_kinds(of)}: {ends}{'' if usual.alike else ', on other text'}"


def in_unit(value: float, unit: str) -> str:
    """A number in the unit of a measure.

    >>> in_unit(0.36, "share"), in_unit(512.0, "tokens"), in_unit(1.812, "nats")
    ('36\\xa0%', '512 tokens', '1.81 nats')
    """
    if unit == "share":
        return percent(value)
    if unit == "tokens":
        return plural(round(value), "token")
    return f"{value:.2f}{' nats' * (unit == 'nats')}".replace("-", "−")


def ends_in_unit(between: Interval | UsualRange, unit: str) -> str:
    """Both ends of an interval or range, with their unit once.

    >>> ends_in_unit(Interval(0.36, 0.352, 0.38), "share")
    '35 to 38\\xa0%'
    """
    if math.isinf(between.high):
        return f"{in_unit(between.low, unit)} or more"
    low, high = (in_unit(end, unit) for end in (between.low, between.high))
    if low == high:
        return high
    for suffix in ("\xa0%", " tokens", " token", " nats"):
        low = low.removesuffix(suffix)
    return f"{low} to {high}"
