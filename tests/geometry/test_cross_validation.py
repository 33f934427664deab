"""Encodings fitted to half of the documents and held against the other half."""

import inspect

import jax
import ml_dtypes
import numpy as np
import pytest
import scipy.stats

import jaxpe
from jaxpe.geometry import (
    count_tokens,
    cross_validated_choice,
    cross_validated_mds,
    disjoint_geometries,
    half_sample_interval,
    held_out_stress,
    scaled_stress,
    split_half_geometry,
)
from jaxpe.geometry.noise.cross_validation import fold_orders
from tests.unchecked import unchecked

N, VOCAB, FOLDS = 6, 40, 8


def documents(seed, number=4000, *, signal=True):
    """Tokens around a mean that moves along a line with the position, or does not."""
    rng = np.random.default_rng(seed)
    share = np.linspace(0.3, 0.7, N) if signal else np.full(N, 0.5)
    return rng.binomial(VOCAB - 1, share, (number, N))


def counts_of(ids, **options):
    return count_tokens(ids, vocab_size=VOCAB, folds=FOLDS, **options)


@pytest.fixture(scope="module")
def halves():
    return disjoint_geometries(counts_of(documents(0)), key=jax.random.key(0), splits=6)


def test_halves_share_no_document():
    """With one halving of halves of four folds each part is a single fold, whose products are
    those of that fold's documents alone."""
    counts = count_tokens(documents(1, 400), vocab_size=VOCAB, folds=4)
    found = disjoint_geometries(counts, key=jax.random.key(1), splits=5, halvings=1)
    roots = [np.sqrt(np.asarray(t) / np.asarray(t).sum(1, keepdims=True)) for t in counts.tokens]

    def squared(a, b):
        products = 0.5 * (roots[a] @ roots[b].T + roots[b] @ roots[a].T)
        own = np.diagonal(products)
        return own[:, None] + own[None, :] - 2.0 * products

    pairs = [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    for split in np.asarray(found.squared_distances):
        errors = [
            min(
                max(np.abs(split[0] - squared(*a)).max(), np.abs(split[1] - squared(*b)).max())
                for a, b in (pair, pair[::-1])
            )
            for pair in pairs
        ]
        assert min(errors) < 1e-5


@pytest.mark.parametrize(("folds", "splits"), [(8, 7), (16, 16)])
def test_no_two_splits_have_the_same_halves(folds, splits):
    """Fewer splits than folds are orthogonal; as many are drawn at random."""
    orders = np.asarray(fold_orders(jax.random.key(0), folds=folds, splits=splits))
    signs = np.where(np.argsort(orders, axis=1) < folds // 2, 1, -1)
    assert (signs.sum(axis=1) == 0).all()
    products = np.abs(signs @ signs.T)[~np.eye(splits, dtype=bool)]
    assert products.max() == 0 if splits < folds else products.max() < folds


def test_an_odd_fold_is_left_out():
    ids = documents(3, 300)
    counts = count_tokens(ids, vocab_size=VOCAB, folds=5)
    found = disjoint_geometries(counts, key=jax.random.key(0), splits=3)
    assert np.isfinite(found.gram).all()
    assert found.present.all()


def test_a_position_must_be_in_all_quarters():
    ids = documents(4, 300)
    mask = np.ones(ids.shape, bool)
    mask[1:, -1] = False  # a single document reaches the last position
    found = disjoint_geometries(counts_of(ids, mask=mask), key=jax.random.key(0), splits=3)
    assert not found.present[..., -1].any()
    assert found.present[..., :-1].all()
    assert np.isfinite(cross_validated_mds(found, dim=2).mean).all()


def test_an_encoding_of_the_signal_is_nearly_perfect_and_one_of_the_noise_is_not(halves):
    assert cross_validated_mds(halves, dim=N).mean[1] < 0.01
    options = {"key": jax.random.key(0), "splits": 6}
    share = np.linspace(0.45, 0.55, 20)
    weak = np.random.default_rng(5).binomial(VOCAB - 1, share, (400, 20))
    by_width = cross_validated_mds(disjoint_geometries(counts_of(weak), **options), dim=20).mean
    assert by_width[-1] > 1.1 * by_width[1]
    none = disjoint_geometries(counts_of(documents(5, signal=False)), **options)
    assert (cross_validated_mds(none, dim=N).mean > 0.3).all()


def test_stress_is_that_of_the_other_half(halves):
    fitted = cross_validated_mds(halves, dim=3)
    split, side, width = 4, 1, 2
    other = jax.tree.map(lambda x: x[split, 1 - side], halves)
    P = jaxpe.geometry.classical_mds_from_gram(other.gram, dim=width).coordinates
    own = jax.tree.map(lambda x: x[split, side], halves)
    expected = scaled_stress(P, own.distances).stress
    np.testing.assert_allclose(fitted.samples[split, side, width - 1], expected, rtol=1e-4)
    line = np.arange(float(N))[:, None]
    tested = held_out_stress(np.stack([line, line**2]), halves)
    expected = scaled_stress(line**2, own.distances).stress
    np.testing.assert_allclose(tested.samples[split, side, 1], expected, rtol=1e-5)


def test_intervals_hold_the_expected_stress():
    line = np.arange(float(N))[:, None]
    found = []
    for seed in range(40):
        halves = disjoint_geometries(counts_of(documents(seed, 800)), key=jax.random.key(seed))
        found.append(held_out_stress(line, halves))
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
    errors = half_sample_interval(samples).standard_error
    np.testing.assert_allclose(np.mean(np.square(errors)), 1 / 16, rtol=0.05)


@pytest.mark.parametrize(("splits", "freedom"), [(1, 1), (3, 3), (40, 15)])
def test_intervals_have_a_degree_of_freedom_for_each_split_up_to_15(splits, freedom):
    found = half_sample_interval(np.random.default_rng(0).normal(size=(splits, 2)))
    half = scipy.stats.t.ppf(0.975, freedom) * found.standard_error
    np.testing.assert_allclose(found.high - found.mean, half, rtol=1e-5)


def test_confidence_and_shapes_are_checked(halves):
    with pytest.raises(ValueError, match="confidence"):
        held_out_stress(np.ones((N, 1)), halves, confidence=1.0)
    with pytest.raises(ValueError, match=r"\[splits, 2, ...\]"):
        inspect.unwrap(half_sample_interval)(np.ones((3, 4)))
    for samples in (np.ones((3, 2)), np.ones((3, 2, 0))):
        with unchecked(), pytest.raises(ValueError, match=r"samples ha(s|ve) shape"):
            cross_validated_choice(samples)


@pytest.mark.parametrize("dtype", [bool, np.int32, ml_dtypes.bfloat16])
def test_samples_of_any_numbers_have_intervals_in_floats(dtype):
    samples = np.array([[0, 1], [1, 1]], dtype)
    with unchecked():
        found = half_sample_interval(samples), cross_validated_choice(samples[..., None])
    assert {x.dtype.itemsize for x in jax.tree.leaves(found)} <= {4, 8}
    np.testing.assert_allclose(found[0].mean, 0.75)


def test_split_halves_are_what_they_were():
    """The products of `split_half_geometry` from the definition."""
    counts = counts_of(documents(6, 300))
    found = split_half_geometry(counts, key=jax.random.key(3), splits=1)
    tokens = np.asarray(counts.tokens)
    errors = []
    for chosen in range(2**FOLDS):
        part = np.array([chosen >> fold & 1 for fold in range(FOLDS)], bool)
        if part.sum() != FOLDS // 2:
            continue
        A, B = (
            np.sqrt(t / t.sum(1, keepdims=True))
            for t in (tokens[part].sum(0), tokens[~part].sum(0))
        )
        products = 0.5 * (A @ B.T + B @ A.T)
        own = np.diagonal(products)
        errors.append(np.abs(own[:, None] + own - 2 * products - found.squared_distances).max())
    assert min(errors) < 1e-5
