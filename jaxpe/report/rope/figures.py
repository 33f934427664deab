"""Figures of a positional configuration: wavelengths, what scaling does, errors of phases."""

import math
from typing import TYPE_CHECKING

import numpy as np

from jaxpe.analysis.rope import RopeAnalysis
from jaxpe.report import style
from jaxpe.report.rope.words import widest_layer
from jaxpe.report.style import Rendered, add_legend, new_figure, render

if TYPE_CHECKING:
    import matplotlib.figure

_COLOURS = (style.BLUE, style.VERMILION, style.GREEN, style.ORANGE)
_TYPES = {
    "float32": style.BLUE,
    "bfloat16": style.VERMILION,
    "float16": style.ORANGE,
}
_DASHES = {"all": "-", "frequencies": "--"}
_CAPTIONS = {
    "wavelengths": (
        "Positions in which each frequency makes one turn: before scaling (faint) and after it. "
        "A frequency above the line of the training length was never seen to come round."
    ),
    "scaling": (
        "Frequency after scaling over that before it. At 1 it is left alone; at 1/factor positions "
        "are interpolated."
    ),
    "readers": (
        "Frequencies of each reader over those of the first. A line that is not at 1 turns queries "
        "and keys by other angles than the model was trained with."
    ),
    "precision": (
        "Largest error of a phase among the last 256 positions of a text, where everything is "
        "rounded to the type (solid), or the frequencies alone (dashed). At π nothing is left."
    ),
}


def rope_figures(result: RopeAnalysis) -> list[Rendered]:
    """The figures that this configuration has something to show in."""
    drawn = {"wavelengths": wavelengths_figure, "precision": precision_figure}
    if any(layer.kept < len(layer.inverse) for layer in result.layers):
        drawn["scaling"] = scaling_figure
    if any(one.what == "inverse" for one in result.disagreements):
        drawn["readers"] = readers_figure
    return render(result, *((name, draw, _CAPTIONS[name]) for name, draw in drawn.items()))


def wavelengths_figure(result: RopeAnalysis) -> "matplotlib.figure.Figure":
    """Wavelengths before and after scaling, against the lengths of training and use."""
    widest = widest_layer(result)
    title = f"{widest.never_round} of {len(widest.inverse)} frequencies never come round"
    figure, (axis,) = new_figure(title, height=4.0)
    for layer, colour in zip(result.layers, _COLOURS, strict=False):
        axis.plot(_wavelengths(layer.unscaled), color=colour, lw=1.2, alpha=0.4)
        axis.plot(_wavelengths(layer.inverse), color=colour, label=layer.layers.replace("_", " "))
    for length, dash, name in ((widest.trained, "--", "training"), (widest.reach, ":", "longest")):
        axis.axhline(length, color=style.CHANCE, lw=1.0, ls=dash, label=f"{name}: {length:,}")
    axis.set(xlabel="frequency k", ylabel="wavelength, positions", yscale="log")
    add_legend(figure, axis, columns=3)
    return figure


def scaling_figure(result: RopeAnalysis) -> "matplotlib.figure.Figure":
    """Ratio of frequencies after and before scaling."""
    widest = widest_layer(result)
    figure, (axis,) = new_figure(
        f"Scaling leaves {widest.kept} of {len(widest.inverse)} frequencies alone", height=3.6
    )
    for layer, colour in zip(result.layers, _COLOURS, strict=False):
        label = layer.layers.replace("_", " ")
        axis.plot(layer.inverse / layer.unscaled, color=colour, marker="o", ms=3, label=label)
    axis.set(xlabel="frequency k", ylabel="after / before", ylim=(0, None))
    if len(result.layers) > 1:
        add_legend(figure, axis, columns=2)
    return figure


def readers_figure(result: RopeAnalysis) -> "matplotlib.figure.Figure":
    """Frequencies of the readers over those of the first, of layers that reach furthest."""
    kind = widest_layer(result).layers
    known = [r for r in result.readings if r.layers == kind and r.problem is None]
    first = known[0]
    figure, (axis,) = new_figure("Readers turn by other frequencies", height=4.0)
    colours = zip(known, (*_COLOURS, style.PINK), strict=False)
    for place, (reading, colour) in enumerate(colours):
        if len(reading.inverse) != len(first.inverse):
            continue
        turning = first.inverse > 0
        ratio = np.divide(reading.inverse, np.where(turning, first.inverse, np.nan))
        axis.plot(ratio, color=colour, lw=3.2 - 0.5 * place, alpha=0.85, label=reading.reader)
    axis.set(xlabel="frequency k", ylabel=f"over that of {first.reader}", yscale="log")
    add_legend(figure, axis, columns=2)
    return figure


def precision_figure(result: RopeAnalysis) -> "matplotlib.figure.Figure":
    """Largest errors of phases over the length of a text."""
    figure, (axis,) = new_figure("Phases keep their digits in float32 alone", height=4.0)
    pairs = dict.fromkeys((error.dtype, error.rounded) for error in result.precision)
    for name, rounded in pairs:
        own = [e for e in result.precision if (e.dtype, e.rounded) == (name, rounded)]
        label = name if rounded == "all" else f"{name} frequencies"
        errors = [max(error.largest, 1e-9) for error in own]
        look = {"color": _TYPES[name], "ls": _DASHES[rounded], "marker": "o", "ms": 3}
        axis.plot([error.length for error in own], errors, **look, label=label)
    axis.axhline(math.pi, color=style.CHANCE, lw=0.8, ls=":")
    axis.set(xlabel="length of the text", ylabel="error, radians", xscale="log", yscale="log")
    add_legend(figure, axis, columns=2)
    return figure


def _wavelengths(inverse: np.ndarray) -> np.ndarray:
    """NaN, which is not drawn, for what does not turn."""
    turning = np.where(inverse > 0, inverse, np.nan)
    return 2 * math.pi / turning
