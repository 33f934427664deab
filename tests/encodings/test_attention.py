"""Attention against JAX's own, and its edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.encodings import alibi, attend, attention_logits, chain, identity, rope, t5
from tests.unchecked import unchecked

N, HEADS, DIM = 5, 4, 8
PLACES = np.array([3, 4, 0, 9, 11])
WHERE = {"q_positions": PLACES, "k_positions": PLACES}
CAUSAL = np.tri(N, dtype=bool)
ENCODINGS = {
    "none": identity(),
    "alibi": alibi(num_heads=HEADS),
    "rope": rope(head_dim=DIM),
    "both": chain(rope(head_dim=DIM), alibi(num_heads=HEADS)),
    "t5": t5(num_heads=HEADS),
}


def normal(seed, *shape, dtype=float):
    return jax.device_put(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def qkv(batch=(), groups=HEADS, dtype=float):
    shapes = ((N, HEADS, DIM), (N, groups, DIM), (N, groups, DIM))
    return tuple(normal(s, *batch, *shape, dtype=dtype) for s, shape in enumerate(shapes))


def of_jax(encoding, params, q, k, v, **options):
    """JAX's attention with the hooks around it, whose softmax is in float32."""
    turned = encoding.query(params, q, PLACES), encoding.key(params, k, PLACES)
    bias = encoding.bias(params, *turned, PLACES, PLACES)
    bias = None if bias is None else bias.astype(q.dtype)
    with jax.numpy_dtype_promotion("standard"):
        return jax.nn.dot_product_attention(*turned, v, bias=bias, **options)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", ENCODINGS)
def test_attention_is_that_of_jax_with_the_hooks_around_it(name, masked):
    encoding = ENCODINGS[name]
    params = jax.jit(encoding.init)(jax.random.key(0))

    @jax.jit
    def both(params, q, k, v):
        expected = of_jax(encoding, params, q, k, v, mask=CAUSAL[None, None] if masked else None)
        mask = {"mask": CAUSAL} if masked else {}
        return attend(encoding, params, q, k, v, **WHERE, **mask), expected

    for groups in (HEADS, 2):
        np.testing.assert_allclose(*both(params, *qkv(batch=(2,), groups=groups)), atol=2e-6)


def test_the_scale_is_the_callers():
    """T5 has none; NumPy's numbers and traced ones are as good as Python's."""
    q, k, v = qkv()
    encoding = ENCODINGS["t5"]
    params = encoding.init(jax.random.key(0))

    @jax.jit
    def run(q, k, v):
        unscaled = jnp.einsum("qhd,khd->hqk", q, k)
        bias = encoding.bias(params, q, k, PLACES, PLACES)
        expected = of_jax(encoding, params, q[None], k[None], v[None], scale=1.0)[0]
        return (
            (attention_logits(encoding, params, q, k, **WHERE, scale=1.0), unscaled + bias),
            (attend(encoding, params, q, k, v, **WHERE, scale=1.0), expected),
        )

    logits, outputs = run(q, k, v)
    np.testing.assert_allclose(*logits, atol=1e-13)
    np.testing.assert_allclose(*outputs, atol=2e-6)
    narrow = [np.asarray(x, np.float32) for x in (q, k)]
    logits = attention_logits(identity(), (), *narrow, **WHERE, scale=np.asarray(DIM**-0.5))
    assert logits.dtype == jnp.float32
    np.testing.assert_allclose(
        logits, attention_logits(identity(), (), *narrow, **WHERE), rtol=1e-6
    )


def test_rows_without_keys_are_zero_with_finite_gradients():
    encoding = ENCODINGS["t5"]
    params = encoding.init(jax.random.key(0))
    mask = CAUSAL & (np.arange(N) >= 2)  # the first two rows see nothing

    @jax.jit
    def out(params, q, k, v):
        return attend(encoding, params, q, k, v, **WHERE, mask=mask)

    rows = out(params, *qkv())
    np.testing.assert_array_equal(rows[:2], 0)
    assert (np.abs(rows[2:]).max(axis=(1, 2)) > 0).all()
    gradients = jax.grad(lambda *args: jnp.sum(jnp.sin(out(*args))), argnums=(0, 1, 2, 3))(
        params, *qkv()
    )
    for leaf in jax.tree.leaves(gradients):
        assert np.isfinite(leaf).all()
    np.testing.assert_array_equal(gradients[1][:2], 0)
    np.testing.assert_array_equal(gradients[3][:2], 0)


def test_a_causal_row_sees_no_later_key():
    """By the gradient: row t does not depend on keys, values or positions after t."""
    q, k, v = qkv()
    i = jnp.asarray(PLACES, float)

    def row(k, v, j, t):
        where = {"q_positions": i, "k_positions": j}
        out = attend(ENCODINGS["both"], ((), ()), q, k, v, **where, mask=CAUSAL)
        return jnp.sum(out[t])

    for gradient in jax.jit(jax.grad(row, argnums=(0, 1, 2)))(k, v, i, 2):
        np.testing.assert_array_equal(gradient[3:], 0)
        assert np.abs(gradient[:3]).max() > 0


def test_cached_keys_are_encoded_once():
    """One query against a cache of encoded keys is the last row of the whole."""
    encoding, (q, k, v) = ENCODINGS["both"], qkv()
    params = encoding.init(jax.random.key(0))
    cache = encoding.key(params, k, PLACES)
    places = {"q_positions": PLACES[-1:], "k_positions": PLACES}
    whole = attend(encoding, params, q, k, v, **WHERE)
    last, twice = (
        attend(encoding, params, q[-1:], cache, v, **places, encoded_keys=encoded)
        for encoded in (True, False)
    )
    np.testing.assert_allclose(last, whole[-1:], atol=1e-12)
    assert np.abs(twice - last).max() > 1e-3


def test_masks_that_are_refused():
    q, k, v = qkv()
    with pytest.raises(ValueError, match="boolean"):
        attend(identity(), (), q, k, v, **WHERE, mask=np.where(CAUSAL, 0.0, -1e9))
    with pytest.raises(ValueError, match="shape"):
        attend(identity(), (), q, k, v, **WHERE, mask=CAUSAL[None, None])


@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((3, 2, 4), (3, 2, 5), (3, 2, 4)),
        ((2, 4), (3, 2, 4), (3, 2, 4)),
        ((3, 2, 4), (3, 0, 4), (3, 2, 4)),
        ((3, 2, 4), (3, 2, 4), (4, 2, 4)),
        ((3, 3, 4), (3, 1, 4), (3, 2, 4)),
        ((1, 3, 2, 4), (2, 3, 2, 4), (3, 3, 2, 4)),
    ],
)
@pytest.mark.parametrize("implementation", ["dense", "blocks", "xla"])
def test_shapes_that_do_not_fit_are_refused(q, k, v, implementation):
    options = {"q_positions": np.arange(3), "k_positions": np.arange(3)}
    with unchecked(), pytest.raises(ValueError, match=r"shape|heads"):
        attend(identity(), (), *map(jnp.zeros, (q, k, v)), **options, implementation=implementation)


@pytest.mark.parametrize("implementation", ["dense", "blocks", "xla"])
def test_leading_axes_broadcast_and_dtypes_mix(implementation):
    shapes = ((1, N, HEADS, DIM), (2, N, HEADS, DIM), (2, N, HEADS, DIM))
    q, k, v = (normal(seed, *shape, dtype=np.float32) for seed, shape in enumerate(shapes))
    expected = attend(identity(), (), q, k, v, **WHERE, implementation="dense")
    k, v = k.astype(jnp.bfloat16), v.astype(jnp.bfloat16)
    with jax.numpy_dtype_promotion("standard"):
        found = attend(identity(), (), q, k, v, **WHERE, implementation=implementation)
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(found.astype(np.float32), expected, atol=0.05)


@pytest.mark.parametrize("implementation", ["blocks", "xla"])
@pytest.mark.parametrize(("rows", "n_q", "n_k"), [(0, 3, 3), (2, 3, 0)])
def test_attention_of_nothing_is_empty_or_zero(implementation, rows, n_q, n_k):
    q, k = (jnp.ones((rows, n, HEADS, DIM), jnp.float32) for n in (n_q, n_k))
    options = {"q_positions": np.arange(n_q), "k_positions": np.arange(n_k)}
    out = attend(identity(), (), q, k, k, **options, implementation=implementation)
    np.testing.assert_array_equal(out, np.zeros_like(q))


@pytest.mark.parametrize("implementation", ["dense", "blocks"])
def test_large_logits_choose_one_key(implementation):
    q, k, v = (normal(seed, N, 1, DIM, dtype=np.float32) for seed in range(3))
    options = {"scale": 1.3, "implementation": implementation, "block_size": 2}
    attention = jax.jit(lambda q: attend(identity(), (), q, k, v, **WHERE, **options))
    chosen = np.argmax(np.asarray(q[:, 0] @ k[:, 0].T), axis=1)
    np.testing.assert_allclose(attention(1e15 * q), v[chosen], rtol=1e-6)
