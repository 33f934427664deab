"""Text of a `CorpusAnalysis`: headlines, summary and findings, each chosen by a predicate."""

import math
from collections.abc import Callable

import numpy as np

from jaxpe.analysis.corpus.result import (
    SHARES,
    CorpusAnalysis,
    EncodingScore,
    HeldOutScores,
    Interval,
    Reach,
)
from jaxpe.report.text import Headline, number, percent, plural, position_name, ranges, visible

# Scaled stresses closer than this are ties: the third digit should decide nothing.
TIE = 0.01
# Distances are equal up to scale below this relative difference.
SAME = 1e-3
# Longer lists name only the first two.
MOST_NAMES = 3
# Below this share of documents at the last position, the text explains the consequences.
_FEW_REACH = 0.9
# Correlation of first eigenvectors from which position resembles composition.
_LIKE_COMPOSITION = 0.3
# Neighbours more similar than this, significantly, may share an author or a source.
_SUSPICION, _ALIKE = 0.01, 0.01
_NOTHING_TO_FIT = (
    "There is nothing to fit: encoding.npz is not written, and no fixed encoding is preferable."
)
_STRESS_IS = "Stress measures faithfulness to the corpus, not how well a model will do."


def findings(analysis: CorpusAnalysis) -> list[str]:
    """Findings of an analysis, as short paragraphs in the order a reader needs them.

    Every sentence follows from the numbers in `analysis`; undecided questions are named as such.

    >>> findings(found)[0]  # doctest: +SKIP
    'Of the variance observed between positions, 90 % (89 % to 91 %) is sampling noise. ...'
    """
    return list(named_findings(analysis).values())


def named_findings(analysis: CorpusAnalysis) -> dict[str, str]:
    """Findings by topic, without topics that do not apply."""
    return {name: text for name, topic in _TOPICS.items() if (text := topic(analysis))}


def summary(analysis: CorpusAnalysis) -> str:
    """Summary of the result and the next steps, which can be read alone.

    >>> summary(found)  # doctest: +SKIP
    'Of the variance observed between positions, 90 % (89 % to 91 %) is sampling noise. ...'
    """
    held_out = fitted_scores(analysis)
    if held_out is None:
        parts = (_shares(analysis), _dimensions(analysis), _NOTHING_TO_FIT)
        return " ".join(filter(None, parts))
    random = (s.position_scaled_stress for s in analysis.encodings if s.name == "random")
    parts = (
        _standing_out(analysis) if analysis.letters else "",
        _shares(analysis),
        f"Position has {plural(analysis.position.significant_rank, 'significant dimension')}.",
        "But no single position has enough documents to be judged." if only_rare(analysis) else "",
        _bits(analysis),
        "" if analysis.letters else _standing_out(analysis),
        "We score encodings by scaled stress: 0 copies the distances of position, 1 ignores them.",
        *(f"Random vectors score {number(x)}." for x in random if math.isfinite(x)),
        _fitted_score(held_out),
        _fixed_score(analysis),
        _model_fit(analysis),
        _better(held_out),
        _STRESS_IS,
    )
    return " ".join(filter(None, parts))


def headlines(analysis: CorpusAnalysis) -> list[Headline]:
    """The six numbers on top of the page and in the console table."""
    noise, composition, share = share_values(analysis)
    position, reach = analysis.position, analysis.documents_per_position
    rank, p = position.significant_rank, f"p = {position.p_value:.2g}"
    noisy = f"{analysis.plug_in.rank} with noise"
    noisy = "no position can be judged alone" if only_rare(analysis) else noisy
    near, rare = analysis.intervals.get("nearness"), len(analysis.rare_positions)
    held_out, best = fitted_scores(analysis), best_fixed(analysis)
    fitted = fixed = "none", "nothing to fit"
    if held_out is not None:
        names = _name_list([group_title(group) for group in distance_groups(best)])
        fitted = _headline(fitted_stress(held_out), f"dimension {held_out.dim}, ")
        fixed = _headline(fixed_stress(analysis)[best[0].name], f"{names}, ")
        if not beats_random(analysis):
            fixed = fixed[0], f"{fixed[1]}; no better than random vectors"
    rows = {
        "Position's share of the variance": (share, f"noise {noise}, composition {composition}"),
        "Significant dimensions": (f"{rank}", f"{p}; {noisy}"),
        "Fitted encoding, held-out stress": fitted,
        "Best fixed encoding, held-out stress": fixed,
        "Nearness (0: no order)": _headline(near) if near else ("n/a", "no interval"),
        "Documents at the last position": (
            f"{next(iter(reach[reach > 0][::-1]), 0):,}",
            f"of {analysis.documents:,}"
            + (f"; {plural(rare, 'position')} too rare" if rare else ""),
        ),
    }
    return [Headline(label, *row) for label, row in rows.items()]


def where_rows(analysis: CorpusAnalysis) -> list[Headline]:
    """Rows of bits per token, reach from both ends, half-distance, and documents that were cut."""
    where, distance, rows = analysis.where, analysis.position.half_distance, []
    for end, reach in _reaches(analysis).items():
        rows.append(Headline(f"Bits per token, from the {end}", *_headline(reach.bits)))
        if reach.half and reach.most and not analysis.origin:
            half, detail = reach.half, f"{_counts(reach.half)}; 90 % in {_count(reach.most)}"
            rows.append(Headline("Positions with half of them", f"{half.estimate:,.0f}", detail))
    if distance is not None:
        rows.append(Headline("Half-distance", f"{distance.estimate:,.0f}", _counts(distance)))
    if where and where.cut is not None:
        of = f"of {analysis.documents:,}, at {plural(analysis.length, 'token')}"
        rows.append(Headline("Documents cut", f"{where.cut:,}", of))
    return rows


def _reaches(analysis: CorpusAnalysis) -> dict[str, Reach]:
    """Information of positions by the end they are counted from; aligned documents have one."""
    start, end, _ = analysis.where or (None, None, None)
    ends = {"beginning": start, "end": None if analysis.origin else end}
    return {name: reach for name, reach in ends.items() if reach is not None}


def _counts(interval: Interval) -> str:
    """Ends of an interval of whole numbers, of which the upper may be infinite."""
    low, high = interval.low, interval.high
    if low == high:
        return f"{low:,.0f}"
    return f"{low:,.0f} to {high:,.0f}" if math.isfinite(high) else f"{low:,.0f} or more"


def _count(interval: Interval) -> str:
    return f"{interval.estimate:,.0f} ({_counts(interval)})"


def _headline(interval: Interval, detail: str = "") -> tuple[str, str]:
    return number(interval.estimate), f"{detail}{_range(interval)}"


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


def beats_random(analysis: CorpusAnalysis) -> bool:
    """Whether the best fixed encoding scores lower than random vectors, by more than a tie."""
    random = [s.position_scaled_stress for s in analysis.encodings if s.name == "random"]
    best = fixed_stress(analysis)[best_fixed(analysis)[0].name]
    return all(best.high < score - TIE for score in random)


def only_rare(analysis: CorpusAnalysis) -> bool:
    """Whether dimensions are significant although no single position can be judged."""
    rare, present = analysis.rare_positions, np.flatnonzero(analysis.position.present)
    return bool(analysis.position.significant_rank and np.isin(present, rare).all())


def nearness(analysis: CorpusAnalysis) -> int:
    """+1 if nearer positions are more alike, −1 if less alike, 0 if that is not decided.

    It is decided only if a dimension is significant and the interval excludes 0.
    """
    interval = analysis.intervals.get("nearness")
    if interval is None or analysis.position.significant_rank == 0:
        return 0
    return int(interval.low > 0) - int(interval.high < 0)


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


def _dimensions(analysis: CorpusAnalysis) -> str:
    position = analysis.position
    rank, level = position.significant_rank, number(position.null_eigenvalue)
    level = f"the level that shuffled documents exceed in 5 % of cases ({level})"
    if np.count_nonzero(analysis.documents_per_position) == 1:
        return (
            "Only one position has tokens: these documents have one token each, and no distances. "
            "Use the tokenizer characters for positions of letters."
        )
    if analysis.plug_in.trace <= 0:
        return "All positions have the same token distribution: there is no variance to explain."
    if not position.positions:
        why = "No position has documents in both halves of every split."
        if analysis.groups < 2:
            why = "All documents are copies or pieces of one another: a single observation."
        return f"{why} Nothing is distinguishable from noise: use more independent documents."
    if rank == 0:
        return (
            f"No effect of position is distinguishable from noise: no eigenvalue exceeds {level}, "
            f"p = {position.p_value:.2g}. An effect may exist below what "
            f"{plural(analysis.documents, 'document')} can show."
        )
    text = (
        f"Position has {plural(rank, 'significant dimension')}: {plural(rank, 'eigenvalue')} "
        f"above {level}. The plug-in distances alone would suggest {analysis.plug_in.rank}."
    )
    if only_rare(analysis):
        text += (
            " No single position has enough documents to be judged: use more documents before you "
            "trust a map, a distance or the fit of an encoding."
        )
    if not analysis.from_counts:
        return text
    field = analysis.group_field
    condition = f"of different {field!r}" if field else "that are not copies"
    return f"{text} This assumes that documents {condition} are independent."


def share_values(analysis: CorpusAnalysis) -> list[str]:
    """Noise, composition and position as percentages of the observed variance, or "n/a"."""
    shares = [analysis.intervals.get(f"{name}_share") for name in SHARES]
    return ["n/a" if share is None else percent(_clipped_share(share.estimate)) for share in shares]


def _shares(analysis: CorpusAnalysis) -> str:
    values = share_values(analysis)
    if "n/a" in values:
        return ""
    noise, composition, position = (
        value + _spread(analysis.intervals[f"{name}_share"])
        for value, name in zip(values, SHARES, strict=True)
    )
    return (
        f"Of the variance observed between positions, {noise} is sampling noise. Composition makes "
        f"up {composition}, and position {position}. Composition is what remains when the words of "
        "each document are shuffled: which documents reach a position, and thin counts."
    )


def _reach(analysis: CorpusAnalysis) -> str:
    """Number of documents that reach the end, and its consequences."""
    reach, position = analysis.documents_per_position, analysis.position
    if not position.positions or analysis.plug_in.trace <= 0:
        return ""
    last = int(np.flatnonzero(reach)[-1])
    name = position_name(last, analysis.origin)
    text = f"{reach[last]:,} of {plural(analysis.documents, 'document')} reach position {name}."
    if reach[last] >= _FEW_REACH * analysis.documents:
        return text
    text += (
        " Far positions belong to long documents, whose words may differ. Shuffled documents show "
        "this, so it is subtracted from every number of position."
    )
    if position.significant_rank and position.composition_correlation >= _LIKE_COMPOSITION:
        text += (
            " The first dimensions of position and of composition correlate "
            f"({position.composition_correlation:.2f}): both may change towards the end."
        )
    how = "Counts of documents of one length" if analysis.from_counts else "The option cohort"
    return f"{text} {how} would compare the same documents at all positions."


def _fitted_score(held_out: HeldOutScores) -> str:
    return (
        f"Fitted to half the documents, {plural(held_out.dim, 'coordinate')} "
        f"{'scores' if held_out.dim == 1 else 'score'} {with_interval(fitted_stress(held_out))} on "
        "the other half."
    )


def _fixed_score(analysis: CorpusAnalysis) -> str:
    first, *_ = distance_groups(best_fixed(analysis))
    stress = with_interval(fixed_stress(analysis)[first[0].name])
    text = (
        f"The best fixed encoding of width {analysis.dim} or less, {group_title(first)}, "
        f"scores {stress}"
    )
    return f"{text}." if beats_random(analysis) else f"{text}, no better than random vectors."


def _better(held_out: HeldOutScores) -> str:
    """Decision between the fitted encoding and the best fixed one."""
    if held_out.gain is None or held_out.gain.low <= 0 <= held_out.gain.high:
        return "The interval of the difference contains 0, so neither is shown to be better."
    if held_out.gain.high < 0:
        return "The fitted encoding scores worse: these documents are too few to fit one."
    return "The fitted vectors are in encoding.npz and give a model the geometry of this corpus."


def _fitted_fit(analysis: CorpusAnalysis) -> str:
    held_out = fitted_scores(analysis)
    if held_out is None:
        return ""
    means = [stress.estimate for stress in held_out.own]
    least = 1 + int(np.argmin(means))
    text = f"{_fitted_score(held_out)} This is the mean over {held_out.splits} random splits."
    if least != held_out.dim:
        text += f" Dimension {least} scores lowest, {number(means[least - 1])}."
    if len(means) > max(least, held_out.dim) and means[-1] > means[least - 1] + TIE:
        text += f" Wider encodings fit noise: {number(means[-1])} at dimension {len(means)}."
    if held_out.gain is not None:
        gain, worse = held_out.gain, "worse" if held_out.gain.low > 0 else "higher"
        if gain.high < 0:
            gain, worse = Interval(-gain.estimate, -gain.high, -gain.low), "better"
        text += f" The best fixed encoding scores {with_interval(gain)} {worse}."
    return (
        f"{text} One number for each position, {_one_number(held_out)}, scores "
        f"{with_interval(held_out.one_number)} when fitted in the same way."
    )


def _one_number(held_out: HeldOutScores) -> str:
    if held_out.power == 0:
        return f"log(1 + i/τ) with τ = {held_out.tau:g}"
    power = number(held_out.power)
    return f"(1 + i/τ)^a with τ = {held_out.tau:g} and a = {power}"


def _fixed_fit(analysis: CorpusAnalysis) -> str:
    held_out = fitted_scores(analysis)
    if held_out is None:
        return ""
    groups, text = distance_groups(best_fixed(analysis)), _fixed_score(analysis)
    if tied := [group_title(group) for group in groups[1:]]:
        text += f" {_name_list(tied)} {'is' if len(tied) == 1 else 'are'} not significantly worse."
    if len(groups[0]) > 1:
        text += " Encodings joined by = have equal distances up to scale."
    best = dict(zip(held_out.widths.tolist(), held_out.best, strict=True))
    others = [
        f"{_name_list(names)} at {width}"
        for width, names in best.items()
        if set(names) != set(best[analysis.dim])
    ]
    return f"{text} At other widths the best are {', '.join(others)}." if others else text


def _model_fit(analysis: CorpusAnalysis) -> str:
    """Score of a pretrained model's position vectors; empty without a model."""
    stress = fixed_stress(analysis)
    return " ".join(
        f"The position vectors of {s.name} score {with_interval(stress[s.name])} on held-out "
        "halves."
        for s in analysis.encodings
        if s.family == "model" and s.name in stress
    )


def _nearness(analysis: CorpusAnalysis) -> str:
    interval = analysis.intervals.get("nearness")
    if interval is None or analysis.position.significant_rank == 0:
        return ""
    verdict = {
        1: "Nearer positions hold more similar tokens",
        0: "Whether nearer positions hold more similar tokens is not decided",
        -1: "Nearer positions hold less similar tokens",
    }[nearness(analysis)]
    return f"{verdict}: nearness {with_interval(interval)}, where 0 means no order."


def _standing_out(analysis: CorpusAnalysis) -> str:
    """Positions that differ from both neighbours, and what the largest difference is."""
    found = analysis.standing_out
    if not found:
        return ""
    are_found = np.isin(np.arange(analysis.length), [x.position for x in found])
    tokens = [(x.position, token) for x in found for token in x.tokens]
    at, token = max(tokens, key=lambda x: x[1].share - x[1].neighbours)
    name = position_name(at, analysis.origin)
    stands = "position stands" if len(found) == 1 else "positions stand"
    return (
        f"{len(found)} {stands} out against both neighbours: "
        f"{ranges(are_found, limit=6, origin=analysis.origin)}. At position {name}, "
        f"{percent(token.share)} of the documents have {visible(token.token)!r}; at its "
        f"neighbours, {percent(token.neighbours)}."
    )


def _bits(analysis: CorpusAnalysis, end: str = "beginning") -> str:
    """Bits per token that position explains; empty if the interval includes 0."""
    reach = _reaches(analysis).get(end)
    if reach is None or reach.half is None or reach.most is None:
        return ""
    counted = "" if end == "beginning" else " from the end, in documents that were not cut,"
    text = f"Knowing the position{counted} saves {with_interval(reach.bits)} bits per token."
    if analysis.origin:
        return text
    verb = "has" if reach.half.estimate == 1 else "have"
    return (
        f"{text} {plural(int(reach.half.estimate), 'position')} at the {end} "
        f"({_counts(reach.half)}) {verb} half of these bits, {_count(reach.most)} 90 %."
    )


def _where(analysis: CorpusAnalysis) -> str:
    """Size of the effect of position, where in a document, and how fast it decays."""
    where, distance = analysis.where, analysis.position.half_distance
    texts = [_bits(analysis), _bits(analysis, "end")]
    if distance is not None:
        texts.append(
            "The mean squared distance of two positions reaches half of its mean over all pairs at "
            f"offset {_count(distance)}."
        )
    if where and where.cut:
        documents = f"{where.cut:,} of {plural(analysis.documents, 'document')}"
        texts.append(f"{documents} are longer than {analysis.length:,} tokens and were cut.")
    return " ".join(filter(None, texts))


def _letters(analysis: CorpusAnalysis) -> str:
    """Information of the positions about their letters."""
    if analysis.letters is None or not np.nanmax(analysis.letters.bits[1], initial=0) > 0:
        return ""
    bits, size = analysis.letters.bits, analysis.letters.size
    most = int(np.nanargmax(bits[0]))
    estimate, low, high = (f"{max(value, 0):.2f}" for value in bits[:, most])
    return (
        f"Position {position_name(most, analysis.origin)} tells most about its letter: {estimate} "
        f"bits ({low} to {high}) of {math.log2(size):.2f} for {size} letters. All positions add up "
        f"to {max(np.nansum(bits[0]), 0):.1f} bits."
    )


def _gaps(analysis: CorpusAnalysis) -> str:
    rare, empty = len(analysis.rare_positions), analysis.empty_positions.count
    texts = []
    if rare and analysis.position.positions:
        are_rare = np.isin(np.arange(analysis.length), analysis.rare_positions)
        texts.append(
            f"{plural(rare, 'position')} ({ranges(are_rare, origin=analysis.origin)}) "
            f"{'has' if rare == 1 else 'have'} too few documents to judge; distances to them are "
            "mostly noise."
        )
    if empty:
        treated = {
            "drop": "no part of the geometry",
            "uniform": "uniform over the vocabulary in the plug-in numbers",
            "zero": "rows of zeros in the plug-in numbers",
        }[analysis.empty_positions.policy]
        are_empty = ranges(analysis.documents_per_position == 0, origin=analysis.origin)
        texts.append(f"{plural(empty, 'position')} without tokens ({are_empty}): {treated}.")
    return " ".join(texts)


def _bins(analysis: CorpusAnalysis) -> str:
    if analysis.edges is None:
        return ""
    widths = np.diff(analysis.edges)
    width = " to ".join(f"{width:,}" for width in np.unique([widths.min(), widths.max()]))
    return (
        f"A position of this report is a bin of {width} positions: {len(widths):,} bins over the "
        f"first {analysis.edges[-1]:,}. Variation inside a bin is not visible."
    )


def _dependence(analysis: CorpusAnalysis) -> str:
    texts, near = [], analysis.neighbours
    if analysis.group_field is not None:
        groups = f"{plural(analysis.groups, 'group')} by {analysis.group_field!r}"
    elif analysis.groups <= 0.9 * analysis.documents:
        groups = f"{plural(analysis.groups, 'independent group')} of copies and pieces"
    else:
        groups = ""
    if groups:
        count = f"{analysis.documents:,}"
        texts.append(f"The {count} documents form {groups}. Noise is judged between groups.")
    if near is not None and near.p_value < _SUSPICION and near.neighbours > _ALIKE:
        texts.append(
            "Documents next to each other in the source are more similar than at random (mean "
            f"cosine {number(near.neighbours)}, p = {near.p_value:.2g}). If they share an author "
            "or a source, intervals are too short: name its column as group_field."
        )
    return " ".join(texts)


def _doubts(analysis: CorpusAnalysis) -> str:
    text = (
        f"Intervals are 95 %, from half-samples of {analysis.folds} folds of the documents, "
        "calibrated by shuffled documents. They do not include the bias of the estimate itself, "
        f"such as from rare words. {_STRESS_IS}"
    )
    if not analysis.from_counts:
        return text
    if analysis.group_field is not None:
        return f"{text} Documents of the same {analysis.group_field!r} share a fold."
    return (
        f"{text} Copies of a document share a fold, pieces of a longer one do not. Many pieces "
        "overstate dimensions and understate noise; a count with `group_field` keeps them together."
    )


_TOPICS: dict[str, Callable[[CorpusAnalysis], str]] = {
    "shares": _shares,
    "dimensions": _dimensions,
    "where": _where,
    "letters": _letters,
    "standing out": _standing_out,
    "reach": _reach,
    "fitted": _fitted_fit,
    "fixed": _fixed_fit,
    "model": _model_fit,
    "nearness": _nearness,
    "gaps": _gaps,
    "bins": _bins,
    "dependence": _dependence,
    "doubts": _doubts,
}


def _clipped_share(share: float) -> float:
    """A share within [0, 1]: noise may put an estimate slightly outside."""
    return min(max(share, 0.0), 1.0)


def with_interval(interval: Interval) -> str:
    """An estimate and its interval."""
    return f"{number(interval.estimate)} ({_range(interval)})"


def _range(interval: Interval) -> str:
    return f"{number(interval.low)} to {number(interval.high)}"


def _spread(interval: Interval) -> str:
    """An interval of percentages in brackets, with equal ends written once.

    Empty for a share of "under 1 %" or "over 99 %", which says as much.
    """
    if interval.high < 0.01 or interval.low > 0.99:
        return ""
    low, high = (percent(_clipped_share(end)) for end in (interval.low, interval.high))
    return f" ({low} to {high})" if low != high else f" ({low})"


def _name_list(names: list[str]) -> str:
    if len(names) > MOST_NAMES:
        return f"{names[0]}, {names[1]} and {len(names) - 2} others"
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
