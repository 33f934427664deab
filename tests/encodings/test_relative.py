"""Shaw et al. and Transformer-XL: their formulas, entry by entry, and laws of their own.

What all encodings of pairs have in common is in `test_pairs.py`.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import shaw, transformer_xl
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
    logits = np.zeros((HEADS, len(q), len(k)))
    for h in range(HEADS):
        for a, i in enumerate(QUERIES):
            for b, j in enumerate(KEYS):
                key = k[b, h] + params["key_table"][shaw_row(i, j)]
                logits[h, a, b] = q[a, h] @ key / WIDTH**0.5
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = np.zeros(q.shape)
    for h in range(HEADS):
        for a, i in enumerate(QUERIES):
            for b, j in enumerate(KEYS):
                out[a, h] += weights[h, a, b] * (v[b, h] + params["value_table"][shaw_row(i, j)])
    return logits, out


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


def test_shaw_key_gradient_is_the_sum_over_the_pairs_of_an_offset():
    # Section 4.3 of the notes on fluxions: Σ over i, j with j − i = k of dS_ij · q_i.
    encoding = shaw(head_dim=WIDTH, max_distance=CLIP)
    params = encoding.init(jax.random.key(0))
    q, k, _ = arrays()
    cotangent = normal(3, HEADS, len(QUERIES), len(KEYS))

    def total(params):
        return jnp.sum(encoding.bias(params, q, k, QUERIES, KEYS) * cotangent)

    expected = np.zeros((2 * CLIP + 1, WIDTH))
    for a, i in enumerate(QUERIES):
        for b, j in enumerate(KEYS):
            expected[shaw_row(i, j)] += cotangent[:, a, b] @ q[a] / WIDTH**0.5
    gradient = jax.jit(jax.grad(total))(params)
    np.testing.assert_allclose(gradient["key_table"], expected, atol=1e-12)
    assert not gradient["value_table"].any()


def test_shaw_value_gradient_is_the_sum_over_the_pairs_of_an_offset():
    encoding = shaw(head_dim=WIDTH, max_distance=CLIP)
    params = encoding.init(jax.random.key(0))
    weights = shares(4, HEADS, len(QUERIES), len(KEYS))
    cotangent = normal(5, len(QUERIES), HEADS, WIDTH)

    def total(params):
        return jnp.sum(encoding.value(params, weights, QUERIES, KEYS) * cotangent)

    expected = np.zeros((2 * CLIP + 1, WIDTH))
    for a, i in enumerate(QUERIES):
        for b, j in enumerate(KEYS):
            expected[shaw_row(i, j)] += weights[:, a, b] @ cotangent[a]
    gradient = jax.jit(jax.grad(total))(params)
    np.testing.assert_allclose(gradient["value_table"], expected, atol=1e-12)
    assert not gradient["key_table"].any()


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


@pytest.mark.parametrize("dim", [None, 2, 10])
@pytest.mark.parametrize("step", [1, 0.37])
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


# Errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shaw(head_dim=4, max_distance=0), "max_distance must be at least 1, not 0"),
        (lambda: transformer_xl(num_heads=1, head_dim=3), "dim must be even and at least 2, not 3"),
        (
            lambda: transformer_xl(num_heads=2, head_dim=8).bias({}, *arrays()[:2], QUERIES, KEYS),
            "built for head_dim=8, .* pass head_dim=4",
        ),
        (
            lambda: shaw(head_dim=4, max_distance=1).value({}, jnp.ones((2, 3, 4)), QUERIES, KEYS),
            r"positions of shape \(7,\) do not fit an array of shape \(3,\)",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
