"""Registration of encodings in the catalogue, each in the file that defines it."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from jaxpe._core.errors import InputError
from jaxpe.encodings.base import Encoding
from jaxpe.encodings.combine import LayerPattern

F = TypeVar("F", bound=Callable[..., Any])


class EncodingSizes(NamedTuple):
    """Sizes of the model that an encoding is built for.

    Attributes:
        dim: width of the token embeddings.
        num_heads: number of attention heads.
        head_dim: width of a head.
        length: number of positions of the training context.
    """

    dim: int = 512
    num_heads: int = 8
    head_dim: int = 64
    length: int = 512

    @property
    def window(self) -> int:
        """A short window for demonstrations: a quarter of the length, at most 8 positions.

        >>> EncodingSizes().window, EncodingSizes(length=12).window
        (8, 3)
        """
        return max(min(self.length // 4, 8), 1)


class CatalogueEntry(NamedTuple):
    """A row of the catalogue.

    Attributes:
        name: name in reports and on the command line.
        family: group in which it is shown; by default the file that defines it.
        make: builds the encoding for given sizes, with defaults otherwise.
        source: who proposed it.
        vectors: description of its position vectors; empty exactly if it has none.
        coordinates: number of coordinates of a position; 1 unless positions are
            `[..., n, coordinates]`.
        fitted: whether it is made from a corpus.
        variant_of: name of the row of which it is a variant (a scaling of `rope`); reports compare
            only that row. Empty for others.
        description: effect in one line; T stands for the training length.
    """

    name: str
    family: str
    make: Callable[[EncodingSizes], Encoding | LayerPattern]
    source: str = ""
    vectors: str = ""
    coordinates: int = 1
    fitted: bool = False
    variant_of: str = ""
    description: str = ""

    def first_layer(self, sizes: EncodingSizes) -> Encoding:
        """The encoding, or the encoding of the first layer where they differ by layer.

        Args:
            sizes: sizes of the encoding.

        >>> smollm3, = catalogue("smollm3")
        >>> smollm3.first_layer(EncodingSizes()).defines("query")
        True
        """
        encoding = self.make(sizes)
        return encoding.at(0) if isinstance(encoding, LayerPattern) else encoding


class Registration(NamedTuple):
    """An entry, and the function that was decorated."""

    entry: CatalogueEntry
    function: Callable[..., Any]


# The only module state of this package: a name on the command line or in a saved configuration must
# lead to a function, possibly of a module outside this package.
_REGISTERED: dict[str, Registration] = {}


def registrations() -> Mapping[str, Registration]:
    """All registered encodings by name, in the order of the catalogue."""
    return _REGISTERED


def register(
    name: str,
    *,
    make: Callable[[EncodingSizes], Any] | None = None,
    family: str | None = None,
    description: str | None = None,
    **fields: Any,
) -> Callable[[F], F]:
    """Decorator that registers an encoding in the catalogue; the function stays unchanged.

    Tables, reports, training and comparisons then accept its name. Of several decorators on one
    function the lowest comes first in the catalogue. Registering again from the same module and
    function replaces the entry, so a module may be reloaded.

    Args:
        name: name in the catalogue.
        make: builds the encoding for given sizes. When None it is the decorated function, called
            with all sizes, or with the sizes that its required keyword-only parameters name.
        family: group in which it is shown; the file of the function when None.
        description: effect in one line; first line of the function's docstring when None.
        fields: other fields of `CatalogueEntry`, such as `source` and `vectors`.

    Raises:
        InputError: a name that exists, or has characters other than letters, digits, "_", "-" and
            ".".

    Register your own encoding in a file `my_module.py`. `my_module:halved` is then valid wherever a
    name of the catalogue is:

    >>> @jaxpe.encodings.register("halved", source="an example")
    ... def halved(sizes):
    ...     return jaxpe.encodings.alibi(num_heads=sizes.num_heads, slopes=0.5)
    >>> [entry.source for entry in jaxpe.encodings.catalogue("halved")]
    ['an example']
    """
    if not re.fullmatch(r"[\w.-]{1,100}", name) or name.endswith(".npz"):
        raise InputError(
            f"an encoding cannot be called {name!r:.120}: pass letters, digits, '_', '-' and '.', "
            "at most 100, and no .npz at the end"
        )

    def add(function: F) -> F:
        earlier = _REGISTERED[name].function if name in _REGISTERED else None
        if earlier and (earlier is function or _full_name(earlier) != _full_name(function)):
            raise InputError(
                f"an encoding {name!r} is registered twice, by {_full_name(earlier)} and by "
                f"{_full_name(function)}: pass another name"
            )
        first_line = (inspect.getdoc(function) or "").partition("\n")[0].rstrip(".")
        entry = CatalogueEntry(
            name,
            family=module_name(function).rpartition(".")[2] if family is None else family,
            make=sizes_adapter(function) if make is None else make,
            description=first_line if description is None else description,
            **fields,
        )
        _REGISTERED[name] = Registration(entry, function)
        return function

    return add


@functools.cache  # so that an entry equals itself when it is resolved again
def sizes_adapter(function: Callable[..., Any]) -> Callable[[EncodingSizes], Any]:
    """The function as a function of `EncodingSizes`, called with the sizes that it names."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is not p.KEYWORD_ONLY for p in parameters):
        return function
    names = [p.name for p in parameters if p.default is p.empty]
    return lambda sizes: function(**{name: getattr(sizes, name) for name in names})


def _full_name(function: Callable[..., Any]) -> str:
    return f"{module_name(function)}.{getattr(function, '__qualname__', repr(function))}"


def module_name(function: Callable[..., Any]) -> str:
    """Name of a function's module; `__main__` for code without a module."""
    return getattr(function, "__module__", None) or "__main__"
