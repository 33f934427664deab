"""Loss by position, under scaled rotary frequencies, and gain from far context.

Rotations are tables of cosines and sines that one program takes as arguments, so a new scaling or
distance needs no compilation.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect.averages import document_means
from jaxpe.analysis.inspect.flax_model import inspected_model
from jaxpe.analysis.inspect.reach import SHORTEST_TEXT, context_reach, prefixed
from jaxpe.analysis.inspect.result import FarContextGain, LossStage, ScaledLoss, ScalingChange
from jaxpe.encodings import LinearScaling, NtkScaling, YarnScaling, rope_frequencies
from jaxpe.plans import RopeAnalysis
from jaxpe.plans.scaling import RopeFrequencies, RopeScaling

OWN = "as it is"
FACTOR = 4.0  # factor of scalings, if no text is longer than the context
_MULTIPLES = (2.0, FACTOR)  # of the context, at which scalings are compared
_FIRST_BIN = 16  # positions
_PASSAGE = 64  # tokens
_FAR_TEXTS = 6
_REACH = (0.0, 0.125, 1.0, 2.0, 4.0)  # distances, in contexts

_Run = Callable[[np.ndarray, np.ndarray, Any], np.ndarray]


class Frequencies(NamedTuple):
    """Rotary frequencies of a model under one scaling.

    Attributes:
        name: "as it is", or the scaling with its factor.
        values: frequencies and attention factor.
    """

    name: str
    values: RopeFrequencies


def loss_by_position(
    model: Any,
    texts: np.ndarray,
    *,
    context: int = 0,
    rope: RopeAnalysis | None = None,
    far: bool = True,
    prefix: Sequence[int] = (),
    progress: Progress = SILENT,
) -> LossStage:
    """Loss by position, under each scaling beyond the context, and the gain from far context.

    If texts are longer than the context, scalings by their quotient are tried: position
    interpolation, NTK-aware, YaRN. The gain from far context is measured on short rows, whose
    second half is read at positions that begin at a distance after the first half. Offsets beyond
    the context then occur in few tokens. So it shows which offsets attention can use, not its
    behaviour with many keys.

    Args:
        model: a causal language model of `jaxpe.nn`, or an `InspectedModel`.
        texts: token ids `[texts, n]` without padding.
        context: positions for which the model was configured; 0 if unknown.
        rope: rotary configuration of the model, without which no scaling is tried.
        far: whether to measure far context, and the start, middle and end of `reach`.
        prefix: ids that the tokenizer puts first; they replace the first of each row.
        progress: receiver of progress.

    >>> loss_by_position(model, texts, context=8192).scaled[0].loss.mean  # doctest: +SKIP
    array([4.9, 3.9, 3.6])
    """
    texts = np.asarray(texts, np.int32)
    count, n = texts.shape
    inspected = inspected_model(model)
    unscaled = inspected.unscaled_reason(context, rope)
    losses_of = inspected.losses()

    def run(ids: np.ndarray, positions: np.ndarray, scaling: Frequencies | None) -> np.ndarray:
        values = None if scaling is None else scaling.values
        rows = prefixed(ids, prefix)
        return np.asarray(losses_of(rows, positions.astype(np.int32), values), float)

    beyond = bool(context) and n > context and not unscaled
    edges = _edges(n, context)
    losses = {}
    for scaling in _scalings(rope, context, n / context) if beyond else [None]:
        name = OWN if scaling is None else scaling.name
        steps = progress.track(texts, f"loss, {name}", total=count)
        losses[name] = np.stack([run(text[None], np.arange(n), scaling)[0] for text in steps])
    scaled = [
        ScaledLoss(name, document_means(_bin_means(loss, edges))) for name, loss in losses.items()
    ]
    reach = None
    if n >= SHORTEST_TEXT:
        known = {"whole": losses[OWN], "prefix": prefix}
        reach = context_reach(model, texts, parts=far, progress=progress, **known)
    result = LossStage(
        count, n, context, edges, scaled, 0, np.zeros(0, int), [], unscaled, reach=reach
    )
    # A learned table has no vectors beyond its context.
    if not far or not context or "learned vectors" in inspected.encodings:
        return result
    if unscaled:
        return _far_context(result, run, texts, {FACTOR: [None]})
    scalings = {multiple: _scalings(rope, context, multiple) for multiple in _MULTIPLES}
    return _far_context(result, run, texts, scalings)


def text_windows(stream: np.ndarray, *, count: int, length: int) -> np.ndarray:
    """Texts of one length, spread evenly over a stream of ids, up to a number of them.

    >>> text_windows(np.arange(10), count=2, length=3).tolist()
    [[0, 1, 2], [7, 8, 9]]
    """
    starts = np.linspace(0, len(stream) - length, min(count, len(stream) // length)).astype(int)
    return stream[starts[:, None] + np.arange(length)]


def _scalings(rope: RopeAnalysis | None, context: int, factor: float) -> list[Frequencies]:
    """Frequencies of the model as it is, and under each scaling by a factor."""
    plan = rope.widest if rope is not None else None
    assert plan is not None  # or there is a reason not to scale
    scalings: dict[str, RopeScaling] = {
        "linear": LinearScaling(factor),
        "NTK": NtkScaling(factor),
        "YaRN": YarnScaling(factor, context),
    }
    frequencies = [Frequencies(OWN, RopeFrequencies(plan.frequencies, plan.attention_factor))]
    for name, scaling in scalings.items():
        scaled = rope_frequencies(head_dim=plan.turning, base=plan.base, scaling=scaling)
        frequencies.append(Frequencies(f"{name} ×{factor:g}", scaled))
    return frequencies


def _edges(n: int, context: int) -> np.ndarray:
    """First positions of bins that double, with one that begins at the context."""
    doubling = [_FIRST_BIN << k for k in range(32) if _FIRST_BIN << k < n]
    return np.array(sorted({1, *doubling, *([context] if 1 < context < n else []), n}))


def _bin_means(losses: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Mean of each text and bin; the loss at index i is of the token at position i + 1."""
    bins = itertools.pairwise(edges)
    return np.stack([losses[:, a - 1 : b - 1].mean(axis=1) for a, b in bins], axis=1)


def _far_context(
    result: LossStage, run: _Run, texts: np.ndarray, scalings: dict[float, list[Any]]
) -> LossStage:
    """Add the gain from a context at each distance, and the changes under each scaling."""
    m = min(_PASSAGE, texts.shape[1] // 2)
    rows, first, second = texts[:_FAR_TEXTS, : 2 * m], np.arange(m), np.arange(m, 2 * m)
    distances = np.array([round(share * result.context) for share in _REACH])
    floor = run(rows[:, m:], first, None).mean(axis=1)

    def losses(scaling: Frequencies | None, distances: np.ndarray) -> np.ndarray:
        moved = [np.concatenate([first, second + distance]) for distance in distances]
        loss = [run(rows, at, scaling)[:, m:].mean(axis=1) for at in moved]  # in the passage
        return np.stack(loss, axis=1)

    by_name = {
        OWN if scaling is None else scaling.name: losses(scaling, distances)
        for scaling in scalings[FACTOR]
    }
    changes = []
    for multiple, (_, *others) in scalings.items():
        pair = [0, _REACH.index(multiple)]
        for scaling in others:
            loss = by_name[scaling.name][:, pair] if scaling.name in by_name else None
            loss = losses(scaling, distances[pair]) if loss is None else loss
            change = document_means(loss - by_name[OWN][:, pair])
            ends = (Interval(*(float(x[k]) for x in change)) for k in range(2))
            changes.append(ScalingChange(scaling.name, multiple, *ends))
    return result._replace(
        passage=m,
        distances=distances,
        far=[
            FarContextGain(name, document_means(floor[:, None] - loss))
            for name, loss in by_name.items()
        ],
        scalings=changes,
    )
