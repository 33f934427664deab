"""Baseline encodings against their formulas in float64 NumPy."""

import inspect

import numpy as np
import pytest

from jaxpe import (
    euclidean_distances,
    rotary_orbit,
    sinusoidal_vectors,
)


def test_orbit_of_equal_pairs_has_the_sinusoidal_distances():
    i = np.array([0, 1, 5, 17, 400])
    expected = euclidean_distances(sinusoidal_vectors(i, dim=8)).values
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 4)
    turned = np.stack([np.cos(angle), np.sin(angle)], -1).reshape(8)
    for reference in (None, turned):
        orbit = rotary_orbit(i, dim=8, reference=reference)
        np.testing.assert_allclose(euclidean_distances(orbit).values, expected, atol=1e-13)
    np.testing.assert_allclose(
        euclidean_distances(rotary_orbit(i, dim=8, reference=3 * turned)).values, 3 * expected
    )


def test_orbit_distances_depend_on_offsets_alone():
    q = np.random.default_rng(1).standard_normal(6)
    near = euclidean_distances(rotary_orbit(np.arange(5), dim=6, reference=q)).values
    far = euclidean_distances(rotary_orbit(1000 + np.arange(5), dim=6, reference=q)).values
    np.testing.assert_allclose(near, far, atol=1e-11)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rotary_orbit(np.arange(3), dim=7), "dim must be even"),
        (
            lambda: inspect.unwrap(rotary_orbit)(np.arange(3), dim=4, reference=np.ones(6)),
            r"reference has shape \(6,\), not \[dim\] = \(4,\)",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
