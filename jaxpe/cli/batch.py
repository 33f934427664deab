"""`jaxpe batch`."""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.results import read_npz
from jaxpe.cli.parsing import plain
from jaxpe.conformance import BatchOptions, batch_offsets, check_batches

_REMEDY = "write named arrays with numpy.savez"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckOptions(BatchOptions):
    """Check batches: the intended layout, by default a causal decoder, each document by itself.

    Attributes:
        json: print only the result, as JSON.
        files: .npz files, one a batch: positions, and if known ids, segments, mask, labels, weights
            and vision; names of Grain and transformers are known.
        junit: file to write the result to, as JUnit XML.
    """

    files: tuple[Path, ...]
    json: bool = False
    junit: Path | None = None


def check(options: CheckOptions, words: Sequence[str]) -> None:
    """Check the batches, print the result, and exit with 1 if a check failed."""
    intended = dataclasses.asdict(plain(options, BatchOptions))
    result = check_batches(_batches(options.files), **intended)
    if options.junit is not None:
        options.junit.write_text(result.junit())
    if options.json:
        print(result.json())
    else:
        print(result.text())
        print("\nShare of pairs of query and key by offset, with intervals of 95 % over documents:")
        for one in batch_offsets(_batches(options.files), **intended).shares():
            ends = f"{one.first:,}" if one.first == one.last else f"{one.first:,} to {one.last:,}"
            known = one.high - one.low < 1
            interval = f"({one.low:.4f} to {one.high:.4f})" if known else "(too few documents)"
            print(f"{ends:>24} {one.share:8.4f} {interval}")
    if not result.passed:
        sys.exit(1)


def _batches(files: Sequence[Path]) -> Iterator[dict[str, np.ndarray]]:
    for path in files:
        batch = read_npz(path, remedy=_REMEDY)
        if not batch:
            raise InputError(f"{path} has no arrays; {_REMEDY}")
        yield batch
