"""Stored counts say what the documents say, as far as they know it."""

import jax
import numpy as np
import pytest

import jaxpe
from jaxpe import InputError
from jaxpe.analysis.corpus import analyse_counts, analyse_tokens, job
from jaxpe.analysis.counts import CountedShard, CountHeader, CountSettings, StoredCounts
from jaxpe.data import TokenCorpus, dependent_groups
from jaxpe.geometry import (
    disjoint_position_geometries,
    position_geometry_from_counts,
    position_intervals,
    position_rank,
    regroup_folds,
    rotate_within_documents,
)
from tests.conftest import score_only

N, WORDS, FOLDS = 8, 20, 16
OPTIONS = {"dim": 4, "splits": 4, "seed": 5}


@pytest.fixture(scope="module")
def corpus() -> TokenCorpus:
    """Documents of several lengths, whose words drift."""
    rng = np.random.default_rng(0)
    drift = rng.random((400, N)) < np.arange(N) / N
    ids = np.where(drift, rng.integers(0, 10, (400, N)), rng.integers(8, WORDS, (400, N)))
    mask = np.arange(N)[None, :] < rng.integers(3, N + 1, (400, 1))
    names = [f"word{k}" for k in range(WORDS)]
    return TokenCorpus("all.txt", "words", ids.astype(np.int32), mask, WORDS, (), names, N)


def table(ids, corpus, folds):
    groups = dependent_groups(corpus.ids, corpus.mask)
    counts = jaxpe.count_tokens(ids, vocab_size=WORDS, mask=corpus.mask, folds=folds, groups=groups)
    return np.asarray(counts.tokens)


@pytest.fixture(scope="module")
def stored(corpus) -> StoredCounts:
    """The counts of these documents, and of twenty rotations of them."""
    rotated = [
        rotate_within_documents(jax.random.key(k), corpus.ids, corpus.mask) for k in range(20)
    ]
    settings = CountSettings("words", "", N, None, WORDS, (), FOLDS, 20, 4, 0)
    shard = CountedShard("all.txt", 1, "0" * 32, 400, null_texts=3)
    return StoredCounts(
        table=table(corpus.ids, corpus, FOLDS),
        nulls=np.stack([table(ids, corpus, 4) for ids in rotated]),
        header=CountHeader(400, settings, (shard,), None, (), corpus.tokens),
    )


def with_settings(stored: StoredCounts, **changes) -> StoredCounts:
    header = stored.header
    return stored._replace(header=header._replace(settings=header.settings._replace(**changes)))


@pytest.fixture(autouse=True)
def few_encodings(monkeypatch):
    score_only(monkeypatch, "sinusoidal", "alibi")


def test_counts_tell_what_the_documents_tell(corpus, stored):
    """Observed numbers are the same; the geometry of position has other halves and rotations."""
    counted = analyse_counts(stored, **OPTIONS)
    # To a count, rows that fill all positions were cut.
    read = analyse_tokens(corpus._replace(cut=corpus.mask[:, -1]), **OPTIONS)
    for field in ("source", "tokenizer", "documents", "tokens", "length", "top_tokens"):
        assert getattr(counted, field) == getattr(read, field), field
    close = {"rtol": 1e-5, "atol": 1e-6}
    for name in ("rank", "trace", "eigenvalues", "violation_rate", "distances"):
        ours, theirs = getattr(counted.plug_in, name), getattr(read.plug_in, name)
        np.testing.assert_allclose(ours, theirs, **close, err_msg=name)
    np.testing.assert_array_equal(counted.documents_per_position, read.documents_per_position)
    assert (counted.null_texts, read.null_texts) == (3, 0)
    assert (counted.folds, counted.from_counts, read.from_counts) == (4, True, False)
    share, expected = (x.intervals["position_share"] for x in (counted, read))
    assert share.low < expected.estimate < share.high
    assert counted.position.significant_rank == read.position.significant_rank > 0


def test_the_geometry_is_that_of_the_public_functions(stored):
    keys = jax.random.split(jax.random.key(5), 3)
    counts = regroup_folds(stored.counts, folds=4)
    nulls = [counts._replace(tokens=null) for null in stored.nulls]
    halving = jax.random.split(keys[0], 21)[0]
    expected = position_geometry_from_counts(counts, nulls, key=halving, splits=4)
    found = analyse_counts(stored, **OPTIONS)
    close = {"rtol": 1e-4, "atol": 1e-6}
    for name in ("trace", "eigenvalues", "squared_distances"):
        ours, theirs = getattr(found.position, name), getattr(expected, name)
        np.testing.assert_allclose(ours, theirs, **close)
    rank = position_rank(expected)
    np.testing.assert_allclose(found.position.rank_eigenvalues, rank.eigenvalues, **close)
    np.testing.assert_allclose(found.position.null_eigenvalue, rank.threshold, rtol=1e-4)
    halves = disjoint_position_geometries(counts, nulls[:4], key=keys[2], splits=8, halvings=2)
    near = position_intervals(expected, halves).nearness
    np.testing.assert_allclose(found.intervals["nearness"], near[:3], **close)


@pytest.mark.parametrize("nulls", [0, 18])
def test_without_enough_rotations_position_is_not_judged(stored, nulls):
    stored = with_settings(stored, nulls=nulls)
    with pytest.raises(InputError, match=rf"{nulls} rotated corpora .* 20 nulls"):
        analyse_counts(stored._replace(nulls=stored.nulls[:nulls]))


def test_more_positions_than_a_report_has(stored):
    with pytest.raises(InputError, match=r"5,000 positions .* 4,096 .* `bins`"):
        analyse_counts(with_settings(stored, length=5000))


def test_a_policy_of_errors_names_the_empty_positions(corpus):
    masked = corpus._replace(mask=corpus.mask & (np.arange(N) != 3))
    with pytest.raises(InputError, match="3"):
        job.analyse_tokens(masked, empty="error")
