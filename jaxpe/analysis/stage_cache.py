"""Cache of finished stages, by which a stopped job resumes."""

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe._core.files import content_hash, write_file
from jaxpe._core.results import load_result, result_files

_FORMAT = 1  # version of the files; another number makes older ones stale


class StageCache(NamedTuple):
    """Results of stages in a folder, each with a stamp of its settings and inputs.

    Attributes:
        folder: folder of the results; None to cache nothing.
        stamp: hash of the settings and inputs of all stages.
    """

    folder: Path | None
    stamp: str

    def read(self, name: str, kind: type) -> Any | None:
        """The result of a stage; None where it is absent, damaged or of another stamp.

        Args:
            name: name of the stage.
            kind: type of its result.
        """
        if self.folder is None:
            return None
        with contextlib.suppress(OSError, InputError, TypeError, ValueError):
            if (self.folder / f"{name}.stamp").read_text("utf-8") == self.stamp:
                return load_result(kind, self.folder / f"{name}.json")
        return None

    def write(self, name: str, result: Any) -> None:
        """Write the result of a stage, completely or not at all.

        Args:
            name: name of the stage.
            result: its result.
        """
        if self.folder is None:
            return
        (self.folder / f"{name}.stamp").unlink(missing_ok=True)
        for file, content in result_files(result, name).items():
            write_file(self.folder / file, content)
        write_file(self.folder / f"{name}.stamp", self.stamp)


def settings_stamp(settings: dict[str, Any], *, inputs: Iterable[str] = ()) -> str:
    """Hash of settings, of input files by size and time, and of the relevant versions.

    Args:
        settings: values that JSON can hold.
        inputs: paths of files, or of folders of files; names that are no path count as settings.
    """
    files = [
        (file.name, file.stat().st_size, file.stat().st_mtime_ns)
        for path in map(Path, inputs)
        for file in (sorted(path.glob("*")) if path.is_dir() else [path])
        if file.is_file()
    ]
    versions = [_FORMAT, jaxpe.__version__, jax.default_backend(), str(jnp.result_type(float))]
    return content_hash(
        json.dumps([settings, files, versions], sort_keys=True).encode()
    ).hexdigest()
