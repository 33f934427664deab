"""Scores of encodings, of a matrix and tile by tile: formulas, masks, conventions at 0/0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import geometry
from jaxpe.geometry import (
    Distances,
    PointCloud,
    euclidean_distances,
    kruskal_stress1,
    mantel_correlation,
    min_separation,
    scaled_stress,
    stress,
    stress_per_position,
)
from jaxpe.geometry.distances.monotonicity import is_monotone
from jaxpe.geometry.distances.pairs import sum_over_pairs

RNG = np.random.default_rng(0)
N = 9
P, X = RNG.standard_normal((N, 3)), RNG.standard_normal((N, 5))
D = np.linalg.norm(X[:, None] - X[None], axis=-1)
PRESENT = np.arange(N) % 5 != 1
SIZES = RNG.integers(1, 99, N).astype(float)
W = RNG.random((N, N))
W = W + W.T
W[2, 3] = W[3, 2] = 0
SCORES = {
    "stress": stress,
    "scaled": lambda P, D, **kw: scaled_stress(P, D, **kw).stress,
    "kruskal": kruskal_stress1,
    "per_position": lambda P, D, **kw: jnp.sum(stress_per_position(P, D, **kw) ** 2),
    "correlation": lambda P, D, weights=None: mantel_correlation(P, D),
}


@jax.jit
def graded(P, D, weights=None):
    """Every score with its gradient: one program for each kind of targets and weights."""
    return {
        name: jax.value_and_grad(score)(P, D, weights=weights) for name, score in SCORES.items()
    }


def cloud(points, present=None):
    present = np.ones(len(points), bool) if present is None else present
    return PointCloud(jnp.asarray(points), jnp.asarray(present))


def matrix(values, present=None):
    return Distances(*cloud(values, present))


def by_formula(P, D, w):
    """Eq. (4) and its relatives in NumPy."""
    delta = np.linalg.norm(P[:, None] - P[None], axis=-1)
    pairs = w > 0
    with np.errstate(all="ignore"):
        rows = np.nan_to_num((w * (delta - D) ** 2).sum(1) / (w * D**2).sum(1))
    scale = (w * delta * D).sum() / (w * delta**2).sum()
    return {
        "stress": (w * (delta - D) ** 2).sum() / (w * D**2).sum(),
        "scaled": (w * (scale * delta - D) ** 2).sum() / (w * D**2).sum(),
        "kruskal": np.sqrt((w * (delta - D) ** 2).sum() / (w * delta**2).sum()),
        "per_position": (rows**2).sum(),
        "correlation": np.corrcoef(delta[pairs], D[pairs])[0, 1],
    }


def harmonic(sizes):
    """Weights of pairs from documents per position."""
    with np.errstate(all="ignore"):
        return np.nan_to_num(1 / (1 / sizes[:, None] + 1 / sizes[None, :]))


@pytest.mark.parametrize(
    ("tiles", "weights"), [(False, None), (False, W), (False, SIZES), (True, None), (True, SIZES)]
)
def test_scores_are_their_formulas_and_absent_positions_take_no_part(tiles, weights):
    for junk in (0.0, np.nan):
        there, both = PRESENT[:, None], np.outer(PRESENT, PRESENT)
        w = both & ~np.eye(N, dtype=bool)
        w = w * (1.0 if weights is None else weights if weights.ndim == 2 else harmonic(weights))
        targets = cloud(np.where(there, X, junk), PRESENT)
        if not tiles:
            wild = np.where(both, D, junk)
            wild[2, 3] = wild[3, 2] = 2 * D[2, 3] if weights is W else D[2, 3]
            targets = matrix(wild, PRESENT)
        found = graded(np.where(there, P, junk), targets, weights)
        expected = by_formula(P, D, w)
        for name, (value, gradient) in found.items():
            if name == "correlation" and weights is not None:
                continue  # has no weights
            np.testing.assert_allclose(value, expected[name], rtol=1e-11, err_msg=name)
            assert (gradient[~PRESENT] == 0).all()
            assert np.isfinite(gradient).all()


def test_scaled_stress_is_the_minimum_over_scales():
    fit = scaled_stress(P, D)
    np.testing.assert_allclose(stress(fit.scale * P, D), fit.stress, rtol=1e-12)
    for factor in (0.999, 1.001):
        assert stress(factor * fit.scale * P, D) > fit.stress
    rows, share = stress_per_position(P, D), (D**2).sum(1)
    np.testing.assert_allclose((rows * share).sum() / share.sum(), stress(P, D))


CONSTANT, ZERO, NOBODY = np.ones((N, 3)), np.zeros((N, 5)), np.zeros(N, bool)
ONE = np.arange(N) == 2
CONVENTIONS = [
    (CONSTANT, X, None, {"stress": 1, "scaled": 1, "kruskal": np.inf, "per_position": N}),
    (CONSTANT, ZERO, None, {"stress": 0, "scaled": 0, "kruskal": 0, "per_position": 0}),
    (P, ZERO, None, {"stress": np.inf, "scaled": 0, "kruskal": 1, "per_position": np.inf}),
    (P, X, NOBODY, {"stress": 0, "scaled": 0, "kruskal": 0, "per_position": 0}),
    (P, X, ONE, {"stress": 0, "scaled": 0, "kruskal": 0, "per_position": 0}),
]


@pytest.mark.parametrize(("points", "targets", "present", "expected"), CONVENTIONS)
def test_degenerate_conventions_and_their_gradients(points, targets, present, expected):
    dense = np.linalg.norm(targets[:, None] - targets[None], axis=-1)
    for given in (cloud(targets, present), matrix(dense, present)):
        for name, (value, gradient) in graded(points, given).items():
            np.testing.assert_allclose(value, expected.get(name, 0), rtol=1e-12, err_msg=name)
            assert np.isfinite(gradient).all(), name


@pytest.mark.parametrize("where", ["points", "targets", "weights"])
def test_nan_stays_nan_unless_absent(where):
    given = {"points": P.copy(), "targets": X.copy(), "weights": SIZES.copy()}
    given[where][3] = np.nan
    dense = np.linalg.norm(given["targets"][:, None] - given["targets"][None], axis=-1)
    away = np.arange(N) != 3
    for make, targets in ((cloud, given["targets"]), (matrix, dense)):
        for name, (value, _) in graded(given["points"], make(targets), given["weights"]).items():
            assert np.isnan(value) or (name, where) == ("correlation", "weights"), name
        found = graded(given["points"], make(targets, away), given["weights"])
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))


def test_positions_that_the_encoding_lacks_do_not_count():
    inner = np.ix_(PRESENT, PRESENT)
    found = stress(cloud(P, PRESENT), D, weights=W)
    np.testing.assert_allclose(found, stress(P[PRESENT], D[inner], weights=W[inner]))


def test_a_matrix_on_one_side_is_compared_as_matrices():
    expected = stress(P, D)
    for found in (
        stress(cloud(P), D),
        stress(euclidean_distances(P), cloud(X)),
        stress(cloud(P), cloud(X)),
    ):
        np.testing.assert_allclose(found, expected)
    mds = geometry.classical_mds(D, dim=2)
    np.testing.assert_allclose(stress(mds, D), stress(mds.coordinates, D))


def test_rounding_is_no_correlation_and_the_ninth_digit_is():
    simplex = np.linalg.qr(RNG.standard_normal((N, N)))[0]
    k = np.arange(60)
    waves = np.sqrt(np.where(k == 0, 1, 2) / 60) * np.cos(np.pi * (k[:, None] + 0.5) * k / 60)
    for dtype in (np.float32, np.float64):
        assert mantel_correlation(simplex.astype(dtype), D.astype(dtype)) == 0
        line = abs(k[:, None] - k).astype(dtype)
        assert mantel_correlation(waves.astype(dtype), line) == 0

    def nearly_equal(noise):
        return 1.0 - np.eye(N) + 1e-9 * (noise + noise.T) * (1.0 - np.eye(N))

    one, other = (matrix(nearly_equal(RNG.uniform(-1, 1, (N, N)))) for _ in range(2))
    np.testing.assert_allclose(mantel_correlation(one, one), 1.0, atol=1e-6)
    assert abs(mantel_correlation(one, other)) < 0.9


def test_coincident_points_get_no_force_from_each_other():
    points, other = P.copy(), D.copy()
    points[1] = points[0]
    other[0, 1] = other[1, 0] = 0  # the target of that pair has no effect
    gradient = jax.jit(jax.grad(stress))
    scale = (D**2).sum() / (other**2).sum()
    np.testing.assert_allclose(gradient(points, D) * scale, gradient(points, other), rtol=1e-12)


def test_smallest_distances():
    line = np.array([[0.0], [5.0], [5.5], [9.0]])
    dense = np.abs(line - line.T)
    here = np.array([True, True, False, True])
    for encoding in (line, cloud(line), matrix(dense)):
        assert min_separation(encoding) == 0.5
        assert min_separation(encoding, present=here) == 4.0
        assert min_separation(encoding, present=here & False) == np.inf
    assert min_separation(cloud(line, ~here)) == np.inf
    assert np.isnan(min_separation(cloud(np.array([[0.0], [np.nan]]))))
    many = np.linspace(0.0, 1.0, 5000)[:, None] ** 2  # row by row
    np.testing.assert_allclose(min_separation(many), many[1, 0], rtol=1e-6)


# Sums over pairs of positions, tile by tile.


def term(delta, d):
    return {"residual": (delta - d) ** 2 / d, "number": 1, "longer": delta > d}


@pytest.mark.parametrize(("block", "weights"), [(1, None), (4, SIZES), (5, SIZES)])
def test_sums_over_tiles_are_sums_over_the_matrix(block, weights):
    delta, d = np.linalg.norm(P[:, None] - P[None], axis=-1), D + np.eye(N)
    w = np.outer(PRESENT, PRESENT) & ~np.eye(N, dtype=bool)
    if weights is not None:
        trust = harmonic(np.where(PRESENT, weights, 0))
        w = w * trust / trust.max()
    rows = {name: (w * x).sum(1) for name, x in term(delta, d).items()}
    options = {"block": block, "weights": weights}

    @jax.jit
    def both(P, X):
        targets = PointCloud(X, jnp.asarray(PRESENT))
        return [sum_over_pairs(term, P, targets, per_position=x, **options) for x in (False, True)]

    once, of_positions = both(P, X)
    for name, row in rows.items():
        np.testing.assert_allclose(of_positions[name], row, rtol=1e-12)
        np.testing.assert_allclose(once[name], row.sum() / 2, rtol=1e-12)


def test_any_number_of_clouds_and_further_arguments():
    kept, there = np.where(np.outer(PRESENT, PRESENT), D, 0), cloud(X, PRESENT)
    three = sum_over_pairs(lambda a, b, c: a * b * c, X, X, there, block=5)
    np.testing.assert_allclose(three, (kept**3).sum() / 2)
    scaled = sum_over_pairs(lambda d, s: s * d, there, args=(np.array(3.0),))
    np.testing.assert_allclose(scaled, 1.5 * kept.sum())
    assert sum_over_pairs(lambda d: d, cloud(np.zeros((0, 2)))) == 0
    for junk in (1e6, np.nan):  # weights of absent positions have no say
        sizes = np.where(PRESENT, SIZES, junk)
        total = sum_over_pairs(lambda d: d, there, weights=sizes)
        expected = sum_over_pairs(lambda d: d, X[PRESENT], weights=SIZES[PRESENT])
        np.testing.assert_allclose(total, expected)


def test_a_term_that_fails_off_the_pairs_has_its_derivative():
    def log_ratio(P, s):
        return sum_over_pairs(lambda delta, d: s * jnp.log(delta / d) ** 2, P, X, block=4)

    by_p, by_s = jax.jit(jax.grad(log_ratio, argnums=(0, 1)))(P, 2.0)
    apart = P[:, None] - P[None]
    delta = np.linalg.norm(apart, axis=-1) + np.eye(N)
    ratio = np.log(delta / (D + np.eye(N)))
    np.testing.assert_allclose(by_s, (ratio**2).sum() / 2)
    pull = (4.0 * ratio / delta**2)[..., None] * apart
    np.testing.assert_allclose(by_p, pull.sum(1), rtol=1e-10)


def test_many_positions_keep_their_digits():
    """More than a tile, the last one with padding, and a coincident pair."""
    rng, n = np.random.default_rng(1), 600
    near = rng.standard_normal((n, 8))
    points = np.concatenate([near + 0.3 * rng.standard_normal((n, 8)), near[:, :3]], axis=1)
    near[1] = near[0]
    present = rng.random(n) < 0.9
    w = np.outer(present, present) * (1.0 - np.eye(n))
    D = np.linalg.norm(points[:, None] - points[None], axis=-1)
    expected = by_formula(near, D + np.eye(n), w)
    score = jax.jit(lambda P, D: (scaled_stress(P, D).stress, mantel_correlation(P, D)))
    found = score(near.astype(np.float32), cloud(points.astype(np.float32), present))
    # Measured: 9e-7 in float32.
    np.testing.assert_allclose(found, (expected["scaled"], expected["correlation"]), rtol=2e-6)


def test_equal_points_are_at_distance_0_however_wide():
    wide = np.random.default_rng(4).standard_normal((300, 3000)).astype(np.float32)
    wide[299] = wide[0]
    assert jax.jit(lambda x: sum_over_pairs(lambda d: d == 0, x, block=128))(wide) == 1


LEAN = {
    "scaled": jax.value_and_grad(SCORES["scaled"]),
    "is_monotone": lambda P, D: is_monotone(P, present=D.present),
}


def test_memory_grows_as_the_positions_do():
    points, present = (
        jax.ShapeDtypeStruct(s, x) for s, x in (((16_384, 64), "f4"), ((16_384,), "?"))
    )
    every = jax.jit(lambda P, D: {name: f(P, D) for name, f in LEAN.items()})
    compiled = every.lower(points, PointCloud(points, present)).compile()
    # The points take 4 MB; a matrix of their distances would take a gigabyte.
    assert compiled.memory_analysis().temp_size_in_bytes < 150e6
