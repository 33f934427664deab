"""What attention logits are made of: a table, a page, and the numbers as JSON."""

import io
import itertools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxpe._core.folders import output_folder, remove_files
from jaxpe.analysis.attention.result import PARTS, SpectralReport
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
from jaxpe.report.files import write_files
from jaxpe.report.page import template
from jaxpe.report.style import Rendered, render
from jaxpe.report.tables import make_table
from jaxpe.report.words import number, visible

if TYPE_CHECKING:
    import rich.table

SCORES = {
    "accuracy": "accuracy",
    "masked": "minus the loss in nats a masked token",
    "causal": "minus the loss in nats a next token",
    "embedding": "cosine with the embedding that all heads together give",
}


def spectral_table(report: SpectralReport) -> "rich.table.Table":
    """One row a layer: `rich.print(spectral_table(report))`.

    Raises `MissingExtraError` without the extra `report`.
    """
    unit = UNITS[report.facts["score"]]
    header = ["layer", "place", "offset", "Toeplitz\nresidual", "eff.\nrank", "range,\nsym.",
              f"worst drop\n{unit}".strip(), "its\nhead"]  # fmt: skip
    means = report.means
    rows = [
        (
            *position_cells(report, layer),
            number(middle(means.effective_rank[layer])),
            number(middle(means.range[layer])),
            *worst_drop(report, layer),
        )
        for layer in range(len(report.variance.level))
    ]
    title = f"{visible(report.source)}, {visible(report.model)}"
    return make_table(title, header, rows, right=range(1, len(header)))


def write_spectral(report: SpectralReport, directory: str | os.PathLike[str]) -> Path:
    """Write spectral.html, spectral.json, mean_logits.npy and the figures; return the page's path.

    Figures that an earlier report left in the folder go where this one has none of that name.

    Raises `InputError` where the folder cannot be written or another run writes into it, and
    `MissingExtraError` without the extra `report`.
    """
    figures = [render(report, *figure) for figure in shown_figures(report)]
    page = template("spectral.html.j2").render(
        report=report,
        headlines=spectral_headlines(report),
        findings=spectral_findings(report),
        rows=layer_rows(report),
        parts=part_rows(report),
        unit=UNITS[report.facts["score"]],
        figures=figures,
        score=SCORES[report.facts["score"]],
    )
    logits = io.BytesIO()
    np.save(logits, report.means.logits.astype(np.float32))
    files = {
        "mean_logits.npy": logits.getvalue(),
        "spectral.json": _lines(spectral_json(report)).encode(),
        "spectral.html": page.encode(),
    }
    with output_folder(directory) as folder:
        written = write_files(folder, figures, files)
        remove_files(folder, _others(figures))
    return written


def _others(figures: list[Rendered]) -> list[str]:
    """What an earlier report may have drawn and this one has no figure for."""
    others = {name for name, *_ in FIGURES} - {figure.name for figure in figures}
    endings = ("svg", "png")
    return [f"figures/{name}.{ending}" for name, ending in itertools.product(others, endings)]


def spectral_json(report: SpectralReport) -> dict[str, Any]:
    """The report as plain values; numbers that are not finite are null.

    The mean logits themselves are left out, and a complex symbol is a pair of lists.
    """
    means = report.means._asdict()
    del means["logits"]
    means["symbol"] = {"real": means["symbol"].real, "imaginary": means["symbol"].imag}
    variance = report.variance
    fields = report._asdict() | {
        "means": means,
        "variance": variance._asdict() | {"residual": variance.residual},
        "parts": {"names": PARTS} | report.parts._asdict(),
        "embedded": report.embedded._asdict(),
        "pairs": None if report.pairs is None else report.pairs._asdict(),
        "ablations": [drops._asdict() for drops in report.ablations],
    }
    return _plain(fields)


def _plain(value: Any) -> Any:
    """JSON values, numbers to six digits."""
    if isinstance(value, dict):
        return {name: _plain(x) for name, x in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return value


def _lines(fields: dict[str, Any]) -> str:
    """JSON with a line for each entry, and one for each of an entry's own."""

    def entry(name: str, value: Any) -> str:
        if isinstance(value, dict) and len(value) > 1:
            inner = ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            return f"  {json.dumps(name)}: {{\n{inner}\n  }}"
        return f"  {json.dumps(name)}: {json.dumps(value)}"

    return "{\n" + ",\n".join(entry(*item) for item in fields.items()) + "\n}\n"
