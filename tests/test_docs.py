"""The site: every public name has a page with text, shapes are as written, pages are found."""

import ast
import importlib
import importlib.util
import inspect
import json
import re
import sys
from pathlib import Path

import pytest

import jaxpe
from jaxpe import encodings

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs" / "_ext"))
from reference import names, pages  # noqa: E402


def offered():
    """Public names, found by their folders."""
    for path in sorted((ROOT / "jaxpe").rglob("__init__.py")):
        if {"_core", "cli"} & set(path.parts):
            continue
        package = path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for name in getattr(importlib.import_module(package), "__all__", ()):
            if not inspect.ismodule(getattr(sys.modules[package], name)) and name[0] != "_":
                yield f"{package}.{name}"


def test_every_public_name_has_a_page():
    documents = {document for document, _ in pages.sources()}
    without = [
        path
        for path in offered()
        if path not in names.paths() or pages.page_name(names.paths()[path]) not in documents
    ]
    assert without == []
    assert len(list(offered())) == len(names.public_names()) > 250


def test_every_public_name_has_one_path():
    values = [name.value for name in names.public_names() if name.kind != "data"]
    assert len({id(value) for value in values}) == len(values)


def test_every_public_name_field_and_method_is_described():
    silent = []
    for name in names.public_names():
        said = name.kind != "data" and inspect.getdoc(name.value)
        silent += [] if said or names.constant_comment(name) else [name.path]
    for value in (*(n.value for n in names.public_names()), *names.types_of_results()):
        if inspect.isclass(value):
            fields, methods = pages.described_fields(value), names.methods(value)
            silent += [f"{value.__name__}.{field}" for field, _, said in fields if not said]
            silent += [f"{value.__name__}.{k}" for k, x in methods.items() if not inspect.getdoc(x)]
    assert silent == []


def test_signatures_show_shapes_as_they_are_written():
    shown = {
        name.path: pages.signature(name.path, name.value)
        for name in names.public_names()
        if inspect.isfunction(name.value)
    }
    machinery = re.compile(r"jaxlib|jaxtyping|Union\[|ndarray\[")
    assert [path for path, text in shown.items() if machinery.search(text)] == []
    assert 'D: Distances | Real[ArrayLike, "n n"]' in shown["jaxpe.geometry.classical_mds"]


def functions():
    """Public functions, and methods of public classes."""
    for name in names.public_names():
        if inspect.isclass(name.value):
            own = any("__init__" in vars(place) for place in names.bases(name.value))
            if own and not names.fields(name.value):
                yield name.path, name.value
            for method, value in names.methods(name.value).items():
                if not isinstance(value, property):
                    yield f"{name.path}.{method}", getattr(value, "__func__", value)
        elif name.kind == "function":
            yield name.path, name.value


def test_every_argument_is_described_by_its_name():
    wrong = []
    for path, function in functions():
        said = names.arguments(function).described("Args")
        parameters = set(names.call_of(function).parameters)
        wrong += [(path, one) for one in parameters ^ {one.lstrip("*") for one in said}]
    assert wrong == []


CLAUSE = re.compile(r"(of|that|as|likewise|wh(at|ich|ere|ose)|how|its|in|at|by|with|from)\b", re.I)


def test_docstrings_of_all_code_begin_with_what_a_thing_is():
    """Private functions and modules too: `help` does not show them, readers of the code do."""
    begun = []
    for path in sorted((ROOT / "jaxpe").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                said = ast.get_docstring(node) or ""
                begun += [f"{path.name}: {said.splitlines()[0]}"] if CLAUSE.match(said) else []
    assert begun == []


def test_peers_are_of_encodings():
    pytest.importorskip("sphinx")
    from reference import catalogue

    assert set(catalogue.peers()) <= {entry.name for entry in encodings.catalogue()}


def test_figures_of_the_front_page_are_those_of_the_stored_report():
    pytest.importorskip("sphinx")
    from reference import examples

    for name, drawn in examples.hero().items():
        kept = (ROOT / "docs" / "images" / name).read_bytes()
        assert kept == drawn, f"docs/images/{name} is old: run `make docs` and commit it"


def test_outputs_shown_are_those_of_the_present_code():
    pytest.importorskip("sphinx")
    from reference import examples

    def lines(text):
        return {" ".join(line.split()) for line in text.splitlines() if line}

    (front,) = re.findall(r"```text\n(base .*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    assert len(lines(front)) >= 5
    assert lines(front) <= lines(examples.output("rope")[0])
    stored = json.loads((ROOT / "experiments/results/stdlib_report.json").read_text("utf-8"))
    shown = lines(examples.output("report", width=116)[0])
    assert shown <= lines("\n".join(stored["summary"]))
    assert len(shown) >= 2 + 5  # header, rule, and cards


# Other senses of words that the glossary avoids.
OTHER_SENSES = {("counting.md", "readers")}


def avoided_words():
    """Words that the glossary avoids, and the term in their place."""
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    term = ""
    for line in text.splitlines():
        term = line if re.match(r"\w", line) else term
        if line.startswith("  *Not:* "):
            yield from ((words, term) for words in line[9:].rstrip(".").split(", "))


def test_one_thing_has_one_name():
    avoided, found = dict(avoided_words()), []
    assert avoided["order violated"] == "violation rate"
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = path.read_text("utf-8") if path.name != "api.md" else ""
        for words, term in avoided.items():
            pattern = rf"\b{re.sub('[0-9]', '[0-9]+', words)}\b".replace(" ", r"\s+")
            if (path.name, words) not in OTHER_SENSES and re.search(pattern, text, re.IGNORECASE):
                found.append(f"{path.name}: “{words}”, which is “{term}”")
    assert found == []


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def imported(text):
    """Paths of names of jaxpe that code imports or writes with the name of their package."""
    for package, listed in re.findall(r"from (jaxpe[\w.]*) import ([\w, ]+)", text):
        yield from (f"{package}.{name.split(' as ')[0]}" for name in listed.split(", "))
    packages = "|".join(sorted(dir(jaxpe)))
    short = re.findall(r"\w+", " ".join(re.findall(r"from jaxpe import ([\w, ]+)", text)))
    for whole, package, name in re.findall(rf"(?<![\w./])(jaxpe\.)?({packages})\.(\w+)\(", text):
        if whole or package in short:
            yield f"jaxpe.{package}.{name}"


@pytest.mark.parametrize("path", [*GUIDES, *NOTEBOOKS], ids=lambda path: path.stem)
def test_examples_use_public_names_alone(path):
    text = path.read_text("utf-8").replace("\\n", "\n")
    offered = {*names.paths(), *names.packages(), *(f"jaxpe.{name}" for name in dir(jaxpe))}
    assert set(imported(text)) <= offered


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_have_their_outputs_and_are_small(path):
    book = json.loads(path.read_text("utf-8"))
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    counts = [cell["execution_count"] for cell in cells]
    assert counts == list(range(1, len(cells) + 1))  # run once, from the first to the last
    outputs = [output for cell in cells for output in cell["outputs"]]
    kinds = {kind for output in outputs for kind in output.get("data", ())}
    assert "image/png" in kinds
    assert not {output["output_type"] for output in outputs} & {"error"}
    assert not {output.get("name") for output in outputs} & {"stderr"}
    assert path.stat().st_size < 150_000
