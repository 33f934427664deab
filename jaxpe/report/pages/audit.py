"""Page of an audit of the published statements."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from jaxpe._core.options import Model, Source, command_line
from jaxpe.analysis.audit import AuditResult
from jaxpe.analysis.audit.result import AuditedStatement, KernelPairs, Training
from jaxpe.report.findings import Figure, Finding, Page, Section, Table
from jaxpe.report.numbers import number, percent
from jaxpe.report.writing import page
from jaxpe.theory.statements import NOTHING_COMPARED

# Cards of the outcomes: name and meaning.
_OUTCOMES = {
    "holds": ("statements that hold", "Every hypothesis and every conclusion holds."),
    "refuted": ("refuted statements", "Every hypothesis holds, and a conclusion fails."),
    "not decided": ("statements not decided", "A hypothesis of a failing one cannot be checked."),
    "does not apply": ("statements that do not apply", "A hypothesis fails."),
}


@page.register
def audit_page(result: AuditResult) -> Page:
    """Page of an audit: outcomes, each statement with its comparisons, the kernel and training."""
    rows, facts = [], result.facts
    for one in result.statements:
        name, against = f"{one.name}: {one.published.title}", f"in general {one.status}"
        why = one.verdict.removeprefix(one.outcome).removeprefix(": ")
        rows.append(Finding(name, one.outcome, against=against, verdict=why))
    compared = [(one.name, *line) for one in result.statements for line in lines(one)]
    comparisons = Table("Comparisons", ("statement", "claim", "found", "holds"), compared)
    note = "if: hypothesis; then: conclusion; instead: what is true. Noise is not considered."
    return Page(
        name="audit",
        title=f"Do the theorems hold on {result.source}?",
        about=f"{result.model}; {len(rows)} published statements",
        lead=[*_outcomes(result), _weights(result)],
        sections=(
            Section("Statements", rows, figures=_figures(result.kernel, result.training)),
            Section("Comparisons", tables=[comparisons], note=note, folded=True),
        ),
        settings={name.replace("_", " "): f"{x}" for name, x in facts._asdict().items()},
        methods=f"Hypotheses and conclusions of {len(rows)} published statements were evaluated on "
        f"the model at {facts.positions} positions, over {facts.examples} documents "
        f"[@cirrincione2026; @jaxpe]. Seed {facts.seed}.",
    )


def _outcomes(result: AuditResult) -> list[Finding]:
    """Number of statements of each outcome, and what not to conclude."""
    found = []
    for outcome, (label, meaning) in _OUTCOMES.items():
        names = [one.name for one in result.statements if one.outcome == outcome]
        refuted = bool(names) and outcome == "refuted"
        todo = f"Do not rely on {', '.join(names)} for this model." * refuted
        found.append(Finding(label, len(names), unit="count", sentence=meaning, todo=todo))
    return found


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
    asked = "Definition 10 asks for an increasing function. By chance: in 95 % of random orders."
    trained = "Position vectors trained by gradient descent, from one start, on the same examples."
    both = [partial(plot_training, training), partial(plot_gap, training)]
    points = [partial(plot_kernel, kernel)]
    figures = [
        Figure("kernel", "Is the kernel a function of Hellinger distance?", asked, points),
        Figure("training", "Linearised against real training", trained, both, height=2.3),
    ]
    shown = np.isfinite(kernel.bound) & (kernel.bound > 0) & (kernel.reached > 0)
    if shown.any():
        caption = "At the fixed point of the linearised flow. Points above the line break it."
        panel = partial(plot_bound, kernel.bound[shown], kernel.reached[shown])
        figures.append(Figure("bound", "The bound (13)", caption, [panel]))
    return figures


def plot_kernel(kernel: KernelPairs, ax: Any) -> None:
    """α_ij against d_ij, with the best monotone functions."""
    points = {"ms": 2.5, "alpha": 0.4, "color": "#555555", "rasterized": True}
    ax.plot(kernel.distances, kernel.alpha, ".", **points)
    order = np.argsort(kernel.distances)
    fits = zip(("increasing", "decreasing"), kernel.explained, kernel.by_chance, strict=True)
    for name, share, chance in fits:
        label = f"best {name}: explains {percent(share)} (by chance {percent(chance)})"
        ax.plot(kernel.distances[order], getattr(kernel, name)[order], label=label)
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
