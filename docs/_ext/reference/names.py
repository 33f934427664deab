"""Every public name of jaxpe, once, under the path that a user would write."""

import ast
import dataclasses
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jaxpe

# Not for scripts: shared machinery, and the command line, which has pages of its own.
HIDDEN = {"jaxpe._core", "jaxpe.cli"}


@dataclasses.dataclass(frozen=True)
class PublicName:
    """A function, class or constant that a package offers.

    Attributes:
        path: shortest public path, such as `jaxpe.geometry.stress`.
        value: the object.
        module: file that defines it; the package of a constant.
        also: other public paths of the same object.
    """

    path: str
    value: Any
    module: str
    also: tuple[str, ...]

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def package(self) -> str:
        """All but the last part of the path."""
        return self.path.rpartition(".")[0]

    @property
    def kind(self) -> str:
        """Its role in Sphinx's Python domain."""
        if inspect.isclass(self.value):
            return "class"
        return "function" if inspect.isroutine(self.value) else "data"


@functools.cache
def packages() -> tuple[str, ...]:
    """Packages that offer names, in the order of their imports."""
    found = pkgutil.walk_packages(jaxpe.__path__, "jaxpe.")
    names = ["jaxpe", *(module.name for module in found if module.ispkg)]
    return tuple(
        name
        for name in names
        if not any(name == hidden or name.startswith(f"{hidden}.") for hidden in HIDDEN)
        and getattr(importlib.import_module(name), "__all__", ())
    )


def offered() -> Iterator[tuple[str, Any]]:
    """Every public path and what it leads to, packages aside."""
    for package in packages():
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if not inspect.ismodule(value) and not name.startswith("__"):
                yield f"{package}.{name}", value


@functools.cache
def public_names() -> tuple[PublicName, ...]:
    """Each object once; constants, which have no module of their own, by path."""
    places: dict[Any, list[tuple[str, Any]]] = {}
    for path, value in offered():
        named = inspect.isclass(value) or inspect.isroutine(value)
        places.setdefault(id(value) if named else path, []).append((path, value))
    found = []
    for group in places.values():
        # In its package, which says what it is about, before the flat one.
        first, *rest = sorted(
            (path for path, _ in group), key=lambda p: (p.count(".") < 2, p.count("."), p)
        )
        value = group[0][1]
        named = inspect.isclass(value) or inspect.isroutine(value)
        module = value.__module__ if named else first.rpartition(".")[0]
        found.append(PublicName(first, value, module, tuple(rest)))
    return tuple(sorted(found, key=lambda name: name.path))


@functools.cache
def paths() -> dict[str, str]:
    """Every public path, and the path of the page that has it."""
    found = {name.path: name.path for name in public_names()}
    return found | {path: name.path for name in public_names() for path in name.also}


@functools.cache
def short_names() -> dict[str, tuple[str, ...]]:
    """Names without their packages, and the pages they may mean."""
    found: dict[str, list[str]] = {}
    for name in public_names():
        found.setdefault(name.name, []).append(name.path)
    return {name: tuple(places) for name, places in found.items()}


def find(text: str, package: str) -> str | None:
    """The page of a name as a docstring of this package writes it, if it is one's."""
    for path in (text, f"{package}.{text}", f"jaxpe.{text}"):
        if path in paths():
            return paths()[path]
    places = short_names().get(text, ())
    return places[0] if len(places) == 1 else None


def fields(value: type) -> tuple[str, ...]:
    """Fields of a named tuple or a dataclass, of a protocol none."""
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    return tuple(getattr(value, "_fields", ()))


def methods(value: type) -> dict[str, Any]:
    """Public methods and properties that the class itself defines."""
    return {
        name: found
        for name, found in vars(value).items()
        if not name.startswith("_")
        and name not in fields(value)
        and (inspect.isroutine(found) or isinstance(found, property | classmethod | staticmethod))
    }


@functools.cache
def _tree(source_file: str) -> tuple[ast.Module, list[str]]:
    with open(source_file, encoding="utf-8") as file:
        text = file.read()
    return ast.parse(text), text.splitlines()


def field_comments(value: type) -> dict[str, str]:
    """What comments at the end of its line say of a field."""
    found: dict[str, str] = {}
    for place in reversed(value.__mro__):
        if not place.__module__.startswith("jaxpe"):
            continue
        tree, lines = _tree(inspect.getsourcefile(place))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == place.__name__:
                for part in node.body:
                    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                        _, mark, comment = lines[part.end_lineno - 1].rpartition("  # ")
                        if mark:
                            found[part.target.id] = comment.strip()
    return found


def constant_comment(name: PublicName) -> str:
    """The comment above the assignment of a constant, wherever its package has it from."""
    package = importlib.import_module(name.package)
    for source_file in sorted(Path(package.__file__).parent.rglob("*.py")):
        tree, lines = _tree(str(source_file))
        for node in tree.body:
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            if any(getattr(target, "id", None) == name.name for target in targets):
                above, line = [], node.lineno - 2
                while line >= 0 and lines[line].startswith("#"):
                    above.insert(0, lines[line].lstrip("# "))
                    line -= 1
                if above:
                    return " ".join(above)
    return ""
