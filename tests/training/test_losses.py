"""Losses as tallies: they add, masks leave out, and nothing selected is no NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpe.training.losses import (
    MeanMetric,
    accuracy,
    causal_lm_loss,
    cross_entropy,
    mean_squared_error,
    perplexity,
)
from jaxpe.training.masking import mask_tokens

CROSS_ENTROPY, ACCURACY = jax.jit(cross_entropy), jax.jit(accuracy)
CAUSAL_LM_LOSS = jax.jit(causal_lm_loss)
BATCH, N, V = 3, 5, 7
RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.standard_normal((BATCH, N, V)).astype(np.float32)
IDS = RANDOM.integers(0, V, (BATCH, N)).astype(np.int32)
MASK = RANDOM.random((BATCH, N)) < 0.6
LOSSES = {
    "cross_entropy": cross_entropy,
    "accuracy": accuracy,
    "causal_lm": causal_lm_loss,
    "squares": lambda x, ids, *, mask=None: mean_squared_error(x[..., 0], ids, mask=mask),
}


@pytest.mark.parametrize("name", LOSSES)
def test_tallies_of_parts_add_to_that_of_the_whole(name):
    loss = jax.jit(LOSSES[name])
    whole = loss(LOGITS, IDS, mask=MASK)
    parts = [loss(LOGITS[rows], IDS[rows], mask=MASK[rows]) for rows in (slice(0, 1), slice(1, 3))]
    added = sum(parts)
    np.testing.assert_allclose(added.total, whole.total, rtol=1e-6)
    assert added.weight == whole.weight > 0
    assert whole.total.dtype == whole.weight.dtype == jnp.float32


def test_packed_documents_are_those_of_rows_of_their_own():
    segments = np.array([[0, 0, 0, 1, 1], [4, 4, 2, 2, 2], [0, 1, 2, 3, 4]])
    packed = CAUSAL_LM_LOSS(LOGITS, IDS, mask=MASK, segments=segments)
    alone = [
        CAUSAL_LM_LOSS(LOGITS[row, here], IDS[row, here], mask=MASK[row, here])
        for row in range(BATCH)
        for document in set(segments[row])
        if (here := segments[row] == document).sum() > 1
    ]
    np.testing.assert_allclose(packed.total, sum(alone).total, rtol=1e-5)
    assert 0 < packed.weight == sum(alone).weight
    assert packed.weight < CAUSAL_LM_LOSS(LOGITS, IDS, mask=MASK).weight


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_masked_does_not_matter_not_even_as_nan(name):
    def of(logits, ids):
        return LOSSES[name](logits, ids, mask=MASK)

    clean = jax.jit(of)(LOGITS, IDS)
    dirty_logits = np.where(MASK[..., None], LOGITS, np.nan)
    dirty_ids = np.where(MASK, IDS, -100).astype(np.int32)
    if name == "causal_lm":  # whose last logits before padding predict nothing either
        follows = np.pad(MASK[:, 1:], ((0, 0), (0, 1)))
        dirty_logits = np.where(follows[..., None], dirty_logits, np.nan)
    dirty = jax.jit(of)(dirty_logits, dirty_ids)
    np.testing.assert_allclose(dirty.total, clean.total, rtol=1e-6)
    assert dirty.weight == clean.weight
    gradient = jax.jit(jax.grad(lambda logits: of(logits, dirty_ids).total))(dirty_logits)
    assert np.isfinite(gradient).all()
    assert (np.asarray(gradient)[~MASK] == 0).all()


def test_nothing_selected_is_zero():
    def of(logits):
        tally = cross_entropy(logits, IDS, mask=np.zeros_like(MASK))
        return tally.mean, tally

    gradient, tally = jax.jit(jax.grad(of, has_aux=True))(LOGITS)
    assert (tally.total, tally.weight, tally.mean) == (0, 0, 0)
    assert not np.any(gradient)


def test_cross_entropy_is_that_of_optax():
    expected = optax.softmax_cross_entropy_with_integer_labels(LOGITS, IDS).sum()
    np.testing.assert_allclose(CROSS_ENTROPY(LOGITS, IDS).total, expected, rtol=1e-6)


def test_impossible_classes_cost_nothing():
    logits = np.array([[0.0, 0.0, -np.inf]])
    np.testing.assert_allclose(CROSS_ENTROPY(logits, np.array([0])).total, np.log(2))


@pytest.mark.parametrize("label", [-1, V])
def test_a_label_that_is_no_class_is_not_taken_for_another(label):
    assert np.isnan(cross_entropy(LOGITS[0], np.full(N, label)).total)


def test_half_precision_is_summed_in_float32():
    many, first = np.zeros((4096, 2), jnp.bfloat16), np.zeros(4096, np.int32)
    tally = CROSS_ENTROPY(many, first)
    assert tally.total.dtype == jnp.float32
    np.testing.assert_allclose(tally.total, 4096 * np.log(2), rtol=1e-6)
    assert float(ACCURACY(many, first).total) == 4096
    assert CROSS_ENTROPY(LOGITS.astype(np.float64), IDS).total.dtype == jnp.float64


def test_the_next_token_is_predicted_within_the_mask():
    ids, classes = np.array([[1, 2, 3, 0]]), 30 * np.eye(4)
    mask = np.array([[True, True, True, False]])
    tally = jax.device_get(CAUSAL_LM_LOSS(classes[np.roll(ids, -1, axis=1)], ids, mask=mask))
    assert tally.weight == 2
    assert 0 <= tally.total < 1e-9
    assert float(CAUSAL_LM_LOSS(classes[ids], ids, mask=mask).mean) > 20


def test_perplexity_of_uniform_guessing_is_the_number_of_classes():
    tally = CROSS_ENTROPY(np.zeros((4, V)), np.zeros(4, np.int32))
    np.testing.assert_allclose(perplexity(tally), V, rtol=1e-6)


def test_squares_and_accuracy_by_hand():
    tally = mean_squared_error(jnp.array([1.0, 2.0]), jnp.array([0, 4]))
    assert tally == MeanMetric(5.0, 2.0)
    assert accuracy(jnp.array([[1.0, 1.0], [0.0, 1.0]]), jnp.array([0, 0])) == MeanMetric(1.0, 2.0)


def test_masked_tokens_follow_bert():
    vocab, mask_id, specials = 1000, 4, (2, 3)
    ids = np.random.default_rng(1).integers(0, vocab, (400, 100)).astype(np.int32)
    ids[:, 0], ids[:, 50] = 2, 3
    mask = np.broadcast_to(np.arange(100) < 80, ids.shape)
    options = {"vocab_size": vocab, "mask_id": mask_id, "special_ids": specials}
    draw = jax.jit(lambda key: mask_tokens(key, ids, mask=mask, **options))
    masked, other = jax.device_get([draw(jax.random.key(seed)) for seed in (0, 1)])
    chosen = masked.selected
    np.testing.assert_array_equal(masked.targets, ids)
    np.testing.assert_array_equal(masked.ids[~chosen], ids[~chosen])
    assert not chosen[~mask | np.isin(ids, specials)].any()
    eligible = (mask & ~np.isin(ids, specials)).sum()
    assert abs(chosen.sum() / eligible - 0.15) < 0.01
    now, then = masked.ids[chosen], ids[chosen]
    shares = [(now == mask_id).mean(), (now == then).mean()]
    np.testing.assert_allclose(shares, [0.8, 0.1], atol=0.02)
    drawn = now[(now != mask_id) & (now != then)]
    assert 450 < drawn.mean() < 550  # uniform over the vocabulary
    assert (other.selected != chosen).any()


def test_wrong_arguments_are_named():
    for wrong, options in (("rate", {"mask_id": 0, "rate": 15.0}), ("mask_id", {"mask_id": V})):
        with pytest.raises(ValueError, match=wrong):
            mask_tokens(jax.random.key(0), IDS, vocab_size=V, **options)
