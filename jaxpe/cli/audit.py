"""`jaxpe audit`."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import rich
from tyro.conf import Positional

from jaxpe import report
from jaxpe._core.folders import output_folder
from jaxpe.analysis.audit import AuditOptions, audit
from jaxpe.cli.console import Bars
from jaxpe.cli.parsing import described, parse, plain


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(AuditOptions):
    source: Positional[str] = AuditOptions.source
    out: Path = Path("audit")


Command.__doc__ = described(AuditOptions, out="folder for audit.html, audit.json and figures.")


def run(words: Sequence[str]) -> None:
    """Evaluate the statements, write the report, and print the table."""
    started = time.perf_counter()
    options = parse(Command, words)
    with output_folder(options.out):
        found = audit(plain(options, AuditOptions), progress=Bars(Command))
        page = report.write(found, options.out)
    rich.print(report.audit_table(found))
    print(f"Audit: {page}   ({time.perf_counter() - started:.0f} s)")
