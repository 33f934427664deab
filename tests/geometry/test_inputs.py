"""What functions of distances and distributions take and refuse; narrow numbers, few positions."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jaxpe
from jaxpe import geometry
from jaxpe.geometry.checks import check_confidence, check_size
from jaxpe.geometry.distances.matrices import as_distances, gram_matrix
from jaxpe.geometry.distances.mutual_information import entropy, mutual_information
from jaxpe.geometry.distances.pairs import sum_over_pairs
from jaxpe.geometry.distances.points import as_points, hellinger_points
from jaxpe.geometry.mds.classical import low_rank_factors
from jaxpe.geometry.mds.from_points import classical_mds_from_points
from jaxpe.spectral.norms import spectral_norm
from tests.unchecked import unchecked

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
P = RNG.normal(size=(6, 3))
D = np.asarray(geometry.euclidean_distances(P))
MU = RNG.dirichlet(np.ones(7), size=6)
ONCE = 1.0 * (np.arange(36).reshape(6, 6) == 1)
ONES = np.ones((6, 6))


def as_encoding(D):
    return geometry.Distances(D, jnp.ones(6, bool))


OF_DISTANCES = {
    "stress": lambda D: geometry.stress(P, D),
    "mantel_correlation": lambda D: geometry.mantel_correlation(P, D),
    "classical_mds": lambda D: geometry.classical_mds(D, dim=2).eigenvalues,
    "smacof": lambda D: geometry.smacof(D, dim=2).stress,
    "gram_matrix": gram_matrix,
    "as_distances": lambda D: as_distances(D).values,
    "violation rate": lambda D: geometry.monotonicity_violation_rate(as_encoding(D)),
    "entropy_rank": lambda D: geometry.entropy_rank(as_encoding(D)),
    "stress of distances": lambda D: geometry.stress(as_encoding(D), ONES - np.eye(6)),
}
NO_DISTANCES = {
    "not symmetric": (D + ONCE, "symmetric"),
    "negative": (D - 0.5 * (1 - np.eye(6)), "negative"),
    "a diagonal": (D + np.eye(6), "diagonal"),
    "NaN": (D + np.nan * (ONCE + ONCE.T == 1), "nan"),
    "infinite": (np.where(ONCE + ONCE.T, np.inf, D), "inf"),
    "too large": (1e200 * D, "float64"),
    "too small": (1e-200 * D, "float64"),
    "no square": (D[:5], "matrix"),
}
OF_DISTRIBUTIONS = {
    "hellinger_distances": lambda mu: geometry.hellinger_distances(mu).values,
    "hellinger_gram": geometry.hellinger_gram,
    "fisher_rao_distances": lambda mu: geometry.fisher_rao_distances(mu).values,
    "hellinger_points": lambda mu: hellinger_points(mu).points,
}
ROW = (np.arange(6) == 2)[:, None]
NO_DISTRIBUTIONS = {
    "counts": np.round(100 * MU),
    "negative": MU - 2 * MU[:, :1] * (np.arange(7) == 0),
    "sum to 3": np.where(ROW, 3 * MU, MU),
    "NaN": np.where(ROW, np.nan, MU),
}


def test_what_cannot_be_distances_is_refused_by_all_alike():
    for function in OF_DISTANCES.values():
        with unchecked(), pytest.raises(jaxpe.InputError, match="symmetric"):
            function(D + ONCE)
    for wrong, word in NO_DISTANCES.values():
        with unchecked(), pytest.raises(ValueError, match=word):
            gram_matrix(wrong)


def test_what_is_no_distribution_is_refused_by_all_alike():
    counts = geometry.count_tokens(np.zeros((3, 6), int), vocab_size=7)
    for function in OF_DISTRIBUTIONS.values():
        for mu in (counts, *NO_DISTRIBUTIONS.values()):
            with unchecked(), pytest.raises(jaxpe.InputError, match="positional_distributions"):
                function(mu)


def test_inside_jit_wrong_numbers_are_nan():
    program = jax.jit(lambda D: {name: f(D) for name, f in OF_DISTANCES.items()})
    for kind in ("not symmetric", "negative", "a diagonal", "NaN", "infinite"):
        for name, found in program(NO_DISTANCES[kind][0]).items():
            assert np.isnan(jax.tree.leaves(found)[0]).any(), (kind, name)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(program(D)))
    program = jax.jit(lambda mu: {name: f(mu) for name, f in OF_DISTRIBUTIONS.items()})
    for name, found in program(NO_DISTRIBUTIONS["sum to 3"]).items():
        assert np.isnan(found[2]).any(), name
    assert all(np.isfinite(found).all() for found in program(MU).values())


def changed(at, value):
    values = ONES[:3, :3] - np.eye(3)
    for index in at:
        values[index] = value
    return values


# Of a largest distance of 1, and of distributions of two words.
@pytest.mark.parametrize(
    ("function", "values", "allowed"),
    [
        (gram_matrix, changed(at, value), allowed)
        for at, value, allowed in (
            ([(1, 1)], 0.049, True),
            ([(1, 1)], 0.051, False),
            ([(0, 1), (1, 0)], -0.9e-3, True),
            ([(0, 1), (1, 0)], -1.1e-3, False),
            ([(0, 1)], 1 - 0.9e-3, True),
            ([(0, 1)], 1 - 1.1e-3, False),
        )
    ]
    + [
        (geometry.hellinger_gram, np.array([[0.5, 0.5], row]), allowed)
        for row, allowed in (
            ([0.0, 0.0], True),
            ([0.5, 0.509], True),
            ([0.5, 0.511], False),
            ([0.5, 0.489], False),
            ([1.0, -0.9e-6], True),
            ([1.0, -1.1e-6], False),
        )
    ],
)
def test_deviations_that_are_rounding_and_that_are_not(function, values, allowed):
    """Known values raise, and traced ones give NaN, at the same limits."""
    assert np.isfinite(jax.jit(function)(values)).all() == allowed
    if allowed:
        function(values)
    else:
        with pytest.raises(jaxpe.InputError):
            function(values)


def test_absent_positions_and_rows_of_zeros_are_let_through():
    absent = np.arange(6) == 1
    holed = np.where(absent[:, None] | absent, np.nan, D)
    assert np.isfinite(geometry.stress(P, geometry.Distances(holed, ~absent)))
    for empty in ("zero", "drop", "uniform"):
        mu = geometry.positional_distributions(np.array([[3, 1], [0, 0], [1, 1]]), empty=empty)
        assert np.isfinite(geometry.hellinger_distances(mu).values).all()
    holed = geometry.PositionalDistributions(np.where(ROW, np.nan, MU), ~ROW[:, 0])
    assert np.isfinite(geometry.hellinger_distances(holed).values).all()
    assert geometry.stress(np.zeros((1, 2)), np.zeros((1, 1)), weights=np.zeros((1, 1))) == 0


@pytest.mark.parametrize("value", [1e-30, 1e30])
def test_squares_that_float32_does_not_hold_are_refused(value):
    points, targets = P.astype(np.float32), D.astype(np.float32)
    scale = np.float32(value)
    for call in (
        lambda: geometry.stress(points, scale * targets),
        lambda: geometry.stress(points, value * D),  # which are cast
        lambda: geometry.stress(points, as_points(value * P)),
        lambda: geometry.min_separation(scale * points),
        lambda: geometry.euclidean_distances(scale * points),
        lambda: classical_mds_from_points(scale * points, dim=2),
    ):
        with pytest.raises(jaxpe.InputError, match="float32"):
            call()
    np.testing.assert_allclose(geometry.stress(value * P, value * D), 0, atol=1e-20)


def test_weights_that_weigh_nothing_or_less_are_refused():
    scores = (
        geometry.stress,
        lambda P, D, weights: geometry.smacof(D, dim=2, weights=weights).stress,
    )
    wrong = {"at least 0": -ONES, "nan": np.nan * ONES, "inf": np.inf * ONES, "all 0": 0 * ONES}
    for score in scores:
        for word, weights in (wrong | {"symmetric": ONES + 9 * ONCE}).items():
            with pytest.raises(jaxpe.InputError, match=word):
                score(P, D, weights=weights)
    program = jax.jit(lambda weights: [score(P, D, weights=weights) for score in scores])
    for weights in (-ONES, 0 * ONES):
        assert np.isnan(program(weights)).all()


def test_a_million_words_in_float32_sum_to_one():
    """Whatever the order of the sum."""
    mu = RNG.dirichlet(np.ones(10**6), size=2).astype(np.float32)
    mu = np.concatenate([mu, np.full((1, 10**6), 1e-6, np.float32)])
    found = geometry.hellinger_distances(mu).values  # known, and inside the program not known
    exact = np.sqrt(mu.astype(float))
    expected = np.sqrt(((exact[:, None] - exact[None]) ** 2).sum(-1))
    tolerance = 1e-4 if jax.__version_info__ >= (0, 10) else 3e-4  # JAX 0.9 sums less exactly
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-6)


def test_rounding_of_inner_products_is_no_fault():
    """By ‖x‖² + ‖y‖² − 2x·y in float32 the diagonal is up to a hundredth."""
    points = (5 + RNG.normal(size=(300, 64))).astype(np.float32)
    squares = (points**2).sum(axis=1)
    rounded = np.sqrt(np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0))
    assert np.diagonal(rounded).max() > 1e-3 * rounded.max()
    np.testing.assert_allclose(geometry.stress(points, rounded), 0, atol=1e-5)


@pytest.mark.parametrize("wrong", [np.nan, -1.0, np.inf])
def test_what_is_no_count_is_refused(wrong):
    counts = np.array([[1.0, 2.0], [3.0, wrong]])
    of_counts = (entropy, mutual_information, geometry.positional_distributions)
    for function in of_counts:
        with unchecked(), pytest.raises(jaxpe.InputError, match="counts"):
            function(counts)
    found = jax.jit(lambda x: (*entropy(x), mutual_information(x)))(counts)
    assert np.isnan(found).tolist() == [False, True, True]


def test_sizes_are_whole_positive_and_fit_in_memory():
    folds = geometry.count_tokens(np.zeros((40, 6), int), vocab_size=7, folds=4)
    calls = {
        "dim": lambda n: geometry.smacof(D, dim=n),
        "splits": lambda n: geometry.split_half_geometry(folds, key=KEY, splits=n),
        "permutations": lambda n: geometry.compare_geometries(
            folds, folds, key=KEY, permutations=n
        ),
        "folds": lambda n: geometry.count_tokens(np.zeros((1, 6), int), vocab_size=9, folds=n),
        "size": lambda n: check_size("size", n, each=6),
    }
    for name, call in calls.items():
        for wrong in (10**9, 0, -1, 2.5, "2", True):
            with unchecked(), pytest.raises(jaxpe.InputError, match=name):
                call(wrong)
    check_size("size", 1)
    for confidence in (0.0, 1.0):
        with pytest.raises(ValueError, match="confidence"):
            check_confidence(confidence)


def shares(x):
    return jnp.abs(x) / jnp.sum(jnp.abs(x), axis=1, keepdims=True)


@jax.jit
def of_narrow(x):
    """Functions that would overflow in float16, or that are not implemented for it."""
    between = jnp.sum(jnp.abs(x[:, None] - x[None]), axis=2)
    spectral, ntk = jaxpe.spectral, jaxpe.ntk
    return {
        "entropy_rank": geometry.entropy_rank(x),
        "procrustes": geometry.procrustes(x, 2 * x[::-1]).aligned,
        "classical_mds": geometry.classical_mds(between, dim=2).eigenvalues,
        "low_rank_factors": low_rank_factors(x, rank=2).relative_error,
        "euclidean_distances": geometry.euclidean_distances(200 * x).values,
        "hellinger_distances": geometry.hellinger_distances(shares(x)).values,
        "fisher_rao_distances": geometry.fisher_rao_distances(shares(x)).values,
        "toeplitz_residual": geometry.toeplitz_residual(300 * x[:3]),
        "spectrum": spectral.spectrum(300 * x[:3]).values,
        "spectral_norm": spectral_norm(300 * x),
        "schur_bounds": spectral.schur_bounds(x[:3], x[:3]).values,
        "deposit": spectral.deposit(x).entropy,
        "gradient_flow": ntk.gradient_flow(x[:3], x[:3], x[:3]).at(1.0),
        "max_learning_rate": ntk.max_learning_rate(x[:3]),
        "stress": geometry.stress(x, geometry.euclidean_distances(2 * x)),
        "stress of points": geometry.stress(x, as_points(2 * x)),
        "monotonicity": geometry.monotonicity_violation_rate(200 * x),
        "decodability": geometry.position_decodability(jnp.stack([x] * 4)).error,
    }


def test_16_bit_numbers_are_computed_with_in_32():
    """The same as of the same numbers in float32: nothing overflows, nothing is not implemented."""
    x = P.astype(jnp.float16)
    with unchecked(), jax.numpy_dtype_promotion("standard"):
        found, exact = of_narrow(x), of_narrow(x.astype(jnp.float32))
    for name, expected in exact.items():
        assert found[name].dtype == jnp.float32
        # What is multiplied before is rounded, so not to the last digit.
        tolerance = 0.03 * np.abs(expected).max()
        np.testing.assert_allclose(found[name], expected, rtol=0.03, atol=tolerance, err_msg=name)


def test_integers_become_floats_before_they_are_cut():
    """`jax.jit` keeps 32 bits of the integers of NumPy: 2**32 would be 0."""
    P = np.array([[0, 0], [3, 4], [6, 9]]) * 2**32
    calls = (
        lambda P, D: as_distances(D).values,
        lambda P, D: geometry.stress(P[:, :1], geometry.PointCloud(P, np.ones(3, bool))),
        lambda P, D: geometry.procrustes(P, P[::-1]).aligned,
        lambda P, D: sum_over_pairs(lambda d: d, P),
    )
    D = np.abs(P[:, :1] - P[:, 0])
    with jax.enable_x64(False):
        for call in calls:
            found = np.asarray(call(P, D))
            np.testing.assert_array_equal(found, call(P.astype(float), D.astype(float)))
            assert found.any()
        large = np.array([[0, 2**40 + 1], [2**40 + 1, 0]], np.uint64)
        assert as_distances(large)[0, 1] == 2.0**40  # JAX would have cut it to 1
    assert as_distances(np.array([[0, 1], [1, 0]], ml_dtypes.bfloat16)).values.dtype == "f4"


def test_equal_positions_have_rank_and_stress_zero():
    """Not even rounding is left: a mean of seven tenths is not seven tenths."""
    ids = np.random.default_rng(0).integers(0, 9, (50, 1)).repeat(6, axis=1)
    with jax.enable_x64(False):
        found = geometry.information_optimal_encoding(ids, vocab_size=9, dim=3)
        numbers = found.stress, found.mds.rank, found.mds.negative_mass
        assert [float(x) for x in numbers] == [0] * 3
        assert not np.any(found.coordinates)
        counts = geometry.count_tokens(ids, vocab_size=9, folds=4)
        assert not np.any(geometry.split_half_geometry(counts, key=KEY, splits=3).gram)
        rank = geometry.significant_rank(ids, vocab_size=9, key=KEY, splits=2, nulls=19)
        assert int(rank.rank) == 0
    for dtype in (np.float32, np.float64):
        points = np.full((7, 3), 0.7, dtype) * np.array([[1, 3, 1e6]], dtype)
        assert not np.any(geometry.euclidean_distances(points).values)
        assert geometry.procrustes(points, points).residual == 0
        mds = classical_mds_from_points(points, dim=2)
        assert not np.any(mds.coordinates)
        assert mds.trace == 0
