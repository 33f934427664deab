"""Laws of the encoder–decoder: what each side sees, caches, padding, packing, generation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy.special import softmax

import jaxpe
from jaxpe import nn
from jaxpe._core.errors import InputError
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
close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)


class Made:
    """A language model on an encoder–decoder, and its programs, each compiled once."""

    def __init__(self, cross_encoding, **changes):
        own = config(**changes)
        sides = encoding_for("t5"), encoding_for("rope"), cross_encoding

        def make():
            return nn.Seq2SeqLM(encoder_decoder(own, *sides), rngs=nnx.Rngs(2))

        self.shapes = shapes_of(make)
        apply, self.params = filled(self.shapes)
        self.model = nnx.merge(nnx.split(self.shapes)[0], self.params)
        self.whole = partial(jax.jit(apply), self.params)
        self.cached = partial(jax.jit(self._cached), self.params)

    def logits(self, **changes):
        options = WHOLE | changes
        ids, answers = options.pop("ids", IDS), options.pop("answers", ANSWERS)
        return self.whole(ids, answers, **options).logits

    def _cached(self, params, ids, answers, mask, positions):
        """Logits of answers that come in two parts."""
        model = nnx.merge(nnx.split(self.shapes)[0], params)
        memory = model.transformer.encode(ids, mask=mask, positions=positions)
        cache = model.transformer.decoder.empty_cache(batch=ROWS, slots=SHORT, memory=memory)
        first = model.decode(answers[:, :1], cache=cache)
        rest = model.decode(answers[:, 1:], cache=first.transformer.cache)
        return jnp.concatenate([first.logits, rest.logits], axis=1)


CROSS = {"none": jaxpe.identity(), "rope": encoding_for("rope"), "shaw": encoding_for("shaw")}


@pytest.fixture(scope="module", params=CROSS)
def made(request):
    return Made(CROSS[request.param])


@pytest.fixture(scope="module")
def rotary():
    return Made(encoding_for("rope"))


def test_cached_decoding_equals_the_whole(made):
    mask = WHOLE["mask"].copy()
    mask[1, 4:] = False
    whole = made.logits(mask=mask)
    close(made.cached(IDS, ANSWERS, mask, WHOLE["positions"]), whole)


def test_padding_of_either_side_changes_nothing(rotary):
    """On the left and on the right, of both sides at once; row 2 has no padding."""
    whole = rotary.logits()
    longer = np.full((ROWS, N), 7, np.int32)
    changes = {"ids": longer, "answers": np.full((ROWS, SHORT), 7, np.int32)}
    left, right = slice(2, None), slice(None, N - 2)
    for kept in (left, right):
        ids, answers = IDS.copy(), ANSWERS.copy()
        mask, decoder_mask = np.zeros((ROWS, N), bool), np.zeros((ROWS, SHORT), bool)
        mask[:, kept] = True
        decoder_mask[:, : SHORT - 1] = True
        ids[:, kept], answers[:, -1] = IDS[:, :-2], 7
        positions = np.asarray(nn.padded_positions(mask))
        changes = {"ids": ids, "mask": mask, "positions": positions}
        found = rotary.logits(**changes, answers=answers, decoder_mask=decoder_mask)
        short = rotary.logits(mask=PLACES[None] < [[N - 2]] * ROWS)
        close(found[:, :-1], short[:, :-1])
        assert np.abs(found[:, :-1] - whole[:, :-1]).max() > 1e-3


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


def test_cross_attention_depends_on_positions_only_where_it_has_an_encoding(made, request):
    """Both sides encode offsets alone, so only cross-attention tells a shift of one of them."""
    shifted = made.logits(positions=WHOLE["positions"] + 5)
    moved = np.abs(shifted - made.logits()).max()
    kind = request.node.callspec.params["made"]
    assert (moved < 1e-9) == (kind == "none")
    both = made.logits(
        positions=WHOLE["positions"] + 5, decoder_positions=WHOLE["decoder_positions"] + 5
    )
    close(both, made.logits())


def test_packed_rows_equal_their_documents(rotary):
    """Two documents in a row, with positions that start anew on both sides."""
    segments = np.broadcast_to(np.repeat([1, 2], N // 2), (ROWS, N))
    decoder_segments = np.broadcast_to(np.repeat([1, 2], SHORT // 2), (ROWS, SHORT))
    packed = {
        "segments": segments,
        "decoder_segments": decoder_segments,
        "positions": np.asarray(nn.packed_positions(segments)),
        "decoder_positions": np.asarray(nn.packed_positions(decoder_segments)),
    }
    found = rotary.logits(**packed)
    for number in (1, 2):
        own, answers = segments == number, decoder_segments == number
        alone = rotary.logits(
            mask=own,
            decoder_mask=answers,
            positions=packed["positions"],
            decoder_positions=packed["decoder_positions"],
        )
        close(np.asarray(found)[answers], np.asarray(alone)[answers])
    with pytest.raises(ValueError, match="pass segments"):
        rotary.model(IDS, ANSWERS, segments=segments)


@pytest.mark.parametrize("changes", [{"scan": False, "remat": True}], ids=["unrolled_remat"])
def test_compilation_changes_neither_values_nor_gradients(rotary, changes):
    other = Made(encoding_for("rope"), **changes)

    def slope(made):
        graphdef = nnx.split(made.shapes)[0]

        def loss(params):
            out = nnx.merge(graphdef, params)(IDS, ANSWERS)
            return jnp.sum(out.logits[..., 0])

        return jax.jit(jax.value_and_grad(loss))(rotary.params)

    found, expected = slope(other), slope(rotary)
    jax.tree.map(close, found, expected)
    for leaf in jax.tree.leaves(expected[1]["transformer"]["decoder"]["layers"]["cross_attention"]):
        assert np.abs(leaf).max() > 0


def test_a_trace_has_the_attention_between_the_sides(rotary):
    seen = jax.device_get(jax.jit(lambda: rotary.model(IDS, ANSWERS, trace=True))())
    assert seen.decoder.cross_weights.shape == (2, ROWS, HEADS, SHORT, N)
    close(seen.decoder.cross_weights.sum(-1), 1.0)
    close(softmax(seen.decoder.cross_logits, axis=-1), seen.decoder.cross_weights)
    memory = nn.Memory(seen.encoder.hidden)
    sides = rotary.model.transformer

    @jax.jit
    def hidden():
        vectors = sides.encoder.tokens(jnp.asarray(ANSWERS))
        return sides.decoder(ANSWERS, vectors=vectors, memory=memory).hidden

    close(hidden(), seen.decoder.hidden)


def test_heads_of_both_sides_split(rotary):
    sides = rotary.model.transformer
    parts = nn.split_heads(sides.encoder, IDS)
    encoder = jax.device_get(jax.jit(lambda: sides.encoder(IDS, trace=True))())
    close(parts.logits, encoder.logits[:1])
    own = encoder_decoder(
        config(num_layers=1), *(encoding_for("rope"),) * 3, layer_encoding=jaxpe.identity()
    ).decoder
    own.tokens = sides.encoder.tokens
    parts = nn.split_heads(own, ANSWERS, memory=nn.Memory(encoder.hidden))
    q, k = parts.q_content + parts.q_position, parts.k_content + parts.k_position
    i = parts.positions
    params = jax.tree.map(lambda leaf: leaf[0], parts.params)
    logits = jaxpe.attention_logits(
        nn.head_encoding(own), params, q[0], k[0], q_positions=i, k_positions=i
    )
    close(logits, parts.logits[0])


# Generation.


def test_greedy_generation_is_the_likeliest_token_of_the_whole(rotary):
    mask = np.ones((ROWS, N), bool)
    mask[0, :2] = False
    tokens = np.asarray(nn.generate(rotary.model, IDS, steps=SHORT, start_id=1, mask=mask))
    answers = np.concatenate([np.ones((ROWS, 1), np.int32), tokens[:, :-1]], axis=1)
    places = np.asarray(nn.padded_positions(mask))
    logits = rotary.logits(answers=answers, mask=mask, positions=places)
    np.testing.assert_array_equal(tokens, logits.argmax(-1))
    end = int(tokens[0, 1])
    ended = np.asarray(
        nn.generate(rotary.model, IDS, steps=SHORT, start_id=1, mask=mask, end_id=end)
    )
    for row, whole in zip(ended, tokens, strict=True):
        stop = np.append(np.flatnonzero(whole == end), SHORT)[0]
        assert row.tolist() == [*whole[:stop], *[end] * (SHORT - stop)]


def test_sampling_is_a_function_of_the_key(rotary):
    draw = partial(nn.generate, rotary.model, IDS, steps=SHORT, start_id=1, temperature=2.0)
    one, again, other = (draw(key=jax.random.key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert ((one >= 0) & (one < VOCAB)).all()


# Refusals: each says what to pass.


@pytest.mark.parametrize("name", [n for n in ONE_OF_EACH_KIND if coordinates(n) == 1])
def test_every_kind_of_encoding_works_in_cross_attention_or_is_refused(name):
    encoding = encoding_for(name)

    def hidden():
        own = nn.Decoder(config(num_layers=1), cross_encoding=encoding, rngs=nnx.Rngs(0))
        return own(ANSWERS, memory=nn.Memory(jnp.zeros((ROWS, N, 8)))).hidden

    alone = isinstance(encoding, jaxpe.Encoding)
    if alone and not (encoding.defines("embed") or encoding.defines("context")):
        assert jax.eval_shape(hidden).shape == (ROWS, SHORT, 8)
        return
    with pytest.raises(ValueError, match="cross_encoding"):
        jax.eval_shape(hidden)


def test_what_does_not_go_together_is_refused():
    below = nn.Encoder(config(), rngs=nnx.Rngs(0))
    plain = nn.Decoder(config(), rngs=nnx.Rngs(0))
    make = partial(nn.Decoder, cross_encoding=jaxpe.identity(), rngs=nnx.Rngs(0))
    crossing = make(config())
    for sides, remedy in (
        ((below, plain), "cross_encoding"),
        ((plain, crossing), "Encoder"),
        ((below, make(config(dim=12, head_dim=4))), "dim=8"),
        ((below, make(config(vocab_size=9))), "share_embeddings=False"),
    ):
        with pytest.raises(ValueError, match=remedy):
            nn.EncoderDecoder(*sides)
    with pytest.raises(ValueError, match="memory"):
        crossing(ANSWERS)
    with pytest.raises(ValueError, match="no cross-attention"):
        plain(ANSWERS, memory=nn.Memory(jnp.zeros((ROWS, N, 8))))
    for memory, wrong in (
        (nn.Memory(), "neither"),
        (nn.Memory(jnp.zeros((2, N, 8))), "hidden states of shape"),
        (nn.Memory(jnp.zeros((ROWS, N, 4))), "hidden states of shape"),
        (nn.Memory(jnp.zeros((ROWS, N, 8)), mask=np.ones((ROWS, N - 1), bool)), "mask"),
    ):
        with pytest.raises(ValueError, match=wrong):
            crossing(ANSWERS, memory=memory)
    with pytest.raises(ValueError, match="hidden states"):
        plain.cache_memory(nn.Memory(jnp.zeros((ROWS, N, 8))))


def test_a_model_of_two_transformers_asks_which(rotary):
    with pytest.raises(InputError, match=r"model\.transformer\.encoder"):
        nn.trunk(rotary.model)
    with pytest.raises(InputError, match=r"model\.decoder"):
        nn.split_heads(rotary.model.transformer, IDS)
    with pytest.raises(ValueError, match="vectors="):
        rotary.model.transformer.decoder(ANSWERS, memory=nn.Memory(jnp.zeros((ROWS, N, 8))))


@pytest.mark.parametrize(
    ("options", "wrong"),
    [({}, "start_id"), ({"start_id": VOCAB}, "start_id"), ({"start_id": 0, "steps": 0}, "steps")],
    ids=["none", "beyond", "steps"],
)
def test_generation_says_what_it_needs(rotary, options, wrong):
    with pytest.raises(ValueError, match=wrong):
        nn.generate(rotary.model, IDS, **{"steps": 2, **options})


def test_a_decoder_alone_has_no_first_token():
    own = nn.CausalLM(nn.Decoder(config(num_layers=1), rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1))
    with pytest.raises(ValueError, match="start_id"):
        nn.generate(own, IDS, steps=1, start_id=0)


def test_a_table_that_ends_is_refused_before_anything_is_made():
    sizes = config(num_layers=1)
    short = jaxpe.learned(length=3, dim=8)
    below = nn.Encoder(sizes, encoding=short, rngs=nnx.Rngs(0))
    decoder = nn.Decoder(sizes, cross_encoding=jaxpe.identity(), rngs=nnx.Rngs(1))
    model = nn.Seq2SeqLM(nn.EncoderDecoder(below, decoder), rngs=nnx.Rngs(2))
    with pytest.raises(ValueError, match="position"):
        nn.generate(model, IDS, steps=1, start_id=0)
