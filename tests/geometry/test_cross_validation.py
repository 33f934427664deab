"""Encodings fitted to half of the documents and held against the other half."""

import itertools

import jax
import ml_dtypes
import numpy as np
import pytest
import scipy.stats

from jaxpe.geometry import (
    classical_mds_from_gram,
    count_tokens,
    cross_validated_mds,
    held_out_stress,
    scaled_stress,
    split_half_geometry,
)
from jaxpe.geometry.noise.cross_validation import (
    cross_validated_choice,
    disjoint_geometries,
    fold_orders,
    half_sample_interval,
)
from tests.unchecked import unchecked

N, VOCAB, FOLDS = 6, 40, 8
LINE = np.arange(float(N))[:, None]
KEY = jax.random.key(0)


def documents(seed, number=4000, *, signal=True):
    """Tokens around a mean that moves along a line with the position, or does not."""
    rng = np.random.default_rng(seed)
    share = np.linspace(0.3, 0.7, N) if signal else np.full(N, 0.5)
    return rng.binomial(VOCAB - 1, share, (number, N))


def counts_of(ids, folds=FOLDS, **options):
    return count_tokens(ids, vocab_size=VOCAB, folds=folds, **options)


@pytest.fixture(scope="module")
def halves():
    return disjoint_geometries(counts_of(documents(0)), key=KEY, splits=6)


def squared_of(a, b):
    """Squared distances of products of two disjoint tables, from the definition."""
    A, B = (np.sqrt(t / t.sum(1, keepdims=True)) for t in (a, b))
    products = 0.5 * (A @ B.T + B @ A.T)
    own = np.diagonal(products)
    return own[:, None] + own - 2 * products


def test_split_halves_and_disjoint_halves_are_products_of_their_documents():
    """Of halves of four folds each part is a single fold."""
    counts = counts_of(documents(1, 400), folds=4)
    tokens = np.asarray(counts.tokens)
    pairs = [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    expected = {p: squared_of(tokens[p[0]], tokens[p[1]]) for both in pairs for p in both}
    found = disjoint_geometries(counts, key=jax.random.key(1), splits=5, halvings=1)
    for split in np.asarray(found.squared_distances):
        errors = [
            max(np.abs(split[k] - expected[each[k]]).max() for k in range(2))
            for one, other in pairs
            for each in ((one, other), (other, one))
        ]
        assert min(errors) < 1e-5
    found = split_half_geometry(counts, key=KEY, splits=1).squared_distances
    halves = [
        squared_of(tokens[list(half)].sum(0), np.delete(tokens, half, axis=0).sum(0))
        for half in itertools.combinations(range(4), 2)
    ]
    assert min(np.abs(each - found).max() for each in halves) < 1e-5


@pytest.mark.parametrize(("folds", "splits"), [(8, 7), (16, 16)])
def test_no_two_splits_have_the_same_halves(folds, splits):
    """Fewer splits than folds are orthogonal; as many are drawn at random."""
    orders = np.asarray(fold_orders(KEY, folds=folds, splits=splits))
    signs = np.where(np.argsort(orders, axis=1) < folds // 2, 1, -1)
    assert (signs.sum(axis=1) == 0).all()
    products = np.abs(signs @ signs.T)[~np.eye(splits, dtype=bool)]
    assert products.max() == 0 if splits < folds else products.max() < folds


def test_an_odd_fold_is_left_out_and_a_position_must_be_in_all_quarters():
    ids = documents(4, 300)
    mask = np.ones(ids.shape, bool)
    mask[1:, -1] = False  # a single document reaches the last position
    for folds in (5, 8):
        found = disjoint_geometries(counts_of(ids, folds, mask=mask), key=KEY, splits=3)
        assert not found.present[..., -1].any()
        assert found.present[..., :-1].all()
        assert np.isfinite(found.gram).all()
        assert np.isfinite(cross_validated_mds(found, dim=2).mean).all()
    for few, split in ((3, disjoint_geometries), (1, split_half_geometry)):
        with pytest.raises(ValueError, match="folds"):
            split(counts_of(ids, few), key=KEY)


def test_an_encoding_of_the_signal_is_nearly_perfect_and_one_of_the_noise_is_not(halves):
    assert cross_validated_mds(halves, dim=N).mean[1] < 0.01
    none = disjoint_geometries(counts_of(documents(5, signal=False)), key=KEY, splits=6)
    by_width = cross_validated_mds(none, dim=N).mean
    assert (by_width > 0.3).all()
    weak = np.random.default_rng(5).binomial(VOCAB - 1, np.linspace(0.45, 0.55, 20), (400, 20))
    by_width = cross_validated_mds(disjoint_geometries(counts_of(weak), key=KEY, splits=6), dim=20)
    assert by_width.mean[-1] > 1.1 * by_width.mean[1]


def test_stress_is_that_of_the_other_half(halves):
    split, side, width = 4, 1, 2
    other, own = (jax.tree.map(lambda x, k=k: x[split, k], halves) for k in (1 - side, side))
    P = classical_mds_from_gram(other.gram, dim=width).coordinates
    expected = scaled_stress(P, own.distances).stress
    fitted = cross_validated_mds(halves, dim=N)
    np.testing.assert_allclose(fitted.samples[split, side, width - 1], expected, rtol=1e-4)
    tested = held_out_stress(np.stack([LINE, LINE**2]), halves)
    expected = scaled_stress(LINE**2, own.distances).stress
    np.testing.assert_allclose(tested.samples[split, side, 1], expected, rtol=1e-5)


def test_a_choice_is_judged_on_the_other_half():
    samples = np.random.default_rng(0).random((5, 2, 3))
    best = samples.argmin(axis=2)
    expected = [[samples[s, k, best[s, 1 - k]] for k in range(2)] for s in range(5)]
    found = cross_validated_choice(samples)
    np.testing.assert_allclose(found.samples, expected)
    np.testing.assert_allclose(found.mean, np.mean(expected))


def test_intervals_hold_the_expected_stress():
    found = []
    for seed in range(40):
        halves = disjoint_geometries(counts_of(documents(seed, 800)), key=jax.random.key(seed))
        found.append(held_out_stress(LINE, halves))
    means = np.array([interval.mean for interval in found])
    inside = sum(float(i.low) <= means.mean() <= float(i.high) for i in found)
    assert inside >= 35
    errors = np.array([interval.standard_error for interval in found])
    assert 0.8 < np.sqrt(np.mean(errors**2)) / means.std() < 1.3


def test_standard_errors_are_those_of_a_mean_over_documents():
    """Half-samples of a mean: half the difference of the halves, exactly."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16, 4000))
    order = np.argsort(rng.random((6, 16)))
    samples = np.stack([x[order[:, :8]].mean(1), x[order[:, 8:]].mean(1)], axis=1)
    found = half_sample_interval(samples)
    np.testing.assert_allclose(np.mean(np.square(found.standard_error)), 1 / 16, rtol=0.05)
    # A degree of freedom for each split, up to 15.
    for splits, freedom in ((1, 1), (6, 6), (40, 15)):
        found = half_sample_interval(rng.normal(size=(splits, 2)))
        half = scipy.stats.t.ppf(0.975, freedom) * found.standard_error
        np.testing.assert_allclose([found.high - found.mean, found.mean - found.low], half)


def test_shapes_are_checked_and_any_numbers_have_intervals_in_floats():
    for wrong in (np.ones((3, 4)), np.ones(2)):
        with unchecked(), pytest.raises(ValueError, match="splits"):
            half_sample_interval(wrong)
    for wrong in (np.ones((3, 2)), np.ones((3, 2, 0))):
        with unchecked(), pytest.raises(ValueError, match="samples"):
            cross_validated_choice(wrong)
    for dtype in (bool, np.int32, ml_dtypes.bfloat16):
        samples = np.array([[0, 1], [1, 1]], dtype)
        with unchecked():
            found = half_sample_interval(samples), cross_validated_choice(samples[..., None])
        assert {x.dtype.itemsize for x in jax.tree.leaves(found)} <= {4, 8}
        np.testing.assert_allclose(found[0].mean, 0.75)
