"""What scores take in place of vectors and matrices, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe import geometry
from jaxpe.theory import divergences
from tests.unchecked import unchecked


def test_results_with_coordinates_are_encodings():
    D = jaxpe.euclidean_distances(np.random.default_rng(0).normal(size=(6, 3)))
    mds = jaxpe.classical_mds(D, dim=2)
    for result in (mds, jaxpe.smacof(D, dim=2)):
        for score in (jaxpe.stress, jaxpe.kruskal_stress1):
            np.testing.assert_allclose(score(result, D), score(result.coordinates, D), rtol=1e-6)
    half = mds._replace(present=np.arange(6) < 4)
    few = jaxpe.Distances(D.values, np.arange(6) < 4)
    expected = jaxpe.stress(mds.coordinates, few)
    np.testing.assert_allclose(jaxpe.stress(half, D), expected, rtol=1e-6)


KEY = jax.random.key(0)
P = np.random.default_rng(0).normal(size=(6, 3))
D = np.asarray(jaxpe.euclidean_distances(P))
MU = np.random.default_rng(1).dirichlet(np.ones(7), size=6)
ONCE = 1.0 * (np.arange(36).reshape(6, 6) == 1)
OF_DISTANCES = {
    "stress": lambda D: jaxpe.stress(P, D),
    "scaled_stress": lambda D: jaxpe.scaled_stress(P, D),
    "kruskal_stress1": lambda D: jaxpe.kruskal_stress1(P, D),
    "stress_per_position": lambda D: geometry.stress_per_position(P, D),
    "mantel_correlation": lambda D: jaxpe.mantel_correlation(P, D),
    "classical_mds": lambda D: jaxpe.classical_mds(D, dim=2).eigenvalues,
    "smacof": lambda D: jaxpe.smacof(D, dim=2).stress,
    "gram_matrix": geometry.gram_matrix,
    "as_distances": lambda D: geometry.as_distances(D).values,
    "violation rate": lambda D: jaxpe.monotonicity_violation_rate(as_encoding(D)),
    "entropy_rank": lambda D: jaxpe.entropy_rank(as_encoding(D)),
    "stress of distances": lambda D: jaxpe.stress(as_encoding(D), np.ones((6, 6)) - np.eye(6)),
}
NO_DISTANCES = {
    "not symmetric": (D + ONCE, "not symmetric"),
    "negative": (D - 0.5 * (1 - np.eye(6)), "negative"),
    "a diagonal": (D + np.eye(6), "diagonal"),
    "NaN": (D + np.nan * (ONCE + ONCE.T == 1), "largest of the distances is nan"),
    "infinite": (np.where(ONCE + ONCE.T, np.inf, D), "largest of the distances is inf"),
    "too large": (1e200 * D, "squared in float64"),
    "too small": (1e-200 * D, "squared in float64"),
}


def as_encoding(D):
    return jaxpe.Distances(D, jnp.ones(6, bool))


@pytest.mark.parametrize("name", OF_DISTANCES)
def test_what_cannot_be_distances_is_refused_by_all_alike(name):
    for wrong, words in NO_DISTANCES.values():
        with unchecked(), pytest.raises(jaxpe.InputError, match=words):
            OF_DISTANCES[name](wrong)


@pytest.mark.parametrize("name", [name for name in OF_DISTANCES if "stochastic" not in name])
def test_what_cannot_be_distances_is_nan_inside_jit(name):
    kinds = ("not symmetric", "negative", "a diagonal", "NaN", "infinite")
    program = jax.jit(OF_DISTANCES[name])
    for kind in kinds:
        assert np.isnan(jax.tree.leaves(program(NO_DISTANCES[kind][0]))[0]).any(), kind
    assert np.isfinite(jax.tree.leaves(program(D))[0]).all()


def test_rounding_and_absent_positions_are_let_through():
    exact = jaxpe.stress(2 * P, D)
    np.testing.assert_allclose(jaxpe.stress(2 * P, D + 1e-6 * np.triu(D)), exact, rtol=1e-5)
    absent = np.arange(6) == 1
    holed = np.where(absent[:, None] | absent, np.nan, D)
    assert np.isfinite(jaxpe.stress(P, jaxpe.Distances(holed, ~absent)))


@pytest.mark.parametrize("value", [1e-30, 1e30])
def test_squares_that_float32_does_not_hold_are_refused(value):
    points, targets = P.astype(np.float32), D.astype(np.float32)
    scale = np.float32(value)
    for call in (
        lambda: jaxpe.stress(points, scale * targets),
        lambda: jaxpe.scaled_stress(scale * points, targets),
        lambda: jaxpe.min_separation(scale * points),
        lambda: jaxpe.euclidean_distances(scale * points),
        lambda: geometry.classical_mds_from_points(scale * points, dim=2),
    ):
        with pytest.raises(jaxpe.InputError, match="squared in float32"):
            call()


@pytest.mark.parametrize("targets", [1e30 * D, 1e30 * P], ids=["matrix", "points"])
def test_targets_are_squared_in_the_dtype_of_the_encoding(targets):
    cloud = targets if targets.shape[0] == targets.shape[1] else geometry.as_points(targets)
    assert jaxpe.stress(P, cloud) == 1
    with unchecked(), pytest.raises(jaxpe.InputError, match="squared in float32"):
        jaxpe.stress(P.astype(np.float32), cloud)


def test_what_is_neither_a_count_nor_an_angle_is_nan():
    assert np.isnan(geometry.entropy(np.array([0.5, 0.5])))
    np.testing.assert_allclose(geometry.entropy(np.ones(2) / 2, estimator="plug-in"), np.log(2))
    assert np.isnan(geometry.principal_angles(np.nan * P, P)).all()
    with pytest.raises(jaxpe.InputError, match="tolerance must be"):
        jaxpe.monotonicity_violation_rate(P, tolerance=-1.0)


SCORES = (
    jaxpe.stress,
    jaxpe.scaled_stress,
    jaxpe.kruskal_stress1,
    geometry.stress_per_position,
    lambda P, D, weights: jaxpe.smacof(D, dim=2, weights=weights).stress,
)


@pytest.mark.parametrize("score", SCORES)
def test_weights_that_weigh_nothing_or_less_are_refused(score):
    ones = np.ones((6, 6))
    wrong = {"at least 0": -ones, "not nan": np.nan * ones, "not inf": np.inf * ones}
    wrong |= {"all 0": 0 * ones, "not symmetric": ones + 9 * ONCE}
    for words, weights in wrong.items():
        with pytest.raises(jaxpe.InputError, match=words):
            score(P, D, weights=weights)
    program = jax.jit(lambda weights: score(P, D, weights=weights))
    for weights in (-ones, 0 * ones):
        assert np.isnan(jax.tree.leaves(program(weights))[0]).all()


OF_DISTRIBUTIONS = {
    "hellinger_distances": lambda mu: jaxpe.hellinger_distances(mu).values,
    "hellinger_gram": jaxpe.hellinger_gram,
    "fisher_rao_distances": lambda mu: jaxpe.fisher_rao_distances(mu).values,
    "hellinger_points": lambda mu: geometry.hellinger_points(mu).points,
    "kl_divergences": divergences.kl_divergences,
    "total_variation": divergences.total_variation,
}
ROW = (np.arange(6) == 2)[:, None]
NO_DISTRIBUTIONS = {
    "counts": np.round(100 * MU),
    "negative": MU - 2 * MU[:, :1] * (np.arange(7) == 0),
    "sum to 3": np.where(ROW, 3 * MU, MU),
    "NaN": np.where(ROW, np.nan, MU),
}


@pytest.mark.parametrize("name", OF_DISTRIBUTIONS)
def test_what_is_no_distribution_is_refused(name):
    function = OF_DISTRIBUTIONS[name]
    for wrong in NO_DISTRIBUTIONS.values():
        for mu in (wrong, geometry.PositionalDistributions(wrong, np.ones(6, bool))):
            with pytest.raises(jaxpe.InputError, match=r"positional_distributions\(counts\)"):
                function(mu)
    counts = jaxpe.count_tokens(np.zeros((3, 6), int), vocab_size=7)
    with unchecked(), pytest.raises(jaxpe.InputError, match=r"positional_distributions\(counts\)"):
        function(counts)


@pytest.mark.parametrize("name", OF_DISTRIBUTIONS)
def test_what_is_no_distribution_is_nan_inside_jit(name):
    program = jax.jit(OF_DISTRIBUTIONS[name])
    assert np.isnan(program(NO_DISTRIBUTIONS["sum to 3"])[2]).any()
    assert np.isfinite(program(MU)).all()


def test_rows_of_zeros_and_absent_rows_are_let_through():
    counts = np.array([[3, 1], [0, 0], [1, 1]])
    for empty in ("zero", "drop", "uniform"):
        mu = jaxpe.positional_distributions(counts, empty=empty)
        assert np.isfinite(jaxpe.hellinger_distances(mu).values).all()
    holed = geometry.PositionalDistributions(np.where(ROW, np.nan, MU), ~ROW[:, 0])
    assert np.isfinite(jaxpe.hellinger_distances(holed).values).all()


def test_a_million_words_in_float32_sum_to_one():
    """Whatever the order of the sum."""
    mu = np.random.default_rng(0).dirichlet(np.ones(10**6), size=2).astype(np.float32)
    mu = np.concatenate([mu, np.full((1, 10**6), 1e-6, np.float32)])
    found = jaxpe.hellinger_distances(mu).values  # known, and inside the program not known
    exact = np.sqrt(mu.astype(float))
    expected = np.sqrt(((exact[:, None] - exact[None]) ** 2).sum(-1))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("wrong", [np.nan, -1.0, np.inf])
def test_what_is_no_count_is_refused(wrong):
    counts = np.array([[1.0, 2.0], [3.0, wrong]])
    for function in (
        geometry.entropy,
        geometry.mutual_information,
        geometry.positional_distributions,
    ):
        words = "counts must be finite and at least 0"
        with unchecked(), pytest.raises(jaxpe.InputError, match=words):
            function(counts)
    found = jax.jit(geometry.entropy)(counts)
    assert np.isfinite(found[0])
    assert np.isnan(found[1])
    assert np.isnan(jax.jit(geometry.mutual_information)(counts))


@pytest.mark.parametrize("smoothing", [np.nan, np.inf, -1.0])
def test_smoothing_is_finite(smoothing):
    with pytest.raises(jaxpe.InputError, match="smoothing must be finite and at least 0"):
        geometry.positional_distributions(np.ones((2, 2), int), smoothing=smoothing)


FOLDS = jaxpe.count_tokens(np.zeros((40, 6), int), vocab_size=7, folds=4)
SIZED = {
    "dim": [
        lambda n: jaxpe.classical_mds(D, dim=n),
        lambda n: jaxpe.smacof(D, dim=n),
        lambda n: geometry.classical_mds_from_points(P, dim=n),
        lambda n: geometry.mutual_information_encoding(D, dim=n),
    ],
    "splits": [
        lambda n: geometry.split_half_geometry(FOLDS, key=KEY, splits=n),
        lambda n: geometry.disjoint_geometries(FOLDS, key=KEY, splits=n),
    ],
    "halvings": [lambda n: geometry.disjoint_geometries(FOLDS, key=KEY, splits=2, halvings=n)],
    "permutations": [
        lambda n: geometry.compare_geometries(FOLDS, FOLDS, key=KEY, permutations=n),
        lambda n: geometry.positional_information(np.zeros((4, 3), int), permutations=n, key=KEY),
    ],
    "vocab_size": [lambda n: jaxpe.count_tokens(np.zeros((1, 6), int), vocab_size=n)],
    "folds": [lambda n: jaxpe.count_tokens(np.zeros((1, 6), int), vocab_size=9, folds=n)],
}


@pytest.mark.parametrize("name", SIZED)
def test_numbers_of_things_are_whole_and_fit_in_memory(name):
    for call in SIZED[name]:
        with unchecked(), pytest.raises(jaxpe.InputError, match=f"`{name}=1000000000` needs .* GB"):
            call(10**9)
        for wrong in (-1, 2.5, "2", True):
            with unchecked(), pytest.raises(jaxpe.InputError, match=f"{name} must be"):
                call(wrong)


@pytest.mark.parametrize("wrong", ["abc", None, np.array([[None, 1]])])
def test_what_is_no_number_is_named(wrong):
    for function in (jaxpe.stress, jaxpe.procrustes):
        with unchecked(), pytest.raises(jaxpe.InputError, match="pass real numbers"):
            function(wrong, D)


def test_rounding_of_inner_products_is_no_fault():
    """By ‖x‖² + ‖y‖² − 2x·y in float32 the diagonal is up to a hundredth."""
    points = (5 + np.random.default_rng(0).normal(size=(300, 64))).astype(np.float32)
    squares = (points**2).sum(axis=1)
    rounded = np.sqrt(np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0))
    assert np.diagonal(rounded).max() > 1e-3 * rounded.max()
    np.testing.assert_allclose(jaxpe.stress(points, rounded), 0, atol=1e-5)


def test_what_jax_narrows_is_checked_as_it_will_be():
    with jax.enable_x64(False), pytest.raises(jaxpe.InputError, match="squared in float32"):
        geometry.gram_matrix(np.array([[0, 1e25], [1e25, 0]]))


def test_one_position_has_no_pair_to_weigh():
    assert jaxpe.stress(np.zeros((1, 2)), np.zeros((1, 1)), weights=np.zeros((1, 1))) == 0
