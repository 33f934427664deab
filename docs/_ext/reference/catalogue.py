"""The catalogue of encodings: a table a family, and pictures for the pages of their functions."""

import functools
import inspect
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from jaxpe import encodings
from jaxpe.encodings import Encoding
from jaxpe.encodings.entries import registered_function
from jaxpe.encodings.registry import CatalogueEntry
from reference import docstrings, names, nodes_of
from reference.pictures import draw
from reference.trials import SIZES, trial

HERE = Path(__file__).parents[2]
HEADER, WIDTHS = ["encoding", "what it is", "hooks", "source"], [15, 50, 15, 20]


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


@functools.cache
def entries() -> Mapping[Callable, list[CatalogueEntry]]:
    """Entries of the catalogue by the function that makes them, variants last."""
    found: dict[Callable, list[CatalogueEntry]] = {}
    for entry in sorted(encodings.catalogue(), key=lambda entry: bool(entry.variant_of)):
        found.setdefault(registered_function(entry.name), []).append(entry)
    return found


def about(function: Any, folder: Path) -> list[nodes.Node]:
    """Picture of an encoding, and what other libraries do otherwise, for the page of its function.

    Args:
        function: any public name.
        folder: where the picture is drawn, as `pictures/NAME.png`.
    """
    found: list[nodes.Node] = []
    for entry in entries().get(function, [])[:1]:
        place = folder / "pictures" / f"{entry.name}.png"
        draw(trial(entry), place)
        caption = (
            f"Width {SIZES.dim}, {SIZES.num_heads} heads of {SIZES.head_dim}, initial parameters. "
            f"Dotted: the training length, {SIZES.length}. Logits: the last query to equal keys; "
            "a line is missing where the encoding is not defined. Attention is causal, and shown "
            "by its square root."
        )
        alt = f"{entry.name}: vectors or bias, distances, attention and logits"
        image = nodes.image(uri=f"pictures/{place.name}", alt=alt)
        found.append(nodes.figure("", image, nodes.caption("", caption)))
    for entry in entries().get(function, []):
        if entry.name in peers():
            found.append(nodes_of.rubric("Other libraries"))
            found.append(nodes_of.paragraph(peers()[entry.name], "jaxpe"))
    return found


def function_link(entry: CatalogueEntry) -> nodes.Node:
    """Name of an entry, which leads to the page of its function."""
    function, name = registered_function(entry.name), nodes.literal(entry.name, entry.name)
    target = names.find(function.__name__, "jaxpe.encodings")
    return nodes_of.link(target, name) if target else name


class Catalogue(SphinxDirective):
    """Every encoding, a table a family."""

    def run(self) -> list[nodes.Node]:
        """Make the page."""
        every = encodings.catalogue()
        return [
            nodes.section(
                "",
                nodes.title("", family),
                nodes_of.table(HEADER, [_cells(x) for x in every if x.family == family], WIDTHS),
                ids=[f"family-{family}"],
            )
            for family in dict.fromkeys(entry.family for entry in every)
        ]


def _cells(entry: CatalogueEntry) -> list[list[nodes.Node]]:
    said = docstrings.parse(inspect.getdoc(registered_function(entry.name)) or "").summary
    if entry.variant_of:
        said = f"Variant of `{entry.variant_of}`. {said}"
    used = ", ".join(hooks(entry.first_layer(SIZES))) or "none"
    return [
        [function_link(entry)],
        list(nodes_of.inline(said, "jaxpe.encodings")),
        [nodes.Text(used)],
        [nodes.Text(entry.source or "–")],
    ]
