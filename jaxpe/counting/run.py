"""From shards to counts: read, tokenize, count on the devices, save, go on after a kill."""

import contextlib
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.profiler import StepTraceAnnotation
from jax.sharding import Mesh

from jaxpe._checkpoints import Checkpoints
from jaxpe._errors import InputError, require
from jaxpe.counting.memory import check_memory
from jaxpe.counting.processes import from_all
from jaxpe.counting.settings import CountSettings, differences
from jaxpe.counting.state import (
    DOCUMENTS,
    CountState,
    abstract_state,
    batch_adder,
    count_mesh,
    total,
    zero_state,
)
from jaxpe.counting.stored import (
    INT32_MAX,
    CountedShard,
    StoredCounts,
    is_counted,
    read_counts,
    write_counts,
)
from jaxpe.data import Shard, TokenBatch, Tokenizer


def count_shards(
    shards: Sequence[Shard],
    directory: str | Path,
    *,
    tokenizer: Tokenizer,
    settings: CountSettings,
    text_field: str | None = None,
    batch_size: int = 4096,
    save_every: int = 200,
    skip_unreadable: bool = False,
    memory: int | None = None,
    mesh: Mesh | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> StoredCounts:
    """Count documents that need not fit memory, and write the counts into a folder.

    The host reads and tokenizes in a thread while the devices count. The counts are those of
    `count_tokens` on all documents at once, to the bit, whatever the batches, shards, devices and
    processes. Every so often counts and place are saved together: after a kill the same call goes
    on from there, without a document lost or counted twice. Several processes call it alike, with
    a folder that all of them see; each reads its part of the documents.

    Args:
        shards: from `jaxpe.data.find_shards`.
        directory: for the counts, and while counting for the state.
        tokenizer, settings: from `open_tokenizer` and `count_settings`.
        text_field: the column or key with the text.
        batch_size: documents of a step, of each process.
        save_every: steps between saves.
        skip_unreadable: read each shard through before it is counted, and leave out and report
            those that cannot be read; otherwise the first of them stops the run.
        memory: bytes that may be used; default: what is free.
        mesh: from `count_mesh`; default: all devices.
        say: is given a line now and then.

    Raises:
        InputError: too little memory or disk, an unreadable shard, no documents, or a folder that
            holds other counts.

    >>> import pathlib, tempfile
    >>> from jaxpe.counting import count_settings
    >>> from jaxpe.data import find_shards, open_tokenizer
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("to be\\nor not\\nto be\\n")
    >>> words = open_tokenizer(vocabulary=["to", "be", "[UNK]"])
    >>> settings = count_settings(words, length=2, folds=4, nulls=0)
    >>> shards = find_shards([folder / "*.txt"])
    >>> stored = count_shards(shards, folder, tokenizer=words, settings=settings)
    >>> stored.counts.merged().tokens.tolist()
    [[2, 0, 1], [0, 2, 1]]
    """
    require("grain", extra="data")
    mesh = count_mesh() if mesh is None else mesh
    _check(batch_size, save_every, mesh)
    check_memory(settings, limit=memory)
    directory = Path(directory)
    if is_counted(directory):
        stored = _same(read_counts(directory), settings, shards, text_field, directory)
        say(f"{directory} holds these counts already")
        _forget_state(directory)
        return stored
    from jaxpe.data._batches import Reading, empty_batch, token_batches  # brings Grain

    part, parts = jax.process_index(), jax.process_count()
    fields = text_field, settings.group_field
    reading = Reading(shards, *fields, batch_size, part, parts, skip_unreadable)
    batches = contextlib.closing(iter(token_batches(reading, tokenizer, length=settings.length)))
    config = _config(settings, reading, mesh)
    with batches as stream, Checkpoints(directory / "state", config=config) as checkpoints:
        found = checkpoints.restore(abstract_state(settings, mesh), stream)
        state, step = found if found else (zero_state(settings, mesh), 0)
        if found:
            say(f"going on from step {step:,}")
        feed = _Feed(stream, empty_batch(reading, length=settings.length))
        adder = batch_adder(settings, mesh)
        while not _all_read(feed, settings, say):
            if feed.began:
                _save(checkpoints, step, state, stream)
            state, step = _add(state, step, feed, adder, save_every)
    table, nulls, documents = total(state, settings, mesh)
    del state
    read = _counted(shards, from_all(feed.place))
    stored = StoredCounts(table, nulls, documents, settings, tokenizer.tokens, read, text_field)
    if not table.any():
        what = "tokens" if documents else "documents"
        raise InputError(f"no {what} in {len(shards)} shards; pass files with text")
    if part == 0:
        write_counts(stored, directory)
    from_all("written")
    _forget_state(directory)
    return stored


def _forget_state(directory: Path) -> None:
    if jax.process_index() == 0:
        shutil.rmtree(directory / "state", ignore_errors=True)


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

    def __next__(self) -> TokenBatch:
        if self.finished:
            return self._blank
        try:
            batch = next(self._stream)
        except InputError as error:
            self.finished, self.problem = True, str(error)
            return self._blank
        self.place, self.finished = batch.place, not batch.valid.all()
        self.read += int(batch.valid.sum())
        return batch

    @property
    def began(self) -> bool:
        """Whether anything was taken."""
        return self.read > 0 or self.finished


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
        with StepTraceAnnotation("count", step_num=step):
            state, counted = adder(state, batch)
        if before is not None:
            before.block_until_ready()  # no more than two batches wait for the devices
        before, step = counted, step + 1
        if feed.finished and jax.process_count() == 1:
            break
    return state, step


def _all_read(feed: _Feed, settings: CountSettings, say: Callable[[str], None]) -> bool:
    """Whether every process has read all of its documents.

    Raises:
        InputError: one of them could not, or there are more than an int32 counts.
    """
    about = {name: getattr(feed, name) for name in ("place", "finished", "problem", "read")}
    everyone = from_all(about)
    for problem in filter(None, (one["problem"] for one in everyone)):
        raise InputError(
            f"{problem}. What was counted is kept: mend it and run the same again, or start anew "
            "in another folder with --skip-unreadable, which leaves out shards that cannot be read"
        )
    documents = sum(sum(one["place"]["documents"]) for one in everyone)
    if documents * settings.widest > INT32_MAX:
        raise InputError(
            f"{documents:,} documents in bins of up to {settings.widest:,} positions may exceed "
            f"{INT32_MAX:,} in one count; count parts of the shards, or pass narrower bins"
        )
    if feed.began:
        pace = sum(one["read"] for one in everyone) / (time.perf_counter() - feed.started)
        say(f"{documents:,} documents, {pace:,.0f} a second")
    return all(one["finished"] for one in everyone)


def _save(checkpoints: Checkpoints, step: int, state: CountState, stream: Any) -> None:
    try:
        checkpoints.save(step, state, stream)
    except (OSError, ValueError) as error:  # the latter from the writer of arrays
        raise InputError(
            f"cannot save into {checkpoints.directory} ({str(error).splitlines()[-1]}): make "
            "room and run the same again; what was saved before is kept"
        ) from error


def _config(settings: CountSettings, reading: Any, mesh: Mesh) -> dict[str, Any]:
    """What a state depends on, beyond the documents."""
    return {
        **settings.to_json(),
        "shards": len(reading.shards),  # which they are is checked where they are read
        "batch_size": reading.batch_size,
        "processes": reading.parts,
        "text_field": reading.text_field,
        "mesh": dict(mesh.shape),
    }


def _same(
    stored: StoredCounts,
    settings: CountSettings,
    shards: Sequence[Shard],
    text_field: str | None,
    directory: Path,
) -> StoredCounts:
    """Counts that are there already, refused where they are not those that are asked for."""
    found = differences(stored.settings, settings)
    if [shard.identity for shard in stored.shards] != [shard.identity for shard in shards]:
        found.append("the shards differ")
    if stored.text_field != text_field:
        found.append(f"text_field is {stored.text_field} and {text_field}")
    if found:
        raise InputError(f"{directory} holds other counts: {'; '.join(found)}; pass another folder")
    return stored


def _counted(shards: Sequence[Shard], places: Sequence[dict[str, Any]]) -> tuple[CountedShard, ...]:
    """What became of each shard, from what the processes read."""
    unreadable: dict[str, str] = {}
    for place in places:
        unreadable |= place["unreadable"]
    documents = np.sum([place["documents"] for place in places], axis=0, dtype=int)
    return tuple(
        CountedShard(shard.identity, int(number), unreadable.get(str(index)))
        for index, (shard, number) in enumerate(zip(shards, documents, strict=True))
    )


def _check(batch_size: int, save_every: int, mesh: Mesh) -> None:
    own = mesh.shape[DOCUMENTS] // jax.process_count()
    if batch_size < 1 or batch_size % own:
        raise InputError(f"batch_size is {batch_size}; pass a multiple of {own}, at least 1")
    if save_every < 1:
        raise InputError(f"save_every is {save_every}; pass at least 1")
