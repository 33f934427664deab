"""Attention functions in the attention layers of Flax."""

import contextlib

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxpe import encodings, nn

N, HEADS, WIDTH, DIM = 6, 2, 4, 8
LINE, PLACES = np.arange(N, dtype=np.int32), np.array([0, 1, 2, 7, 8, 9], np.int32)
ENCODINGS = {
    "rope": encodings.rope(head_dim=WIDTH),
    "xpos": encodings.xpos(head_dim=WIDTH),
    "alibi": encodings.alibi(num_heads=HEADS),
    "t5": encodings.t5(num_heads=HEADS, num_buckets=8, max_distance=20),
    "shaw": encodings.shaw(head_dim=WIDTH, max_distance=3),
}
CAUSAL = np.tri(N, dtype=bool)
FLOAT64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}


@pytest.fixture(autouse=True)
def promotion_of_flax():
    """Flax mixes integers, float32 and float64."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def close(found, wanted, atol=1e-12):
    for a, b in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        np.testing.assert_allclose(a, b, atol=atol)


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def encoding_and_params(name):
    """Parameters with something everywhere."""
    params = ENCODINGS[name].init(jax.random.key(0))
    leaves, tree = jax.tree.flatten(params)
    return ENCODINGS[name], tree.unflatten([x + 0.3 * normal(7, *x.shape) for x in leaves])


def layer(function, **options):
    options = FLOAT64 | {"decode": False} | options
    return nnx.MultiHeadAttention(HEADS, DIM, attention_fn=function, **options, rngs=nnx.Rngs(0))


def expected(module, encoding, params, x, i=PLACES, memory=None, j=None, **options):
    """The layer's projections around `jaxpe.encodings.attend`."""
    memory, j = (x, i) if memory is None else (memory, j)
    q, k, v = module.query(x), module.key(memory), module.value(memory)
    where = {"q_positions": i, "k_positions": j}
    return module.out(encodings.attend(encoding, params, q, k, v, **where, **options))


@pytest.mark.parametrize("name", ["rope", "shaw"])
def test_the_nnx_layer_equals_attend_and_so_do_its_gradients(name):
    encoding, params = encoding_and_params(name)
    module, x = layer(nn.attention_fn(encoding, params)), normal(1, 3, N, DIM)
    graphdef, state = nnx.split(module, nnx.Param)

    def loss(state, x):
        module = nnx.merge(graphdef, state)
        with module.attention_fn.at(PLACES):
            return jnp.sum(jnp.sin(module(x, mask=CAUSAL[None, None])))

    def reference(state, x):
        module = nnx.merge(graphdef, state)
        own = module.attention_fn.encoding_params
        own = own.get_value() if isinstance(own, nnx.Variable) else own
        return jnp.sum(jnp.sin(expected(module, encoding, own, x, mask=CAUSAL)))

    found, wanted = (jax.jit(jax.value_and_grad(f, (0, 1)))(state, x) for f in (loss, reference))
    close(found, wanted)
    if jax.tree.leaves(params):
        of_encoding = jax.tree.leaves(found[1][0]["attention_fn"])
        assert max(np.abs(leaf).max() for leaf in of_encoding) > 1e-4


class SelfAttention(linen.Module):
    encoding: encodings.Encoding

    @linen.compact
    def __call__(self, x, positions, **options):
        params = self.param("encoding", self.encoding.init)
        function = nn.attention_fn(self.encoding, params, positions)
        inner = linen.MultiHeadDotProductAttention(
            HEADS, attention_fn=function, name="layer", **FLOAT64
        )
        return inner(x, **options)


def test_the_linen_layer_equals_attend_and_so_do_its_gradients():
    encoding, params = encoding_and_params("t5")
    module, x = layer(nn.attention_fn(encoding, params)), normal(1, 3, N, DIM)
    projections = {
        part: {key: getattr(getattr(module, part), key).get_value() for key in ("kernel", "bias")}
        for part in ("query", "key", "value", "out")
    }
    mask = linen.make_causal_mask(jnp.ones((3, N)))  # floats of 0 and 1

    def loss(params):
        variables = {"params": {"layer": projections, "encoding": params}}
        return jnp.sum(jnp.sin(SelfAttention(encoding).apply(variables, x, PLACES, mask=mask)))

    def reference(params):
        return jnp.sum(jnp.sin(expected(module, encoding, params, x, mask=CAUSAL)))

    close(*(jax.jit(jax.value_and_grad(f))(params) for f in (loss, reference)))


def test_positions_are_the_index_in_the_row_unless_they_are_passed():
    rope, x = ENCODINGS["rope"], normal(1, 3, N, DIM)
    module = layer(nn.attention_fn(rope))
    plain = module(x)
    close(plain, expected(module, rope, (), x, LINE))
    module.attention_fn = nn.attention_fn(rope, (), PLACES)
    moved = module(x)
    close(moved, expected(module, rope, (), x))
    assert np.abs(moved - plain).max() > 1e-3
    rows = np.stack([LINE, PLACES, LINE])  # of each row
    with module.attention_fn.at(rows):
        out = module(x)
    close(out[:2], jnp.stack([plain[0], moved[1]]))
    with contextlib.suppress(ZeroDivisionError), module.attention_fn.at(rows):
        raise ZeroDivisionError
    close(module(x), moved)  # back at its own
    q, k, v = module.query(x), module.key(x), module.value(x)
    close(module.out(module.attention_fn(q, k, v, input_positions=rows)), out)


@pytest.mark.parametrize(("name", "positions"), [("xpos", None), ("t5", PLACES)])
def test_decoding_with_the_cache_of_flax_equals_the_whole_row(name, positions):
    encoding, params = encoding_and_params(name)
    module = layer(nn.attention_fn(encoding, params, positions, decode=True))
    x = normal(1, 2, N, DIM)
    whole = module(x, is_causal=True)
    module.init_cache(x.shape, dtype=jnp.float64)
    step = nnx.jit(lambda module, token: module(token, decode=True))
    steps = [step(module, x[:, i : i + 1]) for i in range(N)]
    close(jnp.concatenate(steps, axis=1), whole)


def test_decoding_rows_with_padding():
    """A mask of the caller hides slots of padding on the left; positions count tokens.

    The first head does not see the newest token, which is in the cache all the same.
    """
    rope, x = ENCODINGS["rope"], normal(1, 2, N, DIM)
    valid = np.arange(N) >= np.array([[0], [2]])
    earlier = np.stack([np.tri(N, k=-1, dtype=bool), CAUSAL])
    module = layer(nn.attention_fn(rope, (), nn.padded_positions(valid), decode=True))
    whole = module(x, mask=valid[:, None, None] & earlier)
    module.init_cache(x.shape, dtype=jnp.float64)
    step = nnx.jit(lambda module, token, mask: module(token, mask=mask, decode=True))
    for i in range(N):
        mask = valid[:, None, None] & np.where(np.arange(N) == i, earlier[:, i : i + 1], True)
        out = step(module, x[:, i : i + 1], mask)[:, 0]
        close(out[valid[:, i]], whole[:, i][valid[:, i]])


def test_cross_attention_takes_positions_of_both():
    t5, params = encoding_and_params("t5")
    x, memory = normal(1, 2, 3, DIM), normal(2, 2, N, DIM)
    i = np.array([4, 5, 6], np.int32)
    module = layer(nn.attention_fn(t5, params, i, k_positions=PLACES))
    close(module(x, memory), expected(module, t5, params, x, i, memory, PLACES))
    for queries in (x, x[:, :1]):
        with pytest.raises(ValueError, match="k_positions"):
            layer(nn.attention_fn(t5, params))(queries, memory)


def test_masks_and_causality_are_as_in_flax():
    """With no encoding and no empty row the layer computes what Flax's function computes."""
    plain, x = layer(nnx.dot_product_attention), normal(1, 2, N, DIM)
    module = layer(nn.attention_fn(encodings.identity()))
    mask = np.random.default_rng(0).random((2, 1, N, N)) < 0.5
    mask |= np.eye(N, dtype=bool)
    for options in ({}, {"mask": mask.astype(np.float32)}, {"mask": mask, "is_causal": True}):
        close(module(x, **options), plain(x, **options), atol=1e-6)


def test_memory_is_linear_in_blocks():
    """With is_causal no array is as large as the pairs, forward and backward."""
    n = 512
    function = nn.attention_fn(ENCODINGS["alibi"], implementation="blocks", block_size=32)
    graphdef, state = nnx.split(layer(function), nnx.Param)

    def has_pairs(**options):
        loss = jax.grad(lambda s, x: jnp.sum(nnx.merge(graphdef, s)(x, **options)))
        return f"{n},{n}]" in str(jax.make_jaxpr(loss)(state, jnp.zeros((1, n, DIM))))

    assert not has_pairs(is_causal=True)
    assert has_pairs(mask=np.tri(n, dtype=bool)[None, None])


@pytest.mark.parametrize("broadcast", [False, True])
def test_dropout_of_weights(broadcast):
    v = jnp.broadcast_to(jnp.eye(40)[:, None], (3, 40, HEADS, 40))  # the weights themselves
    q = jnp.zeros((3, 40, HEADS, 40))
    function = nn.attention_fn(encodings.identity(), implementation="blocks", block_size=16)
    drop = {"dropout_rate": 0.5, "broadcast_dropout": broadcast}
    with pytest.raises(ValueError, match="dropout_rng"):
        function(q, q, v, **drop)
    drop["dropout_rng"] = jax.random.key(0)
    assert np.all(function(q, q, v, deterministic=True, **drop) > 0)
    dropped = np.asarray(function(q, q, v, **drop) == 0)
    assert abs(dropped.mean() - 0.5) < 0.05
    assert (dropped == dropped[:1, :, :1]).all() == broadcast


def test_what_cannot_be_honoured_is_refused():
    q, function = jnp.zeros((1, N, HEADS, WIDTH)), nn.attention_fn(ENCODINGS["rope"])
    with pytest.raises(ValueError, match="precision"):
        layer(function, precision=jax.lax.Precision.HIGHEST)(normal(1, N, DIM))
    with pytest.raises(ValueError, match="einsum"):
        function(q, q, q, qk_attn_weights_einsum=jnp.einsum)
    with pytest.raises(ValueError, match="sow_weights"):
        layer(function)(normal(1, N, DIM), sow_weights=True)
    fox = encodings.fox(dim=DIM, num_heads=HEADS)
    for encoding, wrong in (
        (encodings.sinusoidal(dim=DIM), "embed"),
        (fox, "context"),
        (ENCODINGS["t5"], "params"),
    ):
        with pytest.raises(ValueError, match=wrong):
            nn.attention_fn(encoding)
