"""Counts of each language, source or whatever a column says, in one pass over the documents."""

import os
import re
from pathlib import Path

from jaxpe._core.errors import InputError
from jaxpe._core.files import content_hash, locked_folder
from jaxpe._core.memory import check_bytes
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.counts.base import StoredCounts
from jaxpe.analysis.counts.count_files import write_counts
from jaxpe.analysis.counts.document_counter import DocumentCounter
from jaxpe.analysis.counts.job import CountOptions, open_sources

NO_GROUP = "without"  # the folder of documents that have none
_NO_NAME = re.compile(r"[^\w.-]+")
_LONGEST = 60  # characters of the name of a folder


def count_by(
    options: CountOptions,
    out: str | os.PathLike[str],
    *,
    by: str,
    progress: Progress = SILENT,
) -> dict[str | None, StoredCounts]:
    """Count the documents of each value of a column apart, all in one pass.

    The counts of each value go into a folder of their own, named by the value, with a hash where
    names would clash. Documents without a value have the key None and the folder `without`. The sum
    of all, by `jaxpe merge`, is that of all documents. Memory is for the tables of all values; a
    run that is killed starts anew.

    Args:
        options: documents to count, and settings, of one process.
        out: folder for the folders.
        by: column or key with the language, the source or the like.
        progress: is told lines now and then.

    Raises:
        InputError: as `count`; a `group_field` as well, several processes, or more values than
            memory holds tables of.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> rows = [{"text": "to be", "lang": "en"}, {"text": "sein", "lang": "de"}]
    >>> _ = (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    >>> options = CountOptions(
    ...     sources=(str(folder / "a.jsonl"),), tokenizer="bytes", length=4, folds=4, nulls=0)
    >>> found = count_by(options, folder / "counts", by="lang")
    >>> sorted(found), sorted(path.name for path in (folder / "counts").iterdir())
    (['de', 'en'], ['.lock', 'de', 'en'])
    """
    if options.group_field is not None or options.several:
        raise InputError(
            "documents are counted by one column, in one process; leave `group_field` and the "
            "options of several processes out"
        )
    shards, tokenizer, settings = open_sources(options, Path(out), by=by, progress=progress)
    with locked_folder(out):
        first = DocumentCounter(options, opened=(tokenizer, settings))
        counters: dict[str | None, DocumentCounter] = {}
        fields = {"text_field": options.text_field, "skip_nulls": options.skip_nulls}
        for shard in shards:
            for document in shard.documents(**fields, group_field=by):
                value = document.group
                if value not in counters:
                    _check_memory((len(counters) + 1) * settings.bytes, len(counters) + 1, by)
                    counters[value] = first.another()
                counters[value].add(str(document.text))
            progress.say(f"{shard.name}: {len(counters):,} values of {by}")
        if not counters:
            raise InputError(f"no documents in {len(shards)} shards; pass files with text")
        found = {key: counter.counts(f"{by} {key or '–'}") for key, counter in counters.items()}
        for name, stored in zip(_folders([*found]), found.values(), strict=True):
            write_counts(stored, Path(out) / name)
    return found


def _check_memory(needed: int, values: int, by: str) -> None:
    check_bytes(
        needed,
        what=f"the tables of {values:,} values of {by!r}",
        remedy="pass a column of fewer values, or a smaller `length`, `folds` or `nulls`",
    )


def _folders(values: list[str | None]) -> list[str]:
    """Names of folders for values, which may hold anything; those that clash have a hash.

    Names that differ in case alone clash, as they do on the disks of macOS and Windows.
    """
    names = [_NO_NAME.sub("_", value or "").strip("._")[:_LONGEST] for value in values]
    taken = [NO_GROUP, *(name.casefold() for name in names)]
    clear = [bool(name) and taken.count(name.casefold()) == 1 for name in names]
    return [
        NO_GROUP if value is None else name if is_clear else f"{name}-{_hash(value)}"
        for value, name, is_clear in zip(values, names, clear, strict=True)
    ]


def _hash(value: str) -> str:
    return content_hash(value.encode(errors="surrogatepass")).hexdigest()[:8]
