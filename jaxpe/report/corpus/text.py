"""Text of a `CorpusAnalysis`: summary and findings, each sentence chosen by a predicate."""

from collections.abc import Callable, Iterator

import numpy as np

from jaxpe.analysis.corpus.result import (
    POWERS,
    SHARES,
    TAUS,
    CorpusAnalysis,
    HeldOutScores,
    Interval,
    Reach,
)
from jaxpe.report.corpus.headlines import count_ends, reaches, with_count_ends
from jaxpe.report.corpus.letters import letter_sentences, standing_out
from jaxpe.report.corpus.predicates import (
    TIE,
    beats_equal,
    below_null,
    best_fixed,
    distance_groups,
    fitted_scores,
    fitted_stress,
    fixed_stress,
    group_title,
    half_distance,
    is_sequences,
    main_positions,
    nearness,
    only_position,
    only_rare,
    variance_shares,
)
from jaxpe.report.text import (
    interval_ends,
    name_list,
    number,
    percent,
    plural,
    position_name,
    ranges,
    with_interval,
)

# Below this share of documents at the last position, the text explains the consequences.
_FEW_REACH = 0.9
# Correlation of first eigenvectors from which position resembles composition.
_LIKE_COMPOSITION = 0.3
# Neighbours more similar than this, significantly, may share an author or a source.
_SUSPICION, _ALIKE = 0.01, 0.01
# Share of noise from which wider encodings can fit it.
_NOISY = 0.01
# Part of a share outside [0, 1] from which rounded percentages do not add up.
_CLIPPED = 0.005
# Sentences of the summary, in order; those that do not apply are left out.
_SUMMARY = (
    "null fails",
    "shares", "composition", "one position", "no variance",
    "not judged", "no dimension", "dimensions", "only rare", "main positions", "standing out",
    "nothing to fit", "scaled stress", "fitted", "fixed", "no better than equal", "model",
    "fitted better", "fitted worse", "fitted undecided",
)  # fmt: skip
FIT_TOPICS = ("fitted", "fixed", "model")
# A sentence with its key.
_Sentences = Iterator[tuple[str, str]]


def findings(analysis: CorpusAnalysis) -> list[str]:
    """Findings of an analysis, as short paragraphs in the order a reader needs them.

    Every sentence follows from the numbers in `analysis`; undecided questions are named as such.

    >>> findings(found)[0]  # doctest: +SKIP
    'Of the variance observed between positions, which shrinks as documents are added, 90 % ...'
    """
    apart = FIT_TOPICS if is_sequences(analysis) else ()
    return [text for name, text in named_findings(analysis).items() if name not in apart]


def named_findings(analysis: CorpusAnalysis) -> dict[str, str]:
    """Findings by topic, without topics that do not apply."""
    topics = {name: dict(topic(analysis)) for name, topic in _TOPICS.items()}
    return {name: " ".join(sentences.values()) for name, sentences in topics.items() if sentences}


def encoding_findings(analysis: CorpusAnalysis) -> list[str]:
    """Findings on encodings, which the page of sequences shows apart from the others."""
    return [text for name, text in named_findings(analysis).items() if name in FIT_TOPICS]


def keyed_sentences(analysis: CorpusAnalysis) -> dict[str, str]:
    """Sentences of findings and summary that apply, by a key for each predicate."""
    topics = (*_TOPICS.values(), _only_summary)
    return {key: sentence for topic in topics for key, sentence in topic(analysis)}


def summary(analysis: CorpusAnalysis) -> str:
    """Summary of the result and the next steps, which can be read alone.

    >>> summary(found)  # doctest: +SKIP
    'Knowing the position saves 0.0637 (0.0601 to 0.0673) bits per token. ...'
    """
    ends = ["" if end == "beginning" else " from the end" for end in reaches(analysis)]
    bits = [f"{key}{end}" for end in ends[:1] for key in ("bits", "no bits", "half of the bits")]
    keys = (*bits, *(f"bits{end}" for end in ends[1:]), *_SUMMARY)
    sentences = keyed_sentences(analysis)
    if analysis.letters:  # what stands out is what readers of sequences look for
        keys = tuple(dict.fromkeys(["standing out", "differing", *keys]))
    if is_sequences(analysis):
        keys = keys[: keys.index("nothing to fit")]
    return " ".join(sentences[key] for key in keys if key in sentences)


def _only_summary(analysis: CorpusAnalysis) -> _Sentences:
    held_out = fitted_scores(analysis)
    if held_out is None:
        yield (
            "nothing to fit",
            "There is nothing to fit: encoding.npz is not written, and no fixed encoding is "
            "preferable.",
        )
        return
    equal = f"; equal distances score {number(held_out.equal.estimate)}" if held_out.equal else ""
    yield (
        "scaled stress",
        "We score encodings by scaled stress: 0 copies the distances of position, 1 ignores "
        f"them{equal}.",
    )
    yield _better(held_out)


def _better(held_out: HeldOutScores) -> tuple[str, str]:
    """Decision between the fitted encoding and the best fixed one."""
    if held_out.gain is None or held_out.gain.low <= 0 <= held_out.gain.high:
        text = "Neither the fitted encoding nor the best fixed one is shown to be better."
        return "fitted undecided", text
    if held_out.gain.high < 0:
        text = "The best fixed encoding scores better than the fitted one."
        return "fitted worse", text
    return (
        "fitted better",
        "The fitted encoding, in encoding.npz, scores better, which says nothing of training.",
    )


def _shares(analysis: CorpusAnalysis) -> _Sentences:
    shares = variance_shares(analysis)
    if np.isnan(shares).any():
        return
    noise, composition, position = (with_interval(share, percent) for share in shares)
    yield (
        "shares",
        "Of the variance observed between positions, which shrinks as documents are added, "
        f"{noise} is sampling noise. Composition makes up {composition}, and position {position}.",
    )
    yield (
        "composition",
        "Composition is what remains when each document is rotated by a random offset, with its "
        "last token in place: which documents reach a position, what ends them, and thin counts.",
    )
    if below := below_null(analysis):
        values = name_list([f"{name} {with_interval(x)}" for name, x in below.items()])
        yield (
            "null fails",
            f"The null does not hold here: significantly below 0 are {values}. It assumes that "
            "documents are stationary, given their length and last token. More than the last token "
            "may decide where they end.",
        )
        return
    outside = max(max(-x, x - 1) for x in _estimates(analysis))
    if outside >= _CLIPPED:
        yield (
            "clipped shares",
            "Noise puts an estimate outside 0 to 100 %. It is shown at the bound, so the three do "
            "not add up to 100 %.",
        )


def _estimates(analysis: CorpusAnalysis) -> list[float]:
    """Estimates of the shares as they are, which add up to 1."""
    return [analysis.intervals[f"{name}_share"].estimate for name in SHARES]


def _dimensions(analysis: CorpusAnalysis) -> _Sentences:
    position = analysis.position
    rank, level = position.significant_rank, number(position.null_eigenvalue)
    level = f"the level that rotated documents exceed in 5 % of cases ({level})"
    if only_position(analysis):
        yield (
            "one position",
            "Only one position has tokens: these documents have one token each, and no distances.",
        )
    elif analysis.plug_in.trace <= 0:
        text = "All positions have the same token distribution: there is no variance to explain."
        yield "no variance", text
    elif not position.positions:
        why = "No position has documents in both halves of every split."
        if analysis.groups < 2:
            why = "All documents are copies or pieces of one another: a single observation."
        yield (
            "not judged",
            f"{why} Nothing is distinguishable from noise: use more independent documents.",
        )
    elif rank == 0:
        yield (
            "no dimension",
            f"No effect of position is distinguishable from noise: no eigenvalue exceeds {level}, "
            f"p = {position.p_value:.2g}. An effect may exist below what "
            f"{plural(analysis.documents, 'document')} can show.",
        )
    else:
        yield "dimensions", f"Position has {plural(rank, 'significant dimension')}."
        yield (
            "eigenvalues",
            f"{plural(rank, 'eigenvalue')} {'is' if rank == 1 else 'are'} above {level}. The "
            f"plug-in distances alone would suggest {analysis.plug_in.rank}.",
        )
        if only_rare(analysis):
            yield (
                "only rare",
                "No position can be judged alone: noise hides a difference of typical size. Do not "
                "trust a map, a distance or the fit of an encoding.",
            )
        if analysis.from_counts:
            field = analysis.group_field
            condition = f"of different {field!r}" if field else "that are not copies"
            yield "independence", f"This assumes that documents {condition} are independent."


def _where(analysis: CorpusAnalysis) -> _Sentences:
    """Size of the effect of position, where in a document, and how fast it decays."""
    positions, share = main_positions(analysis)
    if len(positions):
        at = ranges(np.isin(np.arange(analysis.length), positions), origin=analysis.origin)
        text = f"Position {at} has" if len(positions) == 1 else f"Positions {at} have"
        yield "main positions", f"{text} {percent(share)} of the variance of position."
    for end, reach in reaches(analysis).items():
        yield from _bits(analysis, end, reach)
    if (distance := half_distance(analysis)) is not None:
        yield (
            "half-distance",
            "The mean squared distance of two positions reaches half of its mean over all pairs at "
            f"offset {with_count_ends(distance)}.",
        )
    where = analysis.where
    if where and where.cut:
        documents = f"{where.cut:,} of {plural(analysis.documents, 'document')}"
        text = f"{documents} are longer than {analysis.length:,} tokens and were cut."
        yield "cut", text


def _bits(analysis: CorpusAnalysis, end: str, reach: Reach) -> _Sentences:
    """Bits per token that position explains, and where they are if the interval excludes 0."""
    first, saves = end == "beginning", f"saves {with_interval(reach.bits)} bits per token"
    counted = "" if first else " from the end, in documents that were not cut,"
    key = "bits" if first else "bits from the end"
    if reach.bits.high < 0:
        return  # the null does not hold
    if reach.half is None or reach.most is None:
        yield f"no {key}", f"Knowing the position{counted} {saves}, which is not significant."
        return
    yield key, f"Knowing the position{counted} {saves}."
    if analysis.origin:
        return
    which = "first" if first else "last"
    half, most = (x._replace(estimate=int(x.estimate)) for x in (reach.half, reach.most))
    one = half.estimate == 1
    text = f"The {which} position has" if one else f"The {which} {half.estimate:,} positions have"
    if most.estimate > half.estimate:
        spread = "" if half.low == half.high else f" ({count_ends(half)})"
        text = text.replace(" ha", f"{spread} ha") + " half of these bits, the "
        text += f"{which} {with_count_ends(most)} 90 %."
    else:
        less = "" if one else f", the {which} {half.estimate - 1:,} less than half"
        text += f" 90 % of these bits{less}."
    yield f"half of the {key}", text


def _reach(analysis: CorpusAnalysis) -> _Sentences:
    """Number of documents that reach the end, and its consequences."""
    reach, position = analysis.documents_per_position, analysis.position
    if not position.positions or analysis.plug_in.trace <= 0:
        return
    last = int(np.flatnonzero(reach)[-1])
    name = position_name(last, analysis.origin)
    documents = plural(analysis.documents, "document")
    yield "reach", f"{reach[last]:,} of {documents} reach position {name}."
    if reach[last] >= _FEW_REACH * analysis.documents:
        return
    yield (
        "few reach",
        "Far positions belong to long documents, whose words may differ. Rotated documents show "
        "this, so it is subtracted from every number of position.",
    )
    if position.significant_rank and position.composition_correlation >= _LIKE_COMPOSITION:
        yield (
            "like composition",
            "The first dimensions of position and of composition correlate "
            f"({position.composition_correlation:.2f}): both may change towards the end.",
        )
    how = "Counts of documents of one length" if analysis.from_counts else "The option cohort"
    yield "cohort", f"{how} would compare the same documents at all positions."


def _fitted_fit(analysis: CorpusAnalysis) -> _Sentences:
    held_out = fitted_scores(analysis)
    if held_out is None:
        return
    yield (
        "fitted",
        f"Fitted to half the documents, {plural(held_out.dim, 'coordinate')} "
        f"{'scores' if held_out.dim == 1 else 'score'} {with_interval(fitted_stress(held_out))} on "
        "the other half.",
    )
    yield "splits", f"This is the mean over {held_out.splits} random splits."
    means = [stress.estimate for stress in held_out.own]
    least, noise = int(np.argmin(means)), analysis.intervals.get("noise_share")
    lowest = max(held_out.own[least].high, means[least] + TIE)  # what lies above is no tie
    if means[held_out.dim - 1] > lowest:
        name = f"Dimension {least + 1}{', the widest tried,' * (least + 1 == len(means))}"
        yield "another dimension", f"{name} scores lowest, {number(means[least])}."
    noisy = noise is not None and noise.low > _NOISY
    if noisy and len(means) > held_out.dim and means[-1] > lowest:
        text = f"Wider encodings fit noise: {number(means[-1])} at dimension {len(means)}."
        yield "wider fit noise", text
    if held_out.gain is not None:
        yield _gain(held_out.gain)
    yield (
        "one number",
        f"One number for each position, {_one_number(held_out)}, scores "
        f"{with_interval(held_out.one_number)} when fitted in the same way.",
    )


def _gain(gain: Interval) -> tuple[str, str]:
    """Stress of the best fixed encoding less the fitted one's."""
    if gain.low > 0:
        return "fixed scores worse", f"The best fixed encoding scores {with_interval(gain)} worse."
    if gain.high < 0:
        better = Interval(-gain.estimate, -gain.high, -gain.low)
        text = f"The best fixed encoding scores {with_interval(better)} better."
        return "fixed scores better", text
    text = f"The best fixed encoding does not differ significantly ({interval_ends(gain)})."
    return "fixed ties", text


def _one_number(held_out: HeldOutScores) -> str:
    tau = f"τ = {held_out.tau:g}{_at_edge(held_out.tau, TAUS)}"
    if held_out.power == 0:
        return f"log(1 + i/τ) with {tau}"
    power = f"a = {number(held_out.power)}{_at_edge(held_out.power, POWERS)}"
    return f"(1 + i/τ)^a with {tau} and {power}"


def _at_edge(value: float, grid: tuple[float, ...]) -> str:
    """Remark on a value at an end of its grid, beyond which others may fit better."""
    which = {min(grid): "least", max(grid): "largest"}.get(value, "")
    return f" (the {which} tried)" * bool(which)


def _fixed_fit(analysis: CorpusAnalysis) -> _Sentences:
    held_out = fitted_scores(analysis)
    if held_out is None:
        return
    first, *tied = distance_groups(best_fixed(analysis))
    stress, width = with_interval(fixed_stress(analysis)[first[0].name]), analysis.dim
    if not beats_equal(analysis):
        yield (
            "no better than equal",
            f"No fixed encoding of width {width} or less fits much better than equal distances "
            f"of all positions: the lowest stress is {stress}.",
        )
        return
    yield (
        "fixed",
        f"The best fixed encoding of width {width} or less, {group_title(first)}, scores {stress}.",
    )
    if tied:
        names = name_list([group_title(group) for group in tied])
        verb = "is" if len(tied) == 1 else "are"
        yield "fixed tied", f"{names} {verb} not significantly worse."
    if len(first) > 1:
        yield "equal distances", "Encodings joined by = have equal distances up to scale."
    best = dict(zip(held_out.widths.tolist(), held_out.best, strict=True))
    others = [
        f"{name} at {width}" for width, (name, *_) in best.items() if name != best[analysis.dim][0]
    ]
    if others:
        yield "other widths", f"At other widths the lowest stress is of {', '.join(others)}."


def _model_fit(analysis: CorpusAnalysis) -> _Sentences:
    """Score of a pretrained model's position vectors; none without a model."""
    stress = fixed_stress(analysis)
    for s in analysis.encodings:
        if s.family == "model" and s.name in stress:
            score = with_interval(stress[s.name])
            yield "model", f"The position vectors of {s.name} score {score} on held-out halves."


def _nearness(analysis: CorpusAnalysis) -> _Sentences:
    if not (verdict := nearness(analysis)):
        return
    text = {
        "more": "Nearer positions hold more similar tokens: nearness {}, where 0 means no order.",
        "less": "Nearer positions hold less similar tokens: nearness {}, where 0 means no order.",
        "rises and falls": "Nearer positions hold more similar tokens, but the farthest are not "
        "the least similar: nearness {}, where 0 means no order.",
        "mixed": "Nearness is {}, but distance does not change steadily with offset.",
        "undecided": "Whether nearer positions hold more similar tokens is not decided: nearness "
        "{}, where 0 means no order.",
        "few": "Nearness, {}, is a matter of where the few positions with most of the variance "
        "are. It does not show that similarity changes with distance.",
    }[verdict]
    yield f"nearness {verdict}", text.format(with_interval(analysis.intervals["nearness"]))


def _gaps(analysis: CorpusAnalysis) -> _Sentences:
    rare, empty = len(analysis.rare_positions), analysis.empty_positions.count
    if rare and analysis.position.positions:
        are_rare = np.isin(np.arange(analysis.length), analysis.rare_positions)
        yield (
            "rare",
            f"{plural(rare, 'position')} ({ranges(are_rare, origin=analysis.origin)}) "
            f"cannot be judged alone: noise hides a difference of typical size, and distances to "
            f"{'it' if rare == 1 else 'them'} are mostly noise.",
        )
    if empty:
        treated = {
            "drop": "no part of the geometry",
            "uniform": "uniform over the vocabulary in the plug-in numbers",
            "zero": "rows of zeros in the plug-in numbers",
        }[analysis.empty_positions.policy]
        are_empty = ranges(analysis.documents_per_position == 0, origin=analysis.origin)
        yield "empty", f"{plural(empty, 'position')} without tokens ({are_empty}): {treated}."


def _bins(analysis: CorpusAnalysis) -> _Sentences:
    if analysis.edges is None:
        return
    widths = np.diff(analysis.edges)
    width = " to ".join(f"{width:,}" for width in np.unique([widths.min(), widths.max()]))
    yield (
        "bins",
        f"A position of this report is a bin of {width} positions: {len(widths):,} bins over the "
        f"first {analysis.edges[-1]:,}. Variation inside a bin is not visible.",
    )


def _dependence(analysis: CorpusAnalysis) -> _Sentences:
    near = analysis.neighbours
    if analysis.group_field is not None:
        groups = f"{plural(analysis.groups, 'group')} by {analysis.group_field!r}"
    elif analysis.groups <= 0.9 * analysis.documents:
        groups = f"{plural(analysis.groups, 'independent group')} of copies and pieces"
    else:
        groups = ""
    if groups:
        count = f"{analysis.documents:,}"
        text = f"The {count} documents form {groups}. Noise is judged between groups."
        yield "groups", text
    if near is not None and near.p_value < _SUSPICION and near.neighbours > _ALIKE:
        yield (
            "neighbours",
            "Documents next to each other in the source are more similar than at random (mean "
            f"cosine {number(near.neighbours)}, p = {near.p_value:.2g}). If they share an author "
            "or a source, intervals are too short: name its column as group_field.",
        )


def _doubts(analysis: CorpusAnalysis) -> _Sentences:
    yield (
        "intervals",
        f"Intervals are 95 %, from half-samples of {analysis.folds} folds of the documents, "
        "calibrated by rotated documents. They do not include the bias of the estimate itself, "
        "such as from rare words.",
    )
    yield "stress", "Stress measures faithfulness to the corpus, not how well a model will do."
    if not analysis.from_counts:
        return
    if analysis.group_field is not None:
        yield "fold of a field", f"Documents of the same {analysis.group_field!r} share a fold."
        return
    yield (
        "fold of copies",
        "Copies of a document share a fold, pieces of a longer one do not. Many pieces overstate "
        "dimensions and understate noise; a count by group_field keeps them together.",
    )


_TOPICS: dict[str, Callable[[CorpusAnalysis], _Sentences]] = {
    "shares": _shares,
    "dimensions": _dimensions,
    "where": _where,
    "letters": letter_sentences,
    "standing out": standing_out,
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
