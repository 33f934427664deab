"""Shaw et al. and Transformer-XL: their formulas, entry by entry, and laws of their own.

What all encodings of pairs have in common is in `test_pairs.py`.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.encodings import shaw, transformer_xl
from jaxpe.encodings.attention import attend
from jaxpe.encodings.attention_terms import attention_logits

HEADS, WIDTH = 2, 4
QUERIES, KEYS = np.array([0, 3, 4, 9, 2, 700, 25]), np.array([5, 4, 0, 0, 2, 699, 31, 8, 3])


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def arrays(n_q=7, n_k=9):
    return (
        normal(0, n_q, HEADS, WIDTH),
        normal(1, n_k, HEADS, WIDTH),
        normal(2, n_k, HEADS, WIDTH),
    )


def perturbed(params, seed=0):
    leaves, tree = jax.tree.flatten(params)
    moved = [np.asarray(leaf) + normal(seed + s, *leaf.shape) for s, leaf in enumerate(leaves)]
    return tree.unflatten(moved)


def shares(seed, *shape):
    """Rows of weights that sum to 1."""
    weights = np.exp(normal(seed, *shape))
    return jnp.asarray(weights / weights.sum(-1, keepdims=True))


# Shaw et al.

CLIP = 3


def shaw_row(i, j):
    return max(-CLIP, min(CLIP, int(j) - int(i))) + CLIP


def explicit_shaw(params, q, k, v):
    """Logits and outputs of Eqs. (3) and (4)."""
    rows = np.array([[shaw_row(i, j) for j in KEYS] for i in QUERIES])
    keys = k[None] + params["key_table"][rows][:, :, None]
    logits = np.einsum("qhd,qkhd->hqk", q, keys) / WIDTH**0.5
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    values = v[None] + params["value_table"][rows][:, :, None]
    return logits, np.einsum("hqk,qkhd->qhd", weights, values)


def test_shaw_is_its_formula():
    encoding = shaw(head_dim=WIDTH, max_distance=CLIP)
    params = perturbed(encoding.init(jax.random.key(0)))
    q, k, v = arrays()
    expected = explicit_shaw(*jax.tree.map(np.asarray, (params, q, k, v)))
    where = {"q_positions": QUERIES, "k_positions": KEYS}

    @jax.jit
    def found(params):
        logits = attention_logits(encoding, params, q, k, **where)
        return logits, attend(encoding, params, q, k, v, **where)

    for ours, by_entry in zip(found(params), expected, strict=True):
        np.testing.assert_allclose(ours, by_entry, atol=1e-12)


def test_shaw_between_offsets_is_the_mean_of_its_neighbours():
    encoding = shaw(head_dim=WIDTH, max_distance=CLIP)
    params = perturbed(encoding.init(jax.random.key(0)))
    q, k, _ = arrays()
    weights = shares(4, HEADS, len(QUERIES), len(KEYS))

    @jax.jit
    def both(j):
        return encoding.bias(params, q, k, QUERIES, j), encoding.value(params, weights, QUERIES, j)

    whole, moved, following = both(KEYS), both(KEYS + 0.25), both(KEYS + 1)
    for below, between, above in zip(whole, moved, following, strict=True):
        np.testing.assert_allclose(between, 0.75 * below + 0.25 * above, atol=1e-12)
    for exact, as_floats in zip(whole, both(KEYS.astype(np.float64)), strict=True):
        np.testing.assert_allclose(as_floats, exact, atol=1e-14)


# Transformer-XL


def explicit_transformer_xl(params, q, k, dim, i, j):
    """All four terms of the logits."""
    u, v, W = params["content_bias"], params["position_bias"], params["projection"]
    logits = np.zeros((HEADS, len(q), len(k)))
    for h in range(HEADS):
        for a in range(len(i)):
            for b in range(len(j)):
                phases = (i[a] - j[b]) * 10_000.0 ** (-np.arange(0, dim, 2) / dim)
                R = np.concatenate([np.sin(phases), np.cos(phases)]) @ W[:, h]
                terms = (q[a, h] + u[h]) @ k[b, h] + (q[a, h] + v[h]) @ R
                logits[h, a, b] = terms / WIDTH**0.5
    return logits


@pytest.mark.parametrize(("dim", "step"), [(None, 1), (10, 0.37)])
def test_transformer_xl_is_its_formula_at_any_positions(dim, step):
    encoding = transformer_xl(num_heads=HEADS, head_dim=WIDTH, dim=dim)
    params = perturbed(encoding.init(jax.random.key(0)))
    q, k, _ = arrays()
    i, j = QUERIES * step, KEYS * step
    logits = jax.jit(partial(attention_logits, encoding))(
        params, q, k, q_positions=i, k_positions=j
    )
    expected = explicit_transformer_xl(
        *jax.tree.map(np.asarray, (params, q, k)), dim or HEADS * WIDTH, i, j
    )
    np.testing.assert_allclose(logits, expected, atol=1e-11)


def test_transformer_xl_is_right_far_out_in_float32():
    encoding = transformer_xl(num_heads=HEADS, head_dim=WIDTH)
    params = perturbed(encoding.init(jax.random.key(0)))
    q, k, _ = arrays(3, 3)
    i = 10**6 + np.array([0, 1, 50])
    i, bias = i.astype(np.int32), jax.jit(encoding.bias)
    exact = bias(params, q, k, i, i)
    with jax.enable_x64(False):
        rough = bias(*jax.tree.map(np.float32, (params, q, k)), i, i)
    assert rough.dtype == jnp.float32
    np.testing.assert_allclose(rough, exact, atol=2e-5)
