"""Defaults of public functions, methods and fields, as `signatures.json` has them.

A default changes numbers in silence: who changes one on purpose writes the table again, by
`python -m tests.test_signatures`, and the change is seen in review.
"""

import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import jaxpe

TABLE = Path(__file__).with_name("signatures.json")


def modules() -> list[str]:
    """Names of all modules of the library."""
    return sorted(m.name for m in pkgutil.walk_packages(jaxpe.__path__, "jaxpe."))


def shown(value: Any) -> str:
    """A default as text, without addresses in memory; a function by its name."""
    if inspect.isroutine(value) or inspect.isclass(value):
        return f"<{value.__qualname__}>"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def of_function(function: Any) -> dict[str, str]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: shown(p.default) for p in parameters if p.default is not p.empty}


def of_class(kind: type) -> dict[str, str]:
    """Defaults of the fields of a record."""
    if dataclasses.is_dataclass(kind):
        fields = {}
        for field in dataclasses.fields(kind):
            if field.default is not dataclasses.MISSING:
                fields[field.name] = shown(field.default)
            elif field.default_factory is not dataclasses.MISSING:
                fields[field.name] = f"{shown(field.default_factory)}()"
        return fields
    return {name: shown(value) for name, value in getattr(kind, "_field_defaults", {}).items()}


def methods(kind: type) -> dict[str, Any]:
    """Public methods that a class defines, and how it is made where it is no record."""
    record = dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")
    return {
        name: getattr(kind, name)
        for name in vars(kind)
        if name[0] != "_" or (name in ("__init__", "__call__") and not record)
        if inspect.isroutine(inspect.unwrap(getattr(kind, name)))
    }


def defaults() -> dict[str, dict[str, str]]:
    """Defaults of records everywhere, and of functions that packages offer, by public name."""
    found: dict[str, dict[str, str]] = {}
    offered = set()
    imported = {name: importlib.import_module(name) for name in modules()}
    for name, module in imported.items():
        for word in getattr(module, "__all__", ()):
            value = getattr(module, word)
            if inspect.isclass(value) and value.__module__.startswith("jaxpe."):
                offered.add(value)
                found[f"{name}.{word}"] = of_class(value)
                found |= {f"{name}.{word}.{m}": of_function(f) for m, f in methods(value).items()}
            elif inspect.isroutine(inspect.unwrap(value)):
                found[f"{name}.{word}"] = of_function(value)
    for name, module in imported.items():
        for word, value in vars(module).items():
            if inspect.isclass(value) and value.__module__ == name and value not in offered:
                found[f"{name}.{word}"] = of_class(value)
    return {name: found[name] for name in sorted(found) if found[name]}


@pytest.fixture(scope="module")
def tables():
    return json.loads(TABLE.read_text("utf-8")), defaults()


def test_defaults_are_those_of_the_table(tables):
    written, found = tables
    changed = {
        name: (written.get(name), found.get(name))
        for name in sorted(written.keys() | found.keys())
        if written.get(name) != found.get(name)
    }
    assert not changed, "python -m tests.test_signatures writes the table of what is meant"
    assert sum(map(len, found.values())) > 1000


if __name__ == "__main__":
    rows = (f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in defaults().items())
    TABLE.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
