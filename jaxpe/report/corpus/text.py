"""Meaning of the numbers of a `CorpusAnalysis`, in plain words and with their doubts."""

import math

import numpy as np

from jaxpe.analysis.corpus.result import (
    SHARES,
    CorpusAnalysis,
    EncodingScore,
    HeldOutScores,
    Interval,
)
from jaxpe.report.text import Headline, number, percent, plural, ranges

# Scaled stresses nearer than this are called a tie; no reader should choose by the third digit.
TIE = 0.01
# Distances this near, each at its own scale and relative to their size, are the same.
SAME = 1e-3
# A list longer than this names the first two.
MOST_NAMES = 3
# Documents at the last position, below which share of all a reader is told what follows.
_FEW_REACH = 0.9
# Where the first vector is as near as this to that of shuffled documents, the page says so.
_LIKE_COMPOSITION = 0.3
# Neighbours as alike as this, beyond chance, are suspected to share an author or a source.
_SUSPICION, _ALIKE = 0.01, 0.01
_NOTHING_TO_FIT = (
    "There is nothing to fit: no encoding of this corpus is written, and it gives no reason to "
    "prefer one fixed encoding to another."
)
_STRESS_IS = "Stress measures faithfulness to the corpus, not how well a model will do."


def findings(analysis: CorpusAnalysis) -> list[str]:
    """Findings of an analysis, as short paragraphs in the order a reader needs them.

    Every sentence follows from the numbers in `analysis`, and says so where they do not decide.

    >>> findings(found)[0]  # doctest: +SKIP
    'Position has about 6 real dimensions: ...'
    """
    return list(named_findings(analysis).values())


def named_findings(analysis: CorpusAnalysis) -> dict[str, str]:
    """The same by what each is about; those that there is nothing to say of are left out."""
    parts = {
        "shares": _shares,
        "dimensions": _dimensions,
        "reach": _reach,
        "own fit": _own_fit,
        "held-out fit": _held_out_fit,
        "model fit": _model_fit,
        "nearness": _nearness,
        "gaps": _gaps,
        "bins": _bins,
        "dependence": _dependence,
        "doubts": _doubts,
    }
    return {name: text for name, part in parts.items() if (text := part(analysis))}


def summary(analysis: CorpusAnalysis) -> str:
    """Summary of the result and of what to do next, for a reader who has read nothing else.

    >>> summary(found)  # doctest: +SKIP
    'Of the variance between positions 87 % is sampling noise ...'
    """
    held_out = analysis.held_out
    if all_alike(analysis) or held_out is None or held_out.dim == 0:
        parts = (_shares(analysis), _dimensions(analysis), _NOTHING_TO_FIT)
        return " ".join(filter(None, parts))
    name, fixed = _best_fixed(analysis, held_out)
    parts = (
        _shares(analysis),
        f"Positions differ in about {plural(held_out.dim, 'dimension')} that shuffled documents do "
        "not show.",
        f"We score encodings by scaled stress: 0 copies the distances of position, 1 ignores them"
        f"{_of_random(analysis)}. Vectors of {plural(held_out.dim, 'number')} fitted to half the "
        f"documents score {with_interval(own_stress(held_out))} on the other half. The best fixed "
        f"encoding of width {analysis.dim}, {name}, scores {with_interval(fixed)}.",
        _model_fit(analysis),
        _advice(held_out),
        _STRESS_IS,
    )
    return " ".join(filter(None, parts))


def _of_random(analysis: CorpusAnalysis) -> str:
    """Stress of random vectors: well below 1, since most distances are alike."""
    scores = {score.name: score.position_scaled_stress for score in analysis.encodings}
    stress = scores.get("random", math.nan)
    return f"; random vectors score {number(stress)}" if math.isfinite(stress) else ""


def own_stress(held_out: HeldOutScores) -> Interval:
    """Stress of the fitted encoding on held-out halves."""
    return held_out.own[held_out.dim - 1]


def held_out_stress(analysis: CorpusAnalysis) -> dict[str, Interval]:
    """Stress on held-out halves of the fixed encodings, at the width of the report."""
    held_out = analysis.held_out
    if held_out is None:
        return {}
    at = list(held_out.widths).index(analysis.dim)
    return {name: stress[at] for name, stress in held_out.fixed.items()}


def _advice(held_out: HeldOutScores) -> str:
    if held_out.gain is None or held_out.gain.low <= 0:
        return "The interval of the difference contains 0: neither is shown to be better."
    return "The fitted vectors are in encoding.npz, to give a model the geometry of this corpus."


def _best_fixed(analysis: CorpusAnalysis, held_out: HeldOutScores) -> tuple[str, Interval]:
    """The fixed encoding of least stress, with those of the same distances, and its stress."""
    first, *_ = alike(corrected_best(analysis))
    return title_of(first), held_out_stress(analysis)[first[0].name]


def headlines(analysis: CorpusAnalysis) -> list[Headline]:
    """The six numbers on top of the page and in the console table."""
    position, reach = analysis.position, analysis.documents_per_position
    near = analysis.intervals.get("nearness")
    last = int(reach[reach > 0][-1]) if np.any(reach > 0) else 0
    return [
        Headline("Position's share of the variance", *_share_headline(analysis)),
        Headline(
            "Significant dimensions",
            str(position.significant_rank),
            f"p = {position.p_value:.2g}; {analysis.plug_in.rank} with noise",
        ),
        *_held_out_headlines(analysis),
        Headline(
            "Nearness (0: no order)",
            number(near.estimate) if near else "n/a",
            _range(near) if near else "no interval",
        ),
        Headline(
            "Documents at the last position",
            f"{last:,}",
            f"of {analysis.documents:,}"
            + (
                f"; {plural(count, 'position')} too rare"
                if (count := len(analysis.rare_positions))
                else ""
            ),
        ),
    ]


def _share_headline(analysis: CorpusAnalysis) -> tuple[str, str]:
    share = analysis.intervals.get("position_share")
    if share is None:
        return "n/a", "no position can be judged"
    noise, composition = (
        percent(_within(analysis.intervals[f"{name}_share"].estimate))
        for name in ("noise", "composition")
    )
    return percent(_within(share.estimate)), f"noise {noise}, composition {composition}"


def _held_out_headlines(analysis: CorpusAnalysis) -> list[Headline]:
    held_out = analysis.held_out
    own, fixed = "Fitted encoding, held-out stress", "Best fixed encoding, held-out stress"
    if held_out is None or held_out.dim == 0:
        return [Headline(own, "none", "nothing to fit"), Headline(fixed, "none", "nothing to fit")]
    stress, best_fixed = own_stress(held_out), _best_fixed(analysis, held_out)[1]
    return [
        Headline(own, number(stress.estimate), f"dimension {held_out.dim}, {_range(stress)}"),
        Headline(
            fixed,
            number(best_fixed.estimate),
            f"{_names(corrected_best(analysis))}, {_range(best_fixed)}",
        ),
    ]


def all_alike(analysis: CorpusAnalysis) -> bool:
    """Whether all positions with tokens have the same token distribution, to rounding."""
    return analysis.plug_in.trace <= 0 and bool(np.any(analysis.documents_per_position > 0))


def nearness(analysis: CorpusAnalysis) -> int:
    """+1 if nearer positions are more alike, −1 if less alike, 0 if that is not decided.

    Decided only where some dimension is significant and the interval excludes 0.
    """
    interval = analysis.intervals.get("nearness")
    if interval is None or analysis.position.significant_rank == 0:
        return 0
    return int(interval.low > 0) - int(interval.high < 0)


def corrected_best(analysis: CorpusAnalysis) -> list[EncodingScore]:
    """The fixed encodings of least stress on held-out halves, and those not significantly worse.

    Empty where there is no structure to fit.
    """
    held_out = analysis.held_out
    if held_out is None or held_out.dim == 0:
        return []
    names = held_out.best[list(held_out.widths).index(analysis.dim)]
    scores = {score.name: score for score in analysis.encodings}
    return [scores[name] for name in names if name in scores]


def alike(scores: list[EncodingScore]) -> list[list[EncodingScore]]:
    """The encodings in groups that have the same distances but for their scale, order kept."""
    groups: list[list[EncodingScore]] = []
    for score in scores:
        known = next((group for group in groups if _same_shape(group[0], score)), None)
        if known:
            known.append(score)
        else:
            groups.append([score])
    return groups


def title_of(group: list[EncodingScore]) -> str:
    """Encodings with the same distances as one: "sinusoidal (= rope)"."""
    first, *others = [score.name for score in group]
    return f"{first} (= {', '.join(others)})" if others else first


def by_family(scores: list[EncodingScore]) -> dict[str, list[EncodingScore]]:
    """The encodings of each family, order kept."""
    families: dict[str, list[EncodingScore]] = {}
    for score in scores:
        families.setdefault(score.family, []).append(score)
    return families


def _same_shape(a: EncodingScore, b: EncodingScore) -> bool:
    if not abs(a.scaled_stress - b.scaled_stress) < SAME:  # spares most of the comparisons below
        return False
    sizes = np.linalg.norm(a.distances), np.linalg.norm(b.distances)
    if not min(sizes) > 0:
        return False
    return bool(np.linalg.norm(a.distances / sizes[0] - b.distances / sizes[1]) < SAME)


def _dimensions(analysis: CorpusAnalysis) -> str:
    if np.count_nonzero(analysis.documents_per_position) == 1:
        return (
            "Only one position has tokens, so there is no other to compare it with: these "
            "documents have one token each. Use the tokenizer characters for positions of letters."
        )
    if all_alike(analysis):
        return (
            "All positions have the same token distribution: these documents hold no positional "
            "structure, and there is no variance to explain."
        )
    rank, null = analysis.position.significant_rank, number(analysis.position.null_eigenvalue)
    level = f"the level that shuffled documents exceed in 5 % of cases ({null})"
    if not analysis.position.positions and analysis.groups < 2:
        return (
            "All documents are copies or pieces of one another. They are one piece of evidence, so "
            "nothing here is distinguishable from noise."
        )
    if not analysis.position.positions:
        return (
            "No position has enough documents in both halves of every split, so nothing here is "
            "distinguishable from noise. Use more documents or a shorter length."
        )
    if rank == 0:
        return (
            "No effect of position is distinguishable from noise: no eigenvalue rises above "
            f"{level}, p = {analysis.position.p_value:.2g}. An effect may still exist, below what "
            f"{plural(analysis.documents, 'document')} can show."
        )
    rises = "eigenvalue rises" if rank == 1 else "eigenvalues rise"
    return (
        f"Position has {plural(rank, 'significant dimension')}: {rank} {rises} above {level}. The "
        f"plug-in distances alone would suggest {analysis.plug_in.rank}."
        + (f" That is so if {_assumed(analysis)}." if analysis.from_counts else "")
    )


def _shares(analysis: CorpusAnalysis) -> str:
    """The three parts of the observed variance."""
    known = [analysis.intervals.get(f"{name}_share") for name in SHARES]
    if all_alike(analysis) or any(share is None for share in known):
        return ""
    noise, composition, position = (
        f"{percent(_within(share.estimate))} ({_spread(share)})" for share in known if share
    )
    return (
        f"Of the variance observed between positions, {noise} is sampling noise, {composition} is "
        f"composition and {position} is position. Composition is what documents with their words "
        "in random order show as well: who gets there, and thin counts."
    )


def _reach(analysis: CorpusAnalysis) -> str:
    """Number of documents that reach the end, and what follows from it."""
    reach = analysis.documents_per_position
    present = np.flatnonzero(reach)
    if all_alike(analysis) or not len(present) or not analysis.position.positions:
        return ""
    last, count = int(present[-1]), int(reach[present[-1]])
    if count >= _FEW_REACH * analysis.documents:
        return f"{count:,} of {plural(analysis.documents, 'document')} reach position {last}."
    text = (
        f"{count:,} of {plural(analysis.documents, 'document')} reach position {last}. Far "
        "positions are of long documents, whose words may differ. Shuffled documents show this, "
        "and it is taken away from everything below."
    )
    correlation = analysis.position.composition_correlation
    if analysis.position.significant_rank and correlation >= _LIKE_COMPOSITION:
        text += (
            " The first dimensions of position and of shuffled documents have a correlation of "
            f"{correlation:.2f}: both may change towards the end."
        )
    how = "Counts of documents of one length" if analysis.from_counts else "The option cohort"
    return f"{text} {how} would compare the same documents at all positions."


def _own_fit(analysis: CorpusAnalysis) -> str:
    held_out = analysis.held_out
    if held_out is None or held_out.dim == 0:
        return ""
    means = [stress.estimate for stress in held_out.own]
    least = 1 + int(np.argmin(means))
    text = (
        f"{plural(held_out.dim, 'coordinate')} fitted to half the documents score "
        f"{with_interval(own_stress(held_out))} on the other half, over "
        f"{plural(held_out.splits, 'random split')}"
    )
    if least != held_out.dim:
        text += f"; the lowest score is {number(means[least - 1])}, at dimension {least}"
    if len(means) > max(least, held_out.dim) and means[-1] > means[least - 1] + TIE:
        text += (
            f". Wider encodings fit the noise of their half ({number(means[-1])} at dimension "
            f"{len(means)})"
        )
    if held_out.gain is not None:
        worse = "worse" if held_out.gain.low > 0 else "higher"
        text += (
            f". The best fixed encoding of width {analysis.dim} scores "
            f"{with_interval(held_out.gain)} {worse}"
        )
    return f"{text}."


def _held_out_fit(analysis: CorpusAnalysis) -> str:
    held_out = analysis.held_out
    if held_out is None or held_out.dim == 0:
        return ""
    name, stress = _best_fixed(analysis, held_out)
    _, *tied = [title_of(group) for group in alike(corrected_best(analysis))]
    text = (
        f"Of the fixed encodings of width {analysis.dim}, {name} scores lowest on held-out halves, "
        f"{with_interval(stress)}"
    )
    if tied:
        text += f"; {_listed(tied)} {'is' if len(tied) == 1 else 'are'} not significantly worse"
    if " (= " in name:
        text += " (encodings joined by = have the same distances, but perhaps for their scale)"
    here = held_out.best[list(held_out.widths).index(analysis.dim)]
    others = [
        f"{_listed(names)} at {width}"
        for width, names in zip(held_out.widths, held_out.best, strict=True)
        if set(names) != set(here)
    ]
    if others:
        text += f". At other widths the best are {', '.join(others)}"
    return f"{text}."


def _model_fit(analysis: CorpusAnalysis) -> str:
    """Sentences on the table of a pretrained model, where one was read."""
    tested = held_out_stress(analysis)
    names = [s.name for s in analysis.encodings if s.family == "model" and s.name in tested]
    return " ".join(
        f"The position vectors of {name} score {with_interval(tested[name])} on held-out halves."
        for name in names
    )


def _nearness(analysis: CorpusAnalysis) -> str:
    interval, verdict = analysis.intervals.get("nearness"), nearness(analysis)
    if interval is None or analysis.position.significant_rank == 0:
        return ""
    value = f"nearness {with_interval(interval)}, where 0 is no order"
    return {
        1: f"Nearer positions hold more similar tokens: {value}.",
        0: f"Whether nearer positions hold more similar tokens is not decided: {value}.",
        -1: f"Nearer positions hold less similar tokens: {value}.",
    }[verdict]


def _gaps(analysis: CorpusAnalysis) -> str:
    empties = analysis.documents_per_position == 0
    rare, empty = len(analysis.rare_positions), analysis.empty_positions.count
    texts = []
    if rare and analysis.position.positions:
        are_rare = np.isin(np.arange(analysis.length), analysis.rare_positions)
        texts.append(
            f"{plural(rare, 'position')} ({ranges(are_rare)}) "
            f"{'has' if rare == 1 else 'have'} too few documents to judge; "
            "distances to them are mostly noise."
        )
    if empty:
        treated = {
            "drop": f"{'takes' if empty == 1 else 'take'} no part",
            "uniform": "count as uniform over the vocabulary in the plug-in numbers",
            "zero": "count as rows of zeros in the plug-in numbers",
        }[analysis.empty_positions.policy]
        texts.append(
            f"{plural(empty, 'position')} ({ranges(empties)}) "
            f"{'holds' if empty == 1 else 'hold'} no tokens and {treated}."
        )
    return " ".join(texts)


def _bins(analysis: CorpusAnalysis) -> str:
    if analysis.edges is None:
        return ""
    widths = np.diff(analysis.edges)
    least, most = widths.min(), widths.max()
    width = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return (
        f"A position here is a bin of {width} positions, {len(widths):,} bins over the first "
        f"{analysis.edges[-1]:,}: what varies inside of a bin is not seen."
    )


def _dependence(analysis: CorpusAnalysis) -> str:
    texts, near = [], analysis.neighbours
    if analysis.group_field is not None:
        texts.append(
            f"The {analysis.documents:,} documents form {plural(analysis.groups, 'group')} by "
            f"{analysis.group_field!r}, copies and pieces, and noise is judged by these."
        )
    elif analysis.groups <= 0.9 * analysis.documents:
        texts.append(
            f"Many documents are copies or pieces of others: the {analysis.documents:,} of them "
            f"form about {plural(analysis.groups, 'independent group')}, and noise is judged by "
            "these."
        )
    if near is not None and near.p_value < _SUSPICION and near.neighbours > _ALIKE:
        texts.append(
            "Documents next to each other in the source are more alike than at random (mean cosine "
            f"{number(near.neighbours)}, p = {near.p_value:.2g}). If they share an author or a "
            "source, they are not independent, and intervals are too short: name its column as "
            "group_field."
        )
    return " ".join(texts)


def _assumed(analysis: CorpusAnalysis) -> str:
    if analysis.group_field is None:
        return "no document is a piece of another"
    return f"documents of different {analysis.group_field!r} are independent"


def _kept_together(analysis: CorpusAnalysis) -> str:
    """Sentence on documents that are not independent and share a fold."""
    if analysis.group_field is not None:
        return f"Documents of the same {analysis.group_field!r} share a fold."
    return (
        "Copies of a document share a fold, pieces of a longer one do not: where there are many, "
        "dimensions are overstated and noise is understated. A report on a sample of the documents "
        "finds pieces; a count with `group_field` keeps them together."
    )


def _doubts(analysis: CorpusAnalysis) -> str:
    text = (
        f"Intervals are 95 %, from half-samples of {analysis.folds} folds of the documents, "
        "calibrated by shuffled documents. A bias of the estimate itself, as from rare words, is "
        f"not in them. {_STRESS_IS}"
    )
    return f"{text} {_kept_together(analysis)}" if analysis.from_counts else text


def _within(share: float) -> float:
    """A share as a reader expects it; noise may put an estimate slightly outside."""
    return min(max(share, 0.0), 1.0)


def with_interval(interval: Interval) -> str:
    """An estimate and its interval."""
    return f"{number(interval.estimate)} ({_range(interval)})"


def _range(interval: Interval) -> str:
    return f"{number(interval.low)} to {number(interval.high)}"


def _spread(interval: Interval) -> str:
    low, high = (percent(_within(end)) for end in (interval.low, interval.high))
    return f"{low} to {high}" if low != high else low


def _names(scores: list[EncodingScore]) -> str:
    return _listed([title_of(group) for group in alike(scores)])


def _listed(names: list[str]) -> str:
    if len(names) > MOST_NAMES:
        return f"{names[0]}, {names[1]} and {len(names) - 2} others"
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names) or "none"
