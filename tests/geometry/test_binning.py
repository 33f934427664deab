"""Bins of positions cover every position once."""

import numpy as np
import pytest

from jaxpe.geometry import position_bins


@pytest.mark.parametrize(("n", "bins"), [(1, 1), (7, 1), (7, 7), (10, 4), (1000, 37), (2**17, 64)])
@pytest.mark.parametrize("spacing", ["equal", "log"])
def test_bins_cover_every_position_once(n, bins, spacing):
    edges = position_bins(n, bins=bins, spacing=spacing)
    widths = np.diff(edges)
    assert edges.dtype == np.int32
    assert (edges[0], edges[-1], len(edges)) == (0, n, bins + 1)
    assert (widths >= 1).all()
    if spacing == "equal":
        assert widths.max() - widths.min() <= 1
    elif bins > 1:
        assert widths[0] == 1
        assert (np.diff(widths) >= 0).all()


def test_logarithmic_widths_grow_by_one_factor():
    widths = np.diff(position_bins(2**17, bins=64, spacing="log"))
    ratios = widths[41:] / widths[40:-1]
    assert np.ptp(ratios) < 0.02
    assert 1.1 < ratios.mean() < 1.3
