"""`jaxpe train`."""

import ctypes
import dataclasses
import platform
import shlex
import sys
from collections.abc import Sequence
from functools import partial

import rich
from tyro.conf import Positional

from jaxpe.cli.console import Bars
from jaxpe.cli.parsing import parse, plain
from jaxpe.report import pace, training_table, write_training_figures
from jaxpe.training import TrainConfig, load_config, train
from jaxpe.training.config import encoding_entries


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(TrainConfig):
    __doc__ = TrainConfig.__doc__
    source: Positional[str] = TrainConfig.source


def run(words: Sequence[str]) -> None:
    """Train as the words of a command line say, draw the figures and print the table."""
    config = parsed(words)
    _keep_freed_memory()
    try:
        result = train(config, progress=Bars(Command, say=partial(print, flush=True)))
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
    config = plain(parse(Command, words), TrainConfig)
    if not config.resume:
        return config
    encoding_entries(config)  # imports a module that a person names, which the file may not
    saved = plain(load_config(config.out), Command)
    return plain(parse(Command, words, default=saved), TrainConfig)


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
