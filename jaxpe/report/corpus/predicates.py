"""Predicates on a `CorpusAnalysis` that choose what its page says."""

import math
from typing import Literal

import numpy as np

from jaxpe.analysis.corpus.result import (
    SHARES,
    CorpusAnalysis,
    EncodingScore,
    HeldOutScores,
    Interval,
)

# Scaled stresses closer than this are ties: the third digit should decide nothing.
TIE = 0.01
# Distances are equal up to scale below this relative difference.
SAME = 1e-3
_MUCH = 0.1  # part of the stress of equal distances
# Few positions make the variance if they have this share of it and are at most a part of all.
_MOST, _FEW_PART = 0.9, 1 / 5
_DECAYS = ("more", "rises and falls")  # of `nearness`: similarity decays with offset
# Rank correlation of distance and offset from which a curve has a trend.
_TREND, _LEAST_OFFSETS = 0.5, 3
_LEAST_PAIRS = 1 / 10  # pairs at an offset that is judged, as a part of the positions


def fitted_scores(analysis: CorpusAnalysis) -> HeldOutScores | None:
    """Scores on held-out halves; None without a significant dimension."""
    held_out = analysis.held_out
    return held_out if held_out is not None and held_out.dim else None


def fitted_stress(held_out: HeldOutScores) -> Interval:
    """Stress of the fitted encoding on held-out halves."""
    return held_out.own[held_out.dim - 1]


def fixed_stress(analysis: CorpusAnalysis) -> dict[str, Interval]:
    """Stress of the fixed encodings on held-out halves, at the width of the report."""
    held_out = analysis.held_out
    if held_out is None:
        return {}
    at = list(held_out.widths).index(analysis.dim)
    return {name: stress[at] for name, stress in held_out.fixed.items()}


def best_fixed(analysis: CorpusAnalysis) -> list[EncodingScore]:
    """The fixed encoding of lowest stress on held-out halves, and those not significantly worse.

    Empty where there is no structure to fit.
    """
    held_out = fitted_scores(analysis)
    if held_out is None:
        return []
    scores = {score.name: score for score in analysis.encodings}
    names = held_out.best[list(held_out.widths).index(analysis.dim)]
    return [scores[name] for name in names if name in scores]


def beats_equal(analysis: CorpusAnalysis) -> bool:
    """Whether the best fixed encoding has a tenth less stress than equal distances, or more.

    True where equal distances were not scored, so that nothing is said of them.
    """
    held_out = analysis.held_out
    if held_out is None or held_out.over_equal is None or held_out.equal is None:
        return True
    return held_out.over_equal.low > 0 and (
        held_out.over_equal.estimate > _MUCH * held_out.equal.estimate
    )


def only_rare(analysis: CorpusAnalysis) -> bool:
    """Whether dimensions are significant although no single position can be judged."""
    rare, present = analysis.rare_positions, np.flatnonzero(analysis.position.present)
    return bool(analysis.position.significant_rank and np.isin(present, rare).all())


def only_position(analysis: CorpusAnalysis) -> bool:
    """Whether documents have tokens at one position alone."""
    return int(np.count_nonzero(analysis.documents_per_position)) == 1


def main_positions(analysis: CorpusAnalysis) -> tuple[np.ndarray, float]:
    """Positions with nine tenths of the variance of position, if these are few, and their share.

    Empty if more than a fifth of the positions have as much, or if none can be judged.
    """
    position = analysis.position
    present = np.flatnonzero(position.present)
    if not position.significant_rank or only_rare(analysis):
        return present[:0], 0.0
    means = position.squared_distances[np.ix_(present, present)].mean(axis=1, dtype=float)
    parts = np.clip(means - means.mean() / 2, 0, None)  # squared distances to the centroid
    order = np.argsort(-parts, kind="stable")
    shares = np.cumsum(parts[order]) / max(parts.sum(), np.finfo(float).tiny)
    few = 1 + int(np.argmax(shares >= _MOST))
    if few > _FEW_PART * len(present):
        return present[:0], 0.0
    return np.sort(present[order[:few]]), float(shares[few - 1])


def nearness(
    analysis: CorpusAnalysis,
) -> Literal["", "undecided", "few", "mixed", "more", "rises and falls", "less"]:
    """Whether nearer positions are "more" alike, or "less"; empty without a dimension.

    "undecided" if the interval contains 0. "few" if few positions have nearly all variance, so that
    nearness says where these are. "mixed" if the rank correlation of distance and offset disagrees.
    "rises and falls" if nearer positions are more alike, but the farthest are no farther apart.
    Offsets with few pairs of positions are left out. Empty for documents aligned at a site, where
    nearness only says where the site is.
    """
    interval = analysis.intervals.get("nearness")
    if interval is None or analysis.position.significant_rank == 0 or analysis.origin:
        return ""
    if interval.low <= 0 <= interval.high:
        return "undecided"
    if len(main_positions(analysis)[0]):
        return "few"
    mean, low, high = analysis.position.by_offset
    present = analysis.position.present.astype(int)
    pairs = np.correlate(present, present, "full")[len(present) :]  # at offsets 1, 2, ...
    enough = pairs >= _LEAST_PAIRS * analysis.position.positions
    offsets = np.flatnonzero(np.isfinite(mean + low + high) & enough)
    if len(offsets) < _LEAST_OFFSETS:
        return "mixed"
    order = np.argsort(mean[offsets])  # correlates as the ranks, its inverse
    r = np.corrcoef(order, np.arange(len(order)))[0, 1]
    if np.sign(interval.low) * r < _TREND:
        return "mixed"
    peak = offsets[np.argmax(mean[offsets])]
    if interval.low < 0:
        return "less"
    return "rises and falls" if low[peak] > high[offsets[-1]] else "more"


def half_distance(analysis: CorpusAnalysis) -> Interval | None:
    """Half-distance, where similarity decays with offset."""
    return analysis.position.half_distance if nearness(analysis) in _DECAYS else None


def information_sum(bits: np.ndarray) -> float:
    """Sum over positions of information `[3, n]`, at least 0."""
    return max(float(np.nansum(bits[0])), 0.0)


def is_sequences(analysis: CorpusAnalysis) -> bool:
    """Whether the documents are nucleotides, amino acids, or aligned at a site."""
    letters = analysis.letters
    return bool(analysis.origin or (letters is not None and letters.alphabet))


def kmer_length(analysis: CorpusAnalysis) -> int:
    """Length of overlapping k-mers; 0 for other tokens."""
    name, _, k = analysis.tokenizer.partition(":")
    return int(k) if name == "kmer" and k.isdecimal() and int(k) > 1 else 0


def distance_groups(scores: list[EncodingScore]) -> list[list[EncodingScore]]:
    """Encodings in groups of equal distances up to scale, order kept."""
    groups: list[list[EncodingScore]] = []
    for score in scores:
        group = next((g for g in groups if _same_shape(g[0], score)), None)
        if group is None:
            groups.append(group := [])
        group.append(score)
    return groups


def group_title(group: list[EncodingScore]) -> str:
    """Title of encodings with equal distances: "sinusoidal (= rope)"."""
    first, *others = [score.name for score in group]
    return f"{first} (= {', '.join(others)})" if others else first


def families(scores: list[EncodingScore]) -> dict[str, list[EncodingScore]]:
    """The encodings of each family, order kept."""
    names = dict.fromkeys(score.family for score in scores)
    return {name: [score for score in scores if score.family == name] for name in names}


def _same_shape(a: EncodingScore, b: EncodingScore) -> bool:
    if not abs(a.scaled_stress - b.scaled_stress) < SAME:  # spares most of the comparisons below
        return False
    sizes = np.linalg.norm(a.distances), np.linalg.norm(b.distances)
    if not min(sizes) > 0:
        return False
    return bool(np.linalg.norm(a.distances / sizes[0] - b.distances / sizes[1]) < SAME)


def variance_shares(analysis: CorpusAnalysis) -> list[Interval]:
    """Shares of noise, composition and position in the observed variance; NaN where undefined.

    Within [0, 1], since noise may put an estimate slightly outside; unchanged where the null fails.
    """
    undefined = Interval(math.nan, math.nan, math.nan)
    shares = [analysis.intervals.get(f"{name}_share", undefined) for name in SHARES]
    if below_null(analysis):
        return shares
    return [Interval(*(min(max(x, 0.0), 1.0) for x in share)) for share in shares]


def below_null(analysis: CorpusAnalysis) -> dict[str, Interval]:
    """Statistics of position that are significantly below 0, which the null rules out."""
    start, end = analysis.where[:2] if analysis.where else (None, None)
    found: dict[str, Interval | None] = {
        "bits": start.bits if start else None,
        "bits from the end": end.bits if end else None,
        "share of position": analysis.intervals.get("position_share"),
    }
    return {name: x for name, x in found.items() if x is not None and x.high < 0}
