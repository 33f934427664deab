"""Steps to take after an inspection of a model, and after a comparison of several."""

from collections.abc import Callable

from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect import InspectResult
from jaxpe.analysis.inspections import InspectionComparison, text_reach
from jaxpe.report.inspect import text
from jaxpe.report.inspect.summary import SINK
from jaxpe.report.text import Advice, percent

_ROPE_TYPES = {"linear": "linear", "NTK": "dynamic", "YaRN": "yarn"}
_ORDER_MATTERS = 0.05  # nats, or of a cosine


def advice(result: InspectResult) -> list[Advice]:
    """Steps to take, each with what to paste; each is chosen by numbers of the inspection.

    >>> [step.text for step in advice(inspect_model(options))]  # doctest: +SKIP
    ['Texts had up to 256 tokens, and the model is configured for 8,192. Measure there ...']
    """
    return [step for rule in _RULES if (step := rule(result)) is not None]


def comparison_advice(result: InspectionComparison) -> list[Advice]:
    """Step to take where numbers cannot be compared."""
    if not result.warnings:
        return []
    first = result.models[0]
    return [
        Advice(
            "Inspect the models again on one text, at one length.",
            f"jaxpe inspect MODEL {first.source} --length {first.positions} --longest "
            f"{first.longest}",
        )
    ]


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


def _truncation(result: InspectResult) -> Advice | None:
    cut, context = result.facts.cut, result.facts.context
    if not 0 < cut < context:
        return None
    return Advice(
        f"Its tokenizer.json cuts texts at {cut:,} tokens without a message; the model has "
        f"{context:,} positions. Read longer texts in pieces.",
        "pieces = [(first := tokenizer.encode(text)), *first.overflowing]",
    )


def _sinks(result: InspectResult) -> Advice | None:
    sinks = None if result.attention is None else result.attention.sinks
    if sinks is None or sinks.weight_overall.low < SINK or not len(sinks.positions):
        return None
    share = f"Sinks take {percent(sinks.weight_overall.estimate)} of attention"
    place = f"most often position {sinks.positions[0]} ({percent(float(sinks.position_share[0]))})"
    if result.facts.kind != "causal":
        return Advice(
            f"{share}, {place}. Leave them out of averages of attention maps.",
            f"attention[..., {sinks.positions[0]}] = 0; attention /= attention.sum(-1, "
            "keepdims=True)",
        )
    first = sinks.positions[0] + 1
    tokens = "the first token" if first == 1 else f"the first {first} tokens"
    return Advice(
        f"{share}, {place}. In any program: where a cache drops old tokens, keep {tokens} in it. "
        "Leave sinks out of averages over tokens, such as the data of sparse autoencoders. "
        "In JAX, for a model of jaxpe.nn.load_causal_lm and its cache:",
        f"cache = jaxpe.nn.evict_tokens(model.decoder, cache, start={first}, count=dropped)  "
        "# dropped: number of old tokens",
    )


def _reach(result: InspectResult) -> Advice | None:
    reach = text_reach(result)
    if reach is None or reach.open:
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
    return Advice("The middle of a text matters least. Put what matters at its start or end.", "")


def _scaling(result: InspectResult) -> Advice | None:
    """The scaling that lowers the loss most at the largest multiple where one surely does."""
    helping = [one for one in (result.loss.scalings if result.loss else ()) if one.far.high < 0]
    if not helping:
        return None
    top = max(one.multiple for one in helping)
    best = min((one for one in helping if one.multiple == top), key=lambda one: one.far.estimate)
    kind = _ROPE_TYPES[best.name.split(" ")[0]]
    keys = f'"rope_type": "{kind}", "factor": {top:g}'
    return Advice(
        f"For texts of {top:g} times the context, {best.name} changes the loss on a far passage by "
        f"{text.between(best.far)} nats a token, and on a near one by {text.between(best.near)}. "
        "Add these keys to the rope_parameters of the model:",
        f'{keys}, "original_max_position_embeddings": {result.facts.context}',
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
        "position_ids = first + (attention_mask.cumsum(-1) - 1).clip(0)  # first: 0, or "
        "padding_idx + 1 in RoBERTa and MPNet",
    )


def _order(result: InspectResult) -> Advice | None:
    if (ablation := result.ablation) is None:
        return None
    shuffled = next(move for move in ablation.moved if move.name == "shuffled")
    if _matters(shuffled.change, ablation.measure) is not False:
        return None
    return Advice(
        "Word order hardly matters here. Do not use the model where texts differ only in their "
        "order.", "",
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
    _configuration, _truncation, _longer_texts, _reach, _middle, _scaling, _padding, _order, _sinks,
)  # fmt: skip
