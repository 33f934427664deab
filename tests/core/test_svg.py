import os
import signal
import threading

import pytest

from jaxpe._core import svg
from jaxpe.report.corpus.figures import FIGURES
from jaxpe.report.style import new_figure, render
from tests.report.factory import analysis

SOME = FIGURES[:3]


@pytest.fixture(autouse=True)
def _two_processors(monkeypatch):
    monkeypatch.setattr(svg, "cores", lambda: 2)


@pytest.fixture(scope="module")
def alone():
    return [figure.svg for figure in render(analysis(), *SOME)]


def measured(name):
    """A figure whose labels are measured to lay it out."""

    def draw(_):
        figure, axes = new_figure(name, columns=2)
        for axis in axes:
            axis.plot([1, 2], [1e5, 1e-5])
            axis.set(ylabel="measured", yscale="log")
        return figure

    return name, draw, ""


def test_two_processes_save_the_same_bytes(alone, monkeypatch):
    others = [measured(str(k)) for k in range(3)]
    expected = [(figure.svg, figure.png()) for figure in render(None, *others)]
    here, image, asked, saved = [], svg.image, threading.Event(), threading.Event()

    def image_here(figure, style, **options):
        if not options:  # SVG: each process waits until the other one has a figure
            here.append(figure)
            assert asked.wait(10)
            saved.set()
        return image(figure, style, **options)

    with svg.saving_beside():
        helper = svg._beside.get()
        ask = helper.ask

        def ask_helper(question):
            asked.set()
            return ask(question), saved.wait(10)

        monkeypatch.setattr(helper, "ask", lambda question: ask_helper(question)[0])
        monkeypatch.setattr(svg, "image", image_here)
        helper.wait_until_ready()
        found = render(analysis(), *SOME)
        assert 0 < len(here) < len(SOME)
        here.clear()
        asked.clear()
        saved.clear()
        measured_ones = render(None, *others)
        assert 0 < len(here) < len(others)
        monkeypatch.setattr(svg, "image", image)
    assert svg._beside.get() is None
    assert [figure.svg for figure in found] == alone
    assert [(figure.svg, figure.png()) for figure in measured_ones] == expected


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_figures_are_saved_where_the_helper_ends_or_hangs(alone, monkeypatch, signum):
    monkeypatch.setattr(svg, "_LONGEST", 0.2)
    with svg.saving_beside():
        helper = svg._beside.get()
        helper.wait_until_ready()
        os.kill(helper._process.pid, signum)
        assert [figure.svg for figure in render(analysis(), *SOME)] == alone
    for thread in threading.enumerate():
        if "_send" in thread.name:
            thread.join(10)
            assert not thread.is_alive()


@pytest.mark.parametrize(("name", "value"), [("sys.frozen", True), ("cores", lambda: 1)])
def test_figures_are_saved_where_there_is_no_helper(alone, monkeypatch, name, value):
    if name == "cores":
        monkeypatch.setattr(svg, name, value)
    else:
        monkeypatch.setattr(name, value, raising=False)
    with svg.saving_beside():
        assert svg._beside.get() is None
        assert [figure.svg for figure in render(analysis(), FIGURES[0])] == alone[:1]


def test_an_error_of_a_drawing_is_raised_at_once():
    def fail(_):
        raise ZeroDivisionError

    with svg.saving_beside():
        helper = svg._beside.get()
        with pytest.raises(ZeroDivisionError):
            render(analysis(), FIGURES[0], ("none", fail, ""))
        assert helper._process.wait(10) != 0
