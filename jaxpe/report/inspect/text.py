"""Sentences of the page on a model: findings of each section, summary, headlines, methods."""

import math

import numpy as np

from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect import (
    AblationStage,
    AttentionStage,
    EncodingStage,
    GeometryStage,
    InspectResult,
    LossStage,
    Means,
    NeedleStage,
    PositionMove,
    ProbeStage,
    TextReach,
)
from jaxpe.report.text import number, percent, plural, visible

MOST = 0.5  # share of its weight from which a head belongs to a kind of key
_ZERO_CHANGE = 5e-4  # nats; a smaller change of a loss is written as none
_SMALL_CHANGE = 0.1  # nats, up to the far end of the interval
_MODELS = {
    "causal": "a causal language model",
    "masked": "a masked language model",
    "encoder": "an encoder",
}
_ENTRIES = {"rotary": "rotations of queries and keys", "bias": "biases of the logits"}


def about(result: InspectResult) -> str:
    """The model and the documents, in two sentences."""
    facts = result.facts
    context = f", context {facts.context:,}" if facts.context else ""
    return (
        f"{visible(facts.model)} is {_MODELS[facts.kind]} of {facts.parameters / 1e6:,.0f} million "
        f"parameters: {plural(facts.layers, 'layer')} of {plural(facts.heads, 'head')}, dimension "
        f"{facts.width}{context}. {visible(facts.source)}: {facts.documents:,} documents; "
        f"attention measured on {facts.examples} of them, {facts.positions} text tokens each."
        f"{' ' * bool(facts.left_out)}{facts.left_out}"
    )


def entry_names(encoding: str) -> str:
    """Ways in which positions enter a model, in words.

    >>> entry_names("learned vectors and bias")
    'learned vectors and biases of the logits'
    """
    return " and ".join(_ENTRIES.get(name, name) for name in encoding.split(" and "))


def encoding_sentences(stage: EncodingStage) -> list[str]:
    """Findings on how positions enter the model."""
    parts = []
    if (table := stage.table) is not None:
        parts.append(
            f"The table has {table.positions:,} vectors of dimension {table.width} and effective "
            f"rank {table.rank:.0f}."
        )
        reach = f"of at least 0.5 up to offset {table.widest - 1}"
        parts.append(f"Neighbours have a cosine {reach if table.widest > 1 else 'below 0.5'}.")
    if stage.bias is not None:
        low, high = np.nanmin(stage.bias), np.nanmax(stage.bias)
        parts.append(f"A bias adds {low:.2f} to {high:.2f} to the logits.".replace("-", "−"))
    if stage.rope is not None and (plan := stage.rope.widest) is not None:
        parts.append(
            f"Queries and keys rotate with base {plan.base:,.0f}. {plan.never_round} of the "
            f"{len(plan.frequencies)} frequencies never complete a rotation within the "
            f"{plan.trained:,} training positions."
        )
    return parts


def geometry_sentences(stage: GeometryStage) -> list[str]:
    """Findings on the fit of learned positions to the corpus."""
    parts = ["The corpus shows no effect of position that a table could fit."]
    if stage.significant:
        better = "better" if stage.corrected < stage.shuffled.low else "no better"
        parts = [
            f"The table fits the corpus with scaled stress {number(stage.corrected)}; with its "
            f"rows in random order, {number(stage.shuffled.estimate)}.",
            f"Its order fits {better} than chance.",
        ]
    if stage.position_share is not None:
        share = percent_between(stage.position_share)
        parts.append(f"Position makes {share} of the variance observed between positions.")
    return parts


def attention_sentences(stage: AttentionStage) -> list[str]:
    """Findings on the share of positions in the logits."""
    share, by_head = stage.share.mean, stage.variance.position
    layers, top = stage.layer_numbers, int(share.argmax())
    head = np.unravel_index(by_head.argmax(), by_head.shape)
    return [
        f"Positions explain {percent_between(stage.overall)} of the variance of attention logits.",
        f"They explain most in layer {layers[top]} ({percent(float(share[top]))}) and in head "
        f"{layers[head[0]]}.{head[1]} ({percent(float(by_head[head]))}).",
        f"With the tokens of each document in random order they explain "
        f"{percent(max(stage.shuffled, 0.0))}.",
    ]


def offsets_sentences(stage: AttentionStage) -> list[str]:
    """Findings on attention by offset and to the first token."""
    counts = {name: int((weight > MOST).sum()) for name, weight in key_weights(stage).items()}
    most = max(counts, key=lambda name: counts[name])
    parts = [
        f"The first token gets {percent_between(stage.sink)} of attention; equal weights would "
        f"give it {percent(stage.first_by_chance)}.",
        f"{counts[most]} of {stage.first.size} heads have over half of their weight on {most}.",
    ]
    if (sinks := stage.sinks) is not None and len(sinks.tokens):
        parts.append(
            f"Sinks are in {percent_between(sinks.rate_overall)} of heads and get "
            f"{percent_between(sinks.weight_overall)} of attention; "
            f"{percent(sinks.position_share[0])} of them are at position {sinks.positions[0]}."
        )
        if (norm := round(float(sinks.norm.mean.max()))) > 1:
            parts.append(f"The norm of their hidden states is up to {norm} times the median.")
    if stage.baseline is not None:
        share = percent_between(stage.baseline.overall)
        parts.append(f"The offset alone explains {share} of the variance of attention weights.")
    if (bands := stage.bands) is not None:
        low, high = (percent(float(bands.overall.mean[k])) for k in (0, 2))
        parts.append(
            f"Rotary wavelengths up to 32 tokens carry {low} of queries and keys, and those longer "
            f"than the context {high}."
        )
    if stage.special_overall.estimate > 0:
        parts.append(f"All special tokens together get {percent_between(stage.special_overall)}.")
    return parts


def prior_sentences(stage: AttentionStage) -> list[str]:
    """Findings on attention to a document without content."""
    return [
        f"Attention overlaps by {percent_between(stage.dummy_overall)} with attention to a dummy "
        f"document, and by {percent_between(stage.other_overall)} with attention to another real "
        "document."
    ]


def probe_sentences(stage: ProbeStage) -> list[str]:
    """Findings on the position in the hidden states."""
    best, last = int(np.argmax(stage.r2.mean)), len(stage.layers) - 1
    reads = "reads the position best"
    if stage.r2.mean[best] <= 0:
        reads = "does not read the position; it comes closest"
    first = f"A linear probe {reads} {layer_name(stage, best)}: R² = {between(at(stage.r2, best))}"
    if best != last:
        first += f", against {between(at(stage.r2, last))} {layer_name(stage, last)}"
    return [f"{first}.", f"Its mean error is {stage.error[best]:.1f} positions at best."]


def layer_name(stage: ProbeStage, index: int) -> str:
    """Layer of the model that a probe was applied to."""
    if (layer := int(stage.layers[index])) == 0:
        return "before the first layer"
    return f"after layer {layer - 1}" if index < len(stage.layers) - 1 else "after the last layer"


def ablation_sentences(stage: AblationStage) -> list[str]:
    """Findings on the ablation of positions."""
    moves = {move.name: move for move in stage.moved if move.name != "own"}
    shuffled, shifted = moves["shuffled"], moves.get("shifted")
    if stage.measure == "embedding":
        worst = min(moves.values(), key=lambda move: move.value.estimate)
        distance = (1 - shuffled.value.estimate) / max(1 - stage.reference, 1e-6)
        degree = next(name for name, most in _DEGREES.items() if distance < most)
        parts = [
            f"Shuffling the positions changes the output {degree}: cosine "
            f"{between(shuffled.value)} to the original (two unrelated documents: "
            f"{stage.reference:.2f})."
        ]
        if shifted is not None:
            parts.append(f"Shifting all by {stage.shift:,} leaves {between(shifted.value)}.")
        if worst.name not in ("shuffled", "shifted"):
            parts.append(
                f"The output changes most with {_adjective(worst)} positions, to "
                f"{between(worst.value)}."
            )
        return parts + reach_sentences(stage.reach)
    worst = max(moves.values(), key=lambda move: move.change.estimate)
    loss = f"the loss of {between(stage.moved[0].value)} nats a token"
    parts = [f"Shuffling the positions {_change(shuffled, loss)}."]
    if shifted is not None:
        parts.append(f"Shifting all by {stage.shift:,} {_change(shifted, 'it')}.")
    if worst.name not in ("shuffled", "shifted"):
        parts.append(
            f"The loss rises most with {_adjective(worst)} positions, to {between(worst.value)}."
        )
    others = (move for name, move in moves.items() if name not in ("shuffled", "shifted"))
    if small := [_adjective(move) for move in others if _is_small(move.change)]:
        parts.append(f"The loss hardly changes with {' and '.join(small)} positions.")
    return parts


_DEGREES = {"hardly": 0.1, "moderately": 0.5, "strongly": math.inf}  # of the way to unrelated


def _change(move: PositionMove, loss: str) -> str:
    if abs(move.change.estimate) < _ZERO_CHANGE:
        return f"does not change {loss}"
    return f"changes {loss} by {between(move.change)}"


def _adjective(move: PositionMove) -> str:
    return move.name.replace("same", "equal")


def _is_small(change: Interval) -> bool:
    return max(abs(change.low), abs(change.high)) < _SMALL_CHANGE


def loss_sentences(stage: LossStage) -> list[str]:
    """Findings on the loss by position and the gain from far context."""
    loss, parts = stage.scaled[0].loss, []
    if stage.far:
        gains, distance = stage.far[0].gain, int(stage.distances[-1])
        far = (
            f"Context right before a passage is worth {between(at(gains, 0))} nats a token; "
            f"{distance:,} positions before it, {between(at(gains, -1))}"
        )
        if len(stage.far) > 1:
            best = max(stage.far[1:], key=lambda scaled: float(scaled.gain.mean[-1]))
            far += f", or {between(at(best.gain, -1))} under {best.name}"
        parts.append(f"{far}.")
    parts.append(
        f"The loss is {between(at(loss, 0))} nats a token before position {int(stage.edges[1])} "
        f"and {between(at(loss, -1))} from position {int(stage.edges[-2]):,} to {stage.length:,}."
    )
    if 0 < stage.length <= stage.context:
        parts.append(f"Texts of {stage.length:,} tokens fit the context of {stage.context:,}.")
    if stage.unscaled:
        parts.append(f"No RoPE scaling was tried: {stage.unscaled}.")
    return parts + reach_sentences(stage.reach)


def reach_sentences(reach: TextReach | None) -> list[str]:
    """Findings on the effective length, and on the start, middle and end of a text."""
    if reach is None:
        return []
    most, longest = f"{reach.effective:,}", int(reach.lengths[-1])
    if reach.measure == "embedding":
        first = f"the first {reach.low:,} or more" if reach.low < longest else "all"
        said = f"A similar embedding takes {first} of {longest:,} tokens."
        if not reach.open:
            said = f"The first {most} of {longest:,} tokens are enough for a similar embedding."
    else:
        length = "or more" if reach.open else f"({reach.low:,} to {reach.high:,})"
        said = f"Context lowers the loss up to an effective length of {most} tokens {length}; "
        said += f"{longest:,} were tried."
    parts = [said]
    if reach.parts is not None:
        counts = "counts less" if reach.lost_in_the_middle else "does not count less"
        parts.append(f"The middle of a text {counts} than both ends.")
    return parts


def reach_summary(reach: TextReach) -> str:
    """Sentence on the length of the text that matters."""
    last = int(reach.lengths[-1])
    if reach.measure == "embedding":
        if reach.open:
            which = f"at least the first {reach.low:,}" if reach.low < last else "all"
            return f"Its output depends on {which} of a text of {last:,} tokens."
        return f"Its output is settled by the first {reach.effective:,} of {last:,} tokens."
    if reach.effective >= last:
        return f"Context lowers its loss up to {last:,} tokens, the longest tried."
    beyond = f"beyond {last:,}" if reach.open else f"up to {reach.high:,}"
    return (
        f"Context measurably lowers its loss up to {reach.effective:,} tokens; an effect {beyond} "
        "tokens is not excluded."
    )


def needles_sentences(stage: NeedleStage) -> list[str]:
    """Findings on the retrieval of facts."""
    return [
        f"In texts of {int(stage.lengths[-1]):,} tokens the model retrieves "
        f"{percent_between(at(stage.by_length, -1))} of the facts; guessing gives "
        f"{percent(stage.chance)}."
    ]


def key_weights(stage: AttentionStage) -> dict[str, np.ndarray]:
    """Mean weight of heads on one kind of key, `[layers, heads]`, by its name."""
    offsets = {"the token before": -1, "the token itself": 0, "the next token": 1}
    weights = {name: stage.at_offset(offset) for name, offset in offsets.items()}
    if not weights["the next token"].any():  # a decoder
        del weights["the next token"]
    return {"the first token": stage.first} | weights


def at(means: Means, *index: int) -> Interval:
    """The mean and interval at an index of the arrays."""
    return Interval(*(float(np.asarray(x)[index]) for x in means))


def between(interval: Interval) -> str:
    """A number with its interval.

    >>> between(Interval(1.234, 1.0, 1.5))
    '1.23 (1.00 to 1.50)'
    """
    rounded = (round(x, 2) + 0.0 for x in interval)  # no negative zero
    mean, low, high = (f"{x:.2f}".replace("-", "−").replace("nan", "–") for x in rounded)
    return mean if math.isnan(interval.low) else f"{mean} ({low} to {high})"


def percent_between(interval: Interval) -> str:
    """A share with its interval.

    >>> percent_between(Interval(0.5, 0.4, 0.61))
    '50\\xa0% (40 to 61)'
    """
    mean = percent(interval.estimate)
    return mean if math.isnan(interval.low) else f"{mean} ({percent_ends(interval)})"


def percent_ends(interval: Interval) -> str:
    """Both ends of the interval of a share, in percent."""
    return f"{100 * interval.low:.0f} to {100 * interval.high:.0f}".replace("-", "−")
