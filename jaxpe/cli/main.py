"""Command line `jaxpe`: its commands, and errors as one line with an exit code."""

import contextlib
import importlib
import io
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

import jaxpe
from jaxpe._core.errors import (
    InputError,
    MissingExtraError,
    check_installed,
    require,
    unknown,
)
from jaxpe.cli.commands import COMMANDS, load, options_class
from jaxpe.cli.environment import set_environment
from jaxpe.cli.interrupts import prompt_exit
from jaxpe.cli.parsing import parse, with_flags

_MODULES = {  # that each extra installs
    "report": ("matplotlib.figure", "jinja2"),
    "train": ("flax", "optax", "orbax.checkpoint", "grain", "safetensors"),
}
_REPORTED = (
    InputError, MissingExtraError, OSError, MemoryError, FloatingPointError, RuntimeError,
)  # fmt: skip
_MEMORY_MESSAGE = (
    "out of memory ({}); pass a smaller length, batch or model, or fewer documents at once"
)


def main() -> None:
    """Entry point of `jaxpe`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may lack a character
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:]
    with prompt_exit():
        _run_with_errors(words)


def _run_with_errors(words: list[str]) -> None:
    """Run a command; an error of its input or of the machine becomes one line and an exit code."""
    try:
        _run(words)
        sys.stdout.flush()  # raises for output that cannot be written, before the exit code is set
    except BrokenPipeError:  # the reader of a pipe, such as head, has closed it
        _drop_output()
    except _REPORTED as error:
        # Training that diverged is no fault of the input.
        _fail(_message(error), code=1 if isinstance(error, FloatingPointError) else 2)
    except SystemExit as stop:  # after --help, and for options that cannot be parsed
        if isinstance(stop.__context__, BrokenPipeError):  # raised by Rich, for a closed pipe
            return _drop_output()
        raise
    except KeyboardInterrupt as stop:  # of several training processes, with the signal's number
        sys.exit(128 + (stop.args[1] if len(stop.args) > 1 else signal.SIGINT))


def _run(words: list[str]) -> None:
    """Run the command that the first word names."""
    if words[:1] == ["--version"]:
        return print(f"jaxpe {jaxpe.__version__}")
    if words[:1] in (["-h"], ["--help"]):
        return print(_help())
    if not words:
        raise InputError(f"no command: pass one of {', '.join(COMMANDS)}")
    name, *words = words
    if name not in COMMANDS:
        raise InputError(unknown("command", name, COMMANDS))
    command = COMMANDS[name]
    for extra in command.extras:
        for module in _MODULES[extra]:
            check_installed(module, extra=extra)
    set_environment(small_programs=command.small_programs)
    require("tyro", extra="cli")
    require("rich", extra="cli")
    if command.jax and not {"-h", "--help"}.intersection(words):
        _import_jax()
    kind = _importing(options_class, name)
    try:
        options = parse(kind, words, example=command.example)
        load(command.run or "jaxpe.cli.pages:run_to_page")(options, words)
    except InputError as error:
        raise type(error)(with_flags(str(error), kind)) from error


def _help() -> str:
    width, group = max(map(len, COMMANDS)), ""
    lines = ["usage: jaxpe [--version] COMMAND ...", "", jaxpe.__doc__.partition("\n")[0]]
    for name, command in COMMANDS.items():
        if command.group != group:
            lines += ["", group := command.group]
        lines += [f"  {name:{width}}  {command.about}", f"  {'':{width}}  $ {command.example}"]
    return "\n".join([*lines, "", "`jaxpe COMMAND --help` explains one."])


def _import_jax() -> None:
    """Import JAX, and silence what is no error."""
    import logging  # slow to import
    import warnings

    # A cache that cannot be written costs time and does not affect the result.
    warnings.filterwarnings("ignore", r"Error (reading|writing) persistent compilation cache")
    # Orbax logs a traceback for every thread of a save that fails; the error is printed once.
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    _importing(importlib.import_module, "jax")


def _importing(load: Callable[[str], Any], name: str) -> Any:
    """Result of `load(name)`, which may import JAX; that checks its environment variables."""
    try:
        return load(name)
    except ValueError as error:
        settings = ", ".join(sorted(name for name in os.environ if name.startswith("JAX_")))
        raise InputError(f"{error}; correct or unset it (variables set: {settings})") from error


def _message(error: BaseException) -> str:
    """Message on what is wrong and what to do; faults of the program are raised."""
    text = str(error)
    full = any(words in text for words in ("RESOURCE_EXHAUSTED", "Out of memory"))
    if isinstance(error, MemoryError) or (full and isinstance(error, RuntimeError)):
        return _MEMORY_MESSAGE.format(text.partition("\n")[0])
    if not isinstance(error, RuntimeError):
        return text
    if any(words in text for words in ("Unable to initialize backend", "Unknown backend")):
        return f"{text}; correct or unset JAX_PLATFORMS and JAX_DEFAULT_DEVICE"
    raise error


def _fail(message: str, *, code: int) -> None:
    """Print one line on standard error."""
    try:
        sys.stdout.flush()
    except OSError:  # a full disk
        _drop_output()
    with contextlib.suppress(OSError):
        # Cut names of thousands of characters.
        line = re.sub(r"(\S{100})\S{100,}(\S{40})", r"\1…\2", " ".join(message.splitlines()))
        print(f"jaxpe: {line}", file=sys.stderr)
    sys.exit(code)


def _drop_output() -> None:
    """Discard output that cannot be written; Python would try again when it exits."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
