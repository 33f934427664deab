"""NumPy generators for data, independent of the keys of a model."""

import numpy as np

from jaxpe._core.options import check_seed


def generator(seed: int) -> np.random.Generator:
    """NumPy's generator of a seed in [0, 2**32); another raises `InputError`.

    >>> generator(-1)
    Traceback (most recent call last):
    jaxpe.InputError: `seed` is -1; pass at least 0
    """
    check_seed("seed", seed)
    return np.random.default_rng(seed)
