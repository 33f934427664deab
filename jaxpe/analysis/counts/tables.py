"""Tables of counts in a compressed file: occupied cells and their counts."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int

from jaxpe._core.errors import InputError

Tables = Mapping[str, Int[np.ndarray, "rows vocab"]]


def named_tables(
    table: Int[np.ndarray, "folds rows vocab"],
    nulls: Int[np.ndarray, "nulls null_folds rows vocab"],
) -> Tables:
    """Each table of counts under its name in the file."""
    tables = {f"fold_{fold}": counts for fold, counts in enumerate(table)}
    for number, null in enumerate(nulls):
        tables |= {f"null_{number}_fold_{fold}": counts for fold, counts in enumerate(null)}
    return tables


def write_tables(path: Path, tables: Tables) -> None:
    """Write the distances between occupied cells, which compress well, and their counts."""
    # Level 1: the default of zlib takes six times as long for a file a sixth smaller.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, table in tables.items():
            flat = np.asarray(table).reshape(-1)
            cells = np.flatnonzero(flat)
            for part, values in (("steps", np.diff(cells, prepend=0)), ("counts", flat[cells])):
                smallest = np.min_scalar_type(values.max(initial=0)).newbyteorder("<")
                with file.open(f"{name}_{part}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values.astype(smallest))


def read_tables(path: Path, into: Tables) -> None:
    """Fill tables of zeros from a file; raises `InputError` for a file of other tables."""
    try:
        with open(path, "rb") as opened, np.load(opened) as file:
            for name, table in into.items():
                cells = np.cumsum(file[f"{name}_steps"], dtype=np.int64)
                table.reshape(-1)[cells] = file[f"{name}_counts"].astype(table.dtype)
    except (OSError, EOFError, ValueError, LookupError, zipfile.BadZipFile) as error:
        raise InputError(f"{path.name} cannot be read: {error}") from error
