"""Position, composition and noise: laws of the parts, and short forms of their known truth."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxpe.geometry import (
    count_tokens,
    nearness,
    position_geometry,
    position_geometry_from_counts,
    position_intervals,
    position_rank,
    rotate_within_documents,
    variance_shares,
)
from jaxpe.geometry.counts.position_counts import regroup_folds
from jaxpe.geometry.counts.token_lists import token_lists
from jaxpe.geometry.distances.nearness import PositionStatistics, position_statistics
from jaxpe.geometry.noise.cross_validation import PositionHalves, disjoint_position_geometries
from jaxpe.geometry.noise.position import PositionGeometry, null_keys
from jaxpe.geometry.noise.split_half import SplitHalfGeometry
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


def documents(seed, *, effect=0.0):
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(law(effect), axis=1)
    u = rng.random((DOCUMENTS, N))
    ids = np.stack([np.searchsorted(cumulative[i, :-1], u[:, i]) for i in range(N)], axis=1)
    lengths = rng.integers(1, N + 1, DOCUMENTS)
    return ids.astype(np.int32), np.arange(N)[None, :] < lengths[:, None]


def of_documents(ids, mask, key=KEY):
    sizes = {"vocab_size": VOCAB, "folds": FOLDS, "nulls": NULLS, "splits": 4}
    return position_geometry(ids, mask=mask, key=key, groups=GROUPS, **sizes)


def halves_of(ids, mask, key=KEY):
    """Disjoint halves, with three of the rotations of `of_documents`."""
    tokens = token_lists(ids, mask=mask, groups=GROUPS, vocab_size=VOCAB, folds=FOLDS)
    nulls = [tokens.rotated(key) for key in null_keys(key, nulls=NULLS)[1][:3]]
    return disjoint_position_geometries(tokens, nulls, key=key, splits=7, halvings=2)


@functools.cache
def tables():
    """Counts of documents and of their rotations, as `position_geometry` draws these."""
    ids, mask = documents(0, effect=0.4)
    rotating = null_keys(KEY, nulls=NULLS)[1]
    rotated = [rotate_within_documents(key, ids, mask, groups=GROUPS) for key in rotating]
    sizes: dict[str, Any] = {"vocab_size": VOCAB, "folds": FOLDS, "groups": GROUPS}
    counts, *nulls = [count_tokens(each, mask=mask, **sizes) for each in (ids, *rotated)]
    return counts, nulls


@functools.cache
def analysed():
    """The geometry of a corpus, of its halves, and intervals."""
    corpus = documents(0, effect=0.4)
    found = of_documents(*corpus), halves_of(*corpus)
    return *found, rank_and_intervals(*found)[1]


@jax.jit
def rank_and_intervals(whole, halves):
    return position_rank(whole), position_intervals(whole, halves)


def close(actual, expected):
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-9, atol=1e-9)


def test_documents_and_their_counts_have_one_geometry():
    counts, nulls = tables()
    geometry, halves, _ = analysed()
    drawn = {"key": null_keys(KEY, nulls=NULLS)[0], "splits": 4}
    close(geometry, position_geometry_from_counts(counts, nulls, **drawn))
    drawn = {"key": KEY, "splits": 7, "halvings": 2}
    close(halves, disjoint_position_geometries(counts, nulls[:3], **drawn))
    traces = np.trace(halves.position.gram, axis1=-2, axis2=-1)
    rest = halves.documents.trace - halves.null.trace.mean(axis=0)
    np.testing.assert_allclose(traces, rest, atol=1e-12)


def test_position_and_composition_are_the_split_half_geometry():
    found, _, intervals = analysed()
    np.testing.assert_allclose(found.trace + found.composition, found.split_half.trace)
    squared = found.squared_distances + found.null.mean(axis=0)
    np.testing.assert_allclose(squared, found.split_half.squared_distances, atol=1e-12)
    H = np.eye(N) - 1 / N
    np.testing.assert_allclose(found.gram, -0.5 * H @ found.squared_distances @ H, atol=1e-12)
    np.testing.assert_allclose(found.eigenvalues.sum(), found.trace, atol=1e-12)
    parts = intervals.position.value + intervals.composition.value
    np.testing.assert_allclose(parts, intervals.split_half.value)
    traces = np.trace(found.null @ H, axis1=1, axis2=2)  # every rotation is another one
    assert len(np.unique(traces.round(12))) == NULLS


def test_documents_of_one_token_everywhere_have_no_position():
    """Shuffling changes nothing, and nothing is left."""
    ids = np.repeat(np.random.default_rng(0).integers(0, VOCAB, (DOCUMENTS, 1)), N, axis=1)
    found = of_documents(ids.astype(np.int32), documents(0)[1])
    np.testing.assert_allclose(found.gram, 0.0, atol=1e-12)
    assert position_rank(found).rank == 0


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
    pairs = np.outer(present, present) & ~np.eye(7, dtype=bool)
    found = position_statistics(jnp.asarray(squared), jnp.asarray(present))
    np.testing.assert_allclose(found.trace, squared[pairs].sum() / (2 * present.sum()))
    offset = np.abs(np.arange(7)[:, None] - np.arange(7))
    expected = [squared[pairs & (offset == k)].mean() for k in range(1, 7)]
    np.testing.assert_allclose(found.by_offset, expected)


def test_nearness_of_a_line_of_equal_positions_and_of_two():
    i = np.arange(128.0)
    line, log = (np.abs(x[:, None] - x[None, :]) for x in (i, np.log1p(i)))
    found = [nearness(x).round(2) for x in (line, log**2, line**2)]
    np.testing.assert_allclose(found, [0.37, 0.49, 0.55])
    np.testing.assert_allclose(nearness(1.0 - np.eye(6)), 0.0, atol=1e-15)
    assert np.isnan(nearness(np.zeros((6, 6))))
    assert np.isnan(nearness(np.ones((2, 2))))


def test_few_or_other_rotations_are_refused():
    counts, nulls = tables()
    other = [regroup_folds(each, folds=4) for each in nulls]
    with pytest.raises(ValueError, match="folds"):
        position_geometry_from_counts(counts, other, key=KEY)
    empty = [count_tokens(np.zeros((9, 0), int), vocab_size=VOCAB, folds=FOLDS) for _ in range(3)]
    for function in (position_geometry_from_counts, disjoint_position_geometries):
        with pytest.raises(ValueError, match="at least 2"):
            function(counts, nulls[:1], key=KEY)
        with pytest.raises(ValueError, match="one position"):
            function(empty[0], empty[1:], key=KEY)


def test_intervals_and_shares_are_floats_of_at_least_32_bits():
    dtype = ml_dtypes.bfloat16
    given = jax.tree.map(
        lambda x: np.asarray(x, bool if x.dtype == bool else dtype), analysed()[:2]
    )
    with unchecked():
        found = position_intervals(*given), variance_shares(*given, np.ones((), dtype))
        rank = position_rank(given[0])
    assert {x.dtype.itemsize for x in jax.tree.leaves(found)} <= {4, 8}
    assert rank.eigenvalues.dtype.itemsize >= 4


def test_geometries_that_do_not_fit_are_refused():
    geometry, halves, _ = analysed()
    one = geometry._replace(null=geometry.null[:1])
    few = halves._replace(null=jax.tree.map(lambda x: x[:1], halves.null))
    other = halves._replace(documents=halves.null)
    for call, word in (
        (lambda: position_rank(one), "nulls"),
        (lambda: position_rank(geometry._replace(present=np.ones(N))), "present"),
        (lambda: position_intervals(one, halves), "nulls"),
        (lambda: position_intervals(geometry, few), "nulls"),
        (lambda: variance_shares(geometry, other, 1.0), "documents.trace"),
        (lambda: variance_shares(geometry, halves, np.ones(2)), "observed"),
    ):
        with unchecked(), pytest.raises(ValueError, match=word):
            call()


def of_traces(trace, nulls, halves, rotated):
    """A geometry of two positions with these traces, of `[splits, 2]` halves and their nulls."""
    present, matrix = jnp.ones(2, bool), jnp.asarray(1.0 - np.eye(2))  # its trace is 1/2
    split_half = SplitHalfGeometry(matrix, 2 * trace * matrix, present)
    null = 2 * jnp.einsum("k,ij->kij", jnp.asarray(nulls), matrix)
    geometry = PositionGeometry(*split_half, split_half, null, jnp.ones(2, jnp.int32))
    none = jnp.zeros_like(halves), jnp.zeros_like(rotated)
    documents, null = (
        PositionStatistics(x, zero, zero, zero[..., None])
        for x, zero in zip((halves, rotated), none, strict=True)
    )
    return geometry, PositionHalves(split_half, documents, null)


def of_halves(*differences):
    """Six splits, whose halves differ by this: a variance of its square by 4."""
    return np.stack([np.broadcast_to([0.0, x], (6, 2)) for x in differences])


@pytest.mark.parametrize(
    ("null", "halves", "rotated", "error", "t"),
    [
        # The documents alone: six splits, each of one degree of freedom.
        ([1.0, 1.0, 1.0], 2.0, [0.0, 0.0], 1.0, 2.446912),
        # The nulls alone: variance 1, and a third of it for their mean; two degrees of freedom.
        ([1.0, 2.0, 3.0], 0.0, [0.0, 0.0], (4 / 3) ** 0.5, 4.302653),
        # Halves of nulls differ by −2 and 2: h0 = 2 and 1.5 of it exceed h = 1, of which a tenth
        # is left; at least four degrees of freedom.
        ([1.0, 1.0, 1.0], 2.0, [-2.0, 2.0], 0.1**0.5, 2.776445),
        # Of h = 1, 0.9 is left: six times its square degrees of freedom, 4.86.
        ([1.0, 1.0, 1.0], 2.0, [-((2 / 15) ** 0.5), (2 / 15) ** 0.5], 0.9**0.5, 2.599403),
        # Both: the quantiles in proportion to the variances 1 and 4/3.
        ([1.0, 2.0, 3.0], 2.0, [0.0, 0.0], (7 / 3) ** 0.5, (3 * 2.446912 + 4 * 4.302653) / 7),
    ],
)
def test_intervals_of_position_from_their_variances(null, halves, rotated, error, t):
    given = of_traces(5.0, null, of_halves(halves)[0], of_halves(*rotated))
    found = jax.jit(lambda *x: position_intervals(*x).position)(*given)
    np.testing.assert_allclose(found.value, 5.0 - np.mean(null))
    np.testing.assert_allclose(found.standard_error, error)
    np.testing.assert_allclose((found.high - found.value) / error, t, rtol=1e-6)
    np.testing.assert_allclose((found.value - found.low) / error, t, rtol=1e-6)


def test_shares_of_the_variance_and_their_errors():
    """Of 10 observed, 4 are left in halves and 1 of these in nulls: 6, 1 and 3 tenths.

    Halves have the variance 1: it counts as the square of what is no noise for the noise, and of
    all but its own share for the others. Nulls have the variance 0.
    """
    given = of_traces(4.0, [1.0, 1.0, 1.0], of_halves(2.0)[0], of_halves(0.0, 0.0))
    found = variance_shares(*given, 10.0)
    np.testing.assert_allclose([x.value for x in found], [0.6, 0.1, 0.3])
    errors = [0.6 / 10, 0.0, 0.7 / 10]
    np.testing.assert_allclose([x.standard_error for x in found], errors, atol=1e-12)
    half = [x.high - x.value for x in found]
    np.testing.assert_allclose(half, 2.446912 * np.array(errors), rtol=1e-6, atol=1e-12)


def test_standard_errors_are_those_of_the_estimates():
    """Effects vary by 4 with the documents; rotations by 1, and by 3 in halves of documents."""
    nulls, more, splits, draws = 5, 2, 15, 10_000
    rng = np.random.default_rng(0)

    def noise(variance, *shape):
        return np.sqrt(variance) * rng.standard_normal((draws, *shape))

    effect, of_effect = noise(4), noise(8, splits, 2)
    trace, null = noise(1), noise(1, nulls)
    halves, rotated = noise(6, splits, 2), noise(6, more, splits, 2)

    @jax.jit
    @jax.vmap
    def intervals(*given):
        found = position_intervals(*of_traces(*given))
        return found.position, found.composition, found.split_half

    position, _, both = intervals(trace + effect, null, halves + of_effect, rotated)
    # What all rotated corpora share is composition.
    shared = null + effect[:, None], halves, rotated + of_effect[:, None]
    _, composition, _ = intervals(trace, *shared)
    for found in (position, composition, both):
        np.testing.assert_allclose(np.mean(found.standard_error**2), np.var(found.value), rtol=0.05)


SEEDS, EFFECT = 24, 0.8


@functools.cache
def of_corpora(effect):
    """Rank and intervals of corpora, `[seeds]`."""
    found = []
    for seed in range(SEEDS):
        drawn, key = documents([seed, 7], effect=effect), jax.random.key(seed)
        found.append(rank_and_intervals(of_documents(*drawn, key=key), halves_of(*drawn, key=key)))
    return jax.tree.map(lambda *each: np.stack(each), *found)


def test_without_an_effect_the_rank_is_0_and_intervals_hold_0():
    """Of 24, more than 5 wrong at 5 % have a chance of 0.1 %."""
    rank, intervals = of_corpora(0.0)
    assert np.sum(rank.rank > 0) <= 5
    for found in (intervals.position, intervals.nearness):
        assert np.sum((found.low > 0) | (found.high < 0)) <= 5
    assert np.mean((intervals.by_offset.low > 0) | (intervals.by_offset.high < 0)) <= 0.15
    assert intervals.composition.value.mean() > 0  # thin counts


def test_with_an_effect_intervals_hold_the_truth():
    rank, intervals = of_corpora(EFFECT)
    assert np.all(rank.rank >= 1)
    roots = np.sqrt(law(EFFECT))
    found, truth = intervals.position, np.sum((roots - roots.mean(axis=0)) ** 2)
    assert np.sum((found.low <= truth) & (truth <= found.high)) >= SEEDS - 5
    i = np.arange(N)
    alternating = (np.abs(i[:, None] - i[None, :]) % 2).astype(float)
    near, truth = intervals.nearness, float(nearness(alternating))
    assert np.sum((near.low <= truth) & (truth <= near.high)) >= SEEDS - 5
    assert np.all((near.low >= -1) & (near.high <= 1))
