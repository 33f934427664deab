"""Bounds of layers against their derivatives, over radii, masks, activations and encodings."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe import nn
from jaxpe.spectral import largest_quotient, operator_norm
from tests.nn.models import config

N, DIM, WIDTH = 5, 8, 4
RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((6, N, DIM))
POINTS /= np.linalg.norm(POINTS, axis=2, keepdims=True)  # tokens of norm 1
CASES = {
    "encoder": (nn.Encoder, jaxpe.sinusoidal(dim=DIM), {"activation": "relu"}),
    "decoder": (nn.Decoder, jaxpe.alibi(num_heads=2), {"activation": "gelu"}),
    "grouped": (
        nn.Decoder,
        jaxpe.t5(num_heads=2),
        {"activation": "silu", "num_kv_heads": 1, "use_bias": False},
    ),
    "shaw": (
        nn.Encoder,
        jaxpe.shaw(head_dim=WIDTH, max_distance=3, stddev=0.5),
        {"activation": "gelu_tanh"},
    ),
}


def filled(kind, encoding, **changes):
    """A model without norms, with random parameters, biases among them."""
    sizes = config(**({"norm": "none", "activation": "relu"} | changes))
    make = lambda: kind(sizes, encoding=encoding, rngs=nnx.Rngs(0))  # noqa: E731
    graphdef, shapes = nnx.split(jax.eval_shape(make), nnx.Param)
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: jnp.asarray(0.4 * rng.standard_normal(x.shape)), shapes)
    return nnx.merge(graphdef, params)


@cache
def case(name):
    """`(model, measured, bounds)` of a case, both functions of a radius."""
    kind, encoding, changes = CASES[name]
    model = filled(kind, encoding, **changes)
    relative = None
    if name == "shaw":
        tables = model.encoding_params.get_value()
        relative = tuple(
            np.linalg.norm(tables[f"{part}_table"], axis=1).max() for part in ("key", "value")
        )
    layers = nn.layer_maps(model, n=N)

    @jax.jit
    def measured(radius):
        def at(x, key):
            """Of each layer at what enters it, of all together, and the norms of tokens."""
            norms, radii, start = [], [], x
            for layer, own in zip(layers, jax.random.split(key, len(layers)), strict=True):
                norms.append(operator_norm(layer, x, key=own, max_iterations=100).value)
                radii.append(jnp.max(jnp.linalg.norm(x, axis=1)))
                x = layer(x)
            whole = operator_norm(lambda x: _through(layers, x), start, key=key, max_iterations=100)
            return jnp.stack(norms), jnp.stack(radii), whole.value

        keys = jax.random.split(jax.random.key(0), len(POINTS))
        return jax.vmap(at)(radius * POINTS, keys)

    bounds = jax.jit(
        lambda radius: nn.lipschitz_bounds(model, n=N, radius=radius, relative=relative)
    )
    return model, measured, bounds


def _through(layers, x):
    for layer in layers:
        x = layer(x)
    return x


def by_layer(bounds):
    return np.stack([bounds.attention, bounds.feed_forward], axis=1).ravel()


@pytest.mark.parametrize("name", CASES)
def test_no_derivative_exceeds_its_bound(name):
    _, measured, bounds = case(name)
    shares = []
    for radius in (0.1, 1.0, 10.0):
        norms, radii, whole = (np.asarray(x) for x in measured(radius))
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
    ones = jax.tree_util.tree_map_with_path(
        lambda path, x: jnp.full_like(x, "kernel" in jax.tree_util.keystr(path)), params
    )
    model = nnx.merge(graphdef, ones)
    attention, _ = nn.layer_maps(model, n=2)
    jacobian = jax.jit(jax.jacobian(lambda x: attention(x[:, None])[:, 0] - x))
    bounds = jax.jit(lambda radius: nn.lipschitz_bounds(model, n=2, radius=radius))
    for R in (1.0, 10.0, 100.0):
        at = jacobian(jnp.array([0.0, R]))
        np.testing.assert_allclose(at[0, 0], 0.5 + R**2 / 4)
        bound = bounds(R)
        assert R**2 / 4 < np.linalg.norm(at, 2) <= bound.attention[0] - 1
        np.testing.assert_allclose(bound.attention[0], 1 + 2**0.5 * (1 + R**2) + R**2)
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
        layer, _ = nn.layer_maps(model, n=N)
        found = operator_norm(lambda x: layer(x) - x, x, key=jax.random.key(0))
        return found.value, nn.lipschitz_bounds(model, n=N, radius=3.0).attention[0] - 1

    np.testing.assert_allclose(both(jnp.ones((N, 2))), N**0.5, rtol=1e-6)


def test_quotients_within_the_ball():
    model, _, bounds = case("encoder")
    layer = nn.layer_maps(model, n=N)[0]
    x = POINTS * RNG.random((6, N, 1))
    quotient = jax.jit(lambda x, y: largest_quotient(layer, x, y))(x[:3], x[3:])
    assert 1 < quotient <= bounds(1.0).attention[0]


def test_bounds_grow_with_radius_and_tokens():
    model, _, bounds = case("decoder")
    assert np.all(bounds(1.0).attention < bounds(2.0).attention)
    longer = jax.jit(lambda: nn.lipschitz_bounds(model, n=4 * N, radius=1.0))()
    assert longer.attention[0] > bounds(1.0).attention[0]
    np.testing.assert_allclose(longer.feed_forward, bounds(1.0).feed_forward)


def test_layers_one_after_another_are_the_model():
    model, *_ = case("decoder")
    layers = nn.layer_maps(model, n=N)
    ids = np.zeros(N, np.int32)
    whole = jax.jit(lambda x: model(ids, vectors=x).hidden)(POINTS[0])
    np.testing.assert_allclose(jax.jit(lambda x: _through(layers, x))(POINTS[0]), whole)


@pytest.mark.parametrize(
    ("changes", "encoding", "message"),
    [
        ({"norm": "layer"}, jaxpe.identity(), "build it with norm='none'"),
        ({"keys_from": "embeddings"}, jaxpe.identity(), "keys_from='hidden'"),
        ({"activation": "swiglu"}, jaxpe.identity(), "pass one of relu, gelu, gelu_tanh, silu"),
        (
            {"latent": nn.LatentSizes(key_value_rank=2, rotary_dim=2)},
            jaxpe.identity(),
            "latent=None",
        ),
        ({}, jaxpe.rope(head_dim=WIDTH), "the encoding acts on queries: no bound here"),
        ({}, jaxpe.shaw(head_dim=WIDTH, max_distance=2), r"pass relative=\(key, value\)"),
        ({}, jaxpe.shaw(head_dim=WIDTH, max_distance=2, values=False), r"pass relative="),
    ],
)
def test_what_has_no_bound_is_refused(changes, encoding, message):
    model = filled(nn.Encoder, encoding, **changes)
    with pytest.raises(ValueError, match=message):
        nn.lipschitz_bounds(model, n=N, radius=1.0)


def test_no_tokens():
    with pytest.raises(ValueError, match="n is 0: pass at least one token"):
        nn.lipschitz_bounds(case("encoder")[0], n=0, radius=1.0)
