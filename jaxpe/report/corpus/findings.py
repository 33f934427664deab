"""Meaning of the numbers of a `CorpusAnalysis`, in plain words and with their doubts."""

import math

import numpy as np

from jaxpe.analysis.corpus.result import (
    CorpusAnalysis,
    EncodingScore,
    HeldOutScores,
    Interval,
    resampled_splits,
)
from jaxpe.report.words import Headline, number, percent, plural, ranges

# Scaled stresses nearer than this are called a tie; no reader should choose by the third digit.
TIE = 0.01
# Distances this near, each at its own scale and relative to their size, are the same.
SAME = 1e-3
# A list longer than this names the first two.
MOST_NAMES = 3
# Without an interval, a violation rate within this of 0.5 is not significant.
NEAR_CHANCE = 0.05
_NOTHING_TO_FIT = (
    "There is nothing to fit: no encoding of this corpus is written, and it gives no reason to "
    "prefer one fixed encoding to another."
)


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
        "dimensions": _dimensions,
        "noise": _noise,
        "own fit": _own_fit,
        "held-out fit": _held_out_fit,
        "model fit": _model_fit,
        "fixed fit": _fixed_fit,
        "fitted fit": _fitted_fit,
        "scale": _scale,
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
    'Tokens depend on their position: positions differ in about 6 independent directions ...'
    """
    held_out = analysis.held_out
    if all_alike(analysis) or held_out is None or held_out.dim == 0:
        nothing = "" if analysis.split_half.significant_rank is None else f" {_NOTHING_TO_FIT}"
        return f"{_dimensions(analysis)}{nothing}"
    unknown = analysis.split_half.significant_rank is None
    differ = (
        "Whether tokens depend on their position was not tested against chance."
        if unknown
        else "Tokens depend on their position: positions differ in about "
        f"{plural(held_out.dim, 'independent direction')} that shuffled documents do not show."
    )
    name, fixed = _best_fixed(analysis, held_out)
    return (
        f"{differ} An encoding gives each position a vector; its scaled stress is the mismatch "
        "between distances of these vectors and distances of the token frequencies, from 0 (a "
        f"copy) to 1{_of_random(analysis)}. Vectors of {plural(held_out.dim, 'number')} fitted to "
        "half of the documents have scaled stress "
        f"{with_interval(own_stress(held_out))} on the other half; the best fixed encoding of "
        f"width {analysis.dim}, {name}, has {with_interval(fixed)}. {_model_fit(analysis)} "
        f"{_advice(held_out)} Stress measures faithfulness to the corpus, not how well a model "
        "will do."
    ).replace("  ", " ")


def _of_random(analysis: CorpusAnalysis) -> str:
    """Stress of random vectors: well below 1, since most distances are alike."""
    scores = {score.name: score.split_half_scaled_stress for score in analysis.encodings}
    stress = scores.get("random", math.nan)
    return f"; random vectors have {number(stress)}" if math.isfinite(stress) else ""


def own_stress(held_out: HeldOutScores) -> Interval:
    """Stress of the corpus' own encoding on held-out halves."""
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
        return (
            "The difference is within its interval: a fixed encoding shows the corpus as well as a "
            "fitted one."
        )
    return (
        "To give a model the geometry of this corpus, use the fitted vectors, which are in "
        "encoding.npz."
    )


def _best_fixed(analysis: CorpusAnalysis, held_out: HeldOutScores) -> tuple[str, Interval]:
    """The fixed encoding of least stress, with those of the same distances, and its stress."""
    first, *_ = alike(corrected_best(analysis))
    return title_of(first), held_out_stress(analysis)[first[0].name]


def headlines(analysis: CorpusAnalysis) -> list[Headline]:
    """The six numbers on top of the page and in the console table."""
    low_high = _spread(analysis.intervals.get("split_half_violation_rate"))
    rank, empty = analysis.split_half.significant_rank, analysis.empty_positions.count
    return [
        Headline(
            "Significant dimensions",
            "unknown" if rank is None else str(rank),
            f"{analysis.plug_in.rank} with noise",
        ),
        *_held_out_headlines(analysis),
        Headline(
            "Noise in the observed variance",
            _noise_value(analysis.plug_in.noise_share),
            _spread(analysis.intervals.get("noise_share")) or "no interval",
        ),
        Headline(
            "Order violated",
            percent(analysis.split_half.violation_rate),
            low_high or "50 % is chance",
        ),
        Headline(
            "Positions too rare to judge",
            f"{len(analysis.rare_positions)} of {analysis.length}",
            f"{empty} more are empty" if empty else "none is empty",
        ),
    ]


def _held_out_headlines(analysis: CorpusAnalysis) -> list[Headline]:
    held_out = analysis.held_out
    own, fixed = "Fitted encoding, held-out stress", "Best fixed encoding, held-out stress"
    if held_out is None or held_out.dim == 0:
        return [Headline(own, "none", "nothing to fit"), Headline(fixed, "none", "nothing to fit")]
    stress, best_fixed = own_stress(held_out), _best_fixed(analysis, held_out)[1]
    return [
        Headline(own, number(stress.estimate), f"{held_out.dim} wide, {_range(stress)}"),
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
    """+1 if nearer positions are more alike, −1 if less alike, 0 if neither is significant.

    The plug-in rate is not used: positions with fewer documents look farther from all others.
    """
    rate = analysis.split_half.violation_rate
    interval = analysis.intervals.get("split_half_violation_rate") or Interval(
        rate, rate - NEAR_CHANCE, rate + NEAR_CHANCE
    )
    return int(interval.high < 0.5) - int(interval.low > 0.5)


def best(analysis: CorpusAnalysis, field: str) -> list[EncodingScore]:
    """The fixed encodings whose `field` is lowest, ties included, best first.

    Trainable encodings are left out: their initial values do not predict the trained ones. None
    where all distances are zero, which every encoding fits.
    """
    if not analysis.plug_in.trace > 0:
        return []
    scored = [s for s in analysis.encodings if s.fixed and math.isfinite(getattr(s, field))]
    # Rounded, so that encodings with the same distances stay in the order of the table.
    scored.sort(key=lambda score: round(getattr(score, field), 6))
    return [s for s in scored if getattr(s, field) - getattr(scored[0], field) < TIE]


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
    rank, null = analysis.split_half.significant_rank, number(analysis.split_half.null_eigenvalue)
    level = f"the level that shuffled positions exceed in 5 % of cases ({null})"
    if not analysis.split_half.positions and analysis.groups < 2:
        return (
            "All documents are copies or pieces of one another. They are one piece of evidence, so "
            "nothing here is distinguishable from noise."
        )
    if not analysis.split_half.positions:
        return (
            "No position has enough documents in both halves of every split, so nothing here is "
            "distinguishable from noise. Use more documents or a shorter length."
        )
    if rank is None:
        return (
            "How many dimensions of position are real was not judged: the counts hold no corpora "
            "with shuffled positions. Count with nulls, 20 for instance. The plug-in distances "
            f"alone would suggest {analysis.plug_in.rank}."
        )
    if rank == 0:
        return (
            "No positional structure is distinguishable from noise here: no eigenvalue of the "
            f"noise-corrected geometry rises above {level}. It may still exist, below what "
            f"{plural(analysis.documents, 'document')} can show."
        )
    rises = "eigenvalue rises" if rank == 1 else "eigenvalues rise"
    return (
        f"Position has about {plural(rank, 'significant dimension')}: {rank} {rises} above "
        f"{level}. "
        f"The plug-in distances alone would suggest {analysis.plug_in.rank}."
        + (f" That is so if {_assumed(analysis)}." if analysis.folds else "")
    )


def _noise(analysis: CorpusAnalysis) -> str:
    share = analysis.plug_in.noise_share
    if not analysis.split_half.positions or math.isnan(share):
        return ""
    if share > 1:
        return (
            "All of the plug-in variance may be noise: the noise-corrected variance came out "
            f"negative ({number(analysis.split_half.trace)}), which happens by chance when the "
            "truth is near zero."
        )
    if share <= 0:
        return "No sampling noise is visible in the plug-in distances."
    interval = _spread(analysis.intervals.get("noise_share"))
    return (
        f"About {percent(share)} of the plug-in variance between positions is sampling noise"
        f"{f' ({interval})' if interval else ''}. The estimate leans high: signal carried only by "
        "rare tokens is partly counted as noise."
    )


def _own_fit(analysis: CorpusAnalysis) -> str:
    held_out = analysis.held_out
    if held_out is None or held_out.dim == 0:
        return ""
    means = [stress.estimate for stress in held_out.own]
    least = 1 + int(np.argmin(means))
    text = (
        f"MDS of half of the documents, {held_out.dim} wide, has scaled stress "
        f"{with_interval(own_stress(held_out))} on the other half, over "
        f"{plural(held_out.splits, 'random split')}"
    )
    if least != held_out.dim:
        text += f"; least is {number(means[least - 1])}, at width {least}"
    if len(means) > max(least, held_out.dim):
        text += (
            f". Wider encodings fit the noise of their half ({number(means[-1])} at width "
            f"{len(means)})"
        )
    if held_out.gain is not None:
        text += (
            f". The best fixed encoding of width {analysis.dim} has "
            f"{with_interval(held_out.gain)} more"
        )
    return f"{text}."


def _held_out_fit(analysis: CorpusAnalysis) -> str:
    held_out = analysis.held_out
    if held_out is None or held_out.dim == 0:
        return ""
    name, stress = _best_fixed(analysis, held_out)
    _, *tied = [title_of(group) for group in alike(corrected_best(analysis))]
    text = (
        f"Of the fixed encodings of width {analysis.dim}, {name} has the least stress on held-out "
        f"halves, {with_interval(stress)}"
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
        text += f". At other widths it is different: {', '.join(others)}"
    return f"{text}."


def _model_fit(analysis: CorpusAnalysis) -> str:
    """Sentences on the table of a pretrained model, where one was read."""
    tested = held_out_stress(analysis)
    names = [s.name for s in analysis.encodings if s.family == "model" and s.name in tested]
    return " ".join(
        f"The position vectors of {name} have scaled stress {with_interval(tested[name])} on "
        "held-out halves."
        for name in names
    )


def _fixed_fit(analysis: CorpusAnalysis) -> str:
    plug_in = best(analysis, "scaled_stress")
    if not plug_in:
        return ""
    tied = alike(plug_in)
    if len(tied) == len(alike([s for s in analysis.encodings if s.fixed])) > 1:
        text = (
            f"At equal scale all fixed encodings ({_names(plug_in)}) fit the plug-in distances "
            f"equally well ({_score(plug_in, 'scaled_stress')}): these do not tell them apart."
        )
    else:
        text = (
            f"Against the plug-in distances, noise included, {_names(plug_in)} {_fits(plug_in)} "
            f"best at equal scale ({_score(plug_in, 'scaled_stress')})."
        )
    if "random" in [score.name for score in plug_in]:
        text += (
            " That random vectors are among the best means that these distances are nearly all "
            "equal, as noise makes them."
        )
    if " (= " in text:
        text += " Encodings joined by = have the same distances, but perhaps for their scale."
    return text


def _fitted_fit(analysis: CorpusAnalysis) -> str:
    fitted = [score for score in analysis.encodings if score.fitted]
    if not fitted or all_alike(analysis):
        return ""
    text = (
        f"{_listed([s.name for s in fitted])} {'is' if len(fitted) == 1 else 'are'} fitted to the "
        "plug-in distances, noise included, so a low stress there proves nothing by itself."
    )
    if analysis.split_half.significant_rank != 0:
        fit = _score(fitted, "split_half_scaled_stress")
        text += f" Against the noise-corrected geometry: {fit}."
    return text


def _scale(analysis: CorpusAnalysis) -> str:
    by_raw, by_scaled = best(analysis, "stress"), best(analysis, "scaled_stress")
    if not by_raw or by_raw[0] in by_scaled:
        return ""
    return (
        f"Raw stress, Eq. (4), would choose {by_raw[0].name} ({number(by_raw[0].stress)}), mostly "
        "because of its scale: a model can rescale an encoding freely, so compare at equal scale."
    )


def _nearness(analysis: CorpusAnalysis) -> str:
    rate = analysis.split_half.violation_rate
    if math.isnan(rate):
        return ""
    verdict = {
        1: "Nearer positions tend to hold more similar tokens",
        0: "Whether nearer positions hold more similar tokens is not decided: not significant",
        -1: "Nearer positions tend to hold less similar tokens, so the structure is not a gradient",
    }[nearness(analysis)]
    interval = _spread(analysis.intervals.get("split_half_violation_rate"))
    return (
        f"{verdict}: of all triples, {percent(rate)}{f' ({interval})' if interval else ''} put the "
        f"nearer position at the larger distance, where chance gives {percent(0.5)}. With the "
        f"plug-in distances it is {percent(analysis.plug_in.violation_rate)}."
    )


def _gaps(analysis: CorpusAnalysis) -> str:
    empties = analysis.documents_per_position == 0
    rare, empty = len(analysis.rare_positions), analysis.empty_positions.count
    texts = []
    if rare and analysis.split_half.positions:
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
    if analysis.groups > 0.9 * analysis.documents:
        return ""
    return (
        f"Many documents are pieces of others: the {analysis.documents:,} of them form about "
        f"{plural(analysis.groups, 'independent group')}, and noise is judged by these."
    )


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
        "dimensions are overstated and noise is understated (a report on a sample of the "
        "documents finds pieces; a count with `group_field` keeps them together)."
    )


def _doubts(analysis: CorpusAnalysis) -> str:
    if analysis.folds:
        return (
            f"Intervals are 95 %, from a jackknife over {analysis.folds} folds of the documents. "
            f"{_kept_together(analysis)} A bias of the estimate itself, as from rare words, is "
            "not in them. Stress measures faithfulness to the corpus, not how well a model will do."
        )
    if analysis.bootstrap == 0:
        return "No intervals were computed (bootstrap = 0): read every number as a point estimate."
    resamples = plural(analysis.bootstrap, "bootstrap resample")
    halved = plural(resampled_splits(analysis.splits), "time")
    return (
        "Intervals are 95 %: those of held-out stress from half-samples, the others from "
        f"{resamples} of the documents, each halved {halved}. A bias of the estimate itself, as "
        "from rare words, is not in them. Stress measures faithfulness to the corpus, not how well "
        "a model will do."
    )


def _noise_value(share: float) -> str:
    if share > 1:
        return "all of it"
    return "none seen" if share <= 0 else percent(share)


def with_interval(interval: Interval) -> str:
    """An estimate and its interval."""
    return f"{number(interval.estimate)} ({_range(interval)})"


def _range(interval: Interval) -> str:
    return f"{number(interval.low)} to {number(interval.high)}"


def _spread(interval: Interval | None) -> str:
    return f"interval {percent(interval.low)} to {percent(interval.high)}" if interval else ""


def _names(scores: list[EncodingScore]) -> str:
    return _listed([title_of(group) for group in alike(scores)])


def _listed(names: list[str]) -> str:
    if len(names) > MOST_NAMES:
        return f"{names[0]}, {names[1]} and {len(names) - 2} others"
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names) or "none"


def _fits(scores: list[EncodingScore]) -> str:
    return "fits" if len(alike(scores)) == 1 else "fit"


def _score(scores: list[EncodingScore], field: str) -> str:
    values = [value for s in scores if math.isfinite(value := getattr(s, field))]
    if not values:
        return "nothing to fit"
    low, high = number(min(values)), number(max(values))
    return f"scaled stress {low}" + (f" to {high}" if high != low else "")
