"""The architecture: imports go one way, nothing private crosses packages, files stay small."""

import ast
import functools
import graphlib
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import jaxpe

ROOT = Path(jaxpe.__file__).parent

# Each package may import those above it, and itself.
FLOORS = (
    ("_core",),
    ("plans",),
    ("geometry", "conformance"),
    ("encodings",),
    ("ntk", "spectral", "plot"),
    ("theory", "data"),
    ("nn",),
    ("training",),
    ("analysis",),
    ("report",),
    ("cli",),
)
PURE = ("geometry", "encodings", "ntk", "spectral", "theory")
# Subpackages whose private names stay inside them.
DIVIDED = ("analysis", "report", "theory")
# This bound only shrinks.
MOST_CORE_FILES = 12


class Import(NamedTuple):
    file: Path
    module: str
    names: tuple[str, ...]

    @property
    def importer(self) -> tuple[str, ...]:
        return self.file.relative_to(ROOT).with_suffix("").parts


@functools.cache
def imports() -> tuple[Import, ...]:
    """Every import of the package; reading them takes a second."""
    return tuple(_imports())


def _imports() -> Iterator[Import]:
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                yield Import(file, node.module, tuple(alias.name for alias in node.names))
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(file, alias.name, ())


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """The parsed files of the package."""
    return {file: ast.parse(file.read_text("utf-8")) for file in sorted(ROOT.rglob("*.py"))}


def inside() -> tuple[Import, ...]:
    return tuple(found for found in imports() if found.module.split(".")[0] == "jaxpe")


def floor_of(package: str) -> int:
    return next(i for i, floor in enumerate(FLOORS) if package in floor)


def targets(found: Import) -> set[str]:
    """Packages of jaxpe that an import reaches."""
    parts = found.module.split(".")[1:]
    if parts:
        return {parts[0]}
    return {name for name in found.names if (ROOT / name).is_dir()}


def test_every_package_has_a_floor():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == {name for floor in FLOORS for name in floor}


def test_imports_go_one_way():
    upward = [
        (found.file.relative_to(ROOT).as_posix(), found.module)
        for found in inside()
        if len(found.importer) > 1
        for package in targets(found)
        if package != found.importer[0] and floor_of(package) >= floor_of(found.importer[0])
    ]
    assert upward == []


def test_the_view_is_imported_by_the_command_line_alone():
    importers = {found.importer[0] for found in inside() if "report" in targets(found)}
    assert importers <= {"report", "cli"}


def private_to(parts: tuple[str, ...]) -> tuple[str, ...]:
    """The package that a module is of; of divided ones, its folder in it."""
    divided = len(parts) > 1 and parts[0] in DIVIDED and (ROOT / parts[0] / parts[1]).is_dir()
    return parts[: 2 if divided else 1]


def test_nothing_private_is_imported_across_packages():
    crossing = []
    for found in inside():
        parts = tuple(found.module.split(".")[1:])
        private = [name for name in (*parts, *found.names) if re.match(r"_[a-z]", name)]
        private = [name for name in private if name != "_core"]
        if private and private_to(parts) != private_to(found.importer):
            crossing.append((found.file.relative_to(ROOT).as_posix(), found.module, private))
    assert crossing == []


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def runtime_imports(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports at the top and inside functions, but not those for the type checker."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield from runtime_imports(child)


def test_no_files_import_each_other_in_a_circle():
    modules = {module_name(file): tree for file, tree in trees().items()}
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, tree in modules.items():
        for node in runtime_imports(tree):
            for alias in node.names:
                if isinstance(node, ast.Import):
                    graph[name].add(alias.name)
                else:
                    deeper = f"{node.module}.{alias.name}"
                    graph[name].add(deeper if deeper in modules else str(node.module))
    own = {name: (needs & set(modules)) - {name} for name, needs in graph.items()}
    assert list(graphlib.TopologicalSorter(own).static_order())  # raises CycleError


def test_modules_are_short():
    lines = {
        file.relative_to(ROOT).as_posix(): len(file.read_text("utf-8").splitlines())
        for file in trees()
    }
    assert {name for name, count in lines.items() if count > 600} == set()


def length_of(function: ast.FunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    first = function.body[0]
    described = ast.get_docstring(function) is not None
    docstring = first.end_lineno - first.lineno + 1 if described else 0
    return function.end_lineno - function.lineno + 1 - docstring


def test_functions_are_short():
    long = {
        f"{file.relative_to(ROOT).as_posix()}:{node.name}"
        for file, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and length_of(node) > 60
    }
    assert long == set()


def test_the_core_is_small():
    files = [f for f in trees() if f.parent == ROOT / "_core" and f.stem != "__init__"]
    assert len(files) <= MOST_CORE_FILES


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_know_no_framework_and_no_files(package):
    frameworks = {"flax", "optax", "orbax", "tensorflow_datasets", "grain", "matplotlib", "pathlib"}
    found = {
        (found.file.name, found.module)
        for found in imports()
        if found.importer[0] == package and found.module.split(".")[0] in frameworks
    }
    assert found == set()


def test_flags_are_spelt_by_the_command_line_alone():
    spelt = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
    found = [
        (file.relative_to(ROOT).as_posix(), node.value)
        for file, tree in trees().items()
        if file.parent.name not in ("cli", "pages", "_core")  # commands to paste
        if not file.name.endswith("advice.py")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if spelt.search(node.value)
    ]
    assert found == []


def test_few_names_stand_flat():
    assert len(dir(jaxpe)) <= 16
    assert dir(jaxpe) == sorted(jaxpe.__all__)
    assert all(hasattr(jaxpe, name) for name in dir(jaxpe))
    with pytest.raises(AttributeError, match="no attribute 'importlib'"):
        jaxpe.importlib  # noqa: B018


@pytest.mark.parametrize("floor", FLOORS[1:-1], ids=lambda floor: floor[0])
def test_packages_say_what_they_offer(floor):
    for package in floor:
        module = importlib.import_module(f"jaxpe.{package}")
        assert getattr(jaxpe, package) is module
        assert module.__all__ == sorted(set(module.__all__), key=module.__all__.index)
        for name in module.__all__:
            value = getattr(module, name)
            assert not name.startswith("_"), name
            assert inspect.getdoc(value) or not inspect.isroutine(value) | inspect.isclass(value)
