"""Errors a user can act on: what was wrong, where, and what to pass instead."""

import difflib
import importlib
import sys
from collections.abc import Collection, Iterable
from importlib.util import find_spec
from types import ModuleType


class InputError(ValueError):
    """Bad input from outside (a file, a corpus, an option). The command line exits with 2 on it.

    A message writes an argument in backticks, `dim` or with a value `dim=64`; the command line,
    whose options have the same names, writes these as its flags.
    """

    __module__ = "jaxpe"


class MissingExtraError(ImportError):
    """An optional dependency is absent; the message names the extra that brings it."""

    __module__ = "jaxpe"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like one that is not known; None where none is near."""
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.5)), None)


def unknown(kind: str, name: str, known: Collection[str]) -> str:
    """Message about an unknown name: the nearest one, and all.

    >>> unknown("task", "cpoy", ("copy", "scan"))
    "unknown task 'cpoy': did you mean 'copy'? There are copy, scan"
    """
    near = nearest(name, known)
    meant = f": did you mean {near!r}? There" if near else "; there"
    return f"unknown {kind} {name!r}{meant} are {', '.join(known)}"


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional dependency where it is used, or say which extra to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise _missing(module, extra) from error


def check_installed(module: str, *, extra: str) -> None:
    """Say which extra to install, as `require`, without the time that an import takes."""
    found = sys.modules[module] if module in sys.modules else find_spec(module.partition(".")[0])
    if found is None:
        raise _missing(module, extra)


def _missing(module: str, extra: str) -> MissingExtraError:
    return MissingExtraError(
        f"{module} is not installed; it comes with the extra {extra!r}: "
        f"pip install 'jaxpe[{extra}]'"
    )


_SHOWN = 300  # characters of a reason


def reason(error: BaseException) -> str:
    """Message of a library's error, as one short line.

    >>> reason(ValueError("no such\\n  field")), reason(KeyError())
    ('no such field', 'KeyError')
    """
    return " ".join(str(error).split())[:_SHOWN] or type(error).__name__
