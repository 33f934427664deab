"""Stored counts say what the documents say, as far as they know it."""

import jax
import numpy as np
import pytest

import jaxpe
from jaxpe import InputError
from jaxpe._core.results import load_result, result_files
from jaxpe.analysis.corpus import CorpusAnalysis, analyse_counts, analyse_tokens, job
from jaxpe.analysis.counts import CountedShard, CountSettings, StoredCounts
from jaxpe.data import TokenCorpus, containment_groups
from jaxpe.geometry import permute_within_documents, rank_above_null, weighted_gram
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
    groups = containment_groups(corpus.ids, corpus.mask)
    counts = jaxpe.count_tokens(ids, vocab_size=WORDS, mask=corpus.mask, folds=folds, groups=groups)
    return np.asarray(counts.tokens)


@pytest.fixture(scope="module")
def stored(corpus) -> StoredCounts:
    """The counts of these documents and of three permutations, in the folds of `analyse_tokens`."""
    shuffled = [
        permute_within_documents(jax.random.key(k), corpus.ids, corpus.mask) for k in range(3)
    ]
    return StoredCounts(
        table=table(corpus.ids, corpus, FOLDS),
        nulls=np.stack([table(ids, corpus, 4) for ids in shuffled]),
        documents=400,
        settings=CountSettings("words", "", N, None, WORDS, (), FOLDS, 3, 4, 0),
        tokens=corpus.tokens,
        shards=(CountedShard("all.txt", 1, "0" * 32, 400),),
    )


@pytest.fixture(autouse=True)
def few_encodings(monkeypatch):
    score_only(monkeypatch, "sinusoidal", "alibi")


def test_counts_tell_what_the_documents_tell(corpus, stored):
    """With the same folds and the same key, the halves are the same."""
    counted = analyse_counts(stored, **OPTIONS)
    read = analyse_tokens(corpus, **OPTIONS, bootstrap=0)
    for field in ("source", "tokenizer", "documents", "tokens", "length", "top_tokens"):
        assert getattr(counted, field) == getattr(read, field), field
    close = {"rtol": 1e-5, "atol": 1e-6}
    for name in ("rank", "trace", "eigenvalues", "violation_rate", "noise_share", "distances"):
        ours, theirs = getattr(counted.plug_in, name), getattr(read.plug_in, name)
        np.testing.assert_allclose(ours, theirs, **close, err_msg=name)
    for name in ("trace", "eigenvalues", "violation_rate", "squared_distances"):
        ours, theirs = getattr(counted.split_half, name), getattr(read.split_half, name)
        np.testing.assert_allclose(ours, theirs, **close, err_msg=name)
    np.testing.assert_array_equal(counted.documents_per_position, read.documents_per_position)
    assert counted.folds == FOLDS
    assert counted.bootstrap == read.folds == 0


def test_the_interval_is_that_of_the_jackknife(stored):
    key = jax.random.split(jax.random.key(5), 4)[0]
    found = analyse_counts(stored, **OPTIONS).intervals["split_half_trace"]
    expected = jaxpe.jackknife(
        lambda counts: jaxpe.split_half_geometry(counts, key=key, splits=4).trace, stored.counts
    )
    ends = expected.estimate, expected.low, expected.high
    np.testing.assert_allclose(found, ends, rtol=1e-5)


def test_dimensions_are_judged_in_the_folds_of_the_null(corpus, stored):
    key = jax.random.split(jax.random.key(5), 4)[0]

    def gram(tokens):
        counts = stored._replace(table=tokens).counts
        return weighted_gram(jaxpe.split_half_geometry(counts, key=key, splits=4), counts)

    regrouped = stored.table.reshape(4, 4, N, WORDS).sum(axis=0, dtype=np.int32)
    expected = rank_above_null(gram(regrouped), np.stack([gram(null) for null in stored.nulls]))
    found = analyse_counts(stored, **OPTIONS).split_half
    np.testing.assert_allclose(found.rank_eigenvalues, expected.eigenvalues, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.null_eigenvalue, expected.threshold, rtol=1e-4)
    assert found.significant_rank == expected.rank > 0


def test_without_nulls_dimensions_are_unknown(stored, tmp_path):
    none = np.zeros((0, 4, N, WORDS), np.int32)
    found = analyse_counts(stored._replace(nulls=none), **OPTIONS)
    assert found.split_half.significant_rank is None
    assert np.isnan(found.split_half.rank_eigenvalues).all()
    for name, content in result_files(found, "report").items():
        (tmp_path / name).write_bytes(content)
    saved = load_result(CorpusAnalysis, tmp_path / "report.json")
    jax.tree.map(np.testing.assert_array_equal, saved, found._replace(seconds={}))


def test_more_positions_than_a_report_has(stored):
    settings = stored.settings._replace(length=5000)
    with pytest.raises(InputError, match=r"5,000 positions .* 4,096 .* `bins`"):
        analyse_counts(stored._replace(settings=settings))


def test_a_policy_of_errors_names_the_empty_positions(corpus):
    masked = corpus._replace(mask=corpus.mask & (np.arange(N) != 3))
    with pytest.raises(InputError, match="3"):
        job.analyse_tokens(masked, empty="error")
