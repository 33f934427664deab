"""Matplotlib's figures as images, saved in this process or in one beside it.

Saving takes most of the time of drawing and holds the interpreter lock, so a command starts a
process for it while it computes. That process imports no JAX.
"""

import collections
import contextlib
import contextvars
import io
import math
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxpe._core.errors import require
from jaxpe._core.processes import Helper

if TYPE_CHECKING:
    import matplotlib.figure

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

_beside: contextvars.ContextVar[Helper | None] = contextvars.ContextVar("_beside", default=None)


def image(
    figure: "matplotlib.figure.Figure", style: Mapping[str, Any], *, format: str = "svg"
) -> bytes:
    """A figure as SVG or, with 200 dots an inch, as PNG.

    Args:
        figure: figure that no other thread changes.
        style: parameters of Matplotlib.
        format: "svg" or "png".
    """
    content, dots, known = io.BytesIO(), 160, {"Date": None}  # the same bytes each time
    if format == "png":
        dots, known = 200, {}
    with require("matplotlib", extra="report").rc_context(dict(style)):
        simplify_log_axes(figure)
        figure.savefig(content, format=format, dpi=dots, metadata=known)
    if figure.get_layout_engine() is not None:
        figure.set_layout_engine("none")  # laid out already; a second time takes as long again
    return content.getvalue()


def simplify_log_axes(figure: "matplotlib.figure.Figure") -> None:
    """Powers of ten in plain letters and no minor ticks: typesetting them takes a quarter."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() in ("log", "symlog"):
                axis.minorticks_off()
                if type(axis.get_major_formatter()).__name__ == "LogFormatterSciNotation":
                    axis.set_major_formatter(_power_of_ten)


def _power_of_ten(value: float, place: object = None) -> str:
    """A tick as 10⁻², empty between powers; 0 and negative ones of a symmetric axis, too."""
    if not value:
        return "0"
    exponent = math.log10(abs(value))
    if abs(exponent - round(exponent)) > 1e-6:
        return ""
    sign = "−" if value < 0 else ""
    return f"{sign}10{str(round(exponent)).translate(_SUPERSCRIPT)}"


def images(figures: Iterable["matplotlib.figure.Figure"], style: Mapping[str, Any]) -> list[bytes]:
    """Each figure as SVG, in their order; within `saving_beside` two processes share them.

    Args:
        figures: figures, made as they are asked for.
        style: parameters of Matplotlib.
    """
    helper = _beside.get()
    if helper is None:
        return [image(figure, style) for figure in figures]
    work = _Work(helper)
    sending = threading.Thread(target=work.send)
    sending.start()
    try:
        for place, figure in enumerate(figures):
            work.waiting.append(_Figure(place, figure, pickle.dumps((figure, dict(style)))))
    finally:
        work.complete.set()
        work.save(style)  # from the end, while the helper saves from the beginning
        sending.join()
    work.save(style)  # what the helper could not
    return [work.found[place] for place in sorted(work.found)]


class _Figure(NamedTuple):
    """A figure that waits, pickled before it is saved here, which changes it."""

    place: int
    figure: "matplotlib.figure.Figure"
    pickled: bytes


class _Work:
    """Figures that wait to be saved by either process, and what became of the others."""

    def __init__(self, helper: Helper) -> None:
        self.waiting: collections.deque[_Figure] = collections.deque()
        self.complete = threading.Event()  # no more figures will come
        self.found: dict[int, bytes] = {}
        self._helper = helper

    def save(self, style: Mapping[str, Any]) -> None:
        """Save what waits in this process, from the end."""
        while self.waiting:
            with contextlib.suppress(IndexError):  # the other process has just taken it
                each = self.waiting.pop()
                self.found[each.place] = image(each.figure, style)

    def send(self) -> None:
        """Let the helper save what waits, from the beginning, until all is saved or it ends."""
        while True:
            try:
                each = self.waiting.popleft()
            except IndexError:
                if self.complete.wait(0.002):
                    return
                continue
            try:
                self.found[each.place] = self._helper.ask(each.pickled)
            except (OSError, EOFError):
                self.waiting.append(each)
                return


@contextlib.contextmanager
def saving_beside() -> Iterator[None]:
    """A process that shares the work of `images` until the context ends, where one can start."""
    try:
        helper = Helper(_begin)
    except OSError:
        yield
        return
    token = _beside.set(helper)
    try:
        yield
    finally:
        _beside.reset(token)
        helper.close()


def _begin() -> Callable[[Any], bytes]:
    import_drawing()
    return lambda pickled: image(*pickle.loads(pickled))


def import_drawing() -> None:
    """Import what `image` needs, which takes a third of a second."""
    for module in ("matplotlib.figure", "matplotlib.backends.backend_svg"):
        require(module, extra="report")
