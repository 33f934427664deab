"""Page of an audit of the published statements."""

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxpe import plot
from jaxpe._core.options import Model, Source, command_line
from jaxpe.analysis.audit import AuditedStatement, AuditResult, KernelPairs, Training
from jaxpe.report.findings import Figure, Finding, Page, Section, Table
from jaxpe.report.numbers import number, percent
from jaxpe.report.writing import page
from jaxpe.theory.audit import NOTHING_COMPARED

# Cards of the outcomes: name and meaning.
_OUTCOMES = {
    "holds": ("statements that hold", "Every hypothesis and every conclusion holds."),
    "refuted": ("refuted statements", "Every hypothesis holds, and a conclusion fails."),
    "not decided": (
        "statements not decided", "A conclusion fails, and a hypothesis cannot be checked.",
    ),
    "not claimed": ("statements that do not apply", "A hypothesis fails."),
}  # fmt: skip


@page.register
def audit_page(result: AuditResult) -> Page:
    """Page of an audit: outcomes, each statement with its comparisons, the kernel and training."""
    rows, published, comparisons = [], [], []
    for one in result.statements:
        about = one.published
        name, against = f"{one.name}: {about.title}", f"in general {one.status}"
        value = "does not apply" if one.outcome == "not claimed" else one.outcome
        why = one.verdict.removeprefix(one.outcome).removeprefix(": ")
        rows.append(Finding(name, value, against=against, verdict=why))
        claims = ", ".join(about.results)
        published.append((one.name, about.source, about.claim, about.finding, claims))
        comparisons += [(one.name, *line) for line in lines(one)]
    header = ("statement", "source", "claim", "in general", "on the page Results")
    return Page(
        name="audit",
        title=f"Do the theorems hold on {result.source}?",
        about=f"{result.model}; {len(rows)} published statements",
        lead=[*_outcomes(result), _weights(result)],
        sections=(
            Section("Statements", rows, figures=_figures(result.kernel, result.training)),
            Section(
                "Comparisons",
                tables=[
                    Table("Comparisons", ("statement", "claim", "found", "holds"), comparisons)
                ],
                note="if: a hypothesis; then: a conclusion; instead: what is true in its place. "
                "Numbers are of sampled counts and examples, and are not judged against noise.",
                folded=True,
            ),
            Section("Published", tables=[Table("Published", header, published)], folded=True),
        ),
        settings={name.replace("_", " "): f"{x}" for name, x in result.facts._asdict().items()},
        methods=(
            f"Hypotheses and conclusions of {len(result.statements)} published statements were "
            f"evaluated on the model at {result.facts.positions} positions, over "
            f"{result.facts.examples} documents [@cirrincione2026; @jaxpe]. Seed "
            f"{result.facts.seed}."
        ),
    )


def _outcomes(result: AuditResult) -> list[Finding]:
    """Number of statements of each outcome, and what not to conclude."""
    names = {outcome: [] for outcome in _OUTCOMES}
    for one in result.statements:
        names[one.outcome].append(one.name)
    return [
        Finding(
            name,
            len(names[outcome]),
            unit="count",
            sentence=meaning,
            todo=f"Do not rely on {', '.join(names[outcome])} for this model."
            if outcome == "refuted" and names[outcome]
            else "",
        )
        for outcome, (name, meaning) in _OUTCOMES.items()
    ]


def _weights(result: AuditResult) -> Finding:
    """Whether the model is trained."""
    if result.facts.trained:
        return Finding("weights", "trained")
    source = Source(source=result.inputs or result.source)
    train, audit = command_line("train", source), command_line("audit", Model(model="run"))
    todo = "Train the model: statements on trained positions need one."
    return Finding("weights", "as initialised", todo=todo, paste=f"{train} && {audit}")


def lines(statement: AuditedStatement) -> Iterator[tuple[str, str, str]]:
    """The comparisons of a statement: "if" a hypothesis, "then" a conclusion, and "instead"."""
    parts = {"if": "hypotheses", "then": "conclusions", "instead": "instead"}
    for word, part in parts.items():
        for name, sides in getattr(statement, part).items():
            text = statement.published.sentence(f"{word} {name}", sides, number=_side)
            holds = "–" if text == NOTHING_COMPARED else "yes" if sides.holds else "no"
            yield f"{word} {name}", text, holds
        for name in statement.unchecked if word == "if" else ():
            yield f"if {name}", str(statement.published.sentences[f"if {name}"]), "not checked"


def _side(value: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    written_out = value == 0 or 1e-6 <= abs(value) < 1e6
    return number(value) if written_out else f"{value:.2e}".replace("-", "−")


def _figures(kernel: KernelPairs, training: Training) -> list[Figure]:
    figures = [
        Figure(
            "kernel",
            "Is the kernel a function of distance?",
            "Kernel of positions against Hellinger distances. Definition 10 asks for an increasing "
            "function; by chance: in 95 % of random orders of the positions.",
            [functools.partial(plot_kernel, kernel)],
        ),
        Figure(
            "training",
            "Linearised against real training",
            "Position vectors trained by gradient descent in the model and in its linearisation, "
            "from one start, on the same examples.",
            [functools.partial(plot_training, training), functools.partial(plot_gap, training)],
            height=2.3,
        ),
        Figure(
            "spectrum",
            "Spectrum of the kernel",
            "Positive eigenvalues over positions with text, largest first.",
            [lambda ax: plot.spectrum(kernel.eigenvalues[kernel.eigenvalues > 0], ax=ax)],
        ),
    ]
    shown = np.isfinite(kernel.bound) & (kernel.bound > 0) & (kernel.reached > 0)
    if shown.any():
        caption = (
            "At the fixed point of the linearised flow. Points above the line break the bound."
        )
        panel = functools.partial(plot_bound, kernel.bound[shown], kernel.reached[shown])
        figures.append(Figure("bound", "The bound (13)", caption, [panel]))
    return figures


def plot_kernel(kernel: KernelPairs, ax: Any) -> None:
    """α_ij against d_ij, with the best monotone functions."""
    ax.plot(
        kernel.distances, kernel.alpha, ".", ms=2.5, alpha=0.4, color="#555555", rasterized=True
    )
    order = np.argsort(kernel.distances)
    fits = {"increasing": kernel.increasing, "decreasing": kernel.decreasing}
    for (name, fit), share, chance in zip(
        fits.items(), kernel.explained, kernel.by_chance, strict=True
    ):
        label = f"best {name}: explains {percent(share)} (by chance {percent(chance)})"
        ax.plot(kernel.distances[order], fit[order], label=label)
    ax.set(xlabel="Hellinger distance", ylabel="α_ij")
    ax.legend()


def plot_training(training: Training, ax: Any) -> None:
    """Losses of the model and of its linearisation, by step."""
    ax.plot(training.losses, label="model")
    ax.plot(training.linear_losses, ls="--", label="linearised")
    ax.set(ylabel="loss")
    ax.legend()


def plot_gap(training: Training, ax: Any) -> None:
    """Distance between the outputs of the model and of its linearisation, by step."""
    ax.plot(training.output_distance, color="#555555")
    ax.set(xlabel="step", ylabel="‖f − f_lin‖ / ‖f_0‖", ylim=(0, None))


def plot_bound(bound: np.ndarray, reached: np.ndarray, ax: Any) -> None:
    """Both sides of (13), pair by pair."""
    ax.loglog(bound, reached, ".", ms=2.5, alpha=0.4, rasterized=True)
    both = np.concatenate([bound, reached])
    ends = both.min() / 2, both.max() * 2
    ax.plot(ends, ends, lw=1)
    ax.set(xlabel="right side of (13)", ylabel="‖p*_i − p*_j‖")
