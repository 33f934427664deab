"""Plots: what is drawn into which axes, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

import jaxpe
from jaxpe import InputError, plot
from jaxpe._core.results import load_result, result_files
from jaxpe.analysis.corpus.result import HeldOutScores, Interval, Observed, Position

NONE = Interval(0.2, 0.1, 0.3)


@pytest.fixture
def ax():
    return Figure().subplots()


def points(n=6):
    return np.random.default_rng(0).normal(size=(n, 3))


def test_distances_leave_out_the_diagonal_and_what_is_absent(ax):
    D = jaxpe.euclidean_distances(points(), present=np.arange(6) != 2)
    shown = np.ma.getmaskarray(plot.distances(D, ax=ax).get_array())
    assert shown.diagonal().all()
    assert shown[2].all()
    assert shown.sum() == 6 + 2 * 5


def test_a_few_far_positions_do_not_take_the_colours(ax):
    P = np.concatenate([np.linspace(0, 1, 60), [100.0]])[:, None]
    assert plot.distances(jaxpe.euclidean_distances(P), ax=ax).get_clim()[1] < 101
    near = np.linspace(0, 1, 200)[:, None]
    near[0] = 50
    assert plot.distances(jaxpe.euclidean_distances(near), ax=ax).get_clim()[1] < 2


def test_a_map_takes_what_mds_gives(ax):
    mds = jaxpe.classical_mds(jaxpe.euclidean_distances(points()), dim=3)
    drawn = plot.positions(mds, present=np.arange(6) != 2, ax=ax)
    np.testing.assert_allclose(drawn.get_offsets(), np.delete(mds.coordinates, 2, axis=0)[:, :2])
    assert drawn.get_array().tolist() == [0, 1, 3, 4, 5]


def test_a_spectrum_shows_the_level_of_chance(ax):
    plot.spectrum(np.array([3.0, 0.2, -0.1, 0.0]), chance=0.5, ax=ax, color="red", label="mine")
    values, level = ax.lines
    assert values.get_ydata().tolist() == [3, 0.2, -0.1]
    assert values.get_label() == "mine"
    assert level.get_ydata()[0] == 0.5
    assert ax.get_yscale() == "symlog"


def test_a_profile_of_split_halves_keeps_squares_below_zero(ax):
    squares = np.array([[0.0, -1.0, 4.0], [-1.0, 0.0, -3.0], [4.0, -3.0, 0.0]])
    given = (jnp.asarray(squares), jnp.asarray(squares), jnp.ones(3, bool))
    halves = jaxpe.geometry.SplitHalfGeometry(*given)
    assert plot.profile(halves, ax=ax).get_ydata().tolist() == [-2, 4]
    assert plot.profile(halves, squared=False, ax=ax).get_ydata().tolist() == [0, 2]


def test_without_axes_the_current_ones_are_taken(monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    own = Figure().subplots()
    monkeypatch.setattr(pyplot, "gca", lambda: own)
    plot.profile(np.ones((3, 3)))
    assert len(own.lines) == 1


@pytest.mark.parametrize("draw", [plot.distances, plot.profile])
def test_what_is_no_matrix_is_refused(draw, ax):
    with pytest.raises(InputError, match=r"shape \[3, 2\]: pass a matrix"):
        draw(np.ones((3, 2)), ax=ax)


def test_a_map_needs_two_coordinates_and_a_position(ax):
    with pytest.raises(InputError, match="k ≥ 2"):
        plot.positions(np.ones((3, 1)), ax=ax)
    with pytest.raises(InputError, match="nothing to draw"):
        plot.positions(np.ones((3, 2)), present=np.zeros(3), ax=ax)


def test_parts_of_a_loaded_report_are_drawn_like_results_of_functions(tmp_path):
    def saved(part):
        for name, content in result_files(part, "part").items():
            (tmp_path / name).write_bytes(content)
        return load_result(type(part), tmp_path / "part.json")

    axes, shown = Figure().subplots(2, 2).ravel(), np.array([True, True, True, False])
    squares = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
    squares[0, 1] = squares[1, 0] = -1.0
    values = np.array([3.0, 1.0, 0.0, -0.5])
    offsets = np.zeros((3, 3))
    half = saved(
        Position(
            1.0, values, 1, 0.05, values, 0.3, shown, offsets[0], squares, points(4), 0.1, offsets
        )
    )
    whole = saved(Observed(3, values, shown, np.sqrt(np.abs(squares)), 1.0))
    for part in (half, whole):
        image = plot.distances(part, ax=axes[0]).get_array()
        assert np.ma.getmaskarray(image)[3].all()
        assert image[0, 2] == pytest.approx(2**0.5)
        assert len(plot.spectrum(part, ax=axes[1]).get_xdata()) == 3
    assert plot.distances(half, ax=axes[0]).get_array()[0, 1] == 0
    assert plot.profile(half, ax=axes[2]).get_ydata().tolist()[0] == 0  # the mean of -1 and 1
    assert plot.positions(half, ax=axes[3]).get_array().tolist() == [0, 1, 2]
    own = HeldOutScores(8, 3, points(4), [], {}, [], NONE, 0.1, 0.0, None, NONE, NONE)
    assert len(plot.positions(own, ax=axes[3]).get_offsets()) == 4
    with pytest.raises(InputError, match="HeldOutScores has no `distances`"):
        plot.distances(own, ax=axes[0])


LINE = np.abs(np.subtract.outer(np.arange(12.0), np.arange(12.0)))


def test_a_profile_has_the_mean_and_the_middle_of_80_percent(ax):
    D = LINE.copy()
    D[np.arange(11), np.arange(11) + 1] = np.arange(11.0)  # at offset 1: 0 to 10
    curve = plot.profile(D, squared=False, ax=ax)
    assert curve.get_ydata()[:2].tolist() == [5, 2]
    assert set(ax.collections[0].get_paths()[0].vertices[:, 1]) >= {1, 9}


def test_colours_leave_out_2_percent_at_either_end(ax):
    values = np.zeros((11, 11))
    values[~np.eye(11, dtype=bool)] = np.arange(110.0)
    image = plot.distances(values, origin=3, ax=ax)
    np.testing.assert_allclose(image.get_clim(), [0.02 * 109, 0.98 * 109])
    assert list(image.get_extent()) == [-3.5, 7.5, 7.5, -3.5]
    same = plot.distances(np.ones((3, 3)), ax=ax)
    assert same.get_clim() == (0.5, 1.5)
    assert plot.distances(np.full((3, 3), np.nan), ax=ax).get_clim() == (0, 1)


def test_ends_of_a_map_are_named_inside_of_the_axes(ax):
    points = np.array([[0.0, 1.0], [9.0, 9.0], [4.0, 2.0], [10.0, 3.0]])
    drawn = plot.positions(points, present=np.array([True, False, True, True]), origin=1, ax=ax)
    assert drawn.get_array().tolist() == [-1, 1, 2]
    assert [(text.get_text(), text.xy, text.get_ha()) for text in ax.texts] == [
        ("position −1", (0, 1), "left"), ("position 2", (10, 3), "right"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "chance", "scale", "count"),
    [
        ([3.0, 1.0, 1e-12], None, "log", 2),
        ([3.0, 1.1e-12], None, "log", 2),
        ([3.0, -1.0], None, "linear", 2),
        ([3.0, 1.0], 0.0, "log", 2),
        ([3.0, 1.0], 0.5, "symlog", 2),
        ([0.0], None, "linear", 0),
    ],
)
def test_the_axis_of_a_spectrum_follows_its_values(ax, values, chance, scale, count):
    line = plot.spectrum(np.array(values), chance=chance, ax=ax)
    assert (ax.get_yscale(), ax.get_xscale()) == (scale, "log")
    assert line.get_xdata().tolist() == list(range(1, count + 1))


def test_shares_are_bars_with_intervals(ax):
    bars = plot.shares([[0.9, 0.8, 1.0], [0.1, 0.0, 0.2]], ["noise", "position"], ax=ax)
    assert [bar.get_width() for bar in bars] == [0.9, 0.1]
    ends = [segment[:, 0].tolist() for segment in ax.collections[0].get_segments()]
    assert ends == [[0.8, 1.0], [0.0, 0.2]]
    with pytest.raises(InputError, match=r"shape \[2\]: pass \[2, 3\]"):
        plot.shares([0.9, 0.1], ["noise", "position"], ax=ax)


def test_letters_of_a_stack_have_their_heights_the_highest_on_top(ax):
    heights = np.array([[0.5, 1.0, 1e-4], [np.nan, 0.0, 2.0]])
    drawn = plot.logo(heights, "ACI", first=-1, ax=ax)
    boxes = [one.get_path().get_extents() for one in drawn]
    found = [[*box.intervaly, (box.x0 + box.x1) / 2] for box in boxes]
    np.testing.assert_allclose(found, [[0, 0.5, -1], [0.5, 1.5, -1], [0, 2, 0]], atol=1e-9)
    assert [round(box.width, 2) for box in boxes][:2] == [0.95, 0.95]
    assert boxes[2].width < 0.95  # an I stays narrow
    with pytest.raises(InputError, match=r"shape \[2, 3\]: pass \[n, 2\]"):
        plot.logo(heights, "AC", ax=ax)
