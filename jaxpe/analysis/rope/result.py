"""Results of `jaxpe rope`."""

from typing import Literal, NamedTuple

import numpy as np

from jaxpe.analysis.rope.facts import Form

Severity = Literal["wrong", "risk", "note"]


class Reading(NamedTuple):
    """Numbers that one reader computes with in one kind of layer.

    Attributes:
        reader: name and version.
        layers: kind of layer; "all" where there is one.
        rope_type: type of the scaling; "default" for none.
        base: θ.
        rotated: entries of a head that turn.
        factor: s of the scaling; NaN where it has none.
        original: L0, the length before scaling; 0 where the scaling has none.
        attention_factor: factor on cos and sin; logits carry its square.
        logit_factor: further factor on all logits.
        query_factor: factor on a query at the longest position; 1 where queries are not scaled.
        longest: longest text that the reader allows unasked.
        inverse: ω_k in radians a position at the longest text, `[rotated / 2]`.
        problem: why it refuses the configuration; None where it reads it. Numbers are then NaN.
    """

    reader: str
    layers: str
    rope_type: str
    base: float
    rotated: int
    factor: float
    original: int
    attention_factor: float
    logit_factor: float
    query_factor: float
    longest: float
    inverse: np.ndarray
    problem: str | None


class LayerRotation(NamedTuple):
    """The frequencies of one kind of layer, as the first reader has them.

    Attributes:
        layers: kind of layer.
        count: layers of this kind that turn; 0 where the configuration does not say.
        trained: length that frequencies were trained at without scaling: L0, else
            `max_position_embeddings`, and no more than a sliding window.
        reach: furthest offset at the longest text: it, or a sliding window.
        unscaled: ω_k = base^(−2k/d) before scaling, `[rotated / 2]`.
        inverse: ω_k after scaling, at the longest text.
        never_round: frequencies that make less than a turn in `trained` positions, before scaling.
        never_round_at_reach: those that make less than a turn within `reach`, after it.
        unseen: number of those of `never_round` whose phase at `reach` exceeds every phase of
            training.
        kept: frequencies that the scaling leaves alone.
        divided: those that it divides by the whole of s.
    """

    layers: str
    count: int
    trained: int
    reach: int
    unscaled: np.ndarray
    inverse: np.ndarray
    never_round: int
    never_round_at_reach: int
    unseen: int
    kept: int
    divided: int


class PhaseError(NamedTuple):
    """Error of phases in a floating-point type, near the end of a text.

    Attributes:
        length: length of the text.
        dtype: dtype of the numbers.
        rounded: "all" where frequency, position and product are; "frequencies" where only these are
            and the rest is float32.
        largest: error in radians, at most π, over the last 256 positions and all frequencies; π
            where the product is no finite number.
        lost: frequencies whose error exceeds 0.1 radians.
    """

    length: int
    dtype: str
    rounded: Literal["all", "frequencies"]
    largest: float
    lost: int


class Disagreement(NamedTuple):
    """A quantity that readers compute differently.

    Attributes:
        layers: kind of layer.
        what: field of `Reading`.
        values: value of each reader, as text.
    """

    layers: str
    what: str
    values: dict[str, str]


class RopeWarning(NamedTuple):
    """Something that goes wrong, or may, with this configuration.

    Attributes:
        code: short name, the same for the same cause.
        severity: "wrong" where a reader computes something else than the configuration says,
            "risk" where it depends on the reader or on how it is used, "note" otherwise.
        text: finding, with the numbers.
        remedy: change that removes the cause.
        reports: threads in which users met it.
    """

    code: str
    severity: Severity
    text: str
    remedy: str
    reports: tuple[str, ...]


class RopeAnalysis(NamedTuple):
    """A positional configuration and what its readers make of it.

    Attributes:
        source: file, or "options".
        form: kind of the source.
        model_type: model type of the configuration.
        head_dim: width of the part of a head that positions reach.
        context: `max_position_embeddings`.
        length: longest text that was judged.
        without_rope: layers that do not turn.
        layers: frequencies by kind of layer.
        precision: errors of phases, of the kind of layer that reaches furthest, at lengths that
            double up to the longest.
        ignored: keys of the entry that the first reader ignores.
        readings: readings by reader and kind of layer.
        disagreements: quantities that readers compute differently.
        warnings: the worst first.
    """

    source: str
    form: Form
    model_type: str
    head_dim: int
    context: int
    length: int
    without_rope: int
    layers: tuple[LayerRotation, ...]
    precision: tuple[PhaseError, ...]
    ignored: tuple[str, ...]
    readings: tuple[Reading, ...]
    disagreements: tuple[Disagreement, ...]
    warnings: tuple[RopeWarning, ...]
