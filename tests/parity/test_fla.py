"""PaTH and forgetting attention against fla-core: see `make_fla.py`."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import encodings

PEER = np.load(Path(__file__).with_name("fla.npz"))
Q, K, V = (PEER[name] for name in "qkv")
BATCH, N, HEADS, WIDTH = Q.shape
PLACES = {"q_positions": np.arange(N), "k_positions": np.arange(N)}
CAUSAL = np.tril(np.ones((N, N), bool))


def attended(encoding, context=None, dtype=np.float64):
    contexts = {} if context is None else {"q_context": context, "k_context": context}
    q, k, v = (jnp.asarray(x, dtype) for x in (Q, K, V))
    params = {} if context is not None else ()
    return encodings.attend(encoding, params, q, k, v, mask=CAUSAL, **PLACES, **contexts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_forgetting(dtype):
    sums = jnp.cumsum(jnp.asarray(PEER["log_gate"], dtype), axis=1)
    out = attended(encodings.fox(dim=3, num_heads=HEADS), sums, dtype)
    np.testing.assert_allclose(out, PEER["forgetting"], atol=2e-6)


@pytest.mark.parametrize("chunk", [3, 64])
def test_path(chunk):
    place = jnp.broadcast_to(jnp.arange(1.0, N + 1), (BATCH, N))
    context = {"w": PEER["w"], "beta": PEER["beta"], "index": place}
    path = encodings.path_attention(dim=3, num_heads=HEADS, head_dim=WIDTH, chunk=chunk)
    np.testing.assert_allclose(attended(path, context), PEER["path"], atol=2e-6)
