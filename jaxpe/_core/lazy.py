"""Lazy imports of the names of a package (PEP 562)."""

import importlib
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.util import find_spec
from typing import Any


def lazy_names(
    package: str, names: Collection[str], *, within: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that imports its names at their first use.

    Args:
        package: name of the package.
        names: modules of the package, and names that the modules `within` define.
        within: modules to search, in order.

    >>> get, listed = lazy_names("jaxpe", ["spectral", "alibi"], within=["encodings"])
    >>> get("spectral").__name__, get("alibi").__name__, listed()
    ('jaxpe.spectral', 'alibi', ['alibi', 'spectral'])
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if find_spec(f"{package}.{name}"):
            return importlib.import_module(f"{package}.{name}")
        modules = (importlib.import_module(f"{package}.{path}") for path in within)
        value = next(vars(module)[name] for module in modules if name in vars(module))
        setattr(sys.modules[package], name, value)  # further uses do not come to this function
        return value

    return get, lambda: sorted(names)
