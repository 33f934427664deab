"""`jaxpe audit`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from tyro.conf import Positional

from jaxpe.analysis.audit import AuditOptions, audit
from jaxpe.cli.pages import page_docstring, run_to_page
from jaxpe.report import audit_summary, audit_table
from jaxpe.report.style import FigureFormat, FigureStyle


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(AuditOptions):
    __doc__ = page_docstring(AuditOptions, out="folder for audit.html, audit.json and figures.")
    source: Positional[str | tuple[str, ...]] = AuditOptions.source
    out: Path = Path("audit")
    figures: FigureFormat = "svg"
    style: FigureStyle = "screen"


def run(words: Sequence[str]) -> None:
    """Evaluate the statements, write the report, and print the table."""
    run_to_page(Command, words, audit, "Audit", audit_table, audit_summary)
