"""`jaxpe rope`."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import rich
from rich.text import Text
from tyro.conf import Positional

from jaxpe import report
from jaxpe._core.files import output_folder
from jaxpe._core.json_values import to_json
from jaxpe.cli.pages import FIGURE_OPTIONS, print_advice
from jaxpe.cli.parsing import command_docstring, flag_message, parse, plain
from jaxpe.plans import Finding, RopeAnalysis, RopeOptions, explain_rope
from jaxpe.report.rope.text import ROPE_LEGEND, recipe_scope, thread_address
from jaxpe.report.style import FigureFormat, FigureStyle

NOT_JUDGED = 3  # exit code


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(RopeOptions):
    __doc__ = command_docstring(
        RopeOptions,
        json="print only the result, as JSON.",
        explain="explain the columns of the tables.",
        out="folder to write rope.html, rope.json and figures to.",
        **FIGURE_OPTIONS,
    )
    config: Positional[str | None] = None
    json: bool = False
    explain: bool = False
    out: Path | None = None
    figures: FigureFormat = "svg"
    style: FigureStyle = "screen"


def run(words: Sequence[str]) -> None:
    """Read the configuration, print the result, and write the page if `--out` is given."""
    options = parse(Command, words)
    analysis = explain_rope(plain(options, RopeOptions))
    analysis = analysis._replace(findings=tuple(map(_finding_with_flags, analysis.findings)))
    page = None
    if options.out is not None:
        with output_folder(options.out):
            page = report.write(analysis, options.out, figures=options.figures, style=options.style)
    if options.json:
        print(json.dumps(to_json(analysis), indent=2))
    else:
        _print_analysis(analysis, options)
        if page is not None:
            print(f"Page: {page}")
    if analysis.status != "judged":
        sys.exit(NOT_JUDGED)


def _finding_with_flags(finding: Finding) -> Finding:
    return finding._replace(
        text=flag_message(finding.text, Command), remedy=flag_message(finding.remedy, Command)
    )


def _print_analysis(analysis: RopeAnalysis, options: Command) -> None:
    rich.print(report.rope_table(analysis))
    if options.explain:
        for name, meaning in ROPE_LEGEND:
            rich.print(Text(f"{name:>9}  {meaning}"))
        print()
    for one in analysis.findings:
        line = Text(f"{one.severity}: {one.text} {one.remedy}")
        for index, name in enumerate(one.references):
            line.append(", " if index else " (")
            line.append(name, style=f"link {thread_address(name)}")
        rich.print(line.append(")") if one.references else line)
    if options.programs:
        versions = "; ".join(f"{one.name}: {one.versions}" for one in analysis.programs)
        print(f"\nVersions with the same numbers: {versions}.")
    if options.length and options.length <= analysis.context:
        covered = f"The file covers {analysis.context:,} positions: no other settings are needed"
        print(f"\n{covered} for {options.length:,}.")
    if analysis.recipes:
        print(f"\nWhat to do for {analysis.length:,} positions:\n{recipe_scope(analysis)}")
    for recipe in analysis.recipes:
        print(f"\n# {recipe.program}\n{recipe.text}")
    rich.print(Text(f"\n{report.rope_summary(analysis)}"))
    print_advice(analysis)
