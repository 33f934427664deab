"""Damaged .npz files: one error, or the arrays."""

import io

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.results import npz_arrays
from tests.core.test_npz import METHODS, REMEDY, A, archive, read
from tests.hardening.mutations import mutations


@pytest.mark.parametrize("method", METHODS)
def test_a_damaged_file_is_one_error_or_the_arrays(method):
    """Cut at many places, with a byte turned at many places, and with random changes."""
    buffer = io.BytesIO()
    np.save(buffer, A)
    whole = archive(buffer.getvalue(), method)
    np.testing.assert_array_equal(read(whole), A)
    places = range(0, len(whole), 5)
    damaged = [whole[:place] for place in places]
    damaged += [whole[:i] + bytes([whole[i] ^ 0xFF]) + whole[i + 1 :] for i in places]
    damaged += mutations(whole, seed=METHODS[method], number=60)
    refused = []
    for content in damaged:
        try:
            found = npz_arrays(content, where="it.npz", remedy=REMEDY)
        except InputError as error:
            refused.append(str(error))
        else:  # of a date, or another name
            for array in found.values():
                np.testing.assert_array_equal(array, A)
    assert len(refused) > 0.9 * len(damaged)
    assert all(words.startswith("it.npz") and words.endswith(REMEDY) for words in refused)
    assert not any("\n" in words for words in refused)
