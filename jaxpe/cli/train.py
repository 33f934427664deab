"""`jaxpe train`: imported by that command alone, since it brings Flax and Optax."""

import ctypes
import dataclasses
import platform
import shlex
import sys
from collections.abc import Sequence

import rich
import tyro

from jaxpe.data import Progress
from jaxpe.report import pace, training_table, write_training_figures
from jaxpe.training import TrainConfig, load_config, train


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options(TrainConfig):
    source: tyro.conf.Positional[str] = TrainConfig.source


_Options.__doc__ = TrainConfig.__doc__  # where the texts of --help come from


def run(words: Sequence[str], *, progress: Progress) -> None:
    """Train as the words of a command line say, draw the figures and print the table."""
    config = parsed(words)
    _keep_freed_memory()
    try:
        result = train(config, progress=progress, say=_say)
    except KeyboardInterrupt:
        if (config.out / "config.json").exists():
            again = f"jaxpe train --resume --out {shlex.quote(str(config.out))}"
            print(f"To go on: {again}", file=sys.stderr)
        raise
    write_training_figures(result.history, config.out)
    rich.print(training_table(result.summary))
    print(f"Run: {result.out}   ({pace(result.summary)})")


def parsed(words: Sequence[str]) -> TrainConfig:
    """The configuration that words ask for; with --resume, the saved one and what they change."""
    options = tyro.cli(_Options, args=words, prog="jaxpe train")
    if not options.resume:
        return _plain(options)
    saved = load_config(options.out)
    fields = {field.name: getattr(saved, field.name) for field in dataclasses.fields(saved)}
    return _plain(tyro.cli(_Options, args=words, prog="jaxpe train", default=_Options(**fields)))


def _plain(options: _Options) -> TrainConfig:
    names = [field.name for field in dataclasses.fields(TrainConfig)]
    return TrainConfig(**{name: getattr(options, name) for name in names})


def _keep_freed_memory() -> None:
    """Have glibc keep what is freed, for the rest of this process.

    XLA on CPU asks for the memory of a step anew each time; page faults on what was just given back
    cost a quarter of a step.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    arena_max, mmap_max, trim_threshold = -8, -4, -1  # of malloc.h
    allocate = ctypes.CDLL(None).mallopt
    for parameter, value in ((arena_max, 1), (mmap_max, 0), (trim_threshold, 2**31 - 1)):
        allocate(parameter, value)


def _say(line: str) -> None:
    print(line, flush=True)
