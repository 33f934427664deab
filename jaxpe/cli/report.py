"""`jaxpe report`."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import rich
from rich.console import Console
from tyro.conf import Positional

from jaxpe import report
from jaxpe._core.folders import output_folder
from jaxpe.analysis.corpus import CorpusOptions, analyse
from jaxpe.cli.console import Bars
from jaxpe.cli.parsing import described, parse, plain


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(CorpusOptions):
    source: Positional[str] = CorpusOptions.source
    out: Path = Path("report")


Command.__doc__ = described(CorpusOptions, out="folder for report.html, report.json and figures.")


def run(words: Sequence[str]) -> None:
    """Measure a corpus, write the report, and print what it says."""
    started = time.perf_counter()
    options = parse(Command, words)
    with output_folder(options.out):
        found = analyse(plain(options, CorpusOptions), progress=Bars(Command))
        page = report.write(found, options.out)
    rich.print(report.summary_table(found))
    rich.print(report.encoding_table(found))
    Console(highlight=False).print(report.findings(found)[0], markup=False)
    print(f"\nReport: {page}   ({time.perf_counter() - started:.0f} s)")
