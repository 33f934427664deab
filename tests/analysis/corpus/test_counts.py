"""Stored counts say what the documents say, as far as they know it."""

import jax
import numpy as np
import pytest

import jaxpe
from jaxpe import InputError
from jaxpe.analysis.corpus import CorpusOptions, analyse_counts, analyse_tokens
from jaxpe.analysis.counts import CountedShard, CountHeader, CountSettings, StoredCounts
from jaxpe.data import TokenCorpus, dependent_groups
from jaxpe.geometry import position_geometry_from_counts, regroup_folds, rotate_within_documents
from tests.conftest import score_only

N, WORDS, FOLDS = 8, 20, 16
OPTIONS = CorpusOptions(dim=4, splits=4, seed=5)


@pytest.fixture(scope="module")
def corpus() -> TokenCorpus:
    """Documents of several lengths, whose words drift."""
    rng = np.random.default_rng(0)
    drift = rng.random((400, N)) < np.arange(N) / N
    ids = np.where(drift, rng.integers(0, 10, (400, N)), rng.integers(8, WORDS, (400, N)))
    mask = np.arange(N)[None, :] < rng.integers(3, N + 1, (400, 1))
    names = [f"word{k}" for k in range(WORDS)]
    return TokenCorpus("all.txt", "words", ids.astype(np.int32), mask, WORDS, (), names, N)


@pytest.fixture(scope="module")
def stored(corpus) -> StoredCounts:
    """The counts of these documents, and of twenty rotations of them."""
    counting = {
        "vocab_size": WORDS,
        "mask": corpus.mask,
        "groups": dependent_groups(corpus.ids, corpus.mask),
    }
    keys = map(jax.random.key, range(20))
    rotated = [rotate_within_documents(key, corpus.ids, corpus.mask) for key in keys]
    settings = CountSettings("words", "", N, None, WORDS, (), FOLDS, 20, 4, 0)
    shard = CountedShard("all.txt", 1, "0" * 32, 400, null_texts=3)
    return StoredCounts(
        np.asarray(jaxpe.count_tokens(corpus.ids, folds=FOLDS, **counting).tokens),
        np.stack([jaxpe.count_tokens(ids, folds=4, **counting).tokens for ids in rotated]),
        CountHeader(400, settings, (shard,), None, (), corpus.tokens),
    )


@pytest.fixture(autouse=True)
def few_encodings(monkeypatch):
    score_only(monkeypatch, "sinusoidal", "alibi")


def test_counts_tell_what_the_documents_tell(corpus, stored):
    """Observed numbers are the same; the geometry of position has other halves and rotations."""
    counted = analyse_counts(stored, OPTIONS)
    # To a count, rows that fill all positions were cut.
    read = analyse_tokens(corpus._replace(cut=corpus.mask[:, -1]), OPTIONS)
    own = {"folds": 4, "null_texts": 3, "from_counts": True, "cut": None, "groups": 400}
    assert read.facts._replace(**own) == counted.facts
    assert counted.top_tokens == read.top_tokens
    for ours, theirs in zip(counted.observed[:4], read.observed, strict=False):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(counted.documents_per_position, read.documents_per_position)
    share, expected = (x.intervals["position_share"] for x in (counted, read))
    assert share.low < expected.estimate < share.high
    assert counted.position.significant_rank == read.position.significant_rank > 0

    halving = jax.random.split(jax.random.split(jax.random.key(5), 3)[0], 21)[0]
    counts = regroup_folds(stored.counts, folds=4)
    nulls = [counts._replace(tokens=null) for null in stored.nulls]
    expected = position_geometry_from_counts(counts, nulls, key=halving, splits=4)
    for name in ("trace", "eigenvalues", "squared_distances"):
        ours, theirs = getattr(counted.position, name), getattr(expected, name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_counts_that_cannot_be_judged_are_refused(stored):
    for settings, message in (({"nulls": 18}, "18 rotated"), ({"length": 5000}, "5,000 positions")):
        header = stored.header._replace(settings=stored.header.settings._replace(**settings))
        with pytest.raises(InputError, match=message):
            analyse_counts(stored._replace(header=header))
