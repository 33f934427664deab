"""Bounds of layers against their derivatives, over radii, masks, activations and encodings."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from flax import nnx

import jaxpe
from experiments.li2025.lipschitz import _SLOPES, layer_maps, lipschitz_bounds
from jaxpe import nn
from tests.nn.models import config, shapes_of

N, DIM, WIDTH = 5, 8, 4
RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((6, N, DIM))
POINTS /= np.linalg.norm(POINTS, axis=2, keepdims=True)  # tokens of norm 1
CASES = {
    "encoder": (nn.Encoder, jaxpe.identity(), {"activation": "relu"}),
    "decoder": (nn.Decoder, jaxpe.alibi(num_heads=2), {"activation": "gelu", "num_layers": 1}),
    "shaw": (
        nn.Decoder,
        jaxpe.shaw(head_dim=WIDTH, max_distance=3, stddev=0.5),
        {"activation": "silu", "num_layers": 1, "num_kv_heads": 1, "use_bias": False},
    ),
}


def filled(kind, encoding, **changes):
    """A model without norms, with random parameters, biases among them."""
    sizes = config(**({"norm": "none", "activation": "relu"} | changes))
    make = lambda: kind(sizes, encoding=encoding, rngs=nnx.Rngs(0))  # noqa: E731
    graphdef, shapes = nnx.split(shapes_of(make), nnx.Param)
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: jnp.asarray(0.4 * rng.standard_normal(x.shape)), shapes)
    return nnx.merge(graphdef, params)


@cache
def case(name):
    """`(model, jacobians, bounds)` of a case, the last two functions of a radius."""
    kind, encoding, changes = CASES[name]
    model = filled(kind, encoding, **changes)
    relative = None
    if name == "shaw":
        tables = model.encoding_params.get_value()
        relative = tuple(
            np.linalg.norm(tables[f"{part}_table"], axis=1).max() for part in ("key", "value")
        )
    layers = layer_maps(model, n=N)

    @jax.jit
    @jax.vmap
    def at(x):
        """Of each layer at what enters it, and the largest norm of a token there."""
        found, radii = [], []
        for layer in layers:
            found.append(jax.jacfwd(layer)(x).reshape(N * DIM, N * DIM))
            radii.append(jnp.max(jnp.linalg.norm(x, axis=1)))
            x = layer(x)
        return jnp.stack(found), jnp.stack(radii)

    bounds = jax.jit(lambda radius: lipschitz_bounds(model, n=N, radius=radius, relative=relative))
    return model, lambda radius: at(radius * POINTS), bounds


def _through(layers, x):
    for layer in layers:
        x = layer(x)
    return x


def by_layer(bounds):
    return np.stack([bounds.attention, bounds.feed_forward], axis=1).ravel()


@pytest.mark.parametrize("name", CASES)
def test_no_derivative_exceeds_its_bound(name):
    _, jacobians, bounds = case(name)
    shares = []
    for radius in (0.1, 1.0, 10.0):
        found, radii = (np.asarray(x) for x in jacobians(radius))
        norms = np.linalg.norm(found, 2, axis=(2, 3))
        # The identity lets multi_dot take a single layer, too.
        through = [np.linalg.multi_dot([np.eye(N * DIM), *one[::-1]]) for one in found]
        whole = np.linalg.norm(through, 2, axis=(1, 2))
        bound = bounds(radius)
        assert np.all(norms <= by_layer(bound) * (1 + 1e-9))
        assert np.all(radii <= np.asarray(bound.radii).ravel() * (1 + 1e-9))
        assert np.all(whole <= float(bound.whole))
        np.testing.assert_allclose(bound.whole, by_layer(bound).prod())
        shares.append(norms.max(axis=0) / by_layer(bound))
    assert np.max(shares) > 0.25  # bounds that are near somewhere


def test_attention_has_no_constant_of_weights_alone():
    """Width 1, weights 1, tokens 0 and R: a derivative above ½ + R²/4, and below the bound."""
    sizes = config(dim=1, num_heads=1, num_layers=1, hidden_dim=1, norm="none", activation="relu")
    model = nn.Encoder(sizes, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model, nnx.Param)

    def ones(b):
        """The model with weights 1, biases 0 and the bias b of queries."""
        weights = jax.tree_util.tree_map_with_path(
            lambda path, x: jnp.full_like(x, "kernel" in jax.tree_util.keystr(path)), params
        )
        model = nnx.merge(graphdef, weights)
        model.layers.attention.query.bias[...] = jnp.full((1, 1), b)
        return model

    attention, _ = layer_maps(ones(0.0), n=2)
    jacobian = jax.jit(jax.jacobian(lambda x: attention(x[:, None])[:, 0] - x))
    bounds = jax.jit(lambda radius, b: lipschitz_bounds(ones(b), n=2, radius=radius))
    for R in (1.0, 10.0, 100.0):
        at = jacobian(jnp.array([0.0, R]))
        np.testing.assert_allclose(at[0, 0], 0.5 + R**2 / 4)
        bound, biased = bounds(R, 0.0), bounds(R, 3.0)
        assert R**2 / 4 < np.linalg.norm(at, 2) <= bound.attention[0] - 1
        np.testing.assert_allclose(bound.attention[0], 1 + 2**0.5 * (1 + R**2) + R**2)
        np.testing.assert_allclose(biased.attention[0], bound.attention[0] + 2**0.5 * 3 * R)
        assert bound.feed_forward[0] == 2


def test_n_queries_on_one_key_reach_the_root_of_n():
    """Values 1, queries and keys 0 but for a bias that sends all to the first key: ‖a‖ = √n."""
    first = jaxpe.Encoding(bias=lambda params, q, k, i, j: -100.0 * j.astype(q.dtype)[None, None])
    model = filled(nn.Encoder, first, dim=2, num_heads=1, num_layers=1, use_bias=False)
    attention = model.layers.attention
    for name, value in (("query", 0.0), ("key", 0.0), ("value", 1.0), ("output", 1.0)):
        getattr(attention, name).kernel.set_value(jnp.asarray(value * np.eye(2)[None]))

    @jax.jit
    def both(x):
        layer, _ = layer_maps(model, n=N)
        jacobian = jax.jacfwd(lambda x: layer(x) - x)(x)
        return jacobian, lipschitz_bounds(model, n=N, radius=3.0).attention[0] - 1

    jacobian, bound = both(jnp.ones((N, 2)))
    norm = np.linalg.norm(np.reshape(jacobian, (2 * N, 2 * N)), 2)
    np.testing.assert_allclose([norm, bound], N**0.5, rtol=1e-6)


def test_tokens_that_may_look_nowhere():
    """Attention gives them b_O, which b_V cancels for all others."""
    model = filled(nn.Encoder, jaxpe.identity(), dim=2, num_heads=1, num_layers=1, hidden_dim=2)
    attention, mlp = model.layers.attention, model.layers.mlp
    for layer, kernel, bias in (
        *((layer, np.eye(2), 0.0) for layer in (attention.query, attention.key)),
        (attention.value, np.eye(2), -10.0),
        (attention.output, np.eye(2), 10.0),
        *((layer, np.zeros((2, 2)), 0.0) for layer in (mlp.up, mlp.down)),
    ):
        layer.kernel.set_value(jnp.asarray(kernel[None]))
        layer.bias.set_value(jnp.full((1, 2), bias))
    bound = jax.jit(lambda: lipschitz_bounds(model, n=N, radius=1.0).last_radius)()
    run = jax.jit(lambda x, mask: model(np.zeros(N, np.int32), vectors=x, mask=mask).hidden)
    x = np.tile([[0.6, 0.8]], (N, 1))
    largest = [np.linalg.norm(run(x, np.full(N, seen)), axis=1).max() for seen in (True, False)]
    np.testing.assert_allclose(largest, [2, np.hypot(10.6, 10.8)])
    np.testing.assert_allclose(bound, 2 + 10 * 2**0.5)


def test_parameters_of_16_bits_and_a_radius_that_they_do_not_have():
    """Computed in float32: in bfloat16 0.3 would be below itself, and so would be products."""
    narrow = {"num_layers": 1, "use_bias": False, "param_dtype": jnp.bfloat16}
    model = filled(nn.Encoder, jaxpe.alibi(num_heads=2), **narrow)
    graphdef, params = nnx.split(model, nnx.Param)
    model = nnx.merge(graphdef, jax.tree.map(lambda x: x.astype(jnp.bfloat16), params))
    bound = jax.jit(lambda: lipschitz_bounds(model, n=N, radius=0.3))()
    kernels = (part.kernel.get_value()[0] for part in (model.layers.mlp.up, model.layers.mlp.down))
    up, down = (np.linalg.norm(np.asarray(kernel, float), 2) for kernel in kernels)
    assert bound.whole.dtype == jnp.float32
    np.testing.assert_allclose(bound.feed_forward, 1 + up * down, rtol=1e-6)
    np.testing.assert_allclose(bound.radii[0, 0], 0.3, rtol=1e-7)
    between = float(bound.radii[0, 1])
    np.testing.assert_allclose(bound.last_radius, between * (1 + up * down), rtol=1e-6)


def test_quotients_within_the_ball():
    model, _, bounds = case("encoder")
    layer = layer_maps(model, n=N)[0]
    x = POINTS * RNG.random((6, N, 1))
    steps = x[:3] - x[3:], np.subtract(*np.split(np.asarray(jax.jit(jax.vmap(layer))(x)), 2))
    before, after = (np.linalg.norm(step, axis=(1, 2)) for step in steps)
    assert 1 < np.max(after / before) <= bounds(1.0).attention[0]


def test_a_scale_of_attention_is_a_scale_of_the_queries():
    """Heads of 4 numbers divide logits by 2, so that a scale of 1 is as doubled queries."""
    options = {"activation": "relu", "num_layers": 1}
    scaled = filled(nn.Encoder, jaxpe.identity(), attention_scale=1.0, **options)
    doubled = filled(nn.Encoder, jaxpe.identity(), **options)
    for param in jax.tree.leaves(
        nnx.state(doubled.layers.attention.query), is_leaf=lambda x: isinstance(x, nnx.Variable)
    ):
        param.set_value(2 * param.get_value())
    bounds = [lipschitz_bounds(model, n=N, radius=1.0) for model in (scaled, doubled)]
    np.testing.assert_allclose(bounds[0].attention, bounds[1].attention, rtol=1e-6)


def test_bounds_of_attention_grow_with_the_radius():
    bounds = case("encoder")[2]
    assert np.all(bounds(1.0).attention < bounds(2.0).attention)
    assert np.all(bounds(1.0).feed_forward == bounds(2.0).feed_forward)


def test_layers_one_after_another_are_the_model():
    model, *_ = case("encoder")
    layers = layer_maps(model, n=N)
    ids, places = np.zeros(N, np.int32), np.arange(N, dtype=np.int32)

    @jax.jit
    def both(x):
        embedded = model.embed(ids, vectors=x, positions=places)
        return _through(layers, embedded), model(ids, vectors=x).hidden

    np.testing.assert_allclose(*both(POINTS[0]))


def test_slopes_of_activations():
    """Bounds of their derivatives, as near as the digits they have."""
    x = np.linspace(-6.0, 6.0, 120_001)
    cube = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    values = {
        "relu": np.maximum(x, 0),
        "gelu": x * scipy.special.ndtr(x),
        "gelu_tanh": x * (1 + np.tanh(cube)) / 2,
        "silu": x * scipy.special.expit(x),
    }
    slopes = {name: np.abs(np.diff(y)).max() / 1e-4 for name, y in values.items()}
    assert slopes.keys() == _SLOPES.keys()
    for name, slope in slopes.items():
        assert slope - 1e-6 < _SLOPES[name] < slope + 2e-4
