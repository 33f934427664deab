"""Packages that are imported when they are first asked for."""

import importlib
from collections.abc import Callable, Iterable
from types import ModuleType


def lazy_packages(
    package: str, names: Iterable[str]
) -> tuple[Callable[[str], ModuleType], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that imports those of its names that are modules.

    >>> get, listed = lazy_packages("jaxpe", ["spectral"])
    >>> get("spectral").__name__, listed()
    ('jaxpe.spectral', ['spectral'])
    """
    offered = frozenset(names)

    def get(name: str) -> ModuleType:
        if name not in offered:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(f"{package}.{name}")

    return get, lambda: sorted(offered)
