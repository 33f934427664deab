"""Page of computed properties of encodings: a table, or two for the overview."""

from collections.abc import Callable, Sequence
from typing import Any

from jaxpe.analysis.properties import PropertyTable
from jaxpe.encodings.analysis.properties import FAR, KEPT, EncodingProperties
from jaxpe.report.findings import Page, Section, Table
from jaxpe.report.writing import page

_LETTERS = {"queries": "q", "keys": "k", "weights": "w"}


@page.register
def encodings_page(result: PropertyTable) -> Page:
    """Page of encodings: a row of each."""
    sizes, tables = result.sizes, []
    heads = f"{sizes.num_heads} heads of {sizes.head_dim}"
    about = f"width {sizes.dim:,}, {heads}, length {sizes.length:,}"
    if result.about == "names":
        about = "for computed properties: jaxpe encodings --about overview"
    for title, names, cells, note in _TABLES[result.about]:
        rows = [(row.name, *cells(row)) for row in result.encodings]
        tables.append(Table(title, ("encoding", *names), rows, note))
    return Page("encodings", "Encodings", about, sections=[Section("Properties", tables=tables)])


def _overview(row: EncodingProperties) -> Sequence[str]:
    parameters = [f"{row.trainable:,}"] * bool(row.trainable or not row.fixed)
    parameters += [f"({row.fixed:,})"] * bool(row.fixed)
    gradient = " ".join(dict.fromkeys(_LETTERS.get(name, "θ") for name in row.gradient)) or "–"
    reach = f"{'≥ ' * (row.reach >= FAR)}{row.reach:.3g}T"
    costs = scaled(row.flops), scaled(row.bytes)
    return " ".join(parameters), information(row), row.beyond, reach, *costs, gradient


def _origin(row: EncodingProperties) -> Sequence[str]:
    adopted = " · ".join(map(str, row.adopted or ()))
    return row.family, adopted, ", ".join(row.gradient) or "–", row.vectors or "–", row.source


def information(row: EncodingProperties) -> str:
    """Position information of logits: absolute, relative or both."""
    kinds = [name for name in ("absolute", "relative") if getattr(row, name)]
    return "both" if len(kinds) == 2 else "".join(kinds) or "–"


def scaled(value: float) -> str:
    """Three digits: 950, 12.3k, 4.75M."""
    thousands = 0
    while value >= 999.5 and thousands < 4:
        value, thousands = value / 1000, thousands + 1
    return f"{value:.3g}{('', 'k', 'M', 'G', 'T')[thousands]}"


# Tables by name: title, columns, function of the cells, and what the columns mean.
_TABLES: dict[str, list[tuple[str, Sequence[str], Callable[[Any], Sequence[str]], str]]] = {
    "names": [
        ("Encodings", ("family", "position vectors", "source"),
         lambda row: (row.family, row.vectors or "–", row.source), ""),
    ],
    "overview": [
        ("Overview", ("parameters", "position", "beyond", "reach", "FLOPs", "bytes", "gradient"),
         _overview,
         "parameters: those with a gradient (in brackets those without). position: what of it "
         f"unmasked logits tell. beyond: positions from the training length T to {FAR}T, told "
         "apart, constant, repeats of some within T, or undefined. reach: until a step between "
         f"neighbours is below {KEPT:.0%} of the smallest within T. FLOPs and bytes: all hooks, "
         "forward, a token, loops in full. gradient: where it goes because of the encoding: θ its "
         "parameters, q k w queries, keys, weights."),
        ("Origins", ("family", "adopted by", "gradient", "vectors", "source"), _origin, ""),
    ],
}  # fmt: skip
