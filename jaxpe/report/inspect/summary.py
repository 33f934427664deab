"""Top of the page on a model: a paragraph, three numbers beside usual ones, and what to do."""

from collections.abc import Callable, Iterator

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
from jaxpe.report.text import Advice, Headline, percent, plural, visible

MOST_WORDS = 60  # of the paragraph
_SINK = 0.3  # share of attention from which the first token matters to users (Gu et al. 2025)
_ROPE_TYPES = {"linear": "linear", "NTK": "dynamic", "YaRN": "yarn"}
_ORDER_MATTERS = 0.05  # nats, or of a cosine
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
    if attention is not None and attention.sinks and attention.sinks.weight_overall.low > _SINK:
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
    value, usual = of.values[measure.name], usual_range(of, measure.name)
    detail = f"interval {in_unit(value.low, measure.unit)} to {in_unit(value.high, measure.unit)}"
    if usual is not None:
        detail += f"; {_usual(of, usual, measure.unit)}"
    label = measure.label[0].upper() + measure.label[1:]
    return Headline(label, in_unit(value.estimate, measure.unit), detail)


def _usual(of: ModelMeasures, usual: UsualRange, unit: str) -> str:
    ends = f"{in_unit(usual.low, unit)} to {in_unit(usual.high, unit)}"
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


def advice(result: InspectResult) -> list[Advice]:
    """Steps to take, each with what to paste; each is chosen by numbers of the inspection.

    >>> [step.text for step in advice(inspect_model(options))]  # doctest: +SKIP
    ['Texts had up to 256 tokens, and the model is configured for 8,192. Measure there ...']
    """
    return [step for rule in _RULES if (step := rule(result)) is not None]


def _configuration(result: InspectResult) -> Advice | None:
    rope = None if result.encoding is None else result.encoding.rope
    wrong = [one for one in (rope.findings if rope else ()) if one.severity == "wrong"]
    if not wrong:
        return None
    finding = wrong[0].text.replace("`", "")
    command = result.facts.command.split(" ")
    model = f"jaxpe rope {command[2]}" if len(command) > 2 else ""
    return Advice(f"Mend the configuration first: {finding}", model)


def _longer_texts(result: InspectResult) -> Advice | None:
    facts = result.facts
    if result.loss is None or not facts.context or facts.longest >= facts.context:
        return None
    return Advice(
        f"Texts had up to {facts.longest:,} tokens, and the model is configured for "
        f"{facts.context:,}. Measure there before you rely on it.",
        facts.command and f"{facts.command} --stages loss needles --longest {facts.context}",
    )


def _sinks(result: InspectResult) -> Advice | None:
    sinks = None if result.attention is None else result.attention.sinks
    if sinks is None or sinks.weight_overall.low < _SINK or not len(sinks.positions):
        return None
    share = f"Sinks take {percent(sinks.weight_overall.estimate)} of attention"
    place = f"most often position {sinks.positions[0]} ({percent(float(sinks.position_share[0]))})"
    if result.facts.kind != "causal":
        return Advice(
            f"{share}, {place}. Leave them out of averages of attention maps.",
            f"attention[..., {sinks.positions[0]}] = 0; attention /= attention.sum(-1, "
            "keepdims=True)",
        )
    return Advice(
        f"{share}, {place}. Keep them in a cache that drops old tokens, and leave them out of "
        "averages over tokens, such as the data of sparse autoencoders.",
        f"cache = jaxpe.nn.evict_tokens(model.decoder, cache, start={sinks.positions[0] + 1}, "
        "count=dropped)",
    )


def _reach(result: InspectResult) -> Advice | None:
    reach = text_reach(result)
    if reach is None or reach.high >= reach.lengths[-1]:
        return None
    if reach.measure == "embedding":
        return Advice(
            f"Its output is settled by the first {reach.high:,} tokens. Split longer texts into "
            "pieces of that length.",
            f"pieces = [tokens[i : i + {reach.high}] for i in range(0, len(tokens), {reach.high})]",
        )
    return Advice(
        f"Context beyond {reach.high:,} tokens does not lower its loss measurably. Keep what "
        "matters within that distance of the answer.",
        f"prompt = prompt[-{reach.high}:]",
    )


def _middle(result: InspectResult) -> Advice | None:
    reach = text_reach(result)
    if reach is None or not reach.lost_in_the_middle:
        return None
    return Advice("The middle of a text counts least. Put what matters at its start or end.", "")


def _scaling(result: InspectResult) -> Advice | None:
    """The scaling that lowers the loss most at the largest multiple where one surely does."""
    helping = [one for one in (result.loss.scalings if result.loss else ()) if one.far.high < 0]
    if not helping:
        return None
    top = max(one.multiple for one in helping)
    best = min((one for one in helping if one.multiple == top), key=lambda one: one.far.estimate)
    kind = best.name.split(" ")[0]
    paste = f'"rope_parameters": {{"rope_type": "{_ROPE_TYPES[kind]}", "factor": {top:g}}}'
    return Advice(
        f"For texts of {top:g} times the context, {best.name} changes the loss on a far passage by "
        f"{text.between(best.far)} nats a token, and on a near one by {text.between(best.near)}.",
        paste,
    )


def _padding(result: InspectResult) -> Advice | None:
    if (ablation := result.ablation) is None:
        return None
    shifted = next((move for move in ablation.moved if move.name == "shifted"), None)
    if shifted is None or not _matters(shifted.change, ablation.measure):
        return None
    return Advice(
        f"Absolute positions count: a shift by {ablation.shift:,} changes the output. With padding "
        "on the left, pass positions that start at the first token.",
        "position_ids = (attention_mask.cumsum(-1) - 1).clip(0)",
    )


def _order(result: InspectResult) -> Advice | None:
    if (ablation := result.ablation) is None:
        return None
    shuffled = next(move for move in ablation.moved if move.name == "shuffled")
    if _matters(shuffled.change, ablation.measure) is not False:
        return None
    return Advice(
        "Word order hardly counts here. Do not use the model where texts differ in their order "
        "alone.", "",
    )  # fmt: skip


def _matters(change: Interval, measure: str) -> bool | None:
    """Whether a change is surely more than a small one; None if the interval does not decide."""
    ends = sorted((change.low, change.high)) if measure != "embedding" else sorted(
        (-change.low, -change.high)
    )  # fmt: skip
    if ends[0] > _ORDER_MATTERS:
        return True
    return False if ends[1] < _ORDER_MATTERS else None


_RULES: tuple[Callable[[InspectResult], Advice | None], ...] = (
    _configuration, _longer_texts, _reach, _middle, _scaling, _padding, _order, _sinks,
)  # fmt: skip
