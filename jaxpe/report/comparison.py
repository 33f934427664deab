"""Comparison of runs of `jaxpe train`: text, tables, a figure and a page."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jaxpe.analysis.comparison import NOT_TRAINED, ComparedRun, Group, RunComparison
from jaxpe.report import style
from jaxpe.report.page import View
from jaxpe.report.style import add_legend, new_figure
from jaxpe.report.tables import table_group
from jaxpe.report.text import Advice, plural, visible
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
_MOST_LISTED = 2  # settings after a name
_LISTED = 200  # characters of a value in a table


def comparison_table(result: RunComparison) -> "rich.console.Group":
    """Tables of runs, groups of seeds and differing settings for a console: use `rich.print(...)`.

    Raises `MissingExtraError` without the extra `report`.

    >>> rich.print(comparison_table(found))  # doctest: +SKIP
    """
    return table_group(comparison_rows(result))


def comparison_summary(result: RunComparison) -> str:
    """Paragraph on the best run, the significance of its lead, and the next steps.

    >>> comparison_summary(found)  # doctest: +SKIP
    'At step 400 alibi has the lowest held-out loss, 5.02 nats a token ...'
    """
    first, *others = result.groups
    at = "At the end of each run" if result.step is None else f"At step {result.step:,}"
    if not others:
        return (
            f"The {plural(len(result.runs), 'run')} differ in their seeds alone. {at} the held-out "
            f"loss is {_shown(first)}: any difference between them is due to chance."
        )
    return (
        f"{at} {title_of(result, first.name)} has the lowest held-out loss, {_shown(first)}; the "
        f"next, {title_of(result, others[0].name)}, has {_shown(others[0])}. "
        f"{_significance(result, first, others[0])}"
    )


def view(result: RunComparison, *, commands: Mapping[str, str] = {}) -> View:
    """Page of a comparison of runs."""
    figures = style.render(result, ("losses", losses_figure, _CAPTION))
    shown = {"summary": comparison_summary(result)}
    steps = advice(result, commands=commands)
    return View("comparison", shown, figures, comparison_rows(result), steps, "training")


def advice(result: RunComparison, *, commands: Mapping[str, str] = {}) -> list[Advice]:
    """Steps to take: further seeds, until the lead of the first is decided."""
    first, *others = result.groups
    if not others:
        return next_steps(commands)
    mean, half, _ = others[0].behind
    if mean - half > 0:
        name = title_of(result, first.name)
        said = f"Take {name}, and see whether it holds on other documents or at another size."
        return [Advice(said, "")]
    said = "Train more seeds of each configuration, or take the cheaper one."
    return [Advice(said, ""), *next_steps(commands)]


def title_of(result: RunComparison, name: str) -> str:
    """Name of a configuration, with up to two settings in which it differs."""
    index = [run.name for run in result.runs].index(name)
    values = {k: v[index] for k, v in result.settings.items() if k not in NOT_TRAINED}
    listed = ", ".join(f"{setting} {visible(value)}" for setting, value in values.items())
    return f"“{visible(name)}”" + (f" ({listed})" if 0 < len(values) <= _MOST_LISTED else "")


def nats(loss: float, half: float = math.nan) -> str:
    """Loss to four decimals, as in training, with half the width of its interval if it has one.

    >>> nats(5.00123), nats(5.04, 0.0289), nats(math.nan)
    ('5.0012', '5.0400 ± 0.0289', 'n/a')
    """
    finite = [f"{value:.4f}" for value in (loss, half) if math.isfinite(value)]
    return " ± ".join(finite) or "n/a"


def comparison_rows(result: RunComparison) -> list[tuple[str, list[str], Rows]]:
    """Title, header and rows of each table: runs, groups, and settings that differ."""
    at = "at the end" if result.step is None else f"step {result.step:,}"
    accuracy = ["accuracy, %"] if result.task == "classify" else []
    header = ["run", f"loss, {at}", *accuracy, "lowest", "at step", "steps", "parameters", "time"]
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
    for index, name in enumerate(names):
        dash = _DASHES[index // len(_COLOURS) % len(_DASHES)]
        look: dict[str, Any] = {"color": _COLOURS[index % len(_COLOURS)], "ls": dash}
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
    at = run.compared
    return (
        visible(run.name),
        nats(at.loss),
        *([f"{100 * at.accuracy:.1f}"] if result.task == "classify" else []),
        nats(run.best.loss),
        f"{run.best.step:,}",
        f"{run.steps:,}" + ("" if run.finished else ", stopped"),
        "–" if run.parameters is None else f"{run.parameters:,}",
        "–" if run.seconds is None else duration(run.seconds),
    )


def _group_row(result: RunComparison, group: Group) -> tuple[str, ...]:
    mean, low, high = (f"{100 * x:.1f}" for x in group.accuracy)
    accuracy = mean if math.isnan(group.accuracy.low) else f"{mean} [{low}–{high}]"
    return (
        title_of(result, group.name),
        str(group.loss.seeds),
        nats(*group.loss[:2]),
        *([accuracy] if result.task == "classify" else []),
        "–" if group is result.groups[0] else nats(*group.behind[:2]),
    )


def _shown(group: Group) -> str:
    seeds = f" over {plural(group.loss.seeds, 'seed')}" if group.loss.seeds > 1 else ""
    return f"{nats(*group.loss[:2])} nats{seeds}"


def _significance(result: RunComparison, first: Group, second: Group) -> str:
    """Significance of the difference between the first group and the next."""
    mean, half, _ = second.behind
    if math.isnan(half):
        once = [group.name for group in (first, second) if group.loss.seeds < 2]
        which = f"“{visible(once[0])}”" if len(once) == 1 else "each"
        return (
            f"The difference of {nats(mean)} cannot be tested: {which} was trained from one seed. "
            "Runs that differ in their seeds alone are averaged, with intervals."
        )
    significant, several = mean - half > 0, len(result.groups) > 2
    parts = [
        f"The difference {'seed by seed' if second.paired else 'of means over independent seeds'} "
        f"is {nats(mean, half)} (95 % interval{', of all pairs together' if several else ''}): it "
        f"is {'' if significant else 'not '}significant."
    ]
    if several:
        parts.append("The best of several is chosen by the same losses, which favours it slightly.")
    return " ".join(parts)
