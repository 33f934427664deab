"""Entropies and mutual information: formulas, bias, the null, the encoding, Gaussian vectors."""

import jax
import numpy as np
import pytest

from jaxpe.geometry import (
    entropy,
    gaussian_information,
    mutual_information_encoding,
    positional_information,
)
from jaxpe.geometry.distances.mutual_information import longest_documents

RNG = np.random.default_rng(0)
ESTIMATORS = ("plug-in", "miller-madow", "grassberger")


def brute_force(x: np.ndarray, y: np.ndarray) -> float:
    """Plug-in mutual information of two columns, cell by cell."""
    total = 0.0
    for a in np.unique(x):
        for b in np.unique(y):
            both = np.mean((x == a) & (y == b))
            if both:
                total += both * np.log(both / (np.mean(x == a) * np.mean(y == b)))
    return total


def test_grassbergers_numbers():
    # G(1) = −γ − log 2, G(2) = G(1) + 2, G(3) = G(2), G(4) = G(2) + 2/3
    one = -np.euler_gamma - np.log(2)
    expected = {1: one, 2: one + 2, 3: one + 2, 4: one + 2 + 2 / 3}
    for n, G in expected.items():
        found = np.log(n) - float(entropy(np.array([n]), estimator="grassberger"))
        np.testing.assert_allclose(found, G, atol=1e-6)


def test_grassberger_has_less_bias_than_the_others():
    counts = RNG.multinomial(200, np.full(100, 0.01), size=400)
    error = {e: float(np.mean(entropy(counts, estimator=e))) - np.log(100) for e in ESTIMATORS}
    assert error["plug-in"] < -0.2
    assert abs(error["grassberger"]) < abs(error["miller-madow"]) < abs(error["plug-in"])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_nothing_counted_and_one_outcome(estimator):
    assert float(entropy(np.zeros(3), estimator=estimator)) == 0
    if estimator != "grassberger":
        assert float(entropy(np.array([5, 0, 0]), estimator=estimator)) == 0


def test_positions_against_brute_force():
    ids = RNG.integers(0, 5, (60, 4))
    ids[:, 2] = (ids[:, 0] + (RNG.random(60) < 0.2)) % 5
    mask = RNG.random((60, 4)) < 0.8
    found = positional_information(ids, mask=mask, estimator="plug-in")
    for i in range(4):
        for j in range(4):
            both = mask[:, i] & mask[:, j]
            assert found.documents[i, j] == both.sum()
            if i != j:
                expected = brute_force(ids[both, i], ids[both, j])
                np.testing.assert_allclose(found.values[i, j], expected, atol=1e-6)
    assert not found.null.any()
    np.testing.assert_array_equal(np.diag(found.values), 0)


def test_the_null_is_the_bias():
    ids = RNG.integers(0, 40, (300, 3))  # independent: 0.86 nats by the plug-in estimate
    found = positional_information(ids, estimator="plug-in", permutations=20, key=jax.random.key(0))
    pairs = np.triu_indices(3, 1)
    assert (np.asarray(found.values)[pairs] > 0.5).all()
    score = np.asarray(found.corrected)[pairs] / np.asarray(found.null_deviation)[pairs]
    assert (abs(score) < 4).all()
    again = positional_information(ids, estimator="plug-in", permutations=20, key=jax.random.key(0))
    np.testing.assert_array_equal(found.null, again.null)


def test_every_pair_of_positions_has_a_null_of_its_own():
    ids = RNG.integers(0, 20, (200, 3))
    ids[:, 2] = ids[:, 1]
    found = positional_information(ids, permutations=4, key=jax.random.key(0))
    np.testing.assert_allclose(found.values[0, 1], found.values[0, 2], rtol=1e-6)
    assert abs(found.null[0, 1] - found.null[0, 2]) > 1e-4


def test_the_null_takes_too_much_of_tokens_that_are_copied():
    column = RNG.integers(0, 1000, 500)
    ids = np.stack([column, column], axis=1)
    found = positional_information(ids, permutations=2, key=jax.random.key(0))
    assert found.values[0, 1] > 6  # of log 1,000 = 6.9
    assert found.corrected[0, 1] < 2


def test_the_null_keeps_to_documents_that_reach_both():
    """Their tokens all differ, in every order; the tokens of the others are all 7."""
    ids = np.where(np.arange(8)[:, None] < 4, 7, np.arange(8)[:, None]) * np.ones((1, 3), np.int32)
    mask = np.ones((8, 3), bool)
    mask[:4, 1] = False
    found = positional_information(
        ids, mask=mask, estimator="plug-in", permutations=30, key=jax.random.key(1),
        groups=np.arange(8),
    )  # fmt: skip
    np.testing.assert_allclose([found.values[0, 1], found.null[0, 1]], np.log(4), rtol=1e-6)
    np.testing.assert_allclose(found.null_deviation[0, 1], 0.0, atol=1e-6)


def test_copies_are_no_information():
    rng = np.random.default_rng(1)
    once = rng.integers(0, 40, (150, 5))
    copies, key = np.repeat(once, 4, axis=0), jax.random.key(0)
    pairs = np.triu_indices(5, 1)
    found = positional_information(copies, permutations=20, key=key)
    assert found.documents[0, 1] == 150
    np.testing.assert_allclose(found.values, positional_information(once).values, atol=1e-6)
    # The null of copies that are shuffled apart would be some 1.7 nats less.
    assert abs(np.asarray(found.corrected)[pairs]).max() < 0.2
    # Near-copies and pieces are known by their labels, and so are authors.
    near = copies.copy()
    near[::4, 2] = 41
    labels = np.repeat(np.arange(150), 4)
    found = positional_information(near, permutations=20, key=key, groups=labels)
    assert found.documents[0, 1] == 150
    assert abs(np.asarray(found.corrected)[pairs]).max() < 0.2


def test_short_documents_are_equal_without_being_copies():
    ids = np.random.default_rng(0).integers(0, 3, (400, 2))
    assert positional_information(ids).documents[0, 1] == 400


def test_one_pair_in_many_is_not_significant_by_chance():
    pairs, any_pair, any_score = np.triu_indices(4, 1), [], []
    for seed in range(5):
        ids = np.random.default_rng(seed).integers(0, 8, (50, 4))
        found = positional_information(ids, permutations=139, key=jax.random.key(seed))
        score = np.asarray(found.corrected)[pairs] / np.asarray(found.null_deviation)[pairs]
        any_score.append(score.max() > 1.645)
        any_pair.append(np.asarray(found.p_adjusted)[pairs].min() <= 0.05)
        assert np.asarray(found.p_values)[pairs].min() >= 1 / 140
    assert np.sum(any_pair) <= 2  # 0.25 expected; three or more have probability 0.001
    assert np.sum(any_score) > np.sum(any_pair)
    ids[:, 3] = ids[:, 0]
    found = positional_information(ids, permutations=139, key=jax.random.key(0))
    assert found.p_adjusted[0, 3] == found.p_adjusted[3, 0] <= 6 / 140 + 1e-6
    assert np.isnan(positional_information(ids).p_values[0, 1])


def test_positions_that_no_two_documents_reach():
    mask = np.array([[True, True], [True, False], [True, False]])
    ids, drawn = np.zeros((3, 2), int), {"permutations": 2, "key": jax.random.key(0)}
    with_null = jax.jit(lambda ids, mask: positional_information(ids, mask=mask, **drawn))
    found = positional_information(ids, mask=mask)
    for field in ("values", "null", "null_deviation", "p_values"):
        assert np.isnan(getattr(with_null(ids, mask), field)[0, 1])
    assert np.isnan(found.values[0, 1])
    encoding = mutual_information_encoding(found.values, dim=1)
    np.testing.assert_array_equal(encoding.coordinates, 0)


def test_documents_without_positions_are_refused():
    with pytest.raises(ValueError, match="two documents and one position"):
        positional_information(np.zeros((3, 0), int))


def test_the_encoding_maximises_the_information_it_keeps():
    n, dim = 12, 3
    offset = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    information = np.exp(-offset / 3.0)
    P = mutual_information_encoding(information, dim=dim).coordinates
    np.testing.assert_allclose(np.sum(P, axis=0), 0, atol=1e-5)
    np.fill_diagonal(information, 0)
    H = np.eye(n) - 1 / n
    J = H @ information @ H
    best = np.sum(J * np.asarray(P @ P.T))
    for _ in range(50):
        rotated = np.linalg.qr(np.c_[np.ones(n), RNG.standard_normal((n, dim))])[0][:, 1:]
        other = rotated * np.linalg.norm(P, axis=0)
        assert np.sum(J * (other @ other.T)) < best


def test_the_encoding_of_some_positions_is_that_without_the_others():
    present = np.arange(9) % 3 != 1
    offset = np.abs(np.subtract.outer(np.arange(9), np.arange(9)))
    information = np.exp(-offset / 3.0) - 0.5  # less a null, the mean may be negative
    P = mutual_information_encoding(information, dim=3, present=present).coordinates[present]
    alone = mutual_information_encoding(information[np.ix_(present, present)], dim=3).coordinates
    np.testing.assert_allclose(P @ P.T, alone @ alone.T, atol=1e-6)


@pytest.mark.parametrize(("n", "kept"), [(14, 100), (20, 99)])
def test_copies_are_those_that_few_pairs_of_random_documents_would_be(n, kept):
    """About 5000 pairs agree by chance with probability 2^−n: 0.3 pairs or 0.005."""
    ids = np.random.default_rng(0).integers(0, 2, (100, n))
    ids[1] = ids[0]
    assert len(longest_documents(ids, np.ones_like(ids, bool), None)) == kept


def test_the_encoding_of_stationary_text_is_near_sines():
    n = 64
    offset = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    P = np.asarray(mutual_information_encoding(np.exp(-offset / 16.0), dim=2).coordinates)
    wave = np.cos(np.pi * (np.arange(n) + 0.5) / n)
    assert abs(np.corrcoef(P[:, 0], wave)[0, 1]) > 0.98


def test_gaussian_information_is_unbiased():
    mix = np.linalg.cholesky(np.array([[1, 0.3, 0.5], [0.3, 1, 0.2], [0.5, 0.2, 1]]))
    Z = RNG.standard_normal((2000, 24, 3)) @ mix.T
    S = mix @ mix.T
    true = 0.5 * np.log(np.linalg.det(S[:2, :2]) / np.linalg.det(S))
    estimate = jax.jit(jax.vmap(lambda z: gaussian_information(z[:, :2], z[:, 2:])))
    found = np.asarray(estimate(Z))
    assert abs(found.mean() - true) < 4 * found.std() / 2000**0.5
    plain = np.mean([gaussian_information(z[:, :2], z[:, 2:], corrected=False) for z in Z[:200]])
    assert plain > true + 0.03


def test_gaussian_information_and_linear_maps():
    X, Y = RNG.standard_normal((2, 50, 3))
    X = X + Y
    mixed = X @ RNG.standard_normal((3, 3)) + 5.0
    np.testing.assert_allclose(
        gaussian_information(mixed, Y), gaussian_information(X, Y), rtol=1e-4
    )
    assert np.isfinite(jax.grad(lambda X: gaussian_information(X, Y))(X)).all()
    with_constants = np.c_[X[:, :2], np.full(50, 0.1), np.full(50, 0.3)]
    np.testing.assert_allclose(
        gaussian_information(with_constants, Y), gaussian_information(X[:, :2], Y), rtol=1e-9
    )
    np.testing.assert_allclose(
        gaussian_information(Y, with_constants), gaussian_information(Y, X[:, :2]), rtol=1e-9
    )
    assert gaussian_information(np.zeros((50, 1)), Y) == 0
    with pytest.raises(ValueError, match="in 1 dimension or more"):
        gaussian_information(X[:, :0], Y)


def test_of_each_group_the_longest_document_stays_and_the_first_of_equals():
    ids, lengths = np.zeros((5, 3), int), np.array([1, 3, 2, 2, 3])
    mask = np.arange(3) < lengths[:, None]
    assert longest_documents(ids, mask, np.array([7, 7, 4, 4, 7])).tolist() == [1, 2]
