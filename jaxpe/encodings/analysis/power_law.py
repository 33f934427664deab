"""Power laws: how measured numbers grow with the width and the length of a model."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxpe.encodings.registry import EncodingSizes

SCALES = (1, 2, 4)  # multiples of the width, and divisors of the length, in a fit


class PowerLaw(NamedTuple):
    """A number and the exponents with which it grows, value ∝ dim^a · length^b.

    Attributes:
        value: value at the requested sizes.
        dim: exponent in the width of embeddings and heads together, fitted at 1, 2 and 4 times the
            width; NaN where a value is 0.
        length: exponent in the training length, fitted at a quarter, a half and all of it.
    """

    value: float
    dim: float
    length: float


def power_laws(
    measure: Callable[[EncodingSizes], Sequence[float | int]], sizes: EncodingSizes
) -> list[PowerLaw]:
    """Measured values at some sizes, with their exponents in the width and in the length.

    Raises:
        ValueError: a length below 4, whose quarter is no length.

    >>> power_laws(lambda at: [at.dim * at.length**2, 0], EncodingSizes(2, 1, 4, 8))
    [PowerLaw(value=128.0, dim=1.0, length=2.0), PowerLaw(value=0.0, dim=nan, length=nan)]
    """
    if sizes.length < SCALES[-1]:
        raise ValueError(
            f"length={sizes.length} has no quarter to measure growth from: pass at least "
            f"{SCALES[-1]}"
        )
    wider = [sizes._replace(dim=s * sizes.dim, head_dim=s * sizes.head_dim) for s in SCALES]
    longer = [sizes._replace(length=sizes.length // s) for s in SCALES]
    measured = {at: measure(at) for at in dict.fromkeys([*wider, *longer])}
    return [
        PowerLaw(
            float(value),
            exponent([at.dim for at in wider], [measured[at][i] for at in wider]),
            exponent([at.length for at in longer], [measured[at][i] for at in longer]),
        )
        for i, value in enumerate(measured[sizes])
    ]


def exponent(sizes: Sequence[float | int], values: Sequence[float | int]) -> float:
    """The slope of log values over log sizes, rounded; NaN where a value is not positive.

    >>> exponent([1, 2, 4], [3.0, 6.0, 12.0])
    1.0
    """
    if not (np.isfinite(values).all() and np.min(values) > 0):
        return float("nan")
    slope = np.polyfit(np.log(sizes), np.log(values), 1)[0]
    return round(float(slope), 6) + 0.0  # no negative zero
