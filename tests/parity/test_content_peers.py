"""DeBERTa and Inkling against HF transformers, from the file beside."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.encodings import deberta, inkling

HF = np.load(Path(__file__).parent / "transformers_content.npz")
Q, K = (HF[name].swapaxes(0, 1) for name in ("q", "k"))
N, HEADS, WIDTH = Q.shape
I = np.arange(N, dtype=np.int32)  # noqa: E741


@pytest.mark.parametrize(("name", "span", "max_distance"), [("log", 8, 20), ("plain", 6, None)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_deberta(name, span, max_distance, dtype):
    """Both terms of DeBERTa v2, with the tables' projections as parameters."""
    encoding = deberta(num_heads=HEADS, head_dim=WIDTH, num_buckets=span, max_distance=max_distance)
    params = {
        table: jnp.asarray(HF[f"deberta_{name}_{table}"].reshape(-1, HEADS, WIDTH), dtype)
        for table in ("key_table", "query_table")
    }
    q = encoding.query(params, Q.astype(dtype), I)
    ours = encoding.bias(params, q, jnp.asarray(K, dtype), I, I)
    np.testing.assert_allclose(ours, HF[f"deberta_{name}_bias"], atol=2e-6)


def test_inkling():
    encoding = inkling(num_heads=HEADS, dim=3, rank=3, extent=8)
    params = {"profiles": jnp.asarray(HF["inkling_profiles"])}
    r = jnp.asarray(HF["inkling_r"][0])
    ours = encoding.bias(params, Q[-5:], K, I[-5:], I, r, r)
    np.testing.assert_allclose(ours, HF["inkling_bias"], atol=2e-6)
