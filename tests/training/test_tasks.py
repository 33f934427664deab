"""Loss functions of tasks: what they count, and the chosen places against all of them."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxpe import encodings, nn
from jaxpe.training.losses import cross_entropy
from jaxpe.training.masking import loss_positions, mask_tokens
from jaxpe.training.tasks import (
    causal_lm,
    classification,
    logits_at,
    masked_lm,
    regression,
    translation,
)

VOCAB, N, ROWS = 12, 40, 6
TABLE = jnp.asarray(np.random.default_rng(0).standard_normal((VOCAB, VOCAB)).astype(np.float32))


class Output(NamedTuple):
    logits: jax.Array


def tokenwise(params, ids, *, mask, dropout_key):
    return Output(params[ids])


def of_first(params, ids, *, mask, dropout_key):
    return Output(params[ids[:, 0]])


def at_places(params, ids, places, *, mask, dropout_key):
    return params[jnp.take_along_axis(ids, places, axis=-1)]


def batch(rows=ROWS, seed=0):
    random = np.random.default_rng(seed)
    lengths = random.integers(2, N + 1, rows)
    return {
        "ids": random.integers(0, VOCAB, (rows, N)).astype(np.int32),
        "mask": np.arange(N)[None] < lengths[:, None],
        "labels": random.integers(0, VOCAB, rows).astype(np.int32),
    }


LOSSES = {
    "classification": lambda **o: classification(of_first, **o),
    "regression": lambda **o: regression(of_first, **o),
    "causal": lambda **o: causal_lm(tokenwise, **o),
}


@pytest.mark.parametrize("name", LOSSES)
def test_rows_that_fill_a_batch_count_nothing(name):
    loss, key = jax.jit(LOSSES[name]()), jax.random.key(0)
    whole = batch()
    part = {k: v[:4] for k, v in whole.items()}
    filled = whole | {"valid": np.arange(ROWS) < 4}
    expected, given = (loss(TABLE, b, key) for b in (part, filled))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), expected, given)
    assert given[0].weight < loss(TABLE, whole, key)[0].weight


def test_causal_against_the_sum_by_hand():
    data = batch()
    tally, tallies = causal_lm(tokenwise)(TABLE, data, jax.random.key(0))
    log_p = np.asarray(jax.nn.log_softmax(TABLE))
    total, right, weight = 0.0, 0, 0
    for ids, mask in zip(data["ids"], data["mask"], strict=True):
        for this, following in itertools.pairwise(ids[mask]):
            total -= log_p[this, following]
            right += int(log_p[this].argmax() == following)
            weight += 1
    np.testing.assert_allclose(tally.total, total, rtol=1e-5)
    assert tally.weight == tallies["accuracy"].weight == weight
    assert tallies["accuracy"].total == right


def test_models_are_told_what_a_batch_has_of_its_tokens_and_a_key_in_training():
    told, data, key = [], batch(), jax.random.key(0)

    def note(apply):
        def noted(*args, mask, dropout_key, **others):
            told.append((dropout_key is not None, others))
            return apply(*args, mask=mask, dropout_key=dropout_key)

        return noted

    others = {kind: data["ids"] + i for i, kind in enumerate(("segments", "positions"))}
    for train in (True, False):
        for make in (
            lambda **o: classification(note(of_first), **o),
            lambda **o: regression(note(of_first), **o),
            lambda **o: causal_lm(note(tokenwise), **o),
            lambda **o: masked_lm(note(at_places), vocab_size=VOCAB, mask_id=0, **o),
        ):
            loss = make(train=train)
            jax.eval_shape(lambda: loss(TABLE, data | others | {"else": data["ids"]}, key))  # noqa: B023
            jax.eval_shape(lambda: loss(TABLE, data, key))  # noqa: B023
            assert told == [(train, others), (train, {})]
            told.clear()


def test_packed_rows_are_trained_on_as_rows_of_their_own():
    sizes = nn.TransformerConfig(vocab_size=VOCAB, dim=8, num_layers=1, num_heads=2)
    decoder = nn.Decoder(sizes, encoding=encodings.alibi(num_heads=2), rngs=nnx.Rngs(0))
    apply, params = nn.functionalize(nn.CausalLM(decoder, rngs=nnx.Rngs(1)))
    rows = np.random.default_rng(0).integers(0, VOCAB, (2, 4)).astype(np.int32)
    alone = {"ids": rows, "mask": np.ones((2, 4), bool)}
    segments = np.repeat(np.arange(2), 4)[None]
    packed = {
        "ids": rows.reshape(1, 8),
        "mask": np.ones((1, 8), bool),
        "segments": segments,
        "positions": np.asarray(nn.packed_positions(segments)),
    }
    loss = causal_lm(apply, train=False)
    expected, found = (jax.jit(loss)(params, b, jax.random.key(0)) for b in (alone, packed))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, expected)
    assert found[0].weight == found[1]["accuracy"].weight == 6


def test_regression_against_numpy():
    data = batch() | {"labels": np.linspace(0, 1, ROWS)}
    tally, tallies = regression(of_first)(TABLE, data, jax.random.key(0))
    expected = (np.asarray(TABLE)[data["ids"][:, 0], 0] - data["labels"]) ** 2
    np.testing.assert_allclose(tally.mean, expected.mean(), rtol=1e-6)
    assert tallies == {}


def test_masked_is_the_loss_over_all_selected_tokens():
    data, key = batch(), jax.random.key(3)
    loss = masked_lm(at_places, vocab_size=VOCAB, mask_id=3, special_ids=(0, 1))
    tally, tallies = loss(TABLE, data, key)
    masked = mask_tokens(
        jax.random.split(key, 3)[0],
        data["ids"],
        mask=data["mask"],
        vocab_size=VOCAB,
        mask_id=3,
        special_ids=(0, 1),
    )
    everywhere = cross_entropy(TABLE[masked.ids], masked.targets, mask=masked.selected)
    assert 5 < tally.weight == everywhere.weight == tallies["accuracy"].weight
    np.testing.assert_allclose(tally.total, everywhere.total, rtol=1e-5)
    assert not np.isin(data["ids"][np.asarray(masked.selected)], (0, 1)).any()
    assert not np.asarray(masked.selected)[~data["mask"]].any()


def test_where_too_many_are_selected_the_guessed_are_drawn_among_them():
    selected = jnp.asarray(np.arange(30)[None] % 3 < 2)  # 20 of 30
    draw = jax.jit(jax.vmap(lambda key: loss_positions(key, selected, rate=0.1)))
    places, guessed = draw(jax.random.split(jax.random.key(0), 600))
    assert guessed.all()
    assert places.shape[-1] == 8  # 3 expected, and three deviations of 1.64
    times = np.bincount(np.asarray(places).ravel(), minlength=30)
    assert (times[2::3] == 0).all()
    assert times.sum() == 600 * 8
    assert all(len(set(row)) == 8 for row in np.asarray(places)[:, 0].tolist())
    # Each of the 20 is guessed in 8 of 20 draws, 240 of 600, with a deviation of 12.
    np.testing.assert_allclose(times[np.asarray(selected[0])], 240, atol=60)


def test_logits_at_places_are_those_of_the_whole_model():
    sizes = nn.TransformerConfig(vocab_size=VOCAB, dim=8, num_layers=1, num_heads=2)
    encoder = nn.Encoder(sizes, encoding=encodings.alibi(num_heads=2), rngs=nnx.Rngs(0))
    model = nn.MaskedLM(encoder, rngs=nnx.Rngs(1))
    apply, params = nn.functionalize(model)
    chosen, same = nn.functionalize(model, logits_at)
    data = batch()
    places = jnp.asarray(np.random.default_rng(1).integers(0, N, (ROWS, 5)))
    options = {"mask": data["mask"]}
    whole = jax.jit(apply)(params, data["ids"], **options).logits
    few = jax.jit(chosen)(same, data["ids"], places, **options)
    expected = jnp.take_along_axis(whole, places[..., None], axis=1)
    np.testing.assert_allclose(few, expected, atol=1e-5)


def test_a_translation_counts_no_padding_and_no_rows_that_fill_a_batch():
    following = 9.0 * jnp.roll(jnp.eye(6), 1, axis=1)

    def apply(params, ids, decoder_ids, **options):
        return Output(params[decoder_ids])

    batch = {
        "ids": jnp.zeros((4, 2), jnp.int32),
        "mask": jnp.ones((4, 2), bool),
        "labels": jnp.array([[2, 3, 4], [2, 3, 0], [2, 4, 0], [5, 5, 5]]),
        "valid": jnp.array([True, True, True, False]),
    }
    tally, tallies = translation(apply, bos_id=1)(following, batch, jax.random.key(3))
    assert float(tally.weight) == 7
    assert float(tallies["accuracy"].total) == 6
    assert (float(tallies["exact"].total), float(tallies["exact"].weight)) == (2, 3)
