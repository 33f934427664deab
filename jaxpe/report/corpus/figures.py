"""The figures of a report on a corpus, one function each.

They use Matplotlib's object interface, no pyplot, so drawing leaves no state behind. Widths suit a
phone: five inches shown on 340 pixels stay legible.
"""

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxpe import plot
from jaxpe.analysis.corpus.result import SHARES, CorpusAnalysis, EncodingScore, Interval
from jaxpe.plot.axes import offset_quantiles
from jaxpe.report import style
from jaxpe.report.corpus.headlines import reaches
from jaxpe.report.corpus.predicates import (
    beats_equal,
    best_fixed,
    distance_groups,
    families,
    fitted_scores,
    fitted_stress,
    fixed_stress,
    group_title,
    information_sum,
    kmer_length,
    nearness,
    only_rare,
    variance_shares,
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
from jaxpe.report.text import interval_texts, number, percent, plural

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
_WEAK = 0.3  # correlation of distances below which no encoding is named
_LOGO_ROW, _LOGO_ROWS = 40, 4  # positions of a row of a logo, and rows
_OFFSET_TITLES = {
    "few": "A few positions make these distances",
    "more": "Distance grows with offset",
    "rises and falls": "Distance grows with offset, then falls",
    "less": "Distance falls with offset",
}
SEED = 0  # seed of the shown pairs, so that equal analyses give equal bytes


def render_figures(analysis: CorpusAnalysis) -> list[style.Rendered]:
    """Draw the figures that apply; the same analysis gives the same bytes."""
    absent = {logo_figure} if not analysis.letters else set()
    if analysis.origin or not reaches(analysis):
        absent.add(where_figure)
    return style.render(analysis, *(drawing for drawing in FIGURES if drawing[1] not in absent))


def logo_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """Sequence logo: letters as high as their share of the information of a position, in bits."""
    letters: Any = analysis.letters
    positions = np.arange(len(letters.documents)) - analysis.origin
    first = max(0, min(analysis.origin - _LOGO_ROW // 2, len(positions) - _LOGO_ROWS * _LOGO_ROW))
    shown = np.arange(len(positions))[first:][: _LOGO_ROWS * _LOGO_ROW]
    rows = [shown[start : start + _LOGO_ROW] for start in range(0, len(shown), _LOGO_ROW)]
    judged = np.isfinite(letters.bits[0]).sum()
    title = f"{information_sum(letters.bits):.1f} bits in {judged} positions"
    if not analysis.position.significant_rank or kmer_length(analysis):  # k-mers overlap
        title = "Letters by position"
    margins = Margins(left=0.6, right=0.1, down=0.4)
    figure, axes = new_figure(title, rows=len(rows), height=1 + 1.5 * len(rows), margins=margins)
    top = min(1.1 * np.nanmax(letters.bits[2], initial=0) or 1, math.log2(letters.size))
    for axis, row in zip(axes, rows, strict=True):
        bits, low, high = letters.bits[:, row]
        stacks = (letters.shares[row] * np.nan_to_num(bits)[:, None]).tolist()
        for x, heights in zip(positions[row].tolist(), stacks, strict=True):
            style.stack_letters(axis, x, dict(zip(letters.letters, heights, strict=True)))
        bars = np.clip([bits - low, high - bits], 0, None)
        axis.errorbar(positions[row], bits, bars, fmt="none", ecolor="#777777", lw=0.8)
        left = positions[row[0]] - 0.5
        axis.set(ylabel="bits", ylim=(0, top), xlim=(left, left + min(_LOGO_ROW, len(shown))))
        axis.locator_params(axis="x", integer=True)
    axes[-1].set_xlabel("position")
    return figure


def shares_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """Noise, composition and position as shares of the variance, and documents by position."""
    share = variance_shares(analysis)[-1]
    position = interval_texts(share, percent)[0]
    if share.low <= 0:
        position = f"at most {percent(share.high)}"
    title = f"Position: {position} of the observed variance"
    margins = Margins(left=1.25, right=0.2, down=0.75)
    figure, axes = new_figure(
        "Documents per position" if position == "n/a" else title,
        rows=2,
        height=3.8,
        margins=margins,
    )
    for y, name in enumerate(SHARES):
        if share := analysis.intervals.get(f"{name}_share"):
            axes[0].barh(y, share.estimate, color=SHARE_COLOURS[name], height=0.6)
            axes[0].hlines(y, share.low, share.high, color="black", lw=1.3)
    axes[0].set(ylim=(len(SHARES) - 0.5, -0.5), xlabel="share of variance")
    axes[0].set_yticks(range(len(SHARES)), SHARES)
    axes[0].axvline(0, color="black", lw=0.8)
    reach = analysis.documents_per_position
    positions = np.arange(len(reach)) - analysis.origin
    axes[1].fill_between(positions, reach, step="mid", color=PLUG_IN, alpha=0.35, lw=0)
    axes[1].set(xlabel="position", ylabel="documents", ylim=(0, None))
    return figure


def where_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """Bits per token of the first k positions, and of the last, with intervals."""
    ends, title = reaches(analysis), "Position saves no bits significantly"
    for end, reach in [*ends.items()][:1]:
        if reach.half:
            which = "first" if end == "beginning" else "last"
            title = f"Half of the bits: {which} {plural(int(reach.half.estimate), 'position')}"
    margins = Margins(left=0.75, right=0.2)
    figure, (axis,) = new_figure(title, height=3.2, margins=margins)
    for end, reach in ends.items():
        colour, dash = (POSITION, "-") if end == "beginning" else (style.VERMILION, ":")
        bits, low, high = reach.curve
        count = np.arange(1, len(bits) + 1)
        axis.fill_between(count, low, high, color=colour, alpha=0.18, lw=0)
        axis.plot(count, bits, dash, color=colour, label=f"from the {end}")
    if not ends:
        return style.say_why_empty(figure, axis, "no tokens")
    axis.axhline(0, color="black", lw=0.8)
    which = "first or last" if len(ends) > 1 else "first"
    axis.set(xlabel=f"{which} k positions", ylabel="bits per token", xscale="log")
    ticks = [1, *(2**k for k in range(1, 13) if 2**k <= analysis.length)]
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()
    axis.legend()
    return figure


def hellinger_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """Distances between positions, plug-in and of position alone, each on its own scale."""
    margins = Margins(left=0.55, right=0.2, bottom=0.1)
    title = "Distances between positions"
    figure, axes = new_figure(title, height=3.3, columns=2, margins=margins)
    corrected = np.sqrt(np.clip(analysis.position.squared_distances, 0, None))
    panels = (
        ("as observed", analysis.plug_in.distances, analysis.plug_in.present),
        ("of position alone", corrected, analysis.position.present),
    )
    for axis, (title, distances, shown) in zip(axes, panels, strict=True):
        image = plot.distances(distances, present=shown, origin=analysis.origin, ax=axis)
        axis.set(title=title, ylabel="")
        bar = {"location": "bottom", "extend": "both", "label": "Hellinger distance"}
        figure.colorbar(image, ax=axis, fraction=0.2, pad=0.2, shrink=0.8, aspect=12, **bar)
    return figure


def spectrum_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """Eigenvalues of both geometries, and the eigenvalues that are tested against chance."""
    position, rank = analysis.position, analysis.position.significant_rank
    count = plural(rank, "dimension") if rank else "No dimension"
    title = f"{count} {'rise' if rank > 1 else 'rises'} above chance"
    figure, axes = new_figure(title, columns=2, margins=Margins(left=0.85, across=0.65))
    null = position.null_eigenvalue
    for axis, values, colour, label in (
        (axes[0], analysis.plug_in.eigenvalues, PLUG_IN, "as observed"),
        (axes[0], position.eigenvalues, POSITION, "position"),
        (axes[1], position.rank_eigenvalues, POSITION, "tested"),
    ):
        plot.spectrum(values, ax=axis, color=colour, label=label)
    axes[1].axhline(null, color=CHANCE, ls="--", lw=1.2, label=f"chance, {number(null)}")
    for axis, title in zip(axes, ("both geometries", "the test against chance"), strict=True):
        if null > 0:  # linear where noise lives, logarithmic above
            axis.set_yscale("symlog", linthresh=null)
        else:
            axis.set_yscale("linear")
        axis.set(title=title, ylabel="eigenvalue" if axis is axes[0] else "")
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
    shown = {"present": position.present, "origin": analysis.origin}
    points = plot.positions(position.coordinates, **shown, ax=axis)
    axis.margins(x=0.2)  # room for the labels of the ends
    figure.colorbar(points, ax=axis, label="position", fraction=0.15, pad=0.03)
    return figure


def encodings_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """Stress of every encoding, by family: plug-in on a log axis from `FLOOR`, position from 0."""
    if not analysis.encodings:
        figure, (axis,) = new_figure("Fit of the encodings")
        return style.say_why_empty(figure, axis, "no encoding was scored")
    best = best_fixed(analysis)
    titles = [short(group_title(group)) for group in distance_groups(best)]
    title = "There is nothing to fit"
    if best and not beats_equal(analysis):
        title = "No fixed encoding fits much better than equal distances"
    elif best:
        title = f"Of the fixed encodings, {titles[0]} fits best"
        if len(titles) > 1:
            title = f"{titles[0]} fits best; {len(titles) - 1} not significantly worse"
    rows: list[str | EncodingScore] = []
    for family, members in families(analysis.encodings).items():
        rows += [family, *sorted(members, key=_position_fit)]
    scored = {y: row for y, row in enumerate(rows) if isinstance(row, EncodingScore)}
    labels = [row if isinstance(row, str) else short(row.name) for row in rows]
    margins = Margins(left=0.4 + 0.085 * max(map(len, labels)), bottom=0.8, across=0.3)
    height = max(1.5 + 0.23 * len(rows), 2.6)
    figure, axes = new_figure(title, height=height, columns=2, sharey=True, margins=margins)
    _plug_in_panel(axes[0], scored)
    _position_panel(axes[1], scored, analysis)
    axes[0].set(yticks=range(len(rows)), ylim=(len(rows) - 0.5, -0.5), yticklabels=labels)
    for axis, y in itertools.product(axes, scored):
        axis.tick_params(axis="y", length=0, pad=7)
        axis.axhline(y, color="#EEEEEE", lw=0.8, zorder=0)
    for y, text in enumerate(axes[0].get_yticklabels()):
        if y not in scored:
            text.set(style="italic", color="#777777")
        elif scored[y].name in {score.name for score in best}:
            text.set(weight="bold", color=POSITION)
    add_legend(figure, axes[0], columns=2)
    return figure


def _plug_in_panel(axis, scored: dict[int, EncodingScore]) -> None:
    """Raw and scaled stress, joined, on a log axis."""
    raw = np.maximum([score.stress for score in scored.values()], FLOOR)
    scaled = np.maximum([score.scaled_stress for score in scored.values()], FLOOR)
    axis.hlines(list(scored), scaled, raw, color=PLUG_IN, lw=1, zorder=1)
    dots = {"marker": "o", "ls": "", "ms": 6, "color": PLUG_IN, "clip_on": False}
    axis.plot(raw, list(scored), **dots, mfc="white", label="raw, Eq. (4)")
    axis.plot(scaled, list(scored), **dots, label="scaled")
    axis.set(title="as observed", xlabel="stress", xscale="log")
    axis.set_xlim(left=FLOOR)
    axis.minorticks_off()


def _position_panel(axis, scored: dict[int, EncodingScore], analysis: CorpusAnalysis) -> None:
    """Stress of each encoding on held-out halves with intervals, or on all documents."""
    stress, held_out, ends = fixed_stress(analysis), fitted_scores(analysis), []
    for y, score in scored.items():
        all_documents = Interval(*3 * (score.position_scaled_stress,))
        estimate, low, high = stress.get(score.name, all_documents)
        fill = POSITION if score.name in stress else "white"
        axis.hlines(y, low, high, color=POSITION, lw=1.6)
        axis.plot(estimate, y, "D", ms=5.5, color=POSITION, mfc=fill, clip_on=False)
        ends += [high] if np.isfinite(high) else []
    if held_out is not None:
        fitted = fitted_stress(held_out)
        axis.axvspan(fitted.low, fitted.high, color=POSITION, alpha=0.18, lw=0)
        axis.axvline(fitted.estimate, color=POSITION, lw=1.2)
    axis.set(title="position", xlabel="scaled stress", xlim=(0, 1.08 * max(ends, default=1) or 1))


def dimension_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """Stress on held-out halves and plug-in, and cumulative variance, by width."""
    dimensions, held_out = analysis.stress_by_dimension.dimensions, analysis.held_out
    needs = analysis.position.significant_rank > 0
    title = "How many dimensions an encoding needs" if needs else "Stress by dimension"
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
    positions = np.flatnonzero(analysis.position.present)
    i, j = (positions[index] for index in np.triu_indices(len(positions), k=1))
    x = np.sqrt(np.clip(analysis.position.squared_distances[i, j], 0, None))
    r = {score.name: score.mantel_r for score in analysis.encodings}
    fixed = {score.name: round(score.mantel_r, 6) for score in analysis.encodings if score.fixed}
    closest = max(fixed, key=lambda name: np.nan_to_num(fixed[name], nan=-1), default="")
    title = "Distances, encoding against corpus"
    if analysis.position.significant_rank and closest and not only_rare(analysis):
        title = f"Highest Mantel r: {short(closest)}, {fixed[closest]:.2f}"
        if fixed[closest] < _WEAK:
            title = "No fixed encoding follows these distances"
    groups = shown_groups(analysis.encodings, by=lambda score: -r[score.name])
    colours = _colours(analysis)
    rows = max((len(groups) + 1) // 2, 1)
    figure, axes = new_figure(
        title,
        rows=rows,
        columns=2,
        height=2.2 * rows + 0.4,
        margins=Margins(left=0.75, bottom=0.6, top=0.78, across=0.45, down=0.78),
    )
    shown = sampled(len(i))
    dots = {"ms": 3.2 if len(shown) > 1000 else 4.5, "alpha": 0.4, "mew": 0, "rasterized": True}
    for axis, group in zip(axes, groups, strict=False):
        y, name = group[0].distances[i, j], group[0].name
        axis.plot(x[shown], y[shown], ".", color=colours[name], **dots)
        axis.set_title(f"{short(group_title(group))}\nMantel r = {r[name]:.2f}")
    for axis in axes[len(groups) :]:
        axis.axis("off")
    figure.supxlabel("Hellinger distance of position alone", fontsize=10.5)
    figure.supylabel("distance in the encoding", fontsize=10.5)
    return figure


def sampled(pairs: int) -> np.ndarray:
    """Indices of the shown pairs: all, or a deterministic sample."""
    count = min(pairs, MOST_PAIRS)
    return np.sort(np.random.default_rng(SEED).choice(pairs, count, replace=False))


def offset_figure(analysis: CorpusAnalysis) -> "matplotlib.figure.Figure":
    """Squared distance by offset; squares, because their noise cancels in the mean."""
    mean, low, high = analysis.position.by_offset
    title = _OFFSET_TITLES.get(nearness(analysis), "Distance and offset: no clear relation")
    groups = shown_groups(analysis.encodings, by=_position_fit)
    below = legend_height(1 + len(groups), columns=2)
    margins = Margins(left=0.8, bottom=0.5 + below)
    figure, axes = new_figure(title, rows=2, height=6.2, sharex=True, margins=margins)
    offsets, shown = np.arange(1, len(analysis.plug_in.present)), analysis.position.present
    plug_in = offset_quantiles(analysis.plug_in.distances**2, analysis.plug_in.present)[0]
    axes[0].plot(offsets, plug_in, color=PLUG_IN, label="as observed")
    axes[0].fill_between(offsets, low, high, color=POSITION, alpha=0.18, lw=0)
    axes[0].plot(offsets, mean, color=POSITION, label="position, 95 % interval")
    axes[1].plot(offsets, mean, color="black", lw=2.4, label="position")
    colours = _colours(analysis)
    for group, dash in zip(groups, itertools.cycle(("-", "--")), strict=False):
        squares = offset_quantiles(group[0].distances ** 2, shown)[0]
        fitted, colour = _fitted_multiple(mean, squares), colours[group[0].name]
        axes[1].plot(offsets, fitted, dash, lw=1.3, color=colour, label=short(group_title(group)))
    axes[0].set(title="mean over pairs", ylabel="squared distance")
    axes[1].set(title="position, and encodings at its scale", xlabel="offset |i − j|")
    axes[0].legend()
    add_legend(figure, axes[1], columns=2)
    return figure


def shown_groups(
    scores: list[EncodingScore], *, by: Callable[[EncodingScore], float]
) -> list[list[EncodingScore]]:
    """Up to `MOST_SHOWN` groups of encodings with equal distances, in the table's order.

    Fitted and well-known encodings have precedence, then the lowest `by`.
    """
    groups = distance_groups(scores)

    def rank(index: int) -> tuple[bool, float]:
        always = any(score.fitted or score.name in WELL_KNOWN for score in groups[index])
        return not always, np.nan_to_num(by(groups[index][0]), nan=np.inf)

    return [groups[index] for index in sorted(sorted(range(len(groups)), key=rank)[:MOST_SHOWN])]


def short(name: str) -> str:
    """A name that fits a figure; of a longer one, the ends.

    >>> short("sinusoidal (= rope)"), short("my_module:an_encoding_with_a_long_name")
    ('sinusoidal (= rope)', 'my_module…_long_name')
    """
    return name if len(name) <= _LONGEST_NAME else f"{name[:9]}…{name[-10:]}"


def _colours(analysis: CorpusAnalysis) -> dict[str, str]:
    """Colour of each encoding in all figures; the best fits get the first colours."""
    ranked = sorted(analysis.encodings, key=_position_fit)
    names = [score.name for score in ranked]
    return style.encoding_colours([*names, *analysis.stress_by_dimension.scaled_stress])


def _position_fit(score: EncodingScore) -> float:
    """Stress against position, or plug-in stress if no position can be judged."""
    stress = score.position_scaled_stress
    return stress if np.isfinite(stress) else score.scaled_stress


def _fitted_multiple(target: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """The nonnegative multiple of `shape` nearest to `target`, where both are defined."""
    tiny = np.finfo(float).tiny
    return shape * max(np.nansum(shape * target), 0.0) / max(np.nansum(shape**2), tiny)


_CAPTIONS: dict[style.Draw, str] = {
    logo_figure: (
        "Sequence logo (Schneider and Stephens 1990): a stack is as high as the information of its "
        "position, log₂ of the alphabet less the entropy, with Miller's correction for few "
        "documents. A letter has its share of the height. Bars are 95 % intervals."
    ),
    shares_figure: (
        "Top: parts of the variance observed between positions, with 95 % intervals. Other "
        "documents would not repeat the noise. Composition remains when each document is rotated "
        "by a random offset. Position is the rest, and figures of position show it alone. Bottom: "
        "the number of documents that reach each position."
    ),
    where_figure: (
        "What knowing which of the first k positions a token is at saves, with 95 % intervals; and "
        "of the last k, in documents that were not cut. All other positions count as one. The "
        "right end is the bits per token of all positions."
    ),
    hellinger_figure: (
        "Distances between the token distributions of any two positions. Left: as counted. Right: "
        "without sampling noise and composition. Each has its own scale, which leaves out the "
        "lowest and highest 2 %. Grey: the diagonal, and positions without data."
    ),
    spectrum_figure: (
        "Each point is one dimension. Right: positions are weighted by their documents, so that "
        "all have equal noise. Only points above the dashed line exceed the rotated documents; "
        "below it the axis is linear."
    ),
    map_figure: (
        "Positions that hold similar tokens lie close together: the leading coordinates of the "
        "geometry of position. Successive positions are joined."
    ),
    encodings_figure: (
        "Lower is better. Left: stress against the observed distances, raw (hollow) and rescaled "
        f"(solid). Values below {FLOOR:g} are drawn at the edge. Right: fixed encodings against "
        "distances of position in held-out halves, with 95 % intervals. The band is the encoding "
        "fitted to the other half. Hollow marks are fitted or random encodings, against all "
        "documents. Bold: the best fixed encoding and those not significantly worse."
    ),
    dimension_figure: (
        "Top: encodings fitted to one half of the documents and tested on the other, with 95 % "
        "intervals, and fixed encodings. Middle and bottom: against the observed distances, "
        "including noise and composition. The dashed line marks the number of significant "
        "dimensions."
    ),
    scatter_figure: (
        "One point for each pair of positions. A faithful encoding puts them on a rising straight "
        f"line. Where there are more than {MOST_PAIRS:,} pairs, a random sample is shown. "
        f"{SELECTION} correlated; encodings joined by = have equal distances up to scale."
    ),
    offset_figure: (
        "Whether positions farther apart hold more different tokens. The curve of position may dip "
        "below zero by chance. The largest offsets have few pairs; the title is of the others. "
        "Below: encodings rescaled to it, so only the shape counts. "
        f"{SELECTION} by stress against position."
    ),
}
FIGURES = style.drawings(_CAPTIONS)
FIT_FIGURES = [
    style.figure_name(draw)
    for draw in (encodings_figure, dimension_figure, scatter_figure, offset_figure)
]
