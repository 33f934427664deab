"""`jaxpe train`."""

import ctypes
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from jaxpe._core.hub import local_model_options
from jaxpe.analysis.training_run import read_run
from jaxpe.cli.commands import options_class
from jaxpe.cli.console import Lines
from jaxpe.cli.interrupts import prompt_exit
from jaxpe.cli.pages import show, write
from jaxpe.cli.parsing import parse, plain
from jaxpe.training import TrainConfig, load_config, train
from jaxpe.training.config import CONFIG, encoding_entries
from jaxpe.training.processes import run_on_first_process


def run(options: Any, words: Sequence[str]) -> None:
    """Train, write the page and its figures, and print what it says."""
    config, started = None, time.monotonic()
    try:
        config = read_options(options, words)
        _keep_freed_memory()
        with (
            prompt_exit(partial(_resume_message, config, words)),
            Lines(type(options), say=partial(print, flush=True)) as lines,
        ):
            train(config, progress=lines)
        run_on_first_process(partial(_show_run, config, options, words, started))
    except KeyboardInterrupt:
        print(_resume_message(config, words), file=sys.stderr)
        raise


def _show_run(config: TrainConfig, options: Any, words: Sequence[str], started: float) -> None:
    trained = read_run(config.out)
    write(trained, options, words, figures="png")
    show(trained, options, config.out, started)


def read_options(options: Any, words: Sequence[str]) -> TrainConfig:
    """Configuration from options; with --resume, the saved one with the changes of the words.

    A name on the hub becomes the folder of a commit, so that a resumed run uses that commit.
    """
    config = local_model_options(plain(options, TrainConfig), "pretrained")
    if not config.resume:
        return config
    encoding_entries(config)  # imports modules of the command line, never of a file
    kind = options_class("train")
    changed: Any = parse(kind, words, default=plain(load_config(config.out), kind))
    return local_model_options(plain(changed, TrainConfig), "pretrained")


def _resume_message(config: TrainConfig | None, words: Sequence[str]) -> str:
    """Message about an interrupted run: the command that resumes it, or starts again."""
    again = shlex.join(["jaxpe", "train", *words])
    if config is None or not (config.out / CONFIG).is_file():
        return f"Nothing is saved yet. To start again: {again}"
    return f"To go on: {again}{'' if config.resume else ' --resume'}"


def _keep_freed_memory() -> None:
    """Make glibc keep freed memory, for the rest of this process.

    XLA on CPUs allocates new memory in each step. Page faults on memory that was just returned to
    the system take a quarter of a step.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    arena_max, mmap_max, trim_threshold = -8, -4, -1  # of malloc.h
    allocate = ctypes.CDLL(None).mallopt
    for parameter, value in ((arena_max, 1), (mmap_max, 0), (trim_threshold, 2**31 - 1)):
        allocate(parameter, value)
