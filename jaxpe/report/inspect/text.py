"""Sentences of the page on a model: findings of each section, summary, headlines, methods."""

import math
from collections.abc import Callable
from typing import Any

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
)
from jaxpe.report.text import Headline, number, percent, plural, visible

MOST = 0.5  # share of its weight from which a head belongs to a kind of key
_ZERO_CHANGE = 5e-4  # nats; a smaller change of a loss is written as none
_SMALL_CHANGE = 0.1  # nats, up to the far end of the interval
_MODELS = {
    "causal": "a causal language model",
    "masked": "a masked language model",
    "encoder": "an encoder",
}
_ENTRIES = {"rotary": "rotations of queries and keys", "bias": "biases of the logits"}
# By section of the page: the stage whose result it shows, and its heading.
SECTIONS = {
    "encoding": ("encoding", "How positions enter"),
    "geometry": ("geometry", "Learned positions and the corpus"),
    "attention": ("attention", "Attention logits: the share of positions"),
    "offsets": ("attention", "Attention by offset, and sinks"),
    "prior": ("attention", "Attention without content"),
    "probe": ("probe", "Position in the hidden states"),
    "ablation": ("ablation", "Ablation of positions"),
    "loss": ("loss", "Loss by position, and far context"),
    "needles": ("needles", "Retrieval by depth and length"),
}
METHODS = {
    "encoding": (
        "Norms are Euclidean. The effective rank counts the directions that the centred vectors "
        "fill. A rotary frequency below one rotation in the context takes angles in longer texts "
        "that training never showed."
    ),
    "geometry": (
        "Scaled stress compares distances of position vectors with Hellinger distances of the "
        "tokens at these positions: 0 is a perfect fit, 1 none. Plug-in distances contain sampling "
        "noise and composition. Held-out distances are of position alone, from documents that "
        "nothing was fitted to. Chance is the same table with its rows in random order."
    ),
    "attention": (
        "Share of the variance of a head's logits that the mean logit at (i, j) explains, over "
        "documents and pairs i ≠ j of text positions. It is the product of the means of two halves "
        "of the documents, so that noise adds nothing. Offset: the share that a function of j − i "
        "explains. Random order: the tokens of each document are shuffled, so that only positions "
        "can explain anything. Intervals: jackknife over groups of documents."
    ),
    "offsets": (
        "Weights after the softmax over all keys of a row, special tokens included, averaged over "
        "documents and over queries at all text positions but the first. Evenness: entropy of a "
        "query's weights divided by its maximum. Equal weights: all keys that a query sees get the "
        "same."
    ),
    "prior": (
        "Overlap of two attention patterns: the smaller of the two weights, summed over keys and "
        "averaged over queries; equal patterns have 1. A dummy document repeats one token between "
        "the special tokens of a document. If a head overlaps with it as much as with another real "
        "document, then positions are what the documents share."
    ),
    "probe": (
        "Ridge regression of the position on hidden states, fitted to half of the documents and "
        "judged on the other half. R² is 1 for an exact probe, 0 for one that always says the "
        "middle, and below 0 for a worse one. Before the first layer of a model without position "
        "vectors only the words give the position away. Intervals: jackknife over documents."
    ),
    "ablation": (
        "Tokens stay in their row and are read at other positions. Shifted: all move by the same "
        "number. Doubled: all offsets double. Reversed and shuffled: in another order. Same: one "
        "position for all. Special tokens keep their positions in the last three. Changes are "
        "paired by document, with Student's intervals."
    ),
    "loss": (
        "Loss: −ln p of the next token in nats, averaged over the tokens of a bin; intervals are "
        "over texts, each of documents put end to end. Gain of far context: the loss on a passage "
        "without context less the loss with the tokens before it, read at positions a distance "
        "further back. Few tokens then have offsets beyond the context. The gain shows which "
        "offsets attention can use, not how it copes with many keys."
    ),
    "needles": (
        "Five sentences with a name and a colour stand in a text at different depths, and the text "
        "ends with the question for one name. An answer is right if, of the five colours, the "
        "first token of the right one is the likeliest. Intervals: Wilson's, from the spread of "
        "texts, at least as wide as of independent needles."
    ),
}


def about(result: InspectResult) -> str:
    """The model and the documents, in two sentences."""
    facts = result.facts
    context = f", context {facts.context:,}" if facts.context else ""
    return (
        f"{visible(facts.model)} is {_MODELS[facts.kind]} of {facts.parameters / 1e6:,.0f} million "
        f"parameters: {plural(facts.layers, 'layer')} of {plural(facts.heads, 'head')}, dimension "
        f"{facts.width}{context}. {visible(facts.source)}: {facts.documents:,} documents; "
        f"attention measured on {facts.examples} of them, {facts.positions} text tokens each."
    )


def inspect_summary(result: InspectResult) -> str:
    """Summary of what position does in the model: the first sentence of most sections.

    >>> inspect_summary(inspect_model(options))  # doctest: +SKIP
    'Positions enter all-MiniLM-L6-v2 as learned vectors. Positions explain 30 % of ...'
    """
    shown = [name for name in SECTIONS if name not in ("encoding", "geometry", "prior")]
    return " ".join(
        [_entry(result), *(parts[0] for name in shown if (parts := _text(result, name)))]
    )


def finding(result: InspectResult, section: str) -> str:
    """Findings of a section in a few sentences, or the reason for having none."""
    parts = _text(result, section)
    if section == "encoding" and parts is not None:
        parts = [_entry(result), *parts]
    absent = result.absent.get(SECTIONS[section][0], "Not measured.")
    return absent if parts is None else " ".join(parts)


def _text(result: InspectResult, section: str) -> list[str] | None:
    stage = getattr(result, SECTIONS[section][0])
    return None if stage is None else _SENTENCES[section](stage)


def _entry(result: InspectResult) -> str:
    facts = result.facts
    return f"Positions enter {visible(facts.model)} as {entry_names(facts.encoding)}."


def entry_names(encoding: str) -> str:
    """Ways in which positions enter a model, in words.

    >>> entry_names("learned vectors and bias")
    'learned vectors and biases of the logits'
    """
    return " and ".join(_ENTRIES.get(name, name) for name in encoding.split(" and "))


def _encoding(stage: EncodingStage) -> list[str]:
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


def _geometry(stage: GeometryStage) -> list[str]:
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


def _attention(stage: AttentionStage) -> list[str]:
    share, by_head = stage.share.mean, stage.variance.position
    top, head = int(share.argmax()), np.unravel_index(by_head.argmax(), by_head.shape)
    return [
        f"Positions explain {percent_between(stage.overall)} of the variance of attention logits.",
        f"They explain most in layer {top} ({percent(float(share[top]))}) and in head "
        f"{head[0]}.{head[1]} ({percent(float(by_head[head]))}).",
        f"With the tokens of each document in random order they explain "
        f"{percent(max(stage.shuffled, 0.0))}.",
    ]


def _offsets(stage: AttentionStage) -> list[str]:
    counts = {name: int((weight > MOST).sum()) for name, weight in key_weights(stage).items()}
    most = max(counts, key=lambda name: counts[name])
    parts = [
        f"The first token gets {percent_between(stage.sink)} of attention; equal weights would "
        f"give it {percent(stage.first_by_chance)}.",
        f"{counts[most]} of {stage.first.size} heads have over half of their weight on {most}.",
    ]
    if stage.special_overall.estimate > 0:
        parts.append(f"All special tokens together get {percent_between(stage.special_overall)}.")
    return parts


def _prior(stage: AttentionStage) -> list[str]:
    return [
        f"Attention overlaps by {percent_between(stage.dummy_overall)} with attention to a dummy "
        f"document, and by {percent_between(stage.other_overall)} with attention to another real "
        "document."
    ]


def _probe(stage: ProbeStage) -> list[str]:
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


def _ablation(stage: AblationStage) -> list[str]:
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
                f"The output changes most with {worst.name} positions, to {between(worst.value)}."
            )
        return parts
    worst = max(moves.values(), key=lambda move: move.change.estimate)
    loss = f"the loss of {between(stage.moved[0].value)} nats a token"
    parts = [f"Shuffling the positions {_change(shuffled, loss)}."]
    if shifted is not None:
        parts.append(f"Shifting all by {stage.shift:,} {_change(shifted, 'it')}.")
    if worst.name not in ("shuffled", "shifted"):
        parts.append(f"The loss rises most with {worst.name} positions, to {between(worst.value)}.")
    others = (move for name, move in moves.items() if name not in ("shuffled", "shifted"))
    if small := [move.name for move in others if _is_small(move.change)]:
        parts.append(f"The loss hardly changes with {' and '.join(small)} positions.")
    return parts


_DEGREES = {"hardly": 0.1, "moderately": 0.5, "strongly": math.inf}  # of the way to unrelated


def _change(move: PositionMove, loss: str) -> str:
    if abs(move.change.estimate) < _ZERO_CHANGE:
        return f"does not change {loss}"
    return f"changes {loss} by {between(move.change)}"


def _is_small(change: Interval) -> bool:
    return max(abs(change.low), abs(change.high)) < _SMALL_CHANGE


def _loss(stage: LossStage) -> list[str]:
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
    return parts


def _needles(stage: NeedleStage) -> list[str]:
    return [
        f"In texts of {int(stage.lengths[-1]):,} tokens the model retrieves "
        f"{percent_between(at(stage.by_length, -1))} of the facts; guessing gives "
        f"{percent(stage.chance)}."
    ]


_SENTENCES: dict[str, Callable[[Any], list[str]]] = {
    "encoding": _encoding,
    "geometry": _geometry,
    "attention": _attention,
    "offsets": _offsets,
    "prior": _prior,
    "probe": _probe,
    "ablation": _ablation,
    "loss": _loss,
    "needles": _needles,
}


def key_weights(stage: AttentionStage) -> dict[str, np.ndarray]:
    """Mean weight of heads on one kind of key, `[layers, heads]`, by its name."""
    offsets = {"the token before": -1, "the token itself": 0, "the next token": 1}
    weights = {name: stage.at_offset(offset) for name, offset in offsets.items()}
    if not weights["the next token"].any():  # a decoder
        del weights["the next token"]
    return {"the first token": stage.first} | weights


def headlines(result: InspectResult) -> list[Headline]:
    """The numbers on top of the page."""
    cards = []
    if (attention := result.attention) is not None:
        cards += [
            Headline(
                "Logits explained by positions",
                percent(attention.overall.estimate),
                f"of their variance; interval {percent_ends(attention.overall)}",
            ),
            Headline(
                "Attention to the first token",
                percent(attention.sink.estimate),
                f"equal weights: {percent(attention.first_by_chance)}",
            ),
        ]
    if (probe := result.probe) is not None:
        best = int(np.argmax(probe.r2.mean))
        r2, layer = f"R² {probe.r2.mean[best]:.2f}", layer_name(probe, best)
        cards.append(Headline("Linear probe of position", r2, layer))
    if (ablation := result.ablation) is not None:
        shuffled = next(move for move in ablation.moved if move.name == "shuffled")
        if ablation.measure == "embedding":
            label, value = "Cosine, positions shuffled", f"{shuffled.value.estimate:.2f}"
        else:
            label = "Loss, positions shuffled"
            value = f"{shuffled.change.estimate:+.2f} nats".replace("-", "−")
        cards.append(Headline(label, value, plural(ablation.documents, "document")))
    if (needles := result.needles) is not None:
        share = percent(float(needles.by_length.mean[-1]))
        detail = f"of {int(needles.lengths[-1]):,} tokens; guessing: {percent(needles.chance)}"
        cards.append(Headline("Facts retrieved", share, detail))
    if (geometry := result.geometry) is not None:
        detail = f"in random order {number(geometry.shuffled.estimate)}"
        cards.append(Headline("Scaled stress of the table", number(geometry.corrected), detail))
    return cards


def at(means: Means, *index: int) -> Interval:
    """The mean and interval at an index of the arrays."""
    return Interval(*(float(np.asarray(x)[index]) for x in means))


def between(interval: Interval) -> str:
    """A number with its interval.

    >>> between(Interval(1.234, 1.0, 1.5))
    '1.23 (1.00 to 1.50)'
    """
    mean, low, high = (f"{x:.2f}".replace("-", "−") for x in interval)
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
