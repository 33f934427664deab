"""Page of `jaxpe report`: how much position tells in a corpus, where, and what fits it."""

import dataclasses
import functools
import itertools
import math
from typing import Any

import numpy as np

from jaxpe._core.options import command_line
from jaxpe.analysis.corpus.result import (
    POWERS,
    TAUS,
    CorpusResult,
    HeldOutScores,
    Interval,
    Reach,
)
from jaxpe.data.corpora.load import MARKUP, SAMPLE
from jaxpe.encodings.families.vector_files import vectors_file
from jaxpe.geometry.noise.cross_validation import DEFAULT_HALF_NULLS
from jaxpe.geometry.noise.position import DEFAULT_NULLS
from jaxpe.report.findings import Finding, Page, Section, Table
from jaxpe.report.numbers import (
    interval_texts,
    name_list,
    number,
    percent,
    position_name,
    ranges,
    visible,
)
from jaxpe.report.pages import letters
from jaxpe.report.pages.corpus_figures import corpus_figures
from jaxpe.report.training_advice import training_finding
from jaxpe.report.writing import page

ENCODING = "encoding.npz"  # the vectors fitted to all documents
_MUCH = 0.1  # part of the stress of equal distances
# Few positions make the variance if they have this share of it and are at most a part of all.
_MOST, _FEW_PART = 0.9, 1 / 5
# Rank correlation of distance and offset from which a curve has a trend.
_TREND, _LEAST_OFFSETS = 0.5, 3
_LEAST_PAIRS = 1 / 10  # pairs at an offset that is judged, as a part of the positions
_FEW_REACH = 0.9  # share of documents at the last position below which few reach it
_LIKE_COMPOSITION = 0.3  # correlation from which position resembles composition
_SUSPICION, _ALIKE = 0.01, 0.01  # p-value and cosine from which neighbours may share a source
_GROUPED = 0.9  # part of the documents up to which copies and pieces are worth a word
_CLIPPED = 0.005  # part of a share outside [0, 1] from which it is said
_MORE = 4  # times as many documents halve the standard error
_TOKENS = 3  # most frequent tokens of a position on the page
_DATA = {"sst2": "SST-2 [@socher2013]", "imdb": "IMDB [@maas2011]"}
_NULL_FAILS = "the null does not hold"
_UNDEFINED = Interval(math.nan, math.nan, math.nan)
_INDEPENDENT = "Use more documents that are independent."
# Of the number of dimensions: verdict, what it means, and what to do.
_DIMENSIONS = {
    "one position": ("not judged: one token a document", "There are no distances.",
                     "Documents have one token each: read their letters instead."),
    "no variance": ("no variance", "All positions have the same tokens.", ""),
    "one group": ("not judged: one observation",
                  "All documents are copies or pieces of one another.", _INDEPENDENT),
    "no halves": ("not judged: too few documents",
                  "No position has documents in both halves of every split.", _INDEPENDENT),
    "none": ("none above chance", "An effect may exist below what so few documents show.", ""),
    "only rare": ("no position can be judged alone",
                  "Do not trust a map, a distance or the fit of an encoding.", ""),
    "found": ("above chance", "As many axes rise above rotated documents.", ""),
}  # fmt: skip
_MORE_ALIKE = "nearer positions are more alike"
_RISES_AND_FALLS = "nearer ones are more alike, the farthest are not the least"
_SHARES = {
    "position": "",
    "noise": "What other documents would not repeat.",
    "composition": "What rotated documents show as well: who gets there, and what ends documents.",
}
_count = functools.partial(Finding, unit="count")


@page.register
def corpus_page(result: CorpusResult) -> Page:
    """Page of a corpus: the effect of position, where it is, its geometry, and what fits it."""
    share, *parts = share_findings(result)
    first, *others = [bits_findings(result, end) for end in reaches(result)] or [[]]
    (best, *fits), of_letters = encoding_findings(result), letters.findings(result)
    lead, left = [share, dimensions(result), *first[:2], best], first[2:]
    if letters.is_sequences(result):
        lead, left = [*of_letters[:2], *lead[:2], *first[:1]], first[1:]
        of_letters, fits = of_letters[2:], [best, *fits]
    told = [*parts, *left, *(bits for bits, *_ in others), *geometry_findings(result)]
    told += [*letters.standing_out(result), *_noisy(result)]
    more = [*itertools.chain(*(rest for _, *rest in others)), *_further(result)]
    rows = [tuple(visible(x, limit=400) for x in choice) for choice in result.choices]
    choices = Table("Choices", ("setting", "value", "why", "how to set it"), rows)
    sections = (
        *letters.sections(result, of_letters),
        Section("How much position tells, and where", told, figures=corpus_figures(result)),
        Section("Encodings", fits, [_encoding_table(result)], folded=result.letters is not None),
        Section("Documents", document_findings(result), folded=True),
        Section("Further numbers", more, folded=True),
        Section("Most frequent tokens", tables=[_token_table(result)], folded=True),
        Section("What was chosen for you", tables=[choices], folded=True),
    )
    held_out, facts, options = fitted_scores(result), result.facts, result.options
    return Page(
        "report",
        f"What position tells about tokens in {facts.name}",
        f"{facts.documents:,} documents, {facts.tokens:,} tokens, {_positions(result)}, tokenizer "
        f"{facts.tokenizer}",
        lead,
        [x for x in sections if x.findings or x.figures or any(table.rows for table in x.tables)],
        {"vocabulary": f"{facts.vocab_size:,}", "empty positions": options.empty or "drop"},
        methods(result),
        {ENCODING: None if held_out is None else vectors_file(held_out.vectors)},
    )


def share_findings(result: CorpusResult) -> list[Finding]:
    """Position, noise and composition in the observed variance.

    Estimates are within [0, 1], since noise may put them slightly outside; intervals, and numbers
    where the null fails, are as computed.
    """
    fails, found = null_fails(result), []
    for name, sentence in _SHARES.items():
        share = result.intervals.get(f"{name}_share", _UNDEFINED)
        if not fails and max(-share.estimate, share.estimate - 1) >= _CLIPPED:
            sentence = "Noise puts the estimate outside 0 to 100 %; it is shown at the bound."
        if not fails:
            share = share._replace(estimate=min(max(share.estimate, 0.0), 1.0))
        found.append(Finding(f"share of {name}", *share, unit="share", sentence=sentence))
    verdict = "found" if found[0].low > 0 else "not shown: the interval includes 0"
    verdict = "not judged" if math.isnan(found[0].low) else verdict
    name = "position’s share of the variance"
    found[0] = found[0]._replace(name=name, verdict=_NULL_FAILS if fails else verdict)
    return found


def null_fails(result: CorpusResult) -> bool:
    """Whether bits or the share of position are significantly below 0, which the null rules out."""
    ends = [reach.bits for reach in (result.where.start, result.where.end) if reach is not None]
    return any(x.high < 0 for x in [*ends, result.intervals.get("position_share", _UNDEFINED)])


def dimensions(result: CorpusResult) -> Finding:
    """Number of significant dimensions, or why there is none."""
    position, kind = result.position, dimensions_kind(result)
    one = _count("significant dimensions", position.significant_rank)
    verdict, sentence, todo = _DIMENSIONS[kind]
    one = one._replace(verdict=verdict, sentence=sentence, todo=todo)
    if kind == "one position":
        return one._replace(paste=_command(result, tokenizer="characters"))
    if kind not in ("none", "only rare", "found"):
        return one
    sign = "≤" if position.significant_rank else "="  # a bound: few documents are shuffled
    against = f"p {sign} {position.p_value:.2g}; counted with noise"
    return one._replace(reference=result.observed.rank, against=against)


def dimensions_kind(result: CorpusResult) -> str:
    """Basis of the number of dimensions, a key of `_DIMENSIONS`."""
    rank, present = result.position.significant_rank, np.flatnonzero(result.position.present)
    if np.count_nonzero(result.documents_per_position) == 1:
        return "one position"
    if result.observed.trace <= 0:
        return "no variance"
    if not len(present):
        return "one group" if result.facts.groups < 2 else "no halves"
    if rank and np.isin(present, result.rare_positions).all():
        return "only rare"
    return "found" if rank else "none"


def reaches(result: CorpusResult) -> dict[str, Reach]:
    """Information of positions by the end they are counted from, the largest significant first.

    Aligned documents have one end.
    """
    end = None if result.facts.origin else result.where.end
    found = {"start": result.where.start, "end": end}.items()
    known = [(name, reach) for name, reach in found if reach is not None]
    return dict(sorted(known, key=lambda x: (x[1].half is None, -x[1].bits.estimate)))


def bits_findings(result: CorpusResult, end: str) -> list[Finding]:
    """Bits per token from one end, and the numbers of positions that carry half and most."""
    reach, sentence = reaches(result)[end], "What knowing the position saves."
    verdict = "not significant" if reach.half is None else "significant"
    if letters.is_sequences(result):
        sentence = "A mean over positions, against the composition of all of them."
    if reach.bits.high < 0:
        verdict, sentence = _NULL_FAILS, "More than the last token may decide where documents end."
    name = "bits per token" + f", from the {end}" * (len(reaches(result)) > 1)
    of = "" if end == "start" or result.facts.uncut is None else f"of {result.facts.uncut:,} uncut"
    found = [Finding(name, *reach.bits, against=of, verdict=verdict, sentence=sentence)]
    which = {"start": "first", "end": "last"}[end]
    for share, size in (("half", reach.half), ("90 %", reach.most)):
        if size is not None and not result.facts.origin:
            found.append(_count(f"{which} positions with {share} of the bits", *size))
    return found


def geometry_findings(result: CorpusResult) -> list[Finding]:
    """Few positions that make the variance, the first dimension, and how distance grows."""
    position, found, (main, share) = result.position, [], main_positions(result)
    if len(main):
        at = ranges(_mask(result, main), origin=result.facts.origin)
        found.append(Finding(f"share of position’s variance at {at}", share, unit="share"))
    interval, verdict = result.intervals.get("nearness"), nearness(result)
    if interval is not None and not result.facts.origin:
        order = Finding("nearness", *interval, reference=0.0, against="no order")
        meaning = "Mean of d²(i, k) − d²(i, j) over mean of their sum, for |i − j| < |i − k|."
        found.append(order._replace(verdict=verdict, sentence=meaning))
    if verdict in (_MORE_ALIKE, _RISES_AND_FALLS) and position.half_distance is not None:
        found.append(Finding("half-distance", *position.half_distance, unit="positions"))
    r = position.composition_correlation
    if few_reach(result) and position.significant_rank and r >= _LIKE_COMPOSITION:
        verdict = "both may change towards the end"
        found.append(Finding("correlation with composition, first axes", r, verdict=verdict))
    return found


def main_positions(result: CorpusResult) -> tuple[np.ndarray, float]:
    """Positions with nine tenths of the variance of position, if these are few, and their share.

    Empty if more than a fifth of the positions have as much, or if none can be judged.
    """
    position, present = result.position, np.flatnonzero(result.position.present)
    if dimensions_kind(result) != "found":
        return present[:0], 0.0
    means = position.squared_distances[np.ix_(present, present)].mean(axis=1, dtype=float)
    parts = np.clip(means - means.mean() / 2, 0, None)  # squared distances to the centroid
    order = np.argsort(-parts, kind="stable")
    shares = np.cumsum(parts[order]) / max(parts.sum(), np.finfo(float).tiny)
    few = 1 + int(np.argmax(shares >= _MOST))
    if few > _FEW_PART * len(present):
        return present[:0], 0.0
    return np.sort(present[order[:few]]), float(shares[few - 1])


def nearness(result: CorpusResult) -> str:
    """Verdict on nearness; not judged without a dimension, and at a site, where it only says where.

    Not decided if the interval contains 0. If few positions have nearly all variance, nearness says
    where these are. Distance does not change steadily if the rank correlation of distance and
    offset disagrees. Offsets with few pairs of positions are left out.
    """
    interval, position = result.intervals.get("nearness"), result.position
    if interval is None or position.significant_rank == 0 or result.facts.origin:
        return "not judged: no significant dimension"
    if interval.low <= 0 <= interval.high:
        return "not decided"
    if len(main_positions(result)[0]):
        return "few positions make it"
    mixed = "distance does not change steadily"
    mean, low, high = position.by_offset
    present = position.present.astype(int)
    pairs = np.correlate(present, present, "full")[len(present) :]  # at offsets 1, 2, ...
    enough = pairs >= _LEAST_PAIRS * position.positions
    offsets = np.flatnonzero(np.isfinite(mean + low + high) & enough)
    if len(offsets) < _LEAST_OFFSETS:
        return mixed
    order = np.argsort(mean[offsets])  # correlates as the ranks, its inverse
    r = np.corrcoef(order, np.arange(len(order)))[0, 1]
    if np.sign(interval.low) * r < _TREND:
        return mixed
    peak = offsets[np.argmax(mean[offsets])]
    if interval.low < 0:
        return "nearer positions are less alike"
    return _RISES_AND_FALLS if low[peak] > high[offsets[-1]] else _MORE_ALIKE


def few_reach(result: CorpusResult) -> bool:
    """Whether few documents reach the last position with tokens."""
    reach = result.documents_per_position
    return bool(next(iter(reach[reach > 0][::-1]), 0) < _FEW_REACH * result.facts.documents)


def document_findings(result: CorpusResult) -> list[Finding]:
    """Documents and positions that are cut, empty, dependent or left out."""
    facts, reach, empty = result.facts, result.documents_per_position, result.empty_positions
    found, tokens = [], np.flatnonzero(reach)
    if len(tokens):
        label = f"documents at position {position_name(int(tokens[-1]), facts.origin)}"
        how = "counts of documents of one length" if facts.from_counts else "--cohort"
        sentence = f"Far positions belong to long documents; {how} would compare equal ones."
        said = {"verdict": "few reach it", "sentence": sentence} if few_reach(result) else {}
        found.append(_of(label, int(reach[tokens[-1]]), facts.documents, **said))
    if facts.cut:
        label = f"documents cut at {facts.length:,} tokens"
        found.append(_of(label, facts.cut, facts.documents))
    found += _dependence(result)
    if empty:
        sentence = f"Positions {ranges(reach == 0, origin=facts.origin)}."
        found.append(_count("positions without tokens", empty, sentence=sentence))
    if facts.null_texts:
        found.append(_count("rows without text, left out", facts.null_texts))
    for choice in (each for each in result.choices if each.setting == MARKUP):
        todo = f"HTML tags count as tokens: {choice.how.replace('`', '')}."
        found.append(Finding("HTML tags", choice.value, verdict=choice.why, todo=todo))
    return found


def _of(label: str, value: int, total: int, **said: str) -> Finding:
    """A number out of a total."""
    return _count(label, value, reference=total, against="of", **said)


def _noisy(result: CorpusResult) -> list[Finding]:
    """Positions too noisy to judge, with what lessens the noise."""
    facts, rare = result.facts, result.rare_positions
    if not len(rare):
        return []
    judged = facts.length - len(rare) - result.empty_positions
    copies = " that are not copies" * (facts.groups < 2)
    todo, paste = f"Add documents{copies}, which lessens the noise.", ""
    if judged and not facts.origin and min(rare) >= judged and not facts.from_counts:
        todo = todo.replace(",", ", or leave out far positions,")
        paste = _command(result, length=judged)
    for sample in (choice.value for choice in result.choices if choice.setting == SAMPLE):
        read, count = (int(x.replace(",", "")) for x in sample.split(" of "))
        todo = f"Raise --limit, which lessens the noise: {sample} documents were read."
        paste = _command(result, limit=min(count, _MORE * read))
    if facts.edges is not None:
        todo = paste = ""
    said = {"verdict": "" if judged else "no position can be judged alone", "todo": todo}
    at = f"Positions {ranges(_mask(result, rare), origin=facts.origin)}."
    label = "positions too noisy to judge alone"
    return [_of(label, len(rare), facts.length, sentence=at, paste=paste, **said)]


def _dependence(result: CorpusResult) -> list[Finding]:
    """Groups of dependent documents, and likeness of neighbours in the source."""
    facts, near, found = result.facts, result.neighbours, []
    field, grouped = facts.group_field, facts.groups <= _GROUPED * facts.documents
    if grouped or facts.from_counts or field is not None:
        label = f"groups of documents by {'copies and pieces' if field is None else repr(field)}"
        sentence = "Noise is judged between groups."
        if facts.from_counts and field is None:
            sentence = "Pieces of a longer document count as independent, and overstate dimensions."
        found.append(_of(label, facts.groups, facts.documents, sentence=sentence))
    if near is not None:
        alike = near.p_value < _SUSPICION and near.neighbours > _ALIKE
        verdict = "alike: intervals are too short" if alike else "no more alike"
        todo = "Documents next to each other are alike: pass --group-field if they share an author."
        label, against = "cosine of neighbours in the source", f"p = {near.p_value:.2g}; at random"
        one = Finding(label, near.neighbours, reference=near.at_random, against=against)
        found.append(one._replace(verdict=verdict, todo=todo * alike))
    return found


def fitted_scores(result: CorpusResult) -> HeldOutScores | None:
    """Scores on held-out halves; None without a significant dimension."""
    held_out = result.held_out
    return held_out if held_out is not None and held_out.dim else None


def beats_equal(held_out: HeldOutScores) -> bool:
    """Whether the best fixed encoding has a tenth less stress than equal distances, or more."""
    over = held_out.over_equal
    return over.low > 0 and over.estimate > _MUCH * held_out.equal.estimate


def encoding_findings(result: CorpusResult) -> list[Finding]:
    """Held-out stress of the best fixed encoding, of the fitted one, and what to train."""
    held_out, train = fitted_scores(result), []
    judged = result.facts.length - len(result.rare_positions) - result.empty_positions
    text = not letters.is_sequences(result) and dimensions_kind(result) != "one position"
    if judged and text:
        train = [training_finding(result.options, found=held_out is not None)]
    if held_out is None:
        sentence = "encoding.npz is not written, and no fixed encoding is preferable."
        none = Finding("best encoding", "none", verdict="nothing to fit", sentence=sentence)
        return [none, *train]
    dim, best = held_out.dim, held_out.best[0]
    less, low, high = interval_texts(*held_out.over_equal)
    against = f"less than equal distances by {less} ({low} to {high})"
    verdict, sentence = "best of the fixed encodings", "Of the fixed encodings it fits best."
    if held_out.over_equal.low <= 0:
        verdict = "not shown to beat equal distances"
        sentence = "No fixed encoding is shown to fit better than equal distances do."
    elif not beats_equal(held_out):
        verdict = "little better than equal distances"
        sentence = "No fixed encoding fits much better than equal distances do."
    said = {"against": against, "verdict": verdict, "sentence": sentence}
    fixed = Finding(f"held-out stress of {best}", *held_out.fixed[best], **said)
    widest = ", the widest tried" * (dim < result.position.significant_rank)
    label = f"held-out stress of the fitted encoding, dimension {dim}{widest}"
    fitted = Finding(label, *held_out.own[dim - 1], sentence="It is in encoding.npz.")
    return [fixed, fitted, *train]


def _further(result: CorpusResult) -> list[Finding]:
    """Largest eigenvalue, ties of the best encoding, its gain, and one number a position."""
    position, held_out, found = result.position, fitted_scores(result), []
    if dimensions_kind(result) in ("none", "only rare", "found"):
        level = {"reference": position.null_eigenvalue, "against": "level of rotated corpora"}
        largest = float(position.rank_eigenvalues[0])
        found.append(Finding("largest eigenvalue, weighted by documents", largest, **level))
    if held_out is None:
        return found
    best, *tied = held_out.best
    if tied:
        found.append(Finding("not significantly worse", name_list(tied)))
    if (gain := held_out.gain) is not None:
        verdict = "the fixed one is better" if gain.high < 0 else "not decided"
        verdict = "the fitted one is better" if gain.low > 0 else verdict
        found.append(Finding(f"stress of {best} less the fitted one", *gain, verdict=verdict))
    tau, power = held_out.tau, held_out.power
    curve = (
        f"(1 + i/τ)^a, τ = {tau:g}, a = {number(power)}" if power else f"log(1 + i/τ), τ = {tau:g}"
    )
    edge = tau in (TAUS[0], TAUS[-1]) or power in (POWERS[0], POWERS[-1])
    one = Finding("held-out stress of one number", *held_out.one_number, against=curve)
    return [*found, one._replace(verdict="at an end of what was tried" * edge)]


def _encoding_table(result: CorpusResult) -> Table:
    """Fit of the encodings, by family."""
    families = list(dict.fromkeys(score.family for score in result.encodings))
    held_out, dim, rows = result.held_out, result.options.dim, []
    for score in sorted(result.encodings, key=lambda x: families.index(x.family)):
        held, family = "", score.family + f", width {score.dim}" * (score.dim != dim)
        if held_out is not None and score.name in held_out.fixed:
            value, low, high = interval_texts(*held_out.fixed[score.name])
            held = f"{value} ({low}–{high})"
        stresses = number(score.scaled_stress), number(score.position_scaled_stress), held
        others = percent(score.violation_rate), number(score.mantel_r, 2)
        rows.append((score.name, family, *stresses, *others))
    stresses = "observed", "position", "held out"
    note = (
        "Scaled stress: Σ (e − d)² / Σ d², Eq. (4), of distances e at their best scale; 0 copies "
        "the distances d. It does not say how well a model learns. Mantel r: correlation with "
        "distances of position."
    )
    header = ("encoding", "family", *stresses, "violation rate", "Mantel r")
    return Table("Fit of the encodings", header, rows, note)


def _token_table(result: CorpusResult) -> Table:
    rows = []
    for position, tokens in result.top_tokens:
        cells = [f"{visible(x.token, limit=40)} {x.count:,}" for x in tokens[:_TOKENS]]
        cells += [""] * (_TOKENS - len(cells))
        rows.append((position_name(position, result.facts.origin), *cells))
    header = ("position", *(f"{k + 1}" for k in range(_TOKENS)))
    return Table("Most frequent tokens", header, rows)


def _positions(result: CorpusResult) -> str:
    facts = result.facts
    if facts.origin:
        first, last = (position_name(i, facts.origin) for i in (0, facts.length - 1))
        return f"positions {first} to {last} around a site"
    if facts.edges is not None:
        return f"the first {facts.edges[-1]:,} positions, in {facts.length:,} bins"
    return f"the first {facts.length:,} positions"


def methods(result: CorpusResult) -> str:
    """Paragraph of methods: what was counted, the estimators, and what was tested."""
    facts, options = result.facts, result.options
    field, nulls = facts.group_field, "" if facts.from_counts else f"{DEFAULT_NULLS} "
    groups = "copies and near-copies" if field is None else f"equal {field!r}"
    sample = [choice.value for choice in result.choices if choice.setting == SAMPLE]
    documents = f"a random sample of {sample[0]}" if sample else f"{facts.documents:,}"
    parts = [
        f"Tokens of {documents} documents in {facts.groups:,} groups of {groups} ({facts.tokens:,} "
        f"tokens, tokenizer {visible(facts.tokenizer)}) were counted at {_positions(result)}."
    ]
    if facts.unknown_tokens:
        parts.append(
            f"Of these, {facts.unknown_tokens:,} outside the vocabulary count as one word."
        )
    if "start" in reaches(result):
        words, tokens = result.where.words, result.where.tokens
        parts.append(
            "Bits per token are the mutual information of position and token, with Miller's "
            "correction of each entropy [@miller1955], less its mean over "
            f"{DEFAULT_HALF_NULLS} corpora of rotated documents. They are of the {words:,} words "
            f"in at least two of {facts.folds} folds of the groups ({tokens:,} tokens); words in a "
            f"single fold ({facts.tokens - tokens:,} tokens) are left out."
        )
    parts.append(
        "Squared Hellinger distances between positions [@cirrincione2026] are products of disjoint "
        f"halves of the documents, averaged over {options.splits} splits, less those of "
        f"{nulls}rotated corpora, "
        "in which each document is rotated by a random offset, its last token in place [@jaxpe]. "
        "A dimension is significant if (1 + b)/(1 + m) ≤ 0.05, where b of the m rotated corpora "
        f"exceed its eigenvalue. Intervals (95 %) are of balanced half-samples of {facts.folds} "
        "folds [@mccarthy1969]; those of the geometry are calibrated on rotated documents. Scaled "
        f"stress of encodings (width {options.dim}) is on held-out halves."
    )
    sources = [] if facts.from_counts else np.atleast_1d(options.source).tolist()
    cited = ", ".join(_DATA[name] for name in sources if name in _DATA)
    parts += [letters.methods(result), f"Data sets: {cited}." * bool(cited)]
    return " ".join([*filter(None, parts), f"Seed {options.seed}."])


def _command(result: CorpusResult, **changes: Any) -> str:
    """The command of this report with changes."""
    return command_line("report", dataclasses.replace(result.options, **changes))


def _mask(result: CorpusResult, positions: np.ndarray) -> np.ndarray:
    return np.isin(np.arange(result.facts.length), positions)
