"""Tables of the page on a model, by section."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect import (
    AblationStage,
    AttentionStage,
    EncodingStage,
    GeometryStage,
    LossStage,
    NeedleStage,
    ProbeStage,
    TextReach,
)
from jaxpe.analysis.inspect.reach import gain_bounds
from jaxpe.report.inspect import text
from jaxpe.report.inspect.text import at, between, percent_ends
from jaxpe.report.text import number, percent, plural, visible, with_interval


class Table(NamedTuple):
    """A table of a section.

    Attributes:
        title: what its rows are.
        header: names of the columns, with units.
        rows: cells.
    """

    title: str
    header: list[str]
    rows: Sequence[tuple[str, ...]]


def encoding_tables(stage: EncodingStage) -> list[Table]:
    """Tables on how positions enter the model."""
    rows = []
    if (table := stage.table) is not None:
        rows += [
            ("vectors", f"{table.positions:,} × {table.width}"),
            ("norm, median", number(float(np.median(table.norms)))),
            ("norm of token embeddings, mean", number(table.token_norm)),
            ("effective rank", f"{table.rank:.1f}"),
            (
                "cosine of neighbours",
                _two_digits(table.cosine[1]) if len(table.cosine) > 1 else "–",
            ),
            ("offset where the mean cosine falls below 0.5", f"{table.widest}"),
        ]
    if stage.bias is not None:
        low, high = np.nanmin(stage.bias), np.nanmax(stage.bias)
        rows.append(("bias, lowest and highest", f"{_two_digits(low)}, {_two_digits(high)}"))
    if stage.rope is not None and (plan := stage.rope.widest) is not None:
        slow = f"{plan.never_round} of {len(plan.frequencies)}"
        warnings = (warning.text.replace("`", "") for warning in stage.rope.findings)
        rows += [
            ("base θ", f"{plan.base:,.0f}"),
            ("rotating entries of a head", f"{plan.turning} of {plan.head_dim}"),
            ("scaling", plan.rope_type),
            ("frequencies that never complete a rotation", slow),
            *(("warning", visible(warning, limit=2000)) for warning in warnings),
        ]
    return [Table("Encoding", ["", "value"], rows)] if rows else []


def geometry_tables(stage: GeometryStage) -> list[Table]:
    """Tables on the fit of learned positions to the corpus."""
    rows = [
        ("scaled stress against position", number(stage.corrected)),
        ("the same with rows in random order, 95 %", _numbers(stage.shuffled)),
        ("scaled stress, plug-in", number(stage.scaled_stress)),
        ("held-out stress of the table", _numbers(stage.held_out)),
        ("held-out stress of sinusoids", _numbers(stage.sinusoidal)),
        ("held-out stress of coordinates fitted to the other half", _numbers(stage.own)),
        ("Mantel r, against position", _two_digits(stage.correlation)),
        ("violation rate of the table", percent(stage.violation_rate)),
        ("positions and documents", f"{stage.positions}, {stage.documents:,}"),
        ("significant dimensions of the corpus", str(stage.significant)),
    ]
    return [Table("Geometry", ["", "value"], rows)]


def _numbers(interval: Interval | None) -> str:
    return "n/a" if interval is None else with_interval(interval)


def attention_tables(stage: AttentionStage) -> list[Table]:
    """Tables on the share of positions in the logits."""
    variance = stage.variance
    header = ["layer", "positions, %", "interval", "offset, %", "random order, %"]
    columns = (stage.share.mean, variance.offset.mean(axis=1), variance.shuffled.mean(axis=1))
    rows = []
    for k, (share, offset, shuffled) in enumerate(zip(*columns, strict=True)):
        ends, layer = percent_ends(at(stage.share, k)), stage.layer_numbers[k]
        rows.append((str(layer), _hundreds(share), ends, _hundreds(offset), _hundreds(shuffled)))
    return [Table("Share of the variance of the logits, mean over heads", header, rows)]


def _two_digits(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _hundreds(share: float) -> str:
    return f"{round(100 * float(share))}".replace("-", "−")


def offsets_tables(stage: AttentionStage) -> list[Table]:
    """Tables on attention by offset and to the first token."""
    kinds = []
    for name, weight in text.key_weights(stage).items():
        layer, head = np.unravel_index(weight.argmax(), weight.shape)
        count = f"{(weight > text.MOST).sum()} of {weight.size}"
        most = f"{stage.layer_numbers[layer]}.{head}: {100 * weight.max():.0f} %"
        kinds.append((name, _hundreds(weight.mean()), count, most))
    layers = [
        (
            str(layer),
            _hundreds(stage.first[k].mean()),
            _hundreds(stage.at_offset(-1)[k].mean()),
            f"{stage.evenness[k].mean():.2f}",
            f"{np.exp(stage.entropy[k]).mean():.0f}",
            f"{stage.distance[k].mean():.0f}",
        )
        for k, layer in enumerate(stage.layer_numbers)
    ]
    return [
        Table("Keys of heads", ["key", "weight, %", "heads over 50 %", "most in head"], kinds),
        Table(
            "Attention by layer, mean over heads",
            ["layer", "first, %", "before, %", "evenness", "effective keys", "distance, tokens"],
            layers,
        ),
        *_use_tables(stage),
    ]


def _use_tables(stage: AttentionStage) -> list[Table]:
    """Tables on sinks, the positional baseline and rotary bands, mean over heads of layers."""
    columns: dict[str, list[str]] = {"layer": [*map(str, stage.layer_numbers)]}
    if (sinks := stage.sinks) is not None:
        columns["documents with a sink, %"] = [*map(_hundreds, sinks.rate.mean(axis=1))]
        columns["weight on sinks, %"] = [*map(_hundreds, sinks.weight.mean(axis=1))]
        columns["norm of sinks"] = [f"{sinks.norm.mean[k]:.1f}" for k in stage.layer_numbers]
    if stage.baseline is not None:
        columns["offset alone, %"] = [*map(_hundreds, stage.baseline.by_layer.mean)]
    if stage.bands is not None:
        low, high = (_two_digits(x).split(".")[0] for x in stage.bands.edges)
        for k, name in enumerate((f"to {low}", f"{low} to {high}", f"over {high}")):
            columns[f"wavelengths {name}, %"] = [*map(_hundreds, stage.bands.share.mean(1)[:, k])]
    rows = [*zip(*columns.values(), strict=True)]
    tables = [Table("Sinks, offset and frequencies by layer", [*columns], rows)]
    if sinks is not None and len(sinks.positions):
        places = zip(sinks.positions, sinks.position_share, strict=True)
        rows = [(f"position {place}", percent(float(share))) for place, share in places]
        words = zip(sinks.tokens, sinks.token_share, strict=True)
        rows += [(f"token {visible(word)}", percent(float(share))) for word, share in words]
        tables.append(Table("Most frequent sinks", ["of all sinks", "share"], rows))
    return tables


def reach_tables(reach: TextReach | None) -> list[Table]:
    """Tables on the length and the parts of a text that count."""
    if reach is None:
        return []
    name = "similarity to the whole" if reach.measure == "embedding" else "gain over half, nats"
    gain = gain_bounds(reach)
    rows = [(f"{int(n):,}", between(at(gain, k))) for k, n in enumerate(reach.lengths)]
    tables = [Table(f"Reach, {plural(reach.texts, 'text')}", ["tokens", name], rows)]
    if reach.parts is not None:
        rows = [(x, between(at(reach.parts, k))) for k, x in enumerate(("start", "middle", "end"))]
        tables.append(Table("Parts of a text that count", ["part", "effect"], rows))
    return tables


def prior_tables(stage: AttentionStage) -> list[Table]:
    """Tables on attention to a document without content."""
    overlaps = zip(stage.dummy.mean(axis=1), stage.other.mean(axis=1), strict=True)
    header = ["layer", "with a dummy, %", "with another document, %"]
    named = zip(stage.layer_numbers, overlaps, strict=True)
    rows = [(str(layer), *map(_hundreds, overlap)) for layer, overlap in named]
    return [Table("Overlap of attention, mean over heads", header, rows)]


def probe_tables(stage: ProbeStage) -> list[Table]:
    """Tables on the position in the hidden states."""
    rows = [
        (text.layer_name(stage, k), between(at(stage.r2, k)), f"{error:.1f}")
        for k, error in enumerate(stage.error)
    ]
    rows.append(("the middle for every token", "0.00", f"{stage.by_chance:.1f}"))
    title = f"Probe, {plural(stage.documents, 'held-out document')}"
    return [Table(title, ["layer", "R²", "mean error, positions"], rows)]


def ablation_tables(stage: AblationStage) -> list[Table]:
    """Tables on the ablation of positions."""
    reference = f"{stage.reference:.2f}"
    if stage.measure == "embedding":
        header = ["positions", "cosine of the mean", "cosine of tokens"]
        rows = [
            (move.name, between(move.value), "–" if move.tokens is None else between(move.tokens))
            for move in stage.moved[1:]
        ]
        rows.append(("another document", reference, "–"))
        title = "Cosine with the output at the original positions"
        return [Table(title, header, rows), *reach_tables(stage.reach)]
    header = ["positions", "loss, nats", "change, nats"]
    original, *moved = stage.moved
    rows = [
        ("original", between(original.value), "–"),
        *((move.name, between(move.value), between(move.change)) for move in moved),
        ("uniform guess", reference, "–"),
    ]
    return [Table("Loss by change of the positions", header, rows)]


def loss_tables(stage: LossStage) -> list[Table]:
    """Tables on the loss by position and the gain from far context."""
    bins = [f"{a} to {b - 1}" for a, b in zip(stage.edges, stage.edges[1:], strict=False)]
    header = ["positions", *(f"{scaled.name}, nats" for scaled in stage.scaled)]
    rows = [
        (name, *(between(at(scaled.loss, k)) for scaled in stage.scaled))
        for k, name in enumerate(bins)
    ]
    tables = [Table(f"Loss by position, {plural(stage.texts, 'text')}", header, rows)]
    if stage.far:
        header = ["distance, positions", *(f"{far.name}, nats" for far in stage.far)]
        rows = [
            (f"{int(distance):,}", *(between(at(far.gain, k)) for far in stage.far))
            for k, distance in enumerate(stage.distances)
        ]
        title = f"Gain of {stage.passage} tokens of context at a distance"
        tables.append(Table(title, header, rows))
    if stage.scalings:
        header = [
            "scaling", "distance, contexts",
            "text right before, nats", "text at the distance, nats",
        ]  # fmt: skip
        rows = [
            (one.name, f"{one.multiple:g}", between(one.near), between(one.far))
            for one in stage.scalings
        ]
        tables.append(Table("Change of the loss under a scaling", header, rows))
    return tables + reach_tables(stage.reach)


def needles_tables(stage: NeedleStage) -> list[Table]:
    """Tables on the retrieval of facts."""
    depths = (f"depth {depth:.1f}, %" for depth in stage.depths)
    rows = []
    for k, length in enumerate(stage.lengths):
        overall = at(stage.by_length, k)
        cells = map(_hundreds, (*stage.accuracy.mean[k], overall.estimate))
        rows.append((f"{int(length):,}", *cells, percent_ends(overall)))
    title = f"Facts retrieved, {plural(stage.texts, 'text')} each"
    return [Table(title, ["tokens", *depths, "all, %", "interval"], rows)]
