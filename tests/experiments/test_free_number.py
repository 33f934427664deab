"""The free number of `log_position`: least stress in one dimension."""

import itertools

import numpy as np
import pytest

from experiments.beyond.log_position import least_stress
from jaxpe import geometry


def stress(x, d):
    return float(geometry.scaled_stress(x[:, None].astype(np.float32), d.astype(np.float32)).stress)


@pytest.mark.parametrize("seed", range(3))
def test_no_order_of_few_points_has_less_stress(seed):
    rng = np.random.default_rng(seed)
    points = rng.random((6, 2))
    d = np.linalg.norm(points[:, None] - points, axis=-1)
    found = least_stress(d, [rng.random(6), rng.random(6)])
    orders = np.array(list(itertools.permutations(range(6))))
    ranked = np.sign(orders[:, :, None] - orders[:, None, :])
    least = 1 - np.max(np.sum(np.sum(ranked * d, axis=2) ** 2, axis=1)) / (3 * np.sum(d**2))
    assert stress(found, d) == pytest.approx(least, abs=1e-5)
