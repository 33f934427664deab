"""Result of `jaxpe inspect`, stage by stage."""

from typing import Literal, NamedTuple

import numpy as np

from jaxpe._core.results import LargeArray, Seconds
from jaxpe.analysis.attention.result import Variance
from jaxpe.analysis.corpus.result import Interval
from jaxpe.plans import RopeAnalysis

Kind = Literal["encoder", "masked", "causal"]


class Means(NamedTuple):
    """Means over documents with 95 % intervals, arrays of one shape.

    Attributes:
        mean: mean over documents.
        low: lower end of the interval; NaN for one document.
        high: upper end.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


class InspectFacts(NamedTuple):
    """The model, the corpus, and the sizes of an inspection.

    Attributes:
        model: name of the folder or file.
        source: corpus.
        kind: "causal" for a decoder with its head, "masked" for an encoder with its head, "encoder"
            for an encoder without one.
        encoding: ways in which positions enter, "learned vectors", "rotary" or "bias", joined by
            " and ".
        layers: blocks.
        heads: heads of a layer.
        head_width: width of a head.
        width: width of hidden states.
        vocabulary: number of tokens.
        parameters: number of parameters.
        context: positions for which the model was configured; 0 if unknown.
        positions: text positions of a row in attention, probe and ablation.
        examples: documents in attention, probe and ablation.
        documents: documents of the corpus that were read.
        longest: tokens of the longest text in loss and needles.
        seed: random seed.
        jaxpe: version.
        left_out: parts of the model that are not seen, in a sentence; empty if nothing is.
        command: command line of this model and corpus, without options; empty for a live model.
        cut: tokens at which the file of the tokenizer truncates texts, which an inspection does
            not; 0 if it has no such limit.
    """

    model: str
    source: str
    kind: Kind
    encoding: str
    layers: int
    heads: int
    head_width: int
    width: int
    vocabulary: int
    parameters: int
    context: int
    positions: int
    examples: int
    documents: int
    longest: int
    seed: int
    jaxpe: str
    left_out: str = ""
    command: str = ""
    cut: int = 0


class LearnedTable(NamedTuple):
    """Norms, rank and cosines of learned position vectors.

    Attributes:
        positions: rows of the table.
        width: entries of a row.
        norms: Euclidean norm of each row, `[positions]`.
        token_norm: mean norm of the token embeddings, in the same units.
        rank: effective rank of the centred rows (`entropy_rank`).
        cosine: mean cosine of centred rows at offsets 0, 1, 2, ..., `[offsets]`.
        widest: offset at which the mean cosine first falls below one half.
    """

    positions: int
    width: int
    norms: np.ndarray
    token_norm: float
    rank: float
    cosine: np.ndarray
    widest: int


class EncodingStage(NamedTuple):
    """Ways in which positions enter the model.

    Attributes:
        table: learned vectors; None without.
        bias: bias of attention logits by head and offset j − i = −(n − 1) … n − 1, `[heads, 2n −
            1]`; None without. NaN for later keys of a decoder.
        rope: the rotary configuration as `jaxpe rope` reads it; None without.
    """

    table: LearnedTable | None
    bias: np.ndarray | None
    rope: RopeAnalysis | None


class GeometryStage(NamedTuple):
    """Fit of learned position vectors to the distances of the corpus.

    Attributes:
        positions: positions with tokens in both halves of every split.
        documents: documents counted.
        stress: Eq. (4) of Cirrincione (2026) at the model's own scale, plug-in distances.
        scaled_stress: minimum of the stress over one scale factor, in [0, 1].
        corrected: scaled stress against the distances of position alone (`position_geometry`).
        held_out: scaled stress against halves of the documents, with its interval; None where no
            position has tokens in all quarters.
        sinusoidal: `held_out` of sinusoidal vectors of width 128.
        own: `held_out` of MDS coordinates fitted to the other half.
        correlation: Mantel r of its distances with distances of position alone.
        violation_rate: share of triples whose distances do not grow with the offset.
        shuffled: `corrected` of the table with its rows in random order: mean, and the interval of
            95 % of the orders.
        position_share: share of position in the plug-in variance.
        significant: significant dimensions of the corpus.
    """

    positions: int
    documents: int
    stress: float
    scaled_stress: float
    corrected: float
    held_out: Interval | None
    sinusoidal: Interval | None
    own: Interval | None
    correlation: float
    violation_rate: float
    shuffled: Interval
    position_share: Interval | None
    significant: int


class AttentionSinks(NamedTuple):
    """Sinks of attention: keys that most later queries attend to, wherever they are in a row.

    A key j is a sink of a head in a document if its mean weight over later queries exceeds 0.3:
    Σ_{i>j} a_ij / (n − 1 − j) > 0.3 (Gu et al. 2024, who look at the first key and also count the
    query i = j). In a model that sees both ways, over all other queries. Keys with fewer than a
    quarter of the queries are no sinks. Shares are in [0, 1].

    Attributes:
        rate: share of documents in which a head has a sink, `[layers, heads]`.
        rate_overall: `rate`, mean over heads, with an interval over documents.
        weight: weight on sinks, mean over queries as in `AttentionStage`, `[layers, heads]`.
        weight_overall: `weight`, mean over heads, with an interval over documents.
        outside: weight that learned sinks take outside of all keys, `[layers, heads]`; 0 for rows
            of weights that sum to 1.
        positions: the most frequent positions of sinks in a row, at most five.
        position_share: share of all sinks that are at these positions.
        tokens: the most frequent tokens that are sinks, at most five.
        token_share: share of all sinks that are these tokens.
        norm: norm of the hidden state of a document's main sink over the median token's,
            `[layers + 1]`, at the input of each layer and the output of the last; massive
            activations (Sun et al. 2024) are far above 1. NaN without sinks.
    """

    rate: np.ndarray
    rate_overall: Interval
    weight: np.ndarray
    weight_overall: Interval
    outside: np.ndarray
    positions: np.ndarray
    position_share: np.ndarray
    tokens: list[str]
    token_share: np.ndarray
    norm: Means


class OffsetBaseline(NamedTuple):
    """Share of the variance of attention weights that a function of the offset alone explains.

    The variance is within rows of text, around equal weights. The function is `offset_baseline`.
    Noise is removed as in `baseline_share`, so a share may be slightly negative; at most 1.

    Attributes:
        by_head: share by head, `[layers, heads]`.
        by_layer: mean over heads, `[layers]`, with intervals by a jackknife over documents.
        overall: mean over all heads.
    """

    by_head: np.ndarray
    by_layer: Means
    overall: Interval


class RotaryBands(NamedTuple):
    """Use of the rotary frequencies by heads, in bands of wavelengths.

    A pair p of entries has the share E‖q_p‖ E‖k_p‖ / Σ_r E‖q_r‖ E‖k_r‖, with means over the tokens
    of a document (Barbero et al. 2024). Rotation does not change these norms. Shares of the three
    bands sum to 1.

    Attributes:
        wavelengths: wavelength 2π/ω of each pair in tokens, `[pairs]`.
        edges: the two wavelengths between the bands, 32 tokens and the context, `[2]`.
        share: share of each band, short to long, `[layers, heads, 3]`.
        overall: mean over all heads, `[3]`, with intervals over documents.
    """

    wavelengths: np.ndarray
    edges: np.ndarray
    share: np.ndarray
    overall: Means


class AttentionStage(NamedTuple):
    """Sources of attention logits and targets of attention weights, `[layers, heads]`.

    Weights are over all keys of a row, special tokens included. Averages are over queries at all
    text positions but the first.

    Attributes:
        variance: decomposition of the variance of the logits.
        share: share of the variance that positions explain, mean over heads, by layer, with
            intervals by a jackknife over groups of documents.
        overall: share of the variance that positions explain, mean over all heads.
        shuffled: `overall` with the tokens of each document in random order.
        offsets: mean weight at offset j − i = −(n − 1) … n − 1 over text positions,
            `[layers, heads, 2n − 1]`.
        entropy: entropy of the weights in nats.
        evenness: entropy divided by its maximum, in [0, 1].
        distance: mean |i − j| in positions.
        first: weight on the first token of the row.
        first_by_chance: weight on the first token if all weights were equal.
        sink: `first`, mean over all heads, with an interval over documents.
        special: weight on special tokens; 0 for rows without.
        special_overall: `special`, mean over all heads, with an interval over documents.
        dummy: Σ_j min(a_ij, d_ij), a being attention to a document and d to a dummy document of one
            repeated token, mean over queries and documents.
        other: overlap with another real document in place of the dummy one.
        dummy_overall, other_overall: means over all heads, with intervals over documents.
        dummies: the tokens that dummy documents repeat.
        layers: numbers of the layers, which of those without attention are missing; 0, 1, ... when
            None.
        sinks: keys that most queries attend to.
        baseline: share of the weights that the offset alone explains.
        bands: rotary frequencies that heads use; None without one rotation of all layers.
    """

    variance: Variance
    share: Means
    overall: Interval
    shuffled: float
    offsets: LargeArray
    entropy: np.ndarray
    evenness: np.ndarray
    distance: np.ndarray
    first: np.ndarray
    first_by_chance: float
    sink: Interval
    special: np.ndarray
    special_overall: Interval
    dummy: np.ndarray
    other: np.ndarray
    dummy_overall: Interval
    other_overall: Interval
    dummies: list[str]
    layers: np.ndarray | None = None
    sinks: AttentionSinks | None = None
    baseline: OffsetBaseline | None = None
    bands: RotaryBands | None = None

    @property
    def layer_numbers(self) -> list[int]:
        """Number of each layer among all layers of the model."""
        return [*range(len(self.first))] if self.layers is None else self.layers.tolist()

    def at_offset(self, offset: int) -> np.ndarray:
        """Mean weight at an offset j − i, `[layers, heads]`.

        Args:
            offset: −1 for the token before, 0 for the token itself, 1 for the next.
        """
        return self.offsets[..., self.offsets.shape[-1] // 2 + offset]


class ProbeStage(NamedTuple):
    """Linear probe of the position, on the input of layers and the output of the last.

    Attributes:
        documents: documents on which the probe is tested; it is fitted to equally many others.
        layers: layers whose input is probed, `[layers]`; the number of layers stands for the output
            of the last.
        r2: share of the variance of the position explained, `[layers]`, with intervals by the
            jackknife over documents; negative for a probe worse than the mean.
        error: mean absolute error in positions, `[layers]`.
        by_chance: error of a probe that always predicts the middle.
    """

    documents: int
    layers: np.ndarray
    r2: Means
    error: np.ndarray
    by_chance: float


class PositionMove(NamedTuple):
    """Output of a model under one change of the positions.

    Attributes:
        name: "own", "shifted", "doubled", "reversed", "shuffled" or "same".
        value: loss in nats a token, or the cosine of the mean hidden state with the original.
        change: value less the value of "own", paired by document.
        tokens: mean cosine of each token's last hidden state with the original; None for a loss.
    """

    name: str
    value: Interval
    change: Interval
    tokens: Interval | None


class TextReach(NamedTuple):
    """Length of the text that matters to a model, and the parts of it that count.

    Attributes:
        measure: "loss" of a decoder in nats a token, or "embedding", the mean last hidden state.
        texts: number of texts.
        lengths: contexts in tokens, each twice the one before, `[lengths]`.
        gain: for a loss, loss under half of each context less loss under it, in nats a token,
            paired, NaN for the first; for an embedding, similarity to the embedding of the whole
            text, 1 for equal ones and 0 for different texts. `[lengths]`, with 95 % intervals.
        effective: effective length, one of `lengths`; `context_reach` and `embedding_reach` define
            it.
        low, high: least and largest number of tokens that agree with the data; `high` is open from
            the last length on.
        parts: effect of the start, the middle and the end, `[3]`: gain in nats a token from a
            passage's copy in it, or change of the embedding without it, 1 for different texts. None
            if not measured.
        middle: `parts` of the middle less the start, and less the end, paired, `[2]`.
    """

    measure: Literal["loss", "embedding"]
    texts: int
    lengths: np.ndarray
    gain: Means
    effective: int
    low: int
    high: int
    parts: Means | None = None
    middle: Means | None = None

    @property
    def open(self) -> bool:
        """Whether more tokens than the last length agree with the data."""
        return self.high >= int(self.lengths[-1])

    @property
    def lost_in_the_middle(self) -> bool:
        """Whether the middle counts less than the start and less than the end, at level 97.5 %."""
        return self.middle is not None and bool((self.middle.high < 0).all())


class AblationStage(NamedTuple):
    """Ablation of positions.

    Attributes:
        measure: "causal" and "masked" are losses in nats a token, "embedding" a cosine.
        documents: documents averaged over.
        shift: positions by which "shifted" moves all tokens.
        moved: one entry for each change of the positions, the original ones ("own") first.
        reference: cosine of the mean hidden states of two different documents; for a loss ln(V),
            the loss of a uniform guess.
        reach: length of the text that an encoder's embedding sees; None for a decoder, or for a
            corpus of less than two texts.
    """

    measure: Literal["causal", "masked", "embedding"]
    documents: int
    shift: int
    moved: list[PositionMove]
    reference: float
    reach: TextReach | None = None


class ScaledLoss(NamedTuple):
    """Loss by position under one scaling of the rotary frequencies.

    Attributes:
        name: "as it is", or the scaling with its factor.
        loss: nats a token, `[bins]`, with intervals over texts.
    """

    name: str
    loss: Means


class FarContextGain(NamedTuple):
    """Gain from a context at increasing distance from a passage, under one scaling.

    Attributes:
        name: "as it is", or the scaling with its factor.
        gain: loss without the context less the loss with it, in nats a token, by distance,
            `[distances]`.
    """

    name: str
    gain: Means


class ScalingChange(NamedTuple):
    """Change of the loss on a passage under a scaling of RoPE, paired by text with none.

    Attributes:
        name: scaling with its factor.
        multiple: factor, and distance of the passage's context in contexts of training.
        near: change with the context right before the passage, in nats a token.
        far: change with the context at that distance; negative if the scaling helps.
    """

    name: str
    multiple: float
    near: Interval
    far: Interval


class LossStage(NamedTuple):
    """Loss by position in texts of one length, and the gain from far context.

    Attributes:
        texts: number of texts; each consists of documents end to end.
        length: tokens of a text.
        context: positions for which the model was configured; 0 if unknown.
        edges: first position of each bin, and the length, `[bins + 1]`.
        scaled: loss of the model as it is, then under each scaling.
        passage: tokens of the passage, and of its moved context.
        distances: distances by which the context is moved, in positions, `[distances]`; empty if
            not measured.
        far: gain from the context at these distances, under each scaling.
        floor: loss on the passage without context.
        near: loss on the passage right after its context.
        unscaled: reason why no scaling is tried; empty otherwise.
        scalings: change under each scaling at 2 and 4 times the context; empty if not measured.
        reach: effective length, and where in a text evidence counts; None for short texts.
    """

    texts: int
    length: int
    context: int
    edges: np.ndarray
    scaled: list[ScaledLoss]
    passage: int
    distances: np.ndarray
    far: list[FarContextGain]
    floor: Interval | None
    near: Interval | None
    unscaled: str
    scalings: list[ScalingChange] = []  # noqa: RUF012  # nobody adds to it
    reach: TextReach | None = None


class NeedleStage(NamedTuple):
    """Retrieval of facts from a text, by their depth in it and its length.

    Attributes:
        lengths: tokens of the texts, `[lengths]`.
        depths: depth of each needle, 0 at the start of the text and 1 at its end, `[depths]`.
        texts: number of texts of each length.
        accuracy: share of retrieved needles, `[lengths, depths]`, with Wilson's intervals, the
            wider of independent needles and independent texts.
        by_length: share of retrieved needles over all depths, `[lengths]`.
        chance: accuracy of a guess.
        needle: a needle, as in the text.
        question: question for a needle.
    """

    lengths: np.ndarray
    depths: np.ndarray
    texts: int
    accuracy: Means
    by_length: Means
    chance: float
    needle: str
    question: str


class InspectResult(NamedTuple):
    """Findings on what position does in a model.

    Attributes:
        facts: the model, the corpus, and the sizes of the inspection.
        absent: reason why a stage has no result: it was not selected, or does not apply.
        encoding: ways in which positions enter.
        geometry: fit of learned positions to the corpus.
        attention: logits and attention weights.
        probe: linear probe of the position.
        ablation: ablation of positions.
        loss: loss by position.
        needles: retrieval.
        seconds: duration of each stage.
    """

    facts: InspectFacts
    absent: dict[str, str]
    encoding: EncodingStage | None = None
    geometry: GeometryStage | None = None
    attention: AttentionStage | None = None
    probe: ProbeStage | None = None
    ablation: AblationStage | None = None
    loss: LossStage | None = None
    needles: NeedleStage | None = None
    seconds: Seconds = {}  # noqa: RUF012  # nobody adds to it
