"""The command line `jaxpe`: finds the commands, and turns bad input into one line and exit 2."""

import atexit
import contextlib
import gc
import importlib
import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator

import jaxpe
from jaxpe._core.errors import InputError, MissingExtraError, check_installed, nearest, require
from jaxpe.cli.environment import set_environment
from jaxpe.cli.interrupts import prompt_exit
from jaxpe.cli.parsing import flag_message

# Each is a module of this package, imported when it is run.
COMMANDS = {
    "report": "measure how tokens depend on position in a corpus, and write a report",
    "encodings": "list the positional encodings, or print computed properties of them",
    "inspect": "measure what position does in a model: attention, hidden states, loss and reach",
    "rope": "say what each layer of a model does with positions, and where programs disagree",
    "export": "write a corpus as a TFDS dataset",
    "count": "count the tokens at each position of any number of documents",
    "merge": "add counts of different documents, such as from several machines",
    "audit": "evaluate every published statement on a corpus and a model",
    "spectral": "decompose a model's attention logits into position and content",
    "extrapolate": "train on short inputs, test on longer ones, and rank encodings",
    "train": "train a transformer with a positional encoding",
    "compare": "compare runs of `jaxpe train`, or counts of corpora",
}
_TRAINING = dict.fromkeys(
    ("audit", "inspect", "spectral", "extrapolate", "train", "compare"), ("train", "report")
)
# Commands whose programs take longer to compile than to run.
_SMALL_PROGRAMS = ("report", "encodings", "audit", "spectral", "compare")
_EXTRAS = {"report": ("report",), "count": ("data",), **_TRAINING}
_MODULES = {
    "data": ("grain", "orbax.checkpoint"),
    "report": ("matplotlib.figure", "jinja2"),
    "train": ("flax", "optax", "orbax.checkpoint", "grain", "safetensors"),
}


def main() -> None:
    """Entry point of `jaxpe`."""
    _open_streams()
    with prompt_exit():
        _run_to_end(sys.argv[1:])


def _run_to_end(words: list[str]) -> None:
    """Run a command; what is wrong with its input or with the machine becomes one line."""
    try:
        _run(words)
        sys.stdout.flush()  # what cannot be written is noticed here, and not after the end
    except BrokenPipeError:  # the reader of a pipe, such as head, has had enough
        _drop_output()
    except (InputError, MissingExtraError, OSError) as error:
        _fail(str(error), code=2)
    except MemoryError as error:
        _fail(_OUT_OF_MEMORY.format(error), code=2)
    except FloatingPointError as error:  # training came to NaN: not the fault of the input
        _fail(str(error), code=1)
    except (RuntimeError, AssertionError) as error:
        _fail(_machine_message(error), code=2)
    except SystemExit as stop:  # of --help, and of options that cannot be parsed
        if isinstance(stop.__context__, BrokenPipeError):  # Rich's, of a pipe as above
            return _drop_output()
        with _dropped_if_closed():
            sys.stdout.flush()
        raise
    except KeyboardInterrupt as stop:  # of training, with the number of the signal
        sys.exit(128 + (stop.args[1] if len(stop.args) > 1 else signal.SIGINT))


_WITHOUT_JAX = ("rope",)  # NumPy alone, but for .gguf files
_DEVICES = ("JAX_PLATFORMS", "JAX_DEFAULT_DEVICE", "CUDA_VISIBLE_DEVICES")
_OUT_OF_MEMORY = (
    "out of memory ({}); pass a smaller length, batch or model, or fewer documents at once"
)


def _run(words: list[str]) -> None:
    """The command that the first word names."""
    if words[:1] == ["--version"]:
        return print(f"jaxpe {jaxpe.__version__}")
    if words[:1] in (["-h"], ["--help"]):
        return print(_help())
    _check_command(words)
    _check_extras(words[0])
    set_environment(small_programs=words[0] in _SMALL_PROGRAMS)
    require("tyro", extra="report")
    require("rich", extra="report")
    if words[0] not in _WITHOUT_JAX:
        _import_jax()
    # Imports, tracing and drawing make millions of objects that live on. With Python's own
    # thresholds, searches for cycles take a tenth of the time of a report.
    gc.set_threshold(100_000, 20, 100)
    atexit.register(gc.freeze)  # else Python searches all objects for cycles as it ends
    # A cache that cannot be written costs time and does not affect the result.
    warnings.filterwarnings("ignore", r"Error (reading|writing) persistent compilation cache")
    # Orbax logs a traceback for every thread of a save that fails; the error is printed once.
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    command = importlib.import_module(f"jaxpe.cli.{words[0]}")
    try:
        command.run(words[1:])
    except InputError as error:
        raise InputError(flag_message(str(error), command.Command)) from error


def _check_extras(command: str) -> None:
    """Say which extra to install, before anything is imported."""
    for extra in _EXTRAS.get(command, ()):
        for module in _MODULES[extra]:
            check_installed(module, extra=extra)


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {about}" for name, about in COMMANDS.items()]
    return "\n".join(
        [
            "usage: jaxpe [--version] COMMAND ...",
            "",
            "The geometry of positional encodings, measured on your corpus.",
            "",
            *lines,
            "",
            "`jaxpe COMMAND --help` explains one.",
        ]
    )


def _check_command(words: list[str]) -> None:
    there = f"the commands are {', '.join(COMMANDS)}; `jaxpe COMMAND --help` explains one"
    if not words:
        raise InputError(f"no command; {there}")
    if words[0] not in COMMANDS:
        near = nearest(words[0], COMMANDS)
        meant = f"did you mean {near!r}? If not, " if near else ""
        raise InputError(f"no command {words[0]!r}; {meant}{there}")


def _import_jax() -> None:
    """Import JAX, which looks at its settings then."""
    try:
        importlib.import_module("jax")
    except ValueError as error:
        settings = ", ".join(sorted(name for name in os.environ if name.startswith("JAX_")))
        raise InputError(f"{error}; correct or unset it (set here: {settings})") from error


def _machine_message(error: RuntimeError | AssertionError) -> str:
    """Message where JAX has no memory or no device, or may not transfer; others are raised."""
    text = str(error)
    if any(words in text for words in ("RESOURCE_EXHAUSTED", "Out of memory")):
        return _OUT_OF_MEMORY.format(text.splitlines()[0])
    if "Unable to initialize backend" in text:
        return text
    if "Disallowed" in text and "transfer" in text:
        return "JAX_TRANSFER_GUARD forbids transfers that every command makes: unset it"
    try:
        importlib.import_module("jax").devices()
    except Exception as failure:  # of any kind: an assertion of JAX where a plugin is missing
        settings = [f"{name}={os.environ[name]}" for name in _DEVICES if name in os.environ]
        reason = str(failure) or "there is no such device"
        return f"JAX has no device ({', '.join(settings) or reason}): {reason}; unset or correct it"
    if "Unknown backend" in text:
        return f"{text}; correct or unset JAX_DEFAULT_DEVICE"
    raise error


def _fail(message: str, *, code: int) -> None:
    """Print one line on standard error."""
    with _dropped_if_closed():
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        # A name of thousands of letters is cut.
        line = re.sub(r"(\S{100})\S{100,}(\S{40})", r"\1…\2", " ".join(message.splitlines()))
        print(f"jaxpe: {line}", file=sys.stderr)
    sys.exit(code)


def _open_streams() -> None:
    """Have standard streams that can be written, whatever they were at the start.

    A descriptor that is closed would be that of the next file opened, and what libraries print
    would go into it; an encoding without a character would end a run that is done.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        if hasattr(stream := getattr(sys, name), "reconfigure"):
            with contextlib.suppress(OSError):  # a pipe that nobody reads any more
                stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def _dropped_if_closed() -> Iterator[None]:
    try:
        yield
    except OSError:
        _drop_output()


def _drop_output() -> None:
    """Throw away what cannot be written, which Python would try again at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
