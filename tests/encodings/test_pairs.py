"""Laws of all encodings that act on pairs: biases, and value terms where there are any."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxpe import alibi, cope, fire, kerple, shaw, t5, transformer_xl
from jaxpe.encodings.attention import attend

N, HEADS, WIDTH = 6, 2, 4
PLACES = np.array([0, 3, 4, 9, 2, 25])
ENCODINGS = {
    "alibi": alibi(num_heads=HEADS),
    "alibi_causal": alibi(num_heads=HEADS, causal=True),
    "alibi_learnable": alibi(num_heads=HEADS, learnable=True),
    "t5": t5(num_heads=HEADS, num_buckets=8, max_distance=20),
    "t5_causal": t5(num_heads=HEADS, num_buckets=8, max_distance=20, bidirectional=False),
    "kerple_log": kerple(num_heads=HEADS),
    "kerple_power": kerple(num_heads=HEADS, kind="power"),
    "fire": fire(num_heads=HEADS, hidden=5, threshold=4.5),
    "cope": cope(head_dim=WIDTH, max_positions=5),
    "shaw": shaw(head_dim=WIDTH, max_distance=3),
    "transformer_xl": transformer_xl(num_heads=HEADS, head_dim=WIDTH),
}
NAMES = list(ENCODINGS)
CAUSAL = np.tri(N, dtype=bool)


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


def narrow(tree):
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x, np.float32)), tree)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "fire"])
@pytest.mark.parametrize("shift", [1000, 10**6, -7, 0.25, -1024.5])
def test_common_shifts_change_nothing(name, shift):
    # FIRE divides by the query position. CoPE counts content: positions only order the keys.
    encoding, params = encoding_and_params(name)
    q, k, _ = qkv()
    here = encoding.bias(params, q, k, PLACES, PLACES)
    there = encoding.bias(params, q, k, PLACES + shift, PLACES + shift)
    np.testing.assert_allclose(here, there, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_under_jit_vmap_and_batches(name):
    encoding, params = encoding_and_params(name)
    q, k, v = qkv(batch=(3,))
    places = np.stack([PLACES, PLACES[::-1] + 1, 2 * PLACES])

    def run(q, k, v, places):
        bias = encoding.bias(params, q, k, places, places)
        out = attend(encoding, params, q, k, v, q_positions=places, k_positions=places)
        return bias, out

    eager = [run(*one) for one in zip(q, k, v, places, strict=True)]
    together, mapped = jax.jit(run)(q, k, v, places), jax.jit(jax.vmap(run))(q, k, v, places)
    assert together[0].ndim == 4
    for one, batch, map_ in zip(zip(*eager, strict=True), together, mapped, strict=True):
        np.testing.assert_allclose(np.stack(one), batch, atol=1e-12)
        np.testing.assert_allclose(batch, map_, atol=1e-12)
    # One row of positions for the whole batch.
    shared = jnp.broadcast_to(encoding.bias(params, q, k, PLACES, PLACES), (3, HEADS, N, N))
    np.testing.assert_allclose(
        shared[1], encoding.bias(params, q[1], k[1], PLACES, PLACES), atol=1e-12
    )


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_forward_and_reverse(name):
    encoding, params = encoding_and_params(name)

    @jax.jit
    def out(params, q, k, v):
        places = {"q_positions": PLACES, "k_positions": PLACES}
        return attend(encoding, params, q, k, v, **places)

    check_grads(out, (params, *qkv()), order=1, modes=("fwd", "rev"), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_by_position(name):
    encoding, params = encoding_and_params(name)
    q, k, _ = qkv()
    apart = jnp.asarray(PLACES + np.linspace(0.1, 0.6, N))  # no offset is near a whole number

    @jax.jit
    def total(i, j):
        return jnp.sum(jnp.sin(encoding.bias(params, q, k, i, j)))

    check_grads(total, (apart, apart[::-1] + 0.05), order=1, modes=("fwd", "rev"), eps=1e-5)
    for gradient in jax.grad(total, argnums=(0, 1))(apart, apart):
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", NAMES)
def test_float32_is_near_float64_and_bfloat16_gets_float32(name):
    encoding, params = encoding_and_params(name)
    q, k, v = qkv()
    exact = encoding.bias(params, q, k, PLACES, PLACES)
    assert exact.dtype == jnp.float64
    with jax.enable_x64(False):
        start = encoding.init(jax.random.key(0))
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(start))
        rough = encoding.bias(*narrow((params, q, k)), PLACES, PLACES)
    assert rough.dtype == jnp.float32
    np.testing.assert_allclose(rough, exact, atol=1e-4)
    # float64 parameters beside float32 and bfloat16 queries; int64 and float32 positions.
    for dtype in (jnp.float32, jnp.bfloat16):
        args = [x.astype(dtype) for x in (q, k)]
        for i in (PLACES, PLACES.astype(np.float32)):
            bias = encoding.bias(params, *args, i, i)
            assert bias.dtype == jnp.float32
            np.testing.assert_allclose(bias, exact, atol=0.1 if dtype == jnp.bfloat16 else 1e-4)
        out = attend(
            encoding, params, *args, v.astype(dtype), q_positions=PLACES, k_positions=PLACES
        )
        assert out.dtype == dtype


@pytest.mark.parametrize("name", NAMES)
def test_grouped_keys_are_repeated_keys(name):
    encoding, params = encoding_and_params(name)
    q, k, v = qkv()
    k, v = k[:, :1], v[:, :1]
    where = {"q_positions": PLACES, "k_positions": PLACES}
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
        filled = jnp.arange(slots) <= t
        where = jnp.where(filled, jnp.arange(slots), 10**6)
        return attend(
            encoding, params, q[None], *cache, q_positions=t[None], k_positions=where, mask=filled
        )[0]

    rows = [decode(q[t], jnp.int32(t)) for t in range(N)]
    np.testing.assert_allclose(jnp.stack(rows), whole, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("padding_positions", [0, "negative"])
def test_left_padding_changes_nothing(name, padding_positions):
    encoding, params = encoding_and_params(name)
    q, k, v = qkv()
    i, pad = np.arange(N), 3
    whole = attend(encoding, params, q, k, v, q_positions=i, k_positions=i, mask=CAUSAL)
    before = np.zeros(pad, int) if padding_positions == 0 else np.arange(-pad, 0)
    where = np.concatenate([before, i])
    q, k, v = (jnp.concatenate([jnp.full((pad, HEADS, WIDTH), 9.0), x]) for x in (q, k, v))
    mask = np.tri(N + pad, dtype=bool) & (np.arange(N + pad) >= pad)
    padded = attend(encoding, params, q, k, v, q_positions=where, k_positions=where, mask=mask)
    np.testing.assert_allclose(padded[pad:], whole, atol=1e-12)
    assert np.isfinite(padded).all()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cope"])
def test_packed_documents_do_not_see_each_other(name):
    # CoPE sums gates over the row, and the hook knows of no documents: one row each.
    encoding, params = encoding_and_params(name)
    q, k, v = qkv()
    i = np.array([0, 1, 0, 1, 2, 3])
    document = np.array([0, 0, 1, 1, 1, 1])
    mask = CAUSAL & (document[:, None] == document)
    packed = attend(encoding, params, q, k, v, q_positions=i, k_positions=i, mask=mask)
    for which in (0, 1):
        own = document == which
        n = own.sum()
        alone = attend(
            encoding, params, q[own], k[own], v[own],
            q_positions=np.arange(n), k_positions=np.arange(n), mask=np.tri(n, dtype=bool),
        )  # fmt: skip
        np.testing.assert_allclose(packed[own], alone, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("cope", "shaw")])
def test_heads_must_be_those_of_the_encoding(name):
    encoding, params = encoding_and_params(name)
    x = jnp.zeros((N, HEADS + 1, WIDTH))
    with pytest.raises(ValueError, match=r"built for 2 heads, .* pass num_heads=3"):
        encoding.bias(params, x, x, PLACES, PLACES)


@pytest.mark.parametrize("name", NAMES)
def test_init_maps_over_seeds(name):
    encoding = ENCODINGS[name]
    keys = jax.random.split(jax.random.key(1), 3)
    many = jax.jit(jax.vmap(encoding.init))(keys)
    one = encoding.init(keys[2])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[2], b, rtol=1e-12), many, one)
