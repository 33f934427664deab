"""Positions that are all alike, 16-bit numbers, and shapes that hold hardly anything."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jaxpe
from jaxpe import geometry
from jaxpe.geometry.distances.matrices import centre_rows, floating, hellinger_roots
from tests.unchecked import unchecked

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((6, 3))
SAME = RNG.standard_normal((1, 3)).repeat(6, axis=0)
MU = RNG.dirichlet(np.ones(9))[None, :].repeat(6, axis=0)
IDS = RNG.integers(0, 9, (50, 1)).repeat(6, axis=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_of_equal_points_nothing_is_left(dtype):
    """Not even rounding: a mean of seven tenths is not seven tenths."""
    points = np.full((7, 3), 0.7, dtype) * np.array([[1, 3, 1e6]], dtype)
    assert not np.any(centre_rows(jax.device_put(points), jnp.ones(7, bool)))
    assert not np.any(geometry.euclidean_distances(points).values)
    assert float(geometry.entropy_rank(points)) == 0
    assert float(geometry.procrustes(points, points).residual) == 0
    found = geometry.classical_mds_from_points(points, dim=2)
    assert not np.any(found.coordinates)
    assert float(found.trace) == 0


def test_constant_columns_have_their_derivative():
    """They are moved to 0 exactly, by a constant."""
    present = jnp.ones(6, bool)
    jacobian = np.asarray(jax.jit(jax.jacobian(lambda x: centre_rows(x, present)))(SAME))
    centring = np.eye(6) - 1 / 6
    np.testing.assert_allclose(jacobian[:, 0, :, 0], centring, atol=1e-15)
    points = jax.jit(jax.jacobian(lambda mu: geometry.hellinger_points(mu).points))
    by_mu = np.asarray(points(MU))
    np.testing.assert_allclose(by_mu[2, 4, 2, 4], 0.5 / np.sqrt(MU[2, 4]), rtol=1e-12)


@pytest.mark.parametrize("wide", [False, True])
def test_equal_positions_have_rank_and_stress_zero(wide):
    with jax.enable_x64(wide):
        found = geometry.information_optimal_encoding(IDS, vocab_size=9, dim=3)
        found = jax.device_get(found)
        assert found.stress == 0
        assert found.mds.rank == 0
        assert found.mds.negative_mass == 0
        assert not found.coordinates.any()
        counts = geometry.count_tokens(IDS, vocab_size=9, folds=4)
        geometry_ = geometry.split_half_geometry(counts, key=KEY, splits=3)
        assert not np.any(geometry_.gram)
        assert not np.any(geometry_.squared_distances)
        rank = geometry.significant_rank(IDS, vocab_size=9, key=KEY, splits=2, nulls=19)
        assert int(rank.rank) == 0


@pytest.mark.parametrize("wide", [False, True])
def test_distributions_equal_up_to_rounding_are_equal(wide):
    with jax.enable_x64(wide):
        dtype = jnp.result_type(float)
        eps = jnp.finfo(dtype).eps
        mu = MU.astype(dtype) * (1 + eps * RNG.integers(-2, 3, MU.shape).astype(dtype))
        assert len(set(mu[:, 0].tolist())) > 1
        roots = np.asarray(hellinger_roots(jax.device_put(mu))[0])
        np.testing.assert_array_equal(roots, roots[:1].repeat(6, axis=0))
        gram = geometry.hellinger_gram(mu)
        assert int(geometry.classical_mds_from_gram(gram, dim=2).rank) == 0
        mu[0, 0] *= 1 + 100 * eps
        assert np.asarray(geometry.hellinger_distances(mu).values)[0, 1] > 0


def test_where_the_null_is_the_corpus_no_dimension_is_above_it():
    gram = POINTS @ POINTS.T
    null = np.stack([gram] * 19) * (1 + 1e-16 * RNG.standard_normal((19, 1, 1)))
    assert geometry.rank_above_null(gram, null).rank == 0
    assert geometry.rank_above_null(1.001 * gram, null).rank == 3


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (geometry.stress, 0),
        (lambda P, D: geometry.scaled_stress(P, D).stress, 0),
        (geometry.kruskal_stress1, 0),
        (lambda P, D: geometry.stress_per_position(P, D).max(), 0),
        (geometry.mantel_correlation, 0),
    ],
)
def test_nothing_to_fit_is_fitted(function, expected):
    D = geometry.euclidean_distances(SAME)
    value, slope = jax.jit(jax.value_and_grad(lambda P: function(P, D)))(SAME)
    assert float(value) == float(function(SAME, D)) == expected
    assert np.isfinite(slope).all()


def shares(x):
    return jnp.abs(x) / jnp.sum(jnp.abs(x), axis=1, keepdims=True)


def between(x):
    return jnp.sum(jnp.abs(x[:, None] - x[None]), axis=2)


NARROW = {
    "entropy_rank": geometry.entropy_rank,
    "procrustes": lambda x: geometry.procrustes(x, 2 * x[::-1]).aligned,
    "classical_mds": lambda x: (
        geometry.classical_mds(
            geometry.euclidean_distances(x).values.astype(x.dtype), dim=2
        ).eigenvalues
    ),
    "low_rank_factors": lambda x: geometry.low_rank_factors(x, rank=2).relative_error,
    "euclidean_distances": lambda x: geometry.euclidean_distances(200 * x).values,
    "gram_matrix": lambda x: geometry.gram_matrix(between(x)),
    "hellinger_distances": lambda x: geometry.hellinger_distances(shares(x)).values,
    "fisher_rao_distances": lambda x: geometry.fisher_rao_distances(shares(x)).values,
    "toeplitz_residual": lambda x: geometry.toeplitz_residual(300 * x[:3]),
    "spectrum": lambda x: jaxpe.spectral.spectrum(300 * x[:3]).values,
    "spectral_norm": lambda x: jaxpe.spectral.spectral_norm(300 * x),
    "schur_bounds": lambda x: jaxpe.spectral.schur_bounds(x[:3], x[:3]).values,
    "deposit": lambda x: jaxpe.spectral.deposit(x).entropy,
    "gradient_flow": lambda x: jaxpe.ntk.gradient_flow(x[:3], x[:3], x[:3]).at(1.0),
    "max_learning_rate": lambda x: jaxpe.ntk.max_learning_rate(x[:3]),
    "stress": lambda x: geometry.stress(x, geometry.euclidean_distances(2 * x)),
    "monotonicity": lambda x: geometry.monotonicity_violation_rate(200 * x),
    "decodability": lambda x: geometry.position_decodability(x[None].repeat(4, axis=0)).error,
}


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("name", NARROW)
def test_16_bit_numbers_are_computed_with_in_32(name, dtype):
    """The same as of the same numbers in float32: nothing overflows, nothing is not implemented."""
    x = POINTS.astype(dtype)
    with unchecked(), jax.numpy_dtype_promotion("standard"):
        found = jax.jit(NARROW[name])(x)
        assert found.dtype == jnp.float32
        # What the case itself multiplies is rounded, so not to the last digit.
        exact = jax.jit(NARROW[name])(x.astype(jnp.float32))
    np.testing.assert_allclose(found, exact, rtol=0.03, atol=0.03 * np.abs(exact).max())


def test_floating_takes_any_real_numbers_and_no_other():
    large = np.array([2**40 + 1, 7], np.uint64)
    with jax.enable_x64(False):
        assert floating(large).tolist() == [2.0**40, 7.0]  # JAX would have cut it to 1
    assert floating(np.array([True])).tolist() == [1.0]
    assert floating(np.ones(2, ml_dtypes.bfloat16)).dtype == jnp.float32
    with unchecked(), pytest.raises(ValueError, match="P is complex128: pass real numbers"):
        geometry.low_rank_factors(np.ones((2, 2), complex), rank=1)


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (2, 3), (6, 0), (1, 0)])
def test_few_positions_or_columns_have_finite_answers(shape):
    @jax.jit
    def numbers(points):
        D = geometry.euclidean_distances(points)
        assert D.values.shape == (shape[0],) * 2
        return [
            geometry.entropy_rank(points),
            geometry.stress(points, D),
            geometry.scaled_stress(points, D).stress,
            geometry.mantel_correlation(points, D),
            geometry.monotonicity_violation_rate(points),
            geometry.is_monotone(points),
            geometry.procrustes(points, points).residual,
            geometry.toeplitz_residual(D.values),
            geometry.sum_over_pairs(lambda d: d, points),
        ]

    for found in numbers(POINTS[: shape[0], : shape[1]]):
        assert np.isfinite(found).all()
    assert geometry.is_monotone(np.zeros(shape))
