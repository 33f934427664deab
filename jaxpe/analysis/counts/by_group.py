"""Counts of each value of a column, such as a language, in one pass over the documents."""

import os
import re
from collections import Counter
from pathlib import Path

from jaxpe._core.errors import InputError
from jaxpe._core.files import content_hash, locked_folder
from jaxpe._core.memory import check_bytes
from jaxpe._core.processes import has_processes
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.counts.base import StoredCounts
from jaxpe.analysis.counts.count_files import write_counts
from jaxpe.analysis.counts.document_counter import DocumentCounter
from jaxpe.analysis.counts.job import tokenizer_and_settings
from jaxpe.analysis.counts.options import CountOptions
from jaxpe.data import find_shards
from jaxpe.data.tokens.tokenizers import reads_ids

NO_GROUP = "without"  # the folder of documents without a value
_NO_NAME = re.compile(r"[^\w.-]+")
_LONGEST = 60  # characters of a folder's name


def count_by(
    options: CountOptions,
    out: str | os.PathLike[str],
    *,
    by: str,
    progress: Progress = SILENT,
) -> dict[str | None, StoredCounts]:
    """Count the documents of each value of a column separately, in one pass.

    Each value has its own folder, named by the value, with a hash where names would clash.
    Documents without a value have the key None and the folder `without`. `jaxpe merge` of all
    folders gives the counts of all documents. The tables of all values must fit in memory. A killed
    run starts again from the beginning.

    Args:
        options: documents to count and settings; one process.
        out: parent folder of the folders.
        by: column or key, such as the language or the source.
        progress: receives lines from time to time.

    Raises:
        InputError: as `count`; a `group_field` as well, several processes, or too many values for
            memory.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> rows = [{"text": "to be", "lang": "en"}, {"text": "sein", "lang": "de"}]
    >>> _ = (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    >>> options = CountOptions(
    ...     sources=(str(folder / "a.jsonl"),), tokenizer="bytes", length=4, folds=4, nulls=0)
    >>> counts = count_by(options, folder / "counts", by="lang")
    >>> sorted(counts), sorted(path.name for path in (folder / "counts").iterdir())
    (['de', 'en'], ['.lock', 'de', 'en'])
    """
    if options.group_field is not None or has_processes(options):
        raise InputError(
            "documents are counted by one column, in one process; leave `group_field` and the "
            "options of several processes out"
        )
    shards = find_shards(options.sources, data_dir=options.data_dir)
    tokenizer, settings = tokenizer_and_settings(options, shards, Path(out), progress)
    if reads_ids(tokenizer):
        raise InputError(f"`by` {by!r} is for text, and the documents are token ids; leave it out")
    with locked_folder(out):
        counters: dict[str | None, DocumentCounter] = {}
        fields = {"text_field": options.text_field, "skip_nulls": options.skip_nulls}
        for shard in shards:
            for document in shard.documents(**fields, group_field=by):
                value = document.group
                if value not in counters:
                    number = len(counters) + 1
                    check_bytes(
                        number * settings.bytes,
                        what=f"the tables of {number:,} values of {by!r}",
                        remedy="pass a column of fewer values, or a smaller `length`, `folds` or "
                        "`nulls`",
                    )
                    counters[value] = DocumentCounter(options, opened=(tokenizer, settings))
                counters[value].add(str(document.text))
            progress.say(f"{shard.name}: {len(counters):,} values of {by}")
        if not counters:
            raise InputError(f"no documents in {len(shards)} shards; pass files with text")
        counts = {key: counter.counts(f"{by} {key or '–'}") for key, counter in counters.items()}
        for name, stored in zip(_folder_names([*counts]), counts.values(), strict=True):
            write_counts(stored, Path(out) / name)
    return counts


def _folder_names(values: list[str | None]) -> list[str]:
    """Names of folders for any values; clashing names end with a hash.

    Names that differ only in case clash, as on the disks of macOS and Windows.
    """
    names = [_NO_NAME.sub("_", value or "").strip("._")[:_LONGEST] for value in values]
    uses = Counter([NO_GROUP, *(name.casefold() for name in names)])
    folders = []
    for value, name in zip(values, names, strict=True):
        if value is None:
            name = NO_GROUP
        elif not name or uses[name.casefold()] > 1:
            name += f"-{content_hash(value.encode(errors='surrogatepass')).hexdigest()[:8]}"
        folders.append(name)
    return folders
