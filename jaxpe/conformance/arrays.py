"""Arrays of any framework as NumPy."""

from typing import Any

import numpy as np

from jaxpe._core.errors import InputError


def to_numpy(array: Any) -> np.ndarray:
    """Numbers of an array of any framework; bfloat16 and float8 become wider floats, unrounded.

    Torch tensors may need gradients and be on any device. Other arrays come by `__array__`, DLPack
    or `tolist`. Memory may be shared.

    Raises:
        InputError: an object without numbers.

    >>> to_numpy([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    if hasattr(array, "detach"):  # torch, whose gradients and devices NumPy does not know
        array = array.detach().cpu()
    try:
        numbers = np.asarray(array)
        if numbers.dtype == object and hasattr(array, "__dlpack__"):
            numbers = np.from_dlpack(array)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        # NumPy lacks a type such as bfloat16, or memory is not the CPU's
        if hasattr(array, "float"):
            numbers = np.asarray(array.float())
        elif hasattr(array, "tolist"):
            numbers = np.asarray(array.tolist())
        else:
            raise InputError(f"a {type(array).__name__} has no numbers: {error}") from error
    if numbers.dtype.kind == "V" and numbers.dtype.type is not np.void:  # types of ml_dtypes
        numbers = numbers.astype(np.float32)
    if numbers.dtype.kind not in "biufc":
        raise InputError(
            f"a {type(array).__name__} has no numbers: pass an array with `__array__` or DLPack"
        )
    return numbers
