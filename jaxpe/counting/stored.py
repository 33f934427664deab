"""Counts on disk, to be added to and reported on; written whole or not at all."""

import contextlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Int32

from jaxpe._errors import InputError
from jaxpe.counting.settings import CountSettings, differences
from jaxpe.geometry import PositionCounts

_COUNTS, _ABOUT = "counts.npz", "counts.json"
_FORMAT = 1
INT32_MAX = 2**31 - 1
_CHUNK = 2**20


class CountedShard(NamedTuple):
    """A shard and how many of its documents were counted, or why it was left out."""

    identity: str
    documents: int
    unreadable: str | None = None


class StoredCounts(NamedTuple):
    """Counts of a corpus with all that is needed to add to them and to report on them.

    - `table`: int32 `[folds, rows, vocab]`.
    - `nulls`: int32 `[nulls, null_folds, rows, vocab]`, positions shuffled inside documents.
    - `documents`: how many were counted.
    - `settings`: how it was counted.
    - `tokens`: the text of each id.
    - `shards`: what was read.
    - `text_field`: the column or key that held the text.
    """

    table: Int32[np.ndarray, "folds rows vocab"]
    nulls: Int32[np.ndarray, "nulls null_folds rows vocab"]
    documents: int
    settings: CountSettings
    tokens: list[str]
    shards: tuple[CountedShard, ...]
    text_field: str | None = None

    @property
    def counts(self) -> PositionCounts:
        """The counts in folds, for the geometry."""
        zero = jnp.zeros((), jnp.int32)
        return PositionCounts(jnp.asarray(self.table), jnp.int32(self.documents), zero)

    @property
    def unreadable(self) -> list[CountedShard]:
        """The shards that were left out."""
        return [shard for shard in self.shards if shard.unreadable is not None]


def write_counts(stored: StoredCounts, directory: str | os.PathLike[str]) -> Path:
    """Write counts into a folder, whole or not at all; returns the folder.

    Cells that hold nothing take no room: most are empty where positions and words are many.

    Raises:
        InputError: no room or no permission; what was there before is still there.

    >>> import tempfile
    >>> from jaxpe.counting import count_settings
    >>> from jaxpe.data import open_tokenizer
    >>> words = open_tokenizer(vocabulary=["to", "be"])
    >>> settings = count_settings(words, length=2, folds=4, nulls=0)
    >>> table = np.ones((4, 2, 2), np.int32)
    >>> nulls = np.zeros((0, 4, 2, 2), np.int32)
    >>> stored = StoredCounts(table, nulls, 8, settings, words.tokens, ())
    >>> folder = write_counts(stored, tempfile.mkdtemp())
    >>> read_counts(folder).counts.documents.item()
    8
    """
    directory = Path(directory)
    tables = {f"fold_{i}": table for i, table in enumerate(stored.table)}
    for number, null in enumerate(stored.nulls):
        tables |= {f"null_{number}_fold_{i}": table for i, table in enumerate(null)}
    with _writing(directory, _COUNTS) as part:
        with open(part, "wb") as file:
            arrays: dict[str, Any] = _sparse(tables)
            np.savez_compressed(file, **arrays)
        checksum = _checksum(part)
    about = {
        "format": _FORMAT,
        "documents": stored.documents,
        "settings": stored.settings.to_json(),
        "text_field": stored.text_field,
        "shards": [shard._asdict() for shard in stored.shards],
        "tokens": stored.tokens,
        "checksum": checksum,
    }
    with _writing(directory, _ABOUT) as part:
        part.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return directory


def read_counts(directory: str | os.PathLike[str]) -> StoredCounts:
    """Counts that `write_counts` wrote.

    Raises:
        InputError: none there, not whole, or of another version.

    >>> import tempfile
    >>> read_counts(tempfile.mkdtemp())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    jaxpe._errors.InputError: ... holds no counts ...; pass a folder that jaxpe count wrote
    """
    directory = Path(directory)
    about = _about(directory)
    settings = about["settings"]
    shape = settings.rows, settings.vocab_size
    try:
        if _checksum(directory / _COUNTS) != about["checksum"]:
            raise ValueError("its checksum is not that of counts.json")
        with np.load(directory / _COUNTS) as file:
            tokens = [_dense(file, f"fold_{i}", shape) for i in range(settings.folds)]
            nulls = [
                _dense(file, f"null_{number}_fold_{i}", shape)
                for number in range(settings.nulls)
                for i in range(settings.null_folds)
            ]
    except (OSError, ValueError, KeyError, zlib.error) as error:
        raise InputError(
            f"{directory / _COUNTS} cannot be read: {error}; count again, or copy it again"
        ) from error
    return StoredCounts(
        np.stack(tokens),
        np.reshape(nulls, (settings.nulls, settings.null_folds, *shape)).astype(np.int32),
        about["documents"],
        settings,
        about["tokens"],
        about["shards"],
        about.get("text_field"),
    )


def is_counted(directory: str | os.PathLike[str]) -> bool:
    """Whether the folder holds counts.

    >>> import tempfile
    >>> is_counted(tempfile.mkdtemp())
    False
    """
    return (Path(directory) / _ABOUT).is_file()


def merge_counts(parts: Sequence[StoredCounts], *, names: Sequence[str] = ()) -> StoredCounts:
    """The counts of disjoint sets of documents as one.

    Args:
        parts: counts of like settings.
        names: what error messages call them.

    Raises:
        InputError: another tokenizer or setting, a shard that two of them counted, or more
            documents than int32 holds.

    >>> from jaxpe.counting import count_settings
    >>> from jaxpe.data import open_tokenizer
    >>> words = open_tokenizer(vocabulary=["to", "be"])
    >>> settings = count_settings(words, length=2, folds=4, nulls=0)
    >>> table = np.ones((4, 2, 2), np.int32)
    >>> nulls = np.zeros((0, 4, 2, 2), np.int32)
    >>> shards = [(CountedShard(name, 8),) for name in ("a", "b")]
    >>> parts = [StoredCounts(table, nulls, 8, settings, words.tokens, read) for read in shards]
    >>> merge_counts(parts).counts.per_position[0].tolist()
    [4, 4]
    """
    names = list(names) or [f"part {number}" for number in range(len(parts))]
    if len(parts) < 2:
        raise InputError(f"{len(parts)} counts; pass at least two to merge")
    first, *others = parts
    for part, name in zip(others, names[1:], strict=True):
        found = differences(first.settings, part.settings)
        if not found and first.tokens != part.tokens:
            found = ["the vocabularies differ"]
        if found:
            raise InputError(
                f"{names[0]} and {name} were counted differently: {'; '.join(found)}; count both "
                "with the same tokenizer and settings"
            )
    _refuse_twice(parts, names)
    documents, most = sum(part.documents for part in parts), INT32_MAX // first.settings.widest
    if documents > most:
        raise InputError(f"{documents:,} documents; these counts hold at most {most:,}")
    table, nulls = first.table.copy(), first.nulls.copy()
    for part in others:
        table += part.table
        nulls += part.nulls
    return first._replace(
        table=table,
        nulls=nulls,
        documents=documents,
        shards=tuple(shard for part in parts for shard in part.shards),
    )


def _refuse_twice(parts: Sequence[StoredCounts], names: Sequence[str]) -> None:
    """No shard may count in two parts; one that was left out in one may count in the other."""
    seen: dict[str, str] = {}
    for part, name in zip(parts, names, strict=True):
        counted = {shard.identity for shard in part.shards if shard.documents}
        for identity in sorted(counted & seen.keys()):
            raise InputError(
                f"{identity} is counted in {seen[identity]} and in {name}; leave one of them out"
            )
        seen |= dict.fromkeys(counted, name)


def _sparse(tables: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Of each table the steps between cells that hold something, and what they hold."""
    arrays = {}
    for name, table in tables.items():
        flat = np.asarray(table).reshape(-1)
        cells = np.flatnonzero(flat)
        values = flat[cells]
        smallest = np.min_scalar_type(values.max(initial=0))
        steps = np.diff(cells, prepend=0)
        arrays[f"{name}_steps"] = steps.astype(np.min_scalar_type(steps.max(initial=0)))
        arrays[f"{name}_counts"] = values.astype(smallest)
    return arrays


def _dense(file: Any, name: str, shape: tuple[int, int]) -> Int[np.ndarray, "rows vocab"]:
    table = np.zeros(shape[0] * shape[1], np.int32)
    table[np.cumsum(file[f"{name}_steps"], dtype=np.int64)] = file[f"{name}_counts"]
    return table.reshape(shape)


def _about(directory: Path) -> dict[str, Any]:
    try:
        about = json.loads((directory / _ABOUT).read_text(encoding="utf-8"))
        if about["format"] != _FORMAT:
            raise InputError(
                f"{directory} holds counts of format {about['format']}, not {_FORMAT}; count again"
            )
        settings = CountSettings.from_json(about["settings"])
        shards = tuple(CountedShard(**shard) for shard in about["shards"])
        return about | {"settings": settings, "shards": shards}
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{directory} holds no counts ({error}); pass a folder that jaxpe count wrote"
        ) from error


def _checksum(path: Path) -> str:
    checksum = 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return f"{checksum:08x}"


@contextlib.contextmanager
def _writing(directory: Path, name: str) -> Iterator[Path]:
    """A file that takes its name only once it is whole and on the disk."""
    part = directory / f".{name}.part"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield part
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        os.replace(part, directory / name)
    except OSError as error:
        raise InputError(
            f"cannot write {name} into {directory} ({error.strerror or error}): make room, or pass "
            "a folder that you may write to"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
