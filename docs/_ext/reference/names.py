"""Every public name of jaxpe, once, under the path that a user would write."""

import ast
import dataclasses
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import jaxpe
from reference import docstrings
from reference.docstrings import Docstring

# Not for scripts: shared machinery, and the command line, which has pages of its own.
HIDDEN = {"jaxpe._core", "jaxpe.cli"}


@dataclasses.dataclass(frozen=True)
class PublicName:
    """A function, class or constant that a package offers.

    Attributes:
        path: its public path, such as `jaxpe.geometry.stress`.
        value: the object.
        module: file that defines it; the package of a constant.
    """

    path: str
    value: Any
    module: str

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


@functools.cache
def public_names() -> tuple[PublicName, ...]:
    """Every name of every package, modules aside, by path."""
    found = []
    for package in packages():
        offered = importlib.import_module(package)
        for name in offered.__all__:
            value = getattr(offered, name)
            if not inspect.ismodule(value) and not name.startswith("__"):
                named = inspect.isclass(value) or inspect.isroutine(value)
                home = value.__module__ if named else package
                found.append(PublicName(f"{package}.{name}", value, home))
    return tuple(sorted(found, key=lambda name: name.path))


@functools.cache
def paths() -> Mapping[str, str]:
    """Paths that documents may name, and the page of each: of names, and of types of results."""
    found = {name.path: name.path for name in public_names()}
    return found | {type_path(t): page for t, page in types_of_results().items()}


@functools.cache
def _by_last_part() -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for path in paths():
        found.setdefault(path.rpartition(".")[2], []).append(path)
    return found


def find(text: str, package: str) -> str | None:
    """The path of a name as a docstring of this package writes it, if it is one's."""
    for path in (text, f"{package}.{text}", f"jaxpe.{text}"):
        if path in paths():
            return path
    places = _by_last_part().get(text, ())
    return places[0] if len(places) == 1 else None


def type_path(value: type) -> str:
    """Under which documents name a type of results."""
    return f"{value.__module__}.{value.__qualname__}"


@functools.cache
def types_of_results() -> Mapping[type, str]:
    """Types that a package does not offer, and the page that describes each.

    That is the page of a public name that returns it or has a part of that type, of the same file
    first.
    """
    public = {id(name.value) for name in public_names()}
    best: dict[type, tuple[int, bool, str]] = {}
    for name in public_names():
        for found, depth in _reached(name.value, public).items():
            rank = depth, found.__module__ != name.module, name.path
            best[found] = min(rank, best.get(found, rank))
    return {found: path for found, (_, _, path) in sorted(best.items(), key=lambda i: i[1])}


def _reached(value: Any, public: Collection[int]) -> Mapping[type, int]:
    """Types without a page that the annotations of a name lead to, and in how many steps."""
    found: dict[type, int] = {}
    level, depth = [value], 0
    while level:
        depth += 1
        seen = [one for part in level for one in _mentioned(part) if _is_own(one, public)]
        level = [one for one in seen if one not in found]
        found |= dict.fromkeys(level, depth)
    return found


def _is_own(value: Any, public: Collection[int]) -> bool:
    """Whether it is a class of jaxpe with fields or methods to describe."""
    return (
        inspect.isclass(value)
        and value.__module__.startswith("jaxpe.")
        and id(value) not in public
        and bool(fields(value) or methods(value))
    )


def _mentioned(value: Any) -> Iterator[Any]:
    """Types in what a name and its methods return, and in its fields."""
    functions = methods(value).values() if inspect.isclass(value) else [value]
    for place in inspect.getmro(value) if inspect.isclass(value) else ():
        for kind in inspect.get_annotations(place).values():
            yield from parts(kind)
    for function in functions:
        function = getattr(function, "fget", None) or getattr(function, "__func__", function)
        yield from parts(getattr(inspect.unwrap(function), "__annotations__", {}).get("return"))


def parts(annotation: Any) -> Iterator[Any]:
    """The annotation and all types inside it."""
    yield annotation
    inside = annotation if isinstance(annotation, list) else get_args(annotation)
    for part in inside:
        yield from parts(part)


def fields(value: type) -> tuple[str, ...]:
    """Fields of a named tuple or a dataclass, of a protocol none."""
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    return tuple(getattr(value, "_fields", ()))


def call_of(value: Any) -> inspect.Signature:
    """Signature of a call, without `self`; a class has its constructor's.

    Raises:
        ValueError, TypeError: what has none.
    """
    if inspect.isclass(value) and any("__init__" in vars(place) for place in bases(value)):
        found = inspect.signature(value.__init__)  # a metaclass, as Flax's, takes anything
        found = found.replace(return_annotation=inspect.Signature.empty)
    else:
        found = inspect.signature(value)
    return found.replace(
        parameters=[p for name, p in found.parameters.items() if name not in ("self", "cls")]
    )


def bases(value: type) -> list[type]:
    """The class and those classes of jaxpe that it inherits from, the most general first."""
    own = [place for place in inspect.getmro(value) if place.__module__.startswith("jaxpe")]
    return own[::-1]


def arguments(value: Any) -> Docstring:
    """The docstring of a function or class; a class without arguments has those of its base."""
    parsed = docstrings.parse(inspect.getdoc(value) or "")
    if inspect.isclass(value) and "Args" not in parsed.entries:
        for place in bases(value):
            inherited = docstrings.parse(inspect.getdoc(place) or "").entries
            if "Args" in inherited:
                parsed.entries = {"Args": inherited["Args"]} | parsed.entries
    return parsed


def methods(value: type) -> dict[str, Any]:
    """Public methods and properties, also of bases, and what a call of an instance does."""
    return {
        name: found
        for place in bases(value)
        for name, found in vars(place).items()
        if (not name.startswith("_") or (name == "__call__" and inspect.getdoc(found)))
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
