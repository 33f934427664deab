"""Laws of encoder and decoder, for every kind of block and every encoding."""

import dataclasses
import functools
import operator

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from flax import nnx
from scipy.special import softmax

import jaxpe
from jaxpe import nn
from tests.encodings.kinds import ONE_OF_EACH_KIND
from tests.nn.models import (
    BLOCKS,
    HEAD_DIM,
    HEADS,
    LATENT,
    N,
    config,
    coordinates,
    decoder,
    empty_cache,
    encoder,
    encoding_for,
    positions_for,
    shapes_of,
    some_ids,
)

# These change no keys, values or masks.
FEED_FORWARD = ("post_norm", "rms", "relu", "swiglu", "geglu", "remat")
ATTENTION = [kind for kind in BLOCKS if kind not in FEED_FORWARD]
PLACES = np.arange(N, dtype=np.int32)


@functools.cache
def program(apply, name):
    """Hidden states at these places; each set of options is compiled once."""
    where = positions_for(name, PLACES)
    return jax.jit(lambda p, i, **options: apply(p, i, positions=where, **options).hidden)


def hidden(apply, params, ids, name="none", **options):
    return np.asarray(program(apply, name)(params, ids, **options))


@pytest.mark.parametrize("kind", BLOCKS)
def test_without_positions_a_permutation_goes_through(kind):
    """Theorem 1 of Cirrincione (2026), for every kind of block."""
    apply, params = encoder(**BLOCKS[kind])
    ids, order = some_ids(N), np.random.default_rng(1).permutation(N)
    out = hidden(apply, params, np.stack([ids, ids[order]]))
    np.testing.assert_allclose(out[1], out[0][order], atol=1e-12)
    assert np.abs(out[1] - out[0]).max() > 1e-2


def test_a_causal_mask_breaks_the_symmetry():
    apply, params = decoder()
    ids, order = some_ids(N), np.random.default_rng(1).permutation(N)
    out = hidden(apply, params, np.stack([ids, ids[order]]))
    assert np.abs(out[1] - out[0][order]).max() > 1e-2


@pytest.mark.parametrize("kind", [*ATTENTION, "post_norm"])
def test_a_decoder_looks_back_only(kind):
    """By gradient: of output i with respect to input j, zero exactly for j > i."""
    encoding = jaxpe.chain(encoding_for("learned"), encoding_for("rope"))
    apply, params = decoder(encoding, **BLOCKS[kind])

    def run(tables):  # what is added to the embedding of each token
        moved = jax.tree.map(lambda x: x, params)
        moved["encoding_params"].set_value(tables)
        return apply(moved, some_ids(N)).hidden

    (slope,) = jax.tree.leaves(jax.jit(jax.jacobian(run))(params["encoding_params"].get_value()))
    size = np.abs(slope)[:, :, :N].sum((1, 3))
    assert (size[np.triu_indices(N, 1)] == 0).all()
    assert (size[np.tril_indices(N)] > 1e-6).all()


FLOAT32 = {"dtype": jnp.float32, "param_dtype": jnp.float32}


# A row, its tokens in another order, one whose last keys are masked, and one without any keys.
ORDER = np.random.default_rng(1).permutation(N)
ROWS = np.stack([some_ids(N), some_ids(N)[ORDER], *some_ids(2, N)])
PARTS = np.array([[True] * N, [True] * N, [True] * 4 + [False] * 2, [False] * N])


def hidden_rows(encoding, name, *several):
    """Hidden states of ROWS in float32 but for each set of changes, and of one row cut short."""
    models = [encoder(encoding, **FLOAT32 | changes) for changes in several]

    @jax.jit
    def run(params, rows, mask, places):
        whole = [
            apply(p, rows, mask=mask, positions=places).hidden
            for (apply, _), p in zip(models, params, strict=True)
        ]
        short = models[0][0](params[0], rows[2:3, :4], positions=places[:4]).hidden
        return whole, short

    params = [params for _, params in models]
    return jax.device_get(run(params, ROWS, PARTS, positions_for(name, PLACES)))


def check_fused(name, changes):
    """Also where a row, or its last keys, are masked."""
    paths = [changes | {"attention": path} for path in ("dense", "blocks")]
    outs, _ = hidden_rows(encoding_for(name), name, *paths)
    for out in outs[1:]:
        np.testing.assert_allclose(outs[0], out, atol=2e-5)
    assert np.isfinite(outs[0]).all()


@pytest.mark.parametrize("kind", [kind for kind in ATTENTION if kind != "dense"])
def test_implementations_agree(kind):
    check_fused("alibi", BLOCKS[kind])


def test_a_cap_of_logits_acts_on_both_paths():
    check_fused("alibi", {"num_layers": 1, "attention_cap": 0.5})


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_a_layer_of_every_kind_of_encoding(name):
    """Order, padding, and bfloat16, in which positions stay float32."""
    changes = {"num_layers": 1}
    several = [changes, changes | {"dtype": jnp.bfloat16}]
    (out, rough), short = hidden_rows(encoding_for(name), name, *several)
    assert (np.abs(out[1] - out[0][ORDER]).max() > 1e-4) == (name != "none")
    assert np.isfinite(out).all()
    np.testing.assert_allclose(out[2:3, :4], short, atol=1e-5)
    if name != "grape_m":
        assert rough.dtype == jnp.bfloat16
        difference = np.abs(rough.astype(np.float32) - out)[PARTS].max()
        assert difference < 0.06 * np.abs(out[PARTS]).max()


@pytest.mark.parametrize("shape", [(N,), (1, N), (3, N), (2, 3, N)])
@pytest.mark.parametrize("per_row", [True, False])
def test_any_leading_axes(shape, per_row):
    """One row, a batch, a batch of batches; positions for all or for each."""
    apply, params = encoder(encoding_for("t5"), **FLOAT32, num_layers=1)
    ids = some_ids(*shape)
    mask = np.broadcast_to(PLACES < 4, shape)
    places = np.broadcast_to(PLACES, shape) if per_row else PLACES
    run = jax.jit(lambda p, i: apply(p, i, mask=mask, positions=places).hidden)
    out = np.asarray(run(params, ids))
    for index in np.ndindex(shape[:-1]):
        alone = hidden(apply, params, ids[index], mask=PLACES < 4)
        np.testing.assert_allclose(out[index], alone, atol=2e-5)


@pytest.mark.parametrize("name", [n for n in ONE_OF_EACH_KIND if coordinates(n) == 1])
def test_a_cache_gives_what_the_whole_row_gives(name):
    encoding = encoding_for(name)
    steps = THREE_STEPS if encoding.defines("context") else TWO_STEPS
    check_cache(encoding, {"num_layers": 1}, steps)


@pytest.mark.parametrize("kind", [*ATTENTION, "keys_from_embeddings"])
def test_a_cache_works_in_every_block(kind):
    check_cache(encoding_for("rope"), BLOCKS.get(kind, {"keys_from": "embeddings"}))


@pytest.mark.parametrize(
    "encoding",
    [
        jaxpe.encodings.grape_multiplicative(head_dim=HEAD_DIM),
        jaxpe.encodings.dual_chunk(encoding_for("rope"), chunk=2, local=0, causal=True),
    ],
)
def test_a_cache_works_with_learned_rotations_and_with_short_chunks(encoding):
    """Chunks of two among six tokens: keys of the same chunk, the one before and earlier ones."""
    check_cache(encoding, {"num_layers": 1, "num_kv_heads": HEADS})


# Tokens that are read at once.
TWO_STEPS, THREE_STEPS = (slice(0, 5), slice(5, 6)), (slice(0, 3), slice(3, 4), slice(4, 6))


def check_cache(encoding, changes, steps=THREE_STEPS):
    """Tokens three and one at a time, on the left padding, against all at once."""
    apply, params = decoder(encoding, **changes)
    ids, mask = some_ids(2, N), np.ones((2, N), bool)
    mask[1, :2] = False
    positions = nn.padded_positions(mask)

    @jax.jit
    def run(params):
        whole = apply(params, ids, mask=mask, positions=positions).hidden
        cache, out = empty_cache(encoding, slots=N + 2, **changes), []
        for part in steps:
            piece = apply(
                params, ids[:, part], mask=mask[:, part], positions=positions[:, part], cache=cache
            )
            cache = piece.cache
            out.append(piece.hidden)
        return whole, jnp.concatenate(out, axis=1)

    whole, in_pieces = jax.device_get(run(params))
    np.testing.assert_allclose(in_pieces[mask], whole[mask], atol=1e-10)


@pytest.mark.parametrize("name", ["cope", "rope"])
def test_padding_in_a_cache_between_prompt_and_new_tokens_equals_none(name):
    """CoPE counts keys up to the query; the cache's padding is among them by its slots."""
    encoding = encoding_for(name)
    apply, params = decoder(encoding, num_layers=1)
    params = jax.tree.map(lambda x: x + 0.3 * np.cos(np.arange(x.size)).reshape(x.shape), params)
    ids = some_ids(2, N)
    mask = np.array([[True] * 3 + [False] * 2] * 2)

    @jax.jit
    def run(params):
        whole = apply(params, ids).hidden
        cache = empty_cache(encoding, slots=N + 2, num_layers=1)
        prompt = np.concatenate([ids[:, :3], ids[:, :2]], axis=1)
        positions = nn.padded_positions(mask)
        cache = apply(params, prompt, mask=mask, positions=positions, cache=cache).cache
        cached = apply(params, ids[:, 3:], positions=PLACES[3:], cache=cache).hidden
        return cached, whole[:, 3:]

    np.testing.assert_allclose(*run(params), atol=1e-10)


@pytest.mark.parametrize("name", ["rope", "alibi", "learned", "shaw"])
def test_padding_on_the_left_equals_none(name):
    apply, params = decoder(encoding_for(name))
    ids = some_ids(1, N)
    padded = np.concatenate([some_ids(1, 2, seed=5), ids], axis=1)
    mask = np.array([[False] * 2 + [True] * N])
    positions = nn.padded_positions(mask)

    @jax.jit
    def run(params):
        out = apply(params, padded, mask=mask, positions=positions).hidden
        return out[:, 2:], apply(params, ids).hidden

    np.testing.assert_allclose(*run(params), atol=1e-10)


def test_packed_documents_do_not_see_each_other():
    encoding = jaxpe.chain(encoding_for("learned"), encoding_for("rope"))
    apply, params = decoder(encoding)
    first, second = some_ids(1, 4), some_ids(1, 3, seed=1)
    segments = np.array([[0] * 4 + [1] * 3])
    both, positions = np.concatenate([first, second], axis=1), nn.packed_positions(segments)

    @jax.jit
    def run(params):
        packed = apply(params, both, segments=segments, positions=positions).hidden
        alone = [apply(params, ids).hidden for ids in (first, second)]
        return packed, jnp.concatenate(alone, axis=1)

    np.testing.assert_allclose(*run(params), atol=1e-10)


@pytest.mark.parametrize("kind", ["plain", "grouped", "latent", "post_norm"])
def test_what_is_traced(kind):
    """Weights are the softmax of the logits; the hidden states are those of the blocks."""
    apply, params = encoder(encoding_for("t5"), **BLOCKS[kind])
    ids, mask = some_ids(2, N), np.arange(N) < 5
    out = jax.device_get(jax.jit(lambda p: apply(p, ids, mask=mask, trace=True))(params))
    assert out.logits.shape == out.weights.shape == (2, 2, HEADS, N, N)
    np.testing.assert_allclose(
        out.weights[..., :5], softmax(out.logits[..., :5], axis=-1), atol=1e-12
    )
    assert (out.weights[..., 5] == 0).all()
    assert out.hidden_states.shape == (3, 2, N, 8)
    if kind == "post_norm":
        np.testing.assert_array_equal(out.hidden_states[-1], out.hidden)


def test_logits_are_equation_1():
    """⟨(E(t_i) + p_i) W_Q, (E(t_j) + p_j) W_K⟩/√d_k in the first layer of a model without norms."""
    encoding = encoding_for("sinusoidal")
    changes = {"norm_position": "post", "embedding_norm": False, "use_bias": False, "num_heads": 1}
    apply, params = encoder(encoding, **changes)
    ids = some_ids(N)
    logits = np.asarray(jax.jit(lambda p: apply(p, ids, trace=True).logits)(params))
    params = jax.device_get(params)
    vectors = np.asarray(jaxpe.sinusoidal_vectors(np.arange(N), dim=8))
    x = params["tokens"]["embedding"].get_value()[ids] + vectors
    wq, wk = (params["layers"]["attention"][k]["kernel"].get_value()[0] for k in ("query", "key"))
    expected = x @ (wq @ wk.T) @ x.T / np.sqrt(8)
    np.testing.assert_allclose(logits[0, 0], expected, atol=1e-10)


def test_gates_ablate_heads_before_the_output_projection():
    apply, params = encoder(encoding_for("rope"), num_layers=1, use_bias=False)
    ids = some_ids(2, N)
    ones, value = np.ones((1, HEADS)), ("layers", "attention", "value", "kernel")
    without = jax.device_get(params)
    kernel = functools.reduce(lambda tree, name: tree[name], value, without)
    kernel.set_value(np.where(np.arange(kernel.shape[-1]) < HEAD_DIM, 0.0, kernel.get_value()))

    @jax.jit
    def run(params, without):
        def gated(gates):
            return apply(params, ids, gates=gates).hidden

        gates = ones, np.array([[0.0, 1.0]]), np.array([[[[1.0, 1.0]], [[0.0, 1.0]]]])
        plain = [apply(p, ids).hidden for p in (params, without)]
        return *map(gated, gates), *plain, jax.vmap(gated)(np.stack([ones, 0 * ones]))

    opened, second, by_row, plain, without_first, many = jax.device_get(run(params, without))
    np.testing.assert_allclose(opened, plain, atol=1e-12)
    np.testing.assert_allclose(second, without_first, atol=1e-12)
    np.testing.assert_allclose(many[0], opened, atol=1e-12)
    np.testing.assert_allclose(by_row[0], opened[0], atol=1e-12)
    assert np.abs(by_row[1] - opened[1]).max() > 1e-3


def test_keys_and_values_may_come_from_the_embeddings():
    ids = some_ids(2, N)
    for norm in ("pre", "post"):
        shared = {"norm_position": norm, "keys_from": "embeddings"}
        apply, params = encoder(encoding_for("sinusoidal"), **shared)
        out = jax.device_get(jax.jit(functools.partial(apply, trace=True))(params, ids))
        layer = jax.tree.map(lambda x: np.asarray(x)[1], params["layers"])
        attention = layer["attention"]

        def read(x, name, layer=layer, attention=attention, norm=norm):
            x = normed(x, layer["attention_norm"]) if norm == "pre" else x
            kernel, bias = (attention[name][part].get_value() for part in ("kernel", "bias"))
            return (x @ kernel + bias.reshape(1, 1, -1)).reshape(2, N, HEADS, HEAD_DIM)

        q, k = read(out.hidden_states[1], "query"), read(out.hidden_states[0], "key")
        logits = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(HEAD_DIM)
        np.testing.assert_allclose(out.logits[1], logits, atol=1e-10)
        v = read(out.hidden_states[0], "value")
        heads = np.einsum("bhqk,bkhd->bqhd", out.weights[1], v)
        np.testing.assert_allclose(out.heads[1], heads, atol=1e-10)


def normed(x, norm):
    scale, bias = (norm[part].get_value() for part in ("scale", "bias"))
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    return x * scale.reshape(1, 1, -1) + bias.reshape(1, 1, -1)


def test_closed_gates_give_what_fills_them():
    latent = dataclasses.replace(LATENT, value_dim=3)  # not the width of a query
    apply, params = encoder(encoding_for("rope"), latent=latent)
    ids, half = some_ids(2, N), np.full((2, HEADS), 0.25)
    run = jax.jit(lambda gates, fill: apply(params, ids, gates=gates, gate_fill=fill).hidden)
    heads, plain = jax.jit(
        lambda: (apply(params, ids, trace=True).heads, apply(params, ids).hidden)
    )()
    heads = np.asarray(heads)
    assert heads.shape == (2, 2, N, HEADS, latent.value_dim)
    # Filled with what would have passed, a gate changes nothing.
    np.testing.assert_allclose(run(half, heads), plain, atol=1e-10)
    fill = np.random.default_rng(0).standard_normal((2, HEADS, latent.value_dim))
    everywhere = np.broadcast_to(fill[:, None, None], heads.shape)
    np.testing.assert_allclose(run(half, fill), run(half, everywhere), atol=1e-12)
    assert np.abs(np.asarray(run(half, fill)) - run(half, 0 * fill)).max() > 1e-2
    with pytest.raises(ValueError, match="gate_fill fills closed gates: pass gates with it"):
        apply(params, ids, gate_fill=fill)
    with pytest.raises(ValueError, match=r"gate_fill has shape \(2, 2, 5\): pass \[layers, "):
        apply(params, ids, gates=half, gate_fill=np.ones((2, 2, 5)))


def test_scan_remat_and_unrolling_have_one_set_of_parameters():
    ids = some_ids(2, N)
    results = []
    for changes in ({}, {"scan": False}, {"remat": True}, {"scan": False, "remat": True}):
        apply, params = encoder(encoding_for("t5"), **changes)
        grad = jax.jit(jax.grad(lambda p, a=apply: (a(p, ids).hidden ** 3).sum()))
        results.append(grad(params))
    for other in results[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), results[0], other)


def test_layers_may_have_encodings_of_their_own():
    xl, ids = encoding_for("transformer_xl"), some_ids(2, N)
    apply, params = encoder(encoding_for("learned"), layer_encoding=xl)
    own = params["layers"]["attention"]["encoding_params"].get_value()
    shared = params["encoding_params"].get_value()
    assert all(leaf.shape[0] == 2 for leaf in jax.tree.leaves(own))
    assert len(jax.tree.leaves(shared)) == 1
    grads = jax.jit(jax.grad(lambda p: (apply(p, ids).hidden ** 3).sum()))(params)
    assert all(np.abs(g).max() > 0 for g in jax.tree.leaves(grads["layers"]["attention"]))
    with pytest.raises(ValueError, match="pass it as encoding"):
        nn.Encoder(config(), layer_encoding=encoding_for("learned"), rngs=nnx.Rngs(0))


def test_seeds_are_vmapped():
    """Many models at once are each the model of its seed."""
    ids = some_ids(2, N)

    def build(key):
        encoding = encoding_for("learned")
        return nn.Encoder(config(), encoding=encoding, rngs=nnx.Rngs(key))

    alone = jax.jit(lambda key: build(key)(ids).hidden)
    keys = jax.random.split(jax.random.key(0), 3)
    together = np.asarray(jax.jit(jax.vmap(lambda key: build(key)(ids).hidden))(keys))
    for key, row in zip(keys, together, strict=True):
        np.testing.assert_allclose(row, alone(key), atol=1e-10)
    assert np.abs(together[0] - together[1]).max() > 0.1


def test_bfloat16_rounds_learned_frequencies_as_fixed_ones():
    """One token of these weights is off by 8 % under any rotation by such frequencies."""
    learned = encoding_for("grape_m")
    narrow = {"num_layers": 1, "dtype": jnp.bfloat16}
    (out,), _ = hidden_rows(learned, "grape_m", narrow)
    _, params = encoder(learned, **FLOAT32 | narrow)
    (log_frequencies,) = jax.tree.leaves(params["encoding_params"].get_value())
    start = jaxpe.encodings.rope_frequencies(head_dim=2 * len(log_frequencies)).inverse
    factor = tuple((start / np.exp(np.asarray(log_frequencies, np.float64))).tolist())
    scaling = jaxpe.encodings.LongRopeScaling(factor, factor, 64, attention_factor=1.0)
    fixed = jaxpe.rope(head_dim=2 * len(factor), scaling=scaling, length=N)
    (same,), _ = hidden_rows(fixed._replace(init=learned.init), "rope", narrow)
    np.testing.assert_allclose(*(x[PARTS].astype(np.float32) for x in (out, same)), atol=0.02)


def test_bfloat16_keeps_positions():
    apply, params = encoder(encoding_for("rope"), dtype=jnp.bfloat16, param_dtype=jnp.float32)
    run = jax.jit(lambda p, i: apply(p, some_ids(N), positions=i, trace=True))
    near, far = (jax.device_get(run(params, PLACES + shift)) for shift in (0, 100_000))
    assert near.logits.dtype == near.weights.dtype == jnp.float32
    scale = np.abs(near.logits).max()
    assert np.abs(near.logits - far.logits).max() < 0.03 * scale
    swapped = run(params, PLACES[::-1] + 100_000)
    assert np.abs(swapped.logits - far.logits).max() > 0.1 * scale


def test_dropout_is_off_without_a_key_and_right_in_the_mean():
    apply, params = encoder(dropout=0.2, attention_dropout=0.2, num_layers=1)
    ids = some_ids(N)
    undropped = encoder(num_layers=1)[0]
    outs = jax.jit(lambda p: [f(p, ids).hidden for f in (apply, undropped)])(params)
    np.testing.assert_array_equal(*outs)
    run = jax.jit(lambda p, key: apply(p, ids, dropout_key=key).hidden)
    one, same, other = (np.asarray(run(params, jax.random.key(k))) for k in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 0.1
    drop = jax.jit(lambda key: nn.layers.dropout(jnp.ones(100_000), rate=0.2, key=key))
    x = np.asarray(drop(jax.random.key(0)))
    assert abs(float((x == 0).mean()) - 0.2) < 0.005
    assert abs(float(x.mean()) - 1.0) < 0.01


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 3}, "dim 8 does not divide by num_heads 3"),
        ({"num_kv_heads": 3, "num_heads": 2}, "2 query heads cannot share 3 key heads"),
        ({"activation": "tanh"}, "activation is 'tanh'; pass one of gelu"),
        ({"norm": "batch"}, "norm is 'batch'; pass one of layer, rms"),
        ({"dropout": 1.0}, "dropout is 1.0; pass a rate in"),
        ({"hidden_dim": 0}, "hidden_dim is 0; pass at least 1"),
        ({"norm_epsilon": -1.0}, "norm_epsilon is -1.0"),
        ({"num_layers": 0}, "num_layers is 0; pass at least 1"),
        ({"logit_cap": 0.0}, "logit_cap is 0.0; pass a positive number"),
        ({"residual": "parallel", "norm_position": "both"}, "pass norm_position='pre'"),
        ({"use_bias": ("mlp",)}, "use_bias is .*tuple of some of query_key_value"),
        ({"latent": nn.LatentSizes(key_value_rank=2, rotary_dim=2), "num_kv_heads": 1}, "latent"),
    ],
)
def test_a_bad_configuration_is_refused(changes, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users have it
    with pytest.raises(ValueError, match=message):
        config(**changes)


def test_bad_sizes_of_latent_attention_are_refused():
    with pytest.raises(ValueError, match="rotary_dim is 0; pass at least 1"):
        nn.LatentSizes(key_value_rank=4, rotary_dim=0)


def test_values_of_another_width_are_refused():
    wide = jaxpe.shaw(head_dim=2 * HEAD_DIM, max_distance=4)
    apply, params = encoder(wide, **BLOCKS["latent"], num_layers=1)
    with pytest.raises(ValueError, match="adds values of width 8, but values have 4"):
        apply(params, some_ids(N))


def test_bad_calls_are_refused():
    apply, params = decoder()
    cache = empty_cache(slots=4, batch=1)
    with pytest.raises(ValueError, match=r"6 tokens .*0 of 4 slots"):
        apply(params, some_ids(1, 6), cache=cache)
    full = jax.jit(lambda: apply(params, some_ids(1, 3), cache=cache).cache)()
    with pytest.raises(ValueError, match=r"2 tokens .*3 of 4 slots"):
        apply(params, some_ids(1, 2), cache=full)
    with pytest.raises(ValueError, match=r"with a cache, ids must be \[batch, n\]"):
        apply(params, some_ids(3), cache=cache)
    with pytest.raises(ValueError, match=r"gates have shape \(2, 3\): pass \[layers, ..., heads\]"):
        apply(params, some_ids(3), gates=np.ones((2, 3)))
    with pytest.raises(ValueError, match="leave segments out"):
        apply(params, some_ids(1, 2), segments=np.zeros((1, 2), int), cache=cache)
    with pytest.raises(ValueError, match="with a cache, of the new tokens alone"):
        apply(params, some_ids(1, 2), mask=np.ones((1, 3), bool), cache=cache)
    with pytest.raises(ValueError, match=r"positions must be integers .* not float64"):
        apply(params, some_ids(1, 2), positions=np.arange(2) / 2, cache=cache)
    with pytest.raises(ValueError, match=r"mask is int64, not boolean: pass mask.astype\(bool\)"):
        apply(params, some_ids(1, 2), mask=np.ones((1, 2), int))
    with pytest.raises(ValueError, match="id 20 is not in the vocabulary of 20"):
        apply(params, np.array([1, 20]))
    with pytest.raises(ValueError, match="id -1 is not in the vocabulary"):
        apply(params, np.array([1, -1]))
    with pytest.raises(ValueError, match="no token types"):
        apply(params, some_ids(2), token_types=np.zeros(2, int))
    with pytest.raises(ValueError, match="an encoder has no cache"):
        encoder()[0](params, some_ids(1, 2), cache=cache)


def test_an_encoding_that_was_not_made_is_refused(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=r"pass an encoding, such as jaxpe.rope\(head_dim"):
        nn.MultiHeadAttention(config(), encoding=jaxpe.rope, rngs=nnx.Rngs(0))
    counted = jaxpe.Encoding(init=lambda key: jnp.zeros(3, jnp.int32))
    with pytest.raises(ValueError, match="parameters of int32"):
        nn.Encoder(config(), encoding=counted, rngs=nnx.Rngs(0))


def test_under_the_mask_ids_may_be_anything():
    apply, params = encoder()
    mask = np.array([True, True, False])
    run = jax.jit(lambda ids: apply(params, ids, mask=mask).hidden)
    np.testing.assert_array_equal(run(np.array([1, 2, -100])), run(np.array([1, 2, 5])))
    jax.eval_shape(lambda: apply(params, np.array([1, 2, -100]), mask=mask))  # nor is it refused


def test_a_cache_that_is_full_says_so_inside_jit():
    apply, params = decoder()

    @jax.jit
    def three(params):
        cache = empty_cache(slots=2, batch=1)
        out = []
        for token in some_ids(3):
            step = apply(params, token.reshape(1, 1), cache=cache)
            cache = step.cache
            out.append(step.hidden)
        return jnp.stack(out)

    assert np.isfinite(three(params)).all((1, 2, 3)).tolist() == [True, True, False]


@pytest.mark.parametrize("shape", [(0, 5), (2, 0)])
@pytest.mark.parametrize("path", ["xla", "dense", "blocks"])
def test_nothing_in_gives_nothing_out(shape, path):
    apply, params = encoder(encoding_for("alibi"), **FLOAT32, attention=path)
    out = jax.jit(lambda p, ids: apply(p, ids).hidden)(params, np.zeros(shape, np.int32))
    assert out.shape == (*shape, 8)


def test_float16_is_finite_also_where_all_is_masked():
    apply, params = encoder(dtype=jnp.float16, param_dtype=jnp.float32)
    run = jax.jit(lambda p, ids, mask: apply(p, ids, mask=mask).hidden)
    out = run(params, some_ids(2, N), np.zeros((2, N), bool))
    assert out.dtype == jnp.float16
    assert np.isfinite(out).all()


CHAIN = jaxpe.chain(encoding_for("learned"), encoding_for("t5"))
PATTERN = jaxpe.encodings.LayerPattern((encoding_for("rope"), encoding_for("t5")))
SWAPS = ["alibi", "t5", "learned", "fox"]


@pytest.mark.parametrize("other", [CHAIN, PATTERN, *map(encoding_for, SWAPS)])
@pytest.mark.parametrize("changes", [{}, {"latent": LATENT, "tie_embeddings": False}])
def test_a_warm_start_is_the_model_of_the_other_encoding_with_the_old_weights(other, changes):
    rope = encoding_for("rope")

    def built(encoding):
        below = nn.Decoder(config(**changes), encoding=encoding, rngs=nnx.Rngs(0))
        return nn.CausalLM(below, rngs=nnx.Rngs(1))

    model, expected = (shapes_of(functools.partial(built, encoding)) for encoding in (rope, other))
    swapped = nn.with_encoding(model, other, key=jax.random.key(2))
    assert nnx.graphdef(swapped) == nnx.graphdef(expected)
    shapes = (jax.tree.map(lambda x: (x.shape, x.dtype), nnx.state(m)) for m in (swapped, expected))
    assert next(shapes) == next(shapes)
    started = jax.tree.leaves(nnx.state(swapped.decoder.layers.attention))
    drawn = [x for x in started if isinstance(x, jax.Array) and x.ndim > 2]  # of the new encoding
    assert all((x[0] != x[1]).any() for x in drawn), "layers start alike"
    assert len(drawn) == (other == encoding_for("fox"))
    again = nn.with_encoding(swapped, rope, key=jax.random.key(3))
    assert nnx.graphdef(again) == nnx.graphdef(model)
    assert all(map(operator.is_, *(jax.tree.leaves(nnx.state(m)) for m in (again, model))))
