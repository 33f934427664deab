"""What a report says, as numbers: one corpus in, one `Analysis` out. No figures and no files here."""

from typing import Any, NamedTuple

import numpy as np


class EncodingScore(NamedTuple):
    """How one encoding fits the corpus geometry (distances over the positions present)."""

    name: str  # "mds", "smacof", "sinusoidal", "rope", "alibi", "random"
    dim: int
    parameters: int  # trainable or corpus-fitted numbers
    stress: float  # Eq. (4), raw scale
    scaled_stress: float  # min over one scale factor, in [0, 1]
    kruskal_stress1: float
    split_half_scaled_stress: float  # against the noise-corrected distances
    violation_rate: float  # in [0, 1]; 0.5 is chance
    pearson_r: float
    min_separation: float
    distances: np.ndarray  # float [n, n], Euclidean, at the original positions
    note: str  # the map used, e.g. "orbit of a reference vector with equal pair norms"


class Interval(NamedTuple):
    """An estimate with a bootstrap interval over documents."""

    estimate: float
    low: float
    high: float


class Analysis(NamedTuple):
    """Everything the page, the table and `report.json` show."""

    source: str
    tokenizer: str
    documents: int
    tokens: int
    length: int
    vocab_size: int
    dim: int
    seed: int
    splits: int
    bootstrap: int
    empty_policy: str
    documents_per_position: np.ndarray  # int [n]
    present: np.ndarray  # bool [n], positions that take part (plug-in)
    judged: np.ndarray  # bool [n], positions present in both halves of every split
    rare: np.ndarray  # bool [n], too few documents to judge (present, but mostly noise)
    top_tokens: list[list[tuple[str, int]]]  # per shown position: its most frequent tokens
    top_token_positions: list[int]
    hellinger: np.ndarray  # float [n, n] plug-in distances
    split_half_squared: np.ndarray  # float [n, n], may be negative
    plug_in_eigenvalues: np.ndarray  # float [n], descending
    split_half_eigenvalues: np.ndarray  # float [n], descending
    null_eigenvalue: float  # 95 % quantile of the largest eigenvalue under the permutation null
    plug_in_rank: int
    plug_in_trace: float
    plug_in_violation_rate: float
    split_half_trace: float
    effective_rank: int
    split_half_violation_rate: float
    intervals: dict[str, Interval]  # "split_half_trace", "plug_in_violation_rate", ...
    coordinates: np.ndarray  # float [n, 3], leading MDS coordinates of the split-half geometry
    encodings: list[EncodingScore]
    stress_by_dimension: dict[str, np.ndarray]  # name -> float [len(dimensions)], Eq. (4)
    scaled_stress_by_dimension: dict[str, np.ndarray]
    dimensions: np.ndarray  # int, the widths of the two curves above
    timings: dict[str, float]  # seconds by stage

    def to_json(self) -> dict[str, Any]:
        """The machine-readable report: the fields of `report.json`."""
        raise NotImplementedError
