"""The job behind `jaxpe count` and `jaxpe merge`: from options to counts in a folder."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jax

from jaxpe._core.errors import InputError
from jaxpe._core.files import locked_folder
from jaxpe._core.memory import check_bytes, cores
from jaxpe._core.options import check_range
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.counts.base import StoredCounts
from jaxpe.analysis.counts.count_files import is_counted, read_about, read_counts, write_counts
from jaxpe.analysis.counts.merge import merged, plan_merge
from jaxpe.analysis.counts.processes import run_on_all_processes, start_processes
from jaxpe.analysis.counts.settings import INT32_MAX, CountSettings, count_settings, shortened
from jaxpe.analysis.counts.shards import count_shards
from jaxpe.analysis.counts.vocabulary import Vocabulary, own_vocabulary, read_vocabulary
from jaxpe.data import Shard, Tokenizer, find_shards, open_tokenizer, tokenizer_of_ids
from jaxpe.data.formats.token_files import Stream
from jaxpe.data.tokens.tokenizers import is_of_ids
from jaxpe.data.tokens.vocabulary import (
    DEFAULT_TOKENIZER,
    UNKNOWN,
    sorted_vocabulary,
    vocabulary_occurs,
)
from jaxpe.geometry import position_bins

_EDGE_BYTES = 128  # of an edge of a bin, while edges are made and as one of the settings
_LARGE = 2**26  # bytes of a corpus that several processes tokenize sooner than one
_MOST_WORKERS = 1024
_MOST_MEMORY = 1e9  # gigabytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountOptions:
    """Count the tokens at each position of any number of documents, and write the counts.

    Re-run the same command to resume an interrupted count.

    Attributes:
        sources: paths and globs (in quotes) of .txt, .tsv, .csv, .jsonl, each also .gz,
            .bz2, .xz, .zst, of .parquet, .arrow, .array_record, of `jaxpe export` folders and of
            Hugging Face datasets saved to disk; of token ids, .bin, .npy, and
            lists of integers in .parquet and .arrow; stdlib, sst2, imdb. A .csv may have quoted
            fields. A .tsv is read so where all its quotation marks quote fields; rename it to .csv
            to force that.
        tokenizer: tokenizer as for `jaxpe report`, words when absent; for token ids, the one that
            made them, or "ids".
        vocab_size: number of ids, for the tokenizer ids.
        separator: id that ends a document in a stream of ids; when absent, every `length` ids are
            a document.
        vocab: file with the vocabulary of words or characters, such as the vocabulary.json
            that an earlier count wrote, or text with one a line; [UNK] in it stands for all others.
            Made in a first pass over the documents when absent.
        max_vocab: largest size of the vocabulary; rarer words become [UNK], and counts can then be
            merged only if they have the same `vocab`.
        special: add [CLS] and [SEP] and leave them out of the counts, as BERT does.
        length: positions read of each document.
        bins: number of bins of positions, for long contexts; when absent every position is counted.
        spacing: bins of equal widths, or of widths that grow with the position.
        folds: number of folds, in which a hash puts each document; for halves and intervals.
        nulls: number of corpora with shuffled positions, for the test of dimensions; 0 for none.
        seed: random seed of the shuffles.
        batch_size: documents of a step, of each process.
        save_every: steps between saves.
        workers: number of processes that tokenize words, characters or bytes, and look for the
            vocabulary of the first two; 0 for a thread of this one. When absent, one a core for
            large corpora.
        skip_unreadable: leave out and report shards that cannot be read, after reading each one
            through first; otherwise the first such shard stops the run.
        memory: gigabytes that may be used; all free memory when absent.
        text_field: column or key with the text.
        skip_nulls: leave out rows whose text is null or missing, and count them; otherwise the
            first such row stops the run.
        group_field: column or key such as the author or source, for documents that are not
            independent: those with the same value share a fold. Without one, equal documents do,
            and near-copies count as independent.
        data_dir: folder with sst2 and imdb; JAXPE_DATA_DIR when absent.
        distributed: whether this is one of several processes of a cluster manager (SLURM, GKE).
        coordinator: host and port of process 0, of several processes started by hand.
        processes: number of processes.
        process: number of this process, from 0.
    """

    sources: tuple[str, ...]
    tokenizer: str | None = None
    vocab_size: int | None = None
    separator: int | None = None
    vocab: Path | None = None
    max_vocab: int | None = None
    special: bool = False
    length: int = 128
    bins: int | None = None
    spacing: Literal["equal", "log"] = "equal"
    folds: int = 16
    nulls: int = 20
    seed: int = 0
    batch_size: int = 4096
    save_every: int = 200
    workers: int | None = None
    skip_unreadable: bool = False
    memory: float | None = None
    text_field: str | None = None
    skip_nulls: bool = False
    group_field: str | None = None
    data_dir: Path | None = None
    distributed: bool = False
    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None

    @property
    def several(self) -> bool:
        """Whether this is one of several processes."""
        by_hand = (self.coordinator, self.processes, self.process)
        return self.distributed or any(value is not None for value in by_hand)


def count(
    options: CountOptions, out: str | os.PathLike[str], *, progress: Progress = SILENT
) -> StoredCounts:
    """Find the shards and the tokenizer, join the other processes, count, and write the counts.

    Args:
        options: documents to count, and settings.
        out: folder for the counts, and for the state while counting.
        progress: is told lines now and then, of process 0 alone.

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
    _check_memory(options.memory)
    if options.several and not jax.distributed.is_initialized():
        start_processes(options.coordinator, processes=options.processes, process=options.process)
    told = SILENT if jax.process_index() else progress
    out = Path(out)

    def prepared() -> tuple[Sequence[Shard], Tokenizer, CountSettings]:
        shards = find_shards(options.sources, data_dir=options.data_dir)
        wanted = _wanted(options)
        tokenizer = _tokenizer(options, shards, out, wanted, told)
        return shards, tokenizer, count_settings(tokenizer, **wanted)

    shards, tokenizer, settings = run_on_all_processes(prepared)
    stream = None
    if is_of_ids(tokenizer):
        stream = Stream(options.separator, options.length, len(tokenizer.tokens))
    return count_shards(
        shards,
        out,
        tokenizer=tokenizer,
        settings=settings,
        text_field=options.text_field,
        stream=stream,
        skip_nulls=options.skip_nulls,
        batch_size=options.batch_size,
        workers=_workers(options, shards),
        save_every=options.save_every,
        skip_unreadable=options.skip_unreadable,
        memory=None if options.memory is None else int(options.memory * 1e9),
        progress=told,
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
            of words and characters may differ. Any order of them gives the same bytes.
        out: folder for their sum.
        weights: number of times that documents of each folder count, for a mixture; once when
            absent. A document that counts several times stays in its fold, so halves stay
            independent.

    Raises:
        InputError: no counts there, counts that do not add (as `merge_counts`), or a folder that
            holds counts.

    >>> import tempfile
    >>> folder, parts = Path(tempfile.mkdtemp()), ("a", "b")
    >>> for name in parts:
    ...     _ = (folder / f"{name}.txt").write_text(f"to be {name}\\n")
    ...     source = {"sources": (str(folder / f"{name}.txt"),), "tokenizer": "bytes"}
    ...     _ = count(CountOptions(**source, length=8, folds=4, nulls=0), folder / name)
    >>> merge([folder / name for name in parts], folder / "both").documents
    2
    """
    # Read one by one, twice: memory is for two of them, however many there are.
    names = [str(folder) for folder in folders]
    plan = plan_merge(map(read_about, folders), names=names, weights=weights)
    whole = merged(plan, map(read_counts, folders))
    with locked_folder(out):
        if is_counted(out):
            raise InputError(f"{out} holds counts already; pass another folder")
        write_counts(whole, out)
    return whole


def tokenizer_from_options(options: CountOptions) -> tuple[Tokenizer, CountSettings]:
    """The tokenizer and the settings that options ask for, before there is any document.

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
    tokenizer = _tokenizer(options, (), Path(), _wanted(options), SILENT)
    return tokenizer, count_settings(tokenizer, **_wanted(options))


def open_sources(
    options: CountOptions, out: Path, *, by: str, progress: Progress
) -> tuple[Sequence[Shard], Tokenizer, CountSettings]:
    """The shards of text, and the tokenizer and settings for them, with a column to count by."""
    shards = find_shards(options.sources, data_dir=options.data_dir)
    if _are_ids(shards, options):
        raise InputError(f"`by` {by!r} is for text, and the documents are token ids; leave it out")
    tokenizer = _tokenizer(options, shards, out, _wanted(options), progress)
    return shards, tokenizer, count_settings(tokenizer, **_wanted(options))


def _check_memory(gigabytes: float | None) -> None:
    if gigabytes is not None and not 0 < gigabytes <= _MOST_MEMORY:
        raise InputError(f"`memory` is {gigabytes}; pass gigabytes, such as 16")


def _workers(options: CountOptions, shards: Sequence[Shard]) -> int:
    """Processes that tokenize; those of a corpus that is done sooner than they start are none."""
    if options.workers is not None:
        check_range("workers", options.workers, least=0, most=_MOST_WORKERS)
        return options.workers
    large = sum(shard.bytes for shard in shards) >= _LARGE
    return cores() if large and not options.several and cores() > 1 else 0


def _wanted(options: CountOptions) -> dict[str, Any]:
    """Arguments of `count_settings`, from the options."""
    names = ("length", "folds", "nulls", "seed", "group_field")
    edges = None
    if options.bins is not None:
        edges = _edges(options.length, options.bins, options.spacing)
    return {name: getattr(options, name) for name in names} | {"edges": edges}


def _edges(length: int, bins: int, spacing: Literal["equal", "log"]) -> tuple[int, ...]:
    if not 1 <= bins <= length <= INT32_MAX:
        raise InputError(
            f"`bins` is {shortened(bins)} and `length={shortened(length)}`; pass 1 bin or more, no "
            f"more than the length, and no length beyond {INT32_MAX:,}"
        )
    check_bytes(_EDGE_BYTES * bins, what=f"`bins={bins}`", remedy="pass fewer")
    return tuple(position_bins(length, bins=bins, spacing=spacing).tolist())


def _are_ids(shards: Sequence[Shard], options: CountOptions) -> bool:
    """Whether the documents are token ids, which all of them are or none."""
    if options.tokenizer == "ids":
        return True
    kinds = [shard.holds_ids(options.text_field) for shard in shards]
    if any(kinds) and not all(kinds):
        ids, text = (shards[kinds.index(kind)].name for kind in (True, False))
        raise InputError(f"{ids} holds token ids, and {text} text; count them one after the other")
    return bool(kinds) and all(kinds)


def _tokenizer(
    options: CountOptions,
    shards: Sequence[Shard],
    out: Path,
    settings: dict[str, Any],
    progress: Progress,
) -> Tokenizer:
    """The tokenizer; for words and characters with a vocabulary, made where none is given."""
    name, special = options.tokenizer or DEFAULT_TOKENIZER, options.special
    if _are_ids(shards, options):
        if options.vocab is not None or options.max_vocab is not None:
            raise InputError("the documents are token ids; leave `vocab` and `max_vocab` out")
        return tokenizer_of_ids(name, vocab_size=options.vocab_size, special=special)
    if options.vocab_size is not None or options.separator is not None:
        raise InputError(
            "`vocab_size` and `separator` are for token ids, and the documents are text; leave "
            "them out"
        )
    if not vocabulary_occurs(name):
        if options.vocab is not None or options.max_vocab is not None:
            raise InputError(
                f"{name} has a vocabulary of its own; leave `vocab` and `max_vocab` out"
            )
        return open_tokenizer(name, special=special, progress=progress)
    if options.vocab is not None:
        if options.max_vocab is not None:
            raise InputError("`vocab` is there already; leave `max_vocab` out")
        vocabulary = sorted_vocabulary(read_vocabulary(options.vocab))
        return open_tokenizer(name, special=special, vocabulary=vocabulary)
    # Errors in the options are raised before the first pass.
    count_settings(open_tokenizer(name, special=special, vocabulary=[UNKNOWN]), **settings)
    vocabulary = own_vocabulary(
        shards,
        out,
        Vocabulary(name, options.length, options.max_vocab, options.text_field),
        group_field=options.group_field,
        skip_unreadable=options.skip_unreadable,
        skip_nulls=options.skip_nulls,
        workers=_workers(options, shards),
        by_default=options.tokenizer is None,
        progress=progress,
    )
    # In one order, whatever that of the file: counts of the same tokens are the same bytes.
    return open_tokenizer(name, special=special, vocabulary=sorted_vocabulary(vocabulary))
