"""What became of the published statements: a table, a page and figures."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxpe.report import style
from jaxpe.report.files import write_files
from jaxpe.report.page import template
from jaxpe.report.style import CHANCE, PLUG_IN, SPLIT_HALF, add_legend, new_figure
from jaxpe.report.tables import make_table
from jaxpe.report.words import number, plural, visible

if TYPE_CHECKING:
    import matplotlib.figure
    import rich.table

    from jaxpe.analysis.audit import AuditedStatement, AuditResult


_LARGEST = 3.4e38


class Line(NamedTuple):
    """One comparison in words."""

    part: str
    name: str
    lhs: str
    rhs: str
    slack: str
    holds: str


def audit_table(result: "AuditResult") -> "rich.table.Table":
    """Every hypothesis and conclusion, one a row: `rich.print(audit_table(result))`.

    Raises `MissingExtraError` without the extra `report`.

    >>> rich.print(audit_table(found))  # doctest: +SKIP
    """
    header = ["statement", "claim", "lhs", "rhs", "slack", "holds"]
    rows, ends = [], []
    for statement in result.statements:
        found = [(f"{line.part} {line.name}", *line[2:]) for line in lines(statement)]
        left = [f"{statement.name}\n{statement.outcome} here", *[""] * (len(found) - 1)]
        rows += [(name, *line) for name, line in zip(left, found, strict=True)]
        ends.append(len(rows) - 1)
    title = f"{visible(result.source)}, {visible(result.model)}"
    table = make_table(title, header, rows, right=(2, 3, 4))
    for end in ends:
        table.rows[end].end_section = True
    return table


def audit_summary(result: "AuditResult") -> str:
    """How many statements hold on this model and corpus, as a paragraph.

    >>> audit_summary(found)  # doctest: +SKIP
    'Of 13 published statements, 1 holds on this model and corpus, ...'
    """
    by_outcome = {
        outcome: _with(result, outcome) for outcome in ("holds", "refuted", "not claimed")
    }
    hold, refuted, silent = (len(names) for names in by_outcome.values())
    text = (
        f"Of {plural(len(result.statements), 'published statement')}, {hold} "
        f"{'holds' if hold == 1 else 'hold'} on this model and corpus, {refuted} "
        f"{'is' if refuted == 1 else 'are'} refuted by them (every "
        f"hypothesis holds and a conclusion fails), and {silent} "
        f"{'claims' if silent == 1 else 'claim'} nothing about them (a hypothesis fails)."
    )
    if refuted:
        text += f" Refuted: {', '.join(by_outcome['refuted'])}."
    general = Counter(statement.status for statement in result.statements)
    known = ", ".join(f"{count} {status}" for status, count in general.most_common())
    return f"{text} In general, whatever the model: {known}."


def _with(result: "AuditResult", outcome: str) -> list[str]:
    return [statement.name for statement in result.statements if statement.outcome == outcome]


def lines(statement: "AuditedStatement") -> Iterator[Line]:
    """The comparisons of a statement: hypotheses, conclusions, and what holds instead."""
    parts = (
        ("if", statement.hypotheses),
        ("then", statement.conclusions),
        ("instead", statement.instead),
    )
    for part, comparisons in parts:
        for name, sides in comparisons.items():
            lhs, rhs, slack = map(_side, sides[:3])
            yield Line(part, name, lhs, rhs, slack, "yes" if sides.holds else "no")


def write_audit(result: "AuditResult", folder: Path, *, png: bool = False) -> Path:
    """Write audit.html, audit.json and .npz, and the figures; return the path of the page."""
    figures = [
        style.render(result, "kernel", kernel_figure, _KERNEL),
        style.render(result, "training", training_figure, _TRAINING),
        style.render(result, "bound", bound_figure, _BOUND),
        style.render(result, "spectrum", spectrum_figure, _SPECTRUM),
    ]
    page = template("audit.html.j2").render(
        result=result, summary=audit_summary(result), lines=lines, figures=figures
    )
    return write_files(folder, "audit", result, page, figures, png=png)


_KERNEL = (
    "Entries of the kernel of positions against Hellinger distances. Definition 10 asks for an "
    "increasing function of the distance; no positive definite kernel has one. By chance: in 95 % "
    "of random orders of the positions."
)
_TRAINING = (
    "Position vectors trained by gradient descent in the model and in its linearisation, from the "
    "same start, on the same examples."
)
_BOUND = (
    "Distances at the fixed point of the linearised flow against the right side of (13). Points "
    "above the line break the bound."
)
_SPECTRUM = "Eigenvalues of the kernel over positions with text, largest first."


def kernel_figure(result: "AuditResult") -> "matplotlib.figure.Figure":
    """α_ij against d_ij, with the best monotone functions."""
    pairs = result.kernel
    up, down = (
        f"explains {100 * share:.0f} % (by chance below {100 * chance:.0f} %)"
        for share, chance in zip(pairs.explained, pairs.by_chance, strict=True)
    )
    figure, (axis,) = new_figure("Is the kernel a function of distance?")
    axis.plot(pairs.distances, pairs.alpha, ".", ms=2.5, alpha=0.4, color=CHANCE, rasterized=True)
    order = np.argsort(pairs.distances)
    for values, colour, label in (
        (pairs.increasing, PLUG_IN, f"best increasing, {up}"),
        (pairs.decreasing, SPLIT_HALF, f"best decreasing, {down}"),
    ):
        axis.plot(pairs.distances[order], values[order], color=colour, label=label)
    axis.set(xlabel="Hellinger distance", ylabel="α_ij")
    add_legend(figure, axis, columns=1)
    return figure


def training_figure(result: "AuditResult") -> "matplotlib.figure.Figure":
    """Losses and the distance of outputs, by step."""
    found = result.training
    title = "Linearised against real training"
    figure, (losses, gap) = new_figure(title, height=4.6, rows=2, sharex=True)
    losses.plot(found.losses, color=PLUG_IN, label="model")
    losses.plot(found.linear_losses, color=SPLIT_HALF, ls="--", label="linearised")
    losses.set(ylabel="loss")
    losses.legend(fontsize=9.5)
    gap.plot(found.output_distance, color=CHANCE)
    gap.set(xlabel="step", ylabel="‖f − f_lin‖ / ‖f_0‖", ylim=(0, None))
    return figure


def bound_figure(result: "AuditResult") -> "matplotlib.figure.Figure":
    """Both sides of (13), pair by pair."""
    pairs = result.kernel
    figure, (axis,) = new_figure("The bound (13)")
    shown = np.isfinite(pairs.bound) & (pairs.bound > 0) & (pairs.reached > 0)
    if not shown.any():
        return style.say_why_empty(figure, axis, "(13) has no finite right side")
    axis.loglog(
        pairs.bound[shown], pairs.reached[shown], ".", ms=2.5, alpha=0.4, color=SPLIT_HALF,
        rasterized=True,
    )  # fmt: skip
    both = np.concatenate([pairs.bound[shown], pairs.reached[shown]])
    ends = both.min() / 2, both.max() * 2
    axis.plot(ends, ends, color=PLUG_IN, lw=1)
    axis.set(xlabel="right side of (13)", ylabel="‖p*_i − p*_j‖")
    return figure


def spectrum_figure(result: "AuditResult") -> "matplotlib.figure.Figure":
    """Eigenvalues of α on a log axis; those that are not positive are left out."""
    values = result.kernel.eigenvalues
    figure, (axis,) = new_figure("Spectrum of the kernel")
    axis.semilogy(np.arange(1, len(values) + 1), np.where(values > 0, values, np.nan), ".-",
                  color=SPLIT_HALF)  # fmt: skip
    axis.set(xlabel="eigenvalue", ylabel="λ")
    return figure


def _side(value: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if abs(value) > _LARGEST:  # what "finite" is compared with
        return "largest float" if value > 0 else "−largest float"
    return f"{value:.2e}" if abs(value) >= 1e6 else number(value)
