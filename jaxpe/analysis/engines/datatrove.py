"""Step of a datatrove pipeline (local, Slurm, Ray): counts in one folder a task."""

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jaxpe._core.errors import InputError
from jaxpe.analysis.counts import CountOptions
from jaxpe.analysis.counts.cells import batch_size, count_documents, sum_cells
from jaxpe.analysis.counts.job import counted_part, engine_shard, tokenizer_and_settings
from jaxpe.analysis.counts.stored import counts_file, write_part


class CountPositions:
    """Count the tokens at each position of the documents that pass, and write the counts.

    A task writes its folder completely or not at all, after its last document; a killed task that
    restarts writes the same. `jaxpe merge` adds the folders, in any order to the same bytes. The
    documents pass to the next step unchanged.

    Args:
        options: options of the count, with `sources=()`; `group_field` names a key of the metadata.
        out: parent folder of the tasks' folders, visible to all tasks.

    Raises:
        InputError: options with `max_vocab`, which cuts at the sum.

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
        if options.max_vocab is not None:
            raise InputError("a task cannot cut the vocabulary of the sum; leave `max_vocab` out")
        self.options, self.out = options, os.fspath(out)

    def __repr__(self) -> str:
        return f"{self.type}: {self.name} into {self.out}"

    def __call__(self, data: Iterable[Any] | None, rank: int = 0, world_size: int = 1) -> Iterator:
        """Count the documents of a task as they pass, and write the counts after the last.

        Args:
            data: documents with `text` and `metadata`, as datatrove has them; None for no document.
            rank: number of the task, from 0; it names the folder.
            world_size: number of tasks.
        """
        tokenizer, settings = tokenizer_and_settings(self.options)
        field, cells, documents = self.options.group_field, sum_cells([]), 0
        stream = iter(data or ())
        while batch := [*itertools.islice(stream, batch_size(settings))]:
            rows = [(x.text, x.metadata.get(field)) for x in batch if x.text.strip()]
            if rows:
                texts, names = zip(*rows, strict=True)
                groups = [None if name is None else str(name) for name in names]
                in_fold = None if field is None else groups
                part = count_documents([*texts], in_fold, tokenizer=tokenizer, settings=settings)
                cells, documents = sum_cells([cells, part]), documents + len(texts)
            yield from batch
        shard = engine_shard(f"task {rank} of {world_size}", documents, cells)
        part = counted_part(cells, shard, tokenizer, self.options)
        write_part(part, counts_file(Path(self.out) / f"{rank:05}"))
