"""Counting of shards: read, tokenize, count on the devices, save, resume after an interruption."""

import contextlib
import secrets
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh

import jaxpe
from jaxpe._core.checkpoints import Checkpoints
from jaxpe._core.errors import InputError, require
from jaxpe._core.files import locked_folder
from jaxpe._core.json_values import from_json, to_json
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.counts.base import CountedShard, StoredCounts
from jaxpe.analysis.counts.count_files import is_counted, read_counts, write_counts
from jaxpe.analysis.counts.memory import check_memory
from jaxpe.analysis.counts.processes import (
    gather_values,
    require_equal_values,
    run_on_all_processes,
)
from jaxpe.analysis.counts.settings import INT32_MAX, CountSettings, differences, shortened
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
from jaxpe.data.tokens.workers import TokenizerPool, runs_in_python
from jaxpe.geometry.counts.position_counts import content_labels

_LOOKED_AT = 2048  # of the first documents, and of their positions, for near-copies
_MANY_COPIES = 0.01  # share of documents from which they are told


def count_shards(
    shards: Sequence[Shard],
    directory: str | Path,
    *,
    tokenizer: Tokenizer,
    settings: CountSettings,
    text_field: str | None = None,
    stream: Stream | None = None,
    batch_size: int = 4096,
    save_every: int = 200,
    skip_unreadable: bool = False,
    skip_nulls: bool = False,
    memory: int | None = None,
    workers: int = 0,
    mesh: Mesh | None = None,
    progress: Progress = SILENT,
) -> StoredCounts:
    """Count documents that need not fit memory, and write the counts into a folder.

    The host reads and tokenizes in a thread while the devices count. The counts are those of
    `count_tokens` on all documents at once, to the bit, whatever the batches, shards, devices and
    processes; words and characters are dealt to folds by their text, not their ids, so that counts
    of other vocabularies add. Every so often counts and place are
    saved together: after an interruption the same call resumes from there, and no document is lost
    or counted twice. Several processes call it alike, with a folder that all of them see; each
    reads its part of the documents.

    Args:
        shards: result of `jaxpe.data.find_shards`.
        directory: folder of the counts, and of the state while counting.
        tokenizer, settings: results of `open_tokenizer` and `count_settings`.
        stream: stream of documents that are token ids; None for text.
        text_field, batch_size, save_every, skip_unreadable, skip_nulls: fields of `CountOptions`.
        memory: bytes that may be used; default: what is free.
        workers: processes that tokenize words, characters or bytes; 0 for a thread of this one.
        mesh: device mesh from `count_mesh`; default: all devices.
        progress: is told lines now and then.

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
    from jaxpe.data.tokens.batches import Reading  # brings Grain

    mesh = count_mesh() if mesh is None else mesh
    part, parts = jax.process_index(), jax.process_count()
    fields = text_field, settings.group_field
    reading = Reading(shards, *fields, batch_size, part, parts, skip_unreadable, skip_nulls, stream)

    def prepared() -> None:
        _check(batch_size, save_every, mesh)
        check_memory(settings, batch_size=batch_size, limit=memory)

    run_on_all_processes(prepared)
    _refuse_differences(settings, reading, mesh, save_every)
    directory = Path(directory)
    with contextlib.ExitStack() as stack:
        run_on_all_processes(
            lambda: None if part else stack.enter_context(locked_folder(directory))
        )
        _refuse_other_folders(directory)
        if any(gather_values(is_counted(directory))):
            stored = run_on_all_processes(
                lambda: _same(read_counts(directory), settings, reading, directory)
            )
            progress.say(f"{directory} holds these counts already")
        else:
            pool = None
            if workers and stream is None and runs_in_python(tokenizer):
                pool = TokenizerPool(tokenizer, length=settings.length, processes=workers)
                stack.enter_context(pool)
            stored = _counted(
                directory, tokenizer, settings, reading, mesh, save_every, pool, progress
            )
            run_on_all_processes(lambda: None if part else write_counts(stored, directory))
        if part == 0:
            shutil.rmtree(directory / "state", ignore_errors=True)
        return stored


def _counted(
    directory: Path,
    tokenizer: Tokenizer,
    settings: CountSettings,
    reading: Any,
    mesh: Mesh,
    save_every: int,
    pool: TokenizerPool | None,
    progress: Progress,
) -> StoredCounts:
    """The counts, from the beginning or from what is saved in the folder."""
    from jaxpe.data.tokens.batches import empty_batch, token_batches

    options = {"length": settings.length, "pool": pool}
    batches = contextlib.closing(iter(token_batches(reading, tokenizer, **options)))
    config = _config(settings, reading, mesh)
    with batches as stream, Checkpoints(directory / "state", config=config) as checkpoints:
        found = checkpoints.restore(abstract_state(settings, mesh), stream)
        state, step = found if found else (zero_state(settings, mesh), 0)
        require_equal_values({"step": step})
        if found:
            run_on_all_processes(
                lambda: _check_place(stream.get_state(), state, reading, directory)
            )
            progress.say(f"going on from step {step:,}")
        feed = _Feed(stream, empty_batch(reading, length=settings.length))
        if settings.group_field is None:
            feed.on_first = lambda batch: _say_near_copies(batch, settings, progress)
        adder = batch_adder(settings, mesh, tokenizer.tokens)
        while not _all_finished(feed, progress):
            _check_room(state, settings, save_every * reading.batch_size)
            if feed.began:
                checkpoints.save(step, state, stream)
            state, step = _add(state, step, feed, adder, save_every)
    table, nulls, documents = total(state, settings, mesh)
    del state
    read = _shards_read(reading.shards, gather_values(feed.place))
    if not table.max(initial=0):  # which takes a third of the time of `any`
        what = "tokens" if documents else "documents"
        raise InputError(f"no {what} in {len(reading.shards)} shards; pass files with text")
    tokens, fields = list(tokenizer.tokens), (reading.text_field, _separator(reading))
    return StoredCounts(table, nulls, documents, settings, tokens, read, *fields)


def _refuse_differences(settings: CountSettings, reading: Any, mesh: Mesh, save_every: int) -> None:
    """Processes that read other shards, or count them otherwise, would make one wrong count."""
    require_equal_values({f"version of {name}": found for name, found in _versions().items()})
    identities = [shard.identity for shard in reading.shards]
    facts = {**_options(settings, reading, mesh), "save_every": save_every, "shards": identities}
    facts["vocabulary"] = facts.pop("checksum")
    require_equal_values(facts)


def _versions() -> dict[str, Any]:
    """Versions of all that decides on the tokens of a text and on their counts."""
    tokenizers = sys.modules.get("tokenizers")  # where it was needed
    return {
        "jaxpe": jaxpe.__version__,
        "jax": jax.__version__,
        "Unicode": unicodedata.unidata_version,
        "tokenizers": getattr(tokenizers, "__version__", None),
    }


def _refuse_other_folders(directory: Path) -> None:
    """Raise where a process does not see the folder that the first one writes into."""
    if jax.process_count() == 1:
        return
    mark = directory / f".seen-{gather_values(secrets.token_hex(8))[0]}"
    run_on_all_processes(lambda: None if jax.process_index() else mark.touch())
    seen = gather_values(mark.exists())
    if jax.process_index() == 0:
        mark.unlink(missing_ok=True)
    if not all(seen):
        process = seen.index(False)
        raise InputError(
            f"{directory} of process {process} is not that of process 0; pass a folder that all "
            "processes see"
        )


class _Feed:
    """Batches of this process, and empty ones once it has no more or cannot read on.

    All processes take equally many steps and meet after them, so one that fails does not leave
    the others waiting.
    """

    def __init__(self, stream: Any, blank: TokenBatch):
        self._stream, self._blank = stream, blank
        self.place: dict[str, Any] = blank.place
        self.finished, self.problem, self.read = False, "", 0
        self.started = time.perf_counter()
        self.on_first: Callable[[TokenBatch], None] = lambda batch: None

    def __next__(self) -> TokenBatch:
        if self.finished:
            return self._blank
        try:
            batch = next(self._stream)
        except InputError as error:
            self.finished, self.problem = True, str(error)
            return self._blank
        if not self.read:
            self.on_first(batch)
        self.place, self.finished = batch.place, not batch.valid.all()
        self.read += int(batch.valid.sum())
        return batch

    @property
    def began(self) -> bool:
        """Whether anything was taken."""
        return self.read > 0 or self.finished


def _say_near_copies(batch: TokenBatch, settings: CountSettings, progress: Progress) -> None:
    """Say what share of the first documents are near-copies of others among them.

    Their folds cannot show it: a fold follows from the content of one document, so that counts do
    not depend on batches, shards and processes.
    """
    ids, mask = (x[batch.valid][:_LOOKED_AT, :_LOOKED_AT] for x in (batch.ids, batch.mask))
    if not len(ids):
        return
    groups = dependent_groups(ids, mask, exclude=settings.exclude)
    different = len(np.unique(np.asarray(content_labels(ids, mask))))
    share = 1 - len(np.unique(groups)) / different
    if share >= _MANY_COPIES:
        progress.say(
            f"{share:.0%} of the first {len(ids):,} documents are near-copies or pieces of others "
            "among them and count as independent, which makes noise look like position; pass "
            "`group_field`, the name of a column with what they share"
        )


def _add(
    state: CountState,
    step: int,
    feed: _Feed,
    adder: Callable[[CountState, TokenBatch], tuple[CountState, Array]],
    steps: int,
) -> tuple[CountState, int]:
    """Add so many batches, or what there is of them."""
    before: Array | None = None
    for _ in range(steps):
        batch = next(feed)
        state, counted = adder(state, batch)
        if before is not None:
            before.block_until_ready()  # no more than two batches wait for the devices
        before, step = counted, step + 1
        if feed.finished and jax.process_count() == 1:
            break
    return state, step


def _all_finished(feed: _Feed, progress: Progress) -> bool:
    """Whether all processes have read all documents; raises where one could not read on."""
    about: dict[str, Any] = {name: getattr(feed, name) for name in ("finished", "problem", "read")}
    everyone = gather_values({**about, "documents": sum(feed.place["documents"])})
    for problem in filter(None, (one["problem"] for one in everyone)):
        raise InputError(
            f"{problem}. What was counted is kept: mend it and run the same again, or start anew "
            "in another folder with `skip_unreadable=True`, which leaves out shards that cannot be "
            "read"
        )
    documents = sum(one["documents"] for one in everyone)
    if feed.began:
        pace = sum(one["read"] for one in everyone) / (time.perf_counter() - feed.started)
        progress.say(f"{documents:,} documents, {pace:,.0f} a second")
    return all(one["finished"] for one in everyone)


def _check_room(state: CountState, settings: CountSettings, documents: int) -> None:
    """Refuse steps that might exceed the int32 counts of a device."""
    most = max(gather_values(max(documents_per_part(state), default=0)))
    if (most + documents) * settings.widest > INT32_MAX:
        raise InputError(
            f"{most:,} documents are counted, and {documents:,} more might exceed the int32 counts "
            f"of a device, {INT32_MAX:,}; count parts of the corpus apart, and add them by merge"
        )


def _config(settings: CountSettings, reading: Any, mesh: Mesh) -> dict[str, Any]:
    """Settings that a state depends on, without the documents, which are checked when read."""
    names = {f"shard {number}": shard.name for number, shard in enumerate(reading.shards)}
    return {**_options(settings, reading, mesh), "shards": len(reading.shards), **names}


def _options(settings: CountSettings, reading: Any, mesh: Mesh) -> dict[str, Any]:
    return {
        **to_json(settings),
        "batch_size": reading.batch_size,
        "skip_unreadable": reading.skip_unreadable,
        "skip_nulls": reading.skip_nulls,
        "processes": reading.parts,
        "text_field": reading.text_field,
        "separator": _separator(reading),
        "mesh": dict(mesh.shape),
    }


def _separator(reading: Any) -> int | None:
    return None if reading.stream is None else reading.stream.separator


def _same(
    stored: StoredCounts, settings: CountSettings, reading: Any, directory: Path
) -> StoredCounts:
    """Counts that are there already, refused where they are not those that are asked for."""
    found = differences(stored.settings, settings)
    if stored.text_field != reading.text_field:
        found.append(f"text_field is {stored.text_field} and {reading.text_field}")
    if stored.separator != _separator(reading):
        found.append(f"separator is {stored.separator} and {_separator(reading)}")
    if stored.null_texts and not reading.skip_nulls:
        found.append(f"{stored.null_texts:,} rows were left out, for which `skip_nulls` asks")
    if not found and jax.process_index() == 0:  # which hashes the shards for all
        found += _other_shards(stored.shards, reading.shards)
    if found:
        raise InputError(f"{directory} holds other counts: {'; '.join(found)}; pass another folder")
    return stored


def _other_shards(stored: Sequence[CountedShard], shards: Sequence[Shard]) -> list[str]:
    """The first shard that is not the one that was counted, or left out, in words."""
    if len(stored) != len(shards):
        return [f"shards are {len(stored)} and {len(shards)}"]
    for number, (was, now) in enumerate(zip(stored, shards, strict=True)):
        if was.unreadable is None:
            same = was.bytes == now.bytes and was.digest == now.digest()
        else:
            same = (was.name, was.bytes) == (now.name, now.bytes)
        if not same:
            names = f"{was.identity}, and {now.name}, {now.bytes:,} bytes"
            return [f"shard {number} is {names}, of another content"]
    return []


def _shards_read(
    shards: Sequence[Shard], places: Sequence[dict[str, Any]]
) -> tuple[CountedShard, ...]:
    """Record of each shard, from the records of the processes that read it."""
    unreadable: dict[str, str] = {}
    for place in places:
        unreadable |= place["unreadable"]
    documents = np.sum([place["documents"] for place in places], axis=0, dtype=int)
    # Those that share a shard have each met all of its rows.
    nulls = np.max([place["null_texts"] for place in places], axis=0)
    counted = []
    for number, shard in enumerate(shards):
        why = unreadable.get(str(number))
        digests = {place["digests"][number] for place in places} - {""}
        if len(digests) > 1:
            raise InputError(
                f"{shard.path} is not the same for all processes, or changed while it was counted; "
                "start anew in another folder"
            )
        digest = "" if why is not None else digests.pop()
        numbers = {"documents": int(documents[number]), "null_texts": int(nulls[number])}
        counted.append(CountedShard(shard.name, shard.bytes, digest, unreadable=why, **numbers))
    return tuple(counted)


class _Place(NamedTuple):
    """Place of a process in the documents; lists have an item for each shard."""

    shard: int
    checksum: int
    documents: list[int]
    null_texts: list[int]
    digests: list[str]
    unreadable: dict[str, str]


def _check_place(values: Any, state: CountState, reading: Any, directory: Path) -> None:
    """Refuse a place in the documents that is not where the counts end."""
    place = from_json(_Place, values, place=str(directory / "state"))
    if sum(place.documents) != sum(documents_per_part(state)):
        raise InputError(
            f"{directory / 'state'} is damaged: its counts are not of the documents that were "
            "read; start anew in another folder"
        )


def _check(batch_size: int, save_every: int, mesh: Mesh) -> None:
    own = mesh.shape[DOCUMENTS] // jax.process_count()
    if not 1 <= batch_size <= INT32_MAX or batch_size % own:
        raise InputError(
            f"`batch_size` is {shortened(batch_size)}; pass a multiple of {own}, at least 1 and at "
            f"most {INT32_MAX:,}"
        )
    if not 1 <= save_every <= INT32_MAX:
        raise InputError(f"`save_every` is {shortened(save_every)}; pass 1 to {INT32_MAX:,}")
