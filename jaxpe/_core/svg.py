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
from jaxpe._core.processes import Helper, cores

if TYPE_CHECKING:
    import matplotlib.figure

_LONGEST = 10  # seconds for a figure of the other process
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
        if figure.get_layout_engine() is not None:
            image(figure, style)  # both formats have the layout of SVG
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
    work = _Work(helper, style)
    try:
        return work.images(figures)
    except BaseException:
        work.give_up()
        raise


class _Figure(NamedTuple):
    """A figure that waits, pickled before it is saved here, which changes it."""

    place: int
    figure: "matplotlib.figure.Figure"
    pickled: bytes


class _Work:
    """Figures that two processes save: the helper from the first on, this one from the last."""

    def __init__(self, helper: Helper, style: Mapping[str, Any]) -> None:
        self._helper, self._style = helper, dict(style)
        self._waiting: collections.deque[_Figure] = collections.deque()
        self._complete = threading.Event()  # no more figures will come
        self._found: dict[int, bytes] = {}
        self._sending = threading.Thread(target=self._send, daemon=True)

    def images(self, figures: Iterable["matplotlib.figure.Figure"]) -> list[bytes]:
        """Each figure as SVG."""
        self._sending.start()
        made = []
        for place, figure in enumerate(figures):
            made.append(figure)
            pickled = pickle.dumps((figure, self._style))
            self._waiting.append(_Figure(place, figure, pickled))
        self._complete.set()
        while (last := _taken(self._waiting.pop)) is not None:
            self._found[last.place] = image(last.figure, self._style)
        if len(self._found) < len(made):
            self._sending.join(_LONGEST)
        for place, figure in enumerate(made):
            if place not in self._found:  # the helper has ended, or does not answer
                self._helper.kill()
                self._found[place] = image(figure, self._style)
        return [self._found[place] for place in range(len(made))]

    def give_up(self) -> None:
        """Leave what waits."""
        self._complete.set()
        self._waiting.clear()
        self._helper.kill()
        self._sending.join()

    def _send(self) -> None:
        """Let the helper save what waits, once it is ready, until nothing does."""
        with contextlib.suppress(OSError, EOFError, ValueError):  # the helper has ended
            self._helper.wait_until_ready()
            while True:
                each = _taken(self._waiting.popleft)
                if each is not None:
                    self._found[each.place] = self._helper.ask(each.pickled)
                elif self._complete.wait(0.002):
                    return


def _taken(take: Callable[[], _Figure]) -> _Figure | None:
    """The next that waits; None where none does."""
    try:
        return take()
    except IndexError:
        return None


@contextlib.contextmanager
def saving_beside() -> Iterator[None]:
    """A process that shares the work of `images` until the context ends.

    None where it cannot be started, or would have no processor of its own.
    """
    helper = _helper()
    if helper is None:
        yield
        return
    token = _beside.set(helper)
    try:
        with helper:
            yield
    finally:
        _beside.reset(token)


def _helper() -> Helper | None:
    if cores() < 2:
        return None
    try:
        return Helper(_begin)
    except OSError:
        return None


def _begin() -> Callable[[Any], bytes]:
    import_matplotlib()
    return lambda pickled: image(*pickle.loads(pickled))


def import_matplotlib() -> None:
    """Import what `image` needs, which takes a third of a second."""
    for module in ("matplotlib.figure", "matplotlib.backends.backend_svg"):
        require(module, extra="report")
