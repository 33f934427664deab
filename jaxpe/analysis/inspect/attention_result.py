"""Results of the stages on attention: its logits, its weights, and the value of its heads."""

from typing import Literal, NamedTuple

import numpy as np

from jaxpe._core.results import LargeArray
from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect.averages import Means

# Score of a model without one of its heads. A loss is negative, in nats a token; "embedding" is the
# cosine between the mean of the last hidden states and the same with all heads.
Score = Literal["accuracy", "masked", "causal", "embedding"]
# Parts of the logits.
PARTS = ("content–content", "content–position", "position–content", "position–position", "bias")
# Least share of position in the variance that is decomposed.
JUDGED = 0.02


class Variance(NamedTuple):
    """Decomposition of the variance of the logits over documents and pairs of different positions.

    Shares are free of sampling noise in expectation, and may come out below 0. The share of
    positions comes from positions, by the encoding or the causal mask, and from words with typical
    positions; the rest differs between documents. Shares are 0 if the logits do not vary. All are
    `[layers, heads]`.

    Attributes:
        level: the mean logit.
        total: the variance.
        offset: share that the offset j − i explains.
        place: share that the positions i and j explain beyond it.
        shuffled: share that positions explain of the variance with the tokens of each document in
            random order.
    """

    level: np.ndarray
    total: np.ndarray
    offset: np.ndarray
    place: np.ndarray
    shuffled: np.ndarray

    @property
    def position(self) -> np.ndarray:
        """Share that positions explain, by their offset or beyond."""
        return self.offset + self.place


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
        by_layer: mean over heads, `[layers]`, with intervals by a jackknife over documents.
        overall: mean over all heads.
    """

    by_layer: Means
    overall: Interval


class RotaryBands(NamedTuple):
    """Use of the rotary frequencies by heads, in bands of wavelengths.

    A pair p of entries has the share E‖q_p‖ E‖k_p‖ / Σ_r E‖q_r‖ E‖k_r‖, with means over the tokens
    of a document (Barbero et al. 2024). Rotation does not change these norms. Shares of the three
    bands sum to 1.

    Attributes:
        edges: the two wavelengths between the bands, 32 tokens and the context, `[2]`.
        share: share of each band, short to long, `[layers, heads, 3]`.
        overall: mean over all heads, `[3]`, with intervals over documents.
    """

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
        offsets: mean weight at offset j − i = −(n − 1) … n − 1 over text positions,
            `[layers, heads, 2n − 1]`.
        first: weight on the first token of the row.
        first_by_chance: weight on the first token if all weights were equal.
        sink: `first`, mean over all heads, with an interval over documents.
        special: weight on special tokens, mean over all heads, with an interval over documents.
        dummy: Σ_j min(a_ij, d_ij), a being attention to a document and d to a dummy document of one
            repeated token, likewise.
        other: overlap with another real document in place of the dummy one.
        sinks: keys that most queries attend to.
        baseline: share of the weights that the offset alone explains.
        layers: numbers of the layers, which of those without attention are missing; 0, 1, ... when
            None.
        bands: rotary frequencies that heads use; None without one rotation of all layers.
    """

    variance: Variance
    share: Means
    overall: Interval
    offsets: LargeArray
    first: np.ndarray
    first_by_chance: float
    sink: Interval
    special: Interval
    dummy: Interval
    other: Interval
    sinks: AttentionSinks
    baseline: OffsetBaseline
    layers: np.ndarray | None = None
    bands: RotaryBands | None = None

    @property
    def shuffled(self) -> float:
        """`overall` with the tokens of each document in random order."""
        return float(self.variance.shuffled.mean())

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


class PartShares(NamedTuple):
    """Logits as a sum of the five `PARTS`, products of the content and the position of both tokens.

    Attributes:
        share: mean square of each part over the mean square of the logits, `[layers, heads, 5]`.
        residual: share of the part's mean over documents that no Toeplitz matrix explains. Both are
            NaN for 0/0.
    """

    share: np.ndarray
    residual: np.ndarray

    @property
    def cross(self) -> np.ndarray:
        """1 less the sum of the shares: products of different parts, `[layers, heads]`."""
        return 1 - self.share.sum(axis=-1)


class HeadStage(NamedTuple):
    """Loss of a model without each head.

    Attributes:
        measure: score whose drop measures a head.
        documents: number of documents averaged over.
        score: score with all heads.
        drop: score less the score without the head, `[layers, heads]`.
        low, high: ends of 95 % intervals over documents, of each head taken alone.
        p_value: p-value of a one-sided test over documents, corrected for all heads; NaN for a
            score that any change lowers.
        largest_share: share of the largest drop in the sum of drops, with a 95 % interval.
        share_by_chance: 95 % quantile of the share if the drops of each document are dealt to heads
            at random.
    """

    measure: Score
    documents: int
    score: float
    drop: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p_value: np.ndarray
    largest_share: Interval
    share_by_chance: float

    @property
    def head(self) -> tuple[int, int]:
        """Layer and head of the largest drop, from 0."""
        layer, head = divmod(int(self.drop.argmax()), self.drop.shape[1])
        return layer, head

    @property
    def tested(self) -> bool:
        """Whether drops are tested: the score could have risen."""
        return not np.isnan(self.p_value).any()

    @property
    def certain(self) -> np.ndarray:
        """Heads whose loss is significant at 5 % over all heads together."""
        return self.p_value <= 0.05


class SpectralStage(NamedTuple):
    """Spectra and parts of the attention logits, on n positions of text.

    The share of positions in their variance is `AttentionStage.variance`, of the same documents.

    Attributes:
        causal: whether tokens attend only backwards.
        toeplitz: share of the squares of logits averaged over documents that no Toeplitz matrix
            explains, `[layers, heads]`.
        effective_rank: effective rank of the singular values of these logits, `[layers, heads]`.
        parts: content and position, by the mean hidden state of each position.
    """

    causal: bool
    toeplitz: np.ndarray
    effective_rank: np.ndarray
    parts: PartShares
