"""Position, composition and noise: laws of the parts, and short forms of their known truth."""

import functools
import itertools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxpe.geometry import (
    SplitHalfGeometry,
    cohort_of,
    count_tokens,
    disjoint_position_geometries,
    nearness,
    position_geometry,
    position_geometry_from_counts,
    position_intervals,
    position_rank,
    regroup_folds,
    rotate_within_documents,
    stress,
    token_lists,
    variance_shares,
)
from jaxpe.geometry.distances.nearness import position_statistics
from jaxpe.geometry.noise.position import null_keys, position_part
from jaxpe.geometry.noise.position_intervals import _calibrated_estimate
from tests.unchecked import unchecked

KEY = jax.random.key(0)
N, VOCAB, DOCUMENTS, FOLDS, NULLS = 5, 12, 240, 8, 19
ZIPF = 1.0 / np.arange(1, VOCAB + 1)
GROUPS = np.arange(DOCUMENTS, dtype=np.uint32)


def law(effect):
    """Laws at each position: odd and even places differ by exp(± effect · signs)."""
    signs = np.where(np.arange(VOCAB) % 3, 1.0, -1.0)
    weights = ZIPF * np.exp(effect * np.outer(np.arange(N) % 2, signs))
    return weights / weights.sum(axis=1, keepdims=True)


def documents(seed, *, effect=0.0, unequal=True):
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(law(effect), axis=1)
    u = rng.random((DOCUMENTS, N))
    ids = np.stack([np.searchsorted(cumulative[i, :-1], u[:, i]) for i in range(N)], axis=1)
    lengths = rng.integers(1 if unequal else N, N + 1, DOCUMENTS)
    return ids.astype(np.int32), np.arange(N)[None, :] < lengths[:, None]


def in_folds(ids, mask):
    """Counts of documents and of their rotations, as `position_geometry` draws these."""
    rotating = null_keys(KEY, nulls=NULLS)[1]
    rotated = [rotate_within_documents(key, ids, mask, groups=GROUPS) for key in rotating]
    sizes: dict[str, Any] = {"vocab_size": VOCAB, "folds": FOLDS, "groups": GROUPS}
    counts, *nulls = [count_tokens(each, mask=mask, **sizes) for each in (ids, *rotated)]
    return counts, nulls


def of_documents(ids, mask, key=KEY, groups=GROUPS):
    sizes = {"vocab_size": VOCAB, "folds": FOLDS, "nulls": NULLS, "splits": 4}
    return position_geometry(ids, mask=mask, key=key, groups=groups, **sizes)


def halves_of(ids, mask, key=KEY):
    """Disjoint halves, with three of the rotations of `of_documents`."""
    tokens = token_lists(ids, mask=mask, groups=GROUPS, vocab_size=VOCAB, folds=FOLDS)
    nulls = [tokens.rotated(key) for key in null_keys(key, nulls=NULLS)[1][:3]]
    return disjoint_position_geometries(tokens, nulls, key=key, splits=7, halvings=2)


@functools.cache
def corpus():
    return documents(0, effect=0.4)


@functools.cache
def tables():
    return in_folds(*corpus())


def close(actual, expected, atol=1e-9):
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-9, atol=atol)


def test_documents_and_their_counts_have_one_geometry_of_position():
    counts, nulls = tables()
    drawn = {"key": null_keys(KEY, nulls=NULLS)[0], "splits": 4}
    of_counts = position_geometry_from_counts(counts, nulls, **drawn)
    close(of_documents(*corpus()), of_counts)


def test_halves_of_documents_are_those_of_their_counts():
    counts, nulls = tables()
    drawn: dict[str, Any] = {"key": KEY, "splits": 7, "halvings": 2}
    close(halves_of(*corpus()), disjoint_position_geometries(counts, nulls[:3], **drawn))


def test_position_and_composition_are_the_split_half_geometry():
    found = of_documents(*corpus())
    np.testing.assert_allclose(found.trace + found.composition, found.split_half.trace)
    squared = found.squared_distances + found.null.mean(axis=0)
    np.testing.assert_allclose(squared, found.split_half.squared_distances, atol=1e-12)
    np.testing.assert_allclose(found.eigenvalues.sum(), found.trace, atol=1e-12)
    intervals = rank_and_intervals(found, halves_of(*corpus()))[1]
    parts = intervals.position.value + intervals.composition.value
    np.testing.assert_allclose(parts, intervals.split_half.value)


def test_documents_of_one_token_everywhere_have_no_position():
    """Shuffling changes nothing, and nothing is left."""
    ids = np.repeat(np.random.default_rng(0).integers(0, VOCAB, (DOCUMENTS, 1)), N, axis=1)
    found = of_documents(ids.astype(np.int32), corpus()[1])
    np.testing.assert_allclose(found.gram, 0.0, atol=1e-12)
    assert position_rank(found).rank == 0


def test_stress_and_the_parts_have_derivatives():
    rng = np.random.default_rng(3)
    found = of_documents(*corpus())
    P, direction = rng.standard_normal((2, N, 2))
    n2 = rng.standard_normal((NULLS, N, N))
    step = 1e-6

    def loss(P):
        return stress(P, found.distances)

    expected = (loss(P + step * direction) - loss(P - step * direction)) / (2 * step)
    np.testing.assert_allclose(np.vdot(jax.grad(loss)(P), direction), expected, rtol=1e-6)
    assert jax.jit(jax.vmap(loss))(np.stack([P, 2 * P])).shape == (2,)

    def of_parts(squared, null):
        split_half = SplitHalfGeometry(squared, squared, found.present)
        position = position_part(split_half, null, per_position=found.per_position)
        return jnp.sum(position.gram**3) + position.trace**2 + nearness(position.squared_distances)

    given = found.split_half.squared_distances, found.null
    along = rng.standard_normal((N, N)), n2
    ahead, behind = (
        of_parts(*(x + sign * step * e for x, e in zip(given, along, strict=True)))
        for sign in (1, -1)
    )
    gradients = jax.grad(of_parts, argnums=(0, 1))(*given)
    tangent = sum(np.vdot(g, e) for g, e in zip(gradients, along, strict=True))
    np.testing.assert_allclose(tangent, (ahead - behind) / (2 * step), rtol=1e-5)


@pytest.mark.parametrize("absent", [None, 2])
def test_nearness_is_that_of_all_triples(absent):
    rng = np.random.default_rng(1)
    half = rng.normal(size=(7, 7))
    squared, present = half + half.T, np.arange(7) != absent
    near, total = [], []
    for i, j, k in itertools.permutations(np.flatnonzero(present), 3):
        if abs(i - j) < abs(i - k):
            near.append(squared[i, k] - squared[i, j])
            total.append(squared[i, k] + squared[i, j])
    np.testing.assert_allclose(nearness(squared, present=present), sum(near) / sum(total))
    left = squared[np.ix_(present, present)]
    statistics = position_statistics(jnp.asarray(squared), jnp.asarray(present))
    trace = left[~np.eye(len(left), dtype=bool)].sum() / (2 * len(left))
    np.testing.assert_allclose(statistics.trace, trace)


def test_nearness_of_a_line_of_equal_positions_and_of_two():
    i = np.arange(128.0)
    line, log = (np.abs(x[:, None] - x[None, :]) for x in (i, np.log1p(i)))
    found = [nearness(x).round(2) for x in (line, log**2, line**2)]
    np.testing.assert_allclose(found, [0.37, 0.49, 0.55])
    np.testing.assert_allclose(nearness(1.0 - np.eye(6)), 0.0, atol=1e-15)
    assert np.isnan(nearness(np.zeros((6, 6))))
    assert np.isnan(nearness(np.ones((2, 2))))


def test_cohorts_are_documents_that_reach_every_position():
    mask = corpus()[1]
    lengths = mask.sum(axis=1)
    np.testing.assert_array_equal(cohort_of(mask), lengths == N)
    wider = np.pad(mask, ((0, 0), (0, 2)))  # positions without any document say nothing
    np.testing.assert_array_equal(cohort_of(wider), lengths == N)


def test_regrouped_folds_hold_the_same_documents():
    counts, _ = tables()
    found = regroup_folds(counts, folds=2)
    table = np.asarray(counts.tokens)
    np.testing.assert_array_equal(found.tokens, np.stack([table[0::2].sum(0), table[1::2].sum(0)]))
    np.testing.assert_array_equal(found.merged().tokens, counts.merged().tokens)
    for folds in (3, 0):
        with pytest.raises(ValueError, match="folds"):
            regroup_folds(counts, folds=folds)


def test_few_or_other_rotations_are_refused():
    counts, nulls = tables()
    with pytest.raises(ValueError, match="at least 2, not"):
        position_geometry_from_counts(counts, nulls[:1], key=KEY)
    with pytest.raises(ValueError, match="folds"):
        position_geometry_from_counts(
            counts, [regroup_folds(each, folds=4) for each in nulls], key=KEY
        )
    with pytest.raises(ValueError, match="at least 2, not"):
        disjoint_position_geometries(counts, nulls[:1], key=KEY)
    empty = [count_tokens(np.zeros((9, 0), int), vocab_size=VOCAB, folds=FOLDS) for _ in range(3)]
    for function in (position_geometry_from_counts, disjoint_position_geometries):
        with pytest.raises(ValueError, match="one position"):
            function(empty[0], empty[1:], key=KEY)


def as_dtype(geometry, dtype):
    """A geometry with other numbers and the same masks."""
    return jax.tree.map(lambda x: np.asarray(x, bool if x.dtype == bool else dtype), geometry)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.int64])
def test_intervals_and_shares_are_floats_of_at_least_32_bits(dtype):
    geometry, halves = of_documents(*corpus()), halves_of(*corpus())
    given = as_dtype(geometry, dtype), as_dtype(halves, dtype)
    with unchecked():
        found = position_intervals(*given), variance_shares(*given, np.ones((), dtype))
        rank = position_rank(given[0])
    assert {x.dtype.itemsize for x in jax.tree.leaves(found)} <= {4, 8}
    assert rank.eigenvalues.dtype.itemsize >= 4


def test_geometries_that_do_not_fit_are_refused():
    geometry, halves = of_documents(*corpus()), halves_of(*corpus())
    split_half = geometry.split_half._replace(squared_distances=np.zeros((N, N + 1)))
    for wrong, message in (
        (geometry._replace(split_half=split_half), r"split_half.squared_distances has shape"),
        (geometry._replace(null=geometry.null[:1]), "two nulls"),
        (geometry._replace(null=geometry.null[0]), r"null has shape .* pass \[nulls"),
        (geometry._replace(present=np.ones(N)), "present is float64"),
    ):
        for function in (lambda x: position_intervals(x, halves), position_rank):
            with unchecked(), pytest.raises(ValueError, match=message):
                function(wrong)
    for part, message in (
        ({"documents": halves.null}, r"halves.documents.trace has shape .* pass \[splits, 2\]"),
        ({"null": jax.tree.map(lambda x: x[:1], halves.null)}, "two nulls"),
        ({"null": halves.null._replace(by_offset=halves.null.trace)}, "null.by_offset"),
    ):
        with unchecked(), pytest.raises(ValueError, match=message):
            variance_shares(geometry, halves._replace(**part), 1.0)
    with unchecked(), pytest.raises(ValueError, match="observed has shape"):
        variance_shares(geometry, halves, np.ones(2))


@pytest.mark.parametrize("part", ["position", "composition", "split_half"])
def test_standard_errors_are_those_of_the_estimates(part):
    """Effects vary by 4 with the documents; rotations by 1, and by 3 in halves of documents."""
    nulls, more, splits, draws = 5, 2, 15, 10_000
    rng = np.random.default_rng(0)

    def noise(variance, *shape):
        return np.sqrt(variance) * rng.standard_normal((*shape, draws))

    effect, of_halves = noise(4), noise(8, splits, 2)
    all_documents, null = noise(1), noise(1, nulls)
    halves, rotated = noise(6, splits, 2), noise(6, more, splits, 2)
    if part == "composition":  # which all rotated corpora share
        null, rotated = null + effect, rotated + of_halves
    else:
        all_documents, halves = all_documents + effect, halves + of_halves
    estimate = jax.jit(partial(_calibrated_estimate, part=part, confidence=0.95))
    found = estimate(all_documents, null, halves, rotated)
    np.testing.assert_allclose(np.mean(found.standard_error**2), np.var(found.value), rtol=0.05)


SEEDS, EFFECT = 40, 0.8


@jax.jit
def rank_and_intervals(whole, halves):
    return position_rank(whole), position_intervals(whole, halves)


@functools.cache
def of_corpora(effect):
    """Rank and intervals of 40 corpora, `[seeds]`."""
    found = []
    for seed in range(SEEDS):
        drawn, key = documents([seed, 7], effect=effect), jax.random.key(seed)
        found.append(rank_and_intervals(of_documents(*drawn, key=key), halves_of(*drawn, key=key)))
    return jax.tree.map(lambda *each: np.stack(each), *found)


def true_trace(effect):
    roots = np.sqrt(law(effect))
    return np.sum((roots - roots.mean(axis=0)) ** 2)


def test_without_an_effect_the_rank_is_0_and_intervals_hold_0():
    """Of 40, more than 6 wrong at 5 % have a chance of 0.3 %."""
    rank, intervals = of_corpora(0.0)
    assert np.sum(rank.rank > 0) <= 6
    for found in (intervals.position, intervals.nearness):
        assert np.sum((found.low > 0) | (found.high < 0)) <= 6
    assert np.mean((intervals.by_offset.low > 0) | (intervals.by_offset.high < 0)) <= 0.12
    assert intervals.composition.value.mean() > 0  # thin counts


def test_with_an_effect_intervals_hold_the_truth():
    rank, intervals = of_corpora(EFFECT)
    assert np.all(rank.rank >= 1)
    found, truth = intervals.position, true_trace(EFFECT)
    assert np.sum((found.low <= truth) & (truth <= found.high)) >= SEEDS - 6
    i = np.arange(N)
    alternating = (np.abs(i[:, None] - i[None, :]) % 2).astype(float)
    near, truth = intervals.nearness, float(nearness(alternating))
    assert np.sum((near.low <= truth) & (truth <= near.high)) >= SEEDS - 6
    assert np.all((near.low >= -1) & (near.high <= 1))
