"""Step of a datatrove pipeline (local, Slurm, Ray): counts in one folder a task."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jaxpe.analysis.counts import CountOptions, DocumentCounter, write_counts


class CountPositions:
    """Count the tokens at each position of the documents that pass, and write the counts.

    A task writes its folder completely or not at all, after its last document; a killed task that
    restarts writes the same. `jaxpe merge` adds the folders, in any order to the same bytes. The
    documents pass to the next step unchanged.

    Args:
        options: options of the count, with `sources=()`; words and characters need a `vocab`, and
            `group_field` names a key of the metadata.
        out: parent folder of the tasks' folders, visible to all tasks.

    >>> import tempfile
    >>> from types import SimpleNamespace
    >>> options = CountOptions(sources=(), tokenizer="bytes", length=2, folds=4, nulls=0)
    >>> out = tempfile.mkdtemp()
    >>> documents = [SimpleNamespace(text=text, metadata={}) for text in ("to be", "or not")]
    >>> passed = list(CountPositions(options, out)(documents, rank=3, world_size=4))
    >>> len(passed), os.listdir(out)
    (2, ['00003'])
    """

    name, type = "jaxpe: count positions", "STATS"

    def __init__(self, options: CountOptions, out: str | os.PathLike[str]):
        self.options, self.out = options, os.fspath(out)

    def __repr__(self) -> str:
        return f"{self.type}: {self.name} into {self.out}"

    def __call__(self, data: Iterable[Any] | None, rank: int = 0, world_size: int = 1) -> Iterator:
        """Count the documents of a task as they pass, and write the counts after the last."""
        counter, field = DocumentCounter(self.options), self.options.group_field
        for document in data or ():
            group = None if field is None else document.metadata.get(field)
            counter.add(document.text, None if group is None else str(group))
            yield document
        write_counts(counter.counts(f"task {rank} of {world_size}"), Path(self.out) / f"{rank:05}")
