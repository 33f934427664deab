"""Sequences of FASTA and FASTQ files, one document each."""

import re
from collections.abc import Iterator, Sequence

from jaxpe._core.errors import InputError
from jaxpe._core.options import Choice
from jaxpe._core.progress import Progress
from jaxpe.data.formats.columns import TEXT, ReadLog, Record
from jaxpe.data.formats.files import quoted, text_lines, where

_OTHER = re.compile(r"[^A-Za-z.*~-]")  # not a base, an amino acid, a gap or a stop
_Lines = Iterator[tuple[str, str]]  # locations and texts


def sequence_records(
    path: str, columns: Sequence[str] | None, log: ReadLog, progress: Progress
) -> Iterator[Record]:
    """Read sequences in upper case; the first character tells FASTA (`>`) from FASTQ (`@`).

    Lines of a sequence are joined. Qualities, spaces and `*` at the end are dropped, as are
    comments (`;` or `#`) before the first record.
    """
    numbered = enumerate(text_lines(path, progress), start=1)
    lines = ((where(path, number), line.strip()) for number, line in numbered if line.strip())
    first = next((line for line in lines if line[1][0] not in ";#"), None)
    if first is None:
        return
    total = lower = 0
    for location, parts in (_fasta if first[1][0] == ">" else _fastq)(first, lines):
        sequence = "".join(parts)
        total, lower = total + 1, lower + (sequence != sequence.upper())
        yield location, {TEXT: sequence.upper().rstrip("*")}
    if lower:
        why = f"{lower:,} of {total:,} sequences have lower-case letters, such as soft-masked ones"
        how = "write one sequence a line into a .txt to keep the case"
        log.choose(Choice("letters", "upper case", why, how))


def _fasta(header: tuple[str, str], lines: _Lines) -> Iterator[tuple[str, list[str]]]:
    location, parts = header[0], []
    for here, line in lines:
        if line[0] == ">":
            yield location, parts
            location, parts = here, []
        else:
            parts.append(_checked(line, here))
    yield location, parts


def _fastq(header: tuple[str, str] | None, lines: _Lines) -> Iterator[tuple[str, list[str]]]:
    end = ("", "")
    while header is not None:
        location, parts = header[0], []
        if header[1][0] != "@":
            remedy = "begin it with '>' (FASTA) or '@' (FASTQ), or name lines of text .txt"
            raise InputError(f"{location}: {quoted(header[1])} begins no record; {remedy}")
        while (line := next(lines, end))[1][:1] not in ("+", ""):
            parts.append(_checked(line[1], line[0]))
        letters, qualities = sum(map(len, parts)), 0
        while line != end and qualities < letters:
            line = next(lines, end)
            qualities += len(line[1])
        if line == end or qualities > letters:
            raise InputError(
                f"{location}: the record has {letters} letters and {qualities} qualities; remove it"
            )
        yield location, parts
        header = next(lines, None)


def _checked(line: str, location: str) -> str:
    letters = line.replace(" ", "")
    if other := _OTHER.search(letters):
        raise InputError(
            f"{location}: {quoted(other[0])} is no letter of a sequence, gap (- .) or stop (*)"
        )
    return letters
