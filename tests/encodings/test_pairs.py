"""Laws of all encodings that act on pairs: biases, and value terms where there are any."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxpe import alibi, cope, fire, kerple, shaw, t5, transformer_xl
from jaxpe.encodings import attention

N, HEADS, WIDTH = 6, 2, 4
PLACES = np.array([0, 3, 4, 9, 2, 25])
ENCODINGS = {
    "alibi": alibi(num_heads=HEADS),
    "alibi_causal": alibi(num_heads=HEADS, causal=True, learnable=True),
    "t5": t5(num_heads=HEADS, num_buckets=8, max_distance=20),
    "kerple": kerple(num_heads=HEADS, kind="power"),
    "fire": fire(num_heads=HEADS, hidden=5, threshold=4.5),
    "cope": cope(head_dim=WIDTH, max_positions=5),
    "shaw": shaw(head_dim=WIDTH, max_distance=3),
    "transformer_xl": transformer_xl(num_heads=HEADS, head_dim=WIDTH),
}
NAMES = list(ENCODINGS)
CAUSAL = np.tri(N, dtype=bool)

# Compiled as a whole, since one compilation for each operation is most of the time of a test.
attend = jax.jit(attention.attend, static_argnums=0)
bias_of = jax.jit(lambda encoding, *args: encoding.bias(*args), static_argnums=0)


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def encoding_and_params(name):
    """Parameters with something everywhere: CoPE's start at 0."""
    params = ENCODINGS[name].init(jax.random.key(0))
    leaves, tree = jax.tree.flatten(params)
    moved = [leaf + 0.3 * normal(s, *leaf.shape) for s, leaf in enumerate(leaves)]
    return ENCODINGS[name], tree.unflatten(moved)


def qkv(n=N, batch=()):
    return tuple(normal(seed, *batch, n, HEADS, WIDTH) for seed in (7, 8, 9))


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_by_position(name):
    encoding, params = encoding_and_params(name)
    q, k, _ = qkv()
    apart = jnp.asarray(PLACES + np.linspace(0.1, 0.6, N))  # no offset is near a whole number

    @jax.jit
    def total(i, j):
        return jnp.sum(jnp.sin(bias_of(encoding, params, q, k, i, j)))

    check_grads(total, (apart, apart[::-1] + 0.05), order=1, modes=("rev",), eps=1e-5)
    for gradient in jax.grad(total, argnums=(0, 1))(apart, apart):
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", NAMES)
def test_grouped_keys_are_repeated_keys(name):
    encoding, params = encoding_and_params(name)
    q, k, v = qkv()
    k, v = k[:, :1], v[:, :1]
    where = {"q_positions": PLACES, "k_positions": PLACES, "mask": CAUSAL}
    grouped = attend(encoding, params, q, k, v, **where)
    repeated = attend(
        encoding, params, q, *(jnp.repeat(x, HEADS, axis=-2) for x in (k, v)), **where
    )
    np.testing.assert_allclose(grouped, repeated, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
def test_decoding_with_a_cache_is_the_whole_row_by_row(name):
    encoding, params = encoding_and_params(name)
    q, k, v = qkv()
    i = np.arange(N)
    whole = attend(encoding, params, q, k, v, q_positions=i, k_positions=i, mask=CAUSAL)
    slots = N + 2
    cache = [jnp.concatenate([x, jnp.full((2, HEADS, WIDTH), 50.0)]) for x in (k, v)]

    @jax.jit
    def decode(q, t):
        slot = jnp.arange(slots, dtype=jnp.int32)
        filled = slot <= t
        where = jnp.where(filled, slot, 10**6)
        return attend(
            encoding, params, q[None], *cache, q_positions=t[None], k_positions=where, mask=filled
        )[0]

    rows = [decode(q[t], jnp.int32(t)) for t in range(N)]
    np.testing.assert_allclose(jnp.stack(rows), whole, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cope"])
def test_packed_documents_do_not_see_each_other(name):
    # CoPE sums gates over the row, and the hook knows of no documents: one row each.
    encoding, params = encoding_and_params(name)
    q, k, v = qkv()
    i = np.array([0, 1, 2, 0, 1, 2])
    document = np.array([0, 0, 0, 1, 1, 1])
    mask = CAUSAL & (document[:, None] == document)
    packed = attend(encoding, params, q, k, v, q_positions=i, k_positions=i, mask=mask)
    where = {"q_positions": i[:3], "k_positions": i[:3], "mask": np.tri(3, dtype=bool)}
    for own in (slice(0, 3), slice(3, 6)):
        alone = attend(encoding, params, q[own], k[own], v[own], **where)
        np.testing.assert_allclose(packed[own], alone, atol=1e-12)
