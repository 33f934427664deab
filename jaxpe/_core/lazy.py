"""Names that are imported when they are first asked for."""

import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any


def lazy_names(
    package: str, names: Iterable[str], *, within: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that imports its names, all of them or modules.

    Args:
        package: name of the package.
        names: names to offer: its modules, and what the modules `within` define.
        within: modules looked through, in their order.

    >>> get, listed = lazy_names("jaxpe", ["spectral", "alibi"], within=["encodings"])
    >>> get("spectral").__name__, get("alibi").__name__, listed()
    ('jaxpe.spectral', 'alibi', ['alibi', 'spectral'])
    """
    offered = frozenset(names)

    def get(name: str) -> Any:
        if name not in offered:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if find_spec(f"{package}.{name}"):
            return importlib.import_module(f"{package}.{name}")
        homes = (importlib.import_module(f"{package}.{module}") for module in within)
        found = next(vars(home)[name] for home in homes if name in vars(home))
        from jaxpe._core.signatures import show_as_written  # brings NumPy

        show_as_written([name], {name: found})
        setattr(sys.modules[package], name, found)  # from now on without this function
        return found

    return get, lambda: sorted(offered)
