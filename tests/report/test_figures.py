import itertools
import math
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib
import matplotlib.text
import numpy as np
import pytest

from jaxpe._core.errors import MissingExtraError
from jaxpe.analysis.corpus import Interval
from jaxpe.report.corpus import figures as drawn
from jaxpe.report.corpus.figures import FIGURES, FLOOR, MOST_PAIRS, render_figures, shown_groups
from jaxpe.report.style import (
    PAPER_WIDTHS,
    STYLE,
    Rendered,
    _is_curve,
    for_paper,
    simplify_log_axes,
)
from tests.report import factory
from tests.report.factory import WHERE, N, analysis, score

DRAW = {name: draw for name, draw, _ in FIGURES}
NONE, NAN = np.zeros(N, bool), np.full((N, N), math.nan)
TIED = {"position_scaled_stress": score("cosine").position_scaled_stress}
HALF = {"position_scaled_stress": math.nan}

PEAK = np.exp(-((np.arange(1, N) - 30.0) ** 2) / 150) + np.array([[0], [-0.1], [0.1]])
ALL = tuple(DRAW)
MOST = tuple(name for name in DRAW if name not in ("logo", "where"))  # of position and distances
UNDEFINED = {
    "position": {
        "present": NONE,
        "significant_rank": 0,
        "squared_distances": NAN,
        "eigenvalues": np.zeros(N),
        "trace": 0.0,
        "by_offset": np.full((3, N - 1), math.nan),
    },
    "intervals": {},
    "encodings": [score("mds", **HALF), score("alibi", **HALF)],
}
IDENTICAL = {
    "plug_in": {"distances": np.zeros((N, N)), "eigenvalues": np.zeros(N), "trace": 0.0},
    "position": {
        "squared_distances": np.zeros((N, N)),
        "eigenvalues": np.zeros(N),
        "coordinates": np.zeros((N, 3)),
        "trace": 0.0,
        "significant_rank": 0,
    },
    "encodings": [score("mds", mantel_r=math.nan)],
}
WIDTHS = {"stress": {}, "scaled_stress": {}, "dimensions": np.array([], int)}
NEGATIVE = {"trace": -0.1, "squared_distances": np.full((N, N), -0.1)}
LONG = [score("mds"), score("my_module:" + 6 * "a_long_name"), score("alibi")]
# Each must draw, without a warning, something true: overrides, and the figures they change.
CASES = {
    "usual": ({}, ALL),
    "no structure": (
        {"position": {"significant_rank": 0}},
        ("spectrum", "map", "encodings", "dimension", "offset"),
    ),
    "one dimension": ({"position": {"significant_rank": 1}}, ("spectrum", "map")),
    "nothing judged": (UNDEFINED, MOST),
    "one judged": (
        {"position": {"present": np.arange(N) == 7}},
        ("hellinger", "map", "scatter", "offset"),
    ),
    "no null": ({"position": {"null_eigenvalue": 0.0}}, ("spectrum",)),
    "no encodings": (
        {"encodings": [], "stress_by_dimension": WIDTHS},
        ("encodings", "dimension", "scatter", "offset"),
    ),
    "identical positions": (IDENTICAL, MOST),
    "negative distances": ({"position": NEGATIVE}, ("hellinger", "scatter", "offset")),
    "an unknown encoding": (
        {"encodings": [score("mine & <yours>")]},
        ("encodings", "scatter", "offset"),
    ),
    "long names": ({"encodings": LONG}, ("encodings", "dimension", "scatter", "offset")),
}


@pytest.fixture(scope="module")
def figures() -> list[Rendered]:
    before = dict(matplotlib.rcParams)
    rendered = render_figures(analysis(where=WHERE))
    assert dict(matplotlib.rcParams) == before, "drawing changed the global settings"
    return rendered


def test_every_figure_is_a_well_formed_svg_with_a_title(figures):
    assert [figure.name for figure in figures] == list(DRAW)
    for figure in figures:
        assert ElementTree.fromstring(figure.svg).tag.endswith("svg")
        assert figure.title
        assert figure.caption
        assert len(figure.svg) < 200_000


def test_the_same_analysis_gives_the_same_bytes(figures, page):
    for figure in figures:
        assert (page.parent / f"figures/{figure.name}.svg").read_bytes() == figure.svg
    png = (page.parent / "figures/shares.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert png == figures[list(DRAW).index("shares")].file()


@pytest.mark.parametrize(("origin", "label"), [(0, "first or last k"), (5, "first k")])
def test_the_axis_of_where_names_the_ends_that_are_counted(origin, label):
    figure = drawn.where_figure(analysis(where=WHERE, origin=origin))
    assert figure.axes[0].get_xlabel() == f"{label} positions"


def test_figures_for_a_paper_fit_their_columns(figures):
    for figure in figures:
        with matplotlib.rc_context(STYLE):
            drawn = figure.figure("paper")
            width, height = drawn.get_size_inches()
            box = drawn.get_tightbbox()
        assert width == PAPER_WIDTHS[figure.name not in ("map", "where")]
        assert not drawn.get_suptitle()
        sizes = [text.get_fontsize() for text in drawn.findobj(matplotlib.text.Text)]
        assert max(sizes) <= 8
        assert box.x0 >= -0.02
        assert box.x1 <= width + 0.02
        assert box.y1 <= height + 0.02
    offset = figures[list(DRAW).index("offset")]
    curves = [line for line in for_paper(offset.draw()).axes[-1].get_lines() if _is_curve(line)]
    assert curves == []  # every curve but the first is dashed
    pdf = offset.file("pdf", "paper")
    assert pdf.startswith(b"%PDF")
    assert b"/Subtype /CIDFontType2" in pdf  # fonts are embedded as text
    assert b"<text" in offset.file("svg", "paper")


@pytest.mark.parametrize("case", CASES)
def test_analyses_draw_and_nothing_is_cut(case):
    """Margins are fixed, so that labels that are too wide would end outside."""
    overrides, names = CASES[case]
    for name in names:
        with matplotlib.rc_context(STYLE):
            figure = DRAW[name](analysis(**overrides))
            simplify_log_axes(figure)
            box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
        inside = box.x0 >= 0, box.y0 >= 0, box.x1 <= width, box.y1 <= height
        assert all(inside), (name, box.extents, width, height)


@pytest.mark.parametrize(
    ("name", "overrides", "title"),
    [
        ("shares", {}, "6 %"),
        ("shares", {"intervals": {}}, "Documents per position"),
        ("hellinger", {}, "Distances"),
        ("spectrum", {}, "2 dimensions"),
        ("spectrum", {"position": {"significant_rank": 1}}, "1 dimension "),
        ("spectrum", {"position": {"significant_rank": 0}}, "No dimension"),
        ("map", {}, "The map"),
        ("map", {"position": {"significant_rank": 1}}, "Only axis 1"),
        ("map", {"position": {"significant_rank": 0}}, "Nothing"),
        ("encodings", {}, "alibi fits best"),
        ("encodings", {"position": {"significant_rank": 0}}, "nothing to fit"),
        ("encodings", {"encodings": [score("cosine", position_scaled_stress=0.47)]}, "No fixed"),
        ("offset", {"position": {"by_offset": PEAK}}, "grows with offset, then falls"),
        ("logo", {"origin": 20}, "19.0 bits in 45"),
        ("logo", {"tokenizer": "kmer:3"}, "Letters by position"),
        ("encodings", {"encodings": [score("rope"), score("sinusoidal")]}, "rope (= sinusoidal)"),
        (
            "encodings",
            {"encodings": [score("cosine"), score("wavelet", **TIED)]},
            "cosine fits best; 1 not",
        ),
        ("scatter", {}, "Mantel r: sinusoidal, 0.92"),
        ("scatter", {"encodings": []}, "Distances"),
        ("offset", {}, "grows"),
        ("offset", {"intervals": {"nearness": Interval(-0.2, -0.3, -0.1)}}, "no clear relation"),
        (
            "offset",
            {
                "intervals": {"nearness": Interval(-0.2, -0.3, -0.1)},
                "position": {"by_offset": np.linspace(1, 0, N - 1) * np.ones((3, 1))},
            },
            "falls with offset",
        ),
        ("offset", {"intervals": {}}, "no clear relation"),
    ],
)
def test_titles_say_the_finding(name, overrides, title):
    figure = DRAW[name](analysis(**overrides))
    assert title in figure.get_suptitle().replace("\N{NO-BREAK SPACE}", " ")


def test_absent_positions_and_the_diagonal_have_no_colour():
    left, right = DRAW["hellinger"](analysis()).axes[:2]
    case = analysis()
    for axis, shown in ((left, case.plug_in.present), (right, case.position.present)):
        hidden = np.ma.getmaskarray(axis.images[0].get_array())
        assert hidden[~shown].all()
        assert hidden[:, ~shown].all()
        assert hidden.diagonal().all()
        assert not hidden[1, 2]


def test_a_stress_of_zero_sits_on_the_floor():
    axis = DRAW["encodings"](analysis(encodings=[score("mds", stress=0.0)])).axes[0]
    raw = next(line for line in axis.lines if line.get_label() == "raw, Eq. (4)")
    np.testing.assert_array_equal(raw.get_xdata(), [FLOOR])


def test_the_fit_has_a_row_for_each_family_and_encoding_the_best_in_bold():
    figure = DRAW["encodings"](analysis())
    labels = figure.axes[0].get_yticklabels()
    families = list(dict.fromkeys(factory.FAMILIES.values()))
    assert [label.get_text() for label in labels if label.get_style() == "italic"] == families
    assert len(labels) == len(families) + len(factory.FAMILIES)
    assert [label.get_text() for label in labels if label.get_weight() == "bold"] == ["alibi"]


@pytest.mark.parametrize("encodings", [1, 40])
def test_no_label_of_the_fit_overlaps_another(encodings):
    names = [*factory.FAMILIES, *(f"encoding_{k}" for k in range(40))][:encodings]
    figure = DRAW["encodings"](analysis(encodings=[score(name) for name in names]))
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    heights = sorted((box.y0, box.y1) for box in boxes)
    assert all(low[1] <= high[0] + 1 for low, high in itertools.pairwise(heights))
    assert min(box.x0 for box in boxes) >= 0


def names_shown(by, scores):
    return [[s.name for s in group] for group in shown_groups(scores, by=by)]


def test_a_few_are_shown_the_fitted_the_known_and_the_best():
    scores = analysis().encodings
    wanted = {"wavelet": 0.0, "fourier": 0.1, "sinusoidal": 5.0}
    groups = names_shown(lambda score: wanted.get(score.name, math.nan), scores)
    assert groups == [
        *(["mds"], ["smacof"], ["sinusoidal", "rope"], ["fourier"], ["wavelet"], ["alibi"])
    ]
    assert names_shown(lambda score: math.nan, scores[:3]) == [["mds"], ["smacof"], ["sinusoidal"]]


@pytest.mark.parametrize("alike", [False, True])
def test_no_two_lines_have_one_colour(alike):
    scores = analysis().encodings
    if alike:  # leaves room for one more of the others
        scores[1] = scores[1]._replace(distances=scores[0].distances)
    # The scatter prefers other ones than the lines do.
    scores = [score._replace(mantel_r=score.position_scaled_stress) for score in scores]
    lines = DRAW["offset"](analysis(encodings=scores)).axes[1].lines
    assert len(lines) == 1 + drawn.MOST_SHOWN
    assert len({line.get_color() for line in lines}) == len(lines)


def test_long_scatters_are_sampled_the_same_way_each_time():
    np.testing.assert_array_equal(drawn.sampled(3), [0, 1, 2])
    pairs = drawn.sampled(40_000)
    assert len(np.unique(pairs)) == MOST_PAIRS
    np.testing.assert_array_equal(pairs, drawn.sampled(40_000))


def test_scaled_to_is_least_squares_and_never_negative():
    shape = np.array([1.0, 2.0, np.nan])
    np.testing.assert_allclose(drawn._fitted_multiple(3 * shape, shape), 3 * shape)
    np.testing.assert_array_equal(drawn._fitted_multiple(-shape, shape)[:2], [0, 0])


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'jaxpe\[report\]'"):
        render_figures(analysis())
