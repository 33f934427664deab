"""Tokens to be guessed of documents: as many as asked for, of text alone, at the places told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import InputError
from jaxpe.training.masking import mask_tokens, masked_ids, random_position, random_positions

N, ROWS = 40, 200


def texts():
    rng = np.random.default_rng(0)
    text = np.arange(N) < rng.integers(2, N, ROWS)[:, None]
    text[:, 0] = False
    return text


def test_one_place_is_drawn_evenly_from_text():
    places = random_position(texts(), rng=np.random.default_rng(0))
    assert places.shape == (ROWS, 1)
    assert places.dtype == np.int32
    assert np.take_along_axis(texts(), places, axis=1).all()
    row = np.zeros((3000, 4), bool)
    row[:, 1:] = True
    counts = np.bincount(random_position(row, rng=np.random.default_rng(0))[:, 0], minlength=4)
    assert counts[0] == 0
    np.testing.assert_allclose(counts[1:], 1000, atol=100)


def test_a_share_of_the_text_counts_and_one_token_at_least():
    text = texts()
    places, counted = random_positions(text, rng=np.random.default_rng(0), rate=0.15)
    assert places.dtype == np.int32
    expected = np.maximum(1, np.round(0.15 * text.sum(axis=1)))
    np.testing.assert_array_equal(counted.sum(axis=1), expected)
    assert np.take_along_axis(text, places, axis=1)[counted].all()
    for own, kept in zip(places, counted, strict=True):
        assert len(set(own[kept])) == kept.sum()


def test_only_places_that_count_are_masked():
    ids = np.arange(1, 1 + ROWS * N, dtype=np.int32).reshape(ROWS, N)
    places, counted = random_positions(texts(), rng=np.random.default_rng(0))
    masked = masked_ids(ids, places, mask_id=0, counted=counted)
    assert (masked == 0).sum() == counted.sum()
    np.testing.assert_array_equal(masked[masked != 0], ids[masked != 0])
    assert (ids > 0).all()  # the original stays
    with pytest.raises(InputError, match="MASK"):
        masked_ids(ids, places, mask_id=None)


def test_choice_replacement_and_random_token_are_independent():
    """One key for two of the draws would make the replacement a function of the choice."""
    ids = jnp.full((200, 200), 99, jnp.int32)
    masked = mask_tokens(jax.random.key(0), ids, vocab_size=99, mask_id=98, rate=0.3)
    selected = np.asarray(masked.ids)[np.asarray(masked.selected)]
    assert abs(masked.selected.mean() - 0.3) < 0.01
    random = selected[selected < 98]
    for share, expected in ((selected == 98, 0.8), (selected == 99, 0.1), (selected < 98, 0.1)):
        assert abs(share.mean() - expected) < 0.02
    assert abs(random.mean() - 48.5) < 3
    assert np.bincount(random // 33, minlength=3).min() > len(random) / 4
