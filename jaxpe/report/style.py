"""The style of all figures: palette, fonts, and rendering as SVG and PNG."""

import dataclasses
import io
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from jaxpe._core.errors import require
from jaxpe.report.text import visible

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import matplotlib.lines

# Okabe and Ito (2008), and two of Tol's (2021): distinguishable with every common form of colour
# blindness.
BLUE, SKY, VERMILION, ORANGE, GREEN = "#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73"
PINK, INDIGO, WINE, OLIVE, GREY = "#CC79A7", "#332288", "#882255", "#B8A800", "#777777"
BROWN = "#8C564B"

# Of the two geometries; no encoding has these.
PLUG_IN, POSITION, CHANCE, ABSENT = WINE, INDIGO, "#555555", "#DDDDDD"
COMPOSITION = ORANGE
ENCODING_COLOURS = {
    "mds": BLUE,
    "smacof": SKY,
    "sinusoidal": VERMILION,
    "rope": ORANGE,
    "alibi": GREEN,
}
OTHER_COLOURS = (PINK, OLIVE, BROWN, GREY)
# Nucleotides as in WebLogo; amino acids: polar, basic, acidic, hydrophobic.
LETTER_COLOURS = {
    **dict(zip("ACGTU", (GREEN, BLUE, ORANGE, VERMILION, VERMILION), strict=True)),
    "SYQN": GREEN,
    "KRH": BLUE,
    "DE": VERMILION,
    "VLIPWFM": "#222222",
}

STYLE = {
    "axes.edgecolor": "#999999",
    "axes.labelcolor": "#333333",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "figure.titlesize": 12.5,
    "figure.titleweight": "bold",
    "font.size": 10.5,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "savefig.facecolor": "white",
    "svg.hashsalt": "jaxpe",  # otherwise the ids in an SVG are random
    "xtick.color": "#555555",
    "ytick.color": "#555555",
}


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

Draw: TypeAlias = Callable[[Any], "matplotlib.figure.Figure"]
# Name of a figure, what draws it of its subject, and a caption that says how to read it.
Drawing: TypeAlias = tuple[str, Draw, str]


def figure_name(draw: Draw) -> str:
    """Name of the figure that a function draws: the function's, without `_figure`."""
    return draw.__name__.removesuffix("_figure")


def drawings(captions: Mapping[Draw, str]) -> tuple[Drawing, ...]:
    """Drawings of functions, each with its caption."""
    return tuple((figure_name(draw), draw, caption) for draw, caption in captions.items())


FigureFormat: TypeAlias = Literal["svg", "png", "pdf"]
FigureStyle: TypeAlias = Literal["screen", "paper"]
# Widths of one column and of two, in inches; size of the text in points.
PAPER_WIDTHS, PAPER_TEXT = (3.25, 6.75), 8.0
_PAPER = {"pdf.fonttype": 42, "svg.fonttype": "none"}  # text that stays text
_DASHES: Sequence[Any] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))


def for_paper(figure: "matplotlib.figure.Figure") -> "matplotlib.figure.Figure":
    """Figure in the width of a column, with text of 8 points, dashes beside colours, no title.

    Figures with several panels take both columns; panels keep their names. The caption says what
    the title said.
    """
    axes = [axis for axis in figure.axes if axis.get_label() != "<colorbar>"]
    width, height = figure.get_size_inches()
    wide = PAPER_WIDTHS[int(len(axes) > 1 or width > 2 * PAPER_WIDTHS[0])]
    figure.suptitle("")
    figure.set_size_inches(wide, max(2.0, height * wide / width))
    for text in figure.findobj(require("matplotlib.text", extra="report").Text):
        text.set_fontsize(PAPER_TEXT * min(1.0, text.get_fontsize() / STYLE["font.size"]))
    legends = [x for x in [*(a.get_legend() for a in axes), *figure.legends] if x is not None]
    groups = [axis.get_lines() for axis in axes] + [legend.get_lines() for legend in legends]
    colours = dict.fromkeys(
        str(line.get_color()) for lines in groups for line in lines if _is_curve(line)
    )
    dashes = dict(zip(colours, itertools.cycle(_DASHES), strict=False))
    for line in (line for lines in groups for line in lines if _is_curve(line)):
        line.set_linestyle(dashes[str(line.get_color())])
        line.set_linewidth(1.2)
    if figure.get_layout_engine() is None:
        for _ in range(2):  # ticks may change with the size of a panel
            _fit(figure)
    return figure


def _fit(figure: "matplotlib.figure.Figure") -> None:
    """Move the margins of a figure to where its labels end."""
    simplify_log_axes(figure)
    box, (width, height), place = (
        figure.get_tightbbox(),
        figure.get_size_inches(),
        figure.subplotpars,
    )
    figure.subplots_adjust(
        left=place.left + (0.03 - box.x0) / width,
        right=place.right + (width - 0.03 - box.x1) / width,
        bottom=place.bottom + (0.03 - box.y0) / height,
        top=place.top + (height - 0.03 - box.y1) / height,
    )


def _is_curve(line: "matplotlib.lines.Line2D") -> bool:
    return line.get_linestyle() == "-" and line.get_linewidth() > 1.0


@dataclasses.dataclass(frozen=True)
class Rendered:
    """A figure with a caption that explains it, drawn when its title or its SVG is asked for."""

    name: str
    caption: str
    draw: Callable[[], "matplotlib.figure.Figure"]

    @cached_property
    def _title_svg(self) -> tuple[str, bytes]:
        figure = self.draw()
        return figure.get_suptitle(), image(figure)

    @property
    def title(self) -> str:
        """The finding, which stands above the figure."""
        return self._title_svg[0]

    @property
    def svg(self) -> bytes:
        """Figure for the page."""
        return self._title_svg[1]

    def file(self, format: "FigureFormat" = "png", style: "FigureStyle" = "screen") -> bytes:
        """Figure in a file of this format and style, drawn again; PNG has 200 dots an inch."""
        with require("matplotlib", extra="report").rc_context(_PAPER):
            return image(self.figure(style), format=format)

    def figure(self, style: "FigureStyle") -> "matplotlib.figure.Figure":
        """Figure in this style, drawn again."""
        figure = self.draw()
        with require("matplotlib", extra="report").rc_context(_PAPER):
            return for_paper(figure) if style == "paper" else figure


def png(subject: Any, draw: Draw) -> bytes:
    """PNG of a drawing of the subject, in the style of the reports."""
    return image(styled_figure(draw, subject), format="png")


def render(subject: Any, *drawings: Drawing) -> list[Rendered]:
    """Figures of drawings of the subject, in the style of the reports."""
    require("matplotlib", extra="report")
    return [
        Rendered(name, caption, partial(styled_figure, draw, subject))
        for name, draw, caption in drawings
    ]


def styled_figure(draw: Draw, subject: Any) -> "matplotlib.figure.Figure":
    """Figure of a drawing of the subject, in the style of the reports."""
    with require("matplotlib", extra="report").rc_context(STYLE):
        return draw(subject)


def image(figure: "matplotlib.figure.Figure", *, format: str = "svg") -> bytes:
    """A figure as SVG, PDF or, with 200 dots an inch, PNG; rendering is deterministic.

    Args:
        figure: figure that no other thread changes.
        format: "svg", "png" or "pdf".
    """
    content, dots = io.BytesIO(), 160
    metadata: dict[str, Any] = {"CreationDate": None} if format == "pdf" else {"Date": None}
    if format == "png":
        dots, metadata = 200, {}
        if figure.get_layout_engine() is not None:
            image(figure)  # both formats have the layout of SVG
    with require("matplotlib", extra="report").rc_context(STYLE):
        simplify_log_axes(figure)
        figure.savefig(content, format=format, dpi=dots, metadata=metadata)
    if figure.get_layout_engine() is not None:
        figure.set_layout_engine("none")  # laid out already; a second time takes as long again
    return content.getvalue()


def simplify_log_axes(figure: "matplotlib.figure.Figure") -> None:
    """Write powers of ten as plain text, without minor ticks: mathtext is slow."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() in ("log", "symlog"):
                axis.minorticks_off()
                if type(axis.get_major_formatter()).__name__ == "LogFormatterSciNotation":
                    axis.set_major_formatter(_power_of_ten)


def _power_of_ten(value: float, tick: object = None) -> str:
    """Tick label such as 10⁻², empty between powers; symmetric axes have 0 and negative ones."""
    if not value:
        return "0"
    exponent = math.log10(abs(value))
    if abs(exponent - round(exponent)) > 1e-6:
        return ""
    sign = "−" if value < 0 else ""
    return f"{sign}10{str(round(exponent)).translate(_SUPERSCRIPT)}"


class Margins(NamedTuple):
    """Space around panels and between them, in inches."""

    left: float = 0.65
    right: float = 0.12
    bottom: float = 0.5
    top: float = 0.58
    across: float = 0.5
    down: float = 0.35

    def fitted(self, figure: "matplotlib.figure.Figure", *, rows: int, columns: int) -> None:
        """Place the panels of a figure within these margins."""
        width, height = figure.get_size_inches()
        x, y = width - self.left - self.right, height - self.bottom - self.top
        figure.subplots_adjust(
            left=self.left / width,
            right=1 - self.right / width,
            bottom=self.bottom / height,
            top=1 - self.top / height,
            # Space between panels, as a share of the size of one.
            wspace=self.across * columns / (x - self.across * (columns - 1)),
            hspace=self.down * rows / (y - self.down * (rows - 1)),
        )


def new_figure(
    title: str,
    *,
    height: float = 3.6,
    width: float = 5.2,
    rows: int = 1,
    columns: int = 1,
    margins: Margins | None = None,
    **subplots: Any,
) -> tuple["matplotlib.figure.Figure", list["matplotlib.axes.Axes"]]:
    """A figure with a title, ideally a finding, and its axes row by row; 5.2 inches suit a phone.

    Without margins, layout measures the labels, which takes longer than drawing.
    """
    layout = "constrained" if margins is None else None
    figure = require("matplotlib.figure", extra="report").Figure((width, height), layout=layout)
    axes = list(figure.subplots(rows, columns, squeeze=False, **subplots).flat)
    if margins is None:
        figure.suptitle(title)
    else:
        figure.suptitle(title, y=1 - 0.08 / height)
        margins.fitted(figure, rows=rows, columns=columns)
    return figure, axes


def stack_letters(axis, x: int, heights: Mapping[str, float]) -> None:
    """Draw letters of given heights on one another at x, the highest on top, 0.95 wide."""
    paths = require("matplotlib.textpath", extra="report")
    patch = require("matplotlib.patches", extra="report").PathPatch
    affine = require("matplotlib.transforms", extra="report").Affine2D
    below = 0.0
    for letter, height in sorted(heights.items(), key=lambda item: item[1]):
        if not height >= 1e-3:  # NaN, too
            continue
        path = paths.TextPath((0, 0), visible(letter), size=1, prop={"weight": "bold"})
        box = path.get_extents()
        scale = 0.95 / max(box.width, 0.4), height / box.height  # an I stays narrow
        left = x - box.width * scale[0] / 2
        place = affine().translate(-box.x0, -box.y0).scale(*scale).translate(left, below)
        colour = next((c for group, c in LETTER_COLOURS.items() if letter in group), INDIGO)
        axis.add_patch(patch(path.transformed(place), fc=colour, lw=0))
        below += height


def say_why_empty(figure, axis, text: str) -> "matplotlib.figure.Figure":
    """The figure with a sentence instead of an empty panel."""
    axis.axis("off")
    axis.text(0.5, 0.5, text, ha="center", transform=axis.transAxes)
    return figure


def add_legend(figure, axis, *, columns: int) -> None:
    """Add a legend below all panels, with the labels of one of them."""
    handles, labels = axis.get_legend_handles_labels()
    if handles:
        outside = "outside " if figure.get_layout_engine() is not None else ""
        loc = f"{outside}lower center"
        figure.legend(handles, labels, loc=loc, ncols=columns, fontsize=9.5)


def legend_height(entries: int, *, columns: int) -> float:
    """Inches that `add_legend` takes at the bottom of a figure with margins."""
    return 0.15 + 0.2 * math.ceil(entries / columns) if entries else 0.0


def encoding_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each encoding: a fixed one, or the next of the others."""
    others = [name for name in dict.fromkeys(names) if name not in ENCODING_COLOURS]
    return ENCODING_COLOURS | dict(zip(others, itertools.cycle(OTHER_COLOURS), strict=False))
