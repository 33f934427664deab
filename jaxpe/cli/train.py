"""`jaxpe train`."""

import ctypes
import dataclasses
import platform
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import rich
from rich.text import Text
from tyro.conf import Positional

from jaxpe._core.checkpoints import newest_checkpoint
from jaxpe._core.errors import InputError
from jaxpe._core.hub import local_model_options
from jaxpe._core.processes import one_line_process_errors, run_on_first_process
from jaxpe.analysis.training_run import read_run
from jaxpe.cli import audit, spectral
from jaxpe.cli.console import Bars
from jaxpe.cli.interrupts import prompt_exit
from jaxpe.cli.pages import print_advice
from jaxpe.cli.parsing import command_line, parse, plain
from jaxpe.report import pace, trained_summary, training_table, write
from jaxpe.training import TrainConfig, TrainResult, load_config, train
from jaxpe.training.config import (
    DEFAULT_STEPS,
    MACHINE,
    differences,
    encoding_entries,
    is_longer,
    read_config,
)
from jaxpe.training.run import CHECKPOINTS

_SIDES = ("encoding", "decoder_encoding", "cross_encoding")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(TrainConfig):
    __doc__ = TrainConfig.__doc__
    source: Positional[str | tuple[str, ...]] = TrainConfig.source


def run(words: Sequence[str]) -> None:
    """Train, write the page and its figures, and print a table."""
    config = None
    try:
        config = parse_config(words)
        _keep_freed_memory()
        with prompt_exit(partial(_resume_message, config, words)), one_line_process_errors():
            result = train(config, progress=Bars(Command, say=partial(print, flush=True)))
        run_on_first_process(partial(_write_page, config, result))
    except KeyboardInterrupt:
        print(_resume_message(config, words), file=sys.stderr)
        raise


def _write_page(config: TrainConfig, result: TrainResult) -> None:
    trained = read_run(config.out)
    commands = next_commands(trained.config)
    page = write(trained, config.out, figures="png", commands=commands)
    rich.print(training_table(result.summary))
    rich.print(Text(trained_summary(trained)))
    print_advice(trained, commands=commands)
    print(f"\nRun: {page}   ({pace(result.summary)})")


def parse_config(words: Sequence[str]) -> TrainConfig:
    """Configuration from the command line; with --resume, the saved one with its changes.

    A name on the hub becomes the folder of a commit, so that a resumed run uses that commit.
    """
    config = local_model_options(plain(parse(Command, words), TrainConfig), "pretrained")
    if not config.resume:
        return config
    for side in _SIDES:
        encoding_entries(config, side)  # imports modules of the command line, never of a file
    saved = plain(load_config(config.out), Command)
    return local_model_options(
        plain(parse(Command, words, default=saved), TrainConfig), "pretrained"
    )


def resume_command(config: TrainConfig, **changes: Any) -> str:
    """Command that resumes a run, with the options that its saved configuration lacks."""
    # Modules are imported only if the command line names them, never from a file.
    names = {side: getattr(config, side) for side in _SIDES}
    modules = {side: name for side, name in names.items() if ":" in (name or "")}
    machine = {name: getattr(config, name) for name in MACHINE}
    return command_line(Command(out=config.out, resume=True), **machine, **modules, **changes)


def extend_command(config: TrainConfig) -> str:
    """Command that extends a finished run to twice its length."""
    if config.epochs is not None:
        return resume_command(config, epochs=2 * config.epochs)
    return resume_command(config, steps=2 * (config.steps or DEFAULT_STEPS))


def next_commands(config: TrainConfig) -> dict[str, str]:
    """Commands that continue from a finished run, by their purpose."""
    other = config_with_seed(config, config.init_seed + 1)
    commands = {"extend": extend_command(config)}
    if config.pretrained is None and config.encoding != "none":
        out = config.out.parent / f"{config.out.resolve().name}-none"
        without = dataclasses.replace(config, encoding="none", out=out, resume=False)
        commands["none"] = train_command(without)
    commands["seed"] = train_command(other)
    commands["compare"] = shlex.join(["jaxpe", "compare", str(config.out), str(other.out)])
    # These commands read texts, and do not import modules of encodings.
    if config.task != "translate" and ":" not in (config.encoding or ""):
        about = {"source": config.source, "model": str(config.out)}
        commands["spectral"] = command_line(spectral.Command(**about))
        commands["audit"] = command_line(audit.Command(**about))
    return commands


def config_with_seed(config: TrainConfig, init_seed: int) -> TrainConfig:
    """Configuration with other initial weights and another folder, next to the first."""
    out = config.out.parent / f"{config.out.resolve().name}-init-{init_seed}"
    return dataclasses.replace(config, init_seed=init_seed, out=out, resume=False)


def train_command(config: TrainConfig) -> str:
    """Command that trains a configuration from the start."""
    return command_line(plain(config, Command))


def _resume_message(config: TrainConfig | None, words: Sequence[str]) -> str:
    """Message about an interrupted run: the command that resumes it, or starts again."""
    same = shlex.join(["jaxpe", "train", *words])
    if config is None:  # options were being read
        return f"To start again: {same}"
    if not _holds_run(config, config.out):
        return f"Nothing is saved yet. To start again: {same}"
    again = same if config.resume else resume_command(config)
    if newest_checkpoint(config.out / CHECKPOINTS) is None:
        return f"No step is saved yet. To start again: {again}"
    return f"To go on: {again}"


def _holds_run(config: TrainConfig, folder: Path) -> bool:
    """Whether a folder holds the run of a configuration, or a shorter one that it extends."""
    try:
        saved = read_config(folder)
    except InputError:
        return False
    return is_longer(config, saved) or not differences(config, saved)


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
