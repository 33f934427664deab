"""`jaxpe count` and `jaxpe merge`."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

from jaxpe._core.errors import InputError
from jaxpe.analysis.counts import CountOptions, count, merge
from jaxpe.cli.commands import options_class
from jaxpe.cli.console import Lines
from jaxpe.cli.parsing import plain, with_flags
from jaxpe.report.console import show
from jaxpe.report.writing import page


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderOptions(CountOptions):
    """Count the tokens at each position of any number of documents, and write the counts.

    Each shard is counted by itself, and `counts.npz` is their sum. Run the same command again to
    resume: shards with a file in the folder `shards` are not counted again. It may be deleted.

    Attributes:
        out: folder for the counts.
    """

    out: Path = Path("counts")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """Add counts of different documents, such as from several machines, in any order.

    Vocabularies of words and characters may differ, unless one was cut to a largest size.

    Attributes:
        folders: folders that `jaxpe count` wrote, all with the same tokenizer and settings.
        out: folder for their sum.
        weights: number of times that documents of each folder count, in order, for a mixture; 1
            when absent.
    """

    folders: tuple[Path, ...]
    out: Path
    weights: tuple[int, ...] = ()


def count_sources(options: FolderOptions, words: Sequence[str]) -> None:
    """Count, and print what was counted."""
    started = time.monotonic()
    with Lines(type(options)) as lines:
        counted = count(plain(options, CountOptions), options.out, progress=lines)
    show(page(counted))
    print(f"Counts: {options.out}   ({time.monotonic() - started:.0f} s)")


def merge_folders(options: MergeOptions, words: Sequence[str]) -> None:
    """Read the counts, add them, and write the sum."""
    try:
        merged = merge(options.folders, options.out, weights=options.weights)
    except InputError as error:  # the message names options of `jaxpe count`
        raise InputError(with_flags(str(error), options_class("count"))) from error
    show(page(merged))
    print(f"Counts: {options.out}")
