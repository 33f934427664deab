"""Positions beyond the training length: whether they are defined and distinguishable."""

import itertools
from typing import NamedTuple

import jax
import numpy as np

from jaxpe.encodings.analysis.expressiveness import RESOLUTION
from jaxpe.encodings.analysis.properties import _content, _Layer, _profiles, perturbed_params
from jaxpe.encodings.registry import CatalogueEntry, EncodingSizes

# Tested multiples of the length; a stretch is the part of each beyond the previous one.
MULTIPLES = (1, 2, 4, 8)
# Share of the smallest step within the length at which neighbours still count as distinct.
KEPT = 0.1


class Stretch(NamedTuple):
    """Positions (offsets, where only they matter) from one multiple of the length to another.

    Attributes:
        state: "undefined", "constant" (all equal), "repeats" (each equal to one within the training
            length) or "told apart".
        smallest: smallest step between neighbours, relative to the smallest within the training
            length; NaN where the latter is 0 or a row is undefined.
        mean: mean step, likewise relative to the mean within the training length.
    """

    state: str
    smallest: float
    mean: float


class LengthExtrapolation(NamedTuple):
    """State of positions beyond the training length T.

    Attributes:
        stretches: T to 2T, 2T to 4T, 4T to 8T.
        reach: multiple of T, at most 8, up to which steps between neighbours are at least 10 % of
            the smallest step within T; below 1 where some neighbours within T are equal.
    """

    stretches: tuple[Stretch, ...]
    reach: float


def encoding_extrapolation(
    entry: CatalogueEntry, *, sizes: EncodingSizes = EncodingSizes()
) -> LengthExtrapolation:
    """Steps between neighbouring positions at up to 8 training lengths, relative to the first.

    If an encoding adds vectors to embeddings, steps are distances between the vectors of
    neighbours. Otherwise they are distances between the logits, one a head, that the last of 8T
    queries gives to equal random keys at neighbouring offsets. Parameters are N(0, 0.1²) off their
    initial values, as in `encoding_properties`. Encodings are built for the sizes of a model,
    `EncodingSizes()` when None.

    Raises:
        ValueError: a length below 2.

    >>> alibi, clipped = catalogue("alibi", "legendre_clipped")
    >>> sizes = EncodingSizes(32, 2, 8, 32)
    >>> far = encoding_extrapolation(alibi, sizes=sizes)
    >>> far.reach, far.stretches[2].state, round(far.stretches[2].smallest, 3)
    (8.0, 'told apart', 1.0)
    >>> far = encoding_extrapolation(clipped, sizes=sizes)
    >>> far.reach, far.stretches[0].state
    (1.0, 'constant')
    """
    if sizes.length < 2:
        raise ValueError(f"length={sizes.length} has no neighbours to compare with: pass 2 or more")
    layer = _Layer(entry.first_layer(sizes), entry.coordinates, sizes)
    params = perturbed_params(layer.encoding.init(jax.random.key(0)))
    rows = _profiles(layer, params, _content(sizes), MULTIPLES[-1] * sizes.length)
    return extrapolation(np.asarray(rows, np.float64), length=sizes.length)


def extrapolation(rows: np.ndarray, *, length: int) -> LengthExtrapolation:
    """`encoding_extrapolation` of rows `[8·length, d]`, one a position; NaN for undefined ones.

    >>> line = np.minimum(np.arange(32.0), 6.0)[:, None]
    >>> found = extrapolation(line, length=4)
    >>> found.reach, [stretch.state for stretch in found.stretches]
    (1.75, ['told apart', 'constant', 'constant'])
    """
    steps = np.linalg.norm(np.diff(rows, axis=0), axis=-1)  # step i leads from i to i + 1
    alike = RESOLUTION * float(np.linalg.norm(rows[:length], axis=-1).max())
    smallest = float(np.min(steps[: length - 1]))
    lost = np.flatnonzero(~(steps > max(alike, KEPT * smallest)))  # also where a step is NaN
    reach = (lost[0] + 1) / length if len(lost) else MULTIPLES[-1]
    stretches = [
        _stretch(rows, steps, slice(start * length, stop * length), length, alike)
        for start, stop in itertools.pairwise(MULTIPLES)
    ]
    return LengthExtrapolation(tuple(stretches), float(reach))


def _stretch(
    rows: np.ndarray, steps: np.ndarray, span: slice, length: int, alike: float
) -> Stretch:
    """State of the positions in `span`; rows up to `alike` apart count as equal."""
    beyond = steps[span.start : span.stop - 1]
    inside = steps[: length - 1]
    if not np.isfinite(rows[span]).all():
        return Stretch("undefined", float("nan"), float("nan"))
    if np.max(beyond) <= alike:
        state = "constant"
    elif _directed_hausdorff(rows[:length], rows[span]) <= alike:
        state = "repeats"
    else:
        state = "told apart"
    return Stretch(
        state,
        _ratio(float(np.min(beyond)), float(np.min(inside)), alike),
        _ratio(float(np.mean(beyond)), float(np.mean(inside)), alike),
    )


def _ratio(value: float, scale: float, alike: float) -> float:
    return value / scale if scale > alike else float("nan")


def _directed_hausdorff(rows: np.ndarray, others: np.ndarray) -> float:
    """Directed Hausdorff distance: the largest distance of one of the others to its nearest row."""
    gram = others @ rows.T
    squared = (others**2).sum(axis=-1)[:, None] + (rows**2).sum(axis=-1)[None, :] - 2 * gram
    return float(np.sqrt(np.maximum(squared, 0).min(axis=1).max()))
