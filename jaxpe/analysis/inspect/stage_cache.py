"""Stages that are done, kept in the folder of the page so that a run that is killed can resume."""

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxpe
from jaxpe._core.errors import InputError
from jaxpe._core.files import content_hash, write_file
from jaxpe._core.results import load_result, result_files
from jaxpe.analysis.inspect.options import InspectOptions

_FORMAT = 1  # of what is kept; another number makes what was kept before of no use
_FOLDER = "stages"


class KeptStages(NamedTuple):
    """Results of stages in a folder, each beside what it depends on.

    Attributes:
        folder: where they are; None where nothing is kept.
        stamp: what all stages depend on.
    """

    folder: Path | None
    stamp: str

    def read(self, name: str, kind: type) -> Any | None:
        """The result of a stage; None where there is none, or one of other options or damaged.

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
        """Keep the result of a stage, whole or not at all.

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


def kept_stages(options: InspectOptions, folder: Path | None) -> KeptStages:
    """Folder of the stages of these options, below the folder of the page.

    They depend on the options but for `stages`, on the files of model and corpus by their sizes and
    times, and on the version of jaxpe.
    """
    settings = {k: v for k, v in dataclasses.asdict(options).items() if k != "stages"}
    files = [_file(Path(options.model)), _file(Path(options.source))]
    around = [_FORMAT, jaxpe.__version__, jax.default_backend(), str(jnp.result_type(float))]
    text = json.dumps([settings, files, around], sort_keys=True)
    stamp = content_hash(text.encode()).hexdigest()
    return KeptStages(None if folder is None else folder / _FOLDER, stamp)


def _file(path: Path) -> list[Any]:
    """Names, sizes and times of a file, or of the files in a folder."""
    paths = sorted(path.glob("*")) if path.is_dir() else [path]
    stats = [(one.name, one.stat()) for one in paths if one.is_file()]
    return [(name, about.st_size, int(np.int64(about.st_mtime_ns))) for name, about in stats]
