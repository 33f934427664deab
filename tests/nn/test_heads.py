"""Classifier, language models, generation, masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxpe import encodings, nn
from jaxpe.nn.generate import _next_token, _Sampling, _top_logits
from jaxpe.nn.heads import pooled as pooled_vector
from tests.nn.models import (
    VOCAB,
    config,
    encoder_decoder,
    encoding_for,
    shapes_of,
    some_ids,
    split,
)

IDS = some_ids(2, 6)


def language_model(encoding="rope", **changes):
    """`(apply, params)`, and the model of parameters."""

    def make():
        decoder = nn.Decoder(config(**changes), encoding=encoding_for(encoding), rngs=nnx.Rngs(0))
        return nn.CausalLM(decoder, rngs=nnx.Rngs(1))

    apply, params = split(make)
    graphdef, _ = nnx.split(shapes_of(make), nnx.Param)
    return apply, params, lambda params: nnx.merge(graphdef, params)


@pytest.mark.parametrize(("kind", "pooling"), [(nn.Encoder, "mean"), (nn.Decoder, "last")])
def test_classes_do_not_depend_on_padding(kind, pooling):
    def make(pooling=pooling):
        below = kind(config(), encoding=encoding_for("rope"), rngs=nnx.Rngs(0))
        return nn.Classifier(below, num_classes=3, pooling=pooling, pooler=True, rngs=nnx.Rngs(1))

    apply, params = split(make)
    mask = np.arange(6) < 4

    @jax.jit
    def run(params):
        return apply(params, IDS, mask=mask).logits, apply(params, IDS[:, :4]).logits

    np.testing.assert_allclose(*run(params), atol=1e-12)
    if kind is nn.Decoder:
        with pytest.raises(ValueError, match="first token"):
            shapes_of(lambda: make("first"))


def test_every_mask_of_dropout_has_a_key_of_its_own():
    none, rates = encodings.identity(), {"dropout": 0.5, "attention_dropout": 0.5}
    apply, params = split(lambda: encoder_decoder(config(**rates), none, none, none))
    with jax.debug_key_reuse(True):
        run = lambda params, key: apply(params, IDS, IDS, dropout_key=key).hidden  # noqa: E731
        jax.make_jaxpr(run)(params, jax.random.key(0))


def test_pooling():
    hidden, pooled = (
        np.arange(12.0).reshape(2, 3, 2),
        jax.jit(pooled_vector, static_argnames="pooling"),
    )
    mask = np.array([[True, True, False], [False] * 3])
    np.testing.assert_array_equal(pooled(hidden, mask), [[1.0, 2.0], [0.0, 0.0]])
    np.testing.assert_array_equal(pooled(hidden, pooling="first"), hidden[:, 0])
    np.testing.assert_array_equal(pooled(hidden), hidden.mean(1))
    np.testing.assert_array_equal(pooled(hidden, mask, pooling="last"), hidden[[0, 1], [1, 2]])
    padded = pooled(hidden, mask, pooling="mean_padded")
    np.testing.assert_array_equal(padded, hidden.mean(1))
    large = np.full((1, 512, 4), 300.0, np.float16)
    assert np.all(np.asarray(pooled(large, np.ones((1, 512), bool))) == 300)


def test_tied_logits_are_products_with_the_embeddings_in_float32():
    apply, params, _ = language_model(dtype=jnp.bfloat16, param_dtype=jnp.float32)
    out = jax.jit(apply)(params, IDS)
    table = np.asarray(params["decoder"]["tokens"]["embedding"].get_value(), jnp.bfloat16)
    hidden = np.asarray(out.transformer.hidden)
    assert hidden.dtype == table.dtype == jnp.bfloat16
    expected = hidden.astype(np.float32) @ table.astype(np.float32).T
    np.testing.assert_allclose(out.logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("encoding", ["rope", "cope"])
def test_generation_equals_choosing_from_the_whole_row_again_and_again(encoding):
    """Prompts of two lengths, padded on the left or on the right, against each alone."""
    apply, params, model = language_model(encoding, num_layers=1)
    prompts, steps = [some_ids(4), some_ids(2, seed=1)], 4
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


def test_sampling_draws_each_step_by_a_key_of_its_own():
    _, params, model = language_model(num_layers=1)
    indifferent = model(jax.tree.map(lambda x: jax.device_put(np.zeros_like(x)), params))
    prompt = np.broadcast_to(some_ids(3), (100, 3))

    def sampled(seed):
        key = jax.random.key(seed)
        return np.asarray(nn.generate(indifferent, prompt, steps=3, key=key, temperature=1.0))

    tokens = sampled(0)
    assert np.mean(tokens[:, 1:] == tokens[:, :-1], axis=0).max() < 0.5
    assert (tokens != sampled(1)).any()
    np.testing.assert_array_equal(tokens, sampled(0))


def test_a_nucleus_is_of_the_probabilities_at_the_temperature():
    logits = np.broadcast_to(np.log([0.9, 0.05, 0.05]), (200, 3))
    choose = jax.jit(_next_token, static_argnums=2)
    for temperature, tokens in ((1e6, {0, 1, 2}), (1.0, {0})):
        found = choose(logits, jax.random.key(0), _Sampling(temperature, None, 0.5))
        assert set(np.unique(found)) == tokens


def test_a_nucleus_ends_with_the_token_that_reaches_its_probability():
    logits = np.log([0.125, 0.5, 0.25, 0.125])
    for top_k, top_p, tokens in (
        (None, 0.5, [1]),
        (None, 0.6, [1, 2]),
        (None, 1.0, [0, 1, 2, 3]),
        (2, None, [1, 2]),
        (2, 0.6, [1]),  # of the two likeliest the first has 2/3
        (2, 0.7, [1, 2]),
    ):
        found = jax.jit(_top_logits, static_argnums=1)(logits, _Sampling(1.0, top_k, top_p))
        assert np.flatnonzero(np.isfinite(found)).tolist() == tokens


def test_generation_does_not_pass_the_end_of_a_table_in_silence():
    """A table of 12 positions: where positions are known it raises, otherwise the token is −1."""
    _, params, model = language_model("learned", num_layers=1)
    with pytest.raises(ValueError, match="position 12"):
        nn.generate(model(params), IDS, steps=8)
    run = jax.jit(lambda p, m: nn.generate(model(p), IDS, mask=m, steps=8))
    tokens = np.asarray(run(params, np.ones((2, 6), bool)))
    assert (tokens[:, 7] == -1).all()
    np.testing.assert_array_equal(nn.generate(model(params), IDS, steps=7), tokens[:, :7])
    assert (tokens[:, :7] >= 0).all()


def test_a_row_that_ended_repeats_the_end():
    _, params, model = language_model(num_layers=1)
    plain = np.asarray(nn.generate(model(params), some_ids(8, 3), steps=6))
    end = int(plain[0, 1])
    held = np.asarray(nn.generate(model(params), some_ids(8, 3), steps=6, end_id=end))
    for before, after in zip(plain, held, strict=True):
        stop = np.append(np.flatnonzero(before == end), 6)[0]
        assert after.tolist() == [*before[:stop], *[end] * (6 - stop)]


def test_settings_of_generation_that_do_not_go_together():
    _, params, model = language_model(num_layers=1)
    sampled = {"temperature": 1.0, "key": jax.random.key(0)}
    for wrong, options in (
        ("steps", {"steps": 0}),
        ("key", {"temperature": 1.0}),
        ("temperature", {"temperature": -1.0}),
        ("top_k", {"top_k": 5}),
        ("top_k", {"top_k": VOCAB + 1, **sampled}),
        ("top_p", {"top_p": 0.0, **sampled}),
        ("start_id", {"start_id": 0}),
    ):
        with pytest.raises(ValueError, match=wrong):
            nn.generate(model(params), IDS, **{"steps": 1} | options)
    with pytest.raises(ValueError, match="prompts"):
        nn.generate(model(params), np.zeros((2, 0), np.int32), steps=1)


def test_masks_combine():
    valid, segments = np.array([True, True, True, False]), np.array([0, 0, 1, 1])
    mask = nn.attention_mask(4, valid=valid, segments=segments, causal=True).pairs()
    expected = np.tril(np.ones((4, 4), bool)) & valid[None] & (segments[:, None] == segments)
    np.testing.assert_array_equal(mask[0], expected)
    batched = nn.attention_mask(4, valid=np.stack([valid, ~valid]), causal=True).pairs()
    assert batched.shape == (2, 1, 4, 4)


def test_positions_of_padded_and_packed_rows():
    valid = np.array([[False, True, True], [True, True, False]])
    assert nn.padded_positions(valid).tolist() == [[0, 0, 1], [0, 1, 1]]
    segments = np.array([[3, 3, 7], [1, 2, 2]])
    assert nn.packed_positions(segments).tolist() == [[0, 1, 0], [0, 0, 1]]


def test_models_need_no_graph_mode_of_flax():
    """Trees suffice: nothing is shared between modules, and nothing is updated in place."""
    sizes = nn.TransformerConfig(vocab_size=9, dim=8, num_layers=2, num_heads=2)
    encoding = encodings.chain(encodings.learned(length=6, dim=8), encodings.t5(num_heads=2))

    def slope():
        decoder = nn.Decoder(sizes, encoding=encoding, rngs=nnx.Rngs(0))
        graphdef, params = nnx.split(nn.CausalLM(decoder, rngs=nnx.Rngs(1)), nnx.Param)
        loss = lambda p: nnx.merge(graphdef, p)(np.arange(4)[None]).logits.var()  # noqa: E731
        return params, jax.grad(loss)(params)

    with nnx.set_graph_mode(False), nnx.set_graph_updates(False):
        params, found = jax.eval_shape(slope)
    assert jax.tree.structure(found) == jax.tree.structure(params)
