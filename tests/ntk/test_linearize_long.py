"""Linearised decoders beyond 512 positions, where attention is computed in blocks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxpe import encodings, nn
from jaxpe.ntk import linearize

LENGTH, VOCAB, DIM, HEADS = 520, 11, 8, 2
SIZES = encodings.EncodingSizes(dim=DIM, num_heads=HEADS, head_dim=DIM // HEADS, length=LENGTH)
IDS = np.random.default_rng(0).integers(0, VOCAB, (1, LENGTH))


@functools.cache
def decoder(name):
    """One layer in float64, `(params, ids) -> hidden states`, with parameters and a direction."""
    (entry,) = encodings.catalogue(name)
    config = nn.TransformerConfig(
        vocab_size=VOCAB,
        dim=DIM,
        num_layers=1,
        num_heads=HEADS,
        init_scale=0.5,
        embedding_scale=1.0,
        dtype=jnp.float64,
        param_dtype=jnp.float64,
    )
    model = nn.Decoder(config, encoding=entry.make(SIZES), rngs=nnx.Rngs(0))
    apply, params = nn.functionalize(model)
    rng = np.random.default_rng(1)
    direction = jax.tree.map(lambda a: jnp.asarray(rng.standard_normal(a.shape)), params)
    return jax.jit(lambda params, ids: apply(params, ids).hidden), params, direction


def moved(params, direction, t):
    return jax.tree.map(lambda p, d: p + t * d, params, direction)


def difference(f, params, direction, step=1e-6):
    ends = (f(moved(params, direction, sign * step)) for sign in (1, -1))
    return np.subtract(*ends) / (2 * step)


def close(found, numerical):
    assert np.abs(numerical).max() > 0.01
    np.testing.assert_allclose(found, numerical, rtol=0, atol=1e-6 * np.abs(numerical).max())


@pytest.mark.parametrize("name", ["rope", "t5"])
def test_linearize_equals_finite_differences(name):
    f, params, direction = decoder(name)
    linear = jax.jit(linearize(f, params))
    slope = linear(moved(params, direction, 1.0), IDS) - f(params, IDS)
    close(slope, difference(lambda p: f(p, IDS), params, direction))


def test_forward_derivatives_of_a_function_of_the_model():
    f, params, direction = decoder("rope")

    def score(params):
        return jnp.sum(jnp.tanh(f(params, IDS)[:, -1]) ** 2, axis=-1)

    _, slope = jax.jit(lambda p, d: jax.jvp(score, (p,), (d,)))(params, direction)
    close(slope, difference(score, params, direction))
