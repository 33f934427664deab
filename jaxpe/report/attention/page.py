"""What attention logits are made of: a table and a page."""

from pathlib import Path
from typing import TYPE_CHECKING

from jaxpe.report.attention import words
from jaxpe.report.attention.figures import FIGURES, shown_figures
from jaxpe.report.files import write_files
from jaxpe.report.page import template
from jaxpe.report.style import render
from jaxpe.report.tables import make_table
from jaxpe.report.words import number, visible

if TYPE_CHECKING:
    import rich.table

    from jaxpe.analysis.attention import AttentionAnalysis

SCORES = {
    "accuracy": "accuracy",
    "masked": "minus the loss in nats a masked token",
    "causal": "minus the loss in nats a next token",
    "embedding": "cosine with the embedding that all heads together give",
}


def spectral_table(result: "AttentionAnalysis") -> "rich.table.Table":
    """One row a layer: `rich.print(spectral_table(result))`.

    Raises `MissingExtraError` without the extra `report`.

    >>> rich.print(spectral_table(found))  # doctest: +SKIP
    """
    unit = words.UNITS[result.facts.score]
    header = ["layer", "place", "offset", "Toeplitz\nresidual", "eff.\nrank", "range,\nsym.",
              f"worst drop\n{unit}".strip(), "its\nhead"]  # fmt: skip
    means = result.means
    rows = [
        (
            *words.position_cells(result, layer),
            number(words.middle(means.effective_rank[layer])),
            number(words.middle(means.range[layer])),
            *words.worst_drop(result, layer),
        )
        for layer in range(len(result.variance.level))
    ]
    title = f"{visible(result.source)}, {visible(result.model)}"
    return make_table(title, header, rows, right=range(1, len(header)))


def write_spectral(result: "AttentionAnalysis", folder: Path, *, png: bool = False) -> Path:
    """Write spectral.html, spectral.json and .npz, and the figures; return the path of the page."""
    figures = [render(result, *figure) for figure in shown_figures(result)]
    page = template("spectral.html.j2").render(
        result=result,
        headlines=words.spectral_headlines(result),
        findings=words.spectral_findings(result),
        rows=words.layer_rows(result),
        parts=words.part_rows(result),
        unit=words.UNITS[result.facts.score],
        figures=figures,
        score=SCORES[result.facts.score],
    )
    names = "|".join(name for name, *_ in FIGURES)
    return write_files(folder, "spectral", result, page, figures, png=png, others=names)
