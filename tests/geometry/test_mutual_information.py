"""Entropies and mutual information: formulas, bias, the null, the encoding, Gaussian vectors."""

import jax
import numpy as np
import pytest

from jaxpe.geometry import positional_information
from jaxpe.geometry.distances.mutual_information import (
    entropy,
    gaussian_information,
    mutual_information_encoding,
)
from jaxpe.geometry.noise.two_samples import holm_adjusted

RNG = np.random.default_rng(0)
KEY = jax.random.key(0)
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


def above(x):
    """The entries of pairs of positions."""
    return np.asarray(x)[np.triu_indices(len(x), 1)]


def test_grassbergers_numbers():
    # G(1) = −γ − log 2, G(2) = G(1) + 2, G(3) = G(2), G(4) = G(2) + 2/3
    n, one = np.arange(1, 5), -np.euler_gamma - np.log(2)
    found = np.log(n) - entropy(n[:, None], estimator="grassberger")
    np.testing.assert_allclose(found, [one, one + 2, one + 2, one + 2 + 2 / 3], atol=1e-6)
    assert np.isnan(entropy(np.array([0.5, 0.5])))
    np.testing.assert_allclose(entropy(np.ones(2) / 2, estimator="plug-in"), np.log(2))


def test_grassberger_has_less_bias_than_the_others():
    counts = RNG.multinomial(200, np.full(100, 0.01), size=400)
    error = {e: float(np.mean(entropy(counts, estimator=e))) - np.log(100) for e in ESTIMATORS}
    assert error["plug-in"] < -0.2
    assert abs(error["grassberger"]) < abs(error["miller-madow"]) < abs(error["plug-in"])
    for estimator in ESTIMATORS:
        found = entropy(np.array([[0, 0, 0], [5, 0, 0]]), estimator=estimator)
        assert (found[: 2 - (estimator == "grassberger")] == 0).all()


def test_positions_against_brute_force():
    ids = RNG.integers(0, 5, (60, 4))
    ids[:, 2] = (ids[:, 0] + (RNG.random(60) < 0.2)) % 5
    mask = RNG.random((60, 4)) < 0.8
    mask[1:, 3] = False  # reached by one document
    found = positional_information(ids, mask=mask, estimator="plug-in")
    for i in range(4):
        for j in range(4):
            both = mask[:, i] & mask[:, j]
            assert found.documents[i, j] == both.sum()
            expected = brute_force(ids[both, i], ids[both, j]) if 3 not in (i, j) else np.nan
            expected = 0 if i == j else expected
            np.testing.assert_allclose(found.values[i, j], expected, atol=1e-6)
    assert not above(found.null)[[0, 1, 3]].any()
    encoding = mutual_information_encoding(found.values, dim=1)
    assert np.isfinite(encoding.coordinates).all()
    assert encoding.coordinates[3] == 0


def test_the_null_is_the_bias_and_drawn_anew_for_every_pair():
    ids = RNG.integers(0, 40, (300, 4))  # independent: 0.86 nats by the plug-in estimate
    ids[:, 3] = ids[:, 2]
    drawn = {"estimator": "plug-in", "permutations": 20, "key": KEY}
    found = positional_information(ids, **drawn)
    pairs = [0, 1, 3]  # of the first three positions
    assert (above(found.values)[pairs] > 0.5).all()
    score = (above(found.corrected) / above(found.null_deviation))[pairs]
    assert (abs(score) < 4).all()
    assert above(found.values)[5] > 3  # of log 40 = 3.7
    np.testing.assert_allclose(found.values[0, 2], found.values[0, 3], rtol=1e-6)
    assert abs(found.null[0, 2] - found.null[0, 3]) > 1e-4
    np.testing.assert_array_equal(found.null, positional_information(ids, **drawn).null)


def test_the_null_keeps_to_documents_that_reach_both():
    """Their tokens all differ, in every order; the tokens of the others are all 7."""
    ids = np.where(np.arange(8)[:, None] < 4, 7, np.arange(8)[:, None]) * np.ones((1, 3), np.int32)
    mask = np.ones((8, 3), bool)
    mask[:4, 1] = False
    found = positional_information(
        ids, mask=mask, estimator="plug-in", permutations=30, key=KEY, groups=np.arange(8)
    )
    np.testing.assert_allclose([found.values[0, 1], found.null[0, 1]], np.log(4), rtol=1e-6)
    np.testing.assert_allclose(found.null_deviation[0, 1], 0.0, atol=1e-6)


def test_deviations_of_nulls_are_of_samples():
    """Three documents of two words: a rotation has one of two values, and two may have both."""
    ids = np.repeat([[0], [0], [1]], 6, axis=1)
    drawn = {"key": KEY, "permutations": 2, "groups": np.arange(3), "estimator": "plug-in"}
    found = positional_information(ids, **drawn)
    null, deviation = above(found.null), above(found.null_deviation)
    both = (null > null.min() + 1e-9) & (null < null.max() - 1e-9)
    assert both.any()
    np.testing.assert_allclose(deviation[both], np.ptp(null) / np.sqrt(2), rtol=1e-9)


def test_copies_are_no_information():
    rng = np.random.default_rng(1)
    once = rng.integers(0, 40, (150, 5))
    copies = np.repeat(once, 4, axis=0)
    # Near-copies and pieces are known by their labels, and so are authors.
    near = copies.copy()
    near[::4, 2] = 41
    for ids, labels in ((copies, None), (near, np.repeat(np.arange(150), 4))):
        found = positional_information(ids, permutations=20, key=KEY, groups=labels)
        assert found.documents[0, 1] == 150
        # The null of copies that are shuffled apart would be some 1.7 nats less.
        assert abs(above(found.corrected)).max() < 0.2
    short = np.random.default_rng(0).integers(0, 3, (400, 2))  # equal without being copies
    assert positional_information(short).documents[0, 1] == 400


@pytest.mark.parametrize(("n", "kept"), [(14, 100), (20, 99)])
def test_copies_are_those_that_few_pairs_of_random_documents_would_be(n, kept):
    """About 5000 pairs agree by chance with probability 2^−n: 0.3 pairs or 0.005."""
    ids = np.random.default_rng(0).integers(0, 2, (100, n))
    ids[1] = ids[0]
    assert positional_information(ids).documents[0, 0] == kept


def test_of_each_group_the_longest_document_stays_and_the_first_of_equals():
    ids, lengths = np.array([[5], [1], [2], [3], [4]]) * [[1, 1, 1]], np.array([1, 3, 2, 2, 3])
    mask, groups = np.arange(3) < lengths[:, None], np.array([7, 7, 4, 4, 7])
    found = positional_information(ids, mask=mask, groups=groups)
    alone = positional_information(ids[1:3], mask=mask[1:3], groups=np.arange(2))
    np.testing.assert_array_equal(found.documents, [[2, 2, 1], [2, 2, 1], [1, 1, 1]])
    np.testing.assert_array_equal(found.values, alone.values)


def test_one_pair_in_many_is_not_significant_by_chance():
    any_pair, any_score = [], []
    for seed in range(5):
        ids = np.random.default_rng(seed).integers(0, 8, (50, 4))
        drawn = {"permutations": 139, "key": jax.random.key(seed)}
        found = positional_information(ids, **drawn)
        score = above(found.corrected) / above(found.null_deviation)
        any_score.append(score.max() > 1.645)
        any_pair.append(above(found.p_adjusted).min() <= 0.05)
        assert above(found.p_values).min() >= 1 / 140
    assert np.sum(any_pair) <= 2  # 0.25 expected; three or more have probability 0.001
    assert np.sum(any_score) > np.sum(any_pair)
    ids[:, 3] = ids[:, 0]
    found = positional_information(ids, **drawn)
    assert found.p_adjusted[0, 3] == found.p_adjusted[3, 0] <= 6 / 140 + 1e-6
    assert np.isnan(positional_information(ids).p_values[0, 1])


def test_holm_against_the_definition():
    p = np.array([0.01, np.nan, 0.04, 0.03, 0.005])
    np.testing.assert_allclose(holm_adjusted(p), [0.03, np.nan, 0.06, 0.06, 0.02], rtol=1e-6)
    np.testing.assert_allclose(holm_adjusted(np.array([0.9, 0.8])), [1.0, 1.0])


def test_documents_and_samples_that_are_too_few_are_refused():
    for ids in (np.zeros((3, 0), int), np.zeros((1, 2), int)):
        with pytest.raises(ValueError, match="two documents"):
            positional_information(ids)
    X, Y = RNG.standard_normal((2, 7, 3))
    assert np.isfinite(gaussian_information(X, Y[:, :2]))  # 3 + 2 + 2 samples
    for wrong in (X, X[:, :0]):
        with pytest.raises(ValueError, match="pass"):
            gaussian_information(wrong, Y)


def test_the_encoding_maximises_the_information_it_keeps():
    n, dim = 12, 3
    offset = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    information = np.exp(-offset / 3.0)
    P = np.asarray(mutual_information_encoding(information, dim=dim).coordinates)
    np.testing.assert_allclose(np.sum(P, axis=0), 0, atol=1e-5)
    np.fill_diagonal(information, 0)
    H = np.eye(n) - 1 / n
    J = H @ information @ H
    best = np.sum(J * (P @ P.T))
    for _ in range(50):
        rotated = np.linalg.qr(np.c_[np.ones(n), RNG.standard_normal((n, dim))])[0][:, 1:]
        other = rotated * np.linalg.norm(P, axis=0)
        assert np.sum(J * (other @ other.T)) < best
    present = np.arange(n) % 3 != 1
    information -= 0.5  # less a null, the mean may be negative
    P = mutual_information_encoding(information, dim=dim, present=present).coordinates[present]
    alone = mutual_information_encoding(information[np.ix_(present, present)], dim=dim).coordinates
    np.testing.assert_allclose(P @ P.T, alone @ alone.T, atol=1e-6)


def test_gaussian_information_is_unbiased():
    mix = np.linalg.cholesky(np.array([[1, 0.3, 0.5], [0.3, 1, 0.2], [0.5, 0.2, 1]]))
    Z = RNG.standard_normal((2000, 24, 3)) @ mix.T
    S = mix @ mix.T
    true = 0.5 * np.log(np.linalg.det(S[:2, :2]) / np.linalg.det(S))
    found, plain = (
        np.asarray(
            jax.jit(jax.vmap(lambda z, c=c: gaussian_information(z[:, :2], z[:, 2:], corrected=c)))(
                Z
            )
        )
        for c in (True, False)
    )
    assert abs(found.mean() - true) < 4 * found.std() / 2000**0.5
    R = np.corrcoef(Z[0].T)
    expected = 0.5 * np.log(np.linalg.det(R[:2, :2]) / np.linalg.det(R))
    np.testing.assert_allclose(plain[0], expected)
    assert plain.mean() > true + 0.03


def test_gaussian_information_and_linear_maps():
    X, Y = RNG.standard_normal((2, 50, 3))
    X = X + Y
    information = jax.jit(gaussian_information)
    mixed = X @ RNG.standard_normal((3, 3)) + 5.0
    np.testing.assert_allclose(information(mixed, Y), information(X, Y), rtol=1e-4)
    with_constants = np.c_[X[:, :2], np.full(50, 0.1), np.full(50, 0.3)]
    for pair in ((with_constants, Y), (Y, with_constants)):
        np.testing.assert_allclose(information(*pair), information(X[:, :2], Y), rtol=1e-9)
    assert information(np.zeros((50, 1)), Y) == 0
