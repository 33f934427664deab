"""Meaning of a positional configuration, in words and tables."""

import math
from typing import TYPE_CHECKING

from jaxpe._core.errors import require
from jaxpe.analysis.rope import LayerRotation, PhaseError, Reading, RopeAnalysis
from jaxpe.report.tables import make_table
from jaxpe.report.words import Headline, number, plural, visible

if TYPE_CHECKING:
    import rich.console

Rows = list[tuple[str, ...]]
_QUANTITIES = {
    "problem": "readability",
    "rope_type": "the type of the scaling",
    "base": "θ",
    "rotated": "how much of a head turns",
    "factor": "the factor",
    "original": "the length before scaling",
    "attention_factor": "the attention factor",
    "logit_factor": "the scale of logits",
    "query_factor": "the scaling of queries",
    "longest": "the longest text allowed",
    "inverse": "the frequencies",
}


def rope_summary(result: RopeAnalysis) -> str:
    """Findings and remedies as a paragraph, for a reader who has read nothing else.

    >>> from jaxpe.analysis.rope import RopeOptions, explain_rope
    >>> rope_summary(explain_rope(RopeOptions(head_dim=64, base=1e4, context=2048)))
    'Frequencies fall from 1 to 1.33e-04 ...'
    """
    widest = widest_layer(result)
    return " ".join(
        part
        for part in (_frequencies(result, widest), _reach(widest), _readers(result), _todo(result))
        if part
    )


def widest_layer(result: RopeAnalysis) -> LayerRotation:
    """The kind of layer that reaches furthest, which the others are of less concern than."""
    return max(result.layers, key=lambda layer: layer.reach)


def at_longest(result: RopeAnalysis) -> list[PhaseError]:
    """Errors of phases at the longest text."""
    return [error for error in result.precision if error.length == result.length]


def first_readings(result: RopeAnalysis) -> list[Reading]:
    """Readings of the first reader that accepts the configuration."""
    known = [reading for reading in result.readings if reading.problem is None]
    return [reading for reading in known if reading.reader == known[0].reader]


def _frequencies(result: RopeAnalysis, layer: LayerRotation) -> str:
    turning = layer.inverse[layer.inverse > 0]
    reading = next(r for r in first_readings(result) if r.layers == layer.layers)
    if not len(turning):
        return "No frequency turns."
    text = (
        f"Frequencies fall from {turning.max():.3g} to {turning.min():.2e} radians a position "
        f"(θ = {reading.base:,.0f}, {reading.rotated} of {result.head_dim} entries of a head turn)"
    )
    slow = f"{layer.never_round} of {len(layer.inverse)} make less than a turn in the "
    text += f"; {slow}{layer.trained:,} positions of training."
    if reading.rope_type == "default":
        return text
    between = len(turning) - layer.kept - layer.divided
    return (
        f"{text} The scaling ({reading.rope_type}) leaves {layer.kept} alone, divides "
        f"{layer.divided} by its factor and {between} by less; cos and sin are multiplied by "
        f"{reading.attention_factor:.4g}."
    )


def _reach(layer: LayerRotation) -> str:
    if not layer.unseen:
        return ""
    return (
        f"At offsets of {layer.reach:,}, {plural(layer.unseen, 'frequency')} reach phases beyond "
        f"those of {layer.trained:,} positions, which further training must have covered."
    ).replace("frequencys", "frequencies")


def _readers(result: RopeAnalysis) -> str:
    names = dict.fromkeys(reading.reader for reading in result.readings)
    if len(names) == 1:
        return ""
    told = [_QUANTITIES[one.what] for one in result.disagreements]
    if not told:
        return f"All {len(names)} readers compute the same."
    return f"Readers differ in {', '.join(dict.fromkeys(told))}."


def _todo(result: RopeAnalysis) -> str:
    counts = {
        kind: [w for w in result.warnings if w.severity == kind] for kind in ("wrong", "risk")
    }
    first = [*counts["wrong"], *counts["risk"]]
    if not first and any(one.what != "longest" for one in result.disagreements):
        return "Check which of them you use."
    if not first:
        return "Nothing needs to be done."
    several = f"{len(first)} points to check; the first"
    said = f"{several if len(first) > 1 else 'To check'}: {first[0].text} {first[0].remedy}"
    return said.replace("`", "")


def headlines(result: RopeAnalysis) -> list[Headline]:
    """The numbers on top of the page."""
    layer, reading = widest_layer(result), first_readings(result)[0]
    worst = max(at_longest(result), key=lambda error: error.largest)
    float32 = next(error for error in at_longest(result) if error.dtype == "float32")
    readers = list(dict.fromkeys(one.reader for one in result.readings))
    alike = len(readers) - len(_apart(result))
    return [
        Headline("θ", f"{reading.base:,.0f}", f"{reading.rotated} of {result.head_dim} turn"),
        Headline(
            "Never come round in training",
            f"{layer.never_round} of {len(layer.inverse)}",
            f"frequencies, in {layer.trained:,} positions",
        ),
        Headline("Attention factor", f"{reading.attention_factor:.4g}", reading.rope_type),
        Headline(
            "Float32 phase error",
            f"{number(float32.largest)} rad",
            f"{worst.dtype}: {number(worst.largest)}",
        ),
        Headline("Readers that agree", f"{alike} of {len(readers)}", reading.reader),
    ]


def _apart(result: RopeAnalysis) -> set[str]:
    """Readers that differ from the first in something but the longest text."""
    first, apart = first_readings(result)[0].reader, set[str]()
    for one in result.disagreements:
        if one.what != "longest":
            apart |= {name for name, value in one.values.items() if value != one.values.get(first)}
    return apart


def tables_of(result: RopeAnalysis) -> list[tuple[str, list[str], Rows]]:
    """Title, header and rows of each table: readers of each kind of layer, frequencies, phases."""
    tables = [_readers_table(result, layer.layers) for layer in result.layers]
    header = ["layers", "number", "trained", "reach", "never", "at reach", "unseen", "kept", "÷ s"]
    tables.append(("Frequencies", header, [_layer_row(one) for one in result.layers]))
    rows: Rows = [
        (one.dtype, _ROUNDED[one.rounded], f"{one.largest:.2g}", f"{one.lost}")
        for one in at_longest(result)
    ]
    title = f"Phases near position {result.length:,}"
    return [*tables, (title, ["type", "rounded", "error, rad", "off by 0.1"], rows)]


_ROUNDED = {"all": "everything", "frequencies": "frequencies alone"}
_ROWS = ("type", "θ", "turn", "s", "L0", "cos, sin", "logits", "queries", "longest text")


def _readers_table(result: RopeAnalysis, kind: str) -> tuple[str, list[str], Rows]:
    """A column for readers that compute the same."""
    columns: dict[tuple[str, ...], list[str]] = {}
    own = [one for one in result.readings if one.layers == kind]
    for one in own:
        columns.setdefault(_reader_column(one), []).append(one.reader)
    names = [", ".join(readers) for readers in columns.values()]
    header = ["", *(["all readers"] if len(names) == 1 < len(own) else names)]
    cells: Rows = [(name, *row) for name, *row in zip(_ROWS, *columns, strict=True)]
    suffix = "" if len(result.layers) == 1 else f" in layers of {_kind(kind)} attention"
    return f"What readers compute with{suffix}", header, cells


def _reader_column(one: Reading) -> tuple[str, ...]:
    if one.problem is not None:
        return ("not read", *["–"] * (len(_ROWS) - 1))
    return (
        one.rope_type,
        f"{one.base:,.0f}",
        str(one.rotated),
        "–" if math.isnan(one.factor) else f"{one.factor:g}",
        f"{one.original:,}" if one.original else "–",
        f"{one.attention_factor:.4g}",
        f"{one.logit_factor:.4g}",
        f"{one.query_factor:.4g}",
        f"{one.longest:,.0f}",
    )


def _layer_row(one: LayerRotation) -> tuple[str, ...]:
    return (
        _kind(one.layers),
        str(one.count or "–"),
        f"{one.trained:,}",
        f"{one.reach:,}",
        f"{one.never_round} of {len(one.inverse)}",
        str(one.never_round_at_reach),
        str(one.unseen),
        str(one.kept),
        str(one.divided),
    )


def _kind(layers: str) -> str:
    return visible(layers.replace("_attention", ""))


def rope_table(result: RopeAnalysis) -> "rich.console.Group":
    """Readers, frequencies, precision and warnings on a console: `rich.print(...)` shows them.

    Raises `MissingExtraError` without the extra `report`.

    >>> from jaxpe.analysis.rope import RopeOptions, explain_rope
    >>> found = explain_rope(RopeOptions(head_dim=64, base=1e4, context=2048))
    >>> len(rope_table(found).renderables)
    3
    """
    group = require("rich.console", extra="report").Group
    tables = [make_table(title, header, rows, right=range(1, 99)) for title, header, rows in
              tables_of(result)]  # fmt: skip
    for table in tables:
        table.padding = (0, 1, 0, 0)
    return group(*tables)
