"""Checkpoints of a run that may be killed; the only module that imports Orbax."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxpe._core.errors import InputError, require
from jaxpe._core.files import check_regular
from jaxpe.training.processes import gather_values


class Checkpoint(NamedTuple):
    """Restored checkpoint.

    Attributes:
        state: state, with the shardings of the state that was asked for.
        step: number of steps before it.
        data: values that the processes passed to `save`, one of each process.
    """

    state: Any
    step: int
    data: list[Any]


class Checkpoints:
    """Checkpoints of one run: state and position in the data, saved together or not at all.

    Orbax renames a checkpoint to its final name once all of it is on disk, so a killed run leaves
    no partial checkpoint. Each stores the run's configuration; a run of another configuration is
    refused. Several processes save and restore together, into one directory that they share. A
    state is restored onto any mesh and any number of processes.

    Args:
        directory: folder of the checkpoints, made if absent.
        keep: number of newest checkpoints to keep, or a policy of
            `orbax.checkpoint.v1.training.preservation_policies`.
        config: settings of the run, JSON values, that a resumed run must share.
        read_only: change nothing in the directory, since another process may be writing into it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory, Checkpoints(directory) as checkpoints:
    ...     checkpoints.save(3, {"w": jnp.ones(2)})
    ...     state, step, _ = checkpoints.restore({"w": jnp.zeros(2)})
    >>> state["w"].tolist(), step
    ([1.0, 1.0], 3)
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        keep: Any = 2,
        config: Mapping[str, Any] | None = None,
        read_only: bool = False,
    ):
        if isinstance(keep, int) and keep < 2:
            raise ValueError(f"keep={keep} must be at least 2, in case the newest is damaged")
        training = require("orbax.checkpoint", extra="train").v1.training
        policy = training.preservation_policies.LatestN(keep) if isinstance(keep, int) else keep
        self.directory = Path(directory).resolve()
        self.config = json.loads(json.dumps(dict(config or {})))  # as Orbax reads it back
        check_regular(self.directory)  # Orbax would read a device without an end
        with _orbax_errors(f"{self.directory}: the checkpoints"):
            self._orbax = training.Checkpointer(
                self.directory,
                preservation_policy=policy,
                cleanup_tmp_directories=not read_only,
            )
        self._saving: Any = None  # answer of Orbax about the last save

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind, error, traceback) -> None:
        # After a save that failed, closing fails too, with a less useful error.
        with contextlib.suppress(Exception) if error else contextlib.nullcontext():
            self.close()

    def close(self) -> None:
        """Wait for the last save, and release the directory."""
        self.wait()
        self._orbax.close()

    def latest(self) -> int | None:
        """Step of the newest checkpoint; None without any."""
        self.wait()
        return max((checkpoint.step for checkpoint in self._orbax.checkpoints), default=None)

    def save(self, step: int, state: Any, data: Any = None) -> None:
        """Save the state after `step` steps, and the position in the data.

        Copies the state to the host and returns; the disk is written meanwhile. The next call of a
        method waits for it, and raises its errors.

        Args:
            step: number of steps.
            state: pytree of arrays; their buffers may be donated afterwards.
            data: JSON value of this process, such as `get_state()` of a Grain iterator.

        Raises:
            InputError: a full disk, or no permission; earlier checkpoints remain.
        """
        run = {"config": self.config, "leaves": _leaves(state), "data": gather_values(data)}
        self.wait()
        with self._disk_errors():
            self._saving = self._orbax.save_checkpointables_async(
                step, {"state": state}, force=True, overwrite=True, custom_metadata=run
            )

    def wait(self) -> None:
        """Wait until the last save is on the disk; raises its error, as `save` does."""
        saving, self._saving = self._saving, None
        if saving is not None:
            with self._disk_errors():
                saving.result()

    def restore(self, like: Any) -> Checkpoint | None:
        """Newest checkpoint; None without any.

        Args:
            like: state with the saved structure, shapes and dtypes, and the shardings to restore.

        Raises:
            InputError: a damaged checkpoint, or one of another structure or configuration.
        """
        step = self.latest()
        if step is None:
            return None
        with _orbax_errors(f"{self.directory}: the checkpoint of step {step}"):
            saved = self._orbax.checkpointables_metadata(step).custom_metadata or {}
        self._check_run(saved, {"config": self.config, "leaves": _leaves(like)}, step)
        with _orbax_errors(f"{self.directory}: the checkpoint of step {step}"):
            state = self._orbax.load_checkpointables(step, {"state": like})["state"]
            state = jax.tree.map(_resharded, state, like)
        return Checkpoint(state, step, saved.get("data") or [])

    def _check_run(self, saved: dict[str, Any], current: dict[str, Any], step: int) -> None:
        for part, what in {"config": "setting", "leaves": "array"}.items():
            before, now = saved.get(part, {}), current[part]
            for name in sorted(before.keys() | now.keys()):
                old, new = before.get(name, "absent"), now.get(name, "absent")
                if old != new:
                    raise InputError(
                        f"{self.directory}: the checkpoint of step {step} is of another run: "
                        f"{what} {name} was {old} and now is {new}; pass another directory, or "
                        "the old value"
                    )

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot save into {self.directory} ({str(error).splitlines()[-1]}): make room and "
                "run the command again; earlier checkpoints remain"
            ) from error


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


def _leaves(state: Any) -> dict[str, str]:
    """Path, dtype and shape of every array."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): f"{leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
    }


def _resharded(leaf: Any, like: Any) -> Any:
    """Leaf with the sharding that was asked for."""
    # On a mesh of one device, a restored random key has a sharding of rank 1, which jit refuses.
    sharding = getattr(like, "sharding", None)
    if sharding is None or leaf.sharding == sharding or not sharding.is_fully_addressable:
        return leaf
    return jax.device_put(leaf, sharding)
