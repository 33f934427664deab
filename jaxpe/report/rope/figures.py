"""Figures of a rotary configuration: wavelengths, scaling, programs and phase errors."""

import itertools
import math
import textwrap
from collections.abc import Container
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxpe.plans import RopeAnalysis
from jaxpe.report import style
from jaxpe.report.rope.text import short_names
from jaxpe.report.style import (
    Margins,
    Rendered,
    add_legend,
    legend_height,
    new_figure,
    render,
)

if TYPE_CHECKING:
    import matplotlib.figure

_COLOURS = (style.BLUE, style.VERMILION, style.GREEN, style.ORANGE)
_TYPES = {"float32": style.BLUE, "bfloat16": style.VERMILION, "float16": style.ORANGE}
_DASHES = {"all": "-", "frequencies": "--"}


def wavelengths_figure(result: RopeAnalysis) -> "matplotlib.figure.Figure":
    """Wavelengths before and after scaling, against the lengths of training and use."""
    widest: Any = result.widest
    count = len(widest.frequencies)
    title = f"{widest.never_round} of {count} frequencies never complete a rotation"
    shown = list(zip(result.turning, _COLOURS, strict=False))
    below = legend_height(len(shown) + 2, columns=2)
    figure, (axis,) = new_figure(title, height=4.0, margins=Margins(0.75, bottom=0.5 + below))
    for layer, colour in shown:
        axis.plot(2 * math.pi / layer.unscaled, color=colour, lw=1.2, alpha=0.4)
        wavelengths = 2 * math.pi / np.asarray(layer.frequencies)
        axis.plot(wavelengths, color=colour, label=layer.name.replace("_", " "))
    for length, dash, name in ((widest.trained, "--", "training"), (widest.reach, ":", "longest")):
        axis.axhline(length, color=style.CHANCE, lw=1.0, ls=dash, label=f"{name}: {length:,}")
    axis.set(xlabel="frequency k", ylabel="wavelength, positions", yscale="log")
    add_legend(figure, axis, columns=2)
    return figure


def scaling_figure(result: RopeAnalysis) -> "matplotlib.figure.Figure":
    """Ratio of each frequency after scaling to the frequency before."""
    widest: Any = result.widest
    title = f"Scaling leaves {widest.kept} of {len(widest.frequencies)} frequencies unchanged"
    figure, (axis,) = new_figure(title, height=3.6)
    for layer, colour in zip(result.turning, _COLOURS, strict=False):
        label = layer.name.replace("_", " ")
        axis.plot(layer.frequencies / layer.unscaled, color=colour, marker="o", ms=3, label=label)
    axis.set(xlabel="frequency k", ylabel="after / before", ylim=(0, None))
    if len(result.turning) > 1:
        add_legend(figure, axis, columns=2)
    return figure


def programs_figure(result: RopeAnalysis) -> "matplotlib.figure.Figure":
    """Ratio of each program's frequencies to the first program's, in the first differing group."""
    differences = (one for one in result.disagreements if one.what == "frequencies")
    index: Any = next(differences).group
    programs = result.accepted_by
    first: Any = programs[0].numbers[index]
    figure, (axis,) = new_figure("Programs compute different frequencies", height=4.0)
    lines: dict[bytes, list[str]] = {}
    for program in programs:
        frequencies = program.numbers[index].frequencies
        if len(frequencies) == len(first.frequencies):
            ratio = np.float32(frequencies / first.frequencies).round(5)
            lines.setdefault(ratio.tobytes(), []).append(program.name)
    colours = (*_COLOURS, style.PINK, style.CHANCE)
    for colour, (ratio, names) in zip(itertools.cycle(colours), lines.items(), strict=False):
        label = textwrap.fill(short_names(names), 48)
        axis.plot(np.frombuffer(ratio, np.float32), label=label, color=colour, lw=2.6, alpha=0.85)
    axis.set(xlabel="frequency k", ylabel=f"divided by {programs[0].name}")
    axis.set_yscale("log", base=2)
    axis.yaxis.set_major_formatter("{x:g}")
    add_legend(figure, axis, columns=1)
    return figure


def precision_figure(result: RopeAnalysis) -> "matplotlib.figure.Figure":
    """Largest phase error against the length of a text."""
    figure, (axis,) = new_figure("Phase error by dtype", height=4.0)
    pairs = dict.fromkeys((error.dtype, error.rounded) for error in result.precision)
    for name, rounded in pairs:
        curve = [e for e in result.precision if (e.dtype, e.rounded) == (name, rounded)]
        label = name if rounded == "all" else f"{name} frequencies"
        errors = [max(error.largest, 1e-9) for error in curve]
        look = {"color": _TYPES[name], "ls": _DASHES[rounded], "marker": "o", "ms": 3}
        axis.plot([error.length for error in curve], errors, **look, label=label)
    axis.axhline(math.pi, color=style.CHANCE, lw=0.8, ls=":")
    axis.set(xlabel="length of the text", ylabel="error, radians", xscale="log", yscale="log")
    add_legend(figure, axis, columns=2)
    return figure


_CAPTIONS: dict[style.Draw, str] = {
    wavelengths_figure: (
        "Wavelength: number of positions in which a frequency completes a rotation, before scaling "
        "(faint) and after. Above the training line, no rotation is complete in training."
    ),
    precision_figure: (
        "Largest phase error over the last 256 positions of a text. Solid: all numbers are rounded "
        "to the dtype. Dashed: only frequencies are rounded. An error of π is the maximum."
    ),
    scaling_figure: (
        "Frequency after scaling, divided by the frequency before scaling. At 1 the frequency is "
        "unchanged. At 1/factor positions are interpolated."
    ),
    programs_figure: (
        "Frequencies of each program, divided by the first program's. Away from 1, the program "
        "rotates queries and keys by other angles."
    ),
}
FIGURES = style.drawings(_CAPTIONS)


def rope_figures(result: RopeAnalysis, names: Container[str] | None = None) -> list[Rendered]:
    """Figures that apply to this configuration, or the named ones of them."""
    if result.widest is None:
        return []
    applies = {
        "scaling": any(layer.kept < len(layer.frequencies) for layer in result.turning),
        "programs": any(one.what == "frequencies" for one in result.disagreements),
    }
    named = (figure for figure in FIGURES if names is None or figure[0] in names)
    return render(result, *(figure for figure in named if applies.get(figure[0], True)))
