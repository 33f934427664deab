"""Records of JSON Lines: one object per line."""

from collections.abc import Iterator, Sequence

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import parse_json
from jaxpe._core.progress import Progress
from jaxpe.data.formats.columns import ReadLog, Record
from jaxpe.data.formats.files import text_lines, where

_REMEDY = 'write one JSON object a line, such as {"text": "..."}'


def json_records(
    path: str, columns: Sequence[str] | None, log: ReadLog, progress: Progress
) -> Iterator[Record]:
    """Read the objects of a .jsonl; blank lines are skipped."""
    for number, line in enumerate(text_lines(path, progress), start=1):
        if line.strip():
            location = where(path, number)
            record = parse_json(line, where=location, remedy=_REMEDY)
            if not isinstance(record, dict):
                kind = type(record).__name__
                raise InputError(f"{location}: a JSON {kind}, not an object; {_REMEDY}")
            yield location, record
