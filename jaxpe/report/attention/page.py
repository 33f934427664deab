"""What attention logits are made of: a table and a page."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from jaxpe._core.folders import output_folder
from jaxpe._core.results import result_files
from jaxpe.report.attention.figures import FIGURES, shown_figures
from jaxpe.report.attention.words import (
    UNITS,
    layer_rows,
    middle,
    part_rows,
    position_cells,
    spectral_findings,
    spectral_headlines,
    worst_drop,
)
from jaxpe.report.files import remove_other_figures, write_files
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
    unit = UNITS[result.facts.score]
    header = ["layer", "place", "offset", "Toeplitz\nresidual", "eff.\nrank", "range,\nsym.",
              f"worst drop\n{unit}".strip(), "its\nhead"]  # fmt: skip
    means = result.means
    rows = [
        (
            *position_cells(result, layer),
            number(middle(means.effective_rank[layer])),
            number(middle(means.range[layer])),
            *worst_drop(result, layer),
        )
        for layer in range(len(result.variance.level))
    ]
    title = f"{visible(result.source)}, {visible(result.model)}"
    return make_table(title, header, rows, right=range(1, len(header)))


def write_spectral(result: "AttentionAnalysis", directory: str | os.PathLike[str]) -> Path:
    """Write spectral.html, spectral.json and .npz, and the figures; return the path of the page.

    Figures that an earlier report left in the folder go where this one has none of that name.

    Raises `InputError` where the folder cannot be written or another run writes into it, and
    `MissingExtraError` without the extra `report`.
    """
    figures = [render(result, *figure) for figure in shown_figures(result)]
    page = template("spectral.html.j2").render(
        result=result,
        headlines=spectral_headlines(result),
        findings=spectral_findings(result),
        rows=layer_rows(result),
        parts=part_rows(result),
        unit=UNITS[result.facts.score],
        figures=figures,
        score=SCORES[result.facts.score],
    )
    files = result_files(result, "spectral") | {"spectral.html": page.encode()}
    with output_folder(directory) as folder:
        written = write_files(folder, figures, files)
        remove_other_figures(folder, [name for name, *_ in FIGURES], figures)
    return written
