"""Tables of the catalogue and its computed properties, for a console or as text."""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from jaxpe.analysis import properties
from jaxpe.encodings import EncodingProperties, Expressiveness, PowerLaw
from jaxpe.encodings.analysis.expressiveness import FARTHEST
from jaxpe.report.files import table_files
from jaxpe.report.tables import make_table

if TYPE_CHECKING:
    import rich.table


class _Columns(NamedTuple):
    """The columns of one table: title, header, and the function of the cells."""

    title: str
    header: tuple[str, ...]
    cells: Callable[[Any], tuple[str, ...]]
    notes: str
    right: tuple[int, ...] = ()  # columns of numbers, with that of the names


def property_table(result: properties.PropertyTable) -> "rich.table.Table":
    """Table with one row an encoding, for a console.

    Args:
        result: result of the properties job.

    Raises:
        MissingExtraError: without the extra `report`.

    >>> from jaxpe.analysis.properties import PropertyOptions, tabulate
    >>> options = PropertyOptions(names=("alibi",), about="cost", dim=16, head_dim=8, length=32)
    >>> property_table(tabulate(options)).row_count
    1
    """
    columns, sizes = _COLUMNS[result.about], result.sizes
    model = (
        f"width {sizes.dim:,}, {sizes.num_heads} heads of {sizes.head_dim}, length {sizes.length:,}"
    )
    title = columns.title if result.about == "names" else f"{columns.title} {model}"
    cells = [(row.name, *columns.cells(row)) for row in result.encodings]
    table = make_table(title, ("encoding", *columns.header), cells, right=columns.right)
    kinds = EncodingProperties, properties.NameRow
    families = [row.family for row in result.encodings if isinstance(row, kinds)]
    for row, (family, following) in enumerate(itertools.pairwise(families)):
        table.rows[row].end_section = family != following
    table.padding = (0, 1, 0, 0)
    # Of a list, the columns of prose wrap; a table of numbers would not be one.
    for column in table.columns[: 2 if result.about == "names" else None]:
        column.no_wrap = True
    table.caption = columns.notes
    table.caption_justify = "left"
    return table


def property_text(
    result: properties.PropertyTable, *, form: Literal["markdown", "latex", "csv"] = "markdown"
) -> str:
    """Table of properties as text; the overview adds families, adoption, vectors and sources.

    Args:
        result: result of the properties job.
        form: Markdown, LaTeX with the rules of booktabs, or CSV.

    >>> from jaxpe.analysis.properties import PropertyOptions, tabulate
    >>> options = PropertyOptions(names=("none",), about="cost", dim=16, head_dim=8, length=32)
    >>> table = tabulate(options)
    >>> print(property_text(table))
    | encoding | FLOPs | in d | in n | loops |
    | --- | --- | --- | --- | --- |
    | `none` | 0 | – | – | – |
    >>> property_text(table, form="csv").splitlines()[1]
    'none,0,–,–,–'
    """
    columns = _COLUMNS[result.about]
    header, right = ["encoding", *columns.header], set()
    cells = [[row.name, *columns.cells(row)] for row in result.encodings]
    if result.about == "overview":
        header = ["encoding", "family", "adopted by", *columns.header, "vectors", "source"]
        right = {2, *(column + 2 for column in columns.right)}  # after family and adoption
        described = [row for row in result.encodings if isinstance(row, EncodingProperties)]
        for line, row in zip(cells, described, strict=True):
            gradient = ", ".join(row.gradient) or "–"
            adopted = " · ".join(map(str, row.adopted or ()))
            line[1:] = row.family, adopted, *line[1:-1], gradient, row.vectors or "–", row.source
    if form != "markdown":
        files = table_files([(result.about, header, cells)])
        return files[f"tables/{result.about}.{'tex' if form == 'latex' else 'csv'}"].decode()
    dashes = ("---:" if column in right else "---" for column in range(len(header)))
    return "\n".join(map(_line, [header, dashes, *([f"`{n}`", *rest] for n, *rest in cells)]))


def _overview_cells(row: EncodingProperties) -> tuple[str, ...]:
    parameters = [f"{row.trainable:,}"] if row.trainable or not row.fixed else []
    parameters += [f"({row.fixed:,})"] if row.fixed else []
    return (
        " ".join(parameters),
        information(row),
        row.beyond,
        scaled(row.flops),
        scaled(row.bytes),
        _short(row.gradient),
    )


def _expressiveness_cells(row: properties.ExpressivenessRow) -> tuple[str, ...]:
    overview, expressiveness = row.properties, row.expressiveness
    return (
        information(overview),
        _yes(expressiveness.universal),
        _reach(expressiveness),
        _yes(expressiveness.causal_bos.apart),
        overview.beyond,
    )


def _reach(expressiveness: Expressiveness) -> str:
    if not expressiveness.universal or expressiveness.universal_any:
        return _yes(expressiveness.universal)
    return "inside" if expressiveness.reach == 1 else f"to {expressiveness.reach}T"


def _generalisation_cells(row: properties.GeneralisationRow) -> tuple[str, ...]:
    bias = f"{_digits(row.bias)} {_powers(n=row.bias_beyond)}" if row.bias else "–"
    return _grown(row.norm), bias.strip(), _grown(row.parameters, integer=True)


def _extrapolation_cells(row: properties.ExtrapolationRow) -> tuple[str, ...]:
    last = row.stretches[-1]
    reach = f"≥ {row.reach:.3g}T" if row.reach >= 8 else f"{row.reach:.3g}T"
    return (
        *(stretch.state for stretch in row.stretches),
        _digits(last.smallest),
        _digits(last.mean),
        reach,
    )


def _cost_cells(row: properties.CostRow) -> tuple[str, ...]:
    flops, loops = row.flops, "yes" if row.looped else "–"
    if not flops.value:
        return "0", "–", "–", loops
    return scaled(flops.value), _exponent(flops.dim), _exponent(flops.length), loops


def _short(gradient: tuple[str, ...]) -> str:
    """Abbreviations of receivers of a gradient: θ for parameters, and q, k, w."""
    letters = {"queries": "q", "keys": "k", "weights": "w"}
    return " ".join(dict.fromkeys(letters.get(name, "θ") for name in gradient)) or "–"


def information(row: EncodingProperties) -> str:
    """Position information of logits: absolute, relative, both, or order alone."""
    kinds = [name for name in ("absolute", "relative") if getattr(row, name)]
    return "both" if len(kinds) == 2 else "".join(kinds) or ("order" if row.order else "–")


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _exponent(value: float) -> str:
    return "–" if math.isnan(value) else f"{round(value, 2) + 0.0:.2f}"


def _digits(value: float) -> str:
    """Two decimals for small numbers, three digits otherwise; "–" for NaN."""
    if math.isnan(value):
        return "–"
    if 0 < abs(value) < 0.005:
        return f"{value:.0e}"
    return scaled(value) if abs(value) >= 100 else f"{value:.2f}"


def _grown(law: PowerLaw, *, integer: bool = False) -> str:
    """A value and its growth: 16.00 d^0.5."""
    if not law.value:
        return "0" if integer else "–"
    value = f"{law.value:,.0f}" if integer else _digits(law.value)
    return f"{value} {_powers(d=law.dim, n=law.length)}".strip()


def _powers(**exponents: float) -> str:
    """Text such as d^0.5 n^1; exponents of 0 are left out."""
    shown = {name: round(e, 2) for name, e in exponents.items() if math.isfinite(e)}
    return " ".join(f"{name}^{e:g}" for name, e in shown.items() if e)


def scaled(value: float) -> str:
    """Three digits: 950, 12.3k, 4.75M."""
    thousands = 0
    while value >= 999.5 and thousands < 4:
        value, thousands = value / 1000, thousands + 1
    return f"{value:.3g}{('', 'k', 'M', 'G', 'T')[thousands]}"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


_COLUMNS: dict[str, _Columns] = {
    "names": _Columns(
        "Encodings",
        ("family", "position vectors", "source"),
        lambda row: (row.family, row.vectors or "–", row.source),
        "Nothing here is computed.",
    ),
    "overview": _Columns(
        "Encodings for",
        ("parameters", "position", "beyond", "FLOPs", "bytes", "gradient"),
        _overview_cells,
        "parameters: those with a gradient (in brackets those without). position: what of it "
        "unmasked logits tell. beyond, at 2 to 3 lengths: positions told apart (yes), all alike "
        "(constant), as some inside (repeats), undefined (no). FLOPs and bytes: all hooks, "
        "forward, a token, loops in full. gradient: where it goes because of the encoding: θ its "
        "parameters, q k w queries, keys, weights.",
        right=(1, 4, 5),
    ),
    "expressiveness": _Columns(
        "Expressiveness:",
        ("position", "universal", "any length", "causal <bos>", "beyond"),
        _expressiveness_cells,
        "position: what of it unmasked logits tell. universal: without a mask, tokens of a "
        "constant sequence are told apart; any length: also up to "
        f"{FARTHEST} training lengths T (or how far). causal <bos>: they are told apart under a "
        "causal mask and a first token of its own. beyond: at 2T to 3T.",
    ),
    "generalisation": _Columns(
        "Generalisation:",
        ("largest norm", "largest bias", "parameters"),
        _generalisation_cells,
        "As initialised, with exponents of growth in the width d and the length n. norm: of a "
        "vector added to embeddings. bias: of logits, inside; n^ as sequences grow to 8 training "
        "lengths.",
    ),
    "extrapolation": _Columns(
        "Extrapolation:",
        ("to 2T", "to 4T", "to 8T", "min", "mean", "reach"),
        _extrapolation_cells,
        "What becomes of positions (or offsets) beyond the training length T. min, mean: step "
        "between neighbours from 4T to 8T over that inside. reach: until a step is below 10 % of "
        "the smallest inside.",
    ),
    "cost": _Columns(
        "Cost:",
        ("FLOPs", "in d", "in n", "loops"),
        _cost_cells,
        "FLOPs a token, of all hooks, forward, as compiled, loops in full; exponents of growth in "
        "the width d and the length n.",
    ),
}
