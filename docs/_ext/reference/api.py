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
        self._note(path, name.kind, path)
        for other in name.also:
            self._note(other, name.kind, path, aliased=True)
        package = nodes.paragraph("", "", *nodes_of_package(name), classes=["api-home"])
        return [package, *self._described(name)]

    def _note(self, path: str, kind: str, anchor: str, *, aliased: bool = False) -> None:
        self.env.domains.python_domain.note_object(path, kind, anchor, aliased=aliased)

    def _described(self, name: PublicName) -> list[nodes.Node]:
        first = nodes.target("", "", ids=[name.path])
        if name.kind == "data":
            return [first, *constant(name)]
        parsed = docstrings.parse(inspect.getdoc(name.value) or "")
        found = [first, nodes_of.python(signature(name.path, name.value))]
        found += sections(parsed, name.value, name.package)
        found += catalogue.about(name.value, Path(self.env.app.srcdir) / FOLDER)
        if name.kind == "class":
            found += self._members(name)
        return found

    def _members(self, name: PublicName) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        rows = described_fields(name.value)
        for field, _, _ in rows:
            self._note(f"{name.path}.{field}", "attribute", f"{name.path}.{field}")
        if rows:
            found += [
                nodes_of.rubric("Fields"),
                nodes_of.definitions(rows, name.package, name.path),
            ]
        for method, value in names.methods(name.value).items():
            path = f"{name.path}.{method}"
            self._note(path, "property" if isinstance(value, property) else "method", path)
            function = getattr(value, "fget", None) or getattr(value, "__func__", value)
            shown = path if isinstance(value, property) else signature(path, function)
            parsed = docstrings.parse(inspect.getdoc(value) or "")
            found += [nodes.target("", "", ids=[path]), nodes_of.python(shown)]
            found += sections(parsed, function, name.package)
        return found


def nodes_of_package(name: PublicName) -> list[nodes.Node]:
    """Where a name is to be found."""
    home = nodes_of.link(name.package, nodes.literal(name.package, name.package))
    found: list[nodes.Node] = [nodes.Text("In "), home]
    if name.also:
        found.append(nodes.Text("; also as "))
        for k, path in enumerate(name.also):
            found += [nodes.Text(", ")] if k else []
            found.append(nodes.literal(path, path))
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
        parameters = inspect.signature(value).parameters.values()
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
        own = [
            name
            for name in names.public_names()
            if name.package == package or f"{package}.{name.name}" in name.also
        ]
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
