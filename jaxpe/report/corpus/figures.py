"""The eight figures: one short function each, from a `CorpusAnalysis` to a matplotlib `Figure`.

Only the object interface is used, no pyplot, so drawing leaves no state behind. Widths suit a
phone: five inches shown on 340 pixels keep the letters legible.
"""

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from jaxpe import plot
from jaxpe.analysis.corpus.result import SHARES, CorpusAnalysis, EncodingScore, Interval
from jaxpe.plot.axes import offset_quantiles
from jaxpe.report import style
from jaxpe.report.corpus.text import (
    alike,
    by_family,
    corrected_best,
    held_out_stress,
    nearness,
    own_stress,
    title_of,
)
from jaxpe.report.style import (
    CHANCE,
    COMPOSITION,
    PLUG_IN,
    POSITION,
    Margins,
    add_legend,
    legend_height,
    new_figure,
)
from jaxpe.report.text import number, percent, plural

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

# Figures with a panel or line for each encoding show a few, since more could not be distinguished.
WELL_KNOWN = ("sinusoidal", "rope", "alibi")
MOST_SHOWN = 6
SELECTION = f"Shown: the fitted encodings, {', '.join(WELL_KNOWN)} and, of the others, the best"

SHARE_COLOURS = {"noise": CHANCE, "composition": COMPOSITION, "position": POSITION}
FLOOR = 1e-4  # a log axis has no zero: stresses at or below this sit on the left edge
MOST_PAIRS = 2_000  # points of one scatter
_LONGEST_NAME = 20
SEED = 0  # of the pairs shown, so that the same analysis gives the same bytes


def render_figures(analysis: CorpusAnalysis) -> list[style.Rendered]:
    """Draw all figures; the same analysis gives the same bytes."""
    return style.render(analysis, *FIGURES)


def shares_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """Noise, composition and position as shares of the variance, and documents by position."""
    parts = {name: analysis.intervals.get(f"{name}_share") for name in SHARES}
    position = parts["position"]
    title = (
        f"Position: {percent(min(max(position.estimate, 0.0), 1.0))} of the observed variance"
        if position
        else "Who gets there"
    )
    figure, axes = new_figure(
        title, rows=2, height=3.8, margins=Margins(left=1.25, right=0.2, down=0.75)
    )
    for place, (name, share) in enumerate(parts.items()):
        if share is None:
            continue
        axes[0].barh(place, share.estimate, color=SHARE_COLOURS[name], height=0.6)
        axes[0].hlines(place, share.low, share.high, color="black", lw=1.3)
    axes[0].set(yticks=range(len(parts)), ylim=(len(parts) - 0.5, -0.5), xlabel="share of variance")
    axes[0].set_yticklabels(list(parts))
    axes[0].axvline(0, color="black", lw=0.8)
    reach = analysis.documents_per_position
    axes[1].fill_between(np.arange(len(reach)), reach, step="mid", color=PLUG_IN, alpha=0.35, lw=0)
    axes[1].set(xlabel="position", ylabel="documents", ylim=(0, None))
    return figure


def hellinger_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """The distances between positions, plug-in and of position alone, each on its own scale."""
    margins = Margins(left=0.55, right=0.2, bottom=0.1)
    title = "Distances between positions"
    figure, axes = new_figure(title, height=3.3, columns=2, margins=margins)
    corrected = np.sqrt(np.clip(analysis.position.squared_distances, 0, None))
    panels = (
        ("as observed", analysis.plug_in.distances, analysis.plug_in.present),
        ("of position alone", corrected, analysis.position.present),
    )
    for axis, (title, distances, shown) in zip(axes, panels, strict=True):
        image = plot.distances(distances, present=shown, ax=axis)
        axis.set(title=title, ylabel="")
        bar = {"location": "bottom", "extend": "both", "label": "Hellinger distance"}
        figure.colorbar(image, ax=axis, fraction=0.2, pad=0.2, shrink=0.8, aspect=12, **bar)
    return figure


def spectrum_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """Eigenvalues of both geometries, and those that are tested against chance."""
    title = _rank_title(analysis.position.significant_rank)
    figure, axes = new_figure(title, columns=2, margins=Margins(left=0.85, across=0.65))
    null = analysis.position.null_eigenvalue
    panels = (
        (
            "both geometries",
            ("as observed", analysis.plug_in.eigenvalues, PLUG_IN),
            ("position", analysis.position.eigenvalues, POSITION),
        ),
        ("the test against chance", ("tested", analysis.position.rank_eigenvalues, POSITION)),
    )
    for axis, (title, *series) in zip(axes, panels, strict=True):
        for label, values, colour in series:
            plot.spectrum(values, ax=axis, color=colour, label=label)
        if null > 0:  # linear where noise lives, logarithmic above
            axis.set_yscale("symlog", linthresh=null)
        else:
            axis.set_yscale("linear")
        axis.set(title=title, ylabel="")
    axes[0].set_ylabel("eigenvalue")
    axes[1].axhline(null, color=CHANCE, ls="--", lw=1.2, label=f"chance, {number(null)}")
    for axis in axes:
        axis.legend(loc="lower left")
    return figure


def map_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """Positions at their two leading coordinates, coloured by position."""
    rank = analysis.position.significant_rank
    titles = ("Nothing on this map rises above chance", "Only axis 1 rises above chance")
    title = titles[rank] if rank in (0, 1) else "The map of positions"
    figure, (axis,) = new_figure(title, height=4.2, margins=Margins(left=0.85, right=0.2, top=0.4))
    position = analysis.position
    if not position.present.any():
        return style.say_why_empty(figure, axis, "no position can be judged")
    points = plot.positions(position.coordinates, present=position.present, ax=axis)
    axis.margins(x=0.2)  # room for the labels of the ends
    figure.colorbar(points, ax=axis, label="position", fraction=0.15, pad=0.03)
    return figure


def encodings_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """Stress of every encoding, by family: plug-in on a log axis from `FLOOR`, corrected from 0."""
    if not analysis.encodings:
        figure, (axis,) = new_figure("Fit of the encodings")
        return style.say_why_empty(figure, axis, "no encoding was scored")
    winners = corrected_best(analysis)
    rows = _rows_by_family(analysis.encodings)
    height = max(1.5 + 0.23 * len(rows), 2.6)
    longest = max(len(row if isinstance(row, str) else short(row.name)) for row in rows)
    margins = Margins(left=0.4 + 0.085 * longest, bottom=0.8, across=0.3)
    figure, axes = new_figure(
        _fit_title(winners), height=height, columns=2, sharey=True, margins=margins
    )
    scored = {place: row for place, row in enumerate(rows) if not isinstance(row, str)}
    _plug_in_panel(axes[0], scored)
    _corrected_panel(axes[1], scored, analysis)
    for axis in axes:
        axis.set(yticks=range(len(rows)), ylim=(len(rows) - 0.5, -0.5))
        axis.tick_params(axis="y", length=0, pad=7)
        for place in scored:
            axis.axhline(place, color="#EEEEEE", lw=0.8, zorder=0)
    axes[0].set_yticklabels([row if isinstance(row, str) else short(row.name) for row in rows])
    for text, row in zip(axes[0].get_yticklabels(), rows, strict=True):
        if isinstance(row, str):
            text.set(style="italic", color="#777777")
        elif row.name in [winner.name for winner in winners]:
            text.set(weight="bold", color=POSITION)
    add_legend(figure, axes[0], columns=2)
    return figure


def _plug_in_panel(axis, scored: dict[int, EncodingScore]) -> None:
    """Raw and scaled stress, joined, on a log axis."""
    raw, scaled = (
        np.maximum([getattr(score, field) for score in scored.values()], FLOOR)
        for field in ("stress", "scaled_stress")
    )
    axis.hlines(list(scored), scaled, raw, color=PLUG_IN, lw=1, zorder=1)
    dots = {"marker": "o", "ls": "", "ms": 6, "color": PLUG_IN, "clip_on": False}
    axis.plot(raw, list(scored), **dots, mfc="white", label="raw, Eq. (4)")
    axis.plot(scaled, list(scored), **dots, label="scaled")
    axis.set(title="as observed", xlabel="stress", xscale="log")
    axis.set_xlim(left=FLOOR)
    axis.minorticks_off()


def _corrected_panel(axis, scored: dict[int, EncodingScore], analysis: CorpusAnalysis) -> None:
    """Stress on held-out halves with intervals, or on all documents; and the fitted encoding's."""
    dots = {"ls": "", "ms": 5.5, "color": POSITION, "clip_on": False}
    held_out, tested, other = analysis.held_out, held_out_stress(analysis), {}
    for place, score in scored.items():
        if (stress := tested.get(score.name)) is None:
            other[place] = score.position_scaled_stress
            continue
        axis.hlines(place, stress.low, stress.high, color=POSITION, lw=1.6)
        axis.plot(stress.estimate, place, "D", **dots)
    if other:
        axis.plot(list(other.values()), list(other), "D", **dots, mfc="white")
    if held_out is not None and held_out.dim:
        own = own_stress(held_out)
        axis.axvspan(own.low, own.high, color=POSITION, alpha=0.18, lw=0)
        axis.axvline(own.estimate, color=POSITION, lw=1.2)
    ends = [stress.high for stress in tested.values()] + [*other.values()]
    known = [end for end in ends if np.isfinite(end)]
    axis.set(title="position", xlabel="scaled stress")
    axis.set_xlim(0, 1.08 * max(known, default=1) or 1)


def dimension_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """Stress against held-out halves and plug-in, and cumulative variance, by width."""
    dimensions, held_out = analysis.stress_by_dimension.dimensions, analysis.held_out
    title = "How many dimensions an encoding needs"
    figure, axes = new_figure(title, height=6.6, rows=3, sharex=True, margins=Margins(0.55))
    _held_out_panel(axes[0], analysis)
    colours = _colours(analysis)
    for name, values in analysis.stress_by_dimension.scaled_stress.items():
        floored = np.maximum(values, FLOOR)
        axes[1].plot(dimensions, floored, "o-", ms=3.5, color=colours[name], label=name)
    axes[1].set(title="scaled stress, distances as observed", yscale="log")
    axes[1].set_ylim(bottom=FLOOR)
    positive = np.clip(analysis.plug_in.eigenvalues, 0, None)
    share = np.cumsum(positive) / max(positive.sum(), np.finfo(float).tiny)
    axes[2].plot(np.arange(1, len(share) + 1), share, color=PLUG_IN)
    axes[2].set(title="share of the observed variance", xlabel="dimensions", xscale="log")
    axes[2].set_ylim(0, 1.02)
    ticks = [1, *dimensions[:: len(dimensions) // 9 + 1]]
    axes[2].set_xticks(ticks, [str(tick) for tick in ticks])
    axes[2].minorticks_off()
    for axis in axes[: 2 if held_out else 1]:
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=9)
    if analysis.position.significant_rank:
        for axis in axes:
            axis.axvline(analysis.position.significant_rank, color=CHANCE, ls="--", lw=1.2)
    return figure


def _held_out_panel(axis, analysis: CorpusAnalysis) -> None:
    """Stress on held-out halves by width, of the fitted encoding and of the best fixed ones."""
    held_out = analysis.held_out
    axis.set_title("scaled stress on held-out halves")
    if held_out is None:
        axis.text(0.5, 0.5, "no halves could be judged", ha="center", transform=axis.transAxes)
        return
    _band(axis, np.arange(1, len(held_out.own) + 1), held_out.own, POSITION, "fitted to halves")
    best = dict.fromkeys(["sinusoidal", *(names[0] for names in held_out.best)])
    names = [name for name in best if name in held_out.fixed]
    colours = _colours(analysis)
    for name in names:
        _band(axis, held_out.widths, held_out.fixed[name], colours[name], name)
    axis.set_ylim(0, 1)


def _band(axis, x: np.ndarray, stress: list[Interval], colour: str, label: str) -> None:
    """A curve with its intervals."""
    mean, low, high = np.array(stress).T
    axis.fill_between(x, low, high, color=colour, alpha=0.18, lw=0)
    axis.plot(x, mean, "o-", ms=2.5, color=colour, label=label)


def scatter_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """Distance in each encoding against the distance of position alone, over pairs."""
    corrected = np.sqrt(np.clip(analysis.position.squared_distances, 0, None))
    shown = analysis.position.present
    r = {
        score.name: _correlation(score.distances, corrected, shown) for score in analysis.encodings
    }
    groups = shown_groups(analysis.encodings, by=lambda score: -r[score.name])
    colours = _colours(analysis)
    rows = max((len(groups) + 1) // 2, 1)
    figure, axes = new_figure(
        _closest(analysis.encodings, r),
        rows=rows,
        columns=2,
        height=2.2 * rows + 0.4,
        margins=Margins(left=0.75, bottom=0.6, top=0.78, across=0.45, down=0.78),
    )
    i, j = _pairs(shown)
    size = 3.2 if len(i) > 1000 else 4.5
    for axis, group in zip(axes, groups, strict=False):
        x, y = corrected[i, j], group[0].distances[i, j]
        colour = colours[group[0].name]
        axis.plot(x, y, ".", ms=size, alpha=0.4, mew=0, color=colour, rasterized=True)
        axis.set_title(f"{short(title_of(group))}\nr = {r[group[0].name]:.2f}")
    for axis in axes[len(groups) :]:
        axis.axis("off")
    figure.supxlabel("Hellinger distance of position alone", fontsize=10.5)
    figure.supylabel("distance in the encoding", fontsize=10.5)
    return figure


def _correlation(distances: np.ndarray, corrected: np.ndarray, shown: np.ndarray) -> float:
    """Pearson's, over all pairs of positions; NaN where either is constant."""
    positions = np.flatnonzero(shown)
    i, j = np.triu_indices(len(positions), k=1)
    pairs = positions[i], positions[j]
    x, y = distances[pairs], corrected[pairs]
    if len(x) < 2 or not np.ptp(x) > 0 or not np.ptp(y) > 0:
        return math.nan
    return float(np.corrcoef(x, y)[0, 1])


def offset_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """Squared distance by offset: squares, because their noise cancels in the mean."""
    titles = {1: "Distance grows with offset", -1: "Distance shrinks with offset"}
    title = titles.get(nearness(analysis), "Distance and offset: no clear relation")
    groups = shown_groups(analysis.encodings, by=_corrected_fit)
    below = legend_height(1 + len(groups), columns=2)
    margins = Margins(left=0.8, bottom=0.5 + below)
    figure, axes = new_figure(title, rows=2, height=6.2, sharex=True, margins=margins)
    offsets, shown = np.arange(1, len(analysis.plug_in.present)), analysis.position.present
    plug_in = offset_quantiles(analysis.plug_in.distances**2, analysis.plug_in.present)[0]
    mean, low, high = analysis.position.by_offset
    axes[0].plot(offsets, plug_in, color=PLUG_IN, label="as observed")
    axes[0].fill_between(offsets, low, high, color=POSITION, alpha=0.18, lw=0)
    axes[0].plot(offsets, mean, color=POSITION, label="position, 95 % interval")
    axes[1].plot(offsets, mean, color="black", lw=2.4, label="position")
    colours = _colours(analysis)
    for group, dash in zip(groups, itertools.cycle(("-", "--")), strict=False):
        own = offset_quantiles(group[0].distances ** 2, shown)[0]
        fitted, colour = _scaled_to(mean, own), colours[group[0].name]
        axes[1].plot(offsets, fitted, dash, lw=1.3, color=colour, label=short(title_of(group)))
    axes[0].set(title="mean over pairs", ylabel="squared distance")
    axes[1].set(title="position, and encodings at its scale", xlabel="offset |i − j|")
    axes[0].legend()
    add_legend(figure, axes[1], columns=2)
    return figure


def shown_groups(
    scores: list[EncodingScore], *, by: Callable[[EncodingScore], float]
) -> list[list[EncodingScore]]:
    """Up to `MOST_SHOWN` encodings, those with the same distances as one, in the table's order.

    The fitted and the well-known ones have precedence, then the lowest `by`.
    """
    groups = alike(scores)

    def rank(index: int) -> tuple[bool, float]:
        always = any(score.fitted or score.name in WELL_KNOWN for score in groups[index])
        value = by(groups[index][0])
        return not always, value if np.isfinite(value) else np.inf

    kept = sorted(range(len(groups)), key=rank)[:MOST_SHOWN]
    return [groups[index] for index in sorted(kept)]


FIGURES: tuple[style.Drawing, ...] = (
    (
        "shares",
        shares_figure,
        "Top: parts of the variance observed between positions, with 95 % intervals. Noise is not "
        "repeated by other documents. Composition remains when the words of each document are "
        "shuffled. Position is the rest, and all figures of position are of it alone. Bottom: the "
        "number of documents that reach each position.",
    ),
    (
        "hellinger",
        hellinger_figure,
        "How different the tokens at any two positions are. Left: as counted. Right: without "
        "sampling noise and composition. Each has its own scale, which leaves out the lowest and "
        "highest 2 %. Grey: the diagonal, and positions without data.",
    ),
    (
        "spectrum",
        spectrum_figure,
        "Each point is one dimension. Right: each position weighted by its documents, so that all "
        "have the same noise. Only points above the dashed line are larger than shuffled documents "
        "give; below it the axis is linear.",
    ),
    (
        "map",
        map_figure,
        "Positions that hold similar tokens lie close together: the leading coordinates of the "
        "geometry of position. Successive positions are joined.",
    ),
    (
        "encodings",
        encodings_figure,
        "Lower is better. Left: stress against the observed distances, raw (hollow) and rescaled "
        f"(solid). Values below {FLOOR:g} are drawn at the edge. Right: fixed encodings against "
        "distances of position in held-out halves, with 95 % intervals. The band is the encoding "
        "fitted to the other half. Hollow marks are encodings that were fitted or drawn, against "
        "all documents. Bold: the best fixed encoding and those not significantly worse.",
    ),
    (
        "dimension",
        dimension_figure,
        "Top: encodings fitted to half of the documents against the other half, with 95 % "
        "intervals, and fixed ones. Middle and bottom: against the observed distances, noise and "
        "composition included. The dashed line marks the number of significant dimensions.",
    ),
    (
        "scatter",
        scatter_figure,
        "One point for each pair of positions. A faithful encoding puts them on a rising straight "
        f"line. Where there are more than {MOST_PAIRS:,} pairs, a random sample is shown. "
        f"{SELECTION} correlated; those joined by = have the same distances, but perhaps for "
        "their scale.",
    ),
    (
        "offset",
        offset_figure,
        "Whether positions farther apart hold more different tokens. The curve of position may dip "
        "below zero by chance. Below: encodings rescaled to it, so only the shape counts. "
        f"{SELECTION} by stress against position.",
    ),
)


def short(name: str) -> str:
    """A name that fits a figure: the ends of a longer one.

    >>> short("sinusoidal (= rope)"), short("my_module:an_encoding_with_a_long_name")
    ('sinusoidal (= rope)', 'my_module…_long_name')
    """
    return name if len(name) <= _LONGEST_NAME else f"{name[:9]}…{name[-10:]}"


def _colours(analysis: CorpusAnalysis) -> dict[str, str]:
    """Colour of each encoding in all figures, those that fit best first."""
    ranked = sorted(analysis.encodings, key=_corrected_fit)
    names = [score.name for score in ranked]
    return style.encoding_colours([*names, *analysis.stress_by_dimension.scaled_stress])


def _rows_by_family(scores: list[EncodingScore]) -> list[str | EncodingScore]:
    """Each family's name and then its encodings, best first."""
    rows: list[str | EncodingScore] = []
    for family, members in by_family(scores).items():
        rows += [family, *sorted(members, key=_corrected_fit)]
    return rows


def _corrected_fit(score: EncodingScore) -> float:
    """Stress against position, or plug-in stress where no position is judged."""
    corrected = score.position_scaled_stress
    return corrected if np.isfinite(corrected) else score.scaled_stress


def _rank_title(rank: int) -> str:
    if rank == 0:
        return "No dimension rises above chance"
    return f"{plural(rank, 'dimension')} {'rises' if rank == 1 else 'rise'} above chance"


def _fit_title(winners: list[EncodingScore]) -> str:
    groups = alike(winners)
    if not groups:
        return "There is nothing to fit"
    if len(groups) > 1:
        return f"{len(groups)} fixed encodings fit best"
    return f"Of the fixed encodings, {short(title_of(groups[0]))} fits best"


def _closest(scores: list[EncodingScore], r: dict[str, float]) -> str:
    fixed = [s for s in scores if s.fixed and np.isfinite(r[s.name])]
    if not fixed:
        return "Distances, encoding against corpus"
    closest = max(fixed, key=lambda score: round(r[score.name], 6))
    return f"Best correlated: {short(closest.name)}, r = {r[closest.name]:.2f}"


def _pairs(shown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index pairs i < j of the positions shown, at most `MOST_PAIRS` of them."""
    positions = np.flatnonzero(shown)
    i, j = np.triu_indices(len(positions), k=1)
    if len(i) > MOST_PAIRS:
        kept = np.sort(np.random.default_rng(SEED).choice(len(i), MOST_PAIRS, replace=False))
        i, j = i[kept], j[kept]
    return positions[i], positions[j]


def _scaled_to(target: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """The multiple of `shape` nearest to `target` where both are known; never a negative one."""
    tiny = np.finfo(float).tiny
    return shape * max(np.nansum(shape * target), 0.0) / max(np.nansum(shape**2), tiny)
