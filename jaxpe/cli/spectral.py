"""`jaxpe spectral`."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import rich
from tyro.conf import Positional

from jaxpe import report
from jaxpe._core.folders import output_folder
from jaxpe.analysis.attention import AttentionOptions, analyse
from jaxpe.cli.console import Bars
from jaxpe.cli.parsing import described, parse, plain


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(AttentionOptions):
    source: Positional[str] = AttentionOptions.source
    out: Path = Path("spectral")


Command.__doc__ = described(
    AttentionOptions, out="folder for spectral.html, spectral.json, spectral.npz and figures."
)


def run(words: Sequence[str]) -> None:
    """Take the logits apart, write the report, and print the table."""
    started = time.perf_counter()
    options = parse(Command, words)
    with output_folder(options.out):
        found = analyse(plain(options, AttentionOptions), progress=Bars(Command))
        page = report.write(found, options.out)
    rich.print(report.spectral_table(found))
    print(f"Spectra: {page}   ({time.perf_counter() - started:.0f} s)")
