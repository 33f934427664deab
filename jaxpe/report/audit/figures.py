"""Figures of an audit: the kernel of positions, training and its linearisation, and the bound."""

from typing import TYPE_CHECKING

import numpy as np

from jaxpe.report import style
from jaxpe.report.style import CHANCE, PLUG_IN, POSITION, add_legend, new_figure

if TYPE_CHECKING:
    import matplotlib.figure

    from jaxpe.analysis.audit import AuditResult


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
        (pairs.decreasing, POSITION, f"best decreasing, {down}"),
    ):
        axis.plot(pairs.distances[order], values[order], color=colour, label=label)
    axis.set(xlabel="Hellinger distance", ylabel="α_ij")
    add_legend(figure, axis, columns=1)
    return figure


def training_figure(result: "AuditResult") -> "matplotlib.figure.Figure":
    """Losses and the distance of outputs, by step."""
    training = result.training
    title = "Linearised against real training"
    figure, (losses, gap) = new_figure(title, height=4.6, rows=2, sharex=True)
    losses.plot(training.losses, color=PLUG_IN, label="model")
    losses.plot(training.linear_losses, color=POSITION, ls="--", label="linearised")
    losses.set(ylabel="loss")
    losses.legend(fontsize=9.5)
    gap.plot(training.output_distance, color=CHANCE)
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
        pairs.bound[shown], pairs.reached[shown], ".", ms=2.5, alpha=0.4, color=POSITION,
        rasterized=True,
    )  # fmt: skip
    both = np.concatenate([pairs.bound[shown], pairs.reached[shown]])
    ends = both.min() / 2, both.max() * 2
    axis.plot(ends, ends, color=PLUG_IN, lw=1)
    axis.set(xlabel="right side of (13)", ylabel="‖p*_i − p*_j‖")
    return figure


def spectrum_figure(result: "AuditResult") -> "matplotlib.figure.Figure":
    """Positive eigenvalues of α on a log axis."""
    values = result.kernel.eigenvalues
    figure, (axis,) = new_figure("Spectrum of the kernel")
    axis.semilogy(np.arange(1, len(values) + 1), np.where(values > 0, values, np.nan), ".-",
                  color=POSITION)  # fmt: skip
    axis.set(xlabel="eigenvalue", ylabel="λ")
    return figure


_CAPTIONS: dict[style.Draw, str] = {
    kernel_figure: (
        "Entries of the kernel of positions against Hellinger distances. Definition 10 asks for an "
        "increasing function of the distance; no positive definite kernel has one. By chance: in "
        "95 % of random orders of the positions."
    ),
    training_figure: (
        "Position vectors trained by gradient descent in the model and in its linearisation, from "
        "the same start, on the same examples."
    ),
    bound_figure: (
        "Distances at the fixed point of the linearised flow against the right side of (13). "
        "Points above the line break the bound."
    ),
    spectrum_figure: "Eigenvalues of the kernel over positions with text, largest first.",
}
FIGURES = style.drawings(_CAPTIONS)
