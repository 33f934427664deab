"""The scores of a report, and corpora so small that hardly anything is defined."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.analysis.corpus import CorpusOptions, analyse_tokens
from jaxpe.analysis.corpus.vectors import scored_entries
from jaxpe.data import TokenCorpus, tokens_from_ids
from jaxpe.encodings import EncodingSizes
from tests.conftest import score_only

QUICK = CorpusOptions(dim=2, splits=2)


def corpus(ids: np.ndarray) -> TokenCorpus:
    return tokens_from_ids(ids.astype(np.int32))


@pytest.fixture
def few_encodings(monkeypatch):
    score_only(monkeypatch, "sinusoidal", "random")


def test_every_row_exists_at_few_positions():
    sizes = EncodingSizes(dim=6, num_heads=8, head_dim=6, length=1)
    for entry in scored_entries():
        encoding = entry.make(sizes)
        params = jax.eval_shape(encoding.init, jax.random.key(0))
        shape = jax.eval_shape(encoding.vectors, params, jnp.arange(1)).shape
        assert (shape[0], entry.name == "alibi" or shape[1] <= 6) == (1, True), entry.name


@pytest.mark.parametrize("words", [1, 9])
def test_of_positions_that_are_all_alike_nothing_is_claimed(words, few_encodings):
    """Each document one word, over and over: all that differs between positions is rounding."""
    ids = np.random.default_rng(0).integers(0, words, (60, 1)).repeat(3, axis=1)
    case = analyse_tokens(corpus(ids), QUICK)
    assert case.observed.rank == case.position.significant_rank == 0
    assert case.observed.trace == case.position.null_eigenvalue == 0
    assert case.intervals == {}
    assert case.encodings[0].scaled_stress == 0
    # Of many lengths, the null is the corpus, to rounding.
    mask = np.arange(3)[None, :] < np.random.default_rng(1).integers(1, 4, (60, 1))
    ragged = analyse_tokens(corpus(ids)._replace(mask=mask), QUICK)
    assert (ragged.observed.rank > 0) == (words > 1)
    assert ragged.position.significant_rank == 0


def test_a_single_observation_has_no_distances(few_encodings):
    copies = analyse_tokens(corpus(np.zeros((60, 3))), QUICK)
    assert (copies.facts.groups, copies.held_out) == (1, None)
    assert np.isnan([copies.position.trace, copies.observed.split_half_trace]).all()
    assert copies.rare_positions.tolist() == [0, 1, 2]
