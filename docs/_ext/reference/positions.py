"""Positions in released models: a page for each row of `docs/models.json` with a finding."""

import functools
import hashlib
import json
import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.util.docutils import SphinxDirective

from jaxpe.plans import RopeAnalysis, RopeOptions, explain_rope
from jaxpe.plans.result import LayerPlan
from jaxpe.report import drawing
from jaxpe.report.findings import Figure
from jaxpe.report.pages.rope import NOTES, figures_of, kind_text, short_names, tables_of
from reference import nodes_of
from reference.pages import stub

FOLDER = "positions"
DATA = Path(__file__).parents[2] / "models.json"
SEVERITIES = {"wrong": "Wrong", "risk": "Risk", "note": "Note"}
SOURCES = {
    "public config.json": "The numbers are from the public `config.json`.",
    "class defaults": (
        "The numbers are the defaults of the configuration class in transformers 5.24. "
        "A released file may have other numbers."
    ),
}
PROGRAMS = "What programs compute"
DRAWN: dict[tuple[Path, str], Figure] = {}  # figures of this build
INTRODUCTION = (
    "This table has {count} released models on which programs differ, of which users reported "
    "faults, or whose vendor documents longer texts. All is computed by `jaxpe rope`. The page of "
    "a model shows its layers, frequencies, the numbers of each program, and the threads. Models "
    "marked * use the defaults of their class in transformers 5.24, the others their public "
    "`config.json`. The last column names the programs that differ from transformers 5.24."
)
HEADER = [
    "model", "layers that rotate", "base", "entries of a head", "pairs", "scaling", "window",
    "differ",
]  # fmt: skip


class Row(NamedTuple):
    """A model of the data file.

    Attributes:
        title: name, with its size.
        family: models that it stands for.
        hub: name on the Hugging Face hub; empty where it is not certain.
        source: where its numbers are from.
        config: positional fields of its configuration.
        long: what the vendor documents for longer texts: text, sources, and a length or None.
    """

    title: str
    family: str
    hub: str
    source: str
    config: Mapping[str, Any]
    long: Mapping[str, Any] = {}

    @property
    def slug(self) -> str:
        """Name of its page."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@functools.cache
def rows() -> tuple[Row, ...]:
    """Models, sorted by family."""
    found = (Row(**row) for row in json.loads(DATA.read_text("utf-8")))
    return tuple(sorted(found, key=lambda row: (row.family.lower(), row.title.lower())))


def told(row: Row) -> bool:
    """Whether programs differ, users reported a fault, or the vendor says how to read more."""
    result = judged(row.slug)
    return bool(result.differing or row.long) or any(one.references for one in result.findings)


def sources() -> Iterator[tuple[str, str]]:
    """Names of the documents, and their text."""
    for row in filter(told, rows()):
        title = f"Positions in {row.title}"
        yield f"{FOLDER}/{row.slug}", stub(title, "positions-page", row.slug, orphan=True)
    yield f"{FOLDER}/index", stub("Positions in released models", "positions-index", "all")


@functools.cache
def judged(slug: str, length: int | None = None) -> RopeAnalysis:
    """Result of a row."""
    (row,) = (one for one in rows() if one.slug == slug)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / f"{slug}.json"
        place.write_text(json.dumps(row.config, indent=2), "utf-8")
        return explain_rope(RopeOptions(config=str(place), length=length))


def page(row: Row, folder: Path) -> list[nodes.Node]:
    """Page of a model; its figure is written to a folder."""
    result = judged(row.slug)
    found: list[nodes.Node] = [_introduction(row, result)]
    tables = {one.title: (list(one.header), one.rows) for one in tables_of(result)}
    found += [_table(title, *tables[title]) for title in ("Layers", "Other models")
              if title in tables]  # fmt: skip
    found += _figure(row, result, folder)
    programs = [(t, *table) for t, table in tables.items() if t.startswith(PROGRAMS)]
    found += [_table(*table) for table in program_tables(programs)]
    if "Frequencies" in tables:
        found.append(_table("Frequencies", *tables["Frequencies"]))
    found += [*_findings(result), *_long(row), *_file(row)]
    return found


def _introduction(row: Row, result: RopeAnalysis) -> nodes.paragraph:
    name = nodes.literal(row.hub, row.hub)
    link = nodes.reference("", "", name, refuri=f"https://huggingface.co/{row.hub}")
    first = [link, nodes.Text(", model type ")] if row.hub else [nodes.Text("Model type ")]
    text = f"`{result.model_type}`. {SOURCES[row.source]}"
    last = nodes.reference("", "What the columns mean", refuri="index.html#what-the-columns-mean")
    said = nodes_of.inline(text, "jaxpe")
    return nodes.paragraph("", "", *first, *said, nodes.Text(" "), last, nodes.Text("."))


def _figure(row: Row, result: RopeAnalysis, folder: Path) -> list[nodes.Node]:
    """Figure of a model, drawn once for all models with the same frequencies."""
    if result.widest is None:
        return []
    turning = [one for one in result.groups if one.turns]
    content = [(one.name, list(one.unscaled), list(one.frequencies)) for one in turning]
    key = repr((content, result.widest.trained, result.widest.reach))
    name = f"figures/{hashlib.sha256(key.encode()).hexdigest()[:16]}.svg"
    if (folder, name) not in DRAWN:
        (figure,) = (one for one in figures_of(result) if one.name == "wavelengths")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(drawing.image(figure))
        DRAWN[folder, name] = figure
    figure = DRAWN[folder, name]
    image = nodes.image(uri=name, alt=f"{figure.title}: {row.title}", width="30em")
    return [nodes.figure("", image, nodes.caption("", figure.caption))]


def program_tables(tables: list[Any]) -> list[Any]:
    """Tables of programs; a single one if the programs agree on every group."""
    if len(tables) < 2 or any(len(header) != 2 for _, header, _ in tables):
        return tables
    names = [title.removeprefix(f"{PROGRAMS} in ").replace(" layers", "") for title, *_ in tables]
    labels = list(dict.fromkeys(row[0] for *_, cells in tables for row in cells))
    values = [dict(cells) for *_, cells in tables]
    cells = [(label, *(one.get(label, "–") for one in values)) for label in labels]
    return [("What all these programs compute", ["", *names], cells)]


def _table(title: str, header: list[str], cells: Any) -> nodes.section:
    shown = [[[_cell(value)] for value in row] for row in cells]
    return _section(title, nodes_of.table(header, shown, [1] * len(header)))


def _cell(value: str) -> nodes.Node:
    return nodes.strong(value, value) if value.startswith("≠") else nodes.Text(value)


def _section(title: str, *found: nodes.Node) -> nodes.section:
    ids = [re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")]
    return nodes.section("", nodes.title("", title), *found, ids=ids)


def _findings(result: RopeAnalysis) -> list[nodes.Node]:
    """Sections on findings, and on threads about the model type."""
    told = [one for one in result.findings if one.code != "reported"]
    threads = [name for one in result.findings if one.code == "reported" for name in one.references]
    found: list[nodes.Node] = []
    if told:
        listed = nodes.bullet_list()
        for one in told:
            text = [nodes.Text(" "), *nodes_of.inline(f"{one.text} {one.remedy}", "jaxpe")]
            mark = nodes.strong("", f"{SEVERITIES[one.severity]}.")
            met = [nodes.Text(" Reported in "), *_threads(one.references)] if one.references else []
            listed += nodes.list_item("", nodes.paragraph("", "", mark, *text, *met))
        found.append(_section("What to check", listed))
    if threads:
        first = f"Users have reported programs that read `{result.model_type}` wrongly: "
        said = [*nodes_of.inline(first, "jaxpe"), nodes.Text(" "), *_threads(threads)]
        found.append(_section("Known reports", nodes.paragraph("", "", *said)))
    return found


def _threads(names: Any) -> list[nodes.Node]:
    found: list[nodes.Node] = []
    for k, name in enumerate(names):
        end = "." if k == len(names) - 1 else ", "
        repository, _, number = name.partition("#")
        address = f"https://github.com/{repository}/issues/{number}"
        found += [nodes.reference("", name, refuri=address), nodes.Text(end)]
    return found


def _long(row: Row) -> list[nodes.Node]:
    if not row.long:
        return []
    said = nodes_of.paragraph(row.long["text"], "jaxpe")
    said += nodes.Text(" Source: ")
    for k, address in enumerate(row.long["sources"]):
        name = re.sub(r"^https://[^/]+/|/blob/main(?=/)|/$", "", address)
        said += [nodes.Text(", " if k else ""), nodes.reference("", name, refuri=address)]
    said += nodes.Text(".")
    found: list[nodes.Node] = [said]
    length = row.long["length"]
    for recipe in judged(row.slug, length).recipes if length else ():
        text = re.sub(r"\bMODEL\b(?!\.gguf)", row.hub, recipe.text)
        found += _folded(f"{recipe.program}, for {length:,} positions", text)
    return [_section("Longer texts", *found)]


def _file(row: Row) -> list[nodes.Node]:
    text = json.dumps(row.config, indent=2)
    text = re.sub(r"\[[^\[\]{}]*\]", lambda found: " ".join(found.group().split()), text)
    return [_section("Configuration", *_folded("Fields that were judged", text, "json"))]


def _folded(title: str, text: str, language: str = "text") -> list[nodes.Node]:
    opened = nodes.raw("", f"<details><summary>{title}</summary>", format="html")
    shown = nodes.literal_block(text, text, language=language)
    return [opened, shown, nodes.raw("", "</details>", format="html")]


def overview(result: RopeAnalysis) -> list[str]:
    """Cells of a model's row in the table of all models, without its name."""
    moving = [one for one in result.groups if one.turns or one.kind == "axial"]
    every = _joined(result.groups, _window)
    if not moving:
        kinds = _joined(result.groups, lambda one: kind_text(one.kind))
        return [f"none: {kinds}", "–", "–", "–", "–", every or "–", "–"]
    odd = result.differing
    return [
        _rotating(result.groups, moving),
        _joined(moving, lambda one: f"{one.base:,.0f}" if math.isfinite(one.base) else "–"),
        _joined(moving, lambda one: f"{one.turning}\u00a0of\u00a0{one.head_dim}"),
        _joined(moving, lambda one: one.pairing),
        _joined(moving, lambda one: "by axis" if one.kind == "axial" else one.rope_type),
        every or "–",
        short_names(odd) if odd else "none",
    ]


def _rotating(groups: tuple[LayerPlan, ...], moving: list[LayerPlan]) -> str:
    if any(one.layers is None for one in groups):
        return "all" if len(moving) == len(groups) else "some"
    every, some = ({(one.part, k) for one in which for k in one.layers or ()}
                   for which in (groups, moving))  # fmt: skip
    return "all" if every == some else f"{len(some)} of {len(every)}"


def _window(group: LayerPlan) -> str:
    return f"{'±' if group.two_sided else ''}{group.window:,}" if group.window else ""


def _joined(groups: Any, value: Any) -> str:
    return ", ".join(dict.fromkeys(str(found) for one in groups if (found := value(one))))


class PositionsPage(SphinxDirective):
    """Page of a model: plan of layers, figure, programs, findings, threads and recipe."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the page."""
        (row,) = (one for one in rows() if one.slug == self.arguments[0])
        self.env.note_dependency(str(DATA))
        return page(row, Path(self.env.app.srcdir) / FOLDER)


class PositionsIndex(SphinxDirective):
    """Page of all models: a table, and the meanings of the columns."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the page."""
        self.env.note_dependency(str(DATA))
        cells = []
        for row in filter(told, rows()):
            about = {"reftype": "doc", "reftarget": f"/{FOLDER}/{row.slug}", "refexplicit": True}
            link = pending_xref("", refdomain="std", refwarn=True, **about)
            link += nodes.inline(row.title, row.title)
            mark = [nodes.Text(" *")] if row.source == "class defaults" else []
            own = overview(judged(row.slug))
            cells.append([[link, *mark], *([_cell(text)] for text in own)])
        legend = [(name, "", meaning) for name, meaning in NOTES.items()]
        return [
            nodes_of.paragraph(INTRODUCTION.format(count=len(cells)), "jaxpe"),
            nodes_of.table(HEADER, cells, [1] * len(HEADER)),
            _section("What the columns mean", nodes_of.definitions(legend, "jaxpe")),
        ]
