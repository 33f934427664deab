"""Checkpoints of a run that may be killed; the only module that imports Orbax."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from jaxpe._core.errors import InputError, require


class Checkpoints:
    """Checkpoints of one run: state and position in the data, saved together or not at all.

    Orbax renames a checkpoint to its final name once all of it is on disk, so a killed run leaves
    no partial checkpoint. Each stores the run's configuration; a run of another configuration is
    refused. Saving waits for the disk. Several processes save and restore together, into one
    directory that they share.

    Args:
        directory: folder of the checkpoints, made if absent.
        keep: number of newest checkpoints to keep.
        config: settings of the run, JSON values, that a resumed run must share.
        read_only: change nothing in the directory, since another process may be writing into it.

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
        self.config = json.loads(json.dumps(dict(config or {})))  # as Orbax reads it back
        self._last: int | None = None  # step saved or restored by this process
        with _orbax_errors(f"{self.directory}: the checkpoints"):
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
        """Release the directory."""
        self._orbax.close()

    def latest(self) -> int | None:
        """Step of the newest checkpoint; None without any."""
        return max((checkpoint.step for checkpoint in self._orbax.checkpoints), default=None)

    def save(self, step: int, state: Any, data: Any = None) -> None:
        """Save the state after `step` steps, and the position of `data`, a Grain iterator.

        Raises:
            ValueError: a leaf that is not an array, or whose buffer was donated; nothing is
                written.
            InputError: a full disk, or no permission; earlier checkpoints remain.
        """
        if step == self._last:
            return
        run = self._run_settings(state, data)
        parts = {"state": state} if data is None else {"state": state, "data": data}
        try:
            self._orbax.save_checkpointables(
                step, parts, force=True, overwrite=True, custom_metadata=run
            )
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot save into {self.directory} ({str(error).splitlines()[-1]}): make room and "
                "run the command again; earlier checkpoints remain"
            ) from error
        self._last = step

    def restore(self, like: Any, data: Any = None) -> tuple[Any, int] | None:
        """Newest state and its step; None without a checkpoint.

        Args:
            like: state with the saved structure, shapes, dtypes and shardings.
            data: Grain iterator to move to its saved position; None to ignore the position.

        Raises:
            InputError: a damaged checkpoint, one of another structure, configuration or data, or
                one without a position in the data when `data` is passed.
        """
        step = self.latest()
        if step is None:
            return None
        with _orbax_errors(f"{self.directory}: the checkpoint of step {step}"):
            saved_run = self._orbax.checkpointables_metadata(step).custom_metadata
        self._check_run(saved_run or {}, self._run_settings(like, data), step)
        load = self._orbax.load_checkpointables
        with _orbax_errors(f"{self.directory}: the checkpoint of step {step}"):
            # One at a time: if one fails, Orbax leaves the others incomplete.
            state = load(step, {"state": jax.tree.map(_abstract, like)})["state"]
            if data is not None:
                load(step, {"data": data})
        self._last = step
        return state, step

    def _run_settings(self, state: Any, data: Any) -> dict[str, Any]:
        """Settings that a checkpoint must share with the run that resumes from it."""
        sources = None if data is None else fingerprint(data)
        return {"config": self.config, "leaves": _leaves(state), "data": sources}

    def _check_run(self, saved: dict[str, Any], current: dict[str, Any], step: int) -> None:
        parts = {"config": "setting", "leaves": "array"}
        if current["data"] is not None:
            if saved.get("data") is None:
                raise InputError(
                    f"{self.directory}: the checkpoint of step {step} was saved without data: "
                    "restore it without `data`, or pass another directory"
                )
            parts |= {"data": "the data's"}
        for part, what in parts.items():
            before, now = saved.get(part, {}), current[part]
            for name in sorted(before.keys() | now.keys()):
                if before.get(name, "absent") != now.get(name, "absent"):
                    raise InputError(
                        f"{self.directory}: the checkpoint of step {step} is of another run: "
                        f"{what} {name} was {before.get(name, 'absent')} and now is "
                        f"{now.get(name, 'absent')}; pass another directory, or the old value"
                    )


def newest_checkpoint(directory: str | Path) -> int | None:
    """Step of the newest checkpoint, from the names of the folders; None without any."""
    names = [path.name for path in Path(directory).glob("*/")]
    return max((int(name) for name in names if name.isdecimal()), default=None)


@contextlib.contextmanager
def _orbax_errors(what: str) -> Iterator[None]:
    """Context in which any error of Orbax or Grain, as for damaged files, becomes `InputError`."""
    try:
        yield
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{what} cannot be read ({reason:.200}); delete the damaged folder to resume from the "
            "checkpoint before it, or pass another directory"
        ) from error


def fingerprint(data: Any) -> dict[str, Any]:
    """Sources of the batches of a Grain iterator, JSON values; {} if they are unknown.

    For `jaxpe.training.batches`: seed, batch size, rows, buckets, and a checksum of every array.
    A position in the data means the same batch only if all of these agree.

    >>> from jaxpe.training import batches
    >>> fingerprint(iter(batches({"x": np.arange(6)}, batch_size=2, seed=0)))["array x"]
    'int64[6], CRC-32 a1c6c70c'
    """
    # Grain has no public way from an iterator to its source.
    while parents := getattr(data, "_parents", ()):
        data = parents[0]
    source = getattr(getattr(data, "_map_parent", None), "_source", data)
    return getattr(source, "fingerprint", {})


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
            raise ValueError(f"the buffer of {name or 'the state'} was donated to a step")
    return {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in leaves.items()}


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    """Shape, dtype and sharding of a leaf; without a sharding Orbax guesses one and warns."""
    sharding = getattr(leaf, "sharding", None)
    sharding = sharding or jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
