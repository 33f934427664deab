"""What figures draw: the numbers of their lines, bars, bands and images, from those of the result.

Each case is a figure, what is read from its axes, and what the result says that this is.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from jaxpe.analysis.corpus.result import SHARES
from jaxpe.report.corpus import figures as corpus
from jaxpe.report.style import Margins, _power_of_ten, encoding_colours, legend_height
from tests.report.factory import REACH, WHERE, N, analysis, score

CORPUS = analysis(origin=5, where=WHERE)
JUDGED = np.flatnonzero(CORPUS.position.present)


def curve(axis: Any, label: str | int) -> Any:
    """Data `[2, n]` of the line of a label, or of an index."""
    if isinstance(label, int):
        return axis.lines[label].get_data()
    return next(line for line in axis.lines if line.get_label() == label).get_data()


def band(axis: Any, index: int) -> np.ndarray:
    """Abscissas, lower and upper ends `[3, n]` of a band."""
    points = axis.collections[index].get_paths()[0].vertices
    xs = np.unique(points[:, 0])
    ends = [[f(points[points[:, 0] == x, 1]) for x in xs] for f in (min, max)]
    return np.array([xs, *ends])


def spans(axis: Any, index: int = 0) -> np.ndarray:
    """Ends `[segments, 2, 2]` of horizontal or vertical lines."""
    return np.array(axis.collections[index].get_segments())


def bars(axis: Any) -> list[tuple[float, float, float, float]]:
    """Left, bottom, width and height of bars."""
    return [(*patch.get_xy(), patch.get_width(), patch.get_height()) for patch in axis.patches]


def image(axis: Any) -> np.ndarray:
    return np.ma.filled(np.ma.asarray(axis.images[0].get_array(), float), math.nan)


def masked(values: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Distances without those of hidden positions and the diagonal."""
    seen = shown[:, None] & shown & ~np.eye(len(shown), dtype=bool)
    return np.where(seen, values, math.nan)


SQUARES = CORPUS.position.squared_distances
RANDOM = score("random")
PAIRS = analysis(  # three positions, of which one pair has a squared distance below 0
    position={
        "present": np.isin(np.arange(N), [1, 2, 5]),
        "squared_distances": np.where(np.add.outer(*2 * (np.arange(N),)) == 3, -1.0, SQUARES),
    },
    encodings=[RANDOM],
)
OWN, (SINUSOIDAL, ALIBI) = CORPUS.held_out.own, map(score, ("sinusoidal", "alibi"))
FEW = analysis(encodings=[score("mds"), score("smacof"), SINUSOIDAL, ALIBI])
VARIANCE = np.clip(CORPUS.plug_in.eigenvalues, 0, None)


def least_squares(target: np.ndarray, shape: np.ndarray) -> np.ndarray:
    both = np.isfinite(target + shape)
    return shape * np.linalg.lstsq(shape[both, None], target[both], rcond=None)[0]


def by_offset(squares: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Mean at each offset of the pairs that are shown."""
    kept = masked(squares, shown)
    rows = [np.diagonal(kept, k) for k in range(1, N)]
    return np.array([row[~np.isnan(row)].mean() if (row == row).any() else np.nan for row in rows])


# Of a figure of a corpus and its result, what is read from the axes, and what it is.
CASES: dict[str, tuple[Callable[[], Figure], Callable[[list[Any]], Any], Any]] = {
    "shares": (
        lambda: corpus.shares_figure(CORPUS),
        lambda axes: (
            [width for *_, width, _ in bars(axes[0])],
            [bottom + height / 2 for _, bottom, _, height in bars(axes[0])],
            [spans(axes[0], k)[0, :, 0].tolist() for k in range(3)],
            axes[0].get_ylim(),
            [text.get_text() for text in axes[0].get_yticklabels()],
            band(axes[1], 0)[[0, 2]][:, [0, -1]].tolist(),
        ),
        (
            [0.9, 0.04, 0.06], [0, 1, 2], [[0.87, 0.93], [0.03, 0.05], [0.05, 0.07]],
            (2.5, -0.5), list(SHARES), [[-5, N - 6], [0, 0]],
        ),
    ),
    "where": (
        lambda: corpus.where_figure(CORPUS),
        lambda axes: (
            curve(axes[0], "from the beginning"), band(axes[0], 0),
            [int(tick) for tick in axes[0].get_xticks()],
        ),
        (
            (np.arange(1, N + 1), REACH.curve[0]), [np.arange(1, N + 1), *REACH.curve[1:]],
            [1, 2, 4, 8, 16, 32],
        ),
    ),
    "distances": (
        lambda: corpus.hellinger_figure(CORPUS),
        lambda axes: (image(axes[0]), image(axes[1]), axes[0].images[0].get_extent()),
        (
            masked(CORPUS.plug_in.distances, CORPUS.plug_in.present),
            masked(np.sqrt(np.maximum(SQUARES, 0)), CORPUS.position.present),
            [-5.5, N - 5.5, N - 5.5, -5.5],
        ),
    ),
    "eigenvalues": (
        lambda: corpus.spectrum_figure(
            analysis(position={"rank_eigenvalues": np.linspace(1, 2, N)})
        ),
        lambda axes: (
            curve(axes[0], "as observed")[1], curve(axes[0], "position")[1],
            curve(axes[1], "tested")[1], curve(axes[1], "chance, 0.04")[1],
            [axis.yaxis.get_transform().linthresh for axis in axes],
        ),
        (
            CORPUS.plug_in.eigenvalues[np.abs(CORPUS.plug_in.eigenvalues) > 1e-12],
            CORPUS.position.eigenvalues[np.abs(CORPUS.position.eigenvalues) > 1e-12],
            np.linspace(1, 2, N), [0.04, 0.04], [0.04, 0.04],
        ),
    ),
    "map": (
        lambda: corpus.map_figure(CORPUS),
        lambda axes: (axes[0].collections[0].get_offsets(), axes[0].collections[0].get_array()),
        (CORPUS.position.coordinates[JUDGED, :2], JUDGED - 5),
    ),
    "fit of encodings": (  # families, and in each the encodings by their stress: smacof, mds, ...
        lambda: corpus.encodings_figure(FEW),
        lambda axes: (
            curve(axes[0], "raw, Eq. (4)"), curve(axes[0], "scaled"),
            spans(axes[0])[1:, :, 0], axes[0].get_xlim()[0],
            [axes[1].lines[k].get_data() for k in range(4)],
            [spans(axes[1], k)[0, :, 0] for k in range(4)],
            bars(axes[1])[0][::2], axes[1].lines[4].get_xdata()[0], axes[1].get_xlim(),
        ),
        (
            ([1e-4, 1e-4, 271.0, 0.498], [1, 2, 4, 6]), ([1e-4, 1e-4, 0.081, 0.31], [1, 2, 4, 6]),
            [[1e-4, 1e-4], [0.081, 271], [0.31, 0.498]], 1e-4,
            [([0.30], [1]), ([0.31], [2]), ([0.42], [4]), ([0.12], [6])],
            [[0.30, 0.30], [0.31, 0.31], [0.40, 0.44], [0.10, 0.14]],
            (0.04, 0.02), 0.05, (0, 1.08 * 0.44),
        ),
    ),
    "dimensions": (
        lambda: corpus.dimension_figure(CORPUS),
        lambda axes: (
            curve(axes[0], "fitted to halves"), band(axes[0], 0)[1:],
            curve(axes[0], "alibi")[0], curve(axes[1], "mds")[1], curve(axes[2], 0),
            [curve(axis, -1)[0] for axis in axes],
            [int(tick) for tick in axes[2].get_xticks()],
        ),
        (
            (np.arange(1, len(OWN) + 1), [x.estimate for x in OWN]),
            [[x.low for x in OWN], [x.high for x in OWN]],
            [8, 32, 64, 128], [0.3, 0.3 / 4, 0.3 / 16, 0.3 / 64, 0.3 / 256, 0.3 / 1024, 1e-4],
            (np.arange(1, N + 1), np.cumsum(VARIANCE) / VARIANCE.sum()),
            [[2, 2]] * 3, [1, 1, 2, 4, 8, 16, 32, 64],
        ),
    ),
    "pairs": (
        lambda: corpus.scatter_figure(PAIRS),
        lambda axes: curve(axes[0], 0),
        (
            [0, math.sqrt(SQUARES[1, 5]), math.sqrt(SQUARES[2, 5])],
            [RANDOM.distances[1, 2], RANDOM.distances[1, 5], RANDOM.distances[2, 5]],
        ),
    ),
    "offsets": (
        lambda: corpus.offset_figure(FEW),
        lambda axes: (
            curve(axes[0], "as observed"), curve(axes[0], "position, 95 % interval")[1],
            band(axes[0], 0)[1:], curve(axes[1], "position")[1], curve(axes[1], "alibi")[1],
        ),
        (
            (np.arange(1, N), by_offset(FEW.plug_in.distances**2, FEW.plug_in.present)),
            FEW.position.by_offset[0],
            FEW.position.by_offset[1:][:, np.isfinite(FEW.position.by_offset[0])],
            FEW.position.by_offset[0],
            least_squares(
                FEW.position.by_offset[0],
                by_offset(ALIBI.distances**2, FEW.position.present),
            ),
        ),
    ),
}  # fmt: skip


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(expected, list) and any(isinstance(x, str) for x in expected):
        assert list(found) == expected
    elif isinstance(expected, list) and any(isinstance(x, tuple) for x in expected):
        same(tuple(found), tuple(expected))
    else:
        np.testing.assert_allclose(np.asarray(found, float), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_figures_draw_the_numbers_of_the_result(name):
    draw, read, expected = CASES[name]
    same(read(draw().axes), expected)


def test_ticks_are_powers_of_ten():
    texts = {0.0: "0", 0.01: "10⁻²", 1.0: "10⁰", -100.0: "−10²", 20.0: "", 0.5: ""}
    assert {value: _power_of_ten(value) for value in texts} == texts


def test_margins_are_inches():
    figure = Figure((5.0, 4.0))
    axes = figure.subplots(2, 2)
    Margins(0.5, 0.25, 0.4, 0.6, 0.3, 0.2).fitted(figure, rows=2, columns=2)
    first, last = (axes[k, k].get_position().extents * [5, 4, 5, 4] for k in (0, 1))
    assert first[[0, 3]] == pytest.approx([0.5, 4 - 0.6])
    assert last[[1, 2]] == pytest.approx([0.4, 5 - 0.25])
    assert [last[0] - first[2], first[1] - last[3]] == pytest.approx([0.3, 0.2])


def test_legends_have_rows_and_colours_repeat_after_the_last():
    heights = [legend_height(entries, columns=2) for entries in (0, 1, 2, 3)]
    assert heights == pytest.approx([0, 0.35, 0.35, 0.55])
    colours = encoding_colours(["mds", *"abcde", "a"])
    assert colours["a"] == colours["e"] != colours["b"]
    assert len({colours[name] for name in ("mds", *"abcd")}) == 5
