"""Sums over pairs tile by tile: equal to sums over a matrix, in memory that grows as n."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import (
    PointCloud,
    euclidean_distances,
    kruskal_stress1,
    mantel_correlation,
    min_separation,
    monotonicity_violation_rate,
    scaled_stress,
    stress,
)
from jaxpe.geometry import (
    PositionCounts,
    is_monotone,
    pair_weights,
    stress_per_position,
    sum_over_pairs,
)
from tests.compilation import compilations

RNG = np.random.default_rng(0)
P = RNG.standard_normal((13, 3))
X = RNG.standard_normal((13, 4))
PRESENT = np.arange(13) % 5 != 1
SIZES = RNG.integers(1, 99, 13)


def cloud(points, present=None):
    present = np.ones(len(points), bool) if present is None else present
    return PointCloud(jnp.asarray(points), jnp.asarray(present))


def matrix(points):
    return np.linalg.norm(points[:, None] - points[None, :], axis=-1)


def weights_of(sizes):
    """By the definition of `pair_weights`."""
    counts = PositionCounts(jnp.asarray(sizes, jnp.int32)[:, None], jnp.int32(99), jnp.int32(0))
    return np.asarray(pair_weights(counts))


def term(delta, d):
    return {"residual": (delta - d) ** 2 / d, "number": 1, "longer": delta > d}


@pytest.mark.parametrize(
    ("block", "weights"), [(1, None), (4, SIZES), (5, None), (7, None), (100, SIZES)]
)
def test_sums_over_tiles_are_sums_over_the_matrix(block, weights):
    delta, d = matrix(P), matrix(X)
    counted = np.outer(PRESENT, PRESENT) & ~np.eye(13, dtype=bool)
    w = np.where(counted, 1.0 if weights is None else weights_of(np.where(PRESENT, SIZES, 0)), 0.0)
    np.fill_diagonal(d, 1.0)
    rows = jax.tree.map(lambda x: (w * x).sum(1), term(delta, d))
    options = {"block": block, "weights": weights}

    @jax.jit
    def both(P, X):
        targets = PointCloud(X, jnp.asarray(PRESENT))
        return (
            sum_over_pairs(term, P, targets, **options),
            sum_over_pairs(term, P, targets, per_position=True, **options),
        )

    once, of_positions = both(P, X)
    for name, row in rows.items():
        np.testing.assert_allclose(of_positions[name], row, rtol=1e-12)
        np.testing.assert_allclose(once[name], row.sum() / 2, rtol=1e-12)
    assert (np.asarray(of_positions["number"])[~PRESENT] == 0).all()


def test_any_number_of_clouds():
    one = sum_over_pairs(lambda delta: delta, P, block=5)
    three = sum_over_pairs(lambda a, b, c: a * b * c, P, X, cloud(P, PRESENT), block=5)
    kept = matrix(P[PRESENT]) ** 2 * matrix(X[PRESENT])
    np.testing.assert_allclose(one, matrix(P).sum() / 2)
    np.testing.assert_allclose(three, kept.sum() / 2)


def test_a_term_that_fails_off_the_pairs_has_its_derivative():
    def log_ratio(P, s):
        return sum_over_pairs(lambda delta, d: s * jnp.log(delta / d) ** 2, P, X, block=4)

    by_p, by_s = jax.jit(jax.grad(log_ratio, argnums=(0, 1)))(P, 2.0)
    i, j = np.triu_indices(13, 1)

    def plainly(P):
        delta = jnp.linalg.norm(P[i] - P[j], axis=1)
        return 2.0 * jnp.sum(jnp.log(delta / matrix(X)[i, j]) ** 2)

    np.testing.assert_allclose(by_p, jax.grad(plainly)(jnp.asarray(P)), rtol=1e-10)
    np.testing.assert_allclose(by_s, plainly(P) / 2)


SCORES = {
    "stress": stress,
    "scaled": lambda P, D, **kw: sum(scaled_stress(P, D, **kw)),
    "kruskal": kruskal_stress1,
    "per_position": lambda P, D, **kw: jnp.sum(stress_per_position(P, D, **kw) ** 2),
    "correlation": mantel_correlation,
}


# Compiled once for all tests that look at them.
GRADED = {name: jax.jit(jax.value_and_grad(score)) for name, score in SCORES.items()}
DENSE = {name: jax.jit(score) for name, score in SCORES.items()}


# Kruskal's stress is another ratio of the sums of stress.
@pytest.mark.parametrize("name", ["stress", "scaled", "per_position", "correlation"])
def test_many_positions_score_as_their_matrix_does(name):
    rng = np.random.default_rng(1)
    n, score = 1100, SCORES[name]  # more than two tiles, the last one with padding
    near = rng.standard_normal((n, 8))
    points = np.concatenate([near + 0.3 * rng.standard_normal((n, 8)), near[:, :3]], axis=1)
    near[1] = near[0]  # a coincident pair
    present = rng.random(n) < 0.9

    @partial(jax.value_and_grad, argnums=(0, 1))
    def dense(P, X):
        return score(P, euclidean_distances(X, present=present))

    @jax.jit
    @partial(jax.value_and_grad, argnums=(0, 1))
    def tiles(P, X):
        return score(P, PointCloud(X, jnp.asarray(present)))

    value, gradients = jax.jit(dense)(near, points)
    # Measured: 4e-15 in float64 and 9e-7 in float32, each relative to the largest entry.
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 2e-6)):
        ours, ours_gradients = tiles(near.astype(dtype), points.astype(dtype))
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, value, rtol=tolerance)
        for one, other in zip(ours_gradients, gradients, strict=True):
            np.testing.assert_allclose(one, other, atol=tolerance * np.abs(other).max())


@pytest.mark.parametrize("name", [name for name in SCORES if name != "correlation"])
def test_weights_are_documents_per_position(name):
    score = jax.jit(SCORES[name])
    w, D = weights_of(SIZES), euclidean_distances(X)
    np.testing.assert_allclose(score(P, cloud(X), weights=SIZES), score(P, D, weights=w))
    np.testing.assert_allclose(score(P, D, weights=SIZES), score(P, D, weights=w))


def test_a_matrix_on_one_side_is_compared_as_matrices():
    D, C = euclidean_distances(X), cloud(P)
    expected = stress(P, D)
    np.testing.assert_allclose(stress(C, D), expected)
    np.testing.assert_allclose(stress(euclidean_distances(P), cloud(X)), expected)
    np.testing.assert_allclose(stress(C, cloud(X)), expected)


ZERO, CONSTANT = np.zeros((13, 4)), np.ones((13, 3))


@pytest.mark.parametrize(
    ("points", "targets"),
    [(P, ZERO), (CONSTANT, X), (CONSTANT, ZERO), (P, None)],
    ids=["targets 0", "encoding constant", "both", "nobody there"],
)
def test_degenerate_conventions_are_those_of_a_matrix(points, targets):
    present = np.full(13, targets is not None)
    targets = cloud(X if targets is None else targets, present)
    dense = euclidean_distances(targets.points, present=targets.present)
    for name, graded in GRADED.items():
        value, gradient = graded(points, targets)
        np.testing.assert_allclose(value, DENSE[name](points, dense), err_msg=name)
        assert np.isfinite(gradient).all(), name


@pytest.mark.parametrize("where", ["points", "targets"])
def test_nan_stays_nan_unless_absent(where):
    given = {"points": P.copy(), "targets": X.copy()}
    given[where][3] = np.nan
    for name, graded in GRADED.items():
        assert np.isnan(graded(given["points"], cloud(given["targets"]))[0]), name
        away = graded(given["points"], cloud(given["targets"], np.arange(13) != 3))
        assert all(np.isfinite(x).all() for x in away), name


@pytest.mark.parametrize("junk", [1e6, np.nan])
def test_weights_of_absent_positions_have_no_say(junk):
    present = np.arange(13) != 3
    sizes = np.where(present, SIZES, junk)
    total = sum_over_pairs(lambda d: d, cloud(X, present), weights=sizes)
    expected = sum_over_pairs(lambda d: d, X[present], weights=SIZES[present])
    np.testing.assert_allclose(total, expected)


def test_nan_among_weights_or_points_alone():
    sizes = np.where(np.arange(13) == 3, np.nan, SIZES)
    weighted = jax.jit(lambda D: stress(P, D, weights=sizes))
    assert np.isnan(weighted(cloud(X)))
    assert np.isfinite(weighted(cloud(X, np.arange(13) != 3)))
    broken = np.where(np.arange(13)[:, None] == 3, np.nan, P)
    assert np.isnan(min_separation(cloud(broken)))
    assert np.isnan(monotonicity_violation_rate(cloud(broken)))


@pytest.mark.parametrize("targets", [cloud(X[:5]), euclidean_distances(X[:5])])
def test_second_derivatives(targets):
    """The envelope theorem saves work in the first derivative, and must not cost the second."""
    hessian = jax.jit(jax.hessian(lambda P: scaled_stress(P, targets).stress))(P[:5])
    gradient = jax.jit(jax.grad(lambda P: scaled_stress(P, targets).stress))
    direction = np.random.default_rng(2).standard_normal((5, 3))
    step = 1e-5 * direction
    expected = (gradient(P[:5] + step) - gradient(P[:5] - step)) / 2e-5
    product = jnp.einsum("ikjl,jl->ik", hessian, direction)
    np.testing.assert_allclose(product, expected, rtol=1e-5, atol=1e-8)


def test_smallest_distance_by_tiles():
    small = jax.jit(lambda P, there: min_separation(cloud(P, PRESENT), present=there))
    there = np.arange(13) != 4
    both = PRESENT & there
    expected = min_separation(P[both])
    np.testing.assert_allclose(small(P, there), expected)
    assert small(P, np.arange(13) == 2) == np.inf
    many = np.linspace(0.0, 1.0, 5000)[:, None] ** 2
    np.testing.assert_allclose(min_separation(many), many[1, 0], rtol=1e-6)


def test_equal_points_are_at_distance_0_however_wide():
    wide = np.random.default_rng(4).standard_normal((300, 3000)).astype(np.float32)
    wide[299] = wide[0]
    assert jax.jit(lambda x: sum_over_pairs(lambda d: d == 0, x, block=128))(wide) == 1


MANY = 16_384
SHAPES = jax.ShapeDtypeStruct((MANY, 64), jnp.float32), jax.ShapeDtypeStruct((MANY,), bool)


LEAN = {
    **{name: jax.value_and_grad(SCORES[name]) for name in ("scaled", "per_position")},
    "min_separation": jax.value_and_grad(lambda P, D: min_separation(D._replace(points=P))),
    "is_monotone": lambda P, D: is_monotone(P, present=D.present),
}


@pytest.mark.parametrize("name", LEAN)
def test_memory_grows_as_the_positions_do(name):
    points, present = SHAPES
    compiled = jax.jit(LEAN[name]).lower(points, PointCloud(points, present)).compile()
    # The points take 4 MB; a matrix of their distances would take a gigabyte.
    assert compiled.memory_analysis().temp_size_in_bytes < 150e6


def scaled_error(delta, d, scale):
    return (scale * delta - d) ** 2


def test_arrays_of_a_term_may_change_without_another_program():
    ours = [sum_over_pairs(scaled_error, P, X, args=(np.array(s),)) for s in (0.5, 2.0)]
    with compilations() as names:
        third = sum_over_pairs(scaled_error, P, X, args=(np.array(3.0),))
    assert not names
    for scale, found in zip((0.5, 2.0, 3.0), [*ours, third], strict=True):
        expected = sum_over_pairs(lambda delta, d, s=scale: (s * delta - d) ** 2, P, X)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_no_positions_and_nan_where_a_position_is_absent():
    nobody = PointCloud(jnp.zeros((0, 2)), jnp.zeros(0, bool))
    assert sum_over_pairs(lambda d: d, nobody) == 0
    assert stress(nobody.points, nobody) == 0
    assert min_separation(nobody) == np.inf
    sizes = np.where(PRESENT, SIZES, np.nan)
    ours = stress(P, cloud(X, PRESENT), weights=sizes)
    np.testing.assert_allclose(
        stress(P, euclidean_distances(X, present=PRESENT), weights=sizes), ours, rtol=1e-12
    )
