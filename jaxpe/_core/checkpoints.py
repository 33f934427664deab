"""Checkpoints of a run that may be killed; the only module that knows Orbax."""

import contextlib
import itertools
import json
import os
import stat
import warnings
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.experimental.multihost_utils import sync_global_devices

from jaxpe._core.errors import InputError, require
from jaxpe._core.files import file_checksum, write_file
from jaxpe._core.json_values import from_json, read_json

_SEAL = "seal.json"


class _Seal(NamedTuple):
    config: dict[str, Any]
    leaves: dict[str, str]
    data: dict[str, Any] | None
    files: dict[str, int]
    checksum: int


class _UnfinishedError(OSError):
    """A checkpoint without a seal: its run was killed while writing it."""


class Checkpoints:
    """The checkpoints of one run: state and place in the data, saved together or not at all.

    A last file, the seal, holds what the run and its data are and a checksum of every file, its own
    included: without it a checkpoint does not count. So a run killed at any moment leaves whole
    checkpoints, and damage is noticed before it is read. Saving waits for the disk. Several
    processes save and restore together, into one directory that all of them see.

    Args:
        directory: made if absent.
        keep: newest checkpoints that stay; at least 2, or a damaged one has nothing behind it.
        config: further settings of the run, JSON values; a run of another configuration is refused
            instead of continued.
        read_only: leave everything as it is, since a run may be writing there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory, Checkpoints(directory) as checkpoints:
    ...     checkpoints.save(3, {"w": jnp.ones(2)})
    ...     state, step = checkpoints.restore({"w": jnp.zeros(2)})
    >>> state["w"].tolist(), step
    ([1.0, 1.0], 3)
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        keep: int = 2,
        config: Mapping[str, Any] | None = None,
        read_only: bool = False,
    ):
        if keep < 2:
            raise ValueError(f"keep={keep} must be at least 2, in case the newest is damaged")
        ocp = require("orbax.checkpoint", extra="train").v1
        self.directory = Path(directory).resolve()
        self.config = json.loads(json.dumps(dict(config or {})))  # as it will be read back
        self.read_only = read_only
        self._sealed: set[int] = set()  # saved or read in this process
        _check_files(self.directory)
        with _read_by_orbax(f"{self.directory}: the checkpoints"):
            self._orbax = ocp.training.Checkpointer(
                self.directory,
                preservation_policy=ocp.training.preservation_policies.LatestN(keep),
                cleanup_tmp_directories=not read_only,
            )

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind, error, traceback) -> None:
        # After a save that failed, closing fails too, with a less useful error.
        with contextlib.suppress(Exception) if error else contextlib.nullcontext():
            self.close()

    def close(self) -> None:
        """Let go of the directory."""
        self._orbax.close()

    def latest(self) -> int | None:
        """The step of the newest completed checkpoint, None where there is none."""
        sealed = (step for step in self._steps() if (self._place(step) / _SEAL).exists())
        return next(sealed, None)

    def save(self, step: int, state: Any, data: Any = None) -> None:
        """Write the state after `step` steps, and where `data`, a Grain iterator, is.

        Raises:
            ValueError: for a leaf that is no array, or whose buffer was given away; nothing is
                written then.
            InputError: no room or no permission; what was saved before is kept.
        """
        if step in self._sealed:
            return
        seal = self._describe(state, data)
        parts = {"state": state} if data is None else {"state": state, "data": data}
        with self._saving():
            self._orbax.save_checkpointables(step, parts, force=True, overwrite=True)
            if jax.process_index() == 0:
                self._seal(step, seal)
        _together("sealed")
        self._sealed.add(step)

    def restore(self, like: Any, data: Any = None) -> tuple[Any, int] | None:
        """The newest whole state and its step; None where none was ever completed.

        Checkpoints that are damaged or were never completed are set aside (where this may be
        written) with a warning, and the one before is taken.

        Args:
            like: a state of the same structure, shapes, dtypes and shardings.
            data: a Grain iterator, moved to where it was; None where the place does not matter.

        Raises:
            InputError: where the checkpoint is of another structure, configuration or data, holds
                no place in the data although there are some, or there are damaged ones and no
                other; also where what was sealed cannot be read.
        """
        own = self._describe(like, data)
        problems: dict[int, Exception] = {}
        for step in self._steps():
            try:
                seal = self._checked_seal(step)
            except (OSError, ValueError) as error:
                problems[step] = error
                continue
            self._compare(seal, own, step)
            self._set_aside(problems, f"going on from step {step}")
            load = self._orbax.load_checkpointables
            with _read_by_orbax(f"{self.directory}: the checkpoint of step {step}"):
                # One by one: where one fails, Orbax leaves the others half way.
                state = load(step, {"state": jax.tree.map(_abstract, like)})["state"]
                if data is not None:
                    load(step, {"data": data})
            self._sealed.add(step)
            return state, step
        for step, error in problems.items():
            if not isinstance(error, _UnfinishedError):
                raise InputError(
                    f"{self.directory}: no checkpoint is whole (step {step}: {error}); pass "
                    "another directory to start anew"
                ) from error
        self._set_aside(problems, "starting from the beginning")
        return None

    def _steps(self) -> list[int]:
        """Newest first, unfinished ones too."""
        return sorted((found.step for found in self._orbax.checkpoints), reverse=True)

    def _place(self, step: int) -> Path:
        return self.directory / str(step)

    def _describe(self, state: Any, data: Any) -> dict[str, Any]:
        """Settings that a checkpoint must share with the run that resumes from it."""
        about_data = None if data is None else fingerprint(data)
        return {"config": self.config, "leaves": _leaves(state), "data": about_data}

    @contextlib.contextmanager
    def _saving(self) -> Iterator[None]:
        """Tell in one line what stopped the writers of files and, in threads, of arrays."""
        try:
            yield
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot save into {self.directory} ({str(error).splitlines()[-1]}): make room and "
                "run the same again; what was saved before is kept"
            ) from error

    def _seal(self, step: int, seal: dict[str, Any]) -> None:
        seal = seal | {"files": _checksums(self._place(step))}
        whole = json.dumps(seal | {"checksum": _checksum(seal)})
        write_file(self._place(step) / _SEAL, whole)

    def _checked_seal(self, step: int) -> dict[str, Any]:
        place = self._place(step)
        if not (place / _SEAL).exists():
            raise _UnfinishedError("its run was killed while writing it")
        seal = read_json(place / _SEAL, remedy="it is not used")
        from_json(_Seal, seal, place=_SEAL)
        if seal.pop("checksum") != _checksum(seal):
            raise OSError(f"{_SEAL} is damaged")
        found = _checksums(place)
        for name, checksum in seal["files"].items():
            if found.get(name) != checksum:
                raise OSError(f"{name} is {'damaged' if name in found else 'missing'}")
        return seal

    def _compare(self, seal: dict[str, Any], own: dict[str, Any], step: int) -> None:
        parts = {"config": "setting", "leaves": "array"}
        if own["data"] is not None:
            if seal["data"] is None:
                raise InputError(
                    f"{self.directory}: the checkpoint of step {step} was saved without data: "
                    "restore it without, or pass another directory"
                )
            parts |= {"data": "the data's"}
        for part, what in parts.items():
            for name in sorted(seal[part].keys() | own[part].keys()):
                was, now = (side[part].get(name, "absent") for side in (seal, own))
                if was != now:
                    raise InputError(
                        f"{self.directory}: the checkpoint of step {step} is of another run: "
                        f"{what} {name} was {was} and now is {now}; pass another directory, or "
                        "what it was"
                    )

    def _set_aside(self, problems: dict[int, Exception], consequence: str) -> None:
        """Out of Orbax's sight, where they would crowd out whole ones."""
        told = {k: f"the checkpoint of step {k} cannot be used: {e}" for k, e in problems.items()}
        if self.read_only:
            for step, words in told.items():
                # An unfinished one may be that of a run that is writing it now.
                if not isinstance(problems[step], _UnfinishedError):
                    warnings.warn(f"{words}; {consequence}", stacklevel=4)
            return
        _together("looked through")
        for step, words in told.items() if jax.process_index() == 0 else ():
            places = (self.directory / f"unreadable-{step}-{k}" for k in itertools.count(1))
            aside = next(path for path in places if not path.exists())
            self._place(step).rename(aside)
            warnings.warn(f"{words}. It is now {aside}; {consequence}", stacklevel=4)
        _together("set aside")
        if problems:
            self._orbax.reload()


def newest_checkpoint(directory: str | Path) -> int | None:
    """The step of the newest completed checkpoint, told without opening it; None without any."""
    names = [path.parent.name for path in Path(directory).glob(f"*/{_SEAL}")]
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _check_files(directory: Path) -> None:
    """Refuse links and devices: Orbax reads its files to their end, and /dev/zero has none."""
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            path = Path(folder, name)
            with contextlib.suppress(FileNotFoundError):  # of a run that is writing there
                mode = path.lstat().st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    raise InputError(
                        f"{path} is no regular file; delete it, or pass another directory"
                    )


@contextlib.contextmanager
def _read_by_orbax(what: str) -> Iterator[None]:
    """Context in which the many errors of Orbax and Grain, on files of others, become one."""
    try:
        yield
    except Exception as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{what} cannot be read ({said:.200}); delete what is damaged to go on from the one "
            "before, or pass another directory"
        ) from error


def _together(what: str) -> None:
    """Wait until every process is here."""
    if jax.process_count() > 1:
        sync_global_devices(what)


def fingerprint(data: Any) -> dict[str, Any]:
    """Sources of the batches of a Grain iterator, JSON values; {} where they are unknown.

    Of `batches`: seed, batch size, rows, buckets, and a checksum of every array. The place in the
    data means the same batch only where these are the same.

    >>> from jaxpe.training import batches
    >>> fingerprint(iter(batches({"x": np.arange(6)}, batch_size=2, seed=0)))["array x"]
    'int64[6], CRC-32 a1c6c70c'
    """
    # Grain has no public way from an iterator to its source.
    while parents := getattr(data, "_parents", ()):
        data = parents[0]
    source = getattr(getattr(data, "_map_parent", None), "_source", data)
    return getattr(source, "fingerprint", {})


def _checksums(directory: Path) -> dict[str, int]:
    """CRC-32 of every file but the seal."""
    return {
        path.relative_to(directory).as_posix(): file_checksum(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != _SEAL
    }


def _checksum(seal: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(seal).encode())


def _leaves(state: Any) -> dict[str, str]:
    """Path, dtype and shape of every array."""
    leaves = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
    }
    for name, leaf in leaves.items():
        if not hasattr(leaf, "dtype"):
            raise ValueError(f"{name or 'the state'} is {leaf!r}: pass an array, jnp.asarray of it")
        if isinstance(leaf, jax.Array) and leaf.is_deleted():
            raise ValueError(f"the buffer of {name or 'the state'} was given away to a step")
    return {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in leaves.items()}


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    """Shape, dtype and sharding of a leaf; without a sharding Orbax guesses one and warns."""
    sharding = getattr(leaf, "sharding", None)
    sharding = sharding or jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
