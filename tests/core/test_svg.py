import time

import pytest

from jaxpe._core import svg
from jaxpe.report.corpus.figures import FIGURES, render_figures
from jaxpe.report.style import STYLE, new_figure, render
from tests.report.factory import analysis


@pytest.fixture(scope="module")
def alone():
    return [figure.svg for figure in render_figures(analysis())]


def test_two_processes_save_the_same_bytes(alone, monkeypatch):
    here, image = [], svg.image

    def slowly(figure, style):
        time.sleep(0.3)  # so that the helper saves most of them
        here.append(figure)
        return image(figure, style)

    monkeypatch.setattr(svg, "image", slowly)
    with svg.saving_beside():
        assert svg._beside.get() is not None
        assert svg._beside.get().ask(_empty()).startswith(b"<?xml")  # it is ready
        found = render(analysis(), *FIGURES)
    assert svg._beside.get() is None
    assert [figure.svg for figure in found] == alone
    assert 0 < len(here) < len(FIGURES)
    assert found[0].png().startswith(b"\x89PNG")  # of a figure that the helper has saved


def _empty():
    return svg.pickle.dumps((new_figure("")[0], STYLE))


def test_figures_are_saved_where_the_helper_ends(alone):
    with svg.saving_beside():
        svg._beside.get().kill()
        assert [figure.svg for figure in render_figures(analysis())] == alone


def test_figures_are_saved_where_no_helper_can_start(alone, monkeypatch):
    monkeypatch.setattr("sys.frozen", True, raising=False)
    with svg.saving_beside():
        assert svg._beside.get() is None
        assert [figure.svg for figure in render(analysis(), FIGURES[0])] == alone[:1]


def test_an_error_of_a_drawing_is_raised_and_nothing_waits():
    def fail(_):
        raise ZeroDivisionError

    with svg.saving_beside():
        with pytest.raises(ZeroDivisionError):
            render(analysis(), FIGURES[0], ("none", fail, ""))
        assert render(analysis(), FIGURES[0])  # the helper goes on
