"""Arrays of any framework come as NumPy with their numbers unchanged."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.conformance.arrays import to_numpy

NUMBERS = [1.5, -2.0, 0.0]
DTYPES = ["bfloat16", "float16", "float32", "float8_e4m3fn"]


class ByDLPack:
    """An array whose only protocol is DLPack."""

    __dlpack__ = np.asarray(NUMBERS).__dlpack__
    __dlpack_device__ = np.asarray(NUMBERS).__dlpack_device__


class ByList:
    """An array of bfloat16 in a framework without ml_dtypes, such as MLX."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Item size 2 for PEP 3118 buffer format string B does not match")

    def tolist(self):
        return NUMBERS


@pytest.mark.parametrize(
    "array", [ByDLPack(), ByList(), NUMBERS, *(jnp.asarray(NUMBERS, dtype) for dtype in DTYPES)]
)
def test_one_protocol_is_enough(array):
    found = to_numpy(array)
    assert found.dtype.kind == "f"
    np.testing.assert_array_equal(found, NUMBERS)


@pytest.mark.parametrize("dtype", DTYPES[:3])
def test_tensors_with_gradients_are_read(dtype):
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(NUMBERS, dtype=getattr(torch, dtype), requires_grad=True)
    np.testing.assert_array_equal(to_numpy(tensor), NUMBERS)


@pytest.mark.parametrize("wrong", [object(), "positions", None, [[1], [1, 2]]])
def test_what_has_no_numbers_is_refused(wrong):
    with pytest.raises(InputError, match="numbers"):
        to_numpy(wrong)
