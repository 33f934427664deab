"""Counting of shards: read, tokenize, count on the devices, save, resume after an interruption."""

import contextlib
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh

import jaxpe
from jaxpe._core.checkpoints import Checkpoints
from jaxpe._core.errors import InputError, differences, require
from jaxpe._core.files import locked_folder
from jaxpe._core.json_values import to_json
from jaxpe._core.options import check_range
from jaxpe._core.processes import (
    gather_values,
    require_common_folder,
    require_equal_values,
    run_on_all_processes,
    run_on_first_process,
)
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.counts.base import CountedShard, StoredCounts
from jaxpe.analysis.counts.count_files import is_counted, read_counts, write_counts
from jaxpe.analysis.counts.memory import check_memory
from jaxpe.analysis.counts.options import CountOptions
from jaxpe.analysis.counts.settings import INT32_MAX, CountSettings
from jaxpe.analysis.counts.state import (
    DOCUMENTS,
    CountState,
    abstract_state,
    batch_adder,
    count_mesh,
    documents_per_part,
    total,
    zero_state,
)
from jaxpe.data import Shard, TokenBatch, Tokenizer, dependent_groups
from jaxpe.data.formats.token_files import Stream
from jaxpe.data.tokens.tokenizers import reads_ids
from jaxpe.data.tokens.workers import TokenizerPool, runs_in_python
from jaxpe.geometry.counts.position_counts import content_labels

_SAMPLE = 2048  # first documents, and their first positions, in which near-copies are searched
_MANY_COPIES = 0.01  # least share of near-copies in a message


def count_shards(
    shards: Sequence[Shard],
    directory: str | Path,
    options: CountOptions | None = None,
    *,
    tokenizer: Tokenizer,
    settings: CountSettings,
    mesh: Mesh | None = None,
    progress: Progress = SILENT,
) -> StoredCounts:
    """Count documents larger than memory, and write the counts into a folder.

    The host reads and tokenizes in a thread while the devices count. The counts equal
    `count_tokens` on all documents at once, bit for bit, for any batches, shards, devices and
    processes. Folds depend on the text of words and characters, not on their ids, so counts with
    different vocabularies add.

    Counts and the position in the documents are saved together. After an interruption the same call
    resumes, and no document is lost or counted twice. Several processes make the same call, with a
    shared folder; each reads its part of the documents.

    Args:
        shards: result of `jaxpe.data.find_shards`.
        directory: folder of the counts, and of the state while counting.
        options: options of reading, saving and the machine; options covered by `settings` or
            `tokenizer` are ignored. Default: `CountOptions` of no sources.
        tokenizer, settings: results of `open_tokenizer` and `count_settings`.
        mesh: device mesh from `count_mesh`. Default: all devices.
        progress: receiver of messages.

    Raises:
        InputError: too little memory or disk, an unreadable shard, no documents, more documents
            than int32 counts hold on a device, or a folder that holds other counts.

    >>> import tempfile
    >>> from jaxpe.analysis.counts import count_settings
    >>> from jaxpe.data import find_shards, open_tokenizer
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("to be\\nor not\\nto be\\n")
    >>> words = open_tokenizer(vocabulary=["to", "be", "[UNK]"])
    >>> settings = count_settings(words, length=2, folds=4, nulls=0)
    >>> shards = find_shards([folder / "*.txt"])
    >>> stored = count_shards(shards, folder, tokenizer=words, settings=settings)
    >>> stored.counts.merged().tokens.tolist()
    [[2, 0, 1], [0, 2, 1]]
    """
    require("grain", extra="data")
    from jaxpe.data.tokens.batches import Reading, token_batches  # imports Grain

    options = options or CountOptions(sources=())
    mesh, directory = mesh or count_mesh(), Path(directory)
    part, parts = jax.process_index(), jax.process_count()
    stream = None
    if reads_ids(tokenizer):
        stream = Stream(options.separator, settings.length, len(tokenizer.tokens))
    fields = options.text_field, settings.group_field, options.batch_size, part, parts
    skips = options.skip_unreadable, options.skip_nulls
    reading = Reading(shards, *fields, *skips, stream)
    workers = options.worker_processes(shards)

    run_on_all_processes(lambda: _check_options(options, settings, mesh))
    config = _config(settings, reading, mesh)
    contents = {f"shard {number}": shard.identity for number, shard in enumerate(shards)}
    facts = {"vocabulary": settings.checksum, **config, "shards": len(shards)} | contents
    require_equal_values({**_versions(), **facts, "save_every": options.save_every})
    with contextlib.ExitStack() as stack:
        run_on_first_process(lambda: stack.enter_context(locked_folder(directory)))
        require_common_folder(directory)
        if any(gather_values(is_counted(directory))):
            stored = run_on_all_processes(
                lambda: _earlier_counts(directory, settings, reading, config["separator"])
            )
            progress.say(f"{directory} holds these counts already")
        else:
            pool = None
            if workers and stream is None and runs_in_python(tokenizer):
                pool = TokenizerPool(tokenizer, length=settings.length, processes=workers)
                stack.enter_context(pool)
            batches = token_batches(reading, tokenizer, length=settings.length, pool=pool)
            stored = _resumed_counts(
                directory,
                batches,
                tokenizer,
                settings,
                reading,
                mesh,
                config,
                options.save_every,
                progress,
            )
            run_on_first_process(lambda: write_counts(stored, directory))
        if part == 0:
            shutil.rmtree(directory / "state", ignore_errors=True)
        return stored


def _check_options(options: CountOptions, settings: CountSettings, mesh: Mesh) -> None:
    check_range("batch_size", options.batch_size, least=1, most=INT32_MAX)
    check_range("save_every", options.save_every, least=1, most=INT32_MAX)
    if options.batch_size % (rows := mesh.shape[DOCUMENTS] // jax.process_count()):
        raise InputError(f"`batch_size` is {options.batch_size}; pass a multiple of {rows}")
    memory = None if options.memory is None else int(options.memory * 1e9)
    check_memory(settings, batch_size=options.batch_size, limit=memory)


def _resumed_counts(
    directory: Path,
    batches: Any,
    tokenizer: Tokenizer,
    settings: CountSettings,
    reading: Any,
    mesh: Mesh,
    config: dict[str, Any],
    save_every: int,
    progress: Progress,
) -> StoredCounts:
    """The counts, from the beginning or from the saved state in the folder."""
    from jaxpe.data.tokens.batches import empty_batch

    state_folder = directory / "state"
    with (
        contextlib.closing(iter(batches)) as stream,
        Checkpoints(state_folder, config=config) as checkpoints,
    ):
        saved = checkpoints.restore(abstract_state(settings, mesh))
        state, step = saved[:2] if saved else (zero_state(settings, mesh), 0)
        require_equal_values({"step": step})
        if saved:
            stream.set_state(saved.data[jax.process_index()])
            run_on_all_processes(lambda: _check_record(stream.get_state(), state, state_folder))
            progress.say(f"going on from step {step:,}")
        watched = stream
        if settings.group_field is None:
            watched = _watch_near_copies(stream, settings, progress)
        feed = _Feed(watched, empty_batch(reading, length=settings.length))
        add = batch_adder(settings, mesh, tokenizer.tokens)
        while True:
            _check_room(state, settings, save_every * reading.batch_size)
            state, step = _add_batches(state, step, feed, add, save_every)
            if _all_finished(feed, progress):
                break
            checkpoints.save(step, state, stream.get_state())
    table, nulls, documents = total(state, settings, mesh)
    del state
    shards = _counted_shards(reading.shards, gather_values(feed.place))
    if not table.max(initial=0):  # which takes a third of the time of `any`
        what = "tokens" if documents else "documents"
        raise InputError(f"no {what} in {len(shards)} shards; pass files with text")
    fields = reading.text_field, config["separator"]
    return StoredCounts(table, nulls, documents, settings, list(tokenizer.tokens), shards, *fields)


def _config(settings: CountSettings, reading: Any, mesh: Mesh) -> dict[str, Any]:
    """Settings of a saved state. The content of the documents is checked when they are read."""
    names = ("batch_size", "skip_unreadable", "skip_nulls", "text_field")
    return {
        **to_json(settings),
        **{name: getattr(reading, name) for name in names},
        "processes": reading.parts,
        "separator": None if reading.stream is None else reading.stream.separator,
        "mesh": dict(mesh.shape),
        "shards": len(reading.shards),
        **{f"shard {number}": shard.name for number, shard in enumerate(reading.shards)},
    }


def _versions() -> dict[str, Any]:
    """Versions of all programs on which the tokens of a text and their counts depend."""
    tokenizers = sys.modules.get("tokenizers")  # where it was needed
    return {
        "version of jaxpe": jaxpe.__version__,
        "version of jax": jax.__version__,
        "version of Unicode": unicodedata.unidata_version,
        "version of tokenizers": getattr(tokenizers, "__version__", None),
    }


class _Feed:
    """Batches of this process, then empty ones after the last or after an error.

    All processes take equally many steps and meet after them, so none waits for one that failed.
    """

    def __init__(self, batches: Iterator[TokenBatch], blank: TokenBatch):
        self._batches, self._blank = batches, blank
        self.place: dict[str, Any] = blank.place
        self.finished, self.problem, self.read = False, "", 0
        self.started = time.perf_counter()

    def __next__(self) -> TokenBatch:
        if self.finished:
            return self._blank
        try:
            batch = next(self._batches)
        except InputError as error:
            self.finished, self.problem = True, str(error)
            return self._blank
        self.place, self.finished = batch.place, not batch.valid.all()
        self.read += int(batch.valid.sum())
        return batch


def _watch_near_copies(
    batches: Iterator[TokenBatch], settings: CountSettings, progress: Progress
) -> Iterator[TokenBatch]:
    """The batches, with a message where many of the first documents are near-copies of others.

    Folds cannot show this: a fold depends on the content of one document alone, so counts do not
    depend on batches, shards and processes.
    """
    for number, batch in enumerate(batches):
        ids, mask = (x[batch.valid][:_SAMPLE, :_SAMPLE] for x in (batch.ids, batch.mask))
        if number == 0 and len(ids):
            groups = dependent_groups(ids, mask, exclude=settings.exclude)
            different = len(np.unique(np.asarray(content_labels(ids, mask))))
            share = 1 - len(np.unique(groups)) / different
            if share >= _MANY_COPIES:
                progress.say(
                    f"{share:.0%} of the first {len(ids):,} documents are near-copies or pieces of "
                    "others among them and count as independent, which makes noise look like "
                    "position; pass `group_field`, the name of a column with what they share"
                )
        yield batch


def _add_batches(
    state: CountState,
    step: int,
    feed: _Feed,
    add: Callable[[CountState, TokenBatch], tuple[CountState, Array]],
    steps: int,
) -> tuple[CountState, int]:
    """Add this many batches, or all that remain."""
    before: Array | None = None
    for _ in range(steps):
        state, counted = add(state, next(feed))
        if before is not None:
            before.block_until_ready()  # no more than two batches wait for the devices
        before, step = counted, step + 1
        if feed.finished and jax.process_count() == 1:
            break
    return state, step


def _all_finished(feed: _Feed, progress: Progress) -> bool:
    """Whether all processes have read all documents; raises if one failed to read."""
    status: dict[str, Any] = {name: getattr(feed, name) for name in ("finished", "problem", "read")}
    statuses = gather_values({**status, "documents": sum(feed.place["documents"])})
    for problem in filter(None, (status["problem"] for status in statuses)):
        raise InputError(
            f"{problem}. The counts so far are kept: repair the shard and run the command again, "
            "or start in another folder with `skip_unreadable=True`, which leaves out what cannot "
            "be read"
        )
    documents, read = (sum(status[name] for status in statuses) for name in ("documents", "read"))
    pace = read / (time.perf_counter() - feed.started)
    progress.say(f"{documents:,} documents, {pace:,.0f} a second")
    return all(status["finished"] for status in statuses)


def _check_room(state: CountState, settings: CountSettings, documents: int) -> None:
    """Raise for steps that might exceed the int32 counts of a device."""
    most = max(gather_values(max(documents_per_part(state), default=0)))
    if (most + documents) * settings.widest > INT32_MAX:
        raise InputError(
            f"{most:,} documents are counted, and {documents:,} more might exceed the int32 counts "
            f"of a device, {INT32_MAX:,}; count parts of the corpus apart, and add them by merge"
        )


def _earlier_counts(
    directory: Path, settings: CountSettings, reading: Any, separator: int | None
) -> StoredCounts:
    """Counts in the folder; raises for counts of other documents or settings."""
    stored = read_counts(directory)
    now = {"text_field": reading.text_field, "separator": separator, "shards": len(reading.shards)}
    before = {name: getattr(stored, name) for name in now} | {"shards": len(stored.shards)}
    settings_before, settings_now = stored.settings._asdict(), settings._asdict()
    problems = [*differences(settings_before | before, settings_now | now).values()]
    if stored.null_texts and not reading.skip_nulls:
        problems.append(f"{stored.null_texts:,} rows were left out, for which `skip_nulls` asks")
    if not problems and jax.process_index() == 0:  # which hashes the shards for all
        for number, (was, shard) in enumerate(zip(stored.shards, reading.shards, strict=True)):
            by_content = was.unreadable is None
            same = was.digest == shard.digest() if by_content else was.name == shard.name
            if not same or was.bytes != shard.bytes:
                names = f"{was.identity}, and {shard.name}, {shard.bytes:,} bytes"
                problems.append(f"shard {number} is {names}, of another content")
                break
    if problems:
        raise InputError(f"{directory} holds other counts: {'; '.join(problems)}; pass another")
    return stored


def _counted_shards(
    shards: Sequence[Shard], records: Sequence[dict[str, Any]]
) -> tuple[CountedShard, ...]:
    """Record of each shard, from the records of the processes that read it."""
    unreadable = {number: why for record in records for number, why in record["unreadable"].items()}
    documents = np.sum([record["documents"] for record in records], axis=0, dtype=int).tolist()
    # Processes that share a shard have each read all of its rows.
    nulls = np.max([record["null_texts"] for record in records], axis=0).tolist()
    counted = []
    for number, shard in enumerate(shards):
        why = unreadable.get(str(number))
        digests = {record["digests"][number] for record in records} - {""}
        if len(digests) > 1:
            raise InputError(
                f"{shard.path} is not the same for all processes, or changed while it was counted; "
                "start again in another folder"
            )
        digest = "" if why is not None else digests.pop()
        numbers = documents[number], why, nulls[number]
        counted.append(CountedShard(shard.name, shard.bytes, digest, *numbers))
    return tuple(counted)


def _check_record(record: dict[str, Any], state: CountState, folder: Path) -> None:
    """Raise if the saved position in the documents does not match the counts."""
    if sum(record["documents"]) != sum(documents_per_part(state)):
        raise InputError(
            f"{folder} is damaged: its counts are not of the documents that were read; start again "
            "in another folder"
        )
