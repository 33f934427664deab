"""Tables of counts in a compressed file, read back within the memory that they take."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt

from jaxpe._core.array_files import read_member, reason, write_npz_array
from jaxpe._core.errors import InputError
from jaxpe.analysis.counts.consistency import check

_LONGEST_HEAD = 256  # bytes
_LEVEL = 1  # of zlib, whose default costs six times the time for a sixth less
_WIDEST = 8  # bytes of a number
# Of the largest table: its numbers as they stand in the file, twice, and the cells they are for.
READING_BYTES = 4 * _WIDEST

Tables = Mapping[str, Int[np.ndarray, "rows vocab"]]


def named_tables(
    table: Int[np.ndarray, "folds rows vocab"],
    nulls: Int[np.ndarray, "nulls null_folds rows vocab"],
) -> Tables:
    """Each table of counts under its name in the file."""
    tables = {f"fold_{fold}": own for fold, own in enumerate(table)}
    for number, null in enumerate(nulls):
        tables |= {f"null_{number}_fold_{fold}": own for fold, own in enumerate(null)}
    return tables


def write_tables(path: Path, tables: Tables) -> None:
    """Write of each table the steps between cells that hold something, and what they hold."""
    with zipfile.ZipFile(path, "w") as file:
        for name, table in tables.items():
            flat = np.asarray(table).reshape(-1)
            cells = np.flatnonzero(flat)
            for part, values in (("steps", np.diff(cells, prepend=0)), ("counts", flat[cells])):
                smallest = np.min_scalar_type(values.max(initial=0)).newbyteorder("<")
                write_npz_array(file, f"{name}_{part}", values.astype(smallest), level=_LEVEL)


def read_tables(path: Path, into: Tables) -> None:
    """Fill tables of zeros with what the file holds; raises where it holds anything else."""
    try:
        with zipfile.ZipFile(path) as file:
            members = {member.filename: member for member in file.infolist()}
            wanted = {f"{name}_{part}.npy" for name in into for part in ("steps", "counts")}
            check(
                members.keys() == wanted and len(file.infolist()) == len(wanted),
                f"{path.name} holds other arrays than the settings name",
            )
            for name, table in into.items():
                steps, counts = (
                    _array(file, members[f"{name}_{part}.npy"], table.size)
                    for part in ("steps", "counts")
                )
                _fill(name, table.reshape(-1), steps, counts)
    # Damaged files fail in many ways: an offset, a method that is not there, a password, a header.
    except Exception as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path.name} cannot be read: {reason(error)}") from error


def _fill(
    name: str,
    flat: Int[np.ndarray, " cells"],
    steps: UInt[np.ndarray, " steps"],
    counts: UInt[np.ndarray, " counts"],
) -> None:
    check(len(steps) == len(counts), f"{name} has {len(steps)} cells and {len(counts)} counts")
    if not len(steps):
        return
    cells = np.cumsum(steps, dtype=np.int64)
    # Steps that are short cannot go around the integers unseen.
    inside = int(steps.max()) < flat.size and cells.max() < flat.size
    check(inside and np.all(steps[1:] > 0), f"{name} has a cell twice, or beyond its {flat.size:,}")
    fits = counts.min() >= 1 and int(counts.max()) <= np.iinfo(flat.dtype).max
    check(fits, f"{name} has a count out of range")
    flat[cells] = counts.astype(flat.dtype)


def _array(
    file: zipfile.ZipFile, member: zipfile.ZipInfo, longest: int
) -> UInt[np.ndarray, " length"]:
    """An array of unsigned integers that is no longer than a table."""
    name, size = member.filename, member.file_size
    check(size <= _LONGEST_HEAD + _WIDEST * longest, f"{name} has {size:,} bytes")
    array = read_member(file, member)
    if array.dtype.kind != "u" or array.ndim != 1:
        raise InputError(f"{name} is no array of unsigned integers")
    check(len(array) <= longest, f"{name} names {len(array):,} numbers")
    return array
