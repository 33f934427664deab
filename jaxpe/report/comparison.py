"""Runs of `jaxpe train` side by side: words, tables, a figure and a page."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxpe._core.errors import require
from jaxpe.analysis.comparison import NOT_TRAINED, ComparedRun, Group, RunComparison
from jaxpe.analysis.corpus.result import Interval
from jaxpe.report import style
from jaxpe.report.files import write_files
from jaxpe.report.page import template
from jaxpe.report.style import add_legend, new_figure
from jaxpe.report.tables import make_table
from jaxpe.report.text import plural, visible
from jaxpe.report.training_figures import smoothed
from jaxpe.report.training_run import duration, next_steps

if TYPE_CHECKING:
    import matplotlib.figure
    import rich.console

Rows = list[tuple[str, ...]]

_CAPTION = (
    "Losses on held-out documents (points) and of training batches (faint, averaged over a "
    "twentieth of each run). Runs that differ in their seeds alone have one colour. Dropout raises "
    "the loss of training batches alone."
)
_TITLE_OF_MEANS = "Means over seeds with 95 % intervals; of differences, for all pairs together"
_COLOURS = (
    style.BLUE, style.VERMILION, style.GREEN, style.ORANGE, style.PINK, style.SKY, style.OLIVE,
    style.WINE, style.INDIGO, style.BROWN,
)  # fmt: skip
_DASHES = ("-", "--", ":")
_MOST_TOLD = 2  # settings beside a name
_LISTED = 200  # characters of a value in a table


def comparison_table(result: RunComparison) -> "rich.console.Group":
    """The runs, groups of seeds, and what differs, on a console: `rich.print(...)` shows them.

    Raises `MissingExtraError` without the extra `report`.

    >>> rich.print(comparison_table(found))  # doctest: +SKIP
    """
    group = require("rich.console", extra="report").Group
    tables = [make_table(title, header, rows, right=range(1, 99)) for title, header, rows in
              tables_of(result)]  # fmt: skip
    for table in tables:
        table.padding = (0, 1, 0, 0)
    return group(*tables)


def comparison_summary(result: RunComparison) -> str:
    """Best run, significance of the difference, and what to do next, as a paragraph.

    >>> comparison_summary(found)  # doctest: +SKIP
    'At step 400 alibi has the least held-out loss, 5.02 nats a token ...'
    """
    first, *others = result.groups
    if not others:
        return (
            f"The {plural(len(result.runs), 'run')} differ in their seeds alone. "
            f"{_where(result)} the held-out loss is {_shown(first)}: any difference between them "
            "is that of chance."
        )
    found = (
        f"{_where(result)} {title_of(result, first.name)} has the least held-out loss, "
        f"{_shown(first)}; the next, {title_of(result, others[0].name)}, has {_shown(others[0])}."
    )
    return f"{found} {_certainty(result, first, others[0])}"


def write_comparison(
    result: RunComparison, folder: Path, *, png: bool = False, commands: Mapping[str, str] = {}
) -> Path:
    """Write comparison.html, comparison.json and .npz, and the figure; return the page's path."""
    figures = style.render(result, ("losses", losses_figure, _CAPTION))
    page = template("comparison.html.j2").render(
        result=result,
        summary=comparison_summary(result),
        tables=tables_of(result),
        next_steps=next_steps(commands),
        figures=figures,
    )
    return write_files(folder, "comparison", result, page, figures, png=png)


def title_of(result: RunComparison, name: str) -> str:
    """The name of a configuration with what makes it another, where that is one thing or two."""
    place = [run.name for run in result.runs].index(name)
    found = {
        setting: values[place]
        for setting, values in result.settings.items()
        if setting not in NOT_TRAINED
    }
    told = ", ".join(f"{setting} {visible(value)}" for setting, value in found.items())
    return f"“{visible(name)}”" + (f" ({told})" if 0 < len(found) <= _MOST_TOLD else "")


def nats(loss: float, half: float = math.nan) -> str:
    """A loss as training prints it, to four places, with half of its interval where there is one.

    >>> nats(5.00123), nats(5.04, 0.0289), nats(math.nan)
    ('5.0012', '5.0400 ± 0.0289', 'n/a')
    """
    known = [f"{value:.4f}" for value in (loss, half) if math.isfinite(value)]
    return " ± ".join(known) or "n/a"


def tables_of(result: RunComparison) -> list[tuple[str, list[str], Rows]]:
    """Title, header and rows of each table: the runs, the groups, what was asked for."""
    at = "at the end" if result.step is None else f"step {result.step:,}"
    accuracy = ["accuracy, %"] if result.task == "classify" else []
    header = ["run", f"loss, {at}", *accuracy, "least", "at step", "steps", "parameters", "time"]
    tables = [("Held-out loss, nats", header, [_run_row(result, run) for run in result.runs])]
    if any(group.loss.seeds > 1 for group in result.groups):
        header = ["configuration", "seeds", f"loss, {at}", *accuracy, "more than the first"]
        rows = [_group_row(result, group) for group in result.groups]
        tables.append((_TITLE_OF_MEANS, header, rows))
    if result.settings:
        rows: Rows = [
            (name, *(visible(value, limit=_LISTED) for value in values))
            for name, values in result.settings.items()
        ]
        header = ["setting", *(visible(run.name) for run in result.runs)]
        tables.append(("Settings that differ", header, rows))
    return tables


def losses_figure(result: RunComparison) -> "matplotlib.figure.Figure":
    """Losses over steps, a colour for each configuration."""
    title = f"{visible(result.source)}: losses of {plural(len(result.runs), 'run')}"
    figure, (axis,) = new_figure(title, height=4.0)
    names = [group.name for group in result.groups]
    for place, name in enumerate(names):
        dash = _DASHES[place // len(_COLOURS) % len(_DASHES)]
        look: dict[str, Any] = {"color": _COLOURS[place % len(_COLOURS)], "ls": dash}
        for run in (run for run in result.runs if run.group == name):
            axis.plot(run.loss_steps, smoothed(run.loss), **look, alpha=0.35, lw=0.9)
            label = title_of(result, name) if run.name == name else None
            axis.plot(
                run.held_out_steps, run.held_out, **look, marker="o", ms=3.5, lw=1.3, label=label
            )
    if result.step is not None and len({run.steps for run in result.runs}) > 1:
        axis.axvline(result.step, color=style.CHANCE, lw=0.8, ls=":")
    axis.set(xlabel="step", ylabel="cross-entropy, nats")
    axis.grid(axis="y", color="#EEEEEE", lw=0.8)
    axis.set_axisbelow(True)
    add_legend(figure, axis, columns=2)
    return figure


def _run_row(result: RunComparison, run: ComparedRun) -> tuple[str, ...]:
    at = run.last if run.common is None else run.common
    accuracy = [f"{100 * at.accuracy:.1f}"] if result.task == "classify" else []
    return (
        visible(run.name),
        nats(at.loss),
        *accuracy,
        nats(run.best.loss),
        f"{run.best.step:,}",
        f"{run.steps:,}" + ("" if run.finished else ", stopped"),
        "–" if run.parameters is None else f"{run.parameters:,}",
        "–" if run.seconds is None else duration(run.seconds),
    )


def _group_row(result: RunComparison, group: Group) -> tuple[str, ...]:
    first = group is result.groups[0]
    return (
        title_of(result, group.name),
        str(group.loss.seeds),
        nats(*group.loss[:2]),
        *([_percent(group.accuracy)] if result.task == "classify" else []),
        "–" if first else nats(*group.behind[:2]),
    )


def _percent(found: Interval) -> str:
    mean, low, high = (f"{100 * x:.1f}" for x in found)
    return mean if math.isnan(found.low) else f"{mean} [{low}–{high}]"


def _where(result: RunComparison) -> str:
    return "At the end of each run" if result.step is None else f"At step {result.step:,}"


def _shown(group: Group) -> str:
    seeds = f" over {plural(group.loss.seeds, 'seed')}" if group.loss.seeds > 1 else ""
    return f"{nats(*group.loss[:2])} nats{seeds}"


def _certainty(result: RunComparison, first: Group, second: Group) -> str:
    """Significance of the difference between the first group and the next."""
    mean, half, _ = second.behind
    if math.isnan(half):
        return (
            f"The difference of {nats(mean)} cannot be tested, since "
            f"{_trained_once(first, second)} trained from one seed: no repeat shows how much the "
            "seed alone changes the loss. Train each configuration from at least three seeds and "
            "compare all runs; runs that differ in their seeds are then averaged, with intervals."
        )
    how = "seed by seed" if second.paired else "of means over independent seeds"
    told = "is significant" if mean - half > 0 else "is not significant"
    pairs = "" if len(result.groups) < 3 else ", of all pairs of configurations together"
    text = f"The difference {how} is {nats(mean, half)} (95 % interval{pairs}): it {told}."
    if len(result.groups) > 2:
        text += (
            " The best of several configurations is chosen by the same losses, so its lead is "
            "slightly overestimated."
        )
    if mean - half > 0:
        return f"{text} Next, see whether it holds on other documents or at another size."
    each = "" if len(result.groups) < 3 else ", five or more of each configuration"
    return f"{text} Next, train more seeds{each}, or take the cheaper one."


def _trained_once(*groups: Group) -> str:
    once = [f"“{visible(group.name)}”" for group in groups if group.loss.seeds < 2]
    if len(once) != 1:
        return "each was"
    return f"{once[0]} was"
