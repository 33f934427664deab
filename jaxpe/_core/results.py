"""Results on disk: small values as JSON, large arrays in an .npz next to it."""

import io
import json
import math
import os
import shutil
import stat
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from jaxpe._core.errors import InputError, reason
from jaxpe._core.json_values import LargeArray as LargeArray
from jaxpe._core.json_values import Seconds as Seconds
from jaxpe._core.json_values import from_json, read_json, to_json
from jaxpe._core.memory import check_bytes

_REMEDY = "pass the .json file that a job of jaxpe wrote, with its .npz next to it"


def result_files(result: Any, name: str) -> dict[str, bytes]:
    """Names and contents of the files of a saved result; equal results give equal bytes.

    >>> from typing import NamedTuple
    >>> class Fit(NamedTuple):
    ...     stress: float
    ...     distances: LargeArray
    >>> files = result_files(Fit(0.5, np.eye(2)), "fit")
    >>> sorted(files), files["fit.json"]
    (['fit.json', 'fit.npz'], b'{\\n  "stress": 0.5\\n}\\n')
    """
    arrays: dict[str, np.ndarray] = {}
    values = to_json(result, arrays)
    files = {f"{name}.json": (json.dumps(values, indent=2, allow_nan=False) + "\n").encode()}
    if arrays:
        files[f"{name}.npz"] = npz_bytes(arrays)
    return files


def load_result(kind: type, path: str | os.PathLike[str]) -> Any:
    """Load a saved result.

    Args:
        kind: type of the result, such as `jaxpe.analysis.corpus.CorpusResult`.
        path: path of its JSON file.

    Raises:
        InputError: a missing or damaged file, or a result of another type.

    >>> import tempfile
    >>> from typing import NamedTuple
    >>> class Fit(NamedTuple):
    ...     stress: float
    ...     distances: LargeArray
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, content in result_files(Fit(float("nan"), np.eye(2)), "fit").items():
    ...     _ = (folder / name).write_bytes(content)
    >>> load_result(Fit, folder / "fit.json")
    Fit(stress=nan, distances=array([[1., 0.],
           [0., 1.]]))
    """
    path = Path(path)
    values = read_json(path, remedy=_REMEDY)
    npz = path.with_suffix(".npz")
    arrays = read_npz(npz, remedy=_REMEDY) if npz.exists() else {}
    for name, array in arrays.items():
        _put(values, name.split("/"), array, path=path)
    return from_json(kind, values, where=str(path), finite=False)


def _put(values: Any, steps: list[str], array: np.ndarray, *, path: Path) -> None:
    """Set the value at a path in nested objects and lists."""
    try:
        for step in steps[:-1]:
            values = values[int(step)] if isinstance(values, list) else values[step]
        values[steps[-1]] = array
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise InputError(f"{path} has no place for the array {'/'.join(steps)!r:.100}") from error


_MOST = 6  # items of a list to show at most
_LONGEST = 80  # characters of a value to show at most


def short_repr(value: Any) -> str:
    """Short text of a named tuple: arrays as dtype and shape, long lists and strings cut.

    >>> from typing import NamedTuple
    >>> class Corpus(NamedTuple):
    ...     name: str
    ...     ids: np.ndarray
    ...     tokens: list[str]
    >>> short_repr(Corpus("two", np.zeros((2, 3), np.int32), ["a"] * 1000))
    "Corpus(name='two', ids=int32[2, 3], tokens=[1,000 items])"
    """
    fields = zip(value._fields, tuple(value), strict=True)
    inside = ", ".join(f"{name}={_short(field)}" for name, field in fields)
    return f"{type(value).__name__}({inside})"


def _short(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]" if value.ndim else str(value)
    if hasattr(value, "_fields"):
        return short_repr(value)
    if isinstance(value, list | tuple | dict) and len(value) > _MOST:
        left, right = ("{", "}") if isinstance(value, dict) else ("[", "]")
        return f"{left}{len(value):,} items{right}"
    if isinstance(value, list | tuple):
        left, right = "()" if isinstance(value, tuple) else "[]"
        return f"{left}{', '.join(map(_short, value))}{right}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name!r}: {_short(item)}' for name, item in value.items())}}}"
    text = getattr(value, "__name__", None) if callable(value) else None
    text = repr(value) if text is None else text
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


# Version 3 differs from 2 only in field names that are not Latin-1; arrays of numbers have none.
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,
}


def npz_bytes(arrays: Mapping[str, np.ndarray], *, level: int | None = None) -> bytes:
    """Content of an .npz without the time of writing, which `np.savez` includes.

    Args:
        arrays: arrays by name.
        level: compression of zlib, 1 (fast) to 9; its own default, 6, if absent.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, content.getvalue(), zipfile.ZIP_DEFLATED, level)
    return buffer.getvalue()


def read_npz(
    path: str | os.PathLike[str], *, remedy: str, largest: int | None = None
) -> dict[str, np.ndarray]:
    """Arrays of an .npz file by name, checked before memory is allocated; nothing is unpickled.

    Args:
        path: the file.
        remedy: end of an error message: what to do about the file.
        largest: most bytes of all arrays, if less than memory allows.

    Raises:
        InputError: no regular file, a damaged or encrypted one, Python objects, two arrays of one
            name, or arrays that do not fit. The message names the file, the array and the remedy.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.npz"
    >>> _ = path.write_bytes(npz_bytes({"a": np.arange(3)}))
    >>> read_npz(path, remedy="write it again")
    {'a': array([0, 1, 2])}
    """
    arrays: dict[str, np.ndarray] = {}
    where = str(path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError("it is not a regular file")
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            needed = sum(member.file_size for member in members)
            check_bytes(needed, what=where, remedy=remedy)
            if largest is not None and needed > largest:
                raise ValueError(f"its arrays have {needed:,} bytes, more than {largest:,}")
            for member in members:
                name = member.filename.removesuffix(".npy")
                where = f"{path}, array {name!r:.60},"
                if name in arrays:
                    raise ValueError("it is there twice")
                arrays[name] = _read_member(archive, member)
    except InputError:
        raise
    # Errors of zipfile, of its decompressors, and of NumPy's header parser, which evaluates Python.
    except Exception as error:
        raise InputError(f"{where} cannot be read ({reason(error)}); {remedy}") from error
    return arrays


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    content = io.BytesIO()
    with archive.open(member) as file:
        shape, by_columns, dtype = _npy_header(file, member.file_size)
        shutil.copyfileobj(file, content)  # to the end: zipfile then compares the checksum
    return np.ndarray(shape, dtype, content.getbuffer(), order="F" if by_columns else "C")


def _npy_header(
    file: IO[bytes] | zipfile.ZipExtFile, size: int
) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether in Fortran order, and dtype of a .npy file, checked against its size."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"its format is {version}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about headers of Python 2, and bad escapes
        shape, by_columns, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    rest = size - file.tell()
    stated = math.prod(shape) * dtype.itemsize
    # Values of no size, such as S0, may be any number of in no bytes.
    if min(shape, default=0) < 0 or dtype.itemsize == 0 or stated != rest:
        raise ValueError(f"its header states shape {shape} of {dtype}, but {rest:,} bytes follow")
    return shape, by_columns, dtype
