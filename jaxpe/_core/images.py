"""Matplotlib's figures as images, drawn in this process or in others beside it.

Drawing holds the interpreter lock, and so does importing Matplotlib, so a command starts processes
for both while it computes.
"""

import collections
import contextlib
import contextvars
import functools
import importlib
import io
import math
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from jaxpe._core.errors import require
from jaxpe._core.processes import Helper, cores

if TYPE_CHECKING:
    import matplotlib.figure

_LONGEST = 30  # seconds for the figures of another process
_LARGEST = 2**27  # bytes of what is drawn, above which it is not sent to other processes
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

Draw: TypeAlias = Callable[[Any], "matplotlib.figure.Figure"]
Style: TypeAlias = Mapping[str, Any]  # parameters of Matplotlib


class _Beside(NamedTuple):
    """A process that draws; and whether it does so with two processes, and this one not."""

    helper: Helper
    forks: bool


_beside: contextvars.ContextVar[_Beside | None] = contextvars.ContextVar("_beside", default=None)


class Drawn(NamedTuple):
    """A figure as SVG, and its title."""

    title: str
    svg: bytes


def drawn(draws: Sequence[Draw], subject: Any, style: Style) -> list[Drawn]:
    """Figures that functions draw of a subject; within `drawing_beside` processes share them.

    Args:
        draws: functions from the subject to a figure.
        subject: what is drawn.
        style: parameters of Matplotlib.
    """
    found = _drawn_beside(draws, subject, style)
    return [
        found[place] if place in found else _drawn_here(draw, subject, style)
        for place, draw in enumerate(draws)
    ]


def figure_of(draw: Draw, subject: Any, style: Style) -> "matplotlib.figure.Figure":
    """The figure itself."""
    with require("matplotlib", extra="report").rc_context(dict(style)):
        return draw(subject)


def _drawn_here(draw: Draw, subject: Any, style: Style) -> Drawn:
    figure = figure_of(draw, subject, style)
    return Drawn(figure.get_suptitle(), image(figure, style))


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


@contextlib.contextmanager
def drawing_beside(module: str, *, forks: bool = False) -> Iterator[None]:
    """A process that shares the work of `drawn` until the context ends.

    None where it cannot be started, or would have no processor of its own.

    Args:
        module: module of the functions that draw, which the process imports first.
        forks: whether it draws with two processes, where an operating system has these, and this
            process takes no part. Not for a module that brings JAX.
    """
    helper = _started(module) if cores() > 1 else None
    if helper is None:
        yield
        return
    token = _beside.set(_Beside(helper, forks and sys.platform == "linux"))
    try:
        with helper:
            yield
    finally:
        _beside.reset(token)


def _started(module: str) -> Helper | None:
    try:
        return Helper(functools.partial(_begin, module))
    except OSError:
        return None


def draws_here() -> bool:
    """Whether this process takes part in drawing."""
    beside = _beside.get()
    return beside is None or not beside.forks


def import_matplotlib() -> None:
    """Import what `image` needs, which takes a third of a second."""
    for module in ("matplotlib.figure", "matplotlib.backends.backend_svg"):
        require(module, extra="report")


def _begin(module: str) -> Callable[[Any], list[Drawn | None]]:
    """Import and read what drawing needs, such as fonts."""
    import_matplotlib()
    importlib.import_module(module)
    _drawn_here(_first, None, {})
    return _Drawing()


def _first(_: None) -> "matplotlib.figure.Figure":
    figure = importlib.import_module("matplotlib.figure").Figure()
    figure.subplots().plot([0, 1], rasterized=True)
    return figure


class _Drawing:
    """Answers of the process beside: it is sent the work, and then asked for figures by place."""

    def __call__(self, question: bytes | list[int]) -> list[Drawn | None]:
        if isinstance(question, bytes):
            self._work: Any = None  # nothing is drawn of what cannot be read
            with contextlib.suppress(Exception):
                self._work = pickle.loads(question)
            return []
        return _by_two(self._drawn, question) if len(question) > 1 else [self._drawn(*question)]

    def _drawn(self, place: int) -> Drawn | None:
        with contextlib.suppress(Exception):  # raised where it is drawn again
            draws, subject, style = self._work
            return _drawn_here(draws[place], subject, style)
        return None


def _by_two(draw: Callable[[int], Drawn | None], places: list[int]) -> list[Drawn | None]:
    """Figures of a function for each place, every second one in a copy of this process."""
    read, write = os.pipe()
    try:
        copy = os.fork()
    except OSError:  # there are as many processes as may be
        os.close(read)
        os.close(write)
        return list(map(draw, places))
    if not copy:
        with contextlib.suppress(Exception), open(write, "wb") as answer:
            pickle.dump([draw(place) for place in places[1::2]], answer)
        os._exit(0)
    os.close(write)
    found: list[Drawn | None] = [None] * len(places)
    found[::2] = [draw(place) for place in places[::2]]
    with open(read, "rb") as answer, contextlib.suppress(EOFError, pickle.UnpicklingError):
        found[1::2] = pickle.load(answer)
    os.waitpid(copy, 0)
    return found


def _drawn_beside(draws: Sequence[Draw], subject: Any, style: Style) -> dict[int, Drawn]:
    """Those that were drawn by two processes, by their place."""
    beside = _beside.get()
    work = None if beside is None else _pickled((draws, subject, dict(style)))
    if beside is None or work is None:
        return {}
    found: dict[int, Drawn | None] = {}
    waiting = collections.deque(range(len(draws)))
    asking = threading.Thread(target=_ask, args=(beside, work, waiting, found), daemon=True)
    asking.start()
    try:
        while not beside.forks and (place := _taken(waiting.pop)) is not None:
            found[place] = _drawn_here(draws[place], subject, style)
        asking.join(_LONGEST)
    except BaseException:
        beside.helper.kill()
        raise
    if asking.is_alive():  # the process does not answer
        beside.helper.kill()
    return {place: one for place, one in list(found.items()) if one is not None}


def _ask(
    beside: _Beside, work: bytes, waiting: collections.deque[int], found: dict[int, Drawn | None]
) -> None:
    """Have the process draw what waits, all or one after another, until nothing does."""
    with contextlib.suppress(OSError, EOFError, ValueError):  # the process has ended
        beside.helper.ask(work)
        if beside.forks:
            places = list(waiting)
            found.update(zip(places, beside.helper.ask(places), strict=True))
            return
        while (place := _taken(waiting.popleft)) is not None:
            found[place] = beside.helper.ask([place])[0]


def _taken(take: Callable[[], int]) -> int | None:
    """The next that waits; None where none does."""
    try:
        return take()
    except IndexError:
        return None


def _pickled(work: Any) -> bytes | None:
    """None for what cannot be sent, or is too large."""
    try:
        content = pickle.dumps(work, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):  # as of a function in a function
        return None
    return content if len(content) < _LARGEST else None
