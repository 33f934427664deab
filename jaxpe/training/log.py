"""Log of a run: JSON lines, with one object per step."""

import contextlib
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe._core.files import write_file
from jaxpe._core.json_values import parse_json, read_small

_LARGEST_FILE = 2**34  # bytes; more than a hundred million steps

Record = dict[str, Any]


class Log:
    """JSON-lines file to which a run appends a record per step, flushed at once.

    Opening it writes the records of an earlier run atomically: a killed process leaves the old file
    or the new one. The folder is made if absent.

    Args:
        path: path of the file.
        records: first records of the file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log.jsonl"
    >>> with Log(path, [{"step": 0, "loss": 0.5}]) as log:
    ...     log.write({"step": 1, "loss": np.float32("nan")})
    >>> read_log(path)
    [{'step': 0, 'loss': 0.5}, {'step': 1, 'loss': None}]
    """

    def __init__(self, path: str | Path, records: Iterable[Record] = ()):
        self.path = Path(path)
        write_file(self.path, "".join(map(_line, records)))
        self._file = self.path.open("a", encoding="utf-8")

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *exception) -> None:
        with contextlib.suppress(OSError):  # `write` has raised for a record that did not fit
            self._file.close()

    def write(self, record: Record) -> None:
        """Append a record, which has a "step"; numbers that are not finite become null.

        Raises `InputError` if the disk is full; earlier lines remain.
        """
        try:
            self._file.write(_line(record))
            self._file.flush()
        except OSError as error:
            raise InputError(
                f"cannot write {self.path} ({error.strerror or error}): make room and resume; "
                "earlier records remain"
            ) from error


def read_log(path: str | Path) -> list[Record]:
    """Records of a log; an incomplete last line is ignored.

    Args:
        path: path of the log.

    Raises:
        InputError: a missing file, or any other line that is not a JSON object with a "step".

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.jsonl"
    >>> _ = path.write_text('{"step": 1, "loss": 0.5}\\n{"step": 2, "lo')
    >>> read_log(path)
    [{'step': 1, 'loss': 0.5}]
    """
    content = read_small(path, remedy=_REMEDY, largest=_LARGEST_FILE)
    *lines, last = content.split(b"\n")
    # After the last newline is nothing, or a line that a killed process was writing.
    if not last.startswith(b"{"[: len(last)]):
        raise InputError(f"{path} does not end with a record; {_REMEDY}")
    return [_record(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def plain(value: Any) -> Any:
    """Value with arrays and NumPy numbers as Python numbers, and None for those not finite."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "shape"):
        return plain(np.asarray(value).tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _line(record: Record) -> str:
    return json.dumps(plain(record), allow_nan=False) + "\n"


_REMEDY = "is this a log of jaxpe?"


def _record(line: bytes, where: str) -> Record:
    record = parse_json(line, where=where, remedy=_REMEDY)
    step = record.get("step") if isinstance(record, dict) else None
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise InputError(f'{where}: not an object with a "step"; {_REMEDY}')
    return record
