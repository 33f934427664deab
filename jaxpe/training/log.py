"""Where the records of a run go: a log of JSON lines, one object a step, and a progress bar."""

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from jaxpe._errors import InputError, require

Record = dict[str, Any]


class Log:
    """A JSON-lines file that is appended to, one record a step, each written through at once.

    Opened for a run that goes on after `step`, it drops the lines of later steps, which will be
    written again, and a last line cut short by a kill: no step is there twice.

    Args:
        path: of the file; its folder is made if absent.
        step: the last step to keep; −1 keeps nothing.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log.jsonl"
    >>> with Log(path, step=-1) as log:
    ...     log.write({"step": 0, "loss": np.float32(0.5)})
    ...     log.write({"step": 1, "loss": float("nan")})
    >>> read_log(path)
    [{'step': 0, 'loss': 0.5}, {'step': 1, 'loss': None}]
    """

    def __init__(self, path: str | Path, *, step: int):
        self.path = path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.kept = [r for r in read_log(path) if r["step"] <= step] if path.exists() else []
        self._file = self._reopened()

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *exception) -> None:
        self._file.close()

    def mend(self, record: Record) -> None:
        """Replace the last line that was kept, before others are written."""
        self._file.close()
        self.kept[-1] = plain(record)
        self._file = self._reopened()

    def write(self, record: Record) -> None:
        """Append a record, which has a "step"; numbers that are not finite become null."""
        self._file.write(_line(record))
        self._file.flush()

    def _reopened(self) -> TextIO:
        """With what is kept, which is in the one file or the other at every moment."""
        rewritten = self.path.with_name(self.path.name + ".new")
        rewritten.write_text("".join(map(_line, self.kept)), encoding="utf-8")
        os.replace(rewritten, self.path)
        return self.path.open("a", encoding="utf-8")


def read_log(path: str | Path) -> list[Record]:
    """The records of a log, without a last line that was cut short.

    Raises:
        InputError: for any other line that is not a JSON object with a "step".

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.jsonl"
    >>> _ = path.write_text('{"step": 1, "loss": 0.5}\\n{"step": 2, "lo')
    >>> read_log(path)
    [{'step': 1, 'loss': 0.5}]
    """
    lines = Path(path).read_text(encoding="utf-8").split("\n")
    # What follows the last newline is nothing, or a line that was being written.
    return [_record(line, f"{path}:{number}") for number, line in enumerate(lines[:-1], 1)]


def plain(value: Any) -> Any:
    """Arrays and NumPy's numbers as Python's, in dicts and lists too; not finite ones as None.

    >>> plain({"a": jnp.arange(2), "b": np.float64("inf")})
    {'a': [0, 1], 'b': None}
    """
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "shape"):
        return plain(np.asarray(value).tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def progress_bar(start: int, steps: int, *, shown: bool) -> Iterator[Callable[[Record], None]]:
    """Loss, steps a second and the time left; nothing where standard error is not a terminal."""
    if not shown or not sys.stderr.isatty():
        yield lambda record: None
        return
    console = require("rich.console", extra="train").Console(stderr=True)
    rich = require("rich.progress", extra="train")
    columns = (
        rich.MofNCompleteColumn(),
        rich.BarColumn(),
        rich.TextColumn("loss {task.fields[loss]}  {task.fields[rate]}"),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("training", total=steps, completed=start, loss="", rate="")

        def show(record: Record) -> None:
            speed = bar.tasks[task].speed
            rate = "" if speed is None else f"{speed:.1f} steps/s"
            loss = f"{float(record['loss']):.4f}" if "loss" in record else ""
            bar.update(task, completed=record["step"], loss=loss, rate=rate)

        yield show


def _line(record: Record) -> str:
    return json.dumps(plain(record), allow_nan=False) + "\n"


def _record(line: str, where: str) -> Record:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error}); is this a log of jaxpe?") from error
    if not isinstance(record, dict) or not isinstance(record.get("step"), int):
        raise InputError(f'{where}: not an object with a "step"; is this a log of jaxpe?')
    return record
