"""The catalogue: encodings by name, in files of vectors, and of one's own modules."""

import contextlib
import importlib
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe._core.errors import InputError, nearest, reason
from jaxpe.encodings.analysis.properties import hooks_program
from jaxpe.encodings.families.vector_files import from_file, read_vectors
from jaxpe.encodings.registry import (
    CatalogueEntry,
    EncodingSizes,
    module_name,
    registrations,
    sizes_adapter,
)


def catalogue(*names: str | CatalogueEntry) -> tuple[CatalogueEntry, ...]:
    """Catalogue entries by name.

    Args:
        names: names in the catalogue, files of vectors, your own `my_module:my_encoding`, or
            entries; all registered encodings when there are none.

    Raises:
        InputError: an unknown name, or a file or function that is no encoding.

    >>> [entry.family for entry in catalogue("rope", "t5")]
    ['rotary', 'bias']
    """
    return tuple(map(resolve, names or registrations()))


def registered_function(name: str) -> Callable[..., Any]:
    """The function that defines an encoding of the catalogue, with its docstring.

    Args:
        name: name in the catalogue.

    Raises:
        InputError: an unknown name.

    >>> registered_function("rope").__name__
    'rope'
    """
    return registrations()[resolve(name).name].function


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
    names = registrations()
    if name in names:
        return names[name].entry
    near = None if name == "all" else nearest(name, names)
    suggestion = f"did you mean {near!r}? The" if near else "the"
    suggestion = "pass each by its name; the" if name == "all" else suggestion
    raise InputError(
        f"no encoding {name!r}; {suggestion} encodings are {', '.join(names)}, one of your "
        "own is my_module:my_encoding, and one in a file ends in .npz"
    )


def _file_entry(path: str) -> CatalogueEntry:
    """Entry of the position vectors in a file."""
    n, k = read_vectors(path).shape
    return CatalogueEntry(
        path,
        family="fitted",
        make=lambda sizes: from_file(path, dim=sizes.dim),
        source="a file",
        vectors=f"{n} rows of the file, of width {k}",
        fitted=True,
    )


def _imported_entry(name: str) -> CatalogueEntry:
    """The entry that `my_module:my_encoding` names; its hooks are not tried yet."""
    module_of_name, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.append("")  # the current directory, after all installed modules
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_of_name)
    except Exception as error:
        raise InputError(
            f"{name!r}: the module {module_of_name!r} cannot be imported ({_error_text(error)})"
        ) from error
    registered = registrations().get(attribute)
    if registered is not None and module_name(registered.function) == module_of_name:
        return registered.entry
    if not hasattr(module, attribute):
        raise InputError(f"{name!r}: the module {module_of_name} has no {attribute!r}")
    value = getattr(module, attribute)
    if isinstance(value, CatalogueEntry):
        return value
    if not callable(value):
        raise InputError(
            f"{name!r} is {type(value).__name__}, not an encoding: pass a CatalogueEntry, or a "
            "function from jaxpe.encodings.EncodingSizes to a jaxpe.encodings.Encoding"
        )
    return CatalogueEntry(
        name, module_of_name.rpartition(".")[2], sizes_adapter(value), module_of_name
    )


def _checked_entry(entry: CatalogueEntry) -> CatalogueEntry:
    """The entry after a trial of its hooks, with its vectors described if it defines them."""
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
    described = entry.vectors or "its vectors"
    return entry._replace(vectors=described if "vectors" in results else "")


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


@contextlib.contextmanager
def own_encoding_errors(name: str) -> Iterator[None]:
    """Context in which an error of `my_module:my_encoding` becomes one line with its place.

    Errors of bad input, of files and of memory stay as they are, and all errors of encodings of the
    catalogue.

    Raises:
        InputError: the encoding, the error, and the last line of the module that it passed.
    """
    try:
        yield
    except (InputError, OSError, MemoryError, jax.errors.JaxRuntimeError):
        raise
    except Exception as error:
        if ":" not in name:
            raise
        file = getattr(sys.modules.get(name.partition(":")[0]), "__file__", None)
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == file]
        place = f" ({file}, line {lines[-1]})" if lines else ""
        raise InputError(f"encoding {name!r} fails: {_error_text(error)}{place}") from error


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {reason(error)}"
