"""Bounds of layers against their derivatives, over radii, masks, activations and encodings."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.li2025.lipschitz import layer_maps, lipschitz_bounds
from jaxpe import encodings, nn
from tests.nn.models import config, shapes_of

N, DIM, WIDTH = 5, 8, 4
RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((6, N, DIM))
POINTS /= np.linalg.norm(POINTS, axis=2, keepdims=True)  # tokens of norm 1
CASES = {
    "encoder": (nn.Encoder, encodings.identity(), {"activation": "relu"}),
    "decoder": (
        nn.Decoder,
        encodings.alibi(num_heads=2),
        {"activation": "gelu", "num_layers": 1},
    ),
    "shaw": (
        nn.Decoder,
        encodings.shaw(head_dim=WIDTH, max_distance=3, stddev=0.5),
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


def test_layers_one_after_another_are_the_model():
    model, *_ = case("encoder")
    layers = layer_maps(model, n=N)
    ids, places = np.zeros(N, np.int32), np.arange(N, dtype=np.int32)

    @jax.jit
    def both(x):
        embedded = model.embed(ids, vectors=x, positions=places)
        return _through(layers, embedded), model(ids, vectors=x).hidden

    np.testing.assert_allclose(*both(POINTS[0]))
