"""Table and page of an attention analysis."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxpe.report.attention import text
from jaxpe.report.attention.advice import advice
from jaxpe.report.attention.figures import FIGURES, shown_figures
from jaxpe.report.page import View, term_links
from jaxpe.report.style import render
from jaxpe.report.tables import make_table
from jaxpe.report.text import number, visible

if TYPE_CHECKING:
    import rich.table

    from jaxpe.analysis.attention import AttentionAnalysis

SCORES = {
    "accuracy": "accuracy",
    "masked": "minus the loss in nats a masked token",
    "causal": "minus the loss in nats a token",
    "embedding": "cosine with the embedding that all heads together give",
}

# Anchor of each term's definition; "noise" means noise of drops.
_TERMS = {
    "logit": "logits",
    "random order": "logits",
    "offset": "logits",
    "Toeplitz": "toeplitz",
    "symbol": "symbol",
    "effective rank": "spectra",
    "content": "parts",
    "Cross terms": "parts",
}


def spectral_table(result: "AttentionAnalysis") -> "rich.table.Table":
    """Table with one row a layer: `rich.print(spectral_table(result))`.

    Raises `MissingExtraError` without the extra `report`.

    >>> rich.print(spectral_table(found))  # doctest: +SKIP
    """
    title = f"{visible(result.source)}, {visible(result.model)}"
    header, rows = _layer_table(result)
    return make_table(title, header, rows, right=range(1, len(header)))


def _layer_table(result: "AttentionAnalysis") -> tuple[list[str], Sequence[tuple[str, ...]]]:
    """Header and rows of the table with one row a layer."""
    unit = text.UNITS[result.facts.score]
    means = result.means
    header = ["layer", "positions\nexplain", "offset\nexplains", "beyond\noffset",
              f"eff. rank\nof {means.logits.shape[-1]}", f"worst drop\n{unit}".strip(),
              "its\nhead"]  # fmt: skip
    rows = [
        (
            *text.position_cells(result, layer),
            number(text.median(means.effective_rank[layer])),
            *text.worst_drop(result, layer),
        )
        for layer in range(len(result.variance.level))
    ]
    return header, rows


def view(result: "AttentionAnalysis") -> View:
    """Page of a spectral analysis."""
    shown = {
        "headlines": text.spectral_headlines(result),
        "summary": text.spectral_summary(result),
        "findings": text.spectral_findings(result),
        "rows": text.layer_rows(result),
        "parts": text.part_rows(result),
        "unit": text.UNITS[result.facts.score],
        "score": SCORES[result.facts.score],
        "link": term_links(_TERMS | ({"noise": "drop"} if result.ablations else {})),
    }
    figures = render(result, *shown_figures(result))
    names = "|".join(name for name, *_ in FIGURES)
    tables = [("Layers", *_layer_table(result))]
    return View("spectral", shown, figures, tables, advice(result), "spectra", names)
