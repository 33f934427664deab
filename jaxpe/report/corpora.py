"""View of a comparison of corpora: text, tables, a figure and a page."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from jaxpe.analysis.corpora import LEVEL, ComparedPair, CorporaComparison
from jaxpe.report import style
from jaxpe.report.page import View
from jaxpe.report.style import add_legend, new_figure
from jaxpe.report.tables import table_group
from jaxpe.report.text import Advice, number, percent, plural, visible
from jaxpe.report.training_run import next_steps

if TYPE_CHECKING:
    import matplotlib.figure
    import rich.console

_CAPTION = (
    "Positions in the first two dimensions of each corpus, from split halves, turned and scaled "
    "onto the first corpus (Procrustes); a ring marks the first position. What is left between "
    "curves may be noise: the test says."
)
_COLOURS = (style.BLUE, style.VERMILION, style.GREEN, style.ORANGE, style.PINK, style.INDIGO)
Rows = list[tuple[str, ...]]


def corpora_table(result: CorporaComparison) -> "rich.console.Group":
    """Tables of the corpora and their pairs for a console: `rich.print(corpora_table(result))`.

    Raises `MissingExtraError` without the extra `report`.

    >>> rich.print(corpora_table(found))  # doctest: +SKIP
    """
    return table_group(corpora_rows(result))


def corpora_summary(result: CorporaComparison) -> str:
    """Paragraph on the pairs that differ significantly.

    >>> corpora_summary(found)  # doctest: +SKIP
    'The positional geometries of wikipedia and code differ by more than chance ...'
    """
    if len(result.pairs) == 1:
        return _pair_summary(result.pairs[0])
    differ = sum(pair.p_adjusted <= LEVEL for pair in result.pairs)
    return (
        f"Of {plural(len(result.pairs), 'pair')} of corpora {differ} differ in their positional "
        f"geometry at the level of {LEVEL:g}, by p-values adjusted for the number of pairs (Holm)."
    )


def view(result: CorporaComparison, *, commands: Mapping[str, str] = {}) -> View:
    """Page of a comparison of corpora."""
    figures = style.render(result, ("configurations", configurations_figure, _CAPTION))
    shown = {"summary": corpora_summary(result)}
    steps = advice(result, commands=commands)
    return View("corpora", shown, figures, corpora_rows(result), steps, "commands")


def advice(result: CorporaComparison, *, commands: Mapping[str, str] = {}) -> list[Advice]:
    """Steps to take: whether corpora may share what is fitted to one of them."""
    steps = []
    if differ := [pair for pair in result.pairs if pair.p_adjusted <= LEVEL]:
        names = f"{visible(differ[0].first)} and {visible(differ[0].second)}"
        steps.append(Advice(f"Do not use vectors fitted to one of {names} for the other.", ""))
    return steps + next_steps(commands)


def corpora_rows(result: CorporaComparison) -> list[tuple[str, list[str], Rows]]:
    """Title, header and rows of each table."""
    corpora: Rows = [
        (visible(each.name), f"{each.documents:,}", f"{each.tokens:,}") for each in result.corpora
    ]
    header = ["corpora", "distance", "chance (95 %)", "p (Holm)", "Procrustes", "angle", "overlap"]
    return [
        ("Corpora", ["corpus", "documents", "tokens"], corpora),
        ("Positional geometries", header, [_row(pair) for pair in result.pairs]),
    ]


def configurations_figure(result: CorporaComparison) -> "matplotlib.figure.Figure":
    """Two dimensions of each corpus, rotated onto the first."""
    names = " and ".join(visible(each.name) for each in result.corpora[:2])
    more = f" and {len(result.corpora) - 2} more" if len(result.corpora) > 2 else ""
    figure, (axis,) = new_figure(f"Positional geometry of {names}{more}", height=4.2)
    for index, each in enumerate(result.corpora):
        x, y = np.asarray(each.coordinates, float).T
        colour = _COLOURS[index % len(_COLOURS)]
        axis.plot(x, y, color=colour, lw=1.2, marker="o", ms=2.5, label=visible(each.name))
        axis.plot(x[:1], y[:1], color=colour, marker="o", ms=9, mfc="none", ls="none")
    axis.set(xlabel="first dimension", ylabel="second dimension", aspect="equal")
    add_legend(figure, axis, columns=2)
    return figure


def _row(pair: ComparedPair) -> tuple[str, ...]:
    largest = f"{np.degrees(pair.angles[-1]):.0f}°" if len(pair.angles) else "–"
    return (
        f"{visible(pair.first)}, {visible(pair.second)}",
        number(pair.distance),
        number(pair.chance),
        number(pair.p_adjusted),
        number(pair.residual),
        largest,
        percent(pair.overlap),
    )


def _pair_summary(pair: ComparedPair) -> str:
    names = f"The positional geometries of {visible(pair.first)} and {visible(pair.second)}"
    evidence = (
        f"their distance is {number(pair.distance)}, where 95 % of random deals of their folds "
        f"stay below {number(pair.chance)} (p = {number(pair.p_value)})"
    )
    if pair.p_value <= LEVEL:
        return f"{names} differ by more than chance: {evidence}."
    return f"{names} do not differ significantly: {evidence}. There may be too few documents."
