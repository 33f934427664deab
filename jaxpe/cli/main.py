"""Command line `jaxpe`: its commands, and errors as one line with an exit code."""

import contextlib
import importlib
import io
import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

import jaxpe
from jaxpe._core.errors import (
    InputError,
    LostProcessError,
    MissingExtraError,
    check_installed,
    require,
    unknown,
)
from jaxpe.cli.environment import set_environment
from jaxpe.cli.interrupts import prompt_exit
from jaxpe.cli.parsing import flag_message

# Each command is a module of this package, imported when it runs.
COMMANDS = {
    "report": "measure how tokens depend on position in a corpus, and write a report",
    "encodings": "list the positional encodings, or print computed properties of them",
    "inspect": "measure what position does in a model: attention, hidden states, loss and reach",
    "rope": "say what each layer of a model does with positions, and where programs disagree",
    "golden": "write what a model's layers do at given positions, to test any implementation",
    "batch": "check the positions, padding, masks and losses of training batches",
    "count": "count the tokens at each position of any number of documents",
    "merge": "add counts of different documents, such as from several machines",
    "audit": "evaluate every published statement on a corpus and a model",
    "spectral": "decompose a model's attention logits into position and content",
    "extrapolate": "train on short inputs, test on longer ones, and rank encodings",
    "bench": "compare your encoding with others: cost beside accuracy, with verdicts",
    "train": "train a transformer with a positional encoding",
    "compare": "compare runs of `jaxpe train`, or counts of corpora",
}
# Commands whose programs take longer to compile than to run.
_SMALL_PROGRAMS = ("report", "encodings", "audit", "spectral", "compare")
_WITHOUT_JAX = ("rope", "golden", "batch")  # NumPy alone
# Modules that a command needs, by the extra that installs them.
_PAGES = {"report": ("matplotlib.figure", "jinja2")}
_TRAINING = {"train": ("flax", "optax", "orbax.checkpoint", "grain", "safetensors"), **_PAGES}
_EXTRAS = {"report": _PAGES} | dict.fromkeys(
    ("audit", "inspect", "spectral", "extrapolate", "bench", "train", "compare"), _TRAINING
)
_MEMORY_MESSAGE = (
    "out of memory ({}); pass a smaller length, batch or model, or fewer documents at once"
)


def main() -> None:
    """Entry point of `jaxpe`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may lack a character
            stream.reconfigure(errors="backslashreplace")
    resumes = sys.argv[1:2] in (["bench"], ["extrapolate"])
    with prompt_exit(lambda: "Interrupted: the same command goes on." if resumes else ""):
        _run_with_errors(sys.argv[1:])


def _run_with_errors(words: list[str]) -> None:
    """Run a command; an error of its input or of the machine becomes one line and an exit code."""
    try:
        _run(words)
        sys.stdout.flush()  # raises for output that cannot be written, before the exit code is set
    except BrokenPipeError:  # the reader of a pipe, such as head, has closed it
        _drop_output()
    except LostProcessError as error:
        _fail(str(error), code=2, leave=os._exit)  # at a usual exit JAX waits for it, and aborts
    except (InputError, MissingExtraError, OSError) as error:
        _fail(str(error), code=2)
    except MemoryError as error:
        _fail(_MEMORY_MESSAGE.format(error), code=2)
    except FloatingPointError as error:  # training diverged: the input is not at fault
        _fail(str(error), code=1)
    except RuntimeError as error:
        _fail(_machine_message(error), code=2)
    except SystemExit as stop:  # after --help, and for options that cannot be parsed
        if isinstance(stop.__context__, BrokenPipeError):  # raised by Rich, for a closed pipe
            return _drop_output()
        raise
    except KeyboardInterrupt as stop:  # from training, with the number of the signal
        sys.exit(128 + (stop.args[1] if len(stop.args) > 1 else signal.SIGINT))


def _run(words: list[str]) -> None:
    """Run the command that the first word names."""
    if words[:1] == ["--version"]:
        return print(f"jaxpe {jaxpe.__version__}")
    if words[:1] in (["-h"], ["--help"]):
        return print(_help())
    if not words:
        raise InputError(f"no command: pass one of {', '.join(COMMANDS)}")
    if words[0] not in COMMANDS:
        raise InputError(unknown("command", words[0], COMMANDS))
    for extra, modules in _EXTRAS.get(words[0], {}).items():
        for module in modules:
            check_installed(module, extra=extra)
    set_environment(small_programs=words[0] in _SMALL_PROGRAMS)
    require("tyro", extra="report")
    require("rich", extra="report")
    if words[0] not in _WITHOUT_JAX:
        _import_jax()
    # A cache that cannot be written costs time and does not affect the result.
    warnings.filterwarnings("ignore", r"Error (reading|writing) persistent compilation cache")
    # Orbax logs a traceback for every thread of a save that fails; the error is printed once.
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    command = importlib.import_module(f"jaxpe.cli.{words[0]}")
    try:
        command.run(words[1:])
    except InputError as error:
        raise type(error)(flag_message(str(error), command.Command)) from error


def _help() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:{width}}  {about}" for name, about in COMMANDS.items())
    return f"""usage: jaxpe [--version] COMMAND ...

The geometry of positional encodings, measured on your corpus.

{commands}

`jaxpe COMMAND --help` explains one."""


def _import_jax() -> None:
    """Import JAX, which then checks its environment variables."""
    try:
        importlib.import_module("jax")
    except ValueError as error:
        settings = ", ".join(sorted(name for name in os.environ if name.startswith("JAX_")))
        raise InputError(f"{error}; correct or unset it (variables set: {settings})") from error


def _machine_message(error: RuntimeError) -> str:
    """Message of JAX about memory or devices; other errors are raised."""
    text = str(error)
    if any(words in text for words in ("RESOURCE_EXHAUSTED", "Out of memory")):
        return _MEMORY_MESSAGE.format(text.splitlines()[0])
    if any(words in text for words in ("Unable to initialize backend", "Unknown backend")):
        return f"{text}; correct or unset JAX_PLATFORMS and JAX_DEFAULT_DEVICE"
    raise error


def _fail(message: str, *, code: int, leave: Callable[[int], Any] = sys.exit) -> None:
    """Print one line on standard error."""
    try:
        sys.stdout.flush()
    except OSError:  # a full disk
        _drop_output()
    with contextlib.suppress(OSError):
        # Cut names of thousands of characters.
        line = re.sub(r"(\S{100})\S{100,}(\S{40})", r"\1…\2", " ".join(message.splitlines()))
        print(f"jaxpe: {line}", file=sys.stderr)
    leave(code)


def _drop_output() -> None:
    """Discard output that cannot be written; Python would try again when it exits."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
