"""Plots: what is drawn into which axes, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from jaxpe import InputError, geometry, plot
from jaxpe.geometry.noise.split_half import SplitHalfGeometry
from tests.report.factory import STORED


@pytest.fixture
def ax():
    return Figure().subplots()


def points(n=6):
    return np.random.default_rng(0).normal(size=(n, 3))


def test_distances_leave_out_the_diagonal_and_what_is_absent(ax):
    D = geometry.euclidean_distances(points(), present=np.arange(6) != 2)
    shown = np.ma.getmaskarray(plot.distances(D, ax=ax).get_array())
    assert shown.diagonal().all()
    assert shown[2].all()
    assert shown.sum() == 6 + 2 * 5


def test_a_map_takes_what_mds_gives(ax):
    mds = geometry.classical_mds(geometry.euclidean_distances(points()), dim=3)
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
    halves = SplitHalfGeometry(*given)
    assert plot.profile(halves, ax=ax).get_ydata().tolist() == [-2, 4]
    assert plot.profile(halves, squared=False, ax=ax).get_ydata().tolist() == [0, 2]


def test_without_axes_the_current_ones_are_taken(monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    own = Figure().subplots()
    monkeypatch.setattr(pyplot, "gca", lambda: own)
    plot.profile(np.ones((3, 3)))
    assert len(own.lines) == 1


def test_parts_of_a_loaded_report_are_drawn_like_results_of_functions():
    axes = Figure().subplots(2, 2).ravel()
    for part in (STORED.position, STORED.observed):
        image = plot.distances(part, ax=axes[0]).get_array()
        assert image.min() >= 0  # squares below 0 are drawn as 0
        assert image.shape == (128, 128)
        spectrum = plot.spectrum(part, ax=axes[1]).get_ydata()
        np.testing.assert_array_equal(spectrum[:5], part.eigenvalues[:5])
    first = np.diagonal(STORED.position.squared_distances, 1).mean()
    assert plot.profile(STORED.position, ax=axes[2]).get_ydata()[0] == pytest.approx(first)
    for part, coordinates in (
        (STORED.position, STORED.position.coordinates), (STORED.held_out, STORED.held_out.vectors)
    ):  # fmt: skip
        points = plot.positions(part, ax=axes[3]).get_offsets()
        np.testing.assert_array_equal(points, coordinates[:, :2])
    with pytest.raises(InputError, match="`distances`"):
        plot.distances(STORED.held_out, ax=axes[0])


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


def test_shares_are_bars_with_intervals(ax):
    bars = plot.shares([[0.9, 0.8, 1.0], [0.1, 0.0, 0.2]], ["noise", "position"], ax=ax)
    assert [bar.get_width() for bar in bars] == [0.9, 0.1]
    ends = [segment[:, 0].tolist() for segment in ax.collections[0].get_segments()]
    assert ends == [[0.8, 1.0], [0.0, 0.2]]
    with pytest.raises(InputError, match="shape"):
        plot.shares([0.9, 0.1], ["noise", "position"], ax=ax)


def test_letters_of_a_stack_have_their_heights_the_highest_on_top(ax):
    heights = np.array([[0.5, 1.0, 1e-4], [np.nan, 0.0, 2.0]])
    drawn = plot.logo(heights, "ACI", first=-1, ax=ax)
    boxes = [one.get_path().get_extents() for one in drawn]
    found = [[*box.intervaly, (box.x0 + box.x1) / 2] for box in boxes]
    np.testing.assert_allclose(found, [[0, 0.5, -1], [0.5, 1.5, -1], [0, 2, 0]], atol=1e-9)
    assert [round(box.width, 2) for box in boxes][:2] == [0.95, 0.95]
    assert boxes[2].width < 0.95  # an I stays narrow
    with pytest.raises(InputError, match="shape"):
        plot.logo(heights, "AC", ax=ax)


def test_what_cannot_be_drawn_is_refused(ax):
    for draw, array, message in (
        (plot.distances, np.ones((3, 2)), "matrix"),
        (plot.profile, np.ones((3, 2)), "matrix"),
        (plot.positions, np.ones((3, 1)), "k ≥ 2"),
    ):
        with pytest.raises(InputError, match=message):
            draw(array, ax=ax)
    with pytest.raises(InputError, match="nothing"):
        plot.positions(np.ones((3, 2)), present=np.zeros(3), ax=ax)
