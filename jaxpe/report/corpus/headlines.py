"""Headlines of a `CorpusAnalysis`: numbers on top of the page and in the console."""

import math

import numpy as np

from jaxpe.analysis.corpus.result import CorpusAnalysis, Interval, Reach, Where
from jaxpe.report.corpus.predicates import (
    beats_equal,
    best_fixed,
    distance_groups,
    fitted_scores,
    fitted_stress,
    fixed_stress,
    group_title,
    half_distance,
    information_sum,
    is_sequences,
    kmer_length,
    nearness,
    only_rare,
    variance_shares,
)
from jaxpe.report.tables import Table
from jaxpe.report.text import (
    Headline,
    interval_ends,
    interval_texts,
    percent,
    plural,
    ranges,
)

INTERVAL = "95 % interval"
_FIT = ("Fitted encoding, held-out stress", "Best fixed encoding, held-out stress")
_NEARNESS = "Nearness (0: no order)"


def headlines(analysis: CorpusAnalysis) -> list[Headline]:
    """Numbers on top of the page and in the console table; of two ends, the largest bits first."""
    noise, composition, share = variance_shares(analysis)
    position, reach = analysis.position, analysis.documents_per_position
    rank = position.significant_rank
    p = f"p {'≤' if rank else '='} {position.p_value:.2g}"  # a bound: few documents are shuffled
    noisy = f"{analysis.plug_in.rank} with noise"
    noisy = "no position can be judged alone" if only_rare(analysis) else noisy
    near, rare = analysis.intervals.get("nearness"), len(analysis.rare_positions)
    held_out, fitted, fixed = fitted_scores(analysis), *2 * (("none", "nothing to fit"),)
    if held_out is not None:
        best = best_fixed(analysis)
        widest = ", the widest tried," if held_out.dim < rank else ","
        fitted = _headline(fitted_stress(held_out), f"dimension {held_out.dim}{widest} ")
        first, *tied = distance_groups(best)
        named = f"{group_title(first)}, " if beats_equal(analysis) else ""
        value, detail = _headline(fixed_stress(analysis)[best[0].name], named)
        remark = f"; {len(tied)} not significantly worse" * bool(tied)
        fixed = value, detail + (remark if named else "; not much better than equal distances")
    ordered = _headline(near) if near else ("n/a", "no interval")
    if nearness(analysis) == "few":
        ordered = ordered[0], f"{ordered[1]}; few positions make it"
    value = interval_texts(share, percent)[0]
    others = f"noise {percent(noise.estimate)}, composition {percent(composition.estimate)}"
    rows = {}
    for end, bits in reaches(analysis).items():
        uncut = analysis.where.uncut if analysis.where and end == "end" else None
        text = _ends(bits) + (f"; {plural(uncut, 'document')} not cut" if uncut else "")
        rows[bits_label(analysis, end)] = interval_texts(bits.bits)[0], text
    rows |= {
        "Position's share of the observed variance": (
            value,
            f"{interval_ends(share, percent)}; {others}",
        ),
        "Significant dimensions": (f"{rank}", f"{p}; {noisy}"),
        **dict(zip(_FIT, (fitted, fixed), strict=True)),
        _NEARNESS: ordered,
        "Documents at the last position": (
            f"{next(iter(reach[reach > 0][::-1]), 0):,}",
            f"of {analysis.documents:,}"
            + (f"; {plural(rare, 'position')} too noisy" if rare else ""),
        ),
    }
    left_out = _FIT if is_sequences(analysis) else ()
    left_out += (_NEARNESS,) * bool(analysis.origin)  # it says where the site is
    rows = _letter_rows(analysis) | rows
    return [Headline(label, *row) for label, row in rows.items() if label not in left_out]


def _letter_rows(analysis: CorpusAnalysis) -> dict[str, tuple[str, str]]:
    """Information of sequences, and the positions that carry it, with a significant dimension."""
    letters, origin = analysis.letters, analysis.origin
    if letters is None or not letters.alphabet or not analysis.position.significant_rank:
        return {}
    differing = np.isin(np.arange(analysis.length), letters.differing)
    where = ranges(differing, origin=origin), f"{differing.sum()}"
    rows = {"Positions that differ from the background": where[::-1]}
    if kmer_length(analysis) or np.isnan(letters.bits[0]).all():
        return rows
    total, relative = (f"{information_sum(x):.1f} bits" for x in (letters.bits, letters.relative))
    return {"Information, all positions": (total, f"{relative} against the background")} | rows


def where_table(analysis: CorpusAnalysis) -> Table | None:
    """Table of bits per token, reach from both ends, half-distance, and documents cut, if any."""
    where, distance, rows = analysis.where, half_distance(analysis), []
    for end, reach in reaches(analysis).items():
        first, uncut = end == "beginning", where.uncut if where else None
        count = analysis.documents if first else uncut
        documents = "" if count is None else f"{count:,}"
        bits = interval_texts(reach.bits)[0], _ends(reach), documents
        rows.append((bits_label(analysis, end), *bits))
        for share, size in (("half", reach.half), ("90 %", reach.most)):
            if size and not analysis.origin:
                label = f"{'First' if first else 'Last'} positions with {share} of the bits"
                rows.append((label, f"{size.estimate:,.0f}", count_ends(size), documents))
    every = f"{analysis.documents:,}"
    if distance is not None:
        rows.append(("Half-distance", f"{distance.estimate:,.0f}", count_ends(distance), every))
    if where and where.cut is not None:
        label = f"Documents cut at {plural(analysis.length, 'token')}"
        rows.append((label, f"{where.cut:,}", "", every))
    return ("Where", ["", "value", INTERVAL, "documents"], rows) if rows else None


def _ends(reach: Reach) -> str:
    """Ends of the interval of the bits, and whether it includes 0 or is below it."""
    if reach.bits.high < 0:
        return interval_ends(reach.bits) + "; the null does not hold"
    return interval_ends(reach.bits) + ", not significant" * (reach.half is None)


def reaches(analysis: CorpusAnalysis) -> dict[str, Reach]:
    """Information of positions by the end they are counted from, the largest significant first.

    Aligned documents have one end.
    """
    where = analysis.where or Where(None, None, None)
    ends = {"beginning": where.start, "end": None if analysis.origin else where.end}
    found = [(name, reach) for name, reach in ends.items() if reach is not None]
    return dict(sorted(found, key=lambda end: (end[1].half is None, -end[1].bits.estimate)))


def bits_label(analysis: CorpusAnalysis, end: str) -> str:
    """Label of the bits per token, which names the end where there are two."""
    name = "start" if end == "beginning" else end
    return "Bits per token" + f", from the {name}" * (len(reaches(analysis)) > 1)


def count_ends(interval: Interval) -> str:
    """Ends of an interval of whole numbers, of which the upper may be infinite."""
    low, high = interval.low, interval.high
    if low == high:
        return f"{low:,.0f}"
    return f"{low:,.0f} to {high:,.0f}" if math.isfinite(high) else f"{low:,.0f} or more"


def with_count_ends(interval: Interval) -> str:
    """Estimate of a whole number with its interval, unless that has width 0."""
    if interval.low == interval.high:
        return f"{interval.estimate:,.0f}"
    return f"{interval.estimate:,.0f} ({count_ends(interval)})"


def _headline(interval: Interval, detail: str = "") -> tuple[str, str]:
    return interval_texts(interval)[0], f"{detail}{interval_ends(interval)}"
