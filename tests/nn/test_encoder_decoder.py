"""Laws of the encoder–decoder: what each side sees, caches, padding, packing, generation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy.special import softmax

from jaxpe import encodings, nn
from jaxpe._core.errors import InputError
from jaxpe.nn.cross import Memory
from jaxpe.nn.heads import trunk
from tests.encodings.kinds import ONE_OF_EACH_KIND
from tests.nn.models import (
    HEADS,
    VOCAB,
    N,
    config,
    coordinates,
    encoder_decoder,
    encoding_for,
    filled,
    shapes_of,
    some_ids,
)

# The decoder's rows are shorter, so that no axis of one side passes for one of the other.
ROWS, SHORT = 3, N - 2
IDS, ANSWERS = some_ids(ROWS, N), some_ids(ROWS, SHORT, seed=1)
PLACES, SHORT_PLACES = np.arange(N, dtype=np.int32), np.arange(SHORT, dtype=np.int32)
WHOLE = {
    "mask": np.ones((ROWS, N), bool),
    "positions": np.broadcast_to(PLACES, (ROWS, N)),
    "decoder_mask": np.ones((ROWS, SHORT), bool),
    "decoder_positions": np.broadcast_to(SHORT_PLACES, (ROWS, SHORT)),
}
MEMORY = Memory(jnp.zeros((ROWS, N, 8)))
close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)


class Made:
    """A language model on an encoder–decoder, and its programs, each compiled once."""

    def __init__(self, cross_encoding):
        sides = encoding_for("t5"), encoding_for("rope"), cross_encoding

        def make():
            return nn.Seq2SeqLM(encoder_decoder(config(), *sides), rngs=nnx.Rngs(2))

        shapes = shapes_of(make)
        apply, self.params = filled(shapes)
        self.graphdef = nnx.split(shapes)[0]
        self.model = nnx.merge(self.graphdef, self.params)
        self.whole = partial(jax.jit(apply), self.params)
        self.cached = partial(jax.jit(self._cached), self.params)

    def logits(self, **changes):
        options = WHOLE | changes
        ids, answers = options.pop("ids", IDS), options.pop("answers", ANSWERS)
        return self.whole(ids, answers, **options).logits

    def _cached(self, params, ids, answers, mask, positions):
        """Logits of answers that come in two parts."""
        model = nnx.merge(self.graphdef, params)
        memory = model.transformer.encode(ids, mask=mask, positions=positions)
        cache = model.transformer.decoder.empty_cache(batch=ROWS, slots=SHORT, memory=memory)
        first = model.decode(answers[:, :1], cache=cache)
        rest = model.decode(answers[:, 1:], cache=first.transformer.cache)
        return jnp.concatenate([first.logits, rest.logits], axis=1)


@pytest.fixture(scope="module")
def rotary():
    return Made(encoding_for("rope"))


def test_cached_decoding_equals_the_whole(rotary):
    mask = WHOLE["mask"].copy()
    mask[1, 4:] = False
    close(rotary.cached(IDS, ANSWERS, mask, WHOLE["positions"]), rotary.logits(mask=mask))


def test_padding_of_either_side_changes_nothing(rotary):
    """On the left and on the right of the encoder, on the right of the decoder."""
    whole, short = rotary.logits(), rotary.logits(mask=PLACES[None] < [[N - 2]] * ROWS)
    assert np.abs(short - whole).max() > 1e-3
    answers, decoder_mask = ANSWERS.copy(), WHOLE["decoder_mask"].copy()
    answers[:, -1], decoder_mask[:, -1] = 7, False
    for kept in (slice(2, None), slice(None, N - 2)):
        ids, mask = np.full((ROWS, N), 7, np.int32), np.zeros((ROWS, N), bool)
        mask[:, kept], ids[:, kept] = True, IDS[:, :-2]
        changes = {"mask": mask, "positions": np.asarray(nn.padded_positions(mask))}
        found = rotary.logits(ids=ids, answers=answers, decoder_mask=decoder_mask, **changes)
        close(found[:, :-1], short[:, :-1])


def test_padding_on_the_left_of_the_decoder(rotary):
    answers = np.roll(ANSWERS, 1, axis=1)
    mask = np.broadcast_to(SHORT_PLACES > 0, answers.shape)
    places = np.asarray(nn.padded_positions(mask))
    found = rotary.logits(answers=answers, decoder_mask=mask, decoder_positions=places)
    close(found[:, 1:], rotary.logits()[:, :-1])


def test_the_decoder_looks_back_only_and_at_all_of_the_encoder(rotary):
    whole = rotary.logits()
    for place in range(SHORT):
        answers = ANSWERS.copy()
        answers[:, place] = (answers[:, place] + 1) % VOCAB
        moved = np.abs(rotary.logits(answers=answers) - whole).max(axis=(0, 2)) > 1e-6
        assert moved.tolist() == [i >= place for i in range(SHORT)]
    for place in range(N):
        ids = IDS.copy()
        ids[:, place] = (ids[:, place] + 1) % VOCAB
        assert (np.abs(rotary.logits(ids=ids) - whole).max(axis=(0, 2)) > 1e-6).all()


@pytest.mark.parametrize("has_positions", [True, False])
def test_cross_attention_depends_on_positions_only_where_it_has_an_encoding(rotary, has_positions):
    """Both sides encode offsets alone, so only cross-attention tells a shift of one of them."""
    made = rotary if has_positions else Made(encodings.identity())
    shifted = {"positions": WHOLE["positions"] + 5}
    moved = np.abs(made.logits(**shifted) - made.logits()).max()
    assert (moved > 1e-9) == has_positions
    both = made.logits(**shifted, decoder_positions=WHOLE["decoder_positions"] + 5)
    close(both, made.logits())


def test_packed_rows_equal_their_documents(rotary):
    """Two documents in a row, with positions that start anew on both sides."""
    segments = np.broadcast_to(np.repeat([1, 2], N // 2), (ROWS, N))
    decoder_segments = np.broadcast_to(np.repeat([1, 2], SHORT // 2), (ROWS, SHORT))
    positions = {
        "positions": np.asarray(nn.packed_positions(segments)),
        "decoder_positions": np.asarray(nn.packed_positions(decoder_segments)),
    }
    found = rotary.logits(segments=segments, decoder_segments=decoder_segments, **positions)
    for number in (1, 2):
        own, answers = segments == number, decoder_segments == number
        alone = rotary.logits(mask=own, decoder_mask=answers, **positions)
        close(np.asarray(found)[answers], np.asarray(alone)[answers])
    with pytest.raises(ValueError, match="segments"):
        rotary.model(IDS, ANSWERS, segments=segments)


def test_a_trace_has_the_attention_between_the_sides(rotary):
    """And hidden states of the encoder are what the decoder takes as memory."""
    sides = rotary.model.transformer

    @jax.jit
    def run():
        seen = rotary.model(IDS, ANSWERS, trace=True)
        vectors = sides.encoder.tokens(jnp.asarray(ANSWERS))
        memory = Memory(seen.encoder.hidden)
        return seen, sides.decoder(ANSWERS, vectors=vectors, memory=memory).hidden

    seen, hidden = jax.device_get(run())
    assert seen.decoder.cross_weights.shape == (2, ROWS, HEADS, SHORT, N)
    close(softmax(seen.decoder.cross_logits, axis=-1), seen.decoder.cross_weights)
    close(hidden, seen.decoder.hidden)


def test_greedy_generation_is_the_likeliest_token_of_the_whole(rotary):
    mask = WHOLE["mask"].copy()
    mask[0, :2] = False
    tokens = np.asarray(nn.generate(rotary.model, IDS, steps=SHORT, start_id=1, mask=mask))
    answers = np.concatenate([np.ones((ROWS, 1), np.int32), tokens[:, :-1]], axis=1)
    places = np.asarray(nn.padded_positions(mask))
    logits = rotary.logits(answers=answers, mask=mask, positions=places)
    np.testing.assert_array_equal(tokens, logits.argmax(-1))


# Refusals: each says what to pass.


@pytest.mark.parametrize("name", [n for n in ONE_OF_EACH_KIND if coordinates(n) == 1])
def test_every_kind_of_encoding_works_in_cross_attention_or_is_refused(name):
    encoding = encoding_for(name)

    def hidden():
        own = nn.Decoder(config(num_layers=1), cross_encoding=encoding, rngs=nnx.Rngs(0))
        return own(ANSWERS, memory=MEMORY).hidden

    alone = isinstance(encoding, encodings.Encoding)
    if alone and not (encoding.defines("embed") or encoding.defines("context")):
        assert jax.eval_shape(hidden).shape == (ROWS, SHORT, 8)
        return
    with pytest.raises(ValueError, match="cross_encoding"):
        jax.eval_shape(hidden)


def test_what_does_not_go_together_is_refused(rotary):
    make = partial(nn.Decoder, cross_encoding=encodings.identity(), rngs=nnx.Rngs(0))
    below, plain, crossing = shapes_of(
        lambda: [
            nn.Encoder(config(), rngs=nnx.Rngs(0)),
            nn.Decoder(config(), rngs=nnx.Rngs(0)),
            make(config()),
        ]
    )
    for sides, remedy in (
        ((below, plain), "cross_encoding"),
        ((plain, crossing), "Encoder"),
        ((below, shapes_of(lambda: make(config(dim=12, head_dim=4)))), "dim=8"),
        ((below, shapes_of(lambda: make(config(vocab_size=9)))), "share_embeddings=False"),
    ):
        with pytest.raises(ValueError, match=remedy):
            nn.EncoderDecoder(*sides)
    for decoder, memory, wrong in (
        (crossing, None, "memory"),
        (plain, MEMORY, "no cross-attention"),
        (crossing, Memory(), "neither"),
        (crossing, Memory(jnp.zeros((2, N, 8))), "shape"),
        (crossing, MEMORY._replace(mask=np.ones((ROWS, N - 1), bool)), "mask"),
        (rotary.model.transformer.decoder, MEMORY, "vectors="),
    ):
        with pytest.raises(ValueError, match=wrong):
            jax.eval_shape(lambda: decoder(ANSWERS, memory=memory).hidden)  # noqa: B023
    with pytest.raises(InputError, match="encoder"):  # which of two transformers
        trunk(rotary.model)
    for options in ({}, {"start_id": VOCAB}, {"start_id": 0, "steps": 0}):
        with pytest.raises(ValueError, match="st"):
            nn.generate(rotary.model, IDS, **{"steps": 2} | options)
