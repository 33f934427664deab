"""Errors that a user can act on: what is wrong, where, and what to pass instead."""

import importlib
import sys
import zlib
from collections.abc import Collection, Iterable, Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class InputError(ValueError):
    """Bad input from outside: a file, a corpus, an option. The command line exits with 2.

    Messages write arguments in backticks, `dim` or with a value `dim=64`. The command line shows
    them as flags, which have the same names.
    """

    __module__ = "jaxpe"


class MissingExtraError(ImportError):
    """Missing optional dependency; the message names the extra that installs it."""

    __module__ = "jaxpe"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Most similar of some names, for an error message; None if none is similar."""
    import difflib  # takes a tenth of the time of `jaxpe --help`

    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.5)), None)


def unknown(kind: str, name: str, names: Collection[str]) -> str:
    """Message about an unknown name, with the nearest name and all names.

    >>> unknown("task", "cpoy", ("copy", "scan"))
    "unknown task 'cpoy': did you mean 'copy'? There are copy, scan"
    """
    if name == "all":
        return f"'all' names no {kind}: pass each by its name, of {', '.join(names)}"
    near = nearest(name, names)
    meant = f": did you mean {near!r}? There" if near else "; there"
    return f"unknown {kind} {name!r}{meant} are {', '.join(names)}"


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional dependency; `MissingExtraError` names the extra to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise _missing_extra_error(module, extra) from error


def check_installed(module: str, *, extra: str) -> None:
    """Raise `MissingExtraError` as `require` does, without the time of an import."""
    module_or_spec = (
        sys.modules[module] if module in sys.modules else find_spec(module.partition(".")[0])
    )
    if module_or_spec is None:
        raise _missing_extra_error(module, extra)


def _missing_extra_error(module: str, extra: str) -> MissingExtraError:
    return MissingExtraError(
        f"{module} is not installed; it comes with the extra {extra!r}: "
        f"pip install 'jaxpe[{extra}]'"
    )


_SHOWN = 300  # characters of a reason


def reason(error: BaseException) -> str:
    """Message of a library's error, as one short line; it may quote a file, so it is escaped.

    >>> reason(ValueError("no such\\n  field")), reason(ValueError("\\x1b")), reason(KeyError())
    ('no such field', '\\\\x1b', 'KeyError')
    """
    line = " ".join(str(error).split())[:_SHOWN] or type(error).__name__
    return "".join(x if x.isprintable() else ascii(x)[1:-1] for x in line)


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, str]:
    """Settings that differ between two runs, by name, each with its two values as text."""
    return {
        name: f"{name} is {shortened(value)} and {shortened(other.get(name))}"
        for name, value in one.items()
        if value != other.get(name)
    }


def shortened(value: Any) -> str:
    """Value for an error message; a long one by its beginning and a checksum."""
    text = str(value) if str(value).isprintable() else ascii(value)
    short = f"{text[:40]}... (CRC-32 {zlib.crc32(text.encode(errors='surrogatepass')):08x})"
    return text if len(text) <= 60 else short
