"""`jaxpe merge`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import rich
from tyro.conf import Positional

from jaxpe._core.errors import InputError
from jaxpe.analysis.counts import merge
from jaxpe.cli import count
from jaxpe.cli.parsing import flag_message, parse
from jaxpe.report import counts_table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """Add counts of different documents, such as from several machines, in any order.

    Vocabularies of words and characters may differ, unless one was cut to a largest size.

    Attributes:
        folders: folders that `jaxpe count` wrote, all with the same tokenizer and settings.
        out: folder for their sum.
        weights: number of times that documents of each folder count, in order, for a mixture; 1
            when absent.
    """

    folders: Positional[tuple[Path, ...]]
    out: Path
    weights: tuple[int, ...] = ()


def run(words: Sequence[str]) -> None:
    """Read the counts, add them, and write the sum."""
    options = parse(Command, words)
    try:
        merged = merge(options.folders, options.out, weights=options.weights)
    except InputError as error:  # the message names options of `jaxpe count`
        raise InputError(flag_message(str(error), count.Command)) from error
    rich.print(counts_table(merged))
    print(f"Counts: {options.out}")
