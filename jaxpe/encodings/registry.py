"""The catalogue: encodings by name, each registered in the file that defines it."""

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe._core.errors import InputError, nearest
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


def short_window(length: int) -> int:
    """A short window for demonstrations: a quarter of the training length, at most 8 positions.

    >>> short_window(512), short_window(12)
    (8, 3)
    """
    return max(min(length // 4, 8), 1)


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

        >>> smollm3, = catalogue("smollm3")
        >>> smollm3.first_layer(EncodingSizes()).defines("query")
        True
        """
        encoding = self.make(sizes)
        return encoding.at(0) if isinstance(encoding, LayerPattern) else encoding


class _Registered(NamedTuple):
    entry: CatalogueEntry
    function: Callable[..., Any]


# The only module state of this package: a name on the command line or in a saved configuration must
# lead to a function, possibly of a module outside this package.
_REGISTERED: dict[str, _Registered] = {}


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
    ...     return jaxpe.alibi(num_heads=sizes.num_heads, slopes=0.5)
    >>> [entry.source for entry in jaxpe.catalogue("halved")]
    ['an example']
    """
    if not re.fullmatch(r"[\w.-]{1,100}", name) or name.endswith(".npz"):
        raise InputError(
            f"an encoding cannot be called {name!r:.120}: pass letters, digits, '_', '-' and '.', "
            "at most 100, and no .npz at the end"
        )

    def add(function: F) -> F:
        earlier = _REGISTERED.get(name)
        if earlier is not None and (
            earlier.function is function or _full_name(earlier.function) != _full_name(function)
        ):
            raise InputError(
                f"an encoding {name!r} is registered twice, by {_full_name(earlier.function)} and "
                f"by {_full_name(function)}: pass another name"
            )
        first_line = (inspect.getdoc(function) or "").partition("\n")[0].rstrip(".")
        entry = CatalogueEntry(
            name,
            family=_module(function).rpartition(".")[2] if family is None else family,
            make=_sizes_adapter(function) if make is None else make,
            description=first_line if description is None else description,
            **fields,
        )
        _REGISTERED[name] = _Registered(entry, function)
        return function

    return add


@functools.cache  # so that an entry equals itself when it is resolved again
def _sizes_adapter(function: Callable[..., Any]) -> Callable[[EncodingSizes], Any]:
    """The function as a function of `EncodingSizes`, called with the sizes that it names."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is not p.KEYWORD_ONLY for p in parameters):
        return function
    names = [p.name for p in parameters if p.default is p.empty]
    return lambda sizes: function(**{name: getattr(sizes, name) for name in names})


def catalogue(*names: str | CatalogueEntry) -> tuple[CatalogueEntry, ...]:
    """Catalogue entries by name, each as in `resolve`; all registered ones when None.

    Raises:
        InputError: as `resolve`.

    >>> [entry.family for entry in catalogue("rope", "t5")]
    ['rotary', 'bias']
    """
    if names:
        return tuple(map(resolve, names))

    return tuple(registered.entry for registered in _REGISTERED.values())


def registered_function(name: str) -> Callable[..., Any]:
    """The function that defines an encoding of the catalogue, with its docstring.

    Args:
        name: name in the catalogue.

    Raises:
        InputError: an unknown name, as `resolve`.

    >>> registered_function("rope").__name__
    'rope'
    """
    return _REGISTERED[resolve(name).name].function


def resolve(name: str | CatalogueEntry) -> CatalogueEntry:
    """The catalogue entry of a name, a file of vectors, or your own `my_module:my_encoding`.

    An entry is returned unchanged. A name that ends in `.npz` is a file of position vectors, such
    as `report/encoding.npz`.

    In a name with a colon, the part before it is a module, imported as by `python -m my_module`,
    also from the current directory. The part after it is a name that the module registers, a
    `CatalogueEntry`, or a function that returns an `Encoding`. The function takes `EncodingSizes`,
    or the sizes that its keyword-only parameters name. Its hooks are tried once, at the default
    `EncodingSizes`.

    Raises:
        InputError: an unknown name, with the nearest valid one; a module that cannot be imported or
            lacks that name; or an object that is no encoding.

    >>> resolve("alibi").family
    'bias'
    >>> resolve("alibli")
    Traceback (most recent call last):
    jaxpe.InputError: no encoding 'alibli'; did you mean 'alibi'? The encodings are none, ...
    """
    if isinstance(name, CatalogueEntry):
        return name
    if name.endswith(".npz"):
        return _file_entry(name)
    if ":" in name:
        return _checked_entry(_imported_entry(name))
    if name in _REGISTERED:
        return _REGISTERED[name].entry
    near = nearest(name, _REGISTERED)
    suggestion = f"did you mean {near!r}? The" if near else "the"
    raise InputError(
        f"no encoding {name!r}; {suggestion} encodings are {', '.join(_REGISTERED)}, one of your "
        "own is my_module:my_encoding, and one in a file ends in .npz"
    )


def _file_entry(path: str) -> CatalogueEntry:
    """Entry of the position vectors in a file."""
    from jaxpe.encodings.families.vector_files import from_file, read_vectors

    n, k = read_vectors(path).shape
    return CatalogueEntry(
        path,
        family="fitted",
        make=lambda sizes: from_file(path, dim=sizes.dim),
        source="a file",
        vectors=f"{n} rows of the file, {k} wide",
        fitted=True,
    )


def _imported_entry(name: str) -> CatalogueEntry:
    """The entry that `my_module:my_encoding` names; its hooks are not tried yet."""
    module_name, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.append("")  # the current directory, after all installed modules
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InputError(
            f"{name!r}: the module {module_name!r} cannot be imported ({_error_text(error)})"
        ) from error
    registered = _REGISTERED.get(attribute)
    if registered is not None and _module(registered.function) == module_name:
        return registered.entry
    if not hasattr(module, attribute):
        raise InputError(f"{name!r}: the module {module_name} has no {attribute!r}")
    value = getattr(module, attribute)
    if isinstance(value, CatalogueEntry):
        return value
    if not callable(value):
        raise InputError(
            f"{name!r} is {type(value).__name__}, not an encoding: pass a CatalogueEntry, or a "
            "function from jaxpe.EncodingSizes to a jaxpe.Encoding"
        )
    return CatalogueEntry(name, module_name.rpartition(".")[2], _sizes_adapter(value), module_name)


def _checked_entry(entry: CatalogueEntry) -> CatalogueEntry:
    """The entry after a trial of its hooks, with its vectors described if it defines them."""
    from jaxpe.encodings.analysis.hooks import hooks_program  # a circular import otherwise

    sizes = EncodingSizes(length=8)
    try:
        encoding = entry.first_layer(sizes)
        program, shapes = hooks_program(encoding, entry.coordinates, sizes)
        results = jax.eval_shape(program, *shapes)
        if encoding.defines("vectors"):
            results["vectors"] = jax.eval_shape(encoding.vectors, *shapes[:2])
        _check_results(results, sizes)
    except Exception as error:
        raise InputError(f"encoding {entry.name!r} at {sizes}: {_error_text(error)}") from error
    if entry.vectors and "vectors" not in results:
        raise InputError(
            f"encoding {entry.name!r}: `vectors={entry.vectors!r}` describes vectors, and its "
            "Encoding has none: leave the description out, or define the hook"
        )
    return entry._replace(vectors=entry.vectors or "its vectors" * ("vectors" in results))


def _check_results(results: dict[str, Any], sizes: EncodingSizes) -> None:
    """Raise for a hook's result of a wrong dtype or shape."""
    n, heads = sizes.length, sizes.num_heads
    leading = {"embed": (n,), "vectors": (n,), "query": (n, heads), "key": (n, heads)}
    for hook, result in results.items():
        if result is None:
            continue
        if hook in leading:
            expected = (*leading[hook], *result.shape[-1:])
            fits = result.shape == expected
        else:
            expected = (n, heads, sizes.head_dim) if hook == "value" else (heads, n, n)
            fits = np.broadcast_shapes(result.shape, expected) == expected
        kind = jnp.bool_ if hook == "mask" else jnp.floating
        if not fits or not jnp.issubdtype(result.dtype, kind):
            raise ValueError(
                f"`{hook}` returns {result.dtype} {list(result.shape)}, "
                f"not {kind.__name__} {list(expected)}"
            )


def _full_name(function: Callable[..., Any]) -> str:
    return f"{_module(function)}.{getattr(function, '__qualname__', repr(function))}"


def _module(function: Callable[..., Any]) -> str:
    """Name of a function's module; `__main__` for code without a module."""
    return getattr(function, "__module__", None) or "__main__"


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
