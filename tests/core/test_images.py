import importlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import types

import pytest

from jaxpe._core import images
from jaxpe.cli.main import _DRAW
from jaxpe.report.corpus.figures import FIGURES
from jaxpe.report.style import new_figure, render
from tests.report.factory import analysis

SOME = FIGURES[:3]
FORKS = pytest.param(
    True, marks=pytest.mark.skipif(sys.platform != "linux", reason="processes fork on Linux alone")
)


@pytest.fixture(autouse=True)
def _two_processors(monkeypatch):
    monkeypatch.setattr(images, "cores", lambda: 2)


@pytest.fixture(scope="module")
def alone():
    return [figure[:4] for figure in render(analysis(), *SOME)]


def measured(_):
    """A figure whose labels are measured to lay it out."""
    figure, axes = new_figure("measured", columns=2)
    for axis in axes:
        axis.plot([1, 2], [1e5, 1e-5])
        axis.set(ylabel="measured", yscale="log")
    return figure


def fail(_):
    raise ZeroDivisionError


def drawing_beside(**options):
    return images.drawing_beside("jaxpe.report.corpus.figures", **options)


@pytest.mark.parametrize("forks", [False, FORKS])
def test_two_processes_draw_the_same_bytes(alone, monkeypatch, forks):
    (expected,) = render(None, ("measured", measured, ""))
    here, drawn_here = [], images._drawn_here
    asked = threading.Event()

    def draw(*work):  # waits until the other process has a figure
        here.append(work)
        assert asked.wait(20)
        return drawn_here(*work)

    monkeypatch.setattr(images, "_drawn_here", draw)
    with drawing_beside(forks=forks):
        helper = images._beside.get().helper
        ask = helper.ask

        def ask_helper(question):
            found = ask(question)
            if not isinstance(question, bytes):
                asked.set()
            return found

        monkeypatch.setattr(helper, "ask", ask_helper)
        assert [figure[:4] for figure in render(analysis(), *SOME)] == alone
        assert len(here) == (0 if forks else 1)
        found = render(None, *(3 * [("measured", measured, "")]))
    assert images._beside.get() is None
    assert {figure.svg for figure in found} == {expected.svg}
    assert found[0].png() == expected.png()


@pytest.mark.parametrize("forks", [False, FORKS])
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_figures_are_drawn_where_the_process_ends_or_hangs(alone, monkeypatch, signum, forks):
    monkeypatch.setattr(images, "_LONGEST", 0.2)
    with drawing_beside(forks=forks):
        helper = images._beside.get().helper
        helper.wait_until_ready()
        os.kill(helper._process.pid, signum)
        assert [figure[:4] for figure in render(analysis(), *SOME)] == alone
    for thread in threading.enumerate():
        if "_ask" in thread.name:
            thread.join(10)
            assert not thread.is_alive()


@pytest.mark.parametrize(("name", "value"), [("sys.frozen", True), ("cores", lambda: 1)])
def test_figures_are_drawn_where_there_is_no_other_process(alone, monkeypatch, name, value):
    if name == "cores":
        monkeypatch.setattr(images, name, value)
    else:
        monkeypatch.setattr(name, value, raising=False)
    with drawing_beside():
        assert images._beside.get() is None
        assert [figure[:4] for figure in render(analysis(), FIGURES[0])] == alone[:1]


def test_what_cannot_be_sent_is_drawn_here(alone, monkeypatch):
    with drawing_beside():
        assert render(None, ("own", lambda subject: measured(subject), ""))[0].title == "measured"
        monkeypatch.setattr(images, "_LARGEST", 1)
        assert [figure[:4] for figure in render(analysis(), *SOME)] == alone


@pytest.mark.parametrize("forks", [False, FORKS])
def test_an_error_of_a_drawing_is_raised_here(forks):
    with drawing_beside(forks=forks), pytest.raises(ZeroDivisionError):
        render(analysis(), FIGURES[0], ("none", fail, ""))


def test_nothing_else_is_drawn_of_what_the_process_cannot_read():
    answer = images._Drawing()
    subject = types.SimpleNamespace(value=1)  # of which `measured` needs nothing
    assert answer(pickle.dumps(([measured, measured], subject, {}))) == []
    (one,) = answer([0])
    assert one.title == "measured"
    answer(b"no pickle")
    assert answer([0]) == [None]


def test_figures_are_drawn_where_no_process_can_be_forked(monkeypatch):
    def no_more():
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", no_more)
    found = images._by_two(lambda place: images.Drawn(str(place), b""), [3, 1, 2])
    assert [one.title for one in found] == ["3", "1", "2"]


def test_figures_of_every_command_that_draws_are_where_it_says():
    for view in _DRAW.values():
        importlib.import_module(f"jaxpe.report.{view}.figures")


def test_figures_of_a_corpus_are_drawn_without_jax():
    code = (
        "import sys, jaxpe.report.corpus.figures, jaxpe.analysis.corpus.result; "
        "assert not {'jax', 'jaxtyping'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
