"""Result of `analyse`: the numbers behind the page, as `report.json` nests them."""

from typing import NamedTuple

import numpy as np

from jaxpe._core.options import Choice
from jaxpe._core.results import LargeArray, Seconds, short_repr
from jaxpe.analysis.corpus.options import CorpusOptions
from jaxpe.data.corpora.groups import NeighbourSimilarity

SHARES = ("noise", "composition", "position")  # of the observed variance
# Of one number for each position: τ, and the power, 0 for the logarithm.
TAUS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
POWERS = (-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0)
# Sequences for each letter of the alphabet, and at all, below which intervals of bits do not cover.
_PER_LETTER, _FEWEST_SEQUENCES = 5, 40


class CorpusFacts(NamedTuple):
    """Facts of what was read: documents, tokens and positions.

    Attributes:
        name: name of the corpus.
        tokenizer: name of the tokenizer.
        documents: number of documents.
        groups: independent groups of documents; pieces of one text share a group.
        tokens: number of tokens counted.
        length: number of positions n, or of bins of them.
        vocab_size: number of tokens in the vocabulary.
        folds: folds of the documents that halves are made of.
        origin: index of position 0 of documents aligned at a site; 0 without `align`.
        cut: number of documents that were cut at the length; None if unknown, or in a cohort.
        null_texts: rows that were left out because their text is null or missing.
        unknown_tokens: tokens outside the vocabulary, which count as one word.
        group_field: field whose values are kept together in the folds.
        from_counts: whether only counts were available, without documents.
        edges: first position of each bin, and the length, for counts in bins.
    """

    name: str
    tokenizer: str
    documents: int
    groups: int
    tokens: int
    length: int
    vocab_size: int
    folds: int
    origin: int = 0
    cut: int | None = None
    null_texts: int = 0
    unknown_tokens: int = 0
    group_field: str | None = None
    from_counts: bool = False
    edges: tuple[int, ...] | None = None

    @property
    def uncut(self) -> int | None:
        """Number of documents that were not cut; None if unknown."""
        return None if self.cut is None else self.documents - self.cut


class Interval(NamedTuple):
    """An estimate with a 95 % interval over documents.

    Attributes:
        estimate: point estimate.
        low: lower end.
        high: upper end.
    """

    estimate: float
    low: float
    high: float


class Observed(NamedTuple):
    """Geometry of the observed frequencies: noise, composition and position.

    Attributes:
        rank: numerical rank of the Gram matrix (`ClassicalMDS.rank`).
        eigenvalues: float `[n]`, descending.
        present: bool `[n]`, positions that take part.
        distances: float `[n, n]`, Hellinger.
        split_half_trace: variance between positions without sampling noise, composition and
            position; NaN if no position can be judged.
    """

    rank: int
    eigenvalues: np.ndarray
    present: np.ndarray
    distances: LargeArray
    split_half_trace: float

    @property
    def trace(self) -> float:
        """Trace of the Gram matrix: the observed variance."""
        return float(np.sum(self.eigenvalues, dtype=float))


class Position(NamedTuple):
    """Geometry of position alone: `jaxpe.geometry.position_geometry`.

    Attributes:
        trace: trace of the Gram matrix; may be negative without an effect of position, and is NaN
            if no position can be judged.
        eigenvalues: float `[n]`, descending.
        significant_rank: number of dimensions above rotated documents.
        p_value: p-value of the first dimension.
        rank_eigenvalues: float `[n]`, eigenvalues of the weighted Gram matrix, which are tested.
        null_eigenvalue: the value that the largest eigenvalue of rotated documents exceeds in 5 %
            of cases.
        present: bool `[n]`, positions with a token in both halves of every split.
        standard_errors: float `[n]`, of the squared distance of each position to the centroid.
        squared_distances: float `[n, n]`; may be negative.
        coordinates: float `[n, 3]`, leading MDS coordinates.
        composition_correlation: absolute correlation, over positions, of the first eigenvectors of
            documents and of rotated documents; NaN without a position.
        by_offset: float `[3, n − 1]`, mean squared distance at each offset, and the ends of its
            interval; NaN where undefined.
        half_distance: offset at which the mean squared distance first reaches half of its mean over
            all pairs of positions; None if it does not, or without a significant dimension.
    """

    trace: float
    eigenvalues: np.ndarray
    significant_rank: int
    p_value: float
    rank_eigenvalues: np.ndarray
    null_eigenvalue: float
    present: np.ndarray
    standard_errors: np.ndarray
    squared_distances: LargeArray
    coordinates: LargeArray
    composition_correlation: float
    by_offset: np.ndarray
    half_distance: Interval | None = None

    @property
    def positions(self) -> int:
        """Number of positions that are present."""
        return int(np.sum(self.present))


class Reach(NamedTuple):
    """Information of position about the token, counted from one end of the documents.

    Attributes:
        bits: I(position; token) in bits for each token, less its mean for rotated documents.
        curve: float `[3, n]`, bits of the first k positions, k = 1, ..., n, with all others as one,
            and the ends of the interval.
        half: smallest number of positions with half of the bits; None if the interval of the bits
            includes 0.
        most: smallest number of positions with 90 % of the bits.
    """

    bits: Interval
    curve: np.ndarray
    half: Interval | None
    most: Interval | None


class Where(NamedTuple):
    """Information of position about the token, from the beginning and the end of documents.

    Attributes:
        start: information of positions counted from the beginning; None without tokens.
        end: information of positions counted from the end, over documents that were not cut; None
            without documents, and in a cohort.
        words: number of words that the bits are of: those in at least two folds.
        tokens: number of tokens of these words.
    """

    start: Reach | None
    end: Reach | None
    words: int
    tokens: int


class EncodingScore(NamedTuple):
    """Fit of one encoding to the corpus's geometry, over the positions present.

    Attributes:
        name: "mds", or a name of the catalogue.
        family: family of the catalogue, "fitted" for mds, or that of one's own `CatalogueEntry`.
        dim: width.
        parameters: trainable or corpus-fitted numbers.
        scaled_stress: stress at the best scale against the observed distances, in [0, 1].
        position_scaled_stress: scaled stress against the distances of position alone.
        violation_rate: violation rate of its own distances, in [0, 1]; random vectors have 0.5.
        mantel_r: Pearson correlation of its distances with those of position alone, over pairs.
        distances: float `[n, n]`, Euclidean, at the original positions.
        note: the map used, e.g. "orbit of a reference vector with equal pair norms".
    """

    name: str
    family: str
    dim: int
    parameters: int
    scaled_stress: float
    position_scaled_stress: float
    violation_rate: float
    mantel_r: float
    distances: LargeArray
    note: str

    @property
    def fitted(self) -> bool:
        """Whether it was fitted to the distances it is scored against."""
        return self.family == "fitted"

    @property
    def fixed(self) -> bool:
        """Whether it is equal for every corpus: neither fitted nor trainable, nor from a model."""
        return not self.fitted and self.parameters == 0 and self.family != "model"

    __repr__ = short_repr


class HeldOutScores(NamedTuple):
    """Held-out scaled stress of encodings, on halves of the documents.

    Both the fit and the test use position alone, over several splits into halves.

    Attributes:
        splits: number of splits.
        dim: width of the fitted encoding: the number of significant dimensions, at most 32.
        vectors: float `[n, dim]`, the encoding fitted to all documents.
        own: stress of MDS of the other half, at widths 1, 2, ....
        fixed: stress of each fixed encoding, at the width of the report.
        best: the fixed encoding of lowest stress, then those that are not significantly worse.
        one_number: stress of one number for each position, `power_positions`, with its parameters
            fitted to the other half.
        tau, power: parameters of lowest stress on all halves, of `TAUS` and `POWERS`.
        gain: stress of the best fixed encoding less that of the fitted one; None without a
            significant dimension.
        equal: stress of distances that are all equal, which know no position from another.
        over_equal: stress of equal distances less that of the best fixed encoding.
    """

    splits: int
    dim: int
    vectors: LargeArray
    own: list[Interval]
    fixed: dict[str, Interval]
    best: list[str]
    one_number: Interval
    tau: float
    power: float
    gain: Interval | None
    equal: Interval
    over_equal: Interval

    __repr__ = short_repr


class LetterInformation(NamedTuple):
    """Information of each position about its letter: log₂ of the alphabet less the entropy.

    The background is the composition of positions that do not differ from it. It is that of all
    positions if over three quarters differ, since it is then unknown.

    Attributes:
        letters: letters that occur, without gaps and ambiguous ones.
        size: size of the alphabet: 4 nucleotides, 20 amino acids, or the number of letters.
        shares: float `[n, letters]`, frequencies at each position.
        bits: float `[3, n]`, estimate and ends of its 95 % interval; NaN where documents are fewer
            than `least`.
        documents: int `[n]`, documents with a letter at each position.
        alphabet: "nucleotides" or "amino acids"; empty for other text.
        background: float `[letters]`, frequencies of the background.
        relative: float `[3, n]`, relative entropy of each position against the background in bits,
            and its 95 % interval.
        differing: int, positions whose letters differ from the background.
    """

    letters: list[str]
    size: int
    shares: np.ndarray
    bits: np.ndarray
    documents: np.ndarray
    alphabet: str
    background: np.ndarray
    relative: np.ndarray
    differing: np.ndarray

    @property
    def least(self) -> int:
        """Documents that a position needs for bits: 5 for each letter of the alphabet, or 40."""
        return max(_PER_LETTER * self.size, _FEWEST_SEQUENCES)


class TokenShift(NamedTuple):
    """A token that is more frequent, or less, at a position than at both neighbours.

    Attributes:
        token: text of the token.
        share: share of the documents that have it at the position.
        neighbours: mean of its shares at the two neighbours.
        p_value: p-value, corrected for all positions and tokens tested.
    """

    token: str
    share: float
    neighbours: float
    p_value: float


class StandingOut(NamedTuple):
    """A position that differs from the two nearest positions.

    Attributes:
        position: index of the position, from 0.
        tokens: tokens that make the difference, the largest first, at most three.
    """

    position: int
    tokens: list[TokenShift]


class TokenCount(NamedTuple):
    """A token and its number of occurrences at a position.

    Attributes:
        token: text of the token.
        count: number of times it occurs.
    """

    token: str
    count: int


class TopTokens(NamedTuple):
    """The most frequent tokens of a position, in descending order.

    Attributes:
        position: position, from 0.
        tokens: tokens of the position with their counts.
    """

    position: int
    tokens: list[TokenCount]


class CorpusResult(NamedTuple):
    """Geometry of a corpus: distances, noise, dimensions, and the fit of encodings.

    Attributes:
        facts: documents, tokens and positions that were read.
        options: options of the job; `command_line` makes a command of them.
        choices: settings that were chosen automatically, with the reasons.
        documents_per_position: int `[n]`.
        observed: geometry of the observed frequencies.
        position: geometry of position alone.
        intervals: defined intervals by name: "noise_share", "composition_share" and
            "position_share" of the observed variance over the positions present, which add up to 1,
            and "nearness".
        encodings: scores of each encoding.
        held_out: stress on held-out documents; None if no position has tokens in all quarters of
            the documents.
        where: bits per token that position explains, and the positions that carry them.
        letters: information of each position about its letter; None for more than 64 letters.
        standing_out: positions that differ from the two nearest ones; empty for stored counts.
        top_tokens: most frequent tokens of some positions.
        neighbours: whether neighbouring documents of the source are more alike than random ones;
            None with a `group_field`, without documents, or for fewer than three.
        seconds: duration of each stage.
    """

    facts: CorpusFacts
    options: CorpusOptions
    choices: tuple[Choice, ...]
    documents_per_position: np.ndarray
    observed: Observed
    position: Position
    intervals: dict[str, Interval]
    encodings: list[EncodingScore]
    held_out: HeldOutScores | None
    where: Where
    letters: LetterInformation | None
    standing_out: list[StandingOut]
    top_tokens: list[TopTokens]
    neighbours: NeighbourSimilarity | None = None
    seconds: Seconds = {}  # noqa: RUF012 (nothing writes to it)

    @property
    def empty_positions(self) -> int:
        """Number of positions without a token; `options.empty` says what becomes of them."""
        return int(np.sum(self.documents_per_position == 0))

    @property
    def rare_positions(self) -> np.ndarray:
        """Positions with tokens whose own noise hides a signal of typical size, as indices.

        These positions are not judged at all, or have a standard error of the squared distance to
        the centroid above half of its mean over positions. Without any signal there are none.
        """
        position = self.position
        typical = position.trace / max(position.positions, 1)
        hidden = (position.significant_rank > 0) & (2.0 * position.standard_errors > typical)
        return np.flatnonzero((self.documents_per_position > 0) & (~position.present | hidden))

    __repr__ = short_repr
