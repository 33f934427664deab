"""Results of an analysis of attention."""

from typing import Literal, NamedTuple

import numpy as np

from jaxpe._core.results import LargeArray, Seconds

PARTS = ("content–content", "content–position", "position–content", "position–position", "bias")
JUDGED = 0.02  # least share of position in the variance that is decomposed

Kind = Literal["zero", "mean"]


class AttentionFacts(NamedTuple):
    """Sizes and settings of an analysis.

    Attributes:
        layers: blocks of the model.
        heads: number of heads of a layer.
        head_width: width of queries and keys.
        positions: number n of text positions in the matrices.
        documents: number of documents averaged over.
        score: score whose drop measures a head: "accuracy", "masked", "causal" or "embedding".
        trained: whether the weights differ from their initial values.
        seed: random seed of the draws.
        jaxpe: version.
    """

    layers: int
    heads: int
    head_width: int
    positions: int
    documents: int
    score: str
    trained: bool
    seed: int
    jaxpe: str


class MeanLogits(NamedTuple):
    """Logits of each layer and head, averaged over documents, on n positions of text.

    Attributes:
        logits: `[layers, heads, n, n]`; NaN for later keys of a decoder.
        toeplitz: share of their squares that no Toeplitz matrix explains.
        circulant: share of their squares that no circulant matrix explains; NaN for decoders.
        diagonals: means of the diagonals j − i = −(n − 1) ... n − 1.
        symbol: symbol f(ω) = Σ t_k e^{ikω} of the diagonals, complex, at ω evenly from 0 to π.
        szego: distance of the spectrum of their Toeplitz matrix, less its level, from its symbol.
        singular: singular values, descending.
        eigenvalues: eigenvalues of the symmetric part, descending.
        effective_rank: effective rank of the singular values.
        condition: condition number.
        range: λ_max − λ_min of the symmetric part at Σ λ² = 1.
    """

    logits: LargeArray
    toeplitz: np.ndarray
    circulant: np.ndarray
    diagonals: np.ndarray
    symbol: np.ndarray
    szego: np.ndarray
    singular: np.ndarray
    eigenvalues: np.ndarray
    effective_rank: np.ndarray
    condition: np.ndarray
    range: np.ndarray


class SingleDocuments(NamedTuple):
    """Numbers of single documents' logits, averaged over documents, `[layers, heads]`.

    Attributes:
        toeplitz, szego, effective_rank, range: fields of `MeanLogits`.
    """

    toeplitz: np.ndarray
    szego: np.ndarray
    effective_rank: np.ndarray
    range: np.ndarray


class Variance(NamedTuple):
    """Decomposition of the variance of the logits over documents and pairs of different positions.

    Shares are free of sampling noise in expectation, and may come out below 0. The share of
    positions comes from the encoding and from words with typical positions; the rest differs
    between documents. Shares are 0 if the logits do not vary.

    Attributes:
        level: the mean logit, `[layers, heads]`.
        total: the variance.
        offset: share that the offset j − i explains.
        place: share that the positions i and j explain beyond it.
        shuffled: share that positions explain of the variance with the tokens of each document in
            random order.
        residual: share of the positions' part that no Toeplitz matrix explains; NaN where positions
            explain under 2 %.
    """

    level: np.ndarray
    total: np.ndarray
    offset: np.ndarray
    place: np.ndarray
    shuffled: np.ndarray
    residual: np.ndarray

    @property
    def position(self) -> np.ndarray:
        """Share that positions explain, by their offset or beyond."""
        return self.offset + self.place


def residual(offset: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Share of the sum of both that `positions` hold; NaN where the sum is under 2 %."""
    both = offset + positions
    return np.divide(positions, both, out=np.full_like(positions, np.nan), where=both >= JUDGED)


class PartShares(NamedTuple):
    """Logits as a sum of five parts.

    Attributes:
        share: mean square of each part over the mean square of the logits, `[layers, heads, 5]`.
        mean_share: mean square of the part's mean over documents, likewise.
        residual: share of this mean that no Toeplitz matrix explains.
        cross: 1 less the sum of the shares: products of different parts, `[layers, heads]`.
        names: names of the parts. All numbers are NaN where they would be 0/0.
    """

    share: np.ndarray
    mean_share: np.ndarray
    residual: np.ndarray
    cross: np.ndarray
    names: tuple[str, ...] = PARTS


class Pairs(NamedTuple):
    """Logits of rotary models by rotary pair.

    Attributes:
        angles: frequencies in radians a position, `[pairs]`.
        share: mean square over the mean square of the logits, `[layers, heads, pairs]`.
    """

    angles: np.ndarray
    share: np.ndarray


class HeadDrops(NamedTuple):
    """Loss of score without each head.

    Attributes:
        kind: replacement of the ablated head: "zero", or its "mean" over tokens.
        documents: number of documents averaged over.
        score: score with all heads.
        drop: score less the score without the head, `[layers, heads]`.
        low, high: ends of 95 % intervals over documents, of each head taken alone.
        p_value: p-value of a one-sided test over documents, corrected for all heads; NaN for a
            score that any change lowers.
        head: layer and head of the largest drop, from 0.
        largest_share: share of this head in the sum of drops, and a 95 % interval.
        share_by_chance: 95 % quantile of the share if the drops of each document are dealt to heads
            at random.
        entropy: entropy of the shares divided by the entropy of an even spread.
    """

    kind: Kind
    documents: int
    score: float
    drop: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p_value: np.ndarray
    head: tuple[int, int]
    largest_share: tuple[float, float, float]
    share_by_chance: float
    entropy: float

    @property
    def tested(self) -> bool:
        """Whether drops are tested: the score could have risen."""
        return not np.isnan(self.p_value).any()

    @property
    def certain(self) -> np.ndarray:
        """Heads whose loss is significant at 5 % over all heads together."""
        return self.p_value <= 0.05


class AttentionAnalysis(NamedTuple):
    """Result of an analysis of attention.

    Attributes:
        source: the corpus.
        model: description of the model.
        facts: sizes and settings.
        causal: whether tokens attend only backwards.
        means: logits averaged over documents.
        single: numbers of single documents' logits.
        variance: variance of the logits.
        parts: content and position, by the mean hidden state of each position, in all layers.
        embedded: content and position, by the vectors added to the embeddings, in the first layer.
        pairs: frequencies and energies of rotary models.
        ablations: one for each kind.
        inputs: sources as they were given, for commands to paste; empty for tokens of a script.
        seconds: duration by stage.
    """

    source: str
    model: str
    facts: AttentionFacts
    causal: bool
    means: MeanLogits
    single: SingleDocuments
    variance: Variance
    parts: PartShares
    embedded: PartShares
    pairs: Pairs | None
    ablations: list[HeadDrops]
    inputs: tuple[str, ...] = ()
    seconds: Seconds = {}  # noqa: RUF012  # nobody adds to it
