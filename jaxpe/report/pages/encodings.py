"""Page of computed properties of encodings: a table, or two for the overview."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from jaxpe.analysis.properties import (
    CostRow,
    ExpressivenessRow,
    ExtrapolationRow,
    GeneralisationRow,
    PropertyTable,
)
from jaxpe.encodings import EncodingProperties, PowerLaw
from jaxpe.encodings.analysis.expressiveness import FARTHEST
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
    costs = scaled(row.flops), scaled(row.bytes)
    return " ".join(parameters), information(row), row.beyond, *costs, gradient


def _origin(row: EncodingProperties) -> Sequence[str]:
    adopted = " · ".join(map(str, row.adopted or ()))
    return row.family, adopted, ", ".join(row.gradient) or "–", row.vectors or "–", row.source


def _expressiveness(row: ExpressivenessRow) -> Sequence[str]:
    found, yes = row.expressiveness, ("no", "yes")
    reach = yes[found.universal]
    if found.universal and not found.universal_any:
        reach = "inside" if found.reach == 1 else f"to {found.reach}T"
    universal, causal = yes[found.universal], yes[found.causal_bos.apart]
    return information(row.properties), universal, reach, causal, row.properties.beyond


def _generalisation(row: GeneralisationRow) -> Sequence[str]:
    bias = f"{_digits(row.bias)} {_powers(n=row.bias_beyond)}" if row.bias else "–"
    norm = f"{_digits(row.norm.value)} {_growth(row.norm)}" if row.norm.value else "–"
    parameters = f"{row.parameters.value:,.0f} {_growth(row.parameters)}"
    return norm.strip(), bias.strip(), parameters.strip()


def _extrapolation(row: ExtrapolationRow) -> Sequence[str]:
    last, reach = row.stretches[-1], f"{'≥ ' * (row.reach >= 8)}{row.reach:.3g}T"
    states = [stretch.state for stretch in row.stretches]
    return *states, _digits(last.smallest), _digits(last.mean), reach


def _cost(row: CostRow) -> Sequence[str]:
    flops, loops = row.flops, "yes" if row.looped else "–"
    if not flops.value:
        return "0", "–", "–", loops
    powers = ["–" if math.isnan(e) else f"{round(e, 2) + 0.0:.2f}" for e in flops[1:]]
    return scaled(flops.value), *powers, loops


def information(row: EncodingProperties) -> str:
    """Position information of logits: absolute, relative, both, or order alone."""
    kinds = [name for name in ("absolute", "relative") if getattr(row, name)]
    return "both" if len(kinds) == 2 else "".join(kinds) or ("order" if row.order else "–")


def scaled(value: float) -> str:
    """Three digits: 950, 12.3k, 4.75M."""
    thousands = 0
    while value >= 999.5 and thousands < 4:
        value, thousands = value / 1000, thousands + 1
    return f"{value:.3g}{('', 'k', 'M', 'G', 'T')[thousands]}"


def _digits(value: float) -> str:
    """Two decimals for small numbers, three digits otherwise; "–" for NaN."""
    if math.isnan(value):
        return "–"
    if 0 < abs(value) < 0.005:
        return f"{value:.0e}"
    return scaled(value) if abs(value) >= 100 else f"{value:.2f}"


def _growth(law: PowerLaw) -> str:
    return _powers(d=law.dim, n=law.length) if law.value else ""


def _powers(**exponents: float) -> str:
    """Text such as d^0.5 n^1; exponents of 0 are left out."""
    shown = {name: round(e, 2) for name, e in exponents.items() if math.isfinite(e)}
    return " ".join(f"{name}^{e:g}" for name, e in shown.items() if e)


# Tables by name: title, columns, function of the cells, and what the columns mean.
_TABLES: dict[str, list[tuple[str, Sequence[str], Callable[[Any], Sequence[str]], str]]] = {
    "names": [
        ("Encodings", ("family", "position vectors", "source"),
         lambda row: (row.family, row.vectors or "–", row.source), ""),
    ],
    "overview": [
        ("Overview", ("parameters", "position", "beyond", "FLOPs", "bytes", "gradient"), _overview,
         "parameters: those with a gradient (in brackets those without). position: what of it "
         "unmasked logits tell. beyond, at 2 to 3 lengths: positions told apart (yes), all alike "
         "(constant), as some inside (repeats), undefined (no). FLOPs and bytes: all hooks, "
         "forward, a token, loops in full. gradient: where it goes because of the encoding: θ its "
         "parameters, q k w queries, keys, weights."),
        ("Origins", ("family", "adopted by", "gradient", "vectors", "source"), _origin, ""),
    ],
    "expressiveness": [
        ("Expressiveness", ("position", "universal", "any length", "causal <bos>", "beyond"),
         _expressiveness,
         "universal: without a mask, tokens of a constant sequence are told apart; any length: "
         f"also up to {FARTHEST} training lengths T (or how far). causal <bos>: they are told "
         "apart under a causal mask and a first token of its own. beyond: at 2T to 3T."),
    ],
    "generalisation": [
        ("Generalisation", ("largest norm", "largest bias", "parameters"), _generalisation,
         "As initialised, with exponents of growth in the width d and the length n. norm: of a "
         "vector added to embeddings. bias: of logits, inside; n^ as sequences grow to 8 lengths."),
    ],
    "extrapolation": [
        ("Extrapolation", ("to 2T", "to 4T", "to 8T", "min", "mean", "reach"), _extrapolation,
         "What becomes of positions (or offsets) beyond the training length T. min, mean: step "
         "between neighbours from 4T to 8T over that inside. reach: until a step is below 10 % of "
         "the smallest inside."),
    ],
    "cost": [
        ("Cost", ("FLOPs", "in d", "in n", "loops"), _cost,
         "FLOPs a token, of all hooks, forward, as compiled, loops in full; exponents of growth in "
         "the width d and the length n."),
    ],
}  # fmt: skip
