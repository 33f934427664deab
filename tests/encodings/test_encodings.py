"""Baseline encodings against their formulas in float64 NumPy."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import (
    euclidean_distances,
    inverse_frequencies,
    random_vectors,
    rotary_orbit,
    sinusoidal_vectors,
)


@pytest.mark.parametrize("dim", [2, 6, 64])
def test_sinusoidal_is_equation_2(dim):
    table = np.zeros((10, dim))
    for i in range(10):
        for k in range(dim // 2):
            phase = i / 10_000 ** (2 * k / dim)
            table[i, 2 * k], table[i, 2 * k + 1] = np.sin(phase), np.cos(phase)
    np.testing.assert_allclose(sinusoidal_vectors(jnp.arange(10), dim=dim), table, atol=1e-14)


def test_float32_phases_at_far_positions():
    far = np.array([0, 1000, 99_999, 100_000], np.int32)
    with jax.enable_x64(False):
        rough = np.asarray(sinusoidal_vectors(far, dim=64))
    assert rough.dtype == np.float32
    phases = far[:, None].astype(float) * inverse_frequencies(64)
    exact = np.stack([np.sin(phases), np.cos(phases)], -1).reshape(4, 64)
    # A float32 frequency and product are each off by half an ulp: eps times the phase in all.
    allowed = np.repeat(np.finfo(np.float32).eps * phases, 2, axis=1) + 3e-7
    assert (np.abs(rough - exact) <= allowed).all()
    assert np.abs(rough[:, 2:] - exact[:, 2:]).max() < 1e-2


def test_positions_are_never_counted_in_a_narrow_float():
    i = jnp.asarray([256, 257], jnp.bfloat16)
    assert sinusoidal_vectors(i, dim=2).dtype == jnp.float64
    assert len(np.unique(sinusoidal_vectors(jnp.arange(250, 260), dim=2)[:, 0])) == 10


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


def test_random_vectors_are_standard_normal():
    x = np.asarray(random_vectors(jax.random.key(0), 400, dim=50, scale=3.0)) / 3.0
    assert abs(x.mean()) < 0.03
    assert abs(x.var() - 1) < 0.05
    assert abs((x**4).mean() - 3) < 0.2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sinusoidal_vectors(np.arange(3), dim=5), "dim must be even and at least 2, not 5"),
        (lambda: inverse_frequencies(0), "dim must be even and at least 2, not 0"),
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
