"""Figures of an extrapolation report: metrics against length, and mean reciprocal ranks."""

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxpe.analysis.extrapolation import (
    ExtrapolationResult,
    leaders,
    mean_reciprocal_rank,
)
from jaxpe.analysis.extrapolation.ranks import error_of_zero
from jaxpe.encodings import catalogue
from jaxpe.report.extrapolation.text import METRIC_WORDS, Cells, by_task, title_of
from jaxpe.report.style import (
    BLUE,
    CHANCE,
    GREEN,
    GREY,
    OLIVE,
    ORANGE,
    PINK,
    VERMILION,
    Drawing,
    Rendered,
    add_legend,
    new_figure,
    render,
)
from jaxpe.report.text import visible

if TYPE_CHECKING:
    import matplotlib.figure

NAMES = r"lengths_\d+|ranks"  # of the figures of any report

# As elsewhere for the encodings that most reports have; markers distinguish the lines of a panel,
# dashes those of a family.
_FAMILY_COLOURS = {
    "none": "#000000",
    "absolute": VERMILION,
    "orthogonal": OLIVE,
    "logarithmic": GREY,
    "rotary": ORANGE,
    "bias": GREEN,
    "relative": PINK,
}
_OWN = BLUE  # of encodings from elsewhere
MARKERS, _DASHES = "osD^vPX*", ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
_MOST_SHOWN = len(MARKERS)  # lines of a panel
_MOST_TICKS = 5  # labels below a panel that is half as wide as a phone

# Accuracy of a model that ends the answer rightly and draws its one word at random.
_BY_CHANCE = {"parity": 0.75, "summation": 0.55}


def render_extrapolation(result: ExtrapolationResult) -> list[Rendered]:
    """A figure of each suite, and one of the ranks if anything ranks."""
    drawings: list[Drawing] = []
    for index, suite in enumerate(result.suites, 1):
        cells = result.cells_of(suite)
        draw = lambda _, cells=cells: lengths_figure(cells)  # noqa: E731
        drawings.append((f"lengths_{index}", draw, _lengths_caption(cells)))
    if any(result.mean_reciprocal_rank.values()):
        drawings.append(("ranks", ranks_figure, _RANKS_CAPTION))
    return render(result, *drawings)


def lengths_figure(cells: Cells) -> "matplotlib.figure.Figure":
    """The ranking metric against the length, a panel for each task of a suite."""
    tasks = by_task(cells)
    columns = min(len(tasks), 2)
    rows = -(-len(tasks) // columns)
    names = shown_encodings(cells)
    height = 1.1 + 1.9 * rows + 0.22 * -(-len(names) // 3)
    figure, axes = new_figure(_title(cells), rows=rows, columns=columns, height=height)
    looks = line_styles(names)
    for axis, (task, task_cells) in zip(axes, tasks.items(), strict=False):
        by_name = {cell.encoding: cell for cell in task_cells}
        _panel(axis, [by_name[name] for name in names], looks)
        axis.set_title(task)
    for axis in axes[len(tasks) :]:
        axis.axis("off")
    for axis in axes[::columns]:
        axis.set_ylabel(METRIC_WORDS[cells[0].metric])
    for axis in axes[len(tasks) - columns : len(tasks)]:
        axis.set_xlabel("length of the input")
    add_legend(figure, axes[0], columns=3)
    return figure


def _panel(axis, cells: Cells, looks: dict[str, dict[str, Any]]) -> None:
    lengths = cells[0].lengths
    middles = []
    for cell in cells:
        mean, low, high = cell.summary[cell.metric]
        look, title = looks[cell.encoding], title_of(cell.encoding)
        axis.fill_between(lengths, low, high, color=look["color"], alpha=0.12, lw=0)
        axis.plot(lengths, mean, **look, ms=4.5, lw=1.4, mfc="white", label=title)
        middles.append(mean)
    axis.axvline(lengths[0], color="#BBBBBB", lw=1, zorder=0)
    axis.set_xscale("log", base=2)
    every = -(-len(lengths) // _MOST_TICKS)
    labels = ["" if k % every else f"{length:,}" for k, length in enumerate(lengths)]
    axis.set_xticks(lengths, labels)
    axis.minorticks_off()
    if cells[0].metric == "mse":
        middles.append(error_of_zero(cells))
        axis.plot(lengths, middles[-1], color=CHANCE, ls=(0, (1, 1)), lw=1.2, label="always 0")
        _log_axis(axis, np.stack(middles))
    else:
        axis.set_ylim(-0.03, 1.03)
        axis.set_yticks(np.linspace(0, 1, 5), [f"{share:.0f}" for share in np.linspace(0, 100, 5)])
        if cells[0].task in _BY_CHANCE:
            axis.axhline(_BY_CHANCE[cells[0].task], color=CHANCE, ls=(0, (1, 1)), lw=1.2)


def _log_axis(axis, values: np.ndarray) -> None:
    """Logarithmic axis with limits by the means, because intervals of few seeds reach below 0."""
    positive = values[np.isfinite(values) & (values > 0)]
    axis.set_yscale("log", nonpositive="clip")
    if positive.size:
        axis.set_ylim(positive.min() / 2, positive.max() * 2)


def ranks_figure(result: ExtrapolationResult) -> "matplotlib.figure.Figure":
    """Bars of mean reciprocal ranks, a panel for each suite that has them."""
    panels = {suite: means for suite, means in result.mean_reciprocal_rank.items() if means}
    counts = list(map(len, panels.values()))
    figure, axes = new_figure(
        "Who ranks first beyond the training length", rows=len(panels), sharex=True,
        height=1.0 + sum(0.45 + 0.23 * count for count in counts), height_ratios=counts,
    )  # fmt: skip
    for axis, (suite, ranks) in zip(axes, panels.items(), strict=True):
        means, lows, highs = np.array([*ranks.values()], float).T
        colours = [_FAMILY_COLOURS.get(_family(name), _OWN) for name in ranks]
        heights = np.arange(len(ranks))
        axis.barh(heights, means, 0.7, color=colours, alpha=0.55)
        axis.hlines(heights, lows, highs, color="#111111", lw=1.4)
        axis.set_yticks(heights, [title_of(name) for name in ranks])
        axis.set(title=visible(suite), xlim=(0, 1))
        axis.invert_yaxis()
    axes[-1].set_xlabel("mean reciprocal rank")
    return figure


def shown_encodings(cells: Cells) -> list[str]:
    """Encodings shown in a figure: the top ranks, in the order of the suite."""
    names = list(dict.fromkeys(cell.encoding for cell in cells))
    first = list(mean_reciprocal_rank(cells) or names)[:_MOST_SHOWN]
    return [name for name in names if name in first]


def line_styles(names: list[str]) -> dict[str, dict[str, Any]]:
    """Line styles: a colour for each family, dashes for its encodings, and separate markers."""
    families = list(map(_family, names))
    return {
        name: {
            "color": _FAMILY_COLOURS.get(family, _OWN),
            "marker": MARKERS[index % len(MARKERS)],
            "ls": _DASHES[families[:index].count(family) % len(_DASHES)],
        }
        for index, (name, family) in enumerate(zip(names, families, strict=True))
    }


def _family(name: str) -> str:
    """Family of the catalogue's entry that a name begins with: rope_yarn is rotary."""
    if name == "none":
        return name
    prefixes = [entry for entry in catalogue() if f"{name}_".startswith(f"{entry.name}_")]
    return max(prefixes, key=lambda entry: len(entry.name)).family if prefixes else ""


def _title(cells: Cells) -> str:
    suite, first = visible(cells[0].suite, limit=24), cells[0].lengths[0]
    if not mean_reciprocal_rank(cells):
        return f"{suite}: trained at length {first:,}"
    ahead = leaders(cells)
    if len(ahead.first) > 1 or not ahead.sure:
        return f"{suite}: no clear first beyond {first:,}"
    return f"{suite}: “{title_of(ahead.first[0])}” first beyond {first:,}"


def _lengths_caption(cells: Cells) -> str:
    dotted = ""
    if cells[0].metric == "mse":
        dotted = " Dotted: the error of always saying 0. The axis is logarithmic."
    elif any(cell.task in _BY_CHANCE for cell in cells):
        dotted = " Dotted, where the answer is one word: its end known, the word guessed."
    count, shown = len({cell.encoding for cell in cells}), len(shown_encodings(cells))
    left_out = (
        f" Of {count} encodings the first {shown} by rank are shown." if shown < count else ""
    )
    return (
        "Means over seeds with 95 % intervals as bands. Colours are families. The vertical line is "
        "the training length. Lines end where an encoding is not defined or training failed."
        f"{dotted}{left_out}"
    )


_RANKS_CAPTION = (
    "Mean of 1/rank over tasks, seeds and lengths beyond the training length, within each suite: 1 "
    "is first everywhere. Lines are 95 % intervals over seeds. Colours are families."
)
