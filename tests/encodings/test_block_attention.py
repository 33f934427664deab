"""Attention in blocks against attention that stores all pairs."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import encodings
from jaxpe.encodings import AttentionMask, EncodingSizes, attend, chain
from jaxpe.encodings.base import Rows
from jaxpe.encodings.entries import resolve
from jaxpe.encodings.implementations import lacking
from tests.encodings.kinds import ONE_OF_EACH_KIND

N, HEADS, WIDTH = 7, 4, 8
SIZES = EncodingSizes(dim=8, num_heads=HEADS, head_dim=WIDTH, length=16)
PAIR_HOOKS = ("products", "bias", "mask", "value")


def pair_hooks(name):
    encoding = resolve(name).first_layer(SIZES)
    return tuple(hook for hook in encoding._fields if encoding.defines(hook)), encoding.whole_rows


# One of each set of hooks: blocks know no families.
OF_PAIRS = [
    name
    for (hooks, whole_rows), name in {pair_hooks(n): n for n in ONE_OF_EACH_KIND}.items()
    if set(hooks) & {*PAIR_HOOKS} and not whole_rows
]
INDEX, NONE = np.arange(N), np.zeros(N, int)
PARTS, WHOLE = np.array([0, 0, 0, 1, 1, 1, 1]), np.ones((2, N), bool)
PADDED = np.array([[True] * N, [True] * 4 + [False] * 3])
MASKS = {
    "none": (NONE, NONE, WHOLE),
    "causal": (INDEX, NONE, WHOLE),
    "segments": (INDEX, PARTS, WHOLE),
    "padding": (NONE, NONE, PADDED),
    "no key at all": (np.minimum(INDEX, 1), NONE, WHOLE & (INDEX > 1)),
}


def normal(seed, *shape):
    return jax.device_put(np.random.default_rng(seed).standard_normal(shape))


def qkv(n_q=N, n_k=N, groups=HEADS, lead=(2,)):
    return (
        normal(0, *lead, n_q, HEADS, WIDTH),
        normal(1, *lead, n_k, groups, WIDTH),
        normal(2, *lead, n_k, groups, WIDTH),
    )


def largest_errors(out, wanted):
    errors = jax.tree.map(lambda a, b: np.abs(a - b).max(initial=0.0), out, wanted)
    return max(map(float, jax.tree.leaves(jax.device_get(errors))))


def outputs(encoding, implementation, positions, mask, arrays, **options):
    """Outputs `[..., n, heads, width]`, of (parameters, q, k, v, hidden states, perhaps sinks)."""
    params, q, k, v, x, *sink = arrays
    context = None
    if encoding.defines("context"):
        context, _ = encoding.context(params, x, positions, Rows())
    more = {"sink": sink[0]} if sink else {}
    return attend(
        encoding, params, q, k, v, q_positions=positions, k_positions=positions, mask=mask,
        q_context=context, k_context=context, implementation=implementation,
        **{"block_size": 3} | more | options,
    )  # fmt: skip


def derivatives(function, arrays, *, twice=True):
    """Outputs and gradients of a projection; perhaps derivatives of both along a direction."""

    def project(arrays):
        out = function(arrays)
        return jnp.sum(out * jnp.cos(jnp.arange(out.size)).reshape(out.shape)), out

    gradient = jax.grad(project, has_aux=True)
    if not twice:
        return gradient(arrays)
    direction = jax.tree.map(lambda x: 0.1 * normal(7, *x.shape).astype(x.dtype), arrays)
    return jax.jvp(gradient, (arrays,), (direction,))


@pytest.mark.parametrize("name", ["rope", *OF_PAIRS])
def test_blocks_equal_dense(name):
    """With a soft cap, dropout and a sink, also gradients, and second derivatives.

    Encodings of single tokens share the blocks of RoPE.
    """
    encoding = resolve(name).first_layer(SIZES)
    params = encoding.init(jax.random.key(0))
    params = jax.tree.map(lambda x: x + 0.1 * normal(3, *x.shape).astype(x.dtype), params)
    groups = 2 if name in ("rope", "alibi", "t5") else HEADS
    arrays = (params, *qkv(groups=groups), normal(4, 2, N, SIZES.dim), normal(5, HEADS))
    options = {"cap": 3.0, "dropout_rate": 0.25, "dropout_key": jax.random.key(1)}

    @jax.jit
    def both(arrays, order, segments, valid):
        mask = AttentionMask(order, order, segments, segments, valid)
        return [
            derivatives(
                partial(outputs, encoding, way, INDEX, mask, **options),
                arrays,
                twice=name in ("rope", "shaw"),
            )
            for way in ("blocks", "dense")
        ]

    for case, numbers in MASKS.items():
        blocks, dense = both(arrays, *numbers)
        assert largest_errors(blocks, dense) < 2e-12, case
        assert np.isfinite(largest_errors(blocks, blocks)), case


def test_large_logits_have_the_derivatives_of_dense_attention():
    """Masked ones exceed the others by more than `exp` can hold, also where a query has no key."""
    arrays = ((), *qkv(), normal(4, 2, N, SIZES.dim))

    @jax.jit
    def both(order, segments, valid):
        mask = AttentionMask(order, order, segments, segments, valid)
        return [
            derivatives(partial(outputs, encodings.identity(), way, INDEX, mask, scale=2e3), arrays)
            for way in ("blocks", "dense")
        ]

    for numbers in MASKS.values():
        for found, wanted in zip(*map(jax.tree.leaves, both(*numbers)), strict=True):
            assert np.isfinite(found).all()
            np.testing.assert_allclose(found, wanted, atol=1e-7 * max(1, np.abs(wanted).max()))


@pytest.mark.parametrize("name", ["rope", "alibi", "sliding_window"])
def test_fused_attention_equals_dense(name):
    """With grouped queries, in float32 as accelerators have it."""
    with jax.enable_x64(False):
        encoding = resolve(name).first_layer(SIZES)
        arrays = ((), *(x.astype(jnp.float32) for x in qkv(groups=2)), ())

        @jax.jit
        def both(order, segments, valid):
            mask = AttentionMask(order, order, segments, segments, valid)
            return [
                derivatives(
                    partial(outputs, encoding, way, INDEX, mask, block_size=None),
                    arrays,
                    twice=False,
                )
                for way in ("xla", "dense")
            ]

        for case, numbers in MASKS.items():
            assert largest_errors(*both(*numbers)) < 5e-6, case


@pytest.mark.parametrize("common", [1e7, -np.inf])
def test_shares_sum_to_one_beside_a_large_common_bias(common):
    q, k, v = (x.astype(jnp.float32) for x in qkv(lead=()))
    far = encodings.Encoding(bias=lambda *_: jnp.full((1, 1, 1), common, jnp.float32))

    def total(v):
        options = {"implementation": "blocks", "block_size": 3}
        return attend(far, (), q, k, v, q_positions=INDEX, k_positions=INDEX, **options).sum()

    np.testing.assert_allclose(jax.grad(total)(v).sum(axis=0), float(N), rtol=1e-5)


def test_a_query_without_keys_has_output_zero():
    i = np.arange(N)
    attended = partial(
        attend, encodings.identity(), (), *qkv(lead=()), q_positions=i, k_positions=i
    )
    for implementation in ("blocks", "dense"):
        out = attended(mask=lambda i, j: (j < i) & (i != 4), implementation=implementation)
        assert (np.abs(out).max(axis=(1, 2)) == 0).tolist() == [t in (0, 4) for t in range(N)]


def test_the_size_of_blocks_changes_nothing():
    """Nor the bits of dropout, with more keys than queries."""
    encoding = chain(encodings.rope(head_dim=WIDTH), encodings.sliding_window(size=4))
    q, k, v = qkv(n_q=5, n_k=9)
    options = {"dropout_rate": 0.3, "dropout_key": jax.random.key(2)}
    i, j = np.arange(4, 9), np.arange(9)
    attended = partial(attend, encoding, ((), ()), q, k, v, q_positions=i, k_positions=j, **options)
    wanted = attended(implementation="dense", mask=AttentionMask(i, j))
    for mask in (AttentionMask(i, j), lambda i, j: j <= i, (j[None] <= i[:, None])[None, None]):
        out = attended(implementation="blocks", block_size=4, mask=mask)
        np.testing.assert_allclose(out, wanted, atol=1e-12)
    for shape in ((9,), (2, 1, 1, 9), (HEADS, 5, 1)):
        mask = np.random.default_rng(9).random(shape) < 0.7
        out, wanted = (
            attended(implementation=way, block_size=4, mask=mask) for way in ("blocks", "dense")
        )
        np.testing.assert_allclose(out, wanted, atol=1e-12)


def test_dropout_keeps_the_mean():
    """Of 10,000 weights, a share close to the rate is 0, and rows and columns look independent."""
    rows, columns = encodings.attention_terms.dropout_bits(jax.random.key(0), (1,), 300, 300)
    kept = np.asarray(encodings.attention_terms.dropout_factors(rows, columns, 0.25, jnp.float32))
    assert abs(kept.mean() - 1) < 4 * np.sqrt(0.25 / 0.75 / kept.size)
    own = np.diagonal(kept[0])  # one key for both would drop all of them
    assert abs(own.mean() - 1) < 4 * np.sqrt(0.25 / 0.75 / own.size)
    for x in (kept[0], kept[0].T):
        correlation = np.corrcoef(x)[np.triu_indices(300, 1)]
        assert abs(correlation.std() * np.sqrt(300) - 1) < 0.05


def test_what_an_encoding_closes_over_has_a_gradient():
    q, k, v = qkv(lead=())

    @jax.jit
    @jax.jacrev
    def slopes(slope):
        encoding = encodings.alibi(num_heads=HEADS, slopes=slope)
        options = {"q_positions": INDEX, "k_positions": INDEX, "block_size": 3}
        ways = ("blocks", "dense")
        outs = [attend(encoding, (), q, k, v, implementation=way, **options) for way in ways]
        return jnp.stack([out[0].sum() for out in outs])

    np.testing.assert_allclose(*slopes(0.5), rtol=1e-12)


def test_bfloat16_is_summed_in_float32():
    q, k, v = (x.astype(jnp.bfloat16) for x in qkv(lead=()))
    i = np.arange(N)
    attended = partial(attend, encodings.alibi(num_heads=HEADS), (), q_positions=i, k_positions=i)
    exact = attended(*(x.astype(jnp.float64) for x in (q, k, v)), implementation="dense")
    out = attended(q, k, v, implementation="blocks", block_size=3)
    assert out.dtype == jnp.bfloat16
    np.testing.assert_allclose(out.astype(jnp.float64), exact, atol=2**-7)


def test_masked_blocks_are_skipped():
    """Values that are NaN reach no query whose blocks are before them: 0·NaN would be NaN."""
    q, k, v = qkv(n_q=9, n_k=9, lead=())
    i = np.arange(9)
    near = chain(encodings.identity(), encodings.sliding_window(size=2))
    for encoding, mask in ((encodings.identity(), AttentionMask(i, i)), (near, None)):
        out = attend(
            encoding, ((), ()), q, k, v.at[6:].set(np.nan), q_positions=i, k_positions=i,
            mask=mask, implementation="blocks", block_size=3,
        )  # fmt: skip
        assert np.isfinite(out[:3]).all()
        assert np.isnan(out[6:]).all()


def test_memory_is_linear():
    """Temporaries of a compiled gradient."""

    def temporaries(n):
        encoding, i = encodings.alibi(num_heads=2), np.arange(n)
        x = jax.ShapeDtypeStruct((n, 2, 8), jnp.float32)
        options = {"mask": AttentionMask(i, i), "implementation": "blocks", "block_size": 64}

        def project(q, k, v):
            return attend(encoding, (), q, k, v, q_positions=i, k_positions=i, **options).sum()

        lowered = jax.jit(jax.grad(project, argnums=(0, 1, 2))).lower(x, x, x)
        return lowered.compile().memory_analysis().temp_size_in_bytes

    short, long = temporaries(512), temporaries(2048)
    assert long < 4.2 * short
    assert long < 2 * 2048 * 2048 * 4


def test_what_cannot_be_computed_is_named():
    i, (q, k, v) = np.arange(N), qkv(lead=())
    attended = partial(attend, q=q, k=k, v=v, q_positions=i, k_positions=i)
    cope = encodings.cope(head_dim=WIDTH, max_positions=4)
    both = chain(cope, encodings.rope(head_dim=WIDTH))
    assert lacking("blocks", both) is not None
    assert lacking("blocks", encodings.rope(head_dim=WIDTH)) is None
    with pytest.raises(ValueError, match="whole rows"):
        attended(cope, cope.init(jax.random.key(0)), implementation="blocks")
    with pytest.raises(ValueError, match="less than 1"):
        attended(encodings.identity(), (), dropout_rate=1.0, dropout_key=jax.random.key(0))
    with pytest.raises(ValueError, match="a soft cap"):
        attended(encodings.identity(), (), implementation="xla", cap=2.0)
