"""`jaxpe report`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from tyro.conf import Positional

from jaxpe.analysis.corpus import CorpusOptions, analyse
from jaxpe.cli.pages import page_docstring, run_to_page
from jaxpe.report import encoding_table, summary, summary_table
from jaxpe.report.style import FigureFormat, FigureStyle


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(CorpusOptions):
    __doc__ = page_docstring(CorpusOptions, out="folder for report.html, report.json and figures.")
    source: Positional[str | tuple[str, ...]] = CorpusOptions.source
    out: Path = Path("report")
    figures: FigureFormat = "svg"
    style: FigureStyle = "screen"


def run(words: Sequence[str]) -> None:
    """Measure a corpus, write the report, and print what it says."""
    run_to_page(Command, words, analyse, "Report", summary_table, encoding_table, summary)
