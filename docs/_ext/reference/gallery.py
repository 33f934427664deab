"""The gallery: a page for every encoding of the catalogue, made from the catalogue alone."""

import contextlib
import functools
import inspect
import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import jaxpe
from jaxpe.encodings import CatalogueEntry, Encoding, LayerPattern
from jaxpe.encodings.entries import registered_function
from reference import docstrings, names, nodes_of
from reference.pages import signature, stub
from reference.pictures import draw
from reference.trials import SIZES, trial

FOLDER = "gallery"
HERE = Path(__file__).parents[2]
OVERVIEW = HERE / "encodings.txt"  # the table of computed properties, which a test compares
DRAWN: set[Path] = set()  # pictures of this build
HOOKS = {
    "embed": "changes the token embeddings",
    "context": "reads the hidden states of the layer",
    "query": "changes queries",
    "key": "changes keys",
    "products": "replaces inner products of queries and keys",
    "mask": "hides keys",
    "bias": "adds to the logits",
    "value": "adds to the output of attention",
    "vectors": "has position vectors, whose distances the stress measures",
}


def sources() -> Iterator[tuple[str, str]]:
    """Documents and their text."""
    entries = jaxpe.catalogue()
    for entry in entries:
        page = f"{FOLDER}/{entry.name}"
        yield page, stub(entry.name, "encoding-page", entry.name, orphan=True)
    yield f"{FOLDER}/index", stub("Gallery of encodings", "encoding-gallery", "all")


@functools.cache
def overview() -> Mapping[str, Mapping[str, str]]:
    """Rows of the table of computed properties, by the name of the encoding."""
    table = re.search(
        r"^\| encoding \| family .*?(?=\n\n|\Z)", OVERVIEW.read_text("utf-8"), re.M | re.S
    )
    header, _, *rows = (
        [cell.strip() for cell in line.strip().split("|")[1:-1]]
        for line in (table.group().splitlines() if table else ["", ""])
    )
    found = (dict(zip(header, row, strict=True)) for row in rows)
    return {row["encoding"].strip("`"): row for row in found}


def properties(entry: CatalogueEntry) -> Mapping[str, str]:
    """What is computed about it: of the table, or now where that has no such row yet."""
    if entry.name in overview():
        return overview()[entry.name]
    from jaxpe.analysis.properties import PropertyOptions, tabulate
    from jaxpe.report import page

    small = {"dim": 64, "heads": 4, "head_dim": 16, "length": 64}
    made = page(tabulate(PropertyOptions(names=(entry.name,), about="overview", **small)))
    cells = [zip(table.header, table.rows[0], strict=True) for table in made.tables]
    return dict(itertools.chain(*cells))


@functools.cache
def peers() -> Mapping[str, str]:
    """What other libraries do otherwise, by the name of the encoding."""
    return tomllib.loads((HERE / "peers.toml").read_text("utf-8"))


def hooks(encoding: Encoding) -> list[str]:
    """Names of the fields that it defines, those that change nothing left out."""
    defaults = encoding._field_defaults
    return [
        name
        for name in encoding._fields
        if name in defaults
        and callable(defaults[name])
        and name != "init"
        and encoding.defines(name)
    ]


def layers(pattern: LayerPattern) -> str:
    """What acts in each layer of a pattern, as hooks."""
    parts = [", ".join(hooks(part)) or "nothing" for part in pattern.encodings]
    count = len(parts)
    shown = "; ".join(f"{k}: {part}" for k, part in enumerate(parts))
    return f"by layer modulo {count}: {shown}. What follows is of the first."


def picture(entry: CatalogueEntry, folder: Path) -> Path:
    """Path of the picture of an encoding, drawn once a build, with its thumbnail."""
    place = folder / "pictures" / f"{entry.name}.png"
    if place not in DRAWN:
        draw(trial(entry), place, folder / "thumbnails" / place.name)
        DRAWN.add(place)
    return place


class EncodingPage(SphinxDirective):
    """Formula, hooks, parameters, picture, properties, peers, source and code of an encoding."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the page."""
        (entry,) = jaxpe.catalogue(self.arguments[0])
        function = registered_function(entry.name)
        package = "jaxpe.encodings"
        parsed = docstrings.parse(inspect.getdoc(function) or "")
        texts = [block for block in parsed.body if ">>> " not in block]
        found: list[nodes.Node] = [self._facts(entry, function)]
        found += nodes_of.body(docstrings.Docstring(texts, {}), package)
        found += [self._picture(entry), nodes_of.rubric("Computed properties")]
        found.append(self._properties(entry))
        if entry.name in peers():
            found += [
                nodes_of.rubric("Other libraries"),
                nodes_of.paragraph(peers()[entry.name], package),
            ]
        found.append(nodes_of.rubric("Use"))
        found.append(nodes_of.python(self._script(entry)))
        if parsed.entries.get("Args"):
            found += [
                nodes_of.rubric("Arguments"),
                nodes_of.python(signature(function.__name__, function)),
            ]
            rows = [(name, "", text) for name, text in parsed.entries["Args"]]
            found.append(nodes_of.definitions(rows, package))
        return [*found, *self._source(function)]

    def _facts(self, entry: CatalogueEntry, function: Any) -> nodes.Node:
        made = entry.make(SIZES)
        encoding = entry.first_layer(SIZES)
        params = jax.eval_shape(encoding.init, jax.random.key(0))
        leaves = jax.tree_util.tree_leaves_with_path(params)
        shapes = [
            f"{jax.tree_util.keystr(path, simple=True, separator='.') or 'array'} {leaf.shape}"
            for path, leaf in leaves
        ]
        target = names.find(function.__name__, "jaxpe.encodings")
        name = nodes.literal(function.__name__, function.__name__)
        called = nodes_of.link(target, name) if target else name
        used = [f"`{hook}` {HOOKS.get(hook, '')}".strip() for hook in hooks(encoding)]
        variant = f"`{entry.variant_of}`" if entry.variant_of else ""
        rows = [
            ("Family", [nodes.Text(entry.family)]),
            ("Source", [nodes.Text(entry.source or "not given")]),
            *([("Variant of", nodes_of.inline(variant, "jaxpe"))] if variant else []),
            ("Function", [called]),
            *([("Layers", [nodes.Text(layers(made))])] if isinstance(made, LayerPattern) else []),
            ("Hooks", nodes_of.inline("; ".join(used) or "none", "jaxpe.encodings")),
            ("Parameters", [nodes.Text(", ".join(shapes) or "none")]),
            ("Vectors", nodes_of.inline(entry.vectors or "none", "jaxpe.encodings")),
        ]
        cells = [[[nodes.strong(name, name)], value] for name, value in rows]
        return nodes_of.table(["", ""], cells, [20, 80])

    def _picture(self, entry: CatalogueEntry) -> nodes.Node:
        try:
            place = picture(entry, Path(self.env.app.srcdir) / FOLDER)
        except Exception as error:
            said = (
                f"No picture: tried at width {SIZES.dim} and {SIZES.length} positions, it raises "
            )
            return nodes_of.paragraph(f"{said}{type(error).__name__}: {error}", "jaxpe")
        caption = (
            f"Width {SIZES.dim}, {SIZES.num_heads} heads of {SIZES.head_dim}, initial parameters. "
            f"Dotted: the training length, {SIZES.length}. Logits are those of the last query to "
            "equal keys; where a line is missing the encoding is not defined. Attention is causal, "
            "and shown by its square root."
        )
        image = nodes.image(
            uri=f"pictures/{place.name}",
            alt=f"{entry.name}: vectors or bias, distances, "
            "attention, and logits to four times the training length",
        )
        return nodes.figure("", image, nodes.caption("", caption))

    def _properties(self, entry: CatalogueEntry) -> nodes.Node:
        row = properties(entry)
        shown = [name for name in row if name not in ("encoding", "family", "vectors", "source")]
        cells = [[[nodes.Text(name)], nodes_of.inline(row[name], "jaxpe")] for name in shown]
        return nodes_of.table(["", ""], cells, [30, 70])

    def _script(self, entry: CatalogueEntry) -> str:
        first = (
            "import jax, jaxpe\n\n"
            "sizes = jaxpe.EncodingSizes(dim=64, num_heads=4, head_dim=16, length=128)\n"
            f'(entry,) = jaxpe.catalogue("{entry.name}")\n'
        )
        if not isinstance(entry.make(SIZES), LayerPattern):
            return (
                first + "encoding = entry.make(sizes)\nparams = encoding.init(jax.random.key(0))\n"
            )
        return (
            first + "pattern = entry.make(sizes)  # an encoding for each layer\n"
            "encoding = pattern.at(0)\n"
            "# For a model: jaxpe.nn.Decoder(config, layer_encoding=pattern, rngs=rngs)\n"
        )

    def _source(self, function: Any) -> list[nodes.Node]:
        try:
            text = inspect.getsource(function)
        except (OSError, TypeError):
            return []
        opened = nodes.raw("", "<details><summary>Code</summary>", format="html")
        return [opened, nodes_of.python(text), nodes.raw("", "</details>", format="html")]


class Gallery(SphinxDirective):
    """Every encoding, by family, with a thumbnail."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the page."""
        found: list[nodes.Node] = [
            nodes_of.paragraph(
                "Every encoding of the catalogue, with its formula, its hooks, a picture of what "
                "it does, computed properties, and its code. These pages are made from the "
                "catalogue; `register` adds an encoding to it. Thumbnails show vectors of "
                "positions by position, or else the bias of each head, or else its logits, by how "
                "far back the key is.",
                "jaxpe.encodings",
            )
        ]
        entries = jaxpe.catalogue()
        for family in dict.fromkeys(entry.family for entry in entries):
            section = nodes.section(ids=[f"family-{family}"])
            section += nodes.title("", family)
            items = [self._item(entry) for entry in entries if entry.family == family]
            section += nodes.container("", *items, classes=["gallery-grid"])
            found.append(section)
        return found

    def _item(self, entry: CatalogueEntry) -> nodes.Node:
        folder = Path(self.env.app.srcdir) / FOLDER
        thumbnail = f"thumbnails/{entry.name}.png"
        shown: list[nodes.Node] = [nodes.literal(entry.name, entry.name)]
        with contextlib.suppress(Exception):  # its page says why it has no picture
            if not (folder / thumbnail).exists():
                picture(entry, folder)
            shown.insert(0, nodes.image(uri=thumbnail, alt=""))
        link = page_link(f"{entry.name}.html", *shown)
        source = nodes.inline("", f" {entry.source}", classes=["api-type"])
        about = docstrings.parse(inspect.getdoc(registered_function(entry.name)) or "").summary
        said = nodes_of.paragraph(about, "jaxpe.encodings")
        return nodes.container("", nodes.paragraph("", "", link, source), said)


def page_link(address: str, *shown: nodes.Node) -> nodes.reference:
    """Link to a page of the gallery; a reference of Sphinx would show text alone."""
    return nodes.reference("", "", *shown, refuri=address, internal=True)
