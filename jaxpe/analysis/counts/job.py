"""The job behind `jaxpe count`: shards to counts in a folder."""

import dataclasses
import itertools
import multiprocessing
import os
import signal
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe._core.files import content_hash, locked_folder
from jaxpe._core.json_values import from_json, parse_json, read_small, seal, to_json
from jaxpe._core.memory import cores
from jaxpe._core.options import Choice, check_range
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.counts.cells import Cells, batch_size, count_documents, sum_cells
from jaxpe.analysis.counts.merge import sum_files
from jaxpe.analysis.counts.options import CountOptions
from jaxpe.analysis.counts.settings import CountSettings
from jaxpe.analysis.counts.stored import (
    CountedShard,
    CountHeader,
    CountPart,
    StoredCounts,
    counts_file,
    is_counted,
    read_part,
    write_counts,
    write_part,
)
from jaxpe.data import dependent_groups, open_tokenizer
from jaxpe.data.corpora.shards import Shard, find_shards
from jaxpe.data.corpora.sources import chosen_fields, hold_ids
from jaxpe.data.formats.columns import Fields, ReadLog
from jaxpe.data.formats.files import decoded
from jaxpe.data.formats.table import usual_tokenizer
from jaxpe.data.formats.token_files import Stream
from jaxpe.data.tokens.tokenizers import Tokenizer, tokenizer_of_ids
from jaxpe.data.tokens.vocabulary import (
    DEFAULT_TOKENIZER,
    refuse_undivided,
    sorted_vocabulary,
    vocabulary_occurs,
)
from jaxpe.geometry.counts.position_counts import content_labels

_LARGE = 2**26  # bytes of a corpus from which several processes are faster than one
_SAMPLE = 2048  # first documents, and their first positions, in which near-copies are searched
_MANY_COPIES = 0.01  # least share of near-copies in a message


def count(
    options: CountOptions, out: str | os.PathLike[str], *, progress: Progress = SILENT
) -> StoredCounts:
    """Count every shard by itself, add their counts, and write the sum.

    The counts equal `count_tokens` on all documents at once, bit for bit, for any shards, machines
    and order. Folds follow from the text of words and characters, not from their ids, so counts
    with different vocabularies add. The same call resumes an interrupted count, and one with other
    sources goes on: a shard is done if its file is in `out/shards`. Without this folder, which may
    be deleted, finished counts stay as they are.

    Args:
        options: documents to count, and settings.
        out: folder for the counts.
        progress: progress over the shards.

    Raises:
        InputError: options out of range or that contradict each other; an unreadable shard; no
            documents; tables that do not fit into memory; or a folder that holds other counts.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("to be\\nor not\\nto be\\n")
    >>> options = CountOptions(sources=(str(folder / "a.txt"),), length=2, folds=4, nulls=0)
    >>> stored = count(options, folder / "counts")
    >>> stored.header.tokens, stored.counts.merged().tokens.tolist()
    (['be', 'not', 'or', 'to'], [[0, 0, 1, 2], [2, 1, 0, 0]])
    """
    log = ReadLog()
    shards = find_shards(options.sources, data_dir=options.data_dir, log=log)
    paths = [shard.path for shard in shards]
    named = Fields(options.text_field, options.group_field, "group_field", options.skip_nulls)
    options = dataclasses.replace(
        options,
        text_field=chosen_fields(paths, named, log).text,
        tokenizer=options.tokenizer or usual_tokenizer(paths),
    )
    is_ids = hold_ids(paths, options.text_field)
    if options.tokenizer == "ids" and not is_ids:
        raise InputError(
            f"{paths[0]} holds text, not token ids; pass another `tokenizer`, or write the ids as "
            "lists of integers into a .parquet"
        )
    tokenizer, settings = tokenizer_and_settings(options, is_ids=is_ids)
    if not (shards := shards[options.part :: options.parts]):
        raise InputError(f"{len(paths)} shards have no `part` {options.part}; pass fewer `parts`")
    with locked_folder(out):
        work = [_Work(x, *_digest_and_file(x, options, tokenizer, Path(out))) for x in shards]
        if is_counted(out) and not any(each.file.exists() for each in work):
            raise InputError(f"{out} holds counts of other sources or options; pass another `out`")
        if not is_ids:
            _look_at_first(shards, options, tokenizer, settings, progress)
        # Copies of a shard have one file; two processes must not write it at once.
        todo = [*{each.digest or each.shard.path: each for each in work}.values()]
        mapped = _mapped(partial(_count_into_file, options, is_ids), todo, options)
        records = [*progress.track(mapped, "shards", total=len(todo))]
        files = [each.file for each in work if each.file.exists()]
        if not files:
            raise InputError(f"no documents in {len(shards)} shards; pass files with text")
        table, nulls, header = sum_files(files, max_vocab=options.max_vocab)
        total = table.sum(axis=(0, 1)).tolist()
        if not any(total):
            raise InputError(f"no tokens in {len(shards)} shards; pass files with text")
        if options.tokenizer is None:
            refuse_undivided(dict(zip(header.tokens, total, strict=True)), shards[0].path)
        others = [record for record in records if record is not None]
        header = header._replace(
            shards=tuple(sorted([*header.shards, *others])), choices=log.choices + header.choices
        )
        write_counts(StoredCounts(table, nulls, header), out)
    return StoredCounts(table, nulls, header)


def tokenizer_and_settings(
    options: CountOptions, *, is_ids: bool = False
) -> tuple[Tokenizer, CountSettings]:
    """The tokenizer and the settings of options.

    Args:
        options: options of the count.
        is_ids: whether the documents are token ids.

    Raises:
        InputError: options out of range or without an effect, or an unusable tokenizer.

    >>> options = CountOptions(sources=(), tokenizer="bytes")
    >>> tokenizer, settings = tokenizer_and_settings(options)
    >>> tokenizer.name, settings.length
    ('bytes', 128)
    """
    name, special = options.tokenizer or DEFAULT_TOKENIZER, options.special
    vocabulary = None
    if is_ids:
        _refuse(options, "the documents are token ids", "vocab", "max_vocab")
        tokenizer = tokenizer_of_ids(name, vocab_size=options.vocab_size, special=special)
        check_range("separator", options.separator, least=0, most=len(tokenizer.tokens) - 1)
    else:
        _refuse(options, "the documents are text, not token ids", "vocab_size", "separator")
        if not vocabulary_occurs(name):
            _refuse(options, f"{name} has a vocabulary of its own", "vocab", "max_vocab")
        elif options.vocab is not None:
            _refuse(options, "`vocab` is passed", "max_vocab")
            # Sorted, so that counts of the same tokens are the same bytes.
            vocabulary = sorted_vocabulary(read_vocabulary(options.vocab))
        tokenizer = open_tokenizer(name, special=special, vocabulary=vocabulary)
    return tokenizer, options.settings(tokenizer)


def _refuse(options: CountOptions, reason: str, *names: str) -> None:
    """Raise for options without an effect."""
    if any(getattr(options, name) is not None for name in names):
        raise InputError(f"{reason}; leave {' and '.join(f'`{name}`' for name in names)} out")


def read_vocabulary(path: Path) -> list[str]:
    """Vocabulary from a file: counts (`counts.npz`), a JSON list, or one token a line."""
    if path.is_dir() or path.suffix == ".npz":
        return read_part(counts_file(path) if path.is_dir() else path).header.tokens
    remedy = "pass the folder of a count, a JSON list of strings, or one token a line"
    content = read_small(path, remedy=remedy)
    if path.suffix == ".json":
        value = parse_json(content, where=path, remedy=remedy)
        return from_json(list[str], value, where=str(path))
    # Not splitlines, which splits at characters that are tokens, such as U+2028.
    return [*filter(None, decoded(content, str(path)).replace("\r\n", "\n").split("\n"))]


class _Work(NamedTuple):
    """A shard, its digest, and the file of its counts."""

    shard: Shard
    digest: str
    file: Path


def _digest_and_file(
    shard: Shard, options: CountOptions, tokenizer: Tokenizer, out: Path
) -> tuple[str, Path]:
    """Digest of a shard, and its file, whose name is a hash of all that determines the counts."""
    try:
        digest = shard.digest()
    except InputError:
        if not options.skip_unreadable:
            raise
        digest = ""
    ignored = ("sources", "workers", "data_dir", "part", "parts", "skip_unreadable", "max_vocab")
    same = {k: v for k, v in to_json(options).items() if k not in ignored}
    versions = [jaxpe.__version__, unicodedata.unidata_version, tokenizer.checksum]
    return digest, out / "shards" / f"{seal({**same, 'versions': versions, 'shard': digest})}.npz"


def _count_into_file(options: CountOptions, is_ids: bool, work: _Work) -> CountedShard | None:
    """Count a shard unless its file exists; of one without documents or unreadable its record."""
    shard, digest, file = work
    if file.exists():
        return None
    try:
        part = count_shard(shard, digest, options, is_ids=is_ids)
    except InputError as error:
        if not options.skip_unreadable:
            raise
        return CountedShard(shard.name, shard.bytes, "", 0, unreadable=str(error))
    if not part.header.documents:
        return part.header.shards[0]
    write_part(part, file)
    return None


def count_shard(
    shard: Shard, digest: str, options: CountOptions, *, is_ids: bool = False
) -> CountPart:
    """Count the documents of a shard, batch by batch.

    Args:
        shard: shard from `find_shards`.
        digest: hash of its content.
        options: options with the column of text.
        is_ids: whether the documents are token ids.

    Raises:
        InputError: a shard that cannot be read.
    """
    tokenizer, settings = tokenizer_and_settings(options, is_ids=is_ids)
    log, documents = ReadLog(), 0

    def parts() -> Iterator[Cells]:
        nonlocal documents
        for texts, groups in _batches(shard, options, settings, is_ids, log):
            documents += len(texts)
            in_fold = None if options.group_field is None else groups
            yield count_documents(texts, in_fold, tokenizer=tokenizer, settings=settings)

    cells = sum_cells(parts())
    counted = CountedShard(shard.name, shard.bytes, digest, documents, log.null_texts)
    return counted_part(cells, counted, tokenizer, options, choices=log.choices)


def counted_part(
    cells: Cells,
    shard: CountedShard,
    tokenizer: Tokenizer,
    options: CountOptions,
    *,
    choices: tuple[Choice, ...] = (),
) -> CountPart:
    """Counts of one shard from its cells."""
    fields = shard.documents, options.settings(tokenizer), (shard,), options.text_field
    choices = choices + tokenizer.choices
    return CountPart(CountHeader(*fields, choices, list(tokenizer.tokens)), cells)


def engine_shard(name: str, documents: int, cells: Cells) -> CountedShard:
    """Record of documents that an engine passed; its digest is the one of their counts."""
    digest = content_hash(cells.numbers.tobytes() + cells.counts.tobytes()).hexdigest()
    return CountedShard(name, 0, digest, documents)


def _batches(
    shard: Shard, options: CountOptions, settings: CountSettings, is_ids: bool, log: ReadLog
) -> Iterator[tuple[Any, list[str | None] | None]]:
    """Texts of a shard, or its token ids, and their groups."""
    fields = options.text_field, options.group_field, options.skip_nulls
    names, most = ("text_field", "group_field", "skip_nulls"), batch_size(settings)
    reading: dict[str, Any] = {"log": log, **dict(zip(names, fields, strict=True))}
    if not is_ids:
        documents = shard.documents(**reading)
        while batch := [*itertools.islice(documents, most)]:
            yield [x.text for x in batch], [x.group for x in batch]
        return
    stream = Stream(options.separator, options.length, settings.vocab_size)
    for ids, groups in shard.id_blocks(**reading, stream=stream):
        while len(ids):
            taken, ids = ids.split(most)
            yield taken, groups and groups[: len(taken)]
            groups = groups and groups[len(taken) :]


def _mapped(
    count_one: Callable[[_Work], CountedShard | None], work: Sequence[_Work], options: CountOptions
) -> Iterator[CountedShard | None]:
    """Results of all shards in order, from several processes or from this one."""
    is_large = sum(each.shard.bytes for each in work) >= _LARGE
    processes = (cores() if is_large else 1) if options.workers is None else options.workers
    if min(processes, len(work)) < 2:
        yield from map(count_one, work)
        return
    # Not forked: a fork would copy the threads of JAX and tokenizers in the middle of their work.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_follow_parent) as pool:
        try:
            yield from pool.map(count_one, work)
        except BaseException:  # an interrupt does not wait for shards in progress
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def _follow_parent() -> None:
    """Leave interrupts to the parent, and end when it ends, which a pool does not notice."""
    jax.config.update("jax_platforms", "cpu")  # several processes would fill a GPU's memory
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent: Any = multiprocessing.parent_process()

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _look_at_first(
    shards: Sequence[Shard],
    options: CountOptions,
    tokenizer: Tokenizer,
    settings: CountSettings,
    progress: Progress,
) -> None:
    """Refuse text without spaces, and say where many of the first documents are near-copies.

    Folds cannot show this: a fold depends on the content of one document alone, so counts do not
    depend on batches, shards and machines.
    """
    batches = _batches(shards[0], options, settings, False, ReadLog())
    try:
        first = next(batches, ([], None))[0][:_SAMPLE]
        ids, mask = tokenizer.encode(first, length=min(settings.length, _SAMPLE))
    except InputError:
        return  # raised again where the shard is counted
    if not len(first):
        return
    if options.tokenizer is None:
        numbers = np.bincount(ids[mask], minlength=len(tokenizer.tokens)).tolist()
        refuse_undivided(dict(zip(tokenizer.tokens, numbers, strict=True)), shards[0].path)
    if options.group_field is None:
        groups = dependent_groups(ids, mask, exclude=settings.exclude)
        share = 1 - len(np.unique(groups)) / len(np.unique(np.asarray(content_labels(ids, mask))))
        if share >= _MANY_COPIES:
            progress.say(
                f"{share:.0%} of the first {len(ids):,} documents are near-copies or pieces of "
                "others among them and count as independent, which makes noise look like "
                "position; pass `group_field`, the name of a column with what they share"
            )
