"""Classifier, language models, generation, masks."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe import nn
from jaxpe.nn.generate import _next_token, _Sampling, _top_logits
from tests.nn.models import (
    BLOCKS,
    DIM,
    VOCAB,
    config,
    encoder_decoder,
    encoding_for,
    shapes_of,
    some_ids,
    split,
)


def classifier(pooling="mean", **changes):
    def make():
        encoder = nn.Encoder(config(**changes), encoding=encoding_for("rope"), rngs=nnx.Rngs(0))
        return nn.Classifier(encoder, num_classes=3, pooling=pooling, pooler=True, rngs=nnx.Rngs(1))

    return split(make)


def language_model(encoding="rope", **changes):
    def make():
        decoder = nn.Decoder(config(**changes), encoding=encoding_for(encoding), rngs=nnx.Rngs(0))
        return nn.CausalLM(decoder, rngs=nnx.Rngs(1))

    apply, params = split(make)
    graphdef, _ = nnx.split(shapes_of(make), nnx.Param)
    return apply, params, lambda params: nnx.merge(graphdef, params)


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_classes_do_not_depend_on_padding(pooling):
    apply, params = classifier(pooling)
    ids, mask = some_ids(2, 6), np.arange(6) < 4

    @jax.jit
    def run(params):
        return apply(params, ids, mask=mask).logits, apply(params, ids[:, :4]).logits

    padded, short = run(params)
    assert padded.shape == (2, 3)
    np.testing.assert_allclose(padded, short, atol=1e-12)


DROPPED = {"dropout": 0.5, "attention_dropout": 0.5}


@pytest.mark.parametrize("kind", ["plain", "latent", "post_norm", "swiglu", "unrolled", "remat"])
def test_every_mask_of_dropout_has_a_key_of_its_own(kind):
    apply, params = classifier(**DROPPED | BLOCKS[kind])
    check_keys(lambda params, key: apply(params, IDS, dropout_key=key).logits, params)


def test_both_sides_drop_out_by_keys_of_their_own():
    none = jaxpe.identity()
    apply, params = split(lambda: encoder_decoder(config(**DROPPED), none, none, none))
    check_keys(lambda params, key: apply(params, IDS, IDS, dropout_key=key).hidden, params)


IDS = some_ids(2, 6)


def check_keys(run, params):
    with jax.debug_key_reuse(True):
        jax.make_jaxpr(run)(params, jax.random.key(0))


def test_the_trunk_is_below_every_head():
    def check():
        encoder = nn.Encoder(config(tie_embeddings=True), rngs=nnx.Rngs(0))
        decoder = nn.Decoder(config(), rngs=nnx.Rngs(0))
        for model in (
            nn.Classifier(encoder, num_classes=2, rngs=nnx.Rngs(1)),
            nn.MaskedLM(encoder, rngs=nnx.Rngs(1)),
            nn.Regressor(encoder, inputs=1, outputs=1, rngs=nnx.Rngs(1)),
            encoder,
        ):
            assert nn.trunk(model) is encoder
        assert nn.trunk(nn.CausalLM(decoder, rngs=nnx.Rngs(1))) is decoder
        with pytest.raises(ValueError, match="Linear has no transformer"):
            nn.trunk(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))

    jax.eval_shape(check)  # no parameter is drawn


def test_pooling():
    hidden, pooled = np.arange(12.0).reshape(2, 3, 2), jax.jit(nn.pooled, static_argnames="pooling")
    mask = np.array([[True, True, False], [False] * 3])
    np.testing.assert_array_equal(pooled(hidden, mask), [[1.0, 2.0], [0.0, 0.0]])
    np.testing.assert_array_equal(pooled(hidden, pooling="first"), hidden[:, 0])
    np.testing.assert_array_equal(pooled(hidden), hidden.mean(1))
    np.testing.assert_array_equal(pooled(hidden, mask, pooling="last"), hidden[[0, 1], [1, 2]])
    padded = pooled(hidden, mask, pooling="mean_padded")
    np.testing.assert_array_equal(padded, hidden.mean(1))
    large = np.full((1, 512, 4), 300.0, np.float16)
    assert np.all(np.asarray(pooled(large, np.ones((1, 512), bool))) == 300)


def test_a_classifier_on_a_decoder_looks_at_the_end():
    def make(pooling="last"):
        decoder = nn.Decoder(config(), encoding=encoding_for("rope"), rngs=nnx.Rngs(0))
        return nn.Classifier(decoder, num_classes=2, pooling=pooling, rngs=nnx.Rngs(1))

    with pytest.raises(ValueError, match="first token of a decoder"):
        shapes_of(lambda: make("first"))
    model = jax.jit(make)()
    ids = some_ids(1, 4)
    padded = np.concatenate([ids, some_ids(1, 2, seed=2)], axis=1)
    mask = np.arange(6)[None] < 4
    both = jax.jit(lambda model: (model(padded, mask=mask).logits, model(ids).logits))(model)
    np.testing.assert_allclose(*both, atol=1e-12)


def test_misspelt_pooling_is_refused(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match="pooling is 'cls'; pass one of first, last, mean"):
        nn.pooled(jnp.ones((2, 3)), pooling="cls")


def test_logits_of_narrow_models_are_summed_in_float32():
    narrow = {"dtype": jnp.bfloat16, "param_dtype": jnp.float32}
    for changes in (narrow, narrow | {"tie_embeddings": False}):
        apply, params, _ = language_model(**changes)
        logits = np.asarray(jax.jit(apply)(params, some_ids(2, 5)).logits)
        assert logits.dtype == jnp.float32
        assert (logits != logits.astype(jnp.bfloat16).astype(jnp.float32)).mean() > 0.5


def test_tied_logits_are_products_with_the_embeddings():
    apply, params, _ = language_model()
    out = jax.jit(apply)(params, some_ids(2, 5))
    table = params["decoder"]["tokens"]["embedding"].get_value()
    hidden = np.asarray(out.transformer.hidden)
    np.testing.assert_allclose(out.logits, hidden @ np.asarray(table).T, atol=1e-12)
    untied, params, _ = language_model(tie_embeddings=False)
    assert params["output"]["kernel"].shape == (DIM, VOCAB)
    assert jax.eval_shape(untied, params, some_ids(2, 5)).logits.shape == (2, 5, VOCAB)


def test_the_masked_head_takes_chosen_tokens():
    def make():
        encoder = nn.Encoder(config(), encoding=encoding_for("learned"), rngs=nnx.Rngs(0))
        return nn.MaskedLM(encoder, rngs=nnx.Rngs(1))

    @jax.jit
    def run(ids):
        model, places = make(), np.array([1, 4])
        whole = model(ids)
        return model.head(whole.transformer.hidden[:, places]), whole.logits[:, places]

    np.testing.assert_allclose(*run(some_ids(2, 6)), atol=1e-12)


@pytest.mark.parametrize("encoding", ["rope", "learned", "t5", "shaw", "cope"])
def test_generation_equals_choosing_from_the_whole_row_again_and_again(encoding):
    """Prompts of two lengths, padded on the left or on the right, against each alone."""
    apply, params, model = language_model(encoding, num_layers=1)
    prompts = [some_ids(4), some_ids(2, seed=1)]
    steps = 4
    expected = []
    whole = jax.jit(lambda p, i: apply(p, i).logits)
    for prompt in prompts:
        row = list(prompt)
        for _ in range(steps):
            padded = np.zeros(8, np.int32)
            padded[: len(row)] = row
            row.append(int(np.asarray(whole(params, padded))[len(row) - 1].argmax()))
        expected.append(row[-steps:])
    run = jax.jit(lambda p, i, m: nn.generate(model(p), i, mask=m, steps=steps))
    for left in (True, False):
        ids, mask = np.zeros((2, 4), np.int32), np.zeros((2, 4), bool)
        for i, prompt in enumerate(prompts):
            place = slice(4 - len(prompt), 4) if left else slice(0, len(prompt))
            ids[i, place], mask[i, place] = prompt, True
        assert run(params, ids, mask).tolist() == expected


def test_sampling():
    _, params, model = language_model(num_layers=1)
    prompt = np.broadcast_to(some_ids(3), (200, 3))
    sampled = jax.jit(
        lambda p, key, **o: nn.generate(model(p), prompt, steps=2, key=key, temperature=1.0, **o),
        static_argnames=("top_k", "top_p"),
    )

    def run(*args, **options):
        return np.asarray(sampled(*args, **options))

    one, same, other = (run(params, jax.random.key(k)) for k in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
    few = run(params, jax.random.key(0), top_k=2)
    assert len(np.unique(few[:, 0])) <= 2 < len(np.unique(one[:, 0]))
    tokens, counts = np.unique(one[:, 0], return_counts=True)
    likely = run(params, jax.random.key(0), top_p=0.5)
    assert set(np.unique(likely[:, 0])) < set(tokens)
    assert tokens[counts.argmax()] in likely[:, 0]
    greedy = np.asarray(nn.generate(model(params), prompt[:1], steps=1))[0, 0]
    sure = run(params, jax.random.key(0), top_k=1)
    assert (sure[:, 0] == greedy).all()


def test_a_nucleus_is_of_the_probabilities_at_the_temperature():
    logits = np.broadcast_to(np.log([0.9, 0.05, 0.05]), (200, 3))
    key, flat = jax.random.key(0), _Sampling(1e6, None, 0.5)
    choose = jax.jit(_next_token, static_argnums=2)
    assert set(np.unique(choose(logits, key, flat))) == {0, 1, 2}
    assert set(np.unique(choose(logits, key, flat._replace(temperature=1.0)))) == {0}


def test_every_step_is_sampled_by_a_key_of_its_own():
    _, params, model = language_model(num_layers=1)
    indifferent = model(jax.tree.map(lambda x: jax.device_put(np.zeros_like(x)), params))
    prompt = np.broadcast_to(some_ids(3), (100, 3))
    tokens = nn.generate(indifferent, prompt, steps=3, key=jax.random.key(0), temperature=1.0)
    tokens = np.asarray(tokens)
    assert np.mean(tokens[:, 1:] == tokens[:, :-1], axis=0).max() < 0.5


def test_a_nucleus_ends_with_the_token_that_reaches_its_probability():
    logits, cut = np.log([0.125, 0.5, 0.25, 0.125]), jax.jit(_top_logits, static_argnums=1)
    for top_k, top_p, tokens in (
        (None, 0.4, [1]),
        (None, 0.5, [1]),
        (None, 0.6, [1, 2]),
        (None, 0.75, [1, 2]),
        (None, 1.0, [0, 1, 2, 3]),
        (2, 0.6, [1]),  # of the two likeliest the first has 2/3
        (2, 0.7, [1, 2]),
    ):
        found = cut(logits, _Sampling(1.0, top_k, top_p))
        assert np.flatnonzero(np.isfinite(found)).tolist() == tokens


def test_generation_does_not_pass_the_end_of_a_table_in_silence():
    """A table of 12 positions: where positions are known it raises, otherwise the token is −1."""
    _, params, model = language_model("learned", num_layers=1)
    prompt = some_ids(2, 6)
    assert nn.generate(model(params), prompt, steps=7).shape == (2, 7)
    with pytest.raises(ValueError, match="position 12 has no row in a table of length 12"):
        nn.generate(model(params), prompt, steps=8)
    mask = np.ones((2, 6), bool)
    traced = jax.jit(lambda p, m: nn.generate(model(p), prompt, mask=m, steps=8))(params, mask)
    traced = np.asarray(traced)
    assert (traced[:, 7] == -1).all()
    assert (traced[:, :7] >= 0).all()


def test_what_generation_is_not_for():
    _, params, model = language_model(num_layers=1)
    with pytest.raises(ValueError, match=r"prompts have shape \(2, 0\)"):
        nn.generate(model(params), np.zeros((2, 0), np.int32), steps=1)


def test_a_row_that_ended_repeats_the_end():
    _, params, model = language_model(num_layers=1)
    plain = np.asarray(nn.generate(model(params), some_ids(8, 3), steps=6))
    end = int(plain[0, 1])
    held = np.asarray(nn.generate(model(params), some_ids(8, 3), steps=6, end_id=end))
    for before, after in zip(plain, held, strict=True):
        hits = np.flatnonzero(before == end)
        stop = hits[0] if len(hits) else 6
        assert (after[:stop] == before[:stop]).all()
        assert (after[stop:] == end).all()


SAMPLED = {"temperature": 1.0, "key": jax.random.key(0)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"steps": 1, "temperature": 1.0}, "needs a key"),
        ({"steps": 1, "temperature": -1.0}, "temperature is -1.0"),
        ({"steps": 1, "top_k": 5}, "top_k and top_p are for sampling"),
        ({"steps": 1, "top_k": 0, **SAMPLED}, "top_k is 0; pass 1 to 20"),
        ({"steps": 1, "top_k": 21, **SAMPLED}, "top_k is 21; pass 1 to 20"),
        ({"steps": 1, "top_p": 1.5, **SAMPLED}, "top_p is 1.5"),
        ({"steps": 1, "top_p": 0.0, **SAMPLED}, "top_p is 0.0"),
    ],
)
def test_settings_of_generation_that_do_not_go_together(options, message):
    _, params, model = language_model(num_layers=1)
    with pytest.raises(ValueError, match=message):
        nn.generate(model(params), some_ids(1, 2), **options)


def test_masks_combine():
    valid, segments = np.array([True, True, True, False]), np.array([0, 0, 1, 1])
    mask = nn.attention_mask(4, valid=valid, segments=segments, causal=True).pairs()
    expected = np.tril(np.ones((4, 4), bool)) & valid[None] & (segments[:, None] == segments)
    np.testing.assert_array_equal(mask[0], expected)
    batched = nn.attention_mask(4, valid=np.stack([valid, ~valid]), causal=True).pairs()
    assert batched.shape == (2, 1, 4, 4)
    assert nn.attention_mask(4) is None


def test_positions_of_padded_and_packed_rows():
    valid = np.array([[False, True, True], [True, True, False]])
    assert nn.padded_positions(valid).tolist() == [[0, 0, 1], [0, 1, 1]]
    segments = np.array([[3, 3, 7], [1, 2, 2]])
    assert nn.packed_positions(segments).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert nn.packed_positions(segments).dtype == jnp.int32


def test_a_model_is_a_pytree_that_jit_makes():
    """Initialised under jit, differentiated and merged without any transform of Flax."""

    def build(key):
        encoder = nn.Encoder(config(), encoding=jaxpe.rope(head_dim=4), rngs=nnx.Rngs(key))
        return nn.Classifier(encoder, num_classes=2, rngs=nnx.Rngs(key))

    model = jax.jit(build)(jax.random.key(0))
    again = build(jax.random.key(0))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12),
        nnx.state(model, nnx.Param),
        nnx.state(again, nnx.Param),
    )


def test_models_need_no_graph_mode_of_flax():
    """Trees suffice: nothing is shared between modules, and nothing is updated in place."""
    sizes = nn.TransformerConfig(vocab_size=9, dim=8, num_layers=2, num_heads=2)
    encoding = jaxpe.chain(jaxpe.learned(length=6, dim=8), jaxpe.t5(num_heads=2))
    ids = np.arange(4)[None]
    with nnx.set_graph_mode(False), nnx.set_graph_updates(False):
        decoder = nn.Decoder(sizes, encoding=encoding, rngs=nnx.Rngs(0))
        graphdef, params = nnx.split(nn.CausalLM(decoder, rngs=nnx.Rngs(1)), nnx.Param)

        def loss(params):
            return nnx.merge(graphdef, params)(ids).logits.var()

        assert jax.tree.structure(jax.jit(jax.grad(loss))(params)) == jax.tree.structure(params)
        assert nn.generate(nnx.merge(graphdef, params), ids, steps=2).shape == (1, 2)
