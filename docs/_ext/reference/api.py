"""The reference: a page for every public name, and one for every package that lists them."""

import importlib
import inspect
import itertools
import textwrap
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from reference import catalogue, docstrings, names, nodes_of
from reference.names import PublicName
from reference.pages import FOLDER, described_fields, signature
from reference.signatures import written


class NamePage(SphinxDirective):
    """Signature, docstring, fields and methods of a public name."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the page."""
        path = self.arguments[0]
        name = next(found for found in names.public_names() if found.path == path)
        self.note(path, name.kind)
        home = nodes_of.link(name.package, nodes.literal(name.package, name.package))
        package = nodes.paragraph("", "In ", home, classes=["api-home"])
        target = nodes.target("", "", ids=[path])
        if name.kind == "data":
            return [package, target, *constant(name)]
        shown = nodes_of.python(signature(path, name.value))
        return [package, target, shown, *self.described(name), *self.types(name)]

    def note(self, path: str, kind: str) -> None:
        """Make a path a target of links to this page."""
        self.env.domains.python_domain.note_object(path, kind, path)

    def described(self, name: PublicName) -> list[nodes.Node]:
        """Docstring, pictures of an encoding, fields and methods."""
        found = sections(names.arguments(name.value), name.value, name.package)
        found += catalogue.about(name.value, Path(self.env.app.srcdir) / FOLDER)
        return found + (self.members(name.value, name.path) if name.kind == "class" else [])

    def types(self, name: PublicName) -> list[nodes.Node]:
        """Types of its results that no package offers."""
        found: list[nodes.Node] = []
        for value, page in names.types_of_results().items():
            if page == name.path:
                path = names.type_path(value)
                self.note(path, "class")
                parsed = docstrings.parse(inspect.getdoc(value) or "")
                title = nodes.rubric("", "", nodes.literal(value.__name__, value.__name__))
                found += [nodes.target("", "", ids=[path]), title]
                found += sections(parsed, value, name.package)
                found += self.members(value, path)
        return found

    def members(self, value: type, place: str) -> list[nodes.Node]:
        """Fields and methods of a class."""
        found: list[nodes.Node] = []
        package = place.rpartition(".")[0]
        rows = described_fields(value)
        for field, _, _ in rows:
            self.note(f"{place}.{field}", "attribute")
        if rows:
            found += [nodes_of.rubric("Fields"), nodes_of.definitions(rows, package, place)]
        for method, made in names.methods(value).items():
            path = f"{place}.{method}"
            self.note(path, "property" if isinstance(made, property) else "method")
            function = getattr(made, "fget", None) or getattr(made, "__func__", made)
            short = f"{value.__name__}.{method}"
            shown = short if isinstance(made, property) else signature(short, function)
            parsed = docstrings.parse(inspect.getdoc(made) or "")
            found += [nodes.target("", "", ids=[path]), nodes_of.python(shown)]
            found += sections(parsed, function, package)
        return found


def constant(name: PublicName) -> list[nodes.Node]:
    """Type or value of a constant, and the comment above it."""
    value = name.value
    plain = isinstance(value, bool | int | float | str) or (
        isinstance(value, tuple) and all(isinstance(part, str) for part in value)
    )
    if plain:
        text = f"{name.path} = {value!r}"
    elif isinstance(value, dict | tuple):
        listed = [getattr(part, "name", None) or str(part) for part in value]
        text = f"{name.path}  # {len(listed)} entries\n" + "".join(f"# {part}\n" for part in listed)
    else:
        text = f"{name.path} = {written(value)}"
    text = "\n".join(textwrap.wrap(text, 76)) if "\n" not in text else text
    said = names.constant_comment(name)
    found: list[nodes.Node] = [nodes_of.python(text)]
    return [*found, nodes_of.paragraph(said, name.package)] if said else found


def sections(parsed: docstrings.Docstring, value: Any, package: str) -> list[nodes.Node]:
    """A docstring: the first paragraphs, arguments and errors, then examples."""
    texts = [block for block in parsed.body if ">>> " not in block]
    shown = [block for block in parsed.body if ">>> " in block]
    found = nodes_of.body(docstrings.Docstring(texts, {}), package)
    for section, entries in parsed.entries.items():
        if section == "Attributes":
            continue
        kinds = _kinds(value) if section == "Args" else {}
        rows = [(names_, kinds.get(names_, ""), text) for names_, text in entries]
        title = {"Args": "Arguments"}.get(section, section)
        found += [nodes_of.rubric(title), nodes_of.definitions(rows, package)]
    if shown:
        found.append(nodes_of.rubric("Example" if len(shown) == 1 else "Examples"))
        found += nodes_of.body(docstrings.Docstring(shown, {}), package)
    return found


def _kinds(value: Any) -> dict[str, str]:
    try:
        parameters = names.call_of(value).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {p.name: written(p.annotation) for p in parameters if p.annotation is not p.empty}


class PackagePage(SphinxDirective):
    """What a package is about, and its names by the file that defines them."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the page."""
        package = self.arguments[0]
        domain = self.env.domains.python_domain
        domain.note_object(package, "module", package)
        domain.note_module(package, package, "", "", False)
        module = importlib.import_module(package)
        parsed = docstrings.parse(inspect.getdoc(module) or "")
        found: list[nodes.Node] = [nodes.target("", "", ids=[package])]
        found += nodes_of.body(parsed, package)
        own = [name for name in names.public_names() if name.package == package]
        order = sorted(own, key=lambda name: (name.kind == "data", name.module, name.name))
        for home, group in itertools.groupby(order, key=lambda name: name.module):
            about = inspect.getdoc(importlib.import_module(home)) or home
            title = docstrings.parse(about).summary if home != package else "Constants"
            section = nodes.section(ids=[f"of-{home}"], classes=["api-group"])
            section += nodes.title("", "", *nodes_of.inline(title.rstrip("."), package))
            listed = nodes.definition_list(classes=["api-fields"])
            listed += [_item(name) for name in group]
            section += listed
            found.append(section)
        return found


def _item(name: PublicName) -> nodes.definition_list_item:
    shown = nodes_of.link(name.path, nodes.literal(name.name, name.name))
    if name.kind == "data":
        said = names.constant_comment(name)
    else:
        said = docstrings.parse(inspect.getdoc(name.value) or "").summary
    about = nodes.definition("", nodes_of.paragraph(said, name.package))
    return nodes.definition_list_item("", nodes.term("", "", shown), about)
