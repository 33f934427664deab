"""Encodings with position vectors from a file, such as a report's fit to a corpus."""

import os
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxpe._core.errors import InputError
from jaxpe._core.json_values import LARGEST_FILE
from jaxpe._core.results import npz_bytes, read_npz
from jaxpe.encodings.base import Encoding
from jaxpe.encodings.families.absolute import from_matrix

ENDING = ".npz"
_NAME = "vectors"
_SHOWN = 6  # arrays in a message
_REMEDY = f"pass an {ENDING} file with a float array {_NAME!r} [positions, width]"


def vectors_file(P: Float[np.ndarray, "n k"]) -> bytes:
    """Content of a file for `from_file`; equal vectors give equal bytes.

    >>> vectors_file(np.eye(2))[:2]
    b'PK'
    """
    return npz_bytes({_NAME: np.asarray(P)})


def from_file(path: str | os.PathLike[str], *, dim: int | None = None, **options: Any) -> Encoding:
    """Position vectors of an `.npz` file, such as a report's `encoding.npz`, as an encoding.

    Args:
        path: file with an array `vectors` `[positions, width]`.
        dim: width of the vectors; columns beyond the file's width are 0.
        options: `scale`, `trainable`, `interpolate` and `mode` of `from_matrix`.

    Raises:
        InputError: a missing file, a file with other content, or vectors wider than `dim`.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "encoding.npz"
    >>> _ = path.write_bytes(vectors_file(np.eye(3)))
    >>> from_file(path, dim=4).init(jax.random.key(0))["table"].shape
    (3, 4)
    """
    P = read_vectors(path)
    if dim is not None and dim < P.shape[1]:
        raise InputError(
            f"{path} holds vectors of width {P.shape[1]}: they do not fit a width of {dim}"
        )
    return from_matrix(P, dim=dim, **options)


def read_vectors(path: str | os.PathLike[str]) -> Float[np.ndarray, "n k"]:
    """The position vectors in a file; raises `InputError` if it has none."""
    arrays = read_npz(path, remedy=_REMEDY, largest=LARGEST_FILE)
    P = arrays.get(_NAME)
    if P is None or P.ndim != 2 or 0 in P.shape or not np.issubdtype(P.dtype, np.floating):
        some = list(arrays.items())[:_SHOWN]
        contents = ", ".join(f"{name!r:.40} {x.dtype}{list(x.shape)}" for name, x in some)
        raise InputError(f"{path} holds {contents or 'nothing'}: {_REMEDY}")
    with np.errstate(all="ignore"):
        if not np.isfinite(P.astype(np.float32)).all():
            raise InputError(f"{path} holds vectors that are not finite in float32; {_REMEDY}")
    # JAX supports neither another byte order nor more than 8 bytes a number.
    return P.astype(f"f{min(P.dtype.itemsize, 8)}")
