"""Figures of a page: panels drawn into axes in the style of `jaxpe.plot`, and as files."""

import functools
import io
import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import jaxpe
from jaxpe._core.errors import require
from jaxpe.report.findings import Figure

if TYPE_CHECKING:
    import matplotlib.figure

FigureFormat: TypeAlias = Literal["svg", "png", "pdf"]
FigureStyle: TypeAlias = Literal["screen", "paper"]
WIDTH = 5.2  # inches; shown on the 340 pixels of a phone it stays legible
PAPER_WIDTHS, PAPER_TEXT = (3.25, 6.75), 8.0  # one column and two, in inches; points
_PAPER = {"font.size": PAPER_TEXT, "axes.titlesize": PAPER_TEXT, "svg.fonttype": "none"}
_DASHES: Any = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))


def draw(figure: Figure, *, style: FigureStyle = "screen") -> "matplotlib.figure.Figure":
    """The figure, for a script to change and to save; text in a PDF stays text.

    Args:
        figure: figure of a page.
        style: "paper" for the width of one or two columns (3.25 and 6.75 inches), with text of 8
            points and dashes beside colours.

    Raises:
        MissingExtraError: without the extra `report`.

    >>> shown = Figure("line", "A line", "", [lambda ax: ax.plot([0, 1])])
    >>> draw(shown, style="paper").get_size_inches().tolist()
    [3.25, 2.125]
    """
    count = len(figure.panels)
    rows = math.ceil(count / figure.columns)
    width, height = WIDTH, figure.height * rows
    if style == "paper":
        wide = PAPER_WIDTHS[count > 1]
        width, height = wide, height * min(wide / WIDTH, 1)
    with require("matplotlib", extra="report").rc_context(_style(style)):
        drawn = _figure_class()((width, height), layout="constrained")
        axes = list(drawn.subplots(rows, figure.columns, squeeze=False).flat)
        for ax, panel in itertools.zip_longest(axes, figure.panels):
            ax.set_axis_off() if panel is None else panel(ax)
        if style == "paper":
            _dash(drawn)
    return drawn


def image(figure: Figure, *, format: FigureFormat = "svg", style: FigureStyle = "screen") -> bytes:
    """A figure as a file; equal figures give equal bytes. PNG has 200 dots an inch."""
    content = io.BytesIO()
    dates: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    drawn = draw(figure, style=style)
    drawn.set_dpi(200)
    canvas = require("matplotlib.backend_bases", extra="report").get_registered_canvas_class(format)
    with require("matplotlib", extra="report").rc_context(_style(style)):
        # `savefig` draws a figure with a layout twice.
        getattr(canvas(drawn), f"print_{format}")(content, metadata=dates.get(format))
    return content.getvalue()


@functools.cache
def _style(style: FigureStyle) -> dict[str, Any]:
    parameters = require("matplotlib", extra="report").rc_params_from_file
    path = Path(jaxpe.__file__).with_name("plot") / "jaxpe.mplstyle"
    shown = dict(parameters(str(path), use_default_template=False))
    return shown | (_PAPER if style == "paper" else {})


@functools.cache
def _figure_class() -> type:
    """A figure that is saved with our fonts also outside of this module."""

    base = require("matplotlib.figure", extra="report").Figure

    def savefig(self: Any, *args: Any, **options: Any) -> None:
        fonts = {"pdf.fonttype": 42, "svg.hashsalt": "jaxpe"}
        with require("matplotlib", extra="report").rc_context(fonts):
            base.savefig(self, *args, **options)

    return type("Figure", (base,), {"savefig": savefig})


def _dash(figure: "matplotlib.figure.Figure") -> None:
    """Give curves of one colour, and their entries in legends, one kind of dashes."""
    legends = [x for x in [*(ax.get_legend() for ax in figure.axes), *figure.legends] if x]
    lines = [line for each in [*figure.axes, *legends] for line in each.get_lines()]
    dashes: dict[str, Any] = {}
    for line in lines:
        if line.get_linestyle() == "-" and line.get_linewidth() > 1:
            colour = str(line.get_color())
            line.set_linestyle(dashes.setdefault(colour, _DASHES[len(dashes) % len(_DASHES)]))
            line.set_linewidth(1.2)
