"""`page(result)` for the result of any job, and its files."""

import base64
import contextlib
import csv
import functools
import importlib
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

import jaxpe
from jaxpe._core.errors import require
from jaxpe._core.files import atomic_file, output_folder, remove_files
from jaxpe._core.json_values import to_json
from jaxpe._core.results import result_files
from jaxpe.report.drawing import FigureFormat, FigureStyle, image
from jaxpe.report.findings import (
    Figure,
    Finding,
    Page,
    Table,
    findings_table,
    text_columns,
    used_columns,
)
from jaxpe.report.latex import latex, latex_paragraph, latex_table
from jaxpe.report.numbers import visible

# Module of the page of each result, imported for a result of it: some bring Flax.
_MODULES = {
    "AuditResult": "audit",
    "CorporaComparison": "compared_corpora",
    "CorpusResult": "corpus",
    "ExtrapolationResult": "extrapolation",
    "FindingsComparison": "compared_findings",
    "InspectResult": "inspect",
    "PropertyTable": "encodings",
    "RopeAnalysis": "rope",
    "RunComparison": "compared_runs",
    "StoredCounts": "counts",
    "TrainedRun": "training",
}

_CITED = ("author", "year")  # fields of an entry that a page shows


@functools.singledispatch
def page(result: Any) -> Page:
    """Findings, tables and figures of a result, in sections.

    Args:
        result: result of a job of `jaxpe.analysis`, or of `jaxpe.plans`.

    Raises:
        TypeError: a result without a page.

    >>> page(3)
    Traceback (most recent call last):
    TypeError: int has no page: pass a result of a job, such as ...
    """
    name = type(result).__name__
    if name not in _MODULES:
        known = ", ".join(_MODULES)
        raise TypeError(f"{name} has no page: pass a result of a job, such as {known}")
    importlib.import_module(f"jaxpe.report.pages.{_MODULES[name]}")  # registers it
    return page.dispatch(type(result))(result)


def write(
    result: Any,
    directory: str | os.PathLike[str],
    *,
    figures: FigureFormat = "svg",
    style: FigureStyle = "screen",
    run: Sequence[str] = (),
) -> Path:
    """Write the page of a result, its numbers, tables and figures; return the path of the page.

    A missing folder is created. Everything is drawn and written to temporary files before any file
    takes its name, so a failed run leaves an earlier report unchanged; figures of an earlier report
    are removed. Equal results give equal bytes.

    Args:
        result: result that `page` takes.
        directory: folder for the files.
        figures: format of the figures in files, besides the SVG of the page.
        style: "paper" for files in the width of one or two columns of a paper.
        run: sentences on the run for the paragraph of methods, such as the command.

    Raises:
        InputError: a folder that cannot be written, or that another run writes into.
        MissingExtraError: without the extra `report`.
        TypeError: a result without a page.

    >>> from jaxpe.analysis.corpus import CorpusOptions, analyse
    >>> write(analyse(CorpusOptions(source="synthetic")), "report")  # doctest: +SKIP
    PosixPath('report/report.html')
    """
    with output_folder(directory) as folder:
        shown = page(result)
        images = {each.name: image(each) for each in shown.figures}
        contents = {f"figures/{name}.svg": svg for name, svg in images.items()}
        if (figures, style) != ("svg", "screen"):
            named = ((f"figures/{each.name}.{figures}", each) for each in shown.figures)
            contents |= {name: image(x, format=figures, style=style) for name, x in named}
        text = methods(shown, run)
        texts = table_files(shown) | {
            "methods.md": f"{text}\n",
            "methods.tex": f"{latex_paragraph(text)}\n",
            "references.bib": references(text),
            f"{shown.name}.md": markdown(shown),
            f"{shown.name}.html": html(shown, images, text),
        }
        contents |= {name: text.encode("utf-8", "backslashreplace") for name, text in texts.items()}
        contents |= {name: x for name, x in shown.files.items() if x is not None}
        stale = (_earlier_figures(folder) | shown.files.keys()) - contents.keys()
        with contextlib.ExitStack() as stack:
            # The first that is entered takes its name last, once all are on the disk: the page.
            saved = {} if getattr(result, "in_files", False) else result_files(result, shown.name)
            for name, content in reversed((saved | contents).items()):
                stack.enter_context(atomic_file(folder / name)).write_bytes(content)
        remove_files(folder, stale)
    return folder / f"{shown.name}.html"


def html(page: Page, images: Mapping[str, bytes], methods: str) -> str:
    """A self-contained HTML page, without external files.

    Args:
        page: the page.
        images: SVG of its figures, by name.
        methods: paragraph of methods.
    """
    jinja2 = require("jinja2", extra="report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("jaxpe", "report/templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "visible": visible,
        "prose": _prose,
        "findings": lambda rows: used_columns(findings_with_sentences(rows)),
        "rows": lambda rows: used_columns(findings_table(rows)),
        "texts": text_columns,
        "data_uri": lambda svg: f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}",
    }
    rows = list(settings(page).items())
    return environment.get_template("page.html.j2").render(
        page=page,
        images=images,
        methods=cited(methods),
        settings=Table("Settings", ("setting", "value"), rows),
    )


def markdown(page: Page) -> str:
    """The page as Markdown, without figures.

    >>> print(markdown(Page("p", "Ends", "3 files", [Finding("tokens", 12, unit="count")])))
    # Ends
    <BLANKLINE>
    3 files
    <BLANKLINE>
    | finding | value | 95 % interval | compared with | verdict |
    |---|---|---|---|---|
    | tokens | 12 |  |  |  |
    <BLANKLINE>
    """
    parts = [f"# {visible(page.title, limit=200)}", visible(page.about, limit=400)]
    parts += [markdown_table(findings_with_sentences(page.lead))] if page.lead else []
    for section in page.sections:
        parts += [f"## {section.title}", *([section.note] if section.note else [])]
        if section.findings:
            parts.append(markdown_table(findings_with_sentences(section.findings)))
        for table in section.tables:
            parts += [f"**{table.title}**", markdown_table(table)]
            parts += [table.note] if table.note else []
    for finding in page.steps:
        parts += [finding.todo, *([indent(finding.paste, "    ")] if finding.paste else [])]
    return "\n\n".join(parts) + "\n"


def findings_with_sentences(findings: Sequence[Finding]) -> Table:
    """Findings as a table, with their sentences as the last column if any has one.

    >>> findings_with_sentences([Finding("rank", 3, sentence="Three axes.")]).rows[0]
    ('rank', '3', '', '', '', 'Three axes.')
    """
    table = findings_table(findings)
    if not any(one.sentence for one in findings):
        return table
    rows = [(*row, one.sentence) for row, one in zip(table.rows, findings, strict=True)]
    return table._replace(header=(*table.header, "what it means"), rows=rows)


def table_files(page: Page) -> dict[str, str]:
    """Names and contents of the tables of a page: CSV and LaTeX; findings as JSON too.

    >>> sorted(table_files(Page("p", "", "", [Finding("tokens", 12.0)])))
    ['findings.csv', 'findings.json', 'tables/findings.tex']
    """
    rows = [tuple(to_json(value) for value in finding) for finding in page.findings]
    named = [dict(zip(Finding._fields, row, strict=True)) for row in rows]
    contents = {
        "findings.csv": _csv([Finding._fields, *rows]),
        "findings.json": json.dumps(named, indent=2) + "\n",
    }
    for table in (findings_table(page.findings), *page.tables):
        name = re.sub(r"[^a-z0-9]+", "-", table.title.lower()).strip("-") or "table"
        contents[f"tables/{name}.tex"] = latex_table(table) + "\n"
        if table.title != "Findings":
            contents[f"tables/{name}.csv"] = csv_table(table)
    if page.figures:
        contents["figures/captions.tex"] = "\n".join(map(_caption, page.figures))
    return contents


def methods(page: Page, run: Sequence[str] = ()) -> str:
    """Paragraph of methods in Markdown, with citation keys of `references`.

    Args:
        page: page of a result.
        run: further sentences, such as on the command and the data.

    >>> methods(Page("p", "", ""))
    'Results are of jaxpe [@jaxpe]. Computed with jaxpe ..., JAX ..., NumPy ...'
    """
    from importlib.metadata import version  # slow, and for files alone

    ran = f"jaxpe {jaxpe.__version__}, JAX {version('jax')}, NumPy {version('numpy')}"
    return " ".join([page.methods, f"Computed with {ran}.", *run])


def references(methods: str) -> str:
    """BibTeX entries that a paragraph of methods cites.

    >>> references("Ours [@jaxpe].").startswith("@software{jaxpe,")
    True
    """
    keys = re.findall(r"@(\w+)", methods)
    return "".join(f"{entry}\n" for key, entry in _entries().items() if key in keys)


def cited(methods: str) -> str:
    """A paragraph of methods with authors and years in place of citation keys.

    >>> cited("Sinks [@gu2025; @jaxpe].")
    'Sinks (Gu et al. 2025; The jaxpe authors 2026).'
    """
    return re.sub(
        r"\[(@[^]]+)\]",
        lambda group: f"({re.sub('@(.+?)(?=;|$)', _author_year, group[1])})",
        methods,
    )


def _author_year(key: re.Match[str]) -> str:
    if (entry := _entries().get(key[1])) is None:  # such as of a file's name in the command
        return key[0]
    authors, year = (re.findall(rf"[ ,]{name}={{(.*?)}}[,}}]", entry)[0] for name in _CITED)
    names = [name.split(",")[0].strip("{}") for name in authors.split(" and ")]
    several = len(names) > 2 or names[-1] == "others"
    return f"{names[0]} et al. {year}" if several else f"{' and '.join(names)} {year}"


def _entries() -> dict[str, str]:
    """Lines of references.bib, one an entry, by key."""
    entries = Path(__file__).with_name("references.bib").read_text("utf-8").splitlines()
    return {re.split(r"[{,]", entry)[1]: entry for entry in entries}


def settings(page: Page) -> dict[str, str]:
    """Settings of a page, and the versions that made it."""
    from importlib.metadata import version  # slow, and for files alone

    versions = {name: version(name) for name in ("jax", "numpy")}
    return {**page.settings, "jaxpe": jaxpe.__version__, **versions}


def _prose(text: str) -> Any:
    """Escaped text with code between backticks; invisible characters are named.

    A backtick beside a space is a token of a corpus.
    """
    markup = require("markupsafe", extra="report")
    escaped = str(markup.escape(visible(text, limit=2000) if text else ""))
    return markup.Markup(re.sub(r"`([^`\s](?:[^`]*[^`\s])?)`", r"<code>\1</code>", escaped))


def markdown_table(table: Table) -> str:
    """A table as Markdown.

    >>> print(markdown_table(Table("Sizes", ["corpus", "tokens"], [("a", "12")])))
    | corpus | tokens |
    |---|---|
    | a | 12 |
    """
    rows = [table.header, ["---"] * len(table.header), *table.rows]
    cells = [[visible(str(x), limit=400) if x else "" for x in row] for row in rows]
    lines = [" | ".join(x.replace("|", "\\|") for x in row) for row in cells]
    shown = [f"| {line} |" for line in lines]
    return "\n".join([shown[0], "|" + "---|" * len(table.header), *shown[2:]])


def csv_table(table: Table) -> str:
    r"""A table as CSV, with an ASCII minus sign.

    >>> csv_table(Table("Sizes", ["corpus", "change"], [("a", "−2")]))
    'corpus,change\na,-2\n'
    """
    return _csv([table.header, *table.rows])


def _csv(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [_plain_cell("" if x is None else str(x)) for x in row] for row in rows
    )
    return text.getvalue()


def _plain_cell(cell: str) -> str:
    """A cell for programs: on one line, with an ASCII minus and no commas in numbers."""
    cell = cell.replace("\n", " ").replace("−", "-")
    return cell.replace(",", "") if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", cell) else cell


def _caption(figure: Figure) -> str:
    text = f"{figure.title}. {figure.caption}"
    return f"% {figure.name}\n\\caption{{{latex(text)}}}\n"


def _earlier_figures(folder: Path) -> set[str]:
    """Files of figures that an earlier page has left, named in its captions."""
    captions = folder / "figures" / "captions.tex"
    if not captions.is_file():
        return set()
    names = re.findall(r"^% ([\w-]+)$", captions.read_text("utf-8", "replace"), re.M)
    made = {f"figures/{name}.{kind}" for name in names for kind in ("svg", "png", "pdf")}
    return {name for name in made if (folder / name).exists()}
