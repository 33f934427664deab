"""Results of `analyse`: the numbers behind the page, as `report.json` nests them."""

from typing import NamedTuple

import numpy as np

from jaxpe._core.options import Choice
from jaxpe._core.results import LargeArray, Seconds, short_repr
from jaxpe.data.corpora.groups import NeighbourSimilarity

SHARES = ("noise", "composition", "position")  # of the observed variance


class EmptyPositions(NamedTuple):
    """Positions without a token.

    Attributes:
        policy: treatment in the plug-in geometry.
        count: number of them.
    """

    policy: str
    count: int


class TokenCount(NamedTuple):
    """A token and how often it stands somewhere.

    Attributes:
        token: text of the token.
        count: number of times it occurs.
    """

    token: str
    count: int


class TopTokens(NamedTuple):
    """The most frequent tokens of a position, the most frequent first.

    Attributes:
        position: position, from 0.
        tokens: tokens of the position with their counts.
    """

    position: int
    tokens: list[TokenCount]


class PlugIn(NamedTuple):
    """Geometry of the observed frequencies: noise, composition and position.

    Attributes:
        rank: numerical rank of the Gram matrix (`ClassicalMDS.rank`).
        trace: trace of the Gram matrix.
        eigenvalues: float `[n]`, descending.
        violation_rate: triples whose order the distances violate, in [0, 1].
        present: bool `[n]`, positions that take part.
        distances: float `[n, n]`, Hellinger.
    """

    rank: int
    trace: float
    eigenvalues: np.ndarray
    violation_rate: float
    present: np.ndarray
    distances: LargeArray


class Position(NamedTuple):
    """Geometry of position alone: `jaxpe.position_geometry`.

    Attributes:
        trace: trace of the Gram matrix; may be negative without an effect of position.
        eigenvalues: float `[n]`, descending.
        significant_rank: dimensions above those of shuffled documents.
        p_value: p-value of the first dimension.
        rank_eigenvalues: float `[n]`, those that are tested: of the weighted Gram matrix.
        null_eigenvalue: the largest of these that shuffled documents exceed in 5 % of cases.
        present: bool `[n]`, positions with a token in both halves of every split.
        squared_distances: float `[n, n]`; may be negative.
        coordinates: float `[n, 3]`, leading MDS coordinates.
        composition_correlation: absolute correlation, over positions, of the first eigenvector with
            that of shuffled documents; NaN without a position.
        by_offset: float `[3, n − 1]`, mean squared distance at each offset, and the ends of its
            interval; NaN where none is defined.
    """

    trace: float
    eigenvalues: np.ndarray
    significant_rank: int
    p_value: float
    rank_eigenvalues: np.ndarray
    null_eigenvalue: float
    present: np.ndarray
    squared_distances: LargeArray
    coordinates: LargeArray
    composition_correlation: float
    by_offset: np.ndarray

    @property
    def positions(self) -> int:
        """Number of positions that are present."""
        return int(np.sum(self.present))


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


class EncodingScore(NamedTuple):
    """Fit of one encoding to the corpus geometry, over the positions present.

    Attributes:
        name: "mds", "smacof", or a name of the catalogue.
        family: family of the catalogue, "fitted", or "model" for the table of a pretrained one.
        dim: width.
        parameters: trainable or corpus-fitted numbers.
        stress: Eq. (4), raw scale.
        scaled_stress: minimum of the stress over one scale factor, in [0, 1].
        kruskal_stress1: Kruskal's stress-1.
        position_scaled_stress: scaled stress against the distances of position alone.
        violation_rate: rate of its own distances, in [0, 1]; 0.5 is that of random vectors.
        pearson_r: correlation of its distances with those of the corpus.
        min_separation: smallest distance of two positions.
        distances: float `[n, n]`, Euclidean, at the original positions.
        note: the map used, e.g. "orbit of a reference vector with equal pair norms".
        fitted: made from the very distances it is scored against.
    """

    name: str
    family: str
    dim: int
    parameters: int
    stress: float
    scaled_stress: float
    kruskal_stress1: float
    position_scaled_stress: float
    violation_rate: float
    pearson_r: float
    min_separation: float
    distances: LargeArray
    note: str
    fitted: bool

    @property
    def fixed(self) -> bool:
        """Whether it is the same for every corpus: not fitted, trainable or of a model."""
        return not self.fitted and self.parameters == 0 and self.family != "model"

    __repr__ = short_repr


class HeldOutScores(NamedTuple):
    """Scaled stress of encodings against halves of the documents that they were not fitted to.

    Both the fit and the test are of position alone, over several splits into halves.

    Attributes:
        splits: number of splits.
        dim: width of the fitted encoding: the number of significant dimensions, at most 32.
        vectors: float `[n, dim]`, the fitted encoding, of all documents.
        own: stress of MDS of the other half, by width from 1 on.
        widths: int `[widths]`, of the fixed encodings.
        fixed: stress of each fixed encoding, at those widths.
        best: per width, the fixed encoding of least stress, and then those whose difference from it
            has an interval that contains 0.
        gain: stress of the best fixed encoding at the width of the report less that of the fitted
            one; None where no dimension is significant.
    """

    splits: int
    dim: int
    vectors: LargeArray
    own: list[Interval]
    widths: np.ndarray
    fixed: dict[str, list[Interval]]
    best: list[list[str]]
    gain: Interval | None

    __repr__ = short_repr


class StressByDimension(NamedTuple):
    """Stress of some encodings at widths 2, 4, 8, ... (Figure 4).

    Attributes:
        dimensions: int `[widths]`.
        stress: Eq. (4), `[widths]`, by name of the encoding.
        scaled_stress: minimum of the stress over one scale factor.
    """

    dimensions: np.ndarray
    stress: dict[str, np.ndarray]
    scaled_stress: dict[str, np.ndarray]


class CorpusAnalysis(NamedTuple):
    """Geometry of a corpus: distances, noise, dimensions, and the fit of encodings.

    Attributes:
        source: name of the corpus.
        tokenizer: name of the tokenizer.
        documents: number of documents.
        groups: independent groups of documents; pieces of one text share a group.
        tokens: number of tokens counted.
        length: number of positions n, or of bins of them.
        vocab_size: number of tokens in the vocabulary.
        dim: width at which encodings are compared.
        seed: random seed.
        splits: halvings averaged over.
        folds: folds of the documents that halves are made of.
        empty_positions: positions without a token.
        documents_per_position: int `[n]`.
        rare_positions: int, indices of positions with tokens, but with too few documents to judge.
        top_tokens: most frequent tokens of some positions.
        plug_in: geometry of the observed frequencies.
        split_half_trace: variance between positions without sampling noise: composition and
            position.
        position: geometry of position alone.
        intervals: intervals by "noise_share", "composition_share", "position_share" (of the plug-in
            variance over the positions that are present; they add up to 1) and "nearness"; those
            that are defined.
        encodings: scores of each encoding.
        stress_by_dimension: stress by width.
        held_out: stress against documents that were not fitted to; None where no position has
            tokens in all quarters of the documents.
        cohort: whether documents that end before the last position were left out.
        from_counts: whether the documents themselves were gone.
        group_field: field whose values are kept together in the folds.
        neighbours: whether documents next to each other in the source are more alike than at
            random; None where a `group_field` says which belong together, or the documents are
            gone or fewer than three.
        edges: first position of each bin, and the length, where bins were counted.
        null_texts: rows that were left out because their text is null or missing.
        choices: settings that were not passed and were chosen, with the reasons.
        seconds: duration of each stage.
    """

    source: str
    tokenizer: str
    documents: int
    groups: int
    tokens: int
    length: int
    vocab_size: int
    dim: int
    seed: int
    splits: int
    folds: int
    empty_positions: EmptyPositions
    documents_per_position: np.ndarray
    rare_positions: np.ndarray
    top_tokens: list[TopTokens]
    plug_in: PlugIn
    split_half_trace: float
    position: Position
    intervals: dict[str, Interval]
    encodings: list[EncodingScore]
    stress_by_dimension: StressByDimension
    held_out: HeldOutScores | None
    cohort: bool = False
    from_counts: bool = False
    group_field: str | None = None
    neighbours: NeighbourSimilarity | None = None
    edges: tuple[int, ...] | None = None
    null_texts: int = 0
    choices: tuple[Choice, ...] = ()
    seconds: Seconds = {}  # noqa: RUF012 (nothing writes to it)

    __repr__ = short_repr
