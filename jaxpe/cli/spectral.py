"""`jaxpe spectral`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from tyro.conf import Positional

from jaxpe.analysis.attention import AttentionOptions, analyse
from jaxpe.cli.pages import page_docstring, run_to_page
from jaxpe.report import spectral_summary, spectral_table
from jaxpe.report.style import FigureFormat, FigureStyle


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(AttentionOptions):
    __doc__ = page_docstring(
        AttentionOptions, out="folder for spectral.html, spectral.json, spectral.npz and figures."
    )
    source: Positional[str | tuple[str, ...]] = AttentionOptions.source
    out: Path = Path("spectral")
    figures: FigureFormat = "svg"
    style: FigureStyle = "screen"


def run(words: Sequence[str]) -> None:
    """Take the logits apart, write the report, and print the table."""
    run_to_page(Command, words, analyse, "Spectra", spectral_table, spectral_summary)
