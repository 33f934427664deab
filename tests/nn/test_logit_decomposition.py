"""Queries and keys in shares of content and position: the shares sum, and each is what it says."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe import nn
from jaxpe.nn.layers import dense, norm
from jaxpe.nn.logit_decomposition import Split
from tests.nn.models import (
    DIM,
    HEAD_DIM,
    HEADS,
    LATENT,
    SIZES,
    N,
    config,
    encoding_for,
    positions_for,
    shapes_of,
    some_ids,
    split,
)

WIDE_LATENT = nn.LatentSizes(key_value_rank=6, rotary_dim=HEAD_DIM, value_dim=16)
KINDS = {
    "pre_norm": {},
    "post_norm": {"norm_position": "post"},
    "rms": {"norm": "rms", "use_bias": False},
    "rms_with_biases": {"norm": "rms", "norm_position": "post"},
    "no_embedding_norm": {"norm_position": "post", "embedding_norm": False},
    "grouped": {"num_kv_heads": 1},
    "latent": {"latent": LATENT},
    "latent_rms": {"latent": LATENT, "norm": "rms", "norm_position": "post"},
    "latent_plain_queries": {"latent": WIDE_LATENT},
    "embeddings": {"keys_from": "embeddings"},
    "embeddings_post_norm": {"keys_from": "embeddings", "norm_position": "post"},
    "embeddings_latent": {"keys_from": "embeddings", "latent": LATENT},
    "joint_norms": {"norm_position": "output", "query_key_norm": "joint", "num_kv_heads": 1},
    "token_types": {"token_types": 2, "norm_position": "post"},
}
BOTH = jaxpe.chain(encoding_for("learned"), encoding_for("rope"))


def build(kind=nn.Encoder, encoding=BOTH, layer_encoding=None, **changes):
    """A model with parameters away from special values, biases and scales of norms among them."""
    own = jaxpe.identity() if layer_encoding is None else layer_encoding

    def make():
        return kind(config(**changes), encoding=encoding, layer_encoding=own, rngs=nnx.Rngs(0))

    return filled(make)


def filled(make):
    _, params = split(make)
    graphdef, _ = nnx.split(shapes_of(make), nnx.Param)
    return nnx.merge(graphdef, params)


def some_means(*shape):
    return np.random.default_rng(7).normal(size=shape)


def run(model, ids, **options):
    """`split_heads`, compiled, and the logits its shares make by the encoding it names."""
    encoding = nn.head_encoding(model)
    apply, params = nn.functionalize(model, method=nn.split_heads)

    @jax.jit
    def both(params, ids, options):
        parts = apply(params, ids, **options)

        def logits(own, q, k):
            where = {"q_positions": parts.positions, "k_positions": parts.positions}
            return jaxpe.attention_logits(encoding, own, q, k, **where, scale=parts.scale)

        q, k = parts.q_content + parts.q_position, parts.k_content + parts.k_position
        return parts, jax.vmap(logits)(parts.params, q, k)

    return both(params, ids, options)


def check_whole(model, ids, *, atol=1e-11, **options):
    """The shares sum to the model's queries and keys, and both are there."""
    parts, logits = run(model, ids, **options)
    assert parts.logits.shape == logits.shape
    np.testing.assert_allclose(logits, parts.logits, atol=atol)
    assert np.std(parts.logits) > 0.01
    return parts


def check_kind(kind, **options):
    if kind == "token_types":
        options["token_types"] = some_ids(3, N, seed=1) % 2
    parts = check_whole(build(**KINDS[kind]), some_ids(3, N), **options)
    assert parts.q_content.shape[1:3] == (3, N)
    assert parts.k_content.shape[-2] == KINDS[kind].get("num_kv_heads", HEADS)
    for share in parts[:4]:
        assert np.std(share) > 0.01
    return parts


@pytest.mark.parametrize("kind", KINDS)
def test_the_shares_make_the_logits_of_every_layer(kind):
    assert len(check_kind(kind, means=some_means(2, N, DIM)).logits) == 2


@pytest.mark.parametrize("kind", ["rms_with_biases", "latent", "token_types"])
def test_what_is_embedded_makes_the_logits_of_the_first_layer(kind):
    assert len(check_kind(kind).logits) == 1


# Some of every family: those of a family differ in what nothing here looks at.
ENCODINGS = jaxpe.catalogue(
    "learned", "legendre", "rope_partial", "xpos", "mrope", "t5", "cope", "shaw", "transformer_xl"
)


@pytest.mark.parametrize("entry", ENCODINGS, ids=lambda entry: entry.name)
def test_for_every_encoding(entry):
    model = build(encoding=entry.make(SIZES), num_layers=1)
    places = positions_for(entry.name, np.arange(N, dtype=np.int32))
    parts = check_whole(model, some_ids(N), positions=places)
    assert (np.std(parts.q_position) > 0) == model.encoding.defines("embed")


@pytest.mark.parametrize("name", ["xpos", "transformer_xl", "shaw", "alibi"])
def test_latent_attention_with_other_encodings(name):
    """Those of biases see whole queries and keys, those that turn, the last entries."""
    latent = nn.LatentSizes(key_value_rank=6, rotary_dim=HEAD_DIM, value_dim=2 * HEAD_DIM)
    width = HEAD_DIM if name == "xpos" else 2 * HEAD_DIM
    sizes = jaxpe.EncodingSizes(dim=DIM, num_heads=HEADS, head_dim=width, length=2 * N)
    (entry,) = jaxpe.catalogue(name)
    check_whole(build(encoding=entry.make(sizes), latent=latent), some_ids(N))


def test_parameters_of_each_layer():
    own = jaxpe.chain(encoding_for("transformer_xl"), encoding_for("alibi"))
    model = build(encoding=encoding_for("learned"), layer_encoding=own)
    parts = check_whole(model, some_ids(N), means=some_means(2, N, DIM))
    leaf = jax.tree.leaves(parts.params[1])[0]
    assert np.abs(leaf[0] - leaf[1]).max() > 0.1


@pytest.mark.parametrize("shape", [(1, N), (2, 3, N)])
def test_any_leading_axes(shape):
    """Each row of a batch of batches as alone."""
    model, means = build(nn.Decoder), some_means(2, N, DIM)
    ids, mask = some_ids(*shape), np.arange(N) < 4
    parts = check_whole(model, ids, mask=mask, means=means)
    alone = check_whole(model, ids.reshape(-1, N)[-1], mask=mask, means=means)
    for ours, theirs in zip(parts[:5], alone[:5], strict=True):
        rows = ours.reshape(2, -1, *theirs.shape[1:])
        np.testing.assert_allclose(rows[:, -1], theirs, atol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_shares_are_float32_or_wider(dtype):
    model = build(norm_position="post", dtype=dtype, param_dtype=jnp.float32)
    atol = 1e-4 if dtype == jnp.float32 else 1.0
    parts = check_whole(model, some_ids(2, N), means=some_means(2, N, DIM), atol=atol)
    assert {x.dtype for x in parts[:6]} == {jnp.dtype(jnp.float32)}


def test_the_model_stays_as_it_was():
    model = build()
    jax.eval_shape(lambda: nn.split_heads(model, some_ids(N)))
    assert model.encoding is BOTH


# Without norms the shares can be written down.

PLAIN = {"norm_position": "post", "embedding_norm": False, "token_types": 2}


def test_what_is_embedded_is_the_table_and_the_rest_is_content():
    model = build(encoding=encoding_for("learned"), **PLAIN)
    ids, kinds, places = some_ids(3, N), some_ids(3, N, seed=2) % 2, np.arange(N)[::-1] + 2
    parts, _ = run(model, ids, token_types=kinds, positions=places.astype(np.int32))
    p = model.encoding_params.get_value()["table"][places]
    c = model.tokens.embedding.get_value()[ids] + model.token_types.embedding.get_value()[kinds]
    for layer, content, position in (
        (model.layers.attention.query, parts.q_content, parts.q_position),
        (model.layers.attention.key, parts.k_content, parts.k_position),
    ):
        kernel, bias = layer.kernel.get_value()[0], layer.bias.get_value()[0]
        by_hand = (c @ kernel + bias[None, None]).reshape(content.shape[1:])
        np.testing.assert_allclose(content[0], by_hand, atol=1e-12)
        by_hand = jnp.broadcast_to(p @ kernel, (3, N, DIM)).reshape(position.shape[1:])
        np.testing.assert_allclose(position[0], by_hand, atol=1e-12)
    np.testing.assert_array_equal(parts.positions, places)


def test_means_are_the_share_of_position_in_every_layer():
    model, means = build(**PLAIN), some_means(2, N, DIM)
    parts, _ = run(model, some_ids(3, N), means=means)
    kernels = model.layers.attention.query.kernel.get_value()
    by_hand = jnp.einsum("lnd,ldo->lno", means, kernels).reshape(2, 1, N, HEADS, HEAD_DIM)
    by_hand = jnp.broadcast_to(by_hand, parts.q_position.shape)
    np.testing.assert_allclose(parts.q_position, by_hand, atol=1e-12)


def test_keys_from_embeddings_have_the_means_of_the_first_layer():
    model, means = build(keys_from="embeddings", **PLAIN), some_means(2, N, DIM)
    parts, _ = run(model, some_ids(N), means=means)
    kernels = model.layers.attention.key.kernel.get_value()
    by_hand = jnp.einsum("nd,ldo->lno", means[0], kernels).reshape(parts.k_position.shape)
    np.testing.assert_allclose(parts.k_position, by_hand, atol=1e-12)


def test_no_position_where_none_is_added():
    parts = check_whole(build(encoding=encoding_for("rope")), some_ids(N))
    assert not parts.q_position.any()
    assert not parts.k_position.any()


# One share through a layer.


LAYERS = {
    "dense": lambda: dense(config(), DIM, 3, rngs=nnx.Rngs(0)),
    "dense_without_bias": lambda: dense(config(use_bias=False), DIM, 3, rngs=nnx.Rngs(0)),
    "layer_norm": lambda: norm(config(), rngs=nnx.Rngs(0)),
    "layer_norm_without_bias": lambda: norm(config(use_bias=False), rngs=nnx.Rngs(0)),
    "rms_norm": lambda: norm(config(norm="rms"), rngs=nnx.Rngs(0)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_through_a_layer(name):
    """Shares sum to the layer's output; at the same sum, each is linear in itself."""
    layer, rng = filled(LAYERS[name]), np.random.default_rng(0)
    x, p = (jnp.asarray(rng.normal(2.0, 1.0, (4, DIM))) for _ in range(2))
    whole = layer(x)
    one, three = (Split(x - t * p, t * p).through(layer) for t in (1.0, 3.0))
    for parts in (one, three):
        np.testing.assert_allclose(parts.content + parts.position, whole, atol=1e-12)
    np.testing.assert_allclose(three.position, 3.0 * one.position, atol=1e-12)
    alone = Split(x, 0 * x).through(layer)
    np.testing.assert_allclose(alone.content, whole, atol=1e-12)
    assert not alone.position.any()
    # All of x as position leaves the bias alone in content.
    bias = Split(0 * x, x).through(layer).content
    np.testing.assert_allclose(bias, jnp.broadcast_to(layer(0 * x)[:1], bias.shape), atol=1e-12)


# Models of other kinds.


def bert(**changes):
    sizes = config(norm_position="post", **changes)
    table = jaxpe.learned(length=N, dim=sizes.dim)
    return filled(lambda: nn.Encoder(sizes, encoding=table, rngs=nnx.Rngs(0)))


def test_bert_has_its_table_as_position():
    parts = check_whole(bert(token_types=2), some_ids(2, N), token_types=some_ids(2, N, seed=1) % 2)
    assert np.std(parts.q_position) > 0.01


@pytest.mark.parametrize("name", ["classifier", "masked", "causal", "bert"])
def test_what_stands_on_a_transformer_is_looked_through(name):
    rngs = nnx.Rngs(0)
    model = {
        "classifier": lambda: nn.Classifier(build(num_layers=1), num_classes=2, rngs=rngs),
        "masked": lambda: nn.MaskedLM(build(num_layers=1), rngs=rngs),
        "causal": lambda: nn.CausalLM(build(nn.Decoder, num_layers=1), rngs=rngs),
        "bert": lambda: nn.Bert(bert(), rngs=rngs),
    }[name]()
    check_whole(model, some_ids(N))


# Means over documents.


def ragged(rows, seed):
    """Documents of one to N tokens in rows of N."""
    lengths = np.random.default_rng(seed).integers(1, N, rows)
    return {"ids": some_ids(rows, N, seed=seed), "mask": np.arange(N) < lengths[:, None]}


def by_hand(states, mask):
    """Means by loops over layers and places, in NumPy."""
    p = np.zeros((states.shape[0], *states.shape[-2:]))
    seen = [i for i in range(mask.shape[1]) if mask[:, i].any()]
    for layer in range(len(p)):
        for i in seen:
            p[layer, i] = states[layer, mask[:, i], i].mean(0)
        p[layer, seen] -= p[layer, seen].mean(0)
    return p


def test_means_are_averages_of_what_enters_the_layers():
    model = build()
    batches = [ragged(3, 1), ragged(3, 2)]
    means = nn.position_means(model, iter(batches))
    apply, params = nn.functionalize(model)
    run = jax.jit(functools.partial(apply, trace=True))
    states = [run(params, b["ids"], mask=b["mask"]).hidden_states[:-1] for b in batches]
    wanted = by_hand(np.concatenate(states, axis=1), np.concatenate([b["mask"] for b in batches]))
    np.testing.assert_allclose(means, wanted, atol=1e-12)
    unseen = ~np.concatenate([b["mask"] for b in batches]).any(0)
    assert unseen.sum() == 1  # no document is as long as the row
    assert not means[:, unseen].any()
    assert np.std(means) > 0.1


def test_means_of_the_embeddings_are_the_table():
    """Where every place has the same tokens, what enters the first layer differs by p alone."""
    model = build(encoding=encoding_for("learned"))
    ids = np.tile(some_ids(4, 1), N)
    table = model.encoding_params.get_value()["table"][:N]
    means = nn.position_means(model, [{"ids": ids}])
    np.testing.assert_allclose(means[0], table - table.mean(0, keepdims=True), atol=1e-12)


def test_sums_add_whatever_their_length():
    """Of two batches as of one; a shorter one counts as padded."""
    model = build()
    ids = some_ids(4, N)
    apply, params = nn.functionalize(model, method=nn.sum_hidden)
    summed = functools.partial(jax.jit(apply), params)
    mask = np.ones((4, N), bool)
    mask[2:, 4:] = False
    whole = summed(ids, mask=mask)
    parts = [summed(ids[2:, :4]), summed(ids[:2])]
    for total in (sum(parts), sum(parts[::-1])):
        np.testing.assert_allclose(total.sums, whole.sums, atol=1e-11)
        assert total.counts.tolist() == whole.counts.tolist() == [4, 4, 4, 4, 2, 2]
        np.testing.assert_allclose(total.means(), whole.means(), atol=1e-11)
    np.testing.assert_allclose(summed(ids.reshape(2, 2, N)).sums, summed(ids).sums, atol=1e-11)
    streamed = nn.position_means(summed, [{"ids": ids[2:, :4], "label": 3}, {"ids": ids[:2]}])
    np.testing.assert_allclose(streamed, whole.means(), atol=1e-11)


def test_means_are_those_of_numpy_and_of_jax():
    rng = np.random.default_rng(0)
    sums = nn.HiddenSums(rng.normal(size=(2, 5, 3)), np.array([3, 0, 1, 0, 2]))
    sums = sums._replace(sums=sums.sums * (sums.counts > 0)[None, :, None])
    ours = sums.means()
    assert isinstance(ours, np.ndarray)
    theirs = jax.jit(nn.HiddenSums.means)(jax.tree.map(jnp.asarray, sums))
    np.testing.assert_allclose(ours, theirs, atol=1e-14)
    np.testing.assert_allclose(ours.sum(1), 0, atol=1e-14)
    one = (sums.counts == 3).astype(int)  # at one place alone it is the mean of all places
    for few in (0 * one, one):
        assert not nn.HiddenSums(sums.sums * few[None, :, None], few).means().any()


def test_many_batches_lose_no_digits():
    """Sums in float64 outside, where running ones in float32 would drift."""
    start = {"dtype": jnp.float32, "param_dtype": jnp.float32, "num_layers": 1}
    model = build(encoding=encoding_for("learned"), **start)
    model.tokens.embedding = nnx.Param(model.tokens.embedding.get_value() + 100.0)
    batch = {"ids": np.tile(some_ids(4, 1), N)}
    apply, params = nn.functionalize(model, method=nn.sum_hidden)
    once = jax.jit(apply)(params, batch["ids"])
    means = nn.position_means(lambda ids: once, [batch] * 3001)
    exact = nn.HiddenSums(np.asarray(once.sums, np.float64), np.asarray(once.counts)).means()
    np.testing.assert_allclose(means, exact, atol=1e-10)


def test_means_split_the_model_they_came_from():
    """Content then has no mean by place, but the one of all places."""
    model, ids = build(norm_position="post", embedding_norm=False), some_ids(5, N)
    means = nn.position_means(model, [{"ids": ids}])
    parts = check_whole(model, ids, means=means)
    average = parts.q_content.mean(1)
    np.testing.assert_allclose(average, average[:, :1] + 0 * average, atol=1e-11)


# What is refused.


def test_means_of_another_shape():
    model, ids = build(), some_ids(2, N)
    for shape in [(1, N, DIM), (2, N + 1, DIM)]:
        with pytest.raises(ValueError, match=r"means have shape .* = \[2, 6, 8\], with a mean"):
            jax.eval_shape(lambda: nn.split_heads(model, ids, means=jnp.ones(shape)).logits)  # noqa: B023


@pytest.mark.parametrize("function", [nn.split_heads, nn.sum_hidden])
def test_a_model_without_attention(function):
    with pytest.raises(ValueError, match="Linear has no transformer"):
        function(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), some_ids(N))


def test_sums_of_other_models_do_not_add():
    a, b = (nn.HiddenSums(np.zeros((2, 3, d)), np.zeros(3, int)) for d in (4, 5))
    with pytest.raises(ValueError, match=r"\(2, 3, 4\) and \(2, 3, 5\)"):
        a + b
    with pytest.raises(TypeError, match=r"unsupported operand .* 'HiddenSums'"):
        1 + a


def test_no_batches():
    with pytest.raises(ValueError, match="no batches to take means over: pass at least one"):
        nn.position_means(build(), [])
