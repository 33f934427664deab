"""The job behind `jaxpe count` and `jaxpe merge`: from options to counts in a folder."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import jax

from jaxpe._core.errors import InputError
from jaxpe._core.files import locked_folder
from jaxpe._core.processes import join_processes, run_on_all_processes
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.counts.base import StoredCounts
from jaxpe.analysis.counts.count_files import is_counted, read_counts, read_header, write_counts
from jaxpe.analysis.counts.merge import merge_streams
from jaxpe.analysis.counts.options import CountOptions
from jaxpe.analysis.counts.settings import CountSettings
from jaxpe.analysis.counts.shards import count_shards
from jaxpe.analysis.counts.vocabulary import corpus_vocabulary, read_vocabulary
from jaxpe.data import Shard, Tokenizer, find_shards, open_tokenizer, tokenizer_of_ids
from jaxpe.data.corpora.sources import hold_ids
from jaxpe.data.formats.table import usual_tokenizer
from jaxpe.data.tokens.vocabulary import (
    DEFAULT_TOKENIZER,
    UNKNOWN,
    sorted_vocabulary,
    vocabulary_occurs,
)


def count(
    options: CountOptions, out: str | os.PathLike[str], *, progress: Progress = SILENT
) -> StoredCounts:
    """Find the shards and the tokenizer, join the other processes, count, and write the counts.

    Args:
        options: documents to count, and settings.
        out: folder for the counts, and for the state while counting.
        progress: receives lines from time to time, in process 0 alone.

    Raises:
        InputError: options out of range or that contradict each other, and what `find_shards`,
            `open_tokenizer`, `start_processes` and `count_shards` raise.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("to be\\nor not\\nto be\\n")
    >>> options = CountOptions(sources=(str(folder / "a.txt"),), length=2, folds=4, nulls=0)
    >>> count(options, folder / "counts").documents
    3
    """
    join_processes(options)
    progress = SILENT if jax.process_index() else progress
    out = Path(out)

    def prepared() -> tuple[Sequence[Shard], Tokenizer, CountSettings]:
        shards = find_shards(options.sources, data_dir=options.data_dir)
        tokenizer = options.tokenizer or usual_tokenizer(shard.path for shard in shards)
        read = dataclasses.replace(options, tokenizer=tokenizer)
        return shards, *tokenizer_and_settings(read, shards, out, progress)

    shards, tokenizer, settings = run_on_all_processes(prepared)
    return count_shards(
        shards, out, options, tokenizer=tokenizer, settings=settings, progress=progress
    )


def merge(
    folders: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    weights: Sequence[int] = (),
) -> StoredCounts:
    """Add counts of different documents, such as from several machines, and write the sum.

    Args:
        folders: folders that `count` wrote, all with the same tokenizer and settings; vocabularies
            of words and characters may differ. Their order does not change a byte of the sum.
        out: folder for their sum.
        weights: number of times that documents of each folder count, for a mixture; once when
            absent. A document that counts several times stays in its fold, so halves stay
            independent.

    Raises:
        InputError: a folder without counts, counts that do not add (as `merge_counts`), or an `out`
            that holds counts.

    >>> import tempfile
    >>> folder, parts = Path(tempfile.mkdtemp()), ("a", "b")
    >>> for name in parts:
    ...     _ = (folder / f"{name}.txt").write_text(f"to be {name}\\n")
    ...     source = {"sources": (str(folder / f"{name}.txt"),), "tokenizer": "bytes"}
    ...     _ = count(CountOptions(**source, length=8, folds=4, nulls=0), folder / name)
    >>> merge([folder / name for name in parts], folder / "both").documents
    2
    """
    # Folders are read one by one, twice, so memory holds at most two of them.
    headers, parts = map(read_header, folders), map(read_counts, folders)
    total = merge_streams(headers, parts, names=[*map(str, folders)], weights=weights)
    with locked_folder(out):
        if is_counted(out):
            raise InputError(f"{out} holds counts already; pass another folder")
        write_counts(total, out)
    return total


def tokenizer_from_options(options: CountOptions) -> tuple[Tokenizer, CountSettings]:
    """The tokenizer and the settings of options, without reading a document.

    Raises:
        InputError: words and characters without a `vocab`, and what `count` raises of options.

    >>> tokenizer, settings = tokenizer_from_options(CountOptions(sources=(), tokenizer="bytes"))
    >>> tokenizer.name, settings.length
    ('bytes', 128)
    """
    name = options.tokenizer or DEFAULT_TOKENIZER
    if vocabulary_occurs(name) and options.vocab is None:
        raise InputError(
            f"the vocabulary of {name} is not known before the documents are; count a sample with "
            "jaxpe count, and pass its vocabulary.json as `vocab`"
        )
    return tokenizer_and_settings(options)


def tokenizer_and_settings(
    options: CountOptions,
    shards: Sequence[Shard] = (),
    out: Path = Path(),
    progress: Progress = SILENT,
) -> tuple[Tokenizer, CountSettings]:
    """Tokenizer and settings for shards; a missing vocabulary is made and written into `out`."""
    name, special = options.tokenizer or DEFAULT_TOKENIZER, options.special
    if _are_ids(shards, options):
        _refuse(options, "the documents are token ids", "vocab", "max_vocab")
        tokenizer = tokenizer_of_ids(name, vocab_size=options.vocab_size, special=special)
        return tokenizer, options.settings(tokenizer)
    _refuse(options, "the documents are text, not token ids", "vocab_size", "separator")
    if not vocabulary_occurs(name):
        _refuse(options, f"{name} has a vocabulary of its own", "vocab", "max_vocab")
        tokenizer = open_tokenizer(name, special=special, progress=progress)
        return tokenizer, options.settings(tokenizer)
    if options.vocab is not None:
        _refuse(options, "`vocab` is passed", "max_vocab")
        vocabulary = read_vocabulary(options.vocab)
    else:
        # Errors in the options are raised before the first pass.
        options.settings(open_tokenizer(name, special=special, vocabulary=[UNKNOWN]))
        workers = options.worker_processes(shards)
        vocabulary = corpus_vocabulary(shards, out, options, workers=workers, progress=progress)
    # Sorted, so that counts of the same tokens are the same bytes.
    tokenizer = open_tokenizer(name, special=special, vocabulary=sorted_vocabulary(vocabulary))
    return tokenizer, options.settings(tokenizer)


def _are_ids(shards: Sequence[Shard], options: CountOptions) -> bool:
    """Whether the documents are token ids, as all or none must be."""
    if options.tokenizer == "ids":
        return True
    return hold_ids([shard.path for shard in shards], options.text_field)


def _refuse(options: CountOptions, reason: str, *names: str) -> None:
    """Raise for options without an effect."""
    if any(getattr(options, name) is not None for name in names):
        raise InputError(f"{reason}; leave {' and '.join(f'`{name}`' for name in names)} out")
