"""The catalogue: encodings by name, each registered in the file that defines it."""

import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, TypeVar, get_origin, get_type_hints

import jax

from jaxpe._core.errors import InputError, nearest
from jaxpe.encodings.base import Encoding
from jaxpe.encodings.checks import checked_hooks
from jaxpe.encodings.combine import LayerPattern

F = TypeVar("F", bound=Callable[..., Any])

# Modules of this package whose entries come first, in this order; those of others follow in the
# order of their registration.
_FILES = (
    "base", "absolute", "orthogonal", "rotary", "lie", "waves", "offsets", "temperature",
    "bias", "relative", "disentangled", "hidden", "visible", "by_layer",
)  # fmt: skip
_ORDER = tuple(f"jaxpe.encodings.{name}" for name in _FILES)


class EncodingSizes(NamedTuple):
    """The model an encoding is built for.

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


def short(length: int) -> int:
    """A window that shows in few tokens: a quarter of the training length, at most 8 positions.

    >>> short(512), short(12)
    (8, 3)
    """
    return max(min(length // 4, 8), 1)


class CatalogueEntry(NamedTuple):
    """A row of the catalogue.

    Attributes:
        name: name in reports and on the command line.
        family: absolute, orthogonal, rotary, bias or relative: the file it is in. Of an encoding
            defined elsewhere the name of its module, unless another is given.
        make: builds the encoding for given sizes, with defaults otherwise.
        source: who proposed it.
        vectors: description of its position vectors; empty where it has none, and only there.
        coordinates: number of coordinates of a position; 1 unless positions are
            `[..., n, coordinates]`.
        fitted: whether it is made from a corpus.
        variant_of: name of the row that it is with other numbers (a scaling of `rope`); reports
            compare that one. Empty for others.
    """

    name: str
    family: str
    make: Callable[[EncodingSizes], Encoding | LayerPattern]
    source: str
    vectors: str = ""
    coordinates: int = 1
    fitted: bool = False
    variant_of: str = ""

    def in_one_layer(self, sizes: EncodingSizes) -> Encoding:
        """The encoding of the first layer, where encodings differ by layer; else the encoding.

        >>> smollm3, = catalogue("smollm3")
        >>> smollm3.in_one_layer(EncodingSizes()).defines("query")
        True
        """
        made = self.make(sizes)
        return made.at(0) if isinstance(made, LayerPattern) else made


class _Registered(NamedTuple):
    entry: CatalogueEntry
    function: Callable[..., Any]


# The one state of a module in this package: a name given on the command line or in a saved
# configuration has to lead to a function, also to one of a module that this package has not seen.
_REGISTERED: dict[str, _Registered] = {}


def register(
    name: str,
    *,
    make: Callable[[EncodingSizes], Any] | None = None,
    family: str | None = None,
    source: str = "",
    vectors: str = "",
    coordinates: int = 1,
    fitted: bool = False,
    variant_of: str = "",
) -> Callable[[F], F]:
    """Decorator that puts an encoding into the catalogue, and leaves the function as it is.

    Tables, reports, training and comparisons know it by its name from then on. Of several on one
    function the lowest is the first in the catalogue. Registering again from the same place, as a
    module that is reloaded does, replaces the entry.

    Args:
        name: name in the catalogue.
        make: builds the encoding for given sizes. When None it is the decorated function, given
            all sizes, or only those that are named as its required keyword-only parameters.
        family: family of encodings that are shown together; the file of the function when None.
        source, vectors, coordinates, fitted, variant_of: fields of `CatalogueEntry`.

    Raises:
        ValueError: for a name that is taken, or is not of letters, digits, "_", "-" and ".".
        InputError: for a field of another type.

    An encoding of one's own, in a file `my_module.py`. Wherever a name of the catalogue is asked
    for, `my_module:halved` now stands for it:

    >>> @jaxpe.encodings.register("halved", source="an example")
    ... def halved(sizes):
    ...     return jaxpe.alibi(num_heads=sizes.num_heads, slopes=0.5)
    >>> [entry.source for entry in jaxpe.catalogue("halved")]
    ['an example']
    """
    unmade = make or (lambda sizes: Encoding())  # until the function is known
    given = CatalogueEntry(
        name, family or "", unmade, source, vectors, coordinates, fitted, variant_of
    )
    _check_fields(given)

    def add(function: F) -> F:
        known = _REGISTERED.get(name)
        if known is not None and (
            known.function is function or _place(known.function) != _place(function)
        ):
            raise ValueError(
                f"an encoding {name!r} is registered twice, by {_place(known.function)} and by "
                f"{_place(function)}: pass another name"
            )
        module = _module(function)
        entry = given._replace(
            family=module.rpartition(".")[2] if family is None else family,
            make=_from_sizes(function) if make is None else make,
        )
        if not module.startswith("jaxpe."):
            entry = entry._replace(make=_CheckedMake(entry.make, name, vectors))
        _REGISTERED[name] = _Registered(entry, function)
        return function

    return add


def _check_fields(entry: CatalogueEntry) -> None:
    """Raise `InputError` for a field of a wrong type or range, or a name that is no file's."""
    for field, kind in get_type_hints(CatalogueEntry).items():
        value, kind = getattr(entry, field), get_origin(kind) or kind
        if not isinstance(value, kind) or (field == "coordinates" and value < 1):
            raise InputError(
                f"encoding {entry.name!r}: `{field}={value!r}` is to be "
                f"{'at least 1' if kind is int else f'a {kind.__name__}'}"
            )
    if not re.fullmatch(r"[\w.-]{1,100}", entry.name) or entry.name.endswith(".npz"):
        raise InputError(
            f"an encoding cannot be called {entry.name!r:.120}: pass letters, digits, '_', '-' and "
            "'.', at most 100, and no .npz at the end"
        )


@dataclasses.dataclass(frozen=True)
class _CheckedMake:
    """Function from sizes to an encoding of one's own, with errors that name it."""

    function: Callable[[EncodingSizes], Any]
    name: str
    vectors: str

    def __call__(self, sizes: EncodingSizes) -> Encoding | LayerPattern:
        try:
            made = self.function(sizes)
        except Exception as error:
            raise InputError(
                f"{self.name!r} gives no encoding for {sizes} ({_kind(error)}: {error})"
            ) from error
        if not isinstance(made, Encoding | LayerPattern):
            raise InputError(f"{self.name!r} makes {_kind(made)}: have it return a jaxpe.Encoding")
        layers = made.encodings if isinstance(made, LayerPattern) else (made,)
        if self.vectors and not layers[0].defines("vectors"):
            raise InputError(
                f"encoding {self.name!r}: `vectors={self.vectors!r}` describes vectors, and "
                "its Encoding has none: leave the description out, or define the hook"
            )
        checked = tuple(checked_hooks(layer, self.name) for layer in layers)
        return LayerPattern(checked) if isinstance(made, LayerPattern) else checked[0]


def _from_sizes(function: Callable[..., Any]) -> Callable[[EncodingSizes], Any]:
    """The function where it takes sizes as one argument, else called with those it names."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is not p.KEYWORD_ONLY for p in parameters):
        return function
    names = [p.name for p in parameters if p.default is p.empty]
    return lambda sizes: function(**{name: getattr(sizes, name) for name in names})


def catalogue(*names: str | CatalogueEntry) -> tuple[CatalogueEntry, ...]:
    """The entries of these names, each as `resolve` takes it, or all that are registered.

    Raises:
        InputError: as `resolve`.

    >>> [entry.family for entry in catalogue("rope", "t5")]
    ['rotary', 'bias']
    """
    if names:
        return tuple(map(resolve, names))

    def place(found: _Registered) -> int:
        module = _module(found.function)
        return _ORDER.index(module) if module in _ORDER else len(_ORDER)

    return tuple(found.entry for found in sorted(_REGISTERED.values(), key=place))


def registered_function(name: str) -> Callable[..., Any]:
    """The function that an encoding of the catalogue is registered on, with its docstring.

    Args:
        name: name in the catalogue.

    Raises:
        InputError: an unknown name, as `resolve`.

    >>> registered_function("rope").__name__
    'rope'
    """
    return _REGISTERED[resolve(name).name].function


def resolve(name: str | CatalogueEntry) -> CatalogueEntry:
    """The encoding of a name: of the catalogue, of a file, or `my_module:my_encoding` of one's own.

    An entry is returned as it is. A name that ends in `.npz` is a file of position vectors, such as
    `report/encoding.npz`.

    Of a name with a colon the module is imported, also from the current directory, as
    `python -m my_module` would. Behind the colon stands a name that it registers, a
    `CatalogueEntry`, or a function from `EncodingSizes`, or from those sizes that its keyword-only
    parameters name, to an `Encoding`; it is called once, at `EncodingSizes()`, to see that it gives
    one.

    Raises:
        InputError: an unknown name, with the nearest known one; a module that cannot be imported or
            has nothing of that name; or something that is no encoding.

    >>> resolve("alibi").family
    'bias'
    >>> resolve("alibli")
    Traceback (most recent call last):
    jaxpe.InputError: no encoding 'alibli'; did you mean 'alibi'? The encodings are none, ...
    """
    if isinstance(name, CatalogueEntry):
        return name
    if name.endswith(".npz"):
        return _of_file(name)
    if ":" in name:
        return _own(name)
    if name in _REGISTERED:
        return _REGISTERED[name].entry
    known = [entry.name for entry in catalogue()]
    near = nearest(name, known)
    meant = f"did you mean {near!r}? The" if near else "the"
    raise InputError(
        f"no encoding {name!r}; {meant} encodings are {', '.join(known)}, one of your own is "
        "my_module:my_encoding, and one in a file ends in .npz"
    )


def _of_file(path: str) -> CatalogueEntry:
    """The encoding whose vectors a file holds, which is read now."""
    from jaxpe.encodings.families.vector_files import of_vectors, read_vectors

    P = read_vectors(path)
    n, k = P.shape
    return CatalogueEntry(
        path,
        "fitted",
        lambda sizes: of_vectors(P, place=path, dim=sizes.dim),
        "a file",
        f"{n} rows of the file, {k} wide",
        fitted=True,
    )


def _own(name: str) -> CatalogueEntry:
    """The encoding that `my_module:my_encoding` names."""
    place, _, attribute = name.partition(":")
    module = _imported(place, name)
    known = _REGISTERED.get(attribute)
    if known is not None and _module(known.function) == place:
        return _tried(known.entry)
    if not hasattr(module, attribute):
        raise InputError(f"{name!r}: the module {place} has no {attribute!r} ({module.__file__})")
    found = getattr(module, attribute)
    if isinstance(found, CatalogueEntry):
        _check_fields(found)
        return _tried(found._replace(make=_CheckedMake(found.make, found.name, found.vectors)))
    if isinstance(found, str) and found in _REGISTERED:
        return _tried(_REGISTERED[found].entry)
    if not callable(found):
        raise InputError(
            f"{name!r} is {_kind(found)}, not an encoding: pass a CatalogueEntry, or a function "
            "from jaxpe.EncodingSizes to a jaxpe.Encoding"
        )
    make = _CheckedMake(_from_sizes(found) if inspect.isfunction(found) else found, name, "")
    return _tried(CatalogueEntry(name, place.rpartition(".")[2], make, place))


def _imported(place: str, name: str) -> ModuleType:
    """A module, from where Python looks for modules or else from the current directory."""
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if not _is_of(place, error):
            raise _not_imported(place, name, error) from error
    except Exception as error:
        raise _not_imported(place, name, error) from error
    # "" is the current directory. At the end, so that no file in it stands before an installed
    # module; and left there, where it helps, for what the module itself imports later.
    sys.path.append("")
    importlib.invalidate_caches()
    try:
        return importlib.import_module(place)
    except Exception as error:
        sys.path.pop()
        if isinstance(error, ModuleNotFoundError) and _is_of(place, error):
            raise InputError(
                f"{name!r}: there is no module {place!r}, neither installed nor in this folder"
            ) from error
        raise _not_imported(place, name, error) from error


def _is_of(place: str, error: ModuleNotFoundError) -> bool:
    """Whether the name of a missing module is this one or a package that it is in."""
    return error.name is not None and f"{place}.".startswith(f"{error.name}.")


def _not_imported(place: str, name: str, error: Exception) -> InputError:
    return InputError(
        f"{name!r}: the module {place!r} cannot be imported ({_kind(error)}: {error})"
    )


def _tried(entry: CatalogueEntry) -> CatalogueEntry:
    """The entry where its hooks can be called, with a word on its vectors where it has some."""
    from jaxpe.encodings.analysis.hooks import hooks_program  # which imports this module

    sizes = EncodingSizes()
    encoding = entry.in_one_layer(sizes)
    try:
        program, shapes = hooks_program(encoding, entry.coordinates, sizes._replace(length=8))
        jax.eval_shape(program, *shapes)
        if not encoding.defines("vectors"):
            return entry
        jax.eval_shape(encoding.vectors, *shapes[:2])
    except InputError:
        raise
    except Exception as error:
        fields = "`init`, `context`" if encoding.defines("context") else "`init`"
        raise InputError(f"encoding {entry.name!r}: {fields}: {_kind(error)}: {error}") from error
    return entry if entry.vectors else entry._replace(vectors="its vectors")


def _place(function: Callable[..., Any]) -> str:
    return f"{_module(function)}.{getattr(function, '__qualname__', repr(function))}"


def _module(function: Callable[..., Any]) -> str:
    """Name of a function's module, `__main__` for code that is executed without one."""
    return getattr(function, "__module__", None) or "__main__"


def _kind(value: object) -> str:
    return type(value).__name__
