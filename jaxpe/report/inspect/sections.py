"""Sections of the page on a model: stage, heading, findings, tables and method of each."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxpe.analysis.inspect import InspectResult
from jaxpe.report.inspect import tables, text
from jaxpe.report.inspect.figures import FIGURES
from jaxpe.report.style import Rendered, drawings, render
from jaxpe.report.text import visible


class _Section(NamedTuple):
    stage: str
    title: str
    sentences: Callable[[Any], list[str]]
    tables: Callable[[Any], list[tables.Table]]
    method: str


_SECTIONS = {
    "encoding": _Section(
        "encoding",
        "How positions enter",
        text.encoding_sentences,
        tables.encoding_tables,
        "Norms are Euclidean. The effective rank counts the directions that the centred vectors "
        "fill. A rotary frequency below one rotation in the context takes angles in longer texts "
        "that training never showed.",
    ),
    "geometry": _Section(
        "geometry",
        "Learned positions and the corpus",
        text.geometry_sentences,
        tables.geometry_tables,
        "Scaled stress compares distances of position vectors with Hellinger distances of the "
        "tokens at these positions: 0 is a perfect fit, 1 none. Plug-in distances contain sampling "
        "noise and composition. Held-out distances are of position alone, from documents that "
        "nothing was fitted to. Chance is the same table with its rows in random order.",
    ),
    "attention": _Section(
        "attention",
        "Attention logits: the share of positions",
        text.attention_sentences,
        tables.attention_tables,
        "Share of the variance of a head's logits, over documents and pairs i ≠ j of text "
        "positions, that the mean logit at (i, j) explains. It is the product of the means of two "
        "halves of the documents, so that noise adds nothing. Offset: the share that a "
        "function of j − i explains. Random order: the tokens of each document are shuffled, so "
        "that only positions can explain anything. Intervals: jackknife over groups of documents.",
    ),
    "offsets": _Section(
        "attention",
        "Attention by offset, and sinks",
        text.offsets_sentences,
        tables.offsets_tables,
        "Weights after the softmax over all keys of a row, special tokens included. They are means "
        "over documents and over queries at all text positions but the first. Evenness: entropy of "
        "a query's weights divided by its maximum. Equal weights: every key that a query sees gets "
        "the same weight.",
    ),
    "prior": _Section(
        "attention",
        "Attention without content",
        text.prior_sentences,
        tables.prior_tables,
        "Overlap of two attention patterns: the smaller of the two weights, summed over keys and "
        "averaged over queries; equal patterns have 1. A dummy document repeats one token between "
        "the special tokens of a document. If a head overlaps with it as much as with another real "
        "document, then positions are what the documents share.",
    ),
    "probe": _Section(
        "probe",
        "Position in the hidden states",
        text.probe_sentences,
        tables.probe_tables,
        "Ridge regression of the position on hidden states, fitted to half of the documents and "
        "judged on the other half. R² is 1 for an exact probe, 0 for one that always says the "
        "middle, and below 0 for a worse one. Before the first layer of a model without position "
        "vectors only the words give the position away. Intervals: jackknife over documents.",
    ),
    "ablation": _Section(
        "ablation",
        "Ablation of positions",
        text.ablation_sentences,
        tables.ablation_tables,
        "Tokens stay in their row and are read at other positions. Shifted: all move by the same "
        "number. Doubled: all offsets double. Reversed and shuffled: in another order. Same: one "
        "position for all. Special tokens keep their positions in the last three. Changes are "
        "paired by document, with Student's intervals.",
    ),
    "loss": _Section(
        "loss",
        "Loss by position, and far context",
        text.loss_sentences,
        tables.loss_tables,
        "Loss: −ln p of the next token in nats, averaged over the tokens of a bin. Intervals are "
        "over texts; a text is documents put end to end. Gain of far context: the fall of the loss "
        "on a passage when the model also reads the tokens before it, at positions a distance "
        "further back. Few tokens then have offsets beyond the context. The gain shows which "
        "offsets attention can use, not how it copes with many keys. Gain over half: the fall of "
        "the loss when the context doubles. Its lower end is one-sided, at 95 %: the effective "
        "length is the last one before a lower end of 0 or less. Its upper end is that of the 95 % "
        "interval: a gain of 0.01 nats below it is not excluded.",
    ),
    "needles": _Section(
        "needles",
        "Retrieval by depth and length",
        text.needles_sentences,
        tables.needles_tables,
        "Five sentences with a name and a colour stand in a text at different depths, and the text "
        "ends with the question for one name. An answer is right if, of the five colours, the "
        "first token of the right one is the likeliest. Intervals are Wilson's, from the spread of "
        "texts, and at least as wide as those of independent needles.",
    ),
}


class Section(NamedTuple):
    """A section of the page.

    Attributes:
        name: name of the stage, or of a part of one.
        title: heading.
        finding: what was found, in a few sentences.
        method: definition of what was measured.
        tables: numbers.
    """

    name: str
    title: str
    finding: str
    method: str
    tables: list[tables.Table]


def page_sections(result: InspectResult) -> list[Section]:
    """Sections of the page; stages without a result have none."""
    sections = []
    for name, row in _SECTIONS.items():
        if (stage := getattr(result, row.stage)) is None:
            continue
        entry = [_entry(result)] if name == "encoding" else []
        finding = " ".join(entry + row.sentences(stage))
        sections.append(Section(name, row.title, finding, row.method, row.tables(stage)))
    return sections


def absent_sections(result: InspectResult) -> dict[str, str]:
    """Titles of the stages without a result, and the reasons."""
    return {_SECTIONS[name].title: reason for name, reason in result.absent.items()}


def inspect_figures(result: InspectResult) -> dict[str, list[Rendered]]:
    """The figures of each section that has some."""
    sections: dict[str, list[Rendered]] = {}
    for section, draw, caption, data in FIGURES:
        stage = getattr(result, _SECTIONS[section].stage)
        if stage is not None and (drawn := data(stage)) is not None:
            sections.setdefault(section, []).extend(render(drawn, *drawings({draw: caption})))
    return sections


def _entry(result: InspectResult) -> str:
    facts = result.facts
    return f"Positions enter {visible(facts.model)} as {text.entry_names(facts.encoding)}."
