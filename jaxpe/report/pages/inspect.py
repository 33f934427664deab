"""Page of an inspection of a model: what position does in it."""

import math
import shlex
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect import InspectResult
from jaxpe.analysis.inspect.reach import gain_bounds
from jaxpe.analysis.inspect.result import (
    AblationStage,
    EncodingStage,
    GeometryStage,
    LossStage,
    NeedleStage,
    PositionMove,
    ProbeStage,
    TextReach,
)
from jaxpe.analysis.inspections import ModelMeasures, key_measures, text_reach
from jaxpe.report.findings import Figure, Finding, Page, Section, Table
from jaxpe.report.numbers import plural
from jaxpe.report.pages import inspect_attention as attention
from jaxpe.report.pages import inspect_spectral as spectral
from jaxpe.report.pages.inspect_rows import at, cell, hundreds, measure, plot_curves, row
from jaxpe.report.writing import page

_ORDER_MATTERS = 0.05  # nats, or of a cosine
_ZERO_CHANGE = 5e-4  # nats; a smaller change of a loss is none
_DEGREES = {"hardly": 0.1, "moderately": 0.5, "strongly": math.inf}  # of the way to unrelated
_MATTERS = {True: "order matters", False: "order hardly matters", None: "not decided"}
_ROPE_TYPES = {"linear": "linear", "NTK": "dynamic", "YaRN": "yarn"}
_OPEN = 15  # findings of open sections
_DETAILS = ("spectral", "geometry", "probe", "attention")  # folded first, in this order
_KINDS = {
    "causal": "Causal language model",
    "masked": "Masked language model",
    "encoder": "Encoder",
}
_METHODS = (
    "{model} was inspected on {examples} of {documents:,} documents of {source} ({positions} "
    "tokens each; losses on texts of {longest:,} tokens). Shares of positions in attention logits "
    "are products of two halves of the documents. Sinks are keys with a mean weight over 0.3 "
    "[@gu2025]; use of rotary frequencies is by norms of queries and keys [@barbero2025; @jaxpe]. "
    "The spectral view follows [@unpacking2025]. Intervals (95 %) are over documents or texts. "
    "Seed {seed}."
)


@page.register
def inspect_page(result: InspectResult) -> Page:
    """Page of an inspection: what position is worth, then each stage."""
    facts, of = result.facts, key_measures(result)
    sections = []
    for name, (_, stage_section) in _STAGES.items():
        if (stage := getattr(result, name)) is not None:
            sections.append(stage_section(stage, result, of))
    sections = _folded(sections)
    tables = attention.layer_tables(result) + _reach_tables(text_reach(result))
    absent = [(_STAGES[name][0], name, reason) for name, reason in result.absent.items()]
    missing = Table("Not measured", ("stage", "--stages", "reason"), absent, facts.left_out)
    return Page(
        name="inspect",
        title=f"What position does in {facts.model}",
        about=f"{_KINDS[facts.kind]}, {facts.parameters / 1e6:,.0f} million parameters; "
        f"{facts.examples} documents of {facts.source}, {facts.positions} tokens each",
        lead=[*_lead(result, of)][:5],
        sections=[
            *sections,
            *([Section("By layer and length", (), tables, folded=True)] if tables else []),
            *([Section("Not measured", (), [missing])] if absent or facts.left_out else []),
        ],
        settings={
            name.replace("_", " ").replace("longest", "longest text"):
            f"{value:,}" if isinstance(value, int) else str(value)
            for name, value in facts._asdict().items() if name not in ("left_out", "command", "cut")
        },
        methods=_METHODS.format(**facts._asdict()),
    )  # fmt: skip


def _folded(sections: list[Section]) -> list[Section]:
    """Sections; details are folded until the open ones have few findings."""
    for name in _DETAILS:
        if sum(len(one.findings) for one in sections if not one.folded) <= _OPEN:
            break
        title = _STAGES[name][0]
        sections = [x._replace(folded=True) if x.title == title else x for x in sections]
    return sections


def _lead(result: InspectResult, of: ModelMeasures) -> Iterator[Finding]:
    """Cards: a wrong configuration, then what position is worth and where it comes from."""
    stage, rope = result.attention, result.encoding.rope if result.encoding else None
    wrong = [one.text for one in (rope.findings if rope else ()) if one.severity == "wrong"]
    if wrong:
        model = shlex.join(shlex.split(result.facts.command)[2:3])
        yield row("faults of the configuration", len(wrong), "count", "wrong",
                  todo=f"Mend the configuration first: {wrong[0]}",
                  paste=f"jaxpe rope {model}" if model else "")  # fmt: skip
    if stage is not None:
        yield attention.position_share(of, stage)
    if (reach := text_reach(result)) is not None:
        yield _reach(result, of, reach)
    if stage is not None:
        yield attention.sinks(of, stage.sinks, causal=result.facts.kind == "causal")
    if result.ablation is not None:
        yield _shuffled(of, result.ablation)
    if stage is not None and stage.bands is not None:
        said = "These pairs never complete a turn within the context: room for content."
        name = "norms of queries and keys in wavelengths beyond the context"
        yield row(name, at(stage.bands.overall, 2), "share", sentence=said,
                  **_even_spread(result, stage.bands.edges[1]))  # fmt: skip


def _even_spread(result: InspectResult, context: float) -> dict[str, Any]:
    """Share of the rotary pairs with a wavelength beyond the context."""
    if result.encoding is None or result.encoding.rope is None:
        return {}
    if (plan := result.encoding.rope.widest) is None:
        return {}
    share = float(np.mean(2 * np.pi / np.asarray(plan.frequencies) > context))
    return {"reference": share, "against": "equal norms of all pairs"}


def _reach(result: InspectResult, of: ModelMeasures, reach: TextReach) -> Finding:
    """Reach of the model: a bound, or a length beyond which nothing is measured."""
    high, embedding = reach.high, reach.measure == "embedding"
    if reach.open:
        if embedding:
            return measure(of, "reach", sentence="Its output depends on all of it.")
        said = "Context helps up to here; more of it was not tried."
        against = f"texts of {result.facts.longest:,} tokens"
        if result.facts.context:
            against += f", context {result.facts.context:,}"
        return measure(of, "reach", sentence=said, against=against, **_full_context(result))
    said = "Longer contexts do not help measurably."
    todo, paste = "Keep what matters within that distance.", f"prompt = prompt[-{high}:]"
    if embedding:
        said, todo = "The first tokens settle its output.", "Split longer texts into such pieces."
        paste = f"pieces = [tokens[i : i + {high}] for i in range(0, len(tokens), {high})]"
    return measure(of, "reach", sentence=said, todo=todo, paste=paste)


def _shuffled(of: ModelMeasures, stage: AblationStage) -> Finding:
    """Output or loss with positions in random order."""
    move = next(move for move in stage.moved if move.name == "shuffled")
    matters, low, high = matters_more(move.change, stage.measure), move.change.low, move.change.high
    hardly = "Do not use the model where texts differ only in their order."
    todo = hardly if matters is False else ""
    if stage.measure == "embedding":
        distance = (1 - move.value.estimate) / max(1 - stage.reference, 1e-6)
        degree = next(name for name, most in _DEGREES.items() if distance < most)
        return measure(of, "output_shuffled", f"changes {degree}", todo=todo,
                       reference=stage.reference, against="two unrelated texts")  # fmt: skip
    said = "No measurable change."
    if not low <= 0 <= high:
        said = f"It predicts {'worse' if low > 0 else 'better'} without order."
    return measure(of, "loss_shuffled", _MATTERS[matters], sentence=said, todo=todo)


def matters_more(change: Interval, measure: str) -> bool | None:
    """Whether a change is surely more than a small one; None if the interval does not decide.

    >>> matters_more(Interval(-0.2, -0.3, -0.1), "embedding")
    True
    """
    low, high = sorted((change.low, change.high))
    if measure == "embedding":  # a cosine falls
        low, high = -high, -low
    if low > _ORDER_MATTERS:
        return True
    return False if high < _ORDER_MATTERS else None


def _encoding(stage: EncodingStage, result: InspectResult, of: ModelMeasures) -> Section:
    """Ways in which positions enter: a table, biases, rotations."""
    facts = result.facts
    findings, figures, tables = [row("positions enter as", facts.encoding)], [], []
    if not facts.trained:
        findings.append(row("weights", "as initialised", verdict="not trained",
                            todo="Pass a trained model."))  # fmt: skip
    if 0 < facts.cut < facts.context:
        findings.append(row(
            "tokens at which its tokenizer.json cuts texts", facts.cut, "count",
            "cuts without a message", reference=facts.context, against="positions of the model",
            todo="Read longer texts in pieces: its tokenizer.json cuts them without a message.",
            paste="pieces = [(first := tokenizer.encode(text)), *first.overflowing]",
        ))  # fmt: skip
    if (table := stage.table) is not None:
        size, cosine = f"{table.positions:,} vectors of width {table.width}", table.cosine
        findings += [
            row("effective rank of the position table", table.rank, against=size),
            row("norm of position vectors, median", float(np.median(table.norms)),
                reference=table.token_norm, against="token embeddings, mean"),
            row("cosine of neighbouring positions", float([*cosine, np.nan][1])),
            row("offset where the mean cosine falls below one half", table.widest),
        ]  # fmt: skip
        shown, places = cosine[: max(2, table.positions // 2)], np.arange(table.positions)
        figures.append(Figure(
            "position-table", "Norms and cosines of position vectors",
            "Dashed: mean norm of token embeddings. Cosines are of centred vectors, by offset.",
            [partial(plot_curves, places, {"": (table.norms,)}, "position", "norm",
                     line=table.token_norm),
             partial(plot_curves, places[1 : len(shown)], {"": (shown[1:],)}, "offset", "cosine",
                     line=0.0, xscale="log")],
            columns=2, height=2.6,
        ))  # fmt: skip
    if (bias := stage.bias) is not None:
        findings += [row("lowest bias of the logits", float(np.nanmin(bias))),
                     row("highest bias of the logits", float(np.nanmax(bias)))]  # fmt: skip
    if stage.rope is not None and (plan := stage.rope.widest) is not None:
        never = f"of {len(plan.frequencies)}, within {plan.trained:,} positions"
        findings += [
            row("rotary base θ", plan.base, "count"),
            row("scaling of the frequencies", plan.rope_type),
            row(
                "frequencies that never complete a rotation in training",
                plan.never_round,
                against=never,
            ),
        ]
        points = [(one.severity, one.text) for one in stage.rope.findings]
        tables += [Table("Configuration", ("severity", "point"), points)] if points else []
    return Section(_STAGES["encoding"][0], findings, tables, figures)


def _geometry(stage: GeometryStage, result: InspectResult, of: ModelMeasures) -> Section:
    """Fit of learned positions to the distances of the corpus."""
    order = "better" if stage.corrected < stage.shuffled.low else "no better"
    verdict = f"{order} than in random order" if stage.significant else "no effect to fit"
    held_out = stage.held_out
    findings = [
        row("scaled stress of the table against position", stage.corrected, verdict=verdict),
        row("scaled stress with its rows in random order", stage.shuffled),
        *([] if held_out is None else [row("held-out stress of the table", held_out)]),
        row("Mantel correlation with position", stage.correlation),
        row("significant dimensions of the corpus", stage.significant),
    ]
    note = "Distances of vectors against Hellinger distances of tokens: 0 is a perfect fit, 1 none."
    return Section(_STAGES["geometry"][0], findings, note=note)


def _probe(stage: ProbeStage, result: InspectResult, of: ModelMeasures) -> Section:
    """Linear probe of the position, by layer."""
    best = int(np.argmax(stage.r2.mean))
    reads = "" if stage.r2.mean[best] > 0 else "does not read it, closest "
    findings = [
        measure(of, "probe", f"{reads}{layer_name(stage, best)}"),
        row("mean error of the probe at its best", float(stage.error[best]), "positions",
            reference=stage.by_chance, against="always the middle"),
    ]  # fmt: skip
    shown = partial(plot_curves, stage.layers, {"": stage.r2}, "layers before the probe", "R²")
    caption = "Ridge regression, fitted to half of the documents and judged on the rest."
    figures = [Figure("probe", "R² of the position by layer", caption, [shown], height=2.6)]
    return Section(_STAGES["probe"][0], findings, (), figures)


def layer_name(stage: ProbeStage, index: int) -> str:
    """Layer of the model that a probe was applied to."""
    if (layer := int(stage.layers[index])) == 0:
        return "before the first layer"
    return f"after layer {layer - 1}" if index < len(stage.layers) - 1 else "after the last layer"


def _ablation(stage: AblationStage, result: InspectResult, of: ModelMeasures) -> Section:
    """Output or loss under each change of the positions."""
    own, *moved = stage.moved
    embedding, findings = stage.measure == "embedding", []
    if not embedding:
        findings.append(row("loss at the original positions", own.value, "nats",
                            reference=stage.reference, against="a uniform guess"))  # fmt: skip
    findings += [_shifted(move, stage) for move in moved if move.name == "shifted"]
    others = [move for move in moved if move.name not in ("shifted", "shuffled")]
    header, rows = ("positions", "loss added, nats"), [(x.name, cell(x.change)) for x in others]
    if embedding:
        header = ("positions", "cosine of the mean", "cosine of tokens")
        rows = [(x.name, cell(x.value), cell(x.tokens) if x.tokens else "–") for x in others]
    tables = [Table("Other changes of the positions", header, rows)] if rows else []
    findings += _middle(stage.reach)
    note = "Tokens stay in their row and are read at other positions."
    return Section(_STAGES["ablation"][0], findings, tables, note=note)


def _shifted(move: PositionMove, stage: AblationStage) -> Finding:
    """A shift of all positions, and what padding asks for where it changes the output."""
    against, embedding = f"all moved by {stage.shift:,}", stage.measure == "embedding"
    if embedding:
        found = row("output under shifted positions", move.value, "cosine", against=against)
    else:
        found = row("loss added by shifted positions", move.change, "nats", against=against)
    if not embedding and abs(move.change.estimate) < _ZERO_CHANGE:
        return found._replace(value=0.0, low=0.0, high=0.0, verdict="no change")
    if not (matters := matters_more(move.change, stage.measure)):
        return found._replace(verdict="not decided" if matters is None else "hardly changes")
    return found._replace(
        verdict="absolute positions count",
        todo="With padding on the left, pass positions that start at the first token.",
        paste="position_ids = first + (attention_mask.cumsum(-1) - 1).clip(0)  # first: 0, or "
        "padding_idx + 1 in RoBERTa and MPNet",
    )


def _loss(stage: LossStage, result: InspectResult, of: ModelMeasures) -> Section:
    """Loss by position, the gain from far context, and scalings."""
    loss, edges, distance = stage.scaled[0].loss, stage.edges, [f"{x:,}" for x in stage.distances]
    findings = [
        row("loss at the first positions", at(loss, 0), "nats", against=f"before {int(edges[1])}"),
        row("loss at the last positions", at(loss, -1), "nats", against=f"from {int(edges[-2]):,}"),
        *_longer(result), *_scaling(stage),
    ]  # fmt: skip
    for far in stage.far[:1]:
        findings += [
            row("worth of context right before a passage", at(far.gain, 0), "nats"),
            row("worth of far context", at(far.gain, -1), "nats", against=f"{distance[-1]} before"),
        ]
    middles = np.sqrt(edges[:-1] * edges[1:])
    shown = [partial(plot_curves, middles, {x.name: x.loss for x in stage.scaled}, "position",
                     "loss, nats", xscale="log")]  # fmt: skip
    gains = {one.name: one.gain for one in stage.far}
    if gains:
        at_distance = "distance, positions", "worth, nats"
        shown.append(partial(plot_curves, distance, gains, *at_distance, line=0.0))
    caption = "Bands are 95 % intervals over texts. Below 0, context at a distance does harm."
    title = "Loss by position, and worth of far context"
    figure = Figure("loss", title, caption, shown, height=2.6)
    note = f"{plural(stage.texts, 'text')} of {stage.length:,} tokens; nats a token."
    note += f" No RoPE scaling was tried: {stage.unscaled}." if stage.unscaled else ""
    rows = [(x.name, f"{x.multiple:g}", cell(x.near), cell(x.far)) for x in stage.scalings]
    header = ("scaling", "distance, contexts", "near passage, nats", "far passage, nats")
    tables = [Table("Change of the loss under a scaling", header, rows)] if rows else []
    findings += _middle(stage.reach)
    return Section(_STAGES["loss"][0], findings, tables, [figure], note)


def _longer(result: InspectResult) -> Iterator[Finding]:
    """The longest text, where it is shorter than the context and no bound says so."""
    facts, reach, advice = result.facts, text_reach(result), _full_context(result)
    if advice and not (reach and reach.open):
        yield row("longest text measured", facts.longest, "count", "shorter than the context",
                  reference=facts.context, against="context", **advice)  # fmt: skip


def _full_context(result: InspectResult) -> dict[str, str]:
    """Advice to measure at the full context, where texts were shorter."""
    facts = result.facts
    if not facts.context or facts.longest >= facts.context:
        return {}
    more = f"{facts.command} --stages loss needles --longest {facts.context}"
    todo = "Measure loss and needles at the full context before you rely on longer texts."
    return {"todo": todo, "paste": more if facts.command else ""}


def _scaling(stage: LossStage) -> Iterator[Finding]:
    """The scaling that lowers the loss most at the largest multiple where one surely does."""
    helping = [one for one in stage.scalings if one.far.high < 0]
    top = max((one.multiple for one in helping), default=0.0)
    largest = [one for one in helping if one.multiple == top]
    for best in sorted(largest, key=lambda one: one.far.estimate)[:1]:
        kind = _ROPE_TYPES[best.name.split(" ")[0]]
        keys = f'"rope_type": "{kind}", "factor": {top:g}'
        yield row(
            "change of the loss on a far passage", best.far, "nats", f"{best.name} helps",
            todo=f"For texts of {top:g} times the context, add these keys to its rope_parameters:",
            paste=f'{keys}, "original_max_position_embeddings": {stage.context}',
        )  # fmt: skip


def _middle(reach: TextReach | None) -> Iterator[Finding]:
    """Effect of the middle of a text less that of its ends."""
    if reach is None or reach.middle is None:
        return
    advice = "Put what matters at the start or the end of a text; the middle matters least."
    for k, end in enumerate(("start", "end")):
        yield row(f"effect of the middle of a text less its {end}", at(reach.middle, k),
                  "nats" * (reach.measure == "loss"),
                  "counts less" if reach.middle.high[k] < 0 else "not less",
                  todo=advice * (k == 0 and reach.lost_in_the_middle))  # fmt: skip


def _reach_tables(reach: TextReach | None) -> list[Table]:
    """Tables on the length and the parts of a text that count."""
    if reach is None:
        return []
    name = "similarity to the whole" if reach.measure == "embedding" else "gain over half, nats"
    gain = gain_bounds(reach)
    rows = [(f"{int(n):,}", cell(at(gain, k))) for k, n in enumerate(reach.lengths)]
    tables = [Table("Reach", ("tokens", name), rows)]
    if reach.parts is not None:
        rows = [(x, cell(at(reach.parts, k))) for k, x in enumerate(("start", "middle", "end"))]
        tables.append(Table("Parts of a text that count", ("part", "effect"), rows))
    return tables


def _needles(stage: NeedleStage, result: InspectResult, of: ModelMeasures) -> Section:
    """Facts retrieved from texts, by depth and length."""
    found = measure(of, "retrieved", reference=stage.chance, against="guessing")
    shares = np.column_stack([stage.accuracy.mean, stage.by_length.mean])
    rows = [(f"{int(length):,}", *map(hundreds, share))
            for length, share in zip(stage.lengths, shares, strict=True)]  # fmt: skip
    depths = (f"depth {depth:.1f}, %" for depth in stage.depths)
    tables = [Table("Facts retrieved", ("tokens", *depths, "all, %"), rows)]
    note = "Of five names with a colour each; right if its own is the likeliest of the five."
    return Section(_STAGES["needles"][0], [found], tables, note=note)


# Heading of each stage, and its section.
_STAGES = {
    "encoding": ("How positions enter", _encoding),
    "geometry": ("Learned positions and the corpus", _geometry),
    "attention": ("Attention", attention.section),
    "spectral": (spectral.TITLE, spectral.section),
    "heads": (spectral.HEADS_TITLE, spectral.heads_section),
    "probe": ("Position in the hidden states", _probe),
    "ablation": ("Ablation of positions", _ablation),
    "loss": ("Loss by position, and far context", _loss),
    "needles": ("Retrieval by depth and length", _needles),
}
