"""What a report says, as numbers: the result of `analyse`. No figures, no files."""

import math
from typing import Any, NamedTuple

import numpy as np


class EncodingScore(NamedTuple):
    """How one encoding fits the corpus geometry (distances over the positions present)."""

    name: str  # "mds", "smacof", or a name of the catalogue
    family: str  # of the catalogue, or "fitted"
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
    fitted: bool  # made from the very distances it is scored against

    @property
    def fixed(self) -> bool:
        """Whether it is the same for every corpus: neither fitted to this one nor trainable."""
        return not self.fitted and self.parameters == 0


class Interval(NamedTuple):
    """An estimate with a 95 % interval over documents."""

    estimate: float
    low: float
    high: float


class Analysis(NamedTuple):
    """Everything the page, the table and `report.json` show."""

    source: str
    tokenizer: str
    documents: int
    groups: int  # independent groups of documents; pieces of one text share a group
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
    rare: np.ndarray  # bool [n], present, but too few documents to judge
    top_tokens: list[list[tuple[str, int]]]  # per shown position: its most frequent tokens
    top_token_positions: list[int]
    hellinger: np.ndarray  # float [n, n] plug-in distances
    split_half_squared: np.ndarray  # float [n, n], may be negative
    plug_in_eigenvalues: np.ndarray  # float [n], descending
    split_half_eigenvalues: np.ndarray  # float [n], descending
    rank_eigenvalues: np.ndarray  # float [n], tested: weighted split-half Gram less the null's
    null_eigenvalue: float  # 95 % quantile of the largest of these under the permutation null
    plug_in_rank: int
    plug_in_trace: float
    plug_in_violation_rate: float
    noise_share: float  # of the plug-in trace, over the judged positions
    split_half_trace: float
    effective_rank: int  # −1 where no null corpora were counted
    split_half_violation_rate: float
    intervals: dict[str, Interval]  # "split_half_trace", "noise_share", "..._violation_rate"
    coordinates: np.ndarray  # float [n, 3], leading MDS coordinates of the split-half geometry
    encodings: list[EncodingScore]
    alibi_slopes: list[tuple[float, float]]  # (slope, stress): the standard ones, then the best
    stress_by_dimension: dict[str, np.ndarray]  # name -> float [len(dimensions)], Eq. (4)
    scaled_stress_by_dimension: dict[str, np.ndarray]
    dimensions: np.ndarray  # int, the widths of the two curves above
    timings: dict[str, float]  # seconds by stage
    edges: tuple[int, ...] | None = None  # of bins of positions, where these were counted
    folds: int = 0  # that the jackknife behind the intervals is over; 0 for a bootstrap
    group_field: str | None = None  # whose values are kept together in the folds

    def to_json(self) -> dict[str, Any]:
        """The machine-readable report: what `report.json` holds. Undefined numbers are null.

        Timings are left out, so that the same seed gives the same file.
        """
        scores = [
            {
                name: _plain(value)
                for name, value in score._asdict().items()
                if name not in ("distances",)
            }
            for score in self.encodings
        ]
        return {
            "source": self.source,
            "tokenizer": self.tokenizer,
            "documents": self.documents,
            "groups": self.groups,
            "tokens": self.tokens,
            "length": self.length,
            "vocab_size": self.vocab_size,
            "dim": self.dim,
            "seed": self.seed,
            "splits": self.splits,
            "bootstrap": self.bootstrap,
            "folds": self.folds,
            "group_field": self.group_field,
            "edges": None if self.edges is None else list(self.edges),
            "empty_positions": {
                "policy": self.empty_policy,
                "count": int(np.sum(self.documents_per_position == 0)),
            },
            "documents_per_position": _plain(self.documents_per_position),
            "rare_positions": _plain(np.flatnonzero(self.rare)),
            "plug_in": {
                "rank": self.plug_in_rank,
                "trace": _plain(self.plug_in_trace),
                "eigenvalues": _plain(self.plug_in_eigenvalues),
                "violation_rate": _plain(self.plug_in_violation_rate),
                "noise_share": _plain(self.noise_share),
            },
            "split_half": {
                "trace": _plain(self.split_half_trace),
                "eigenvalues": _plain(self.split_half_eigenvalues),
                "effective_rank": self.effective_rank if self.effective_rank >= 0 else None,
                "violation_rate": _plain(self.split_half_violation_rate),
                "positions": int(np.sum(self.judged)),
                "rank_eigenvalues": _plain(self.rank_eigenvalues),
                "null_eigenvalue": _plain(self.null_eigenvalue),
            },
            "intervals": {name: _plain(list(i)) for name, i in self.intervals.items()},
            "encodings": scores,
            "alibi_slopes": [{"slope": s, "stress": _plain(v)} for s, v in self.alibi_slopes],
            "stress_by_dimension": {
                "dimensions": _plain(self.dimensions),
                "stress": {name: _plain(v) for name, v in self.stress_by_dimension.items()},
                "scaled_stress": {
                    name: _plain(v) for name, v in self.scaled_stress_by_dimension.items()
                },
            },
        }


def _plain(value: Any) -> Any:
    """NumPy as lists and numbers; what is not finite as None, which JSON writes as null."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
