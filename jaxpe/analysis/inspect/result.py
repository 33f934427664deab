"""Result of `jaxpe inspect`, stage by stage."""

from typing import Literal, NamedTuple

import numpy as np

from jaxpe._core.results import Seconds
from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect.attention_result import AttentionStage, HeadStage, SpectralStage
from jaxpe.analysis.inspect.averages import Means
from jaxpe.plans import RopeAnalysis

Kind = Literal["encoder", "masked", "causal"]


class InspectFacts(NamedTuple):
    """The model, the corpus, and the sizes of an inspection.

    Attributes:
        model: name of the folder or file.
        source: corpus.
        kind: "causal" for a decoder with its head, "masked" for an encoder with its head, "encoder"
            for an encoder without one, or with a head for classes.
        encoding: ways in which positions enter, "learned vectors", "rotary" or "bias", joined by
            " and ".
        layers: blocks.
        heads: heads of a layer.
        head_width: width of a head.
        width: width of hidden states.
        vocabulary: number of tokens.
        parameters: number of parameters.
        context: positions for which the model was configured; 0 if unknown.
        positions: text positions of a row in attention, spectral, probe and ablation.
        examples: documents in attention, spectral, probe and ablation.
        documents: documents of the corpus that were read.
        longest: tokens of the longest text in loss and needles.
        seed: random seed.
        jaxpe: version.
        left_out: parts of the model that are not seen, in a sentence; empty if nothing is.
        command: command line of this model and corpus, without options; empty for a live model.
        cut: tokens at which the file of the tokenizer truncates texts, which an inspection does
            not; 0 if it has no such limit.
        trained: whether the weights differ from their initial values.
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
    trained: bool = True


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
        scaled_stress: stress against plug-in distances, least over one scale factor, in [0, 1].
        corrected: scaled stress against the distances of position alone (`position_geometry`).
        held_out: scaled stress against halves of the documents, with its interval; None where no
            position has tokens in all quarters.
        correlation: Mantel r of its distances with distances of position alone.
        shuffled: `corrected` of the table with its rows in random order: mean, and the interval of
            95 % of the orders.
        significant: significant dimensions of the corpus.
    """

    positions: int
    documents: int
    scaled_stress: float
    corrected: float
    held_out: Interval | None
    correlation: float
    shuffled: Interval
    significant: int


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
    """

    lengths: np.ndarray
    depths: np.ndarray
    texts: int
    accuracy: Means
    by_length: Means
    chance: float


class InspectResult(NamedTuple):
    """Findings on what position does in a model.

    Attributes:
        facts: the model, the corpus, and the sizes of the inspection.
        absent: reason why a stage has no result: it was not selected, or does not apply.
        encoding: ways in which positions enter.
        geometry: fit of learned positions to the corpus.
        attention: logits and attention weights.
        spectral: spectra and parts of the logits; only where `jaxpe.nn` loads the model.
        heads: loss without each head; only where `jaxpe.nn` loads the model.
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
    spectral: SpectralStage | None = None
    heads: HeadStage | None = None
    probe: ProbeStage | None = None
    ablation: AblationStage | None = None
    loss: LossStage | None = None
    needles: NeedleStage | None = None
    seconds: Seconds = {}  # noqa: RUF012  # nobody adds to it
