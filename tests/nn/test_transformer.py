"""Laws of encoder and decoder beside their values in `test_reference`, and what is refused."""

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

from jaxpe import encodings, nn
from jaxpe.nn.attention import MultiHeadAttention
from tests.nn.models import (
    HEAD_DIM,
    HEADS,
    LATENT,
    N,
    config,
    decoder,
    empty_cache,
    encoder,
    encoding_for,
    shapes_of,
    some_ids,
)

PLACES = np.arange(N, dtype=np.int32)
FLOAT32 = {"dtype": jnp.float32, "param_dtype": jnp.float32}


def test_without_positions_a_permutation_goes_through():
    """Theorem 1 of Cirrincione (2026)."""
    apply, params = encoder()
    ids, order = some_ids(N), np.random.default_rng(1).permutation(N)
    out = np.asarray(jax.jit(apply)(params, np.stack([ids, ids[order]])).hidden)
    np.testing.assert_allclose(out[1], out[0][order], atol=1e-12)
    assert np.abs(out[1] - out[0]).max() > 1e-2


IMPLEMENTED = {
    "latent": {"latent": LATENT},
    "sink_and_cap": {"attention_sink": True, "num_kv_heads": 1, "attention_cap": 0.5},
}


@pytest.mark.parametrize("kind", IMPLEMENTED)
def test_implementations_agree(kind):
    """Also where the last keys of a row, or all of them, are masked."""
    ids, mask = some_ids(3, N), np.arange(N) < np.array([[N], [4], [0]])
    models = [
        decoder(encoding_for("alibi"), **FLOAT32, **IMPLEMENTED[kind], attention=path)
        for path in ("dense", "blocks")
    ]
    run = jax.jit(lambda params: [apply(params, ids, mask=mask).hidden for apply, _ in models])
    dense, blocks = run(models[0][1])
    np.testing.assert_allclose(dense, blocks, atol=2e-5)
    assert np.isfinite(dense).all()


# Hooks that differ, or see the cache in another way.
CACHED = ("llama4", "selective_rope", "path", "t5", "fox", "deberta", "shaw", "cope", "rerope")


@pytest.mark.parametrize("name", [*CACHED, "inkling", "xpos", "sinusoidal"])
def test_padding_and_a_cache_change_nothing_with_any_kind_of_encoding(name):
    """Tokens in parts, after padding on the left, against each row alone."""
    encoding = encoding_for(name)
    apply, params = decoder(encoding, num_layers=1)
    ids, mask = some_ids(2, N), np.arange(N) >= np.array([[0], [2]])
    positions = np.asarray(nn.padded_positions(mask))
    parts = (slice(0, 5), slice(5, 6))
    if encoding.defines("context"):
        parts = (slice(0, 3), slice(3, 4), slice(4, 6))

    @jax.jit
    def run(params):
        alone = apply(params, ids[:1]).hidden, apply(params, ids[1:, 2:]).hidden
        cache, out = empty_cache(encoding, slots=N + 2, num_layers=1), []
        for part in parts:
            where = {"mask": mask[:, part], "positions": positions[:, part]}
            piece = apply(params, ids[:, part], cache=cache, **where)
            cache = piece.cache
            out.append(piece.hidden)
        return alone, jnp.concatenate(out, axis=1)

    (first, second), cached = jax.device_get(run(params))
    np.testing.assert_allclose(cached[0], first[0], atol=1e-10)
    np.testing.assert_allclose(cached[1, 2:], second[0], atol=1e-10)


def test_padding_in_a_cache_between_prompt_and_new_tokens_equals_none():
    """CoPE counts keys up to the query; the cache's padding is among them by its slots."""
    encoding = encoding_for("cope")
    apply, params = decoder(encoding, num_layers=1)
    params = jax.tree.map(lambda x: x + 0.3 * np.cos(np.arange(x.size)).reshape(x.shape), params)
    ids, mask = some_ids(2, N), np.array([[True] * 3 + [False] * 2] * 2)

    @jax.jit
    def run(params):
        whole = apply(params, ids).hidden
        cache = empty_cache(encoding, slots=N + 2, num_layers=1)
        prompt = np.concatenate([ids[:, :3], ids[:, :2]], axis=1)
        where = {"mask": mask, "positions": nn.padded_positions(mask)}
        cache = apply(params, prompt, cache=cache, **where).cache
        return apply(params, ids[:, 3:], positions=PLACES[3:], cache=cache).hidden, whole[:, 3:]

    np.testing.assert_allclose(*run(params), atol=1e-10)


@pytest.mark.parametrize("per_row", [True, False])
def test_any_leading_axes(per_row):
    """A batch of batches with positions for all or for each, against one row."""
    apply, params = encoder(encoding_for("t5"), num_layers=1)
    ids, mask = some_ids(2, 3, N), np.broadcast_to(PLACES < 4, (2, 3, N))
    places = np.broadcast_to(PLACES, ids.shape) if per_row else PLACES

    @jax.jit
    def run(params):
        whole = apply(params, ids, mask=mask, positions=places).hidden
        return whole[1, 2], apply(params, ids[1, 2], mask=mask[1, 2], positions=PLACES).hidden

    np.testing.assert_allclose(*run(params), atol=1e-12)


def test_packed_documents_do_not_see_each_other():
    encoding = encodings.chain(encoding_for("learned"), encoding_for("rope"))
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


def test_what_is_traced():
    """Logits of the first layer, without norms, are Eq. (1) of Cirrincione (2026).

    ⟨(E(t_i) + p_i) W_Q, (E(t_j) + p_j) W_K⟩/√d_k; weights are their softmax.
    """
    changes = {"norm_position": "post", "embedding_norm": False, "use_bias": False, "num_heads": 1}
    apply, params = encoder(encoding_for("sinusoidal"), **changes)
    mask = PLACES < 5
    ids = np.where(mask, some_ids(2, N), 0)
    out = jax.device_get(jax.jit(lambda p: apply(p, ids, mask=mask, trace=True))(params))
    params = jax.device_get(params)
    vectors = np.asarray(encodings.sinusoidal_vectors(np.arange(N), dim=8))
    x = params["tokens"]["embedding"].get_value()[ids] + vectors
    wq, wk = (params["layers"]["attention"][k]["kernel"].get_value()[0] for k in ("query", "key"))
    expected = x @ (wq @ wk.T) @ x.swapaxes(1, 2) / np.sqrt(8)
    np.testing.assert_allclose(out.logits[0, :, 0, :, :5], expected[..., :5], atol=1e-10)
    seen = softmax(out.logits[..., :5], axis=-1)
    np.testing.assert_allclose(out.weights[..., :5], seen, atol=1e-12)
    assert (out.weights[..., 5] == 0).all()
    np.testing.assert_array_equal(out.hidden_states[0], x)
    np.testing.assert_array_equal(out.hidden_states[-1], out.hidden)


def test_gates_ablate_heads_before_the_output_projection():
    apply, params = encoder(encoding_for("rope"), num_layers=1, use_bias=False)
    ids, ones = some_ids(2, N), np.ones((1, HEADS))
    without = jax.device_get(params)
    kernel = without["layers"]["attention"]["value"]["kernel"]
    kernel.set_value(np.where(np.arange(kernel.shape[-1]) < HEAD_DIM, 0.0, kernel.get_value()))

    @jax.jit
    def run(params, without):
        gates = ones, np.array([[0.0, 1.0]]), np.array([[[[1.0, 1.0]], [[0.0, 1.0]]]])
        gated = [apply(params, ids, gates=g).hidden for g in gates]
        return *gated, *(apply(p, ids).hidden for p in (params, without))

    opened, second, by_row, plain, without_first = jax.device_get(run(params, without))
    np.testing.assert_allclose(opened, plain, atol=1e-12)
    np.testing.assert_allclose(second, without_first, atol=1e-12)
    np.testing.assert_allclose(by_row, [opened[0], second[1]], atol=1e-12)


def test_closed_gates_give_what_fills_them():
    latent = dataclasses.replace(LATENT, value_dim=3)  # not the width of a query
    apply, params = encoder(encoding_for("rope"), latent=latent)
    ids, half = some_ids(2, N), np.full((2, HEADS), 0.25)
    fill = np.random.default_rng(0).standard_normal((2, HEADS, latent.value_dim))

    @jax.jit
    def run(params):
        plain = apply(params, ids, trace=True)
        shape = plain.heads.shape
        fills = plain.heads, fill, jnp.broadcast_to(fill[:, None, None], shape), 0 * fill
        outs = [apply(params, ids, gates=half, gate_fill=f).hidden for f in fills]
        return plain.hidden, *outs

    plain, own, filled, everywhere, zero = jax.device_get(run(params))
    # Filled with what would have passed, a gate changes nothing.
    np.testing.assert_allclose(own, plain, atol=1e-10)
    np.testing.assert_allclose(filled, everywhere, atol=1e-12)
    assert np.abs(filled - zero).max() > 1e-2
    for options in ({}, {"gates": half}):
        with pytest.raises(ValueError, match="gate_fill"):
            apply(params, ids, gate_fill=np.ones((2, 2, 5)), **options)


def test_keys_and_values_may_come_from_the_embeddings():
    ids, width = some_ids(2, N), (2, N, HEADS, HEAD_DIM)
    plain = {"norm_position": "post", "use_bias": False}  # nothing between x and the projections
    apply, params = encoder(encoding_for("sinusoidal"), keys_from="embeddings", **plain)
    out = jax.device_get(jax.jit(functools.partial(apply, trace=True))(params, ids))
    kernels = {
        name: params["layers"]["attention"][name]["kernel"].get_value()[1]
        for name in ("query", "key", "value")
    }
    q = (out.hidden_states[1] @ kernels["query"]).reshape(width)
    k, v = ((out.hidden_states[0] @ kernels[name]).reshape(width) for name in ("key", "value"))
    logits = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(HEAD_DIM)
    np.testing.assert_allclose(out.logits[1], logits, atol=1e-10)
    heads = np.einsum("bhqk,bkhd->bqhd", out.weights[1], v)
    np.testing.assert_allclose(out.heads[1], heads, atol=1e-10)


def test_scan_remat_and_unrolling_have_one_set_of_parameters():
    def slope(**changes):
        apply, params = encoder(encoding_for("t5"), **changes)
        return jax.jit(jax.grad(lambda p: (apply(p, some_ids(2, N)).hidden ** 3).sum()))(params)

    found = slope(scan=False), slope(remat=True)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), *found)


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
    undropped, ids, key = encoder(num_layers=1)[0], some_ids(N), jax.random.key(0)

    @jax.jit
    def run(params):
        dropped = apply(params, ids, dropout_key=key).hidden
        x = nn.layers.dropout(jnp.ones(100_000), rate=0.2, key=key)
        return apply(params, ids).hidden, undropped(params, ids).hidden, dropped, x

    plain, without, dropped, x = jax.device_get(run(params))
    np.testing.assert_array_equal(plain, without)
    assert np.abs(dropped - plain).max() > 0.1
    assert abs((x == 0).mean() - 0.2) < 0.005
    assert abs(x.mean() - 1.0) < 0.01


@pytest.mark.parametrize(
    "changes",
    [
        {"num_heads": 3},
        {"num_kv_heads": 3, "num_heads": 2},
        {"num_kv_heads": 0},
        {"activation": "tanh"},
        {"dropout": 0.9991},
        {"attention_dropout": -1e-9},
        {"hidden_dim": 0},
        {"norm_epsilon": 0.0},
        {"init_scale": -1e-9},
        {"embedding_scale": np.inf},
        {"attention_cap": 0.0},
        {"residual": "parallel", "norm_position": "both"},
        {"use_bias": ("mlp",)},
        {"latent": nn.LatentSizes(key_value_rank=2, rotary_dim=2), "num_kv_heads": 1},
    ],
    ids=str,
)
def test_a_bad_configuration_is_refused(changes, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users have it
    with pytest.raises(ValueError, match=next(iter(changes))):
        config(**changes)


def test_bad_calls_are_refused():
    apply, params = decoder()
    cache = empty_cache(slots=4, batch=1)
    full = jax.jit(lambda: apply(params, some_ids(1, 3), cache=cache).cache)()
    two = some_ids(1, 2)
    for wrong, ids, options in (
        ("slots", some_ids(1, 6), {"cache": cache}),
        ("slots", two, {"cache": full}),
        ("batch", some_ids(3), {"cache": cache}),
        ("gates", some_ids(3), {"gates": np.ones((2, 3))}),
        ("segments", two, {"segments": np.zeros((1, 2), int), "cache": cache}),
        ("mask", two, {"mask": np.ones((1, 3), bool), "cache": cache}),
        ("positions", two, {"positions": np.arange(2) / 2, "cache": cache}),
        ("mask", two, {"mask": np.ones((1, 2), int)}),
        ("vocabulary", np.array([1, 20]), {}),
        ("vocabulary", np.array([1, -1]), {}),
        ("token types", some_ids(2), {"token_types": np.zeros(2, int)}),
    ):
        with pytest.raises(ValueError, match=wrong):
            apply(params, ids, **options)
    with pytest.raises(ValueError, match="cache"):
        encoder()[0](params, two, cache=cache)


def test_encodings_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match="encoding"):
        MultiHeadAttention(config(), encoding=encodings.rope, rngs=nnx.Rngs(0))
    counted = encodings.Encoding(init=lambda key: jnp.zeros(3, jnp.int32))
    with pytest.raises(ValueError, match="int32"):
        nn.Encoder(config(), encoding=counted, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="pass it as encoding"):
        nn.Encoder(config(), layer_encoding=encoding_for("learned"), rngs=nnx.Rngs(0))
    apply, params = encoder(encodings.shaw(head_dim=2 * HEAD_DIM, max_distance=4), latent=LATENT)
    with pytest.raises(ValueError, match="width 8"):
        apply(params, some_ids(N))


def test_under_the_mask_ids_may_be_anything():
    apply, params = encoder()
    mask = np.array([True, True, False])
    run = jax.jit(lambda ids: apply(params, ids, mask=mask).hidden)
    np.testing.assert_array_equal(run(np.array([1, 2, -100])), run(np.array([1, 2, 5])))
    jax.eval_shape(lambda: apply(params, np.array([1, 2, -100]), mask=mask))  # nor is it refused


def test_a_cache_that_is_full_says_so_inside_jit():
    apply, params = decoder()

    def step(cache, token):
        out = apply(params, token.reshape(1, 1), cache=cache)
        return out.cache, out.hidden

    three = jax.lax.scan(step, empty_cache(slots=2, batch=1), some_ids(3))[1]
    assert np.isfinite(three).all((1, 2, 3)).tolist() == [True, True, False]


CHAIN = encodings.chain(encoding_for("learned"), encoding_for("t5"))
PATTERN = encodings.LayerPattern((encoding_for("rope"), encoding_for("t5")))
FOX = encoding_for("fox")
NARROW = {"latent": LATENT, "tie_embeddings": False}


@pytest.mark.parametrize(("other", "changes"), [(CHAIN, NARROW), (PATTERN, {}), (FOX, {})])
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
    assert len(drawn) == (other is FOX)
    again = nn.with_encoding(swapped, rope, key=jax.random.key(3))
    assert nnx.graphdef(again) == nnx.graphdef(model)
    assert all(map(operator.is_, *(jax.tree.leaves(nnx.state(m)) for m in (again, model))))
