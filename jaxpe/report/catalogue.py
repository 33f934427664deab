"""The catalogue of encodings with everything computed about it, as a table, Markdown or JSON."""

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jaxpe.encodings import CatalogueEntry, EncodingProperties, EncodingSizes
from jaxpe.report.tables import make_table

if TYPE_CHECKING:
    import rich.table

Rows = Mapping[CatalogueEntry, EncodingProperties]

_HEADER = ("encoding", "parameters", "position", "beyond", "FLOPs", "bytes", "gradient")
_NUMBERS = (1, 4, 5)
_NOTES = (
    "parameters: those with a gradient (in brackets those without). position: what of it unmasked "
    "logits tell. beyond, at 2 to 3 lengths: positions told apart (yes), all alike (constant), as "
    "some inside (repeats), undefined (no). FLOPs and bytes: "
    "all hooks, forward, a token; ≥ where the program loops. gradient: where it goes because of "
    "the encoding: θ its parameters, q k w queries, keys, weights."
)


def catalogue_table(rows: Rows, sizes: EncodingSizes) -> "rich.table.Table":
    """One row an encoding, for a console: `rich.print(catalogue_table(rows, sizes))`.

    Raises `MissingExtraError` without the extra `report`.
    """
    title = (
        f"Encodings for width {sizes.dim:,}, {sizes.num_heads} heads of {sizes.head_dim}, "
        f"length {sizes.length:,}"
    )
    cells = [(*_cells(entry, found), _short(found.gradient)) for entry, found in rows.items()]
    table = make_table(title, _HEADER, cells, right=_NUMBERS)
    families = [entry.family for entry in rows]
    for row, (family, following) in enumerate(itertools.pairwise(families)):
        table.rows[row].end_section = family != following
    table.padding = (0, 1, 0, 0)
    for column in table.columns:
        column.no_wrap = True
    table.caption = _NOTES
    table.caption_justify = "left"
    return table


def catalogue_markdown(rows: Rows) -> str:
    """The same as a Markdown table, with sources and the map of the vectors."""
    header = ("encoding", "family", *_HEADER[1:], "vectors", "source")
    dashes = ("---", "---", *("---:" if i in _NUMBERS else "---" for i in range(1, 9)))
    lines = [_line(header), _line(dashes)]
    for entry, found in rows.items():
        name, *cells = _cells(entry, found)
        gradient = ", ".join(found.gradient) or "–"
        vectors = entry.vectors or "–"
        lines.append(_line((f"`{name}`", entry.family, *cells, gradient, vectors, entry.source)))
    return "\n".join(lines)


def catalogue_json(rows: Rows, sizes: EncodingSizes) -> dict[str, Any]:
    """The same as numbers."""
    return {
        "sizes": sizes._asdict(),
        "encodings": [
            {
                "name": entry.name,
                "family": entry.family,
                "source": entry.source,
                "vectors": entry.vectors,
                **found._asdict(),
            }
            for entry, found in rows.items()
        ],
    }


def _cells(entry: CatalogueEntry, found: EncodingProperties) -> tuple[str, ...]:
    """The cells that both tables have."""
    parameters = [f"{found.trainable:,}"] if found.trainable or not found.fixed else []
    parameters += [f"({found.fixed:,})"] if found.fixed else []
    least = "≥" if found.looped else ""
    return (
        entry.name,
        " ".join(parameters),
        _information(found),
        found.beyond,
        least + _scaled(found.flops),
        least + _scaled(found.bytes),
    )


def _short(gradient: tuple[str, ...]) -> str:
    """θ for parameters, and q, k, w."""
    places = {"queries": "q", "keys": "k", "weights": "w"}
    return " ".join(dict.fromkeys(places.get(name, "θ") for name in gradient)) or "–"


def _information(found: EncodingProperties) -> str:
    kinds = [name for name in ("absolute", "relative") if getattr(found, name)]
    return "both" if len(kinds) == 2 else "".join(kinds) or ("order" if found.order else "–")


def _scaled(value: float) -> str:
    """Three digits: 950, 12.3k, 4.75M."""
    thousands = 0
    while value >= 999.5 and thousands < 4:
        value, thousands = value / 1000, thousands + 1
    return f"{value:.3g}{('', 'k', 'M', 'G', 'T')[thousands]}"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
