"""Queries and keys in shares of content and position: the shares sum, and each is what it says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxpe import encodings, nn
from jaxpe.nn.layers import dense, norm
from jaxpe.nn.logit_decomposition import HiddenSums, Split, position_means, sum_hidden
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
# Every choice that queries and keys depend on occurs, with others in few models.
KINDS = {
    "pre_norm_grouped": {"num_kv_heads": 1},
    "post_norm_types": {"norm_position": "post", "token_types": 2},
    "rms_latent": {"latent": LATENT, "norm": "rms", "norm_position": "post"},
    "embeddings_latent": {"keys_from": "embeddings", "latent": WIDE_LATENT},
    "joint_norms": {"norm_position": "output", "query_key_norm": "joint", "num_kv_heads": 1},
}
BOTH = encodings.chain(encoding_for("learned"), encoding_for("rope"))
# Without norms the shares can be written down.
PLAIN = {"norm_position": "post", "embedding_norm": False, "token_types": 2}
MEANS = np.random.default_rng(7).normal(size=(2, N, DIM))


def build(kind=nn.Encoder, encoding=BOTH, **changes):
    """A model with parameters away from special values, biases and scales of norms among them."""
    return filled(lambda: kind(config(**changes), encoding=encoding, rngs=nnx.Rngs(0)))


def filled(make):
    _, params = split(make)
    graphdef, _ = nnx.split(shapes_of(make), nnx.Param)
    return nnx.merge(graphdef, params)


def check_whole(model, ids, *, atol=1e-11, **options):
    """The shares sum to the model's queries and keys, whose logits they make."""
    encoding = nn.head_encoding(model)
    apply, params = nn.functionalize(model, method=nn.split_heads)

    @jax.jit
    def both(params, ids, options):
        parts = apply(params, ids, **options)

        def logits(own, q, k):
            where = {"q_positions": parts.positions, "k_positions": parts.positions}
            return encodings.attention_logits(encoding, own, q, k, **where, scale=parts.scale)

        q, k = parts.q_content + parts.q_position, parts.k_content + parts.k_position
        return parts, jax.vmap(logits)(parts.params, q, k)

    parts, logits = jax.device_get(both(params, ids, options))
    np.testing.assert_allclose(logits, parts.logits, atol=atol)
    assert np.std(parts.logits) > 0.01
    return parts


@pytest.mark.parametrize("kind", KINDS)
def test_the_shares_make_the_logits_of_every_layer(kind):
    types = {"token_types": some_ids(3, N, seed=1) % 2} if kind == "post_norm_types" else {}
    parts = check_whole(build(**KINDS[kind]), some_ids(3, N), means=MEANS, **types)
    assert len(parts.logits) == 2
    assert parts.q_content.shape[1:3] == (3, N)
    assert parts.k_content.shape[-2] == KINDS[kind].get("num_kv_heads", HEADS)
    assert all(np.std(share) > 0.01 for share in parts[:4])


# Some of every family: those of a family differ in what nothing here looks at.
ENCODINGS = encodings.catalogue("xpos", "mrope", "shaw", "transformer_xl")


@pytest.mark.parametrize("entry", ENCODINGS, ids=lambda entry: entry.name)
def test_what_is_embedded_makes_the_logits_of_the_first_layer(entry):
    encoding = encodings.chain(encoding_for("learned"), entry.make(SIZES))
    places = positions_for(entry.name, np.arange(N, dtype=np.int32))
    if entry.name == "mrope":  # whose positions have coordinates
        encoding = entry.make(SIZES)
    place = "post" if entry.name == "shaw" else "pre"  # of the norms: of embeddings too
    model = build(encoding=encoding, norm_position=place)
    parts = check_whole(model, some_ids(N), positions=places)
    assert len(parts.logits) == 1
    assert parts.q_position.any() == parts.k_position.any() == (entry.name != "mrope")


def test_latent_attention_with_an_encoding_of_whole_queries_and_keys():
    latent = nn.LatentSizes(key_value_rank=6, rotary_dim=HEAD_DIM, value_dim=2 * HEAD_DIM)
    wide = encodings.shaw(head_dim=2 * HEAD_DIM, max_distance=4)
    check_whole(build(encoding=wide, latent=latent), some_ids(N))


def test_parameters_of_each_layer():
    own = encodings.chain(encoding_for("transformer_xl"), encoding_for("alibi"))
    options = {"encoding": encoding_for("learned"), "layer_encoding": own}
    model = filled(lambda: nn.Encoder(config(), **options, rngs=nnx.Rngs(0)))
    parts = check_whole(model, some_ids(N), means=MEANS)
    leaf = jax.tree.leaves(parts.params[1])[0]
    assert np.abs(leaf[0] - leaf[1]).max() > 0.1


def test_any_leading_axes_and_any_model_on_a_transformer():
    """Each row of a batch of batches as alone."""
    model = nn.CausalLM(build(nn.Decoder), rngs=nnx.Rngs(0))
    ids, mask = some_ids(2, 3, N), np.arange(N) < 4
    parts = check_whole(model, ids, mask=mask, means=MEANS)
    alone = check_whole(model.decoder, ids[1, 2], mask=mask, means=MEANS)
    for ours, theirs in zip(parts[:5], alone[:5], strict=True):
        np.testing.assert_allclose(ours[:, -1, -1], theirs, atol=1e-12)


def test_shares_are_float32_or_wider():
    model = build(norm_position="post", dtype=jnp.bfloat16, param_dtype=jnp.float32)
    parts = check_whole(model, some_ids(2, N), means=MEANS, atol=1.0)
    assert {x.dtype for x in parts[:6]} == {jnp.dtype(jnp.float32)}


def test_what_is_embedded_is_the_table_and_the_rest_is_content():
    model = build(encoding=encoding_for("learned"), **PLAIN)
    ids, kinds, places = some_ids(3, N), some_ids(3, N, seed=2) % 2, np.arange(N)[::-1] + 2
    parts = jax.jit(lambda: nn.split_heads(model, ids, token_types=kinds, positions=places))()
    p = np.asarray(model.encoding_params.get_value()["table"][places])
    c = model.tokens.embedding.get_value()[ids] + model.token_types.embedding.get_value()[kinds]
    for layer, content, position in (
        (model.layers.attention.query, parts.q_content, parts.q_position),
        (model.layers.attention.key, parts.k_content, parts.k_position),
    ):
        kernel, bias = (np.asarray(x.get_value()[0]) for x in (layer.kernel, layer.bias))
        by_hand = (np.asarray(c) @ kernel + bias).reshape(content.shape[1:])
        np.testing.assert_allclose(content[0], by_hand, atol=1e-12)
        by_hand = np.broadcast_to((p @ kernel).reshape(N, HEADS, -1), position.shape[1:])
        np.testing.assert_allclose(position[0], by_hand, atol=1e-12)
    np.testing.assert_array_equal(parts.positions, places)
    first = model.token_types.embedding.get_value()[0]  # the type of all tokens by default
    expected = np.asarray(model.tokens.embedding.get_value()[ids]) + np.asarray(first) + p
    np.testing.assert_allclose(model.embed(ids, positions=places), expected, atol=1e-12)


@pytest.mark.parametrize("keys_from", ["hidden", "embeddings"])
def test_means_are_the_share_of_position_in_every_layer(keys_from):
    """Of keys from embeddings, those of the first layer."""
    model = build(keys_from=keys_from, **PLAIN)
    parts = jax.jit(lambda: nn.split_heads(model, some_ids(N), means=MEANS))()
    kernels = model.layers.attention.key.kernel.get_value()
    means = MEANS if keys_from == "hidden" else MEANS[[0, 0]]
    by_hand = np.einsum("lnd,ldo->lno", means, kernels).reshape(parts.k_position.shape)
    np.testing.assert_allclose(parts.k_position, by_hand, atol=1e-12)


LAYERS = {
    "dense": lambda: dense(config(), DIM, 3, rngs=nnx.Rngs(0)),
    "layer_norm": lambda: norm(config(), rngs=nnx.Rngs(0)),
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
    # All of x as position leaves the bias alone in content.
    bias = Split(0 * x, x).through(layer).content
    np.testing.assert_allclose(bias, jnp.broadcast_to(layer(0 * x)[:1], bias.shape), atol=1e-12)


# Means over documents.


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
    """Over two batches of documents, none of which is as long as the row."""
    model, ids = build(norm_position="post", embedding_norm=False), some_ids(6, N)
    mask = np.arange(N) < np.array([1, 5, 3, 2, 5, 4])[:, None]
    batches = ({"ids": ids[rows], "mask": mask[rows]} for rows in (slice(0, 3), slice(3, 6)))
    means = position_means(model, batches)
    seen = jax.jit(lambda: model(ids, mask=mask, trace=True).hidden_states[:-1])()
    np.testing.assert_allclose(means, by_hand(np.asarray(seen), mask), atol=1e-12)
    assert np.std(means) > 0.1
    assert not means[:, 5].any()
    # Content of the model that they came from has no mean by place, but the one of all places.
    full = position_means(model, [{"ids": ids}])
    average = check_whole(model, ids, means=full).q_content.mean(1)
    np.testing.assert_allclose(average, average[:, :1] + 0 * average, atol=1e-11)


def test_sums_add_whatever_their_length():
    """Of two batches as of one; a shorter one counts as padded."""
    model, ids, mask = build(), some_ids(4, N), np.ones((4, N), bool)
    mask[2:, 4:] = False
    whole, *parts = jax.jit(
        lambda: [
            sum_hidden(model, ids, mask=mask),
            sum_hidden(model, ids[2:, :4]),
            sum_hidden(model, ids[None, :2]),
        ]
    )()
    for total in (sum(parts), sum(parts[::-1])):
        np.testing.assert_allclose(total.sums, whole.sums, atol=1e-11)
        assert total.counts.tolist() == whole.counts.tolist() == [4, 4, 4, 4, 2, 2]
    a, b = (HiddenSums(np.zeros((2, 3, d)), np.zeros(3, int)) for d in (4, 5))
    with pytest.raises(ValueError, match="and"):
        a + b


def test_means_are_those_of_numpy_and_of_jax():
    rng = np.random.default_rng(0)
    sums = HiddenSums(rng.normal(size=(2, 5, 3)), np.array([3, 0, 1, 0, 2]))
    sums = sums._replace(sums=sums.sums * (sums.counts > 0)[None, :, None])
    ours = sums.means()
    assert isinstance(ours, np.ndarray)
    theirs = jax.jit(HiddenSums.means)(jax.tree.map(jnp.asarray, sums))
    np.testing.assert_allclose(ours, theirs, atol=1e-14)
    one = (sums.counts == 3).astype(int)  # at one place alone it is the mean of all places
    for few in (0 * one, one):
        assert not HiddenSums(sums.sums * few[None, :, None], few).means().any()


def test_many_batches_lose_no_digits():
    """Sums in float64 outside, where running ones in float32 would drift."""
    sums = 100 + np.random.default_rng(0).normal(size=(1, N, DIM))
    once = HiddenSums(jnp.asarray(sums, jnp.float32), jnp.ones(N, jnp.int32))
    means = position_means(lambda ids: once, [{"ids": some_ids(1, N)}] * 3001)
    exact = HiddenSums(np.asarray(once.sums, np.float64), np.ones(N, int)).means()
    np.testing.assert_allclose(means, exact, atol=1e-10)


def test_what_cannot_be_split_is_refused():
    model, ids = build(), some_ids(2, N)
    for shape in [(1, N, DIM), (2, N + 1, DIM)]:
        with pytest.raises(ValueError, match="means"):
            jax.eval_shape(lambda: nn.split_heads(model, ids, means=jnp.ones(shape)).logits)  # noqa: B023
    for function in (nn.split_heads, sum_hidden):
        with pytest.raises(ValueError, match="Linear"):
            function(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), ids)
    with pytest.raises(ValueError, match="no batches"):
        position_means(model, [])
