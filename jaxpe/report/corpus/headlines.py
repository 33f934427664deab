"""Headlines of a `CorpusAnalysis`: numbers on top of the page and in the console."""

import math

from jaxpe.analysis.corpus.result import CorpusAnalysis, Interval, Reach
from jaxpe.report.corpus.predicates import (
    beats_equal,
    best_fixed,
    distance_groups,
    fitted_scores,
    fitted_stress,
    fixed_stress,
    group_title,
    half_distance,
    nearness,
    only_rare,
    share_values,
)
from jaxpe.report.text import Headline, interval_ends, name_list, number, plural


def headlines(analysis: CorpusAnalysis) -> list[Headline]:
    """The six numbers on top of the page and in the console table."""
    noise, composition, share = share_values(analysis)
    position, reach = analysis.position, analysis.documents_per_position
    rank, p = position.significant_rank, f"p = {position.p_value:.2g}"
    noisy = f"{analysis.plug_in.rank} with noise"
    noisy = "no position can be judged alone" if only_rare(analysis) else noisy
    near, rare = analysis.intervals.get("nearness"), len(analysis.rare_positions)
    held_out, fitted, fixed = fitted_scores(analysis), *2 * (("none", "nothing to fit"),)
    if held_out is not None:
        best = best_fixed(analysis)
        fitted = _headline(fitted_stress(held_out), f"dimension {held_out.dim}, ")
        names = name_list([group_title(group) for group in distance_groups(best)])
        named = beats_equal(analysis)
        fixed = _headline(fixed_stress(analysis)[best[0].name], f"{names}, " if named else "")
        if not named:
            fixed = fixed[0], f"{fixed[1]}; not much better than equal distances"
    ordered = _headline(near) if near else ("n/a", "no interval")
    if nearness(analysis) == "few":
        ordered = ordered[0], f"{ordered[1]}; few positions make it"
    rows = {
        "Position's share of the variance": (share, f"noise {noise}, composition {composition}"),
        "Significant dimensions": (f"{rank}", f"{p}; {noisy}"),
        "Fitted encoding, held-out stress": fitted,
        "Best fixed encoding, held-out stress": fixed,
        "Nearness (0: no order)": ordered,
        "Documents at the last position": (
            f"{next(iter(reach[reach > 0][::-1]), 0):,}",
            f"of {analysis.documents:,}"
            + (f"; {plural(rare, 'position')} too rare" if rare else ""),
        ),
    }
    return [Headline(label, *row) for label, row in rows.items()]


def where_rows(analysis: CorpusAnalysis) -> list[Headline]:
    """Rows of bits per token, reach from both ends, half-distance, and documents that were cut."""
    where, distance, rows = analysis.where, half_distance(analysis), []
    for end, reach in reaches(analysis).items():
        rows.append(Headline(f"Bits per token, from the {end}", *_headline(reach.bits)))
        if reach.half and reach.most and not analysis.origin:
            detail = f"{count_ends(reach.half)}; 90 % in {with_count_ends(reach.most)}"
            label = f"Positions with half of the bits, from the {end}"
            rows.append(Headline(label, f"{reach.half.estimate:,.0f}", detail))
    if distance is not None:
        rows.append(Headline("Half-distance", f"{distance.estimate:,.0f}", count_ends(distance)))
    if where and where.cut is not None:
        of = f"of {analysis.documents:,}, at {plural(analysis.length, 'token')}"
        rows.append(Headline("Documents cut", f"{where.cut:,}", of))
    return rows


def reaches(analysis: CorpusAnalysis) -> dict[str, Reach]:
    """Information of positions by the end they are counted from; aligned documents have one."""
    start, end, _ = analysis.where or (None, None, None)
    ends = {"beginning": start, "end": None if analysis.origin else end}
    return {name: reach for name, reach in ends.items() if reach is not None}


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
    return number(interval.estimate), f"{detail}{interval_ends(interval)}"
