"""View of a comparison of inspections: text, tables and a page."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxpe.analysis.inspections import MEASURES, InspectionComparison, Measure, ModelMeasures
from jaxpe.report.inspect.advice import comparison_advice as advice
from jaxpe.report.inspect.summary import measure_texts
from jaxpe.report.page import View
from jaxpe.report.tables import table_group
from jaxpe.report.text import plural, visible

if TYPE_CHECKING:
    import rich.console

_SIDE_BY_SIDE = 4  # models, in columns; more stand in rows
Rows = list[tuple[str, ...]]


def inspections_rows(result: InspectionComparison) -> list[tuple[str, list[str], Rows]]:
    """Title, header and rows of each table: the models, and their measures."""
    facts: Rows = [
        (
            visible(one.model), f"{one.parameters / 1e6:,.0f} M", one.encoding,
            f"{one.context:,}" if one.context else "–", visible(one.source),
            f"{one.positions:,}", f"{one.longest:,}",
        )
        for one in result.models
    ]  # fmt: skip
    header = ["model", "parameters", "encoding", "context", "text", "positions", "longest"]
    tables: list[tuple[str, list[str], Rows]] = [("Models", header, facts)]
    if len(result.models) <= _SIDE_BY_SIDE:
        return [*tables, ("Measures", *_transposed(*_measures(result.models)))]
    for title, causal in (("Decoders", True), ("Encoders", False)):
        models = [one for one in result.models if (one.kind == "causal") == causal]
        if models:
            tables.append((title, *_measures(models)))
    return tables


def _measures(models: Sequence[ModelMeasures]) -> tuple[list[str], Rows]:
    """Header and rows of a table with one row a model."""
    shown = [m for m in MEASURES if any(m.name in one.values for one in models)]
    rows: Rows = [
        (visible(one.model), *(_cell(one, m) for m in shown)) for one in models
    ]  # fmt: skip
    return ["measure, interval", *(m.label for m in shown)], rows


def _transposed(header: list[str], rows: Rows) -> tuple[list[str], Rows]:
    first, *rest = zip(header, *rows, strict=True)
    return list(first), rest


def _cell(one: ModelMeasures, measure: Measure) -> str:
    if measure.name not in one.values:
        return "–"
    value, ends = measure_texts(one, measure)
    return f"{value} ({ends})"


def inspections_table(result: InspectionComparison) -> "rich.console.Group":
    """Tables of the models and their measures for a console.

    Raises `MissingExtraError` without the extra `report`.

    >>> rich.print(inspections_table(compare_inspections([one, other])))  # doctest: +SKIP
    """
    return table_group(inspections_rows(result))


def inspections_summary(result: InspectionComparison) -> str:
    """Paragraph on the measures that tell the models apart.

    >>> inspections_summary(compare_inspections([one, other]))  # doctest: +SKIP
    'Of 6 measures, 2 tell the models apart: logits explained by positions, ...'
    """
    apart = [m.label for m in MEASURES if result.decided.get(m.name)]
    named = f": {', '.join(apart)}" if apart else ""
    all_models = "the models" if len(result.models) == 2 else "every two models"
    return (
        f"Of {plural(len(result.decided), 'measure')}, {len(apart)} tell {all_models} apart"
        f"{named}. Where intervals overlap, the order of models is not decided."
    )


def view(result: InspectionComparison) -> View:
    """Page of a comparison of inspections."""
    shown = {"summary": inspections_summary(result)}
    tables = inspections_rows(result)
    return View("inspections", shown, [], tables, advice(result), "inspecting-a-model")
