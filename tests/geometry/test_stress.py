"""Stress: identities, invariances, masks, and the conventions at 0/0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import (
    Distances,
    euclidean_distances,
    hellinger_distances,
    kruskal_stress1,
    mantel_correlation,
    min_separation,
    scaled_stress,
    sinusoidal_vectors,
    stress,
)
from jaxpe.geometry import PointCloud, stress_per_position

# Compiled whole, these cost the tests a tenth of their time; eager calls are in test_transforms.
stress, scaled_stress, kruskal_stress1, stress_per_position, mantel_correlation = map(
    jax.jit,
    (stress, scaled_stress, kruskal_stress1, stress_per_position, mantel_correlation),
)
RNG = np.random.default_rng(0)
P = RNG.standard_normal((6, 3))
D = np.asarray(euclidean_distances(RNG.standard_normal((6, 5))).values)
W = RNG.random((6, 6))
W = W + W.T
ROTATION = np.linalg.qr(RNG.standard_normal((3, 3)))[0]
SCORES = {
    "stress": stress,
    "scaled": jax.jit(lambda P, D, **kw: scaled_stress(P, D, **kw).stress),
    "kruskal": kruskal_stress1,
    "per_position": stress_per_position,
}


def golden_section(f, low, high):
    ratio = (np.sqrt(5) - 1) / 2
    for _ in range(80):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, b) if f(a) < f(b) else (a, high)
    return (low + high) / 2


def test_added_frequencies_can_lower_the_stress():
    """A word for each of 128 positions, so that all distances are √2."""
    D = hellinger_distances(np.eye(128))
    found = [float(stress(sinusoidal_vectors(np.arange(128), dim=dim), D)) for dim in (2, 4, 8)]
    np.testing.assert_allclose(found, [0.194, 0.152, 0.316], atol=5e-4)


@pytest.mark.parametrize("weights", [None, W])
def test_equation_4_by_loops(weights):
    above = below = own = 0.0
    for i in range(6):
        for j in range(i):
            w = 1.0 if weights is None else weights[i, j]
            delta = np.linalg.norm(P[i] - P[j])
            above, below = above + w * (delta - D[i, j]) ** 2, below + w * D[i, j] ** 2
            own += w * delta**2
    np.testing.assert_allclose(stress(P, D, weights=weights), above / below)
    np.testing.assert_allclose(kruskal_stress1(P, D, weights=weights), np.sqrt(above / own))


@pytest.mark.parametrize("weights", [None, W])
def test_scaled_stress_is_the_minimum_over_scales(weights):
    fit = scaled_stress(P, D, weights=weights)
    best = golden_section(lambda s: float(stress(s * P, D, weights=weights)), 0.0, 5.0)
    np.testing.assert_allclose(fit.scale, best, rtol=1e-6)
    np.testing.assert_allclose(fit.stress, stress(fit.scale * P, D, weights=weights), rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_scaled_stress_and_correlation_ignore_scale_rotation_translation(scale):
    moved = scale * P @ ROTATION + 3.0 * scale
    np.testing.assert_allclose(scaled_stress(moved, D).stress, scaled_stress(P, D).stress)
    np.testing.assert_allclose(scaled_stress(moved, D).scale * scale, scaled_stress(P, D).scale)
    np.testing.assert_allclose(mantel_correlation(moved, D), mantel_correlation(P, D))
    np.testing.assert_allclose(stress(moved, scale * D), stress(P, D))


def test_mean_of_the_positions_is_the_stress():
    rows = stress_per_position(P, D, weights=W)
    share = (W * D**2).sum(1)
    np.testing.assert_allclose((rows * share).sum() / share.sum(), stress(P, D, weights=W))


def test_zero_weight_drops_a_pair():
    w = np.ones((6, 6))
    w[1, 2] = w[2, 1] = 0
    wild = D.copy()
    wild[1, 2] = wild[2, 1] = 1e3
    for score in SCORES.values():
        np.testing.assert_allclose(score(P, wild, weights=w), score(P, D, weights=w), rtol=1e-12)


@pytest.mark.parametrize("junk", [0.0, np.nan])
def test_mask_equals_removal(junk):
    keep = np.array([True, False, True, True, False, True])
    holed_p = np.where(keep[:, None], P, junk)
    holed_d = Distances(jnp.asarray(np.where(np.outer(keep, keep), D, junk)), jnp.asarray(keep))
    part_p, part_d = P[keep], D[np.ix_(keep, keep)]
    for name, score in SCORES.items():
        whole = np.asarray(score(holed_p, holed_d))
        if name == "per_position":
            assert (whole[~keep] == 0).all()
            whole = whole[keep]
        np.testing.assert_allclose(whole, score(part_p, part_d), rtol=1e-12)
    np.testing.assert_allclose(
        mantel_correlation(holed_p, holed_d),
        mantel_correlation(part_p, part_d),
    )
    np.testing.assert_allclose(min_separation(holed_p, present=keep), min_separation(part_p))
    gradient = np.asarray(jax.jit(jax.grad(stress))(holed_p, holed_d))
    np.testing.assert_allclose(
        gradient[keep], jax.jit(jax.grad(stress))(part_p, part_d), rtol=1e-10
    )
    assert (gradient[~keep] == 0).all()


def test_weights_of_positions_that_the_encoding_lacks_do_not_count():
    keep = np.array([True, False, True, True, False, True])
    weights = np.arange(1.0, 37.0).reshape(6, 6)
    weights, kept = weights + weights.T, np.ix_(keep, keep)
    found = stress(PointCloud(jnp.asarray(P), jnp.asarray(keep)), D, weights=weights)
    np.testing.assert_allclose(found, stress(P[keep], D[kept], weights=weights[kept]))


@pytest.mark.parametrize("scale", [1e-16, 1e16])
def test_correlation_of_any_scale(scale):
    np.testing.assert_allclose(mantel_correlation(scale * P, D), mantel_correlation(P, D))


CONSTANT, ZERO = np.ones((6, 3)), np.zeros((6, 6))
NOBODY = Distances(jnp.asarray(D), jnp.zeros(6, bool))
ONE = Distances(jnp.asarray(D), jnp.arange(6) == 2)


@pytest.mark.parametrize(
    ("points", "targets", "expected"),
    [
        (CONSTANT, D, {"stress": 1, "scaled": 1, "kruskal": np.inf, "per_position": 1}),
        (CONSTANT, ZERO, {"stress": 0, "scaled": 0, "kruskal": 0, "per_position": 0}),
        (P, ZERO, {"stress": np.inf, "scaled": 0, "kruskal": 1, "per_position": np.inf}),
        (P, NOBODY, {"stress": 0, "scaled": 0, "kruskal": 0, "per_position": 0}),
        (P, ONE, {"stress": 0, "scaled": 0, "kruskal": 0, "per_position": 0}),
    ],
)
def test_degenerate_conventions_and_their_gradients(points, targets, expected):
    for name, score in SCORES.items():
        np.testing.assert_allclose(score(points, targets), expected[name], err_msg=name)
        gradient = jax.jit(jax.grad(lambda P, D, score=score: jnp.sum(score(P, D))))(
            points, targets
        )
        assert np.isfinite(gradient).all(), name
    correlation = jax.jit(jax.value_and_grad(mantel_correlation))(points, targets)
    assert correlation[0] == 0
    assert np.isfinite(correlation[1]).all()


def test_rounding_is_no_correlation():
    simplex = np.linalg.qr(np.random.default_rng(1).standard_normal((6, 6)))[0]
    for dtype in (np.float32, np.float64):
        assert mantel_correlation(simplex.astype(dtype), D.astype(dtype)) == 0


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="options are those of a CPU")
def test_equal_distances_do_not_correlate_where_sums_err_by_many_roundings():
    k = np.arange(60)
    waves = np.sqrt(np.where(k == 0, 1, 2) / 60) * np.cos(np.pi * (k[:, None] + 0.5) * k / 60)
    given = waves.astype(np.float32), abs(k[:, None] - k).astype(np.float32)
    with jax.enable_x64(False):
        lowered = mantel_correlation.lower(*given)
        # Without optimisations numbers are added one by one, in place of in lanes.
        options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
        one_by_one = lowered.compile(compiler_options=options)
        assert one_by_one(*given) == 0


def test_coincident_points_get_no_force_from_each_other():
    points = P.copy()
    points[1] = points[0]
    gradient = jax.jit(jax.grad(stress))(points, D)
    # Lone forces between 0 and 1 are taken as 0, so the target of that pair has no effect.
    other = D.copy()
    other[0, 1] = other[1, 0] = 0
    scale = (D**2).sum() / (other**2).sum()
    np.testing.assert_allclose(
        gradient * scale, jax.jit(jax.grad(stress))(points, other), rtol=1e-12
    )


@pytest.mark.parametrize("where", ["points", "targets", "weights"])
def test_nan_stays_nan(where):
    points, targets, w = P.copy(), D.copy(), W.copy()
    {"points": points, "targets": targets, "weights": w}[where][1, 0] = np.nan
    for name, score in SCORES.items():
        value = np.asarray(score(points, targets, weights=w))
        assert np.isnan(value if value.ndim == 0 else value[1]), name
    if where != "weights":
        assert np.isnan(mantel_correlation(points, targets))
    if where == "points":
        assert np.isnan(min_separation(points))


def test_min_separation():
    D = euclidean_distances(np.array([[0.0], [5.0], [5.5], [9.0]]))
    assert min_separation(D) == 0.5
    assert min_separation(D, present=np.array([True, True, False, True])) == 4.0
    assert min_separation(D._replace(present=jnp.array([True, False, True, True]))) == 3.5
    assert min_separation(np.array([[0.0], [5.0], [5.5], [9.0]])) == 0.5
    assert min_separation(P[:1]) == np.inf
