"""The sections of the page on a model: a finding, what was measured, tables."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect import InspectResult
from jaxpe.report.inspect import text
from jaxpe.report.inspect.text import at, between, percent_between
from jaxpe.report.text import number, percent, plural, visible

Rows = Sequence[tuple[str, ...]]


class Table(NamedTuple):
    """A table of a section.

    Attributes:
        title: what its rows are.
        header: names of the columns, with units.
        rows: cells.
    """

    title: str
    header: list[str]
    rows: Rows


class Section(NamedTuple):
    """A section of the page.

    Attributes:
        name: name of the stage, or part of one.
        title: heading.
        finding: what was found, in a sentence or two; or why there is nothing.
        method: what was measured, exactly.
        tables: numbers.
    """

    name: str
    title: str
    finding: str
    method: str
    tables: list[Table]


_TITLES = {
    "encoding": "How positions enter",
    "geometry": "Learned positions and the corpus",
    "attention": "Attention logits: the share of positions",
    "offsets": "Attention over offsets, and sinks",
    "prior": "Attention without content",
    "probe": "Position in the hidden states",
    "ablation": "Ablation of positions",
    "loss": "Loss by position, and far context",
    "needles": "Retrieval by depth and length",
}
_STAGE = {"offsets": "attention", "prior": "attention"}
_METHODS = {
    "encoding": (
        "Norms are Euclidean. The effective rank counts the directions that centred vectors fill. "
        "A rotary frequency that makes less than one turn in the context was never seen to come "
        "round."
    ),
    "geometry": (
        "Stress compares distances of position vectors with Hellinger distances of the corpus' "
        "tokens at these positions, at the best scale: 0 is a perfect fit, 1 none. Plug-in "
        "distances hold sampling noise and composition. Held-out ones are of position alone, in "
        "documents that nothing was fitted to. Chance is the same table with its rows in random "
        "order."
    ),
    "attention": (
        "Share of the variance of a head's logits, over documents and pairs i ≠ j of places of "
        "text, that the mean logit at (i, j) explains; estimated by products of means of two "
        "halves of the documents, so that noise adds nothing. Offset: what a function of j − i "
        "explains. Random order: the same with the tokens of each document shuffled, where only "
        "positions can explain anything. Intervals: jackknife over groups of documents."
    ),
    "offsets": (
        "Weights after softmax over all keys of a row, special tokens too, in the mean over "
        "documents and queries at places of text but the first. Evenness: entropy of a query's "
        "weights over the largest it can be. Chance: equal weights for all keys a query sees."
    ),
    "prior": (
        "Overlap of two attention patterns: Σ over keys of the smaller of the two weights, in the "
        "mean over queries; 1 where they are the same. A dummy document repeats one token between "
        "the special tokens of a document. Where a head overlaps with it as much as with another "
        "real document, what documents share comes from positions."
    ),
    "probe": (
        "Ridge regression of the position on hidden states, fitted to half of the documents and "
        "judged on the other half. R² = 1 − squared error / variance of the position: 1 is exact, "
        "0 is the middle for every token, below 0 is worse. Before the first layer of a model "
        "without position vectors only the words tell. Intervals: jackknife over documents."
    ),
    "ablation": (
        "The tokens stay in their row and are read at other positions. Shifted: all further on; "
        "doubled: all offsets twice as large; reversed, shuffled: in another order; same: one "
        "position for all. Special tokens keep theirs in the last three. Changes are paired by "
        "document, with Student's intervals."
    ),
    "loss": (
        "Loss: −ln p of the next token in nats, mean over the tokens of a bin, interval over "
        "texts, each of documents put end to end. Gain of far context: the loss on a passage "
        "without context less that with the tokens before it, which are read at positions a "
        "distance further back. Offsets beyond the context then occur in few tokens, so that it "
        "tells which offsets attention can use, and not how attention copes with many keys."
    ),
    "needles": (
        "Five sentences with a name and a colour stand in a text at different depths; the text "
        "ends with the question for one of the names. Right: of the five colours that of the name "
        "has the likeliest first token. Intervals: Wilson's, from the spread of "
        "texts, and at least as wide as of independent needles."
    ),
}


def sections_of(result: InspectResult) -> list[Section]:
    """Sections of the page, those without a result with the reason."""
    return [_section(result, name) for name in _TITLES]


def _section(result: InspectResult, name: str) -> Section:
    stage = _STAGE.get(name, name)
    found = getattr(result, stage)
    if found is None:
        return Section(name, _TITLES[name], result.absent.get(stage, "Not measured."), "", [])
    finding, tables = _MAKERS[name](result, found)
    return Section(name, _TITLES[name], finding, _METHODS[name], tables)


def _encoding(result: InspectResult, found: Any) -> tuple[str, list[Table]]:
    facts, rows, said = result.facts, [], []
    rows.append(("encoding", text.ways(facts.encoding)))
    rows.append(("context, positions", f"{facts.context:,}" if facts.context else "not said"))
    if (table := found.table) is not None:
        said.append(
            f"The table has {table.positions:,} vectors of {table.width}; they fill "
            f"{table.rank:.0f} directions, and neighbours are alike up to an offset of "
            f"{table.widest - 1}."
        )
        norm = float(np.median(table.norms))
        rows += [
            ("vectors", f"{table.positions:,} × {table.width}"),
            ("norm, median", number(norm)),
            ("norm of token embeddings, mean", number(table.token_norm)),
            ("effective rank", f"{table.rank:.1f}"),
            ("cosine of neighbours", f"{table.cosine[1]:.2f}" if len(table.cosine) > 1 else "–"),
            ("offset where the mean cosine falls below 0.5", f"{table.widest}"),
        ]
    if found.bias is not None:
        low, high = np.nanmin(found.bias), np.nanmax(found.bias)
        said.append(f"A bias adds {low:.2f} to {high:.2f} to the logits, by offset and head.")
        rows.append(("bias, least and largest", f"{low:.2f}, {high:.2f}".replace("-", "−")))
    if (rope := found.rope) is not None and (plan := rope.widest) is not None:
        slow = f"{plan.never_round} of {len(plan.frequencies)}"
        said.append(
            f"Queries and keys turn with base {plan.base:,.0f}. {slow} frequencies never complete "
            f"a rotation within {plan.trained:,} positions."
        )
        rows += [
            ("base θ", f"{plan.base:,.0f}"),
            ("entries of a head that turn", f"{plan.turning} of {plan.head_dim}"),
            ("scaling", plan.rope_type),
            ("frequencies that never complete a rotation", slow),
        ]
        told = (one.text.replace("`", "") for one in rope.findings)
        rows += [("warning", visible(text, limit=2000)) for text in told]
    finding = " ".join(said) or f"Positions enter as {text.ways(facts.encoding)}."
    return finding, [Table("Encoding", ["", "value"], rows)]


def _geometry(result: InspectResult, found: Any) -> tuple[str, list[Table]]:
    beyond = found.corrected < found.shuffled.low
    finding = (
        f"At its best scale the table has a stress of {number(found.corrected)} with the distances "
        f"of position in the corpus; in random order it has {number(found.shuffled.estimate)}. "
        + (f"Its order fits the corpus {'better' if beyond else 'no better'} than chance.")
        if found.significant
        else "The corpus shows no effect of position that a table could fit."
    )
    if found.position_share is not None:
        share = percent_between(found.position_share)
        finding += f" {share} of the variance observed between positions is position."
    rows = [
        ("stress at the best scale, position", number(found.corrected)),
        ("the same in random order, 95 % of orders", _numbers(found.shuffled)),
        ("stress at the best scale, plug-in", number(found.scaled_stress)),
        ("held-out stress of the table", _numbers(found.held_out)),
        ("held-out stress of sinusoids", _numbers(found.sinusoidal)),
        ("held-out stress of coordinates fitted to the other half", _numbers(found.own)),
        ("correlation of distances", f"{found.correlation:.2f}"),
        ("triples out of order, the table", percent(found.violation_rate)),
        ("positions judged, documents", f"{found.positions}, {found.documents:,}"),
        ("significant dimensions of the corpus", str(found.significant)),
    ]
    return finding, [Table("Geometry", ["", "value"], rows)]


def _numbers(found: Interval | None) -> str:
    if found is None:
        return "n/a"
    return f"{number(found.estimate)} ({number(found.low)} to {number(found.high)})"


def _attention(result: InspectResult, found: Any) -> tuple[str, list[Table]]:
    share = found.share.mean
    top, head = (
        int(share.argmax()),
        np.unravel_index(found.variance.position.argmax(), found.variance.position.shape),
    )
    finding = (
        f"Positions explain {percent_between(found.overall)} of the variance of the logits, most "
        f"in layer {top} ({percent(float(share[top]))}) and in head {head[0]}.{head[1]} "
        f"({percent(float(found.variance.position[head]))}). With tokens in random order it is "
        f"{percent(found.shuffled)}."
    )
    header = ["layer", "positions, %", "interval", "offset, %", "random order, %"]
    variance = found.variance
    rows = [
        (
            str(layer),
            f"{100 * share[layer]:.0f}",
            f"{100 * found.share.low[layer]:.0f} to {100 * found.share.high[layer]:.0f}",
            f"{100 * variance.offset[layer].mean():.0f}",
            f"{100 * variance.shuffled[layer].mean():.0f}",
        )
        for layer in range(len(share))
    ]
    return finding, [Table("Share of the variance of the logits, mean over heads", header, rows)]


def _offsets(result: InspectResult, found: Any) -> tuple[str, list[Table]]:
    kinds, heads = text.head_kinds(found), found.first.size
    counts = {name: int((weight > text.MOST).sum()) for name, weight in kinds.items()}
    most = max(counts, key=lambda name: counts[name])
    finding = (
        f"{percent_between(found.sink)} of attention goes to the first token (by chance "
        f"{percent(found.first_by_chance)}). {counts[most]} of {heads} heads have over half of "
        f"their weight on {most}."
    )
    if found.special_overall.estimate > 0:
        finding += (
            f" {percent_between(found.special_overall)} goes to special tokens, the first among "
            "them."
        )
    header = ["key", "weight, %", "heads over 50 %", "most in head"]
    rows = []
    for name, weight in kinds.items():
        top = np.unravel_index(weight.argmax(), weight.shape)
        rows.append(
            (
                name,
                f"{100 * weight.mean():.0f}",
                f"{counts[name]} of {heads}",
                f"{top[0]}.{top[1]}: {100 * weight[top]:.0f} %",
            )
        )
    middle = found.evenness.mean(axis=1)
    rows_of_layers = [
        (
            str(layer),
            f"{100 * found.first[layer].mean():.0f}",
            f"{100 * found.at_offset(-1)[layer].mean():.0f}",
            f"{middle[layer]:.2f}",
            f"{np.exp(found.entropy[layer]).mean():.0f}",
            f"{found.distance[layer].mean():.0f}",
        )
        for layer in range(len(middle))
    ]
    by_layer = ["layer", "first, %", "before, %", "evenness", "keys in effect", "distance, tokens"]
    return finding, [
        Table("Where heads look", header, rows),
        Table("Attention by layer, mean over heads", by_layer, rows_of_layers),
    ]


def _prior(result: InspectResult, found: Any) -> tuple[str, list[Table]]:
    finding = (
        f"Attention to a document overlaps with that to a dummy document by "
        f"{percent_between(found.dummy_overall)}, and with that to another real document by "
        f"{percent_between(found.other_overall)}."
    )
    header = ["layer", "with a dummy, %", "with another document, %"]
    rows = [
        (str(layer), f"{100 * dummy.mean():.0f}", f"{100 * other.mean():.0f}")
        for layer, (dummy, other) in enumerate(zip(found.dummy, found.other, strict=True))
    ]
    return finding, [Table("Overlap of attention, mean over heads", header, rows)]


def _probe(result: InspectResult, found: Any) -> tuple[str, list[Table]]:
    best = int(np.argmax(found.r2.mean))
    last = len(found.layers) - 1
    finding = (
        f"The position is read best {text.behind(result, best)}: R² = "
        f"{between(at(found.r2, best))}, {found.error[best]:.1f} positions off in the mean."
    )
    if best != last:
        finding += f" Behind the last layer R² is {between(at(found.r2, last))}."
    header = ["place", "R²", "interval", "mean error, positions"]
    rows = [
        (
            text.behind(result, place),
            f"{one.estimate:.2f}".replace("-", "−"),
            f"{one.low:.2f} to {one.high:.2f}".replace("-", "−"),
            f"{found.error[place]:.1f}",
        )
        for place, one in ((k, at(found.r2, k)) for k in range(last + 1))
    ]
    rows.append(("the middle for every token", "0.00", "–", f"{found.by_chance:.1f}"))
    title = f"Probe, {plural(found.documents, 'held-out document')}"
    return finding, [Table(title, header, rows)]


def _ablation(result: InspectResult, found: Any) -> tuple[str, list[Table]]:
    moved = [one for one in found.moved if one.name != "own"]
    if found.measure == "embedding":
        worst = min(moved, key=lambda one: one.value.estimate)
        finding = (
            f"The output moves most with {worst.name} positions: cosine "
            f"{between(worst.value)} with the usual one. Two different documents have "
            f"{found.reference:.2f}."
        )
        header = ["positions", "cosine of the mean", "cosine of tokens"]
        rows = [(one.name, between(one.value), _tokens(one.tokens)) for one in moved]
        rows.append(("another document", f"{found.reference:.2f}", "–"))
        return finding, [Table("Cosine with the output at own positions", header, rows)]
    worst = max(moved, key=lambda one: one.change.estimate)
    finding = (
        f"The loss is {between(found.moved[0].value)} nats a token and rises most with "
        f"{worst.name} positions, by {between(worst.change)}."
    )
    small = [one.name for one in moved if text.is_small(one.change)]
    if small:
        finding += f" It hardly changes with {' and '.join(small)} positions."
    header = ["positions", "loss, nats", "change, nats"]
    rows = [(one.name, between(one.value), _change(one.change)) for one in found.moved]
    rows.append(("an even guess", f"{found.reference:.2f}", "–"))
    return finding, [Table("Loss by the way positions are moved", header, rows)]


def _tokens(found: Interval | None) -> str:
    return "–" if found is None else between(found)


def _change(found: Interval) -> str:
    return "–" if found.low == found.high == 0 else between(found)


def _loss(result: InspectResult, found: Any) -> tuple[str, list[Table]]:
    own = found.scaled[0].loss
    finding = (
        f"The loss is {between(at(own, 0))} nats a token in the first "
        f"{int(found.edges[1])} positions and {between(at(own, -1))} from position "
        f"{int(found.edges[-2])} to {found.length}."
    )
    if not found.context or found.length <= found.context:
        finding += f" Texts of {found.length:,} tokens stay inside the context"
        finding += f" of {found.context:,} positions." if found.context else "."
    if found.far:
        gains = found.far[0].gain
        finding += (
            f" A context right before a passage is worth {between(at(gains, 0))} nats a token, "
            f"{found.distances[-1]:,} positions before it {between(at(gains, -1))}."
        )
    if found.unscaled:
        finding += f" No scaling is tried: {found.unscaled}."
    names = [f"{a} to {b - 1}" for a, b in zip(found.edges, found.edges[1:], strict=False)]
    header = ["positions", *(f"{one.name}, nats" for one in found.scaled)]
    rows = [
        (name, *(between(at(one.loss, k)) for one in found.scaled)) for k, name in enumerate(names)
    ]
    tables = [Table(f"Loss by position, {plural(found.texts, 'text')}", header, rows)]
    if found.far:
        header = ["distance, positions", *(f"{one.name}, nats" for one in found.far)]
        rows = [
            (f"{int(distance):,}", *(between(at(one.gain, k)) for one in found.far))
            for k, distance in enumerate(found.distances)
        ]
        title = f"Gain of {found.passage} tokens of context at a distance"
        tables.append(Table(title, header, rows))
    return finding, tables


def _needles(result: InspectResult, found: Any) -> tuple[str, list[Table]]:
    last = len(found.lengths) - 1
    finding = (
        f"Of facts in {int(found.lengths[last]):,} tokens the model retrieves "
        f"{percent_between(at(found.by_length, last))}; a guess finds {percent(found.chance)}."
    )
    header = ["tokens", *(f"depth {depth:.1f}, %" for depth in found.depths), "all, %", "interval"]
    rows = []
    for k, length in enumerate(found.lengths):
        whole = at(found.by_length, k)
        cells = [f"{100 * value:.0f}" for value in found.accuracy.mean[k]]
        ends = f"{100 * whole.low:.0f} to {100 * whole.high:.0f}"
        rows.append((f"{int(length):,}", *cells, f"{100 * whole.estimate:.0f}", ends))
    return finding, [Table(f"Facts retrieved, {plural(found.texts, 'text')} each", header, rows)]


_MAKERS: dict[str, Callable[[InspectResult, Any], tuple[str, list[Table]]]] = {
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
