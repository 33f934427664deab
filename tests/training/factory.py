"""A model that is small enough to compile at once: one masked linear layer."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxpe.training import init_state
from jaxpe.training.losses import MeanMetric

OPTIMIZER = optax.adam(0.1)


def masked_loss(params, batch, key):
    """Squared error of a noisy linear layer, over the rows of the mask."""
    noise = 0.1 * jax.random.normal(key, params["bias"].shape, params["bias"].dtype)
    out = batch["x"].astype(params["bias"].dtype) @ params["kernel"]
    out += (params["bias"] + noise)[None]
    error = jnp.sum((out - 1) ** 2, axis=-1)
    keep = batch["mask"]
    weight = keep.sum(dtype=jnp.float32)
    largest = jnp.max(jnp.abs(out)).astype(jnp.float32)
    total = jnp.sum(jnp.where(keep, error, 0)).astype(jnp.float32)
    return MeanMetric(total, weight), {"largest": MeanMetric(largest, jnp.float32(1))}


def quiet_loss(params, batch, key):
    """The same without noise, so that it does not depend on how the batch is split."""
    return masked_loss(params, batch, jax.random.key(0))


def params(dtype=np.float32):
    random = np.random.default_rng(0)
    return {
        "kernel": jnp.asarray(random.standard_normal((3, 2)).astype(dtype)),
        "bias": jnp.zeros(2, dtype),
    }


def state(dtype=np.float32, seed=0, optimizer=OPTIMIZER):
    return init_state(params(dtype), optimizer, key=jax.random.key(seed))


def rows(count, seed=0):
    random = np.random.default_rng(seed)
    x = random.standard_normal((count, 3)).astype(np.float32)
    return {"x": x, "mask": random.random(count) < 0.6}


def assert_equal(actual, expected):
    """Leaf by leaf, bit by bit; keys by their data."""

    def bits(x):
        return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x

    jax.tree.map(lambda a, b: np.testing.assert_array_equal(bits(a), bits(b)), actual, expected)


def assert_close(actual, expected, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), actual, expected)
