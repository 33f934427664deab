"""Attention functions in the attention layers of Flax."""

import contextlib

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe import nn

N, HEADS, WIDTH, DIM = 6, 2, 4, 8
PLACES = np.array([0, 1, 2, 7, 8, 9], np.int32)
ENCODINGS = {
    "rope": jaxpe.rope(head_dim=WIDTH),
    "xpos": jaxpe.encodings.xpos(head_dim=WIDTH),
    "alibi": jaxpe.alibi(num_heads=HEADS),
    "t5": jaxpe.t5(num_heads=HEADS, num_buckets=8, max_distance=20),
    "fire": jaxpe.fire(num_heads=HEADS, hidden=5, threshold=4.5),
    "shaw": jaxpe.encodings.shaw(head_dim=WIDTH, max_distance=3),
}
CAUSAL = np.tri(N, dtype=bool)
FLOAT64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}


@pytest.fixture(autouse=True)
def promotion_of_flax():
    """Flax mixes integers, float32 and float64."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def encoding_and_params(name):
    """Parameters with something everywhere."""
    params = ENCODINGS[name].init(jax.random.key(0))
    leaves, tree = jax.tree.flatten(params)
    return ENCODINGS[name], tree.unflatten([x + 0.3 * normal(7, *x.shape) for x in leaves])


def layer(function, **options):
    return nnx.MultiHeadAttention(
        HEADS,
        DIM,
        attention_fn=function,
        **(FLOAT64 | {"decode": False} | options),
        rngs=nnx.Rngs(0),
    )


def expected(module, encoding, params, x, **options):
    """The layer's projections around `jaxpe.attend`."""
    q, k, v = module.query(x), module.key(x), module.value(x)
    return module.out(jaxpe.attend(encoding, params, q, k, v, **options))


def at(i):
    return {"q_positions": i, "k_positions": i}


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_nnx_layer_equals_attend_and_so_do_its_gradients(name):
    encoding, params = encoding_and_params(name)
    module, x = layer(nn.attention_fn(encoding, params)), normal(1, 3, N, DIM)
    graphdef, state = nnx.split(module, nnx.Param)

    @jax.jit
    def loss(state, x):
        module = nnx.merge(graphdef, state)
        with module.attention_fn.at(PLACES):
            return jnp.sum(jnp.sin(module(x, mask=CAUSAL[None, None])))

    @jax.jit
    def reference(state, params, x):
        module = nnx.merge(graphdef, state)
        out = expected(module, encoding, params, x, mask=CAUSAL, **at(PLACES))
        return jnp.sum(jnp.sin(out))

    wanted, (of_state, of_params, of_x) = jax.value_and_grad(reference, (0, 1, 2))(state, params, x)
    found, (gradient, of_input) = jax.value_and_grad(loss, (0, 1))(state, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    np.testing.assert_allclose(of_input, of_x, atol=1e-12)
    if jax.tree.leaves(params):
        of_encoding = gradient["attention_fn"].pop("encoding_params").get_value()
        of_state["attention_fn"].pop("encoding_params")
        for a, b in zip(*map(jax.tree.leaves, (of_encoding, of_params)), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12)
        assert max(np.abs(x).max() for x in jax.tree.leaves(of_encoding)) > 1e-4
    for a, b in zip(*map(jax.tree.leaves, (gradient, of_state)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


class SelfAttention(linen.Module):
    encoding: jaxpe.Encoding

    @linen.compact
    def __call__(self, x, positions, **options):
        params = self.param("encoding", self.encoding.init)
        function = nn.attention_fn(self.encoding, params, positions)
        inner = linen.MultiHeadDotProductAttention(
            HEADS, attention_fn=function, name="layer", **FLOAT64
        )
        return inner(x, **options)


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_linen_layer_equals_the_nnx_layer(name):
    encoding, params = encoding_and_params(name)
    module, x = layer(nn.attention_fn(encoding, params)), normal(1, 3, N, DIM)
    projections = {
        part: {key: getattr(getattr(module, part), key).get_value() for key in ("kernel", "bias")}
        for part in ("query", "key", "value", "out")
    }
    linear = SelfAttention(encoding)
    shapes = jax.eval_shape(linear.init, jax.random.key(0), x, PLACES)["params"]
    assert jax.tree.map(jnp.shape, projections) == jax.tree.map(jnp.shape, shapes["layer"])
    mask = linen.make_causal_mask(jnp.ones((3, N)))  # floats of 0 and 1

    def loss(params):
        variables = {"params": {"layer": projections, "encoding": params}}
        return jnp.sum(jnp.sin(linear.apply(variables, x, PLACES, mask=mask)))

    def reference(params):
        out = expected(module, encoding, params, x, mask=CAUSAL, **at(PLACES))
        return jnp.sum(jnp.sin(out))

    found, wanted = (jax.jit(jax.value_and_grad(f))(params) for f in (loss, reference))
    for a, b in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_positions_are_the_index_in_the_row_unless_they_are_passed():
    rope, x = ENCODINGS["rope"], normal(1, 3, N, DIM)
    line = np.arange(N, dtype=np.int32)
    module = layer(nn.attention_fn(rope))
    plain = module(x)
    np.testing.assert_allclose(plain, expected(module, rope, (), x, **at(line)), atol=1e-12)
    module.attention_fn = nn.attention_fn(rope, (), PLACES)
    moved = module(x)
    np.testing.assert_allclose(moved, expected(module, rope, (), x, **at(PLACES)), atol=1e-12)
    assert np.abs(moved - plain).max() > 1e-3
    rows = np.stack([line, PLACES, line])  # of each row
    with module.attention_fn.at(rows):
        out = module(x)
    np.testing.assert_allclose(out[0], plain[0], atol=1e-12)
    np.testing.assert_allclose(out[1], moved[1], atol=1e-12)
    np.testing.assert_allclose(module(x), moved, atol=1e-12)  # back at its own
    with contextlib.suppress(ZeroDivisionError), module.attention_fn.at(rows):
        raise ZeroDivisionError
    np.testing.assert_allclose(module(x), moved, atol=1e-12)
    q, k, v = module.query(x), module.key(x), module.value(x)
    given = module.attention_fn(q, k, v, input_positions=rows)
    np.testing.assert_allclose(module.out(given), out, atol=1e-12)


def test_positions_of_a_batch_under_nnx_jit_compile_once():
    module, x, traced = layer(nn.attention_fn(ENCODINGS["rope"])), normal(1, 2, N, DIM), []

    @nnx.jit
    def run(module, x, positions):
        traced.append(0)
        with module.attention_fn.at(positions):
            return module(x)

    outs = [run(module, x, PLACES * c) for c in (1, 2, 3)]
    assert len(traced) == 1
    assert np.abs(outs[1] - outs[0]).max() > 1e-3
    np.testing.assert_allclose(run(module, x, np.arange(N, dtype=np.int32)), module(x), atol=1e-12)


def test_layers_share_parameters_that_are_one_param():
    encoding, params = encoding_and_params("t5")
    shared = nnx.Param(params)
    layers = nnx.List(layer(nn.attention_fn(encoding, shared)) for _ in range(2))
    x = normal(1, N, DIM)

    def loss(layers, x):
        return jnp.sum(layers[1](layers[0](x)))

    gradient = nnx.grad(loss)(layers, x)
    tables = [path for path, _ in nnx.to_flat_state(gradient) if "encoding_params" in path]
    assert len(tables) == 1


@pytest.mark.parametrize("name", ["rope", "xpos", "t5"])
@pytest.mark.parametrize("positions", [None, PLACES])
def test_decoding_with_the_cache_of_flax_equals_the_whole_row(name, positions):
    encoding, params = encoding_and_params(name)
    function = nn.attention_fn(encoding, params, positions, decode=True)
    module, x = layer(function), normal(1, 2, N, DIM)
    whole = module(x, is_causal=True)
    module.init_cache(x.shape, dtype=jnp.float64)

    @nnx.jit
    def step(module, token):
        return module(token, decode=True)

    steps = [step(module, x[:, i : i + 1]) for i in range(N)]
    np.testing.assert_allclose(jnp.concatenate(steps, axis=1), whole, atol=1e-12)


def test_decoding_in_linen_equals_the_whole_row():
    encoding, params = encoding_and_params("rope")
    options = {"attention_fn": nn.attention_fn(encoding, params, decode=True), **FLOAT64}
    x = normal(1, 2, N, DIM)
    whole = linen.MultiHeadDotProductAttention(HEADS, **options)
    variables = whole.init(jax.random.key(0), x)
    wanted = whole.apply(variables, x, mask=CAUSAL[None, None])
    step = linen.MultiHeadDotProductAttention(HEADS, decode=True, **options)
    cache = step.init(jax.random.key(0), x)["cache"]
    for i in range(N):
        out, changed = step.apply(variables | {"cache": cache}, x[:, i : i + 1], mutable=["cache"])
        cache = changed["cache"]
        np.testing.assert_allclose(out[:, 0], wanted[:, i], atol=1e-12)


def test_decoding_rows_with_padding():
    """A mask of the caller hides slots of padding on the left; positions count tokens.

    The first head does not see the newest token, which is in the cache all the same.
    """
    rope, x = ENCODINGS["rope"], normal(1, 2, N, DIM)
    valid = np.arange(N) >= np.array([[0], [2]])
    earlier = np.stack([np.tri(N, k=-1, dtype=bool), CAUSAL])
    positions = nn.padded_positions(valid)
    module = layer(nn.attention_fn(rope, (), positions, decode=True))
    whole = module(x, mask=valid[:, None, None] & earlier)
    module.init_cache(x.shape, dtype=jnp.float64)
    for i in range(N):
        mask = valid[:, None, None] & np.where(np.arange(N) == i, earlier[:, i : i + 1], True)
        out = module(x[:, i : i + 1], mask=jnp.asarray(mask), decode=True)[:, 0]
        np.testing.assert_allclose(out[valid[:, i]], whole[:, i][valid[:, i]], atol=1e-12)


def test_cross_attention_takes_positions_of_both():
    t5, params = encoding_and_params("t5")
    x, memory = normal(1, 2, 3, DIM), normal(2, 2, N, DIM)
    i, j = np.array([4, 5, 6], np.int32), PLACES
    module = layer(nn.attention_fn(t5, params, i, k_positions=j))
    q, k, v = module.query(x), module.key(memory), module.value(memory)
    wanted = module.out(jaxpe.attend(t5, params, q, k, v, q_positions=i, k_positions=j))
    np.testing.assert_allclose(module(x, memory), wanted, atol=1e-12)
    with pytest.raises(ValueError, match="3 queries and 6 keys: pass attention_fn positions and"):
        layer(nn.attention_fn(t5, params))(x, memory)
    with pytest.raises(ValueError, match=r"1 queries and 6 keys.*or decode=True"):
        layer(nn.attention_fn(t5, params))(x[:, :1], memory)


def test_masks_and_causality_are_as_in_flax():
    """With no encoding and no empty row the layer computes what Flax's function computes."""
    plain, x = layer(nnx.dot_product_attention), normal(1, 2, N, DIM)
    module = layer(nn.attention_fn(jaxpe.identity()))
    mask = np.random.default_rng(0).random((2, 1, N, N)) < 0.5
    mask |= np.eye(N, dtype=bool)
    for options in (
        {},
        {"mask": mask},
        {"mask": mask.astype(np.float32)},
        {"is_causal": True},
        {"mask": mask, "is_causal": True},
    ):
        found, wanted = module(x, **options), plain(x, **options)
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_memory_is_linear_in_blocks():
    """With is_causal no array is as large as the pairs, forward and backward."""
    n, size = 512, 32
    function = nn.attention_fn(ENCODINGS["alibi"], implementation="blocks", block_size=size)
    module, x = layer(function), jnp.zeros((1, n, DIM))
    graphdef, state = nnx.split(module, nnx.Param)

    def loss(state, x, **options):
        return jnp.sum(nnx.merge(graphdef, state)(x, **options))

    def largest(**options):
        text = str(jax.make_jaxpr(jax.grad(lambda s, x: loss(s, x, **options)))(state, x))
        return f"{n},{n}]" in text

    assert not largest(is_causal=True)
    assert largest(mask=np.tri(n, dtype=bool)[None, None])
    short = x[:, : 3 * size] + normal(1, 1, 3 * size, DIM)
    dense = layer(nn.attention_fn(ENCODINGS["alibi"], implementation="dense"))
    np.testing.assert_allclose(
        module(short, is_causal=True), dense(short, is_causal=True), atol=1e-12
    )


@pytest.mark.parametrize("broadcast", [False, True])
def test_dropout_of_weights(broadcast):
    rate, x = 0.5, normal(1, 3, 40, DIM)
    options = {"dropout_rate": rate, "broadcast_dropout": broadcast}
    module = layer(nn.attention_fn(ENCODINGS["alibi"]), **options)
    still = module(x, deterministic=True)
    np.testing.assert_allclose(still, layer(nn.attention_fn(ENCODINGS["alibi"]))(x), atol=1e-12)
    out = module(x, deterministic=False, rngs=nnx.Rngs(dropout=1))
    assert np.abs(out - still).max() > 1e-3
    again = module(x, deterministic=False, rngs=nnx.Rngs(dropout=1))
    np.testing.assert_array_equal(out, again)
    v = jnp.broadcast_to(jnp.eye(40)[:, None], (3, 40, HEADS, 40))  # the weights themselves
    q = jnp.zeros((3, 40, HEADS, 40))
    for implementation in ("dense", "blocks"):
        function = nn.attention_fn(jaxpe.identity(), implementation=implementation, block_size=16)
        drop = {"dropout_rate": rate, "dropout_rng": jax.random.key(0)}
        dropped = np.asarray(function(q, q, v, broadcast_dropout=broadcast, **drop) == 0)
        assert abs(dropped.mean() - rate) < 0.05
        alike = (dropped == dropped[:1, :, :1]).all()
        assert alike == broadcast
    with pytest.raises(ValueError, match=r"dropout_rate=0\.5 needs a key: pass dropout_rng"):
        function(q, q, v, dropout_rate=0.5)


def test_16_bit_inputs():
    function = nn.attention_fn(ENCODINGS["rope"], decode=True)
    options = {"dtype": jnp.bfloat16, "param_dtype": jnp.float32}
    module, x = layer(function, **options), normal(1, 2, N, DIM).astype(jnp.bfloat16)
    whole = module(x, is_causal=True)
    assert whole.dtype == jnp.bfloat16
    module.init_cache(x.shape, dtype=jnp.bfloat16)
    out = module(x[:, :1], decode=True)
    np.testing.assert_allclose(*(a[:, 0].astype(np.float32) for a in (out, whole)), atol=2e-2)


def test_what_cannot_be_honoured_is_refused():
    q, function = jnp.zeros((1, N, HEADS, WIDTH)), nn.attention_fn(ENCODINGS["rope"])
    highest = jax.lax.Precision.HIGHEST
    with pytest.raises(ValueError, match=r"precision.*set jax\.default_matmul_precision instead"):
        layer(function, precision=highest)(normal(1, N, DIM))
    inner = linen.MultiHeadDotProductAttention(HEADS, attention_fn=function, precision=highest)
    with pytest.raises(ValueError, match=r"set jax\.default_matmul_precision"):
        inner.init(jax.random.key(0), normal(1, N, DIM))
    for name in ("qk_attn_weights_einsum", "attn_weights_value_einsum"):
        with pytest.raises(ValueError, match="pass no einsum to the layer"):
            function(q, q, q, **{name: jnp.einsum})
    with pytest.raises(TypeError, match="bias"):
        function(q, q, q, bias=jnp.zeros((1, 1, N, N)))


def test_weights_cannot_be_sowed():
    with pytest.raises(ValueError, match="sow_weights"):
        layer(nn.attention_fn(ENCODINGS["rope"]))(normal(1, N, DIM), sow_weights=True)


def test_encodings_that_need_more_than_queries_and_keys_are_refused():
    with pytest.raises(ValueError, match="defines `embed`: call it in your own attention"):
        nn.attention_fn(jaxpe.sinusoidal(dim=DIM))
    with pytest.raises(ValueError, match="defines `context`: call it in your own attention"):
        nn.attention_fn(jaxpe.encodings.fox(dim=DIM, num_heads=HEADS))
    with pytest.raises(ValueError, match=r"has parameters: pass params=encoding\.init"):
        nn.attention_fn(ENCODINGS["t5"])


@pytest.mark.parametrize("name", ["rope", "alibi", "t5"])
def test_the_flax_layer_equals_the_layer_of_jaxpe(name):
    encoding, params = encoding_and_params(name)
    config = nn.TransformerConfig(vocab_size=9, dim=DIM, num_layers=1, num_heads=HEADS, **FLOAT64)
    own = nn.MultiHeadAttention(config, encoding=encoding, rngs=nnx.Rngs(1))
    own.encoding_params = nnx.Param(params)
    module, x = layer(nn.attention_fn(encoding, params)), normal(1, 3, N, DIM)
    for part in ("query", "key", "value"):
        kernel, bias = getattr(own, part).kernel, getattr(own, part).bias
        getattr(module, part).kernel[...] = kernel[...].reshape(DIM, HEADS, WIDTH)
        getattr(module, part).bias[...] = bias[...].reshape(HEADS, WIDTH)
    module.out.kernel[...] = own.output.kernel[...].reshape(HEADS, WIDTH, DIM)
    module.out.bias[...] = own.output.bias[...]
    mask = nn.attention_mask(N, causal=True)
    wanted = own(x, nn.Context(PLACES, PLACES, mask)).output
    with module.attention_fn.at(PLACES):
        np.testing.assert_allclose(module(x, is_causal=True), wanted, atol=1e-12)
