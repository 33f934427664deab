"""Tables of the catalogue from computed properties: expressiveness, generalisation, reach, cost."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxpe.analysis.properties import About, Told
from jaxpe.encodings import CatalogueEntry, EncodingSizes
from jaxpe.encodings.beyond import Extrapolation
from jaxpe.encodings.expressiveness import FARTHEST, Expressiveness
from jaxpe.encodings.growth import (
    Cost,
    Generalisation,
    Growth,
)
from jaxpe.report.catalogue import (
    _information,
    _line,
    _scaled,
    catalogue_json,
    catalogue_markdown,
    catalogue_table,
)
from jaxpe.report.tables import make_table

if TYPE_CHECKING:
    import rich.table

Rows = Mapping[CatalogueEntry, Any]


class _Table(NamedTuple):
    """One table: its title, its columns, and the cells that show what was computed."""

    title: str
    header: tuple[str, ...]
    cells: Callable[[Any], tuple[str, ...]]
    notes: str


def property_table(about: About, rows: Rows, sizes: EncodingSizes) -> "rich.table.Table":
    """One row an encoding, for a console; `rows` hold what `property_rows` computed.

    Raises `MissingExtraError` without the extra `report`.
    """
    if about == "overview":
        return catalogue_table(rows, sizes)
    chosen = _TABLES[about]
    title = (
        f"{chosen.title}: width {sizes.dim:,}, {sizes.num_heads} heads of {sizes.head_dim}, "
        f"length {sizes.length:,}"
    )
    cells = [(entry.name, *chosen.cells(found)) for entry, found in rows.items()]
    table = make_table(title, ("encoding", *chosen.header), cells, right=())
    table.padding = (0, 1, 0, 0)
    for column in table.columns:
        column.no_wrap = True
    table.caption = chosen.notes
    table.caption_justify = "left"
    return table


def property_markdown(about: About, rows: Rows) -> str:
    """The same as a Markdown table."""
    if about == "overview":
        return catalogue_markdown(rows)
    chosen = _TABLES[about]
    header = ("encoding", *chosen.header)
    lines = [_line(header), _line(["---"] * len(header))]
    lines += [_line((f"`{entry.name}`", *chosen.cells(found))) for entry, found in rows.items()]
    return "\n".join(lines)


def property_json(about: About, rows: Rows, sizes: EncodingSizes) -> dict[str, Any]:
    """The same as numbers; what is not finite is None."""
    if about == "overview":
        return catalogue_json(rows, sizes)
    return {
        "about": about,
        "sizes": sizes._asdict(),
        "encodings": [{"name": entry.name, **_plain(found)} for entry, found in rows.items()],
    }


def _expressiveness_cells(found: Told) -> tuple[str, ...]:
    known, told = found
    return (
        _information(known),
        _yes(told.universal),
        _reach(told),
        _yes(told.causal_bos.apart),
        known.beyond,
    )


def _reach(told: Expressiveness) -> str:
    if not told.universal or told.universal_any:
        return _yes(told.universal)
    return "inside" if told.reach == 1 else f"to {told.reach}T"


def _generalisation_cells(found: Generalisation) -> tuple[str, ...]:
    bias = f"{_digits(found.bias)} {_powers(n=found.bias_beyond)}" if found.bias else "–"
    return _grown(found.norm), bias.strip(), _grown(found.parameters, whole=True)


def _extrapolation_cells(found: Extrapolation) -> tuple[str, ...]:
    last = found.stretches[-1]
    reach = f"≥ {found.reach:.3g}T" if found.reach >= 8 else f"{found.reach:.3g}T"
    return (
        *(stretch.state for stretch in found.stretches),
        _digits(last.smallest),
        _digits(last.mean),
        reach,
    )


def _cost_cells(found: Cost) -> tuple[str, ...]:
    flops, loops = found.flops, "yes" if found.looped else "–"
    if not flops.value:
        return "0", "–", "–", loops
    return _scaled(flops.value), _exponent(flops.dim), _exponent(flops.length), loops


def _exponent(value: float) -> str:
    return "–" if math.isnan(value) else f"{round(value, 2) + 0.0:.2f}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _digits(value: float) -> str:
    """Two digits behind the point of what is small, three digits otherwise; "–" for NaN."""
    if math.isnan(value):
        return "–"
    if 0 < abs(value) < 0.005:
        return f"{value:.0e}"
    return _scaled(value) if abs(value) >= 100 else f"{value:.2f}"


def _grown(growth: Growth, *, whole: bool = False) -> str:
    """A value and its growth: 16.00 d^0.5."""
    if not growth.value:
        return "0" if whole else "–"
    value = f"{growth.value:,.0f}" if whole else _digits(growth.value)
    return f"{value} {_powers(d=growth.dim, n=growth.length)}".strip()


def _powers(**exponents: float) -> str:
    """As d^0.5 n^1; what does not grow is left out."""
    shown = {name: round(e, 2) for name, e in exponents.items() if math.isfinite(e)}
    return " ".join(f"{name}^{e:g}" for name, e in shown.items() if e)


def _plain(value: Any) -> Any:
    """Named tuples as dictionaries, what is not finite as None."""
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


_TABLES: dict[str, _Table] = {
    "expressiveness": _Table(
        "Expressiveness",
        ("position", "universal", "any length", "causal <bos>", "beyond"),
        _expressiveness_cells,
        "position: what of it unmasked logits tell. universal: without a mask, tokens of a "
        "constant sequence are told apart; any length: also up to "
        f"{FARTHEST} training lengths T (or how far). causal <bos>: they are told apart under a "
        "causal mask and a first token of its own. beyond: at 2T to 3T.",
    ),
    "generalisation": _Table(
        "Generalisation",
        ("largest norm", "largest bias", "parameters"),
        _generalisation_cells,
        "As initialised, with exponents of growth in the width d and the length n. norm: of a "
        "vector added to embeddings. bias: of logits, inside; n^ as sequences grow to 8 training "
        "lengths.",
    ),
    "extrapolation": _Table(
        "Extrapolation",
        ("to 2T", "to 4T", "to 8T", "least", "mean", "reach"),
        _extrapolation_cells,
        "What becomes of positions (or offsets) beyond the training length T. least, mean: step "
        "between neighbours from 4T to 8T over that inside. reach: until a step is below 10 % of "
        "the smallest inside.",
    ),
    "cost": _Table(
        "Cost",
        ("FLOPs", "in d", "in n", "loops"),
        _cost_cells,
        "FLOPs a token, of all hooks, forward, as compiled, loops in full; exponents of growth in "
        "the width d and the length n.",
    ),
}
