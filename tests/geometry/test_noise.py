"""Signal and noise on corpora whose true geometry is known."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import (
    Distances,
    bootstrap,
    count_tokens,
    hellinger_gram,
    jackknife,
    noise_floor,
    positional_distributions,
    significant_rank,
    split_half_geometry,
    stress,
)
from jaxpe.data import three_regimes, zipf_stationary
from jaxpe.geometry import (
    basic_interval,
    rank_above_null,
    resample_documents,
    student_interval,
    weighted_gram,
)

KEY = jax.random.key(0)
LENGTH, VOCAB, DOCUMENTS = 12, 300, 3000


@partial(jax.jit, static_argnames="folds")
def counted(ids, mask=None, folds=16):
    return count_tokens(ids, vocab_size=VOCAB, mask=mask, folds=folds)


split_half = jax.jit(split_half_geometry, static_argnames="splits")


@pytest.fixture(scope="module")
def stationary():
    return zipf_stationary(documents=DOCUMENTS, length=LENGTH, vocab_size=VOCAB, seed=1)


@pytest.fixture(scope="module")
def regimes():
    return three_regimes(documents=DOCUMENTS, length=LENGTH, vocab_size=VOCAB, seed=1)


@jax.jit
def plug_in_trace(counts):
    return jnp.trace(hellinger_gram(positional_distributions(counts)))


def test_without_signal_halves_cancel_and_the_floor_is_the_plug_in(stationary):
    counts = counted(stationary.ids)
    plug_in, floor = plug_in_trace(counts), jax.jit(noise_floor)(counts)
    assert plug_in > 0.1
    np.testing.assert_allclose(floor.trace, plug_in, rtol=0.04)
    assert abs(split_half(counts, key=KEY).trace) < 0.05 * plug_in


def test_floor_covers_a_long_tail_of_rare_words_and_thin_positions(stationary):
    mask = np.arange(DOCUMENTS)[:, None] < np.linspace(DOCUMENTS, 40, LENGTH).astype(int)[None]
    counts = counted(stationary.ids, mask)
    floor, plug_in = jax.jit(noise_floor)(counts).trace, plug_in_trace(counts)
    # The floor has the variance alone; E√μ̂ also differs between thin and thick positions.
    assert 0.8 * plug_in < floor < plug_in


def test_error_of_the_halves_is_as_said(stationary):
    counts = counted(stationary.ids)
    said = jax.jit(noise_floor)(counts).split_half_error
    products = []
    for seed in range(40):
        ids = np.random.default_rng(seed).permuted(stationary.ids.ravel()).reshape(-1, LENGTH)
        products.append(split_half(counted(ids), key=jax.random.key(seed), splits=1).gram)
    seen = np.sqrt(np.mean([np.diagonal(gram) ** 2 for gram in products]))
    np.testing.assert_allclose(np.mean(said), seen, rtol=0.15)


def test_strong_signal_is_recovered(regimes):
    truth = np.asarray(hellinger_gram(regimes.distributions))
    counts = counted(regimes.ids)
    geometry = split_half(counts, key=KEY)
    # Not unbiased: E√X grows faster than √λ for words seen a few times (by 13 % in all, here).
    np.testing.assert_allclose(geometry.trace, np.trace(truth), rtol=0.2)
    assert abs(geometry.trace - np.trace(truth)) < 0.3 * abs(plug_in_trace(counts) - truth.trace())
    error = lambda B: np.linalg.norm(np.asarray(B) - truth)  # noqa: E731
    assert error(geometry.gram) < 0.7 * error(
        hellinger_gram(positional_distributions(counts.merged()))
    )
    assert isinstance(geometry.distances, Distances)
    P = np.zeros((LENGTH, 1))
    assert stress(P, geometry.distances) == 1


def test_geometry_is_consistent_and_its_key_reproduces_it(regimes):
    counts = counted(regimes.ids)
    one, same, other = (split_half(counts, key=jax.random.key(k)) for k in (0, 0, 1))
    assert np.array_equal(one.gram, same.gram)
    assert not np.array_equal(one.gram, other.gram)
    B, squared = np.asarray(one.gram), np.asarray(one.squared_distances)
    np.testing.assert_allclose(B.sum(0), 0, atol=1e-12)
    norms = np.diagonal(B)
    np.testing.assert_allclose(squared, norms[:, None] + norms[None] - 2 * B, atol=1e-12)
    np.testing.assert_allclose(one.eigenvalues, np.linalg.eigvalsh(B)[::-1], atol=1e-12)


def test_positions_empty_in_a_half_take_no_part(regimes):
    mask = np.ones((DOCUMENTS, LENGTH), bool)
    mask[:, 3] = False
    mask[1:, 7] = False  # one document: empty in one half of every split
    geometry = split_half(counted(regimes.ids, mask), key=KEY)
    assert geometry.present.tolist() == [i not in (3, 7) for i in range(LENGTH)]
    assert (geometry.gram[3] == 0).all()
    assert (geometry.gram[7] == 0).all()
    weighted = np.asarray(weighted_gram(geometry, counted(regimes.ids, mask)))
    assert np.isfinite(weighted).all()
    assert (weighted[7] == 0).all()


def test_significant_rank_with_and_without_signal(stationary, regimes):
    rank = jax.jit(partial(significant_rank, vocab_size=VOCAB, key=KEY, splits=4, nulls=19))
    assert rank(stationary.ids).rank <= 1
    found = rank(regimes.ids)
    assert found.rank == 2
    assert found.null_eigenvalues.shape == (19, LENGTH)
    np.testing.assert_allclose(found.threshold, found.null_eigenvalues.max())
    np.testing.assert_allclose(found.p_value, 1 / 20)


@pytest.mark.parametrize(("level", "allowed"), [(0.0, 4), (0.2, 4), (0.5, 2), (0.8, 1)])
def test_rank_counts_what_few_null_corpora_reach(level, allowed):
    """A share 1 − level of 5 corpora, the documents' own among them, may be as large."""
    sizes = np.array([0.5, 2.0, 2.5, 4.0])
    null = np.zeros((4, 4, 4))
    null[:, 0, 0] = sizes
    others = (sizes.sum() - sizes) / 3
    top = np.maximum(sizes - others, 0)  # of each null less the mean of the others
    found = rank_above_null(np.diag([2.25, 9.0, 1.0, 0.1]), null, level=level)
    own = np.array([9.0, 1.0, 0.1, 0.0])
    np.testing.assert_allclose(found.threshold, np.sort(top)[-allowed], atol=1e-12)
    np.testing.assert_allclose(found.eigenvalues, own, atol=1e-12)
    assert found.rank == sum(np.sum(top >= x - 1e-9) < allowed for x in own)
    np.testing.assert_allclose(found.p_value, (1 + np.sum(top >= 9.0)) / 5)


def test_interval_of_a_share_covers_it_as_often_as_it_says():
    def low_and_high(seed):
        data, draw = jax.random.split(jax.random.key(seed))
        ids = jax.random.bernoulli(data, 0.3, (200, 1)).astype(jnp.int32)
        share = lambda counts: (  # noqa: E731
            counts.tokens[0, 1].astype(float) / counts.per_position[0].astype(float)
        )
        found = bootstrap(share, ids, vocab_size=2, key=draw, folds=None, samples=99)
        return jnp.stack([found.low, found.high, found.standard_error])

    low, high, error = np.asarray(jax.jit(jax.vmap(low_and_high))(jnp.arange(300))).T
    covered = np.mean((low <= 0.3) & (high >= 0.3))
    assert 0.90 <= covered <= 0.99
    np.testing.assert_allclose(error.mean(), np.sqrt(0.3 * 0.7 / 200), rtol=0.05)


def test_interval_of_the_split_half_trace_holds_its_mean(regimes):
    def trace(counts):
        return split_half_geometry(counts, key=KEY, splits=4).trace

    def redrawn(seed):
        uniform = np.random.default_rng(seed).random((DOCUMENTS, LENGTH))
        columns = zip(np.cumsum(regimes.distributions, axis=1), uniform.T, strict=True)
        return np.stack([np.searchsorted(c[:-1], u) for c, u in columns], 1).astype(np.int32)

    found = bootstrap(trace, regimes.ids, vocab_size=VOCAB, key=KEY, samples=60, confidence=0.99)
    redraws = [
        float(split_half(counted(redrawn(seed)), key=KEY, splits=4).trace) for seed in range(8)
    ]
    assert found.low < np.mean(redraws) < found.high
    assert 0.4 < found.standard_error / np.std(redraws, ddof=1) < 2.5
    assert found.samples.shape == (60,)


def test_student_interval_is_symmetric():
    draws = np.random.default_rng(0).normal(size=20)
    found = student_interval(np.array(2.0), draws, confidence=0.9)
    half = 1.7291328 * draws.std(ddof=1)  # Student's t of 19 degrees of freedom
    np.testing.assert_allclose([found.low, found.high], [2 - half, 2 + half], rtol=1e-7)


def test_student_intervals_of_few_normal_draws_cover_as_often_as_they_say():
    draws = np.random.default_rng(0).normal(size=(4000, 7))
    own = jax.vmap(lambda x: student_interval(x[0], x[1:], confidence=0.8))(draws)
    inside = (own.low <= 0) & (own.high >= 0)
    assert abs(np.mean(inside) - 0.8) < 0.02


def test_basic_interval_reflects_the_quantiles():
    draws = np.random.default_rng(0).exponential(size=500)
    found = basic_interval({"a": np.array(2.0)}, {"a": draws}, confidence=0.9)
    np.testing.assert_allclose(found.low["a"], 4 - np.quantile(draws, 0.95))
    np.testing.assert_allclose(found.high["a"], 4 - np.quantile(draws, 0.05))
    np.testing.assert_allclose(found.standard_error["a"], draws.std())


def test_resamples_are_poisson_and_hold_groups_together():
    drawn = np.asarray(resample_documents(KEY, 20_000))
    np.testing.assert_allclose([drawn.mean(), drawn.var()], 1, atol=0.04)
    np.testing.assert_allclose(np.mean(drawn == 0), np.exp(-1), atol=0.015)
    groups = np.arange(600, dtype=np.int32) // 3
    together = np.asarray(resample_documents(KEY, 600, groups=groups)).reshape(200, 3)
    assert (together == together[:, :1]).all()
    assert len(set(together[:, 0])) > 2


def test_bad_input_is_refused(regimes):
    for folds in (None, 1):
        counts = count_tokens(regimes.ids, vocab_size=VOCAB, folds=folds)
        with pytest.raises(ValueError, match=r"split halves need at least two folds; pass"):
            split_half_geometry(counts, key=KEY)
    for confidence in (0.0, 1.0, 95.0):
        with pytest.raises(ValueError, match="confidence must lie strictly between 0 and 1"):
            bootstrap(lambda counts: counts.documents, regimes.ids, vocab_size=VOCAB, key=KEY,
                      confidence=confidence)  # fmt: skip


@pytest.mark.parametrize("label", [-1, 5])
def test_group_labels_outside_the_documents_are_refused(label):
    with pytest.raises(ValueError, match="label each group by the index"):
        resample_documents(KEY, 5, groups=np.array([0, 0, label, 3, 3]))
    with pytest.raises(ValueError, match="outside \\[0, 5\\)"):
        bootstrap(
            lambda counts: counts.documents.astype(float),
            np.zeros((5, 2), np.int32),
            vocab_size=1,
            key=KEY,
            groups=np.array([0, 0, label, 3, 3]),
            samples=2,
        )


def test_options_out_of_range_are_refused(regimes):
    with pytest.raises(ValueError, match="splits must be at least 1"):
        split_half_geometry(counted(regimes.ids), key=KEY, splits=0)
    with pytest.raises(ValueError, match="samples must be at least 2"):
        bootstrap(mean_of_folds, regimes.ids, vocab_size=VOCAB, key=KEY, samples=0)
    with pytest.raises(ValueError, match="level must lie in"):
        rank_above_null(np.eye(2), np.zeros((2, 2, 2)), level=2.0)
    for nulls, least in ((1, 19), (18, 19)):
        with pytest.raises(ValueError, match=f"at least {least}"):
            rank_above_null(np.eye(2), np.zeros((nulls, 2, 2)))


def test_copies_of_documents_are_no_evidence_of_order():
    rng = np.random.default_rng(0)
    ids = np.repeat(rng.integers(0, 60, (300, LENGTH)), 10, axis=0)
    rank = jax.jit(partial(significant_rank, vocab_size=60, splits=4, nulls=19))
    assert rank(ids, key=KEY).rank <= 1
    assert rank(ids, key=KEY, groups=np.repeat(np.arange(300), 10)).rank <= 1


class Counter:
    """Progress that counts what it was shown."""

    def __init__(self):
        self.seen = {}

    def track(self, items, description, *, total=None):
        for number, item in enumerate(items, 1):
            self.seen[description] = (number, total)
            yield item

    def say(self, line): ...


PROGRESSING = {
    "split halves": (5, lambda ids, progress: split_half_geometry(
        count_tokens(ids, vocab_size=9, folds=4), key=KEY, splits=5, progress=progress
    )),
    "shuffled documents": (3, lambda ids, progress: significant_rank(
        ids, vocab_size=9, key=KEY, splits=2, nulls=3, level=0.5, exclude=(2,), progress=progress
    )),
    "bootstrap": (4, lambda ids, progress: bootstrap(
        mean_of_folds, ids, vocab_size=9, key=KEY, samples=4, folds=4, progress=progress
    )),
    "jackknife": (6, lambda ids, progress: jackknife(
        mean_of_folds, count_tokens(ids, vocab_size=9, folds=6), progress=progress
    )),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRESSING)
def test_progress_is_shown_and_a_traced_call_gives_the_same(name):
    total, call = PROGRESSING[name]
    ids = np.random.default_rng(0).integers(0, 9, (80, 4), dtype=np.int32)
    shown, hidden = Counter(), Counter()
    found = call(ids, shown)
    assert shown.seen == {name: (total, total)}
    traced = jax.jit(lambda ids: call(ids, hidden))(ids)
    assert hidden.seen == {}
    mapped = jax.vmap(lambda ids: call(ids, hidden))(np.stack([ids, ids]))
    assert hidden.seen == {}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), traced, found)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[1], b, atol=1e-12), mapped, found)


def test_ids_outside_the_vocabulary_are_refused():
    ids = np.full((40, 3), 9, np.int32)
    for call in (significant_rank, partial(bootstrap, mean_of_folds)):
        with pytest.raises(ValueError, match="9"):
            call(ids, vocab_size=9, key=KEY)


def test_nan_is_no_rank():
    assert rank_above_null(np.full((2, 2), np.nan), np.zeros((19, 2, 2))).rank == -1


FOLDS = 8


def mean_of_folds(counts):
    """How many documents have word 0 at position 0, for each fold."""
    return counts.merged().tokens[0, 0].astype(float) / counts.tokens.shape[0]


@pytest.fixture(scope="module")
def folded():
    ids = np.random.default_rng(0).integers(0, 3, (400, 2), dtype=np.int32)
    return count_tokens(ids, vocab_size=3, folds=FOLDS, groups=np.arange(400))


def test_jackknife_of_a_mean_is_the_textbook(folded):
    found = jackknife(mean_of_folds, folded)
    x = np.asarray(folded.tokens)[:, 0, 0]
    np.testing.assert_allclose(found.estimate, x.mean())
    np.testing.assert_allclose(found.standard_error, x.std(ddof=1) / np.sqrt(FOLDS))
    np.testing.assert_allclose(found.samples, (x.sum() - x) / (FOLDS - 1))
    t = 2.364624  # Student's, 7 degrees of freedom, 97.5 %
    np.testing.assert_allclose((found.high - found.low) / 2, t * found.standard_error, rtol=1e-6)
    np.testing.assert_allclose(found.high + found.low, 2 * found.estimate)


def test_jackknife_does_not_know_the_order_of_folds_and_follows_scale(folded):
    order = np.random.default_rng(1).permutation(FOLDS)
    shuffled = folded._replace(tokens=folded.tokens[order])
    found, moved = (jackknife(mean_of_folds, counts) for counts in (folded, shuffled))
    for field in ("estimate", "low", "high", "standard_error"):
        np.testing.assert_allclose(getattr(moved, field), getattr(found, field))
    np.testing.assert_allclose(moved.samples, found.samples[order])
    scaled = jackknife(lambda counts: {"x": 5.0 - 2.0 * mean_of_folds(counts)}, folded)
    np.testing.assert_allclose(scaled.standard_error["x"], 2.0 * found.standard_error)
    np.testing.assert_allclose(scaled.low["x"], 5.0 - 2.0 * found.high)


def test_jackknife_of_equal_folds_has_no_width(folded):
    equal = folded._replace(tokens=jnp.broadcast_to(folded.tokens[:1], folded.tokens.shape))
    found = jackknife(mean_of_folds, equal)
    assert float(found.standard_error) == 0
    assert float(found.low) == float(found.high) == float(found.estimate)


def test_jackknife_leaves_out_a_fold_and_its_share_of_documents(folded):
    found = jackknife(
        lambda counts: (counts.tokens.sum().astype(float), counts.documents.astype(float)), folded
    )
    many = jackknife(
        lambda c: c.documents.astype(float), folded._replace(documents=np.int32(2**31 - 1))
    )
    per_fold = np.asarray(folded.tokens).sum((1, 2))
    np.testing.assert_array_equal(found.samples[0], per_fold.sum() - per_fold)
    np.testing.assert_array_equal(found.samples[1], np.full(FOLDS, 350))
    np.testing.assert_allclose(many.samples, 2**31 * 7 / 8)


@pytest.mark.parametrize("folds", [None, 2])
def test_a_jackknife_needs_folds(folds):
    counts = count_tokens(np.zeros((4, 2), np.int32), vocab_size=1, folds=folds)
    with pytest.raises(ValueError, match="folds"):
        jackknife(mean_of_folds, counts)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 1.5])
def test_a_jackknife_is_of_a_confidence_between_0_and_1(folded, confidence):
    with pytest.raises(ValueError, match="confidence must lie strictly between 0 and 1"):
        jackknife(mean_of_folds, folded, confidence=confidence)
