"""`jaxpe compare`: what reads and compares the folders of each kind."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.corpora import DEFAULT_DIM, compare_counts
from jaxpe.cli.commands import load
from jaxpe.geometry.noise.two_samples import DEFAULT_PERMUTATIONS


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Compare reports, counts of corpora, inspections of models, or runs of `jaxpe train`.

    Reports and inspections are compared finding by finding. Counts are compared by the distances
    between the positional geometries of the corpora, and their significance. Runs are compared by
    settings and results; those that differ only in their seeds are one configuration, whose mean
    has an interval.

    Attributes:
        runs: two or more folders of one kind: pages of `jaxpe report`; counts that `jaxpe count`
            wrote, with the same tokenizer and length; pages of `jaxpe inspect`; or runs, with the
            same documents and task.
        mds_dim: number of MDS dimensions for Procrustes and principal angles, for counts.
        permutations: number of random permutations of folds, for counts.
        seed: random seed of the permutations, for counts.
    """

    runs: tuple[Path, ...]
    mds_dim: int = DEFAULT_DIM
    permutations: int = DEFAULT_PERMUTATIONS
    seed: int = 0


def compare(options: CompareOptions, *, progress: Progress = SILENT) -> Any:
    """Compare folders of one kind.

    Raises:
        InputError: folders of several kinds, or what their comparison refuses.

    >>> compare(CompareOptions(runs=(Path("a"), Path("b"))))
    Traceback (most recent call last):
    jaxpe.InputError: a holds no run: there is no config.json; pass the folder of one
    """
    marks = {kind: file for kind, (file, _) in _KINDS.items()}
    kinds = [
        # Without a mark, a run: its reader says what is missing.
        next((kind for kind, file in marks.items() if (folder / file).is_file()), "a run")
        for folder in options.runs
    ]
    for folder, kind in zip(options.runs, kinds, strict=True):
        if kind != kinds[0]:
            raise InputError(
                f"{options.runs[0]} holds {kinds[0]}, but {folder} holds {kind}; pass folders of "
                "one kind"
            )
    _, compared = _KINDS[kinds[0] if kinds else "a run"]
    return compared(options, progress)


def _counts(options: CompareOptions, progress: Progress) -> Any:
    settings = {"dim": options.mds_dim, "permutations": options.permutations, "seed": options.seed}
    return compare_counts(options.runs, **settings, progress=progress)


def _findings(options: CompareOptions, _: Progress) -> Any:
    return load("jaxpe.analysis.findings:compare_findings")(options.runs)


# File that marks a folder of each kind, and what compares such folders.
_KINDS: dict[str, tuple[str, Callable[[CompareOptions, Progress], Any]]] = {
    "counts": ("counts.npz", _counts),
    "a report": ("report.json", _findings),
    "an inspection": ("inspect.json", _findings),
    "a run": ("config.json", lambda o, _: load("jaxpe.analysis.comparison:compare_runs")(o.runs)),
}
