"""Parts add up to the logits under every encoding; rotary by pairs; averages over documents."""

import inspect
import math
from functools import partial

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxpe import (
    Encoding,
    YarnScaling,
    alibi,
    attention_logits,
    axial_rope,
    chain,
    identity,
    mrope,
    rope,
    sinusoidal_vectors,
    t5,
    xpos,
)
from jaxpe.encodings import DynamicScaling, catalogue, inverse_frequencies, rope_frequencies
from jaxpe.spectral import (
    LogitParts,
    logit_parts,
    pair_logits,
    sum_parts,
    toeplitz_residual,
    toeplitz_shares,
)
from tests.encodings.kinds import ONE_OF_EACH_KIND, SIZES

N, HEADS, DIM = 5, SIZES.num_heads, SIZES.head_dim
PLACES = np.array([3, 4, 0, 9, 11])
RESIDUAL = jax.jit(toeplitz_residual)
WHERE = {"q_positions": PLACES, "k_positions": PLACES}
NARROW = ("rope_partial", "xpos", "mrope", "t5", "cope", "shaw")  # those tried in float32 too
ENTRIES = {
    entry.name: entry
    for entry in catalogue(*dict.fromkeys([*ONE_OF_EACH_KIND, *NARROW]))
    if not entry.first_layer(SIZES).defines("context")
}


def normal(seed, *shape, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def four(*, batch=(), groups=HEADS, dtype=np.float64):
    """Queries of content and of position, keys of content and of position."""
    heads = (HEADS, HEADS, groups, groups)
    return [normal(s, *batch, N, h, DIM, dtype=dtype) for s, h in enumerate(heads)]


def setting(name):
    """What an encoding does at attention; those that do nothing there are compiled once."""
    entry = ENTRIES[name]
    whole = entry.first_layer(SIZES)
    encoding = Encoding(query=whole.query, key=whole.key, bias=whole.bias)
    rng = np.random.default_rng(3)
    init = whole.init if encoding != identity() else identity().init
    params = jax.device_get(jax.jit(init)(jax.random.key(0)))
    params = jax.tree.map(lambda x: x + 0.1 * rng.standard_normal(x.shape), params)
    i = np.sort(rng.choice(SIZES.length, (2, N)), axis=-1).astype(np.int32)
    if entry.coordinates > 1:
        i = rng.integers(0, 9, (2, N, entry.coordinates), dtype=np.int32)
    return encoding, params, {"q_positions": i, "k_positions": i}


@partial(jax.jit, static_argnums=0)
def parts_and_logits(encoding, params, where, q, q_p, k, k_p):
    parts = logit_parts(encoding, params, q, q_p, k, k_p, **where)
    return parts, attention_logits(encoding, params, q + q_p, k + k_p, **where)


@pytest.mark.parametrize("name", ENTRIES)
def test_parts_add_up_to_the_logits_under_every_encoding(name):
    encoding, params, where = setting(name)
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 2e-4))[: 1 + (name in NARROW)]:
        cast = jax.tree.map(lambda x: x.astype(dtype), params)  # noqa: B023
        arrays = four(batch=(2,), dtype=dtype)
        parts, logits = parts_and_logits(encoding, cast, where, *arrays)
        assert {part.shape for part in parts} == {(2, HEADS, N, N)}
        assert {part.dtype for part in parts} == {jnp.dtype(dtype)}
        np.testing.assert_allclose(parts.total, logits, atol=tolerance)
        assert encoding.defines("bias") == np.abs(parts.bias).any()


@pytest.mark.parametrize("name", ["rope", "xpos", "shaw"])
def test_each_part_is_that_of_its_vectors_alone(name):
    """Products without the bias: where hooks are linear, no part knows of the others."""
    encoding, params, where = setting(name)
    bare = encoding._replace(bias=identity().bias)
    arrays = four(batch=(2,))

    @jax.jit
    def run(params, arrays):
        pairs = [(q, k) for q in arrays[:2] for k in arrays[2:]]
        alone = [attention_logits(bare, params, q, k, **where) for q, k in pairs]
        return logit_parts(encoding, params, *arrays, **where)[:4], alone

    for part, alone in zip(*run(params, arrays), strict=True):
        np.testing.assert_allclose(part, alone, atol=1e-12)


def test_shared_keys_scale_and_batches():
    encoding = chain(rope(head_dim=DIM), alibi(num_heads=HEADS))
    arrays = four(batch=(2,), groups=2)

    def run(*arrays):
        return logit_parts(encoding, ((), ()), *arrays, **WHERE, scale=0.3)

    parts = jax.jit(run)(*arrays)
    q, k = arrays[0] + arrays[1], arrays[2] + arrays[3]
    logits = jax.jit(partial(attention_logits, encoding, ((), ()), **WHERE, scale=0.3))(q, k)
    np.testing.assert_allclose(parts.total, logits, atol=1e-12)
    mapped = jax.jit(jax.vmap(run))(*arrays)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), mapped, parts)
    bias = encoding.bias(((), ()), q, k, PLACES, PLACES)
    np.testing.assert_array_equal(parts.bias, np.broadcast_to(bias, logits.shape))
    out = jax.jit(lambda *arrays: jnp.sin(run(*arrays).position_content))
    check_grads(out, arrays, order=1, modes=["rev"], rtol=1e-5)


def test_a_hook_that_is_not_linear_gives_position_what_it_changes():
    encoding = Encoding(query=lambda params, q, i: jnp.tanh(q))
    q, q_p, k, k_p = four()
    parts = logit_parts(encoding, (), q, q_p, k, k_p, **WHERE)
    logits = attention_logits(encoding, (), q + q_p, k + k_p, **WHERE)
    np.testing.assert_allclose(parts.total, logits, atol=1e-12)
    change = np.tanh(q + q_p) - np.tanh(q)
    expected = np.einsum("qhd,khd->hqk", change, k_p) / math.sqrt(DIM)
    np.testing.assert_allclose(parts.position_position, expected, atol=1e-12)
    still = logit_parts(encoding, (), q, 0 * q, k, 0 * k, **WHERE)
    np.testing.assert_array_equal(still.position_content, 0)


def test_narrow_numbers_have_wide_parts():
    arrays = [x.astype(jnp.bfloat16) for x in four()]
    run = jax.jit(lambda *arrays: logit_parts(rope(head_dim=DIM), (), *arrays, **WHERE))
    parts, wide = run(*arrays), run(*(np.float32(x) for x in arrays))
    assert parts.total.dtype == jnp.float32
    np.testing.assert_array_equal(parts.total, wide.total)


# The position–position term of vectors that depend on the position alone.


def position_term(vectors, W):
    """Queries and keys of one projection, tied."""
    zero = 0 * (p := (vectors @ W).reshape(len(vectors), HEADS, -1))
    where = {"q_positions": np.arange(len(p)), "k_positions": np.arange(len(p))}
    return parts_and_logits(identity(), (), where, zero, p, zero, p)[0].position_position


def test_sinusoidal_positions_are_toeplitz_where_the_projection_is_an_isometry():
    """Summed over heads, which together are the identity; each head alone is not Toeplitz."""
    vectors = np.asarray(sinusoidal_vectors(np.arange(16), dim=SIZES.dim))
    Q = np.linalg.qr(normal(5, SIZES.dim, SIZES.dim))[0]
    term = position_term(vectors, Q)
    assert RESIDUAL(term.sum(0)) < 1e-26
    alone = [RESIDUAL(head).item() for head in term]
    assert min(alone) > 1e-3
    # Heads that take whole pairs (sin, cos), turned at will, are Toeplitz one by one.
    turns = np.kron(np.eye(SIZES.dim // 2), np.array([[0.6, -0.8], [0.8, 0.6]]))
    alone = [RESIDUAL(head).item() for head in position_term(vectors, turns)]
    assert max(alone) < 1e-26


def test_positions_are_not_toeplitz_for_an_arbitrary_tied_projection():
    """A finding: W_Q = W_K does not make it so, though random ones are within a few percent."""
    vectors = np.asarray(sinusoidal_vectors(np.arange(16), dim=SIZES.dim))
    residuals = []
    for seed in range(8):
        W = normal(seed, SIZES.dim, SIZES.dim) / math.sqrt(SIZES.dim)
        residuals.append(RESIDUAL(position_term(vectors, W).sum(0)).item())
    assert min(residuals) > 1e-3
    assert max(residuals) < 0.1


def test_a_learned_table_is_not_toeplitz_though_the_projection_is_an_isometry():
    table = normal(6, 16, SIZES.dim)
    residual = RESIDUAL(position_term(table, np.eye(SIZES.dim)).sum(0))
    assert 0.3 < residual < 0.7  # the diagonal is large, and nearly constant


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("encoding", [alibi(num_heads=HEADS), t5(num_heads=HEADS)])
def test_biases_of_the_offset_are_toeplitz_to_the_last_bit(encoding, dtype):
    params = jax.tree.map(lambda x: x.astype(dtype), encoding.init(jax.random.key(0)))
    i = np.arange(N)
    arrays = four(dtype=dtype)
    where = {"q_positions": i, "k_positions": i}
    parts = jax.jit(lambda *arrays: logit_parts(encoding, params, *arrays, **where))(*arrays)
    for head in parts.bias:
        assert RESIDUAL(head) == 0
        assert np.ptp(head) > 0
    np.testing.assert_array_equal(SHARES(SUM(parts)).residual.bias, 0)


# Rotary encodings, by pairs.

ROPES = {
    "half_split": {},
    "interleaved": {"layout": "interleaved"},
    "partial": {"fraction": 0.5},
    "partial_interleaved": {"fraction": 0.25, "layout": "interleaved"},
    "yarn": {"scaling": YarnScaling(4.0, 64)},
    "dynamic": {"scaling": DynamicScaling(4.0, 8), "length": 16},
}


@pytest.mark.parametrize("name", ROPES)
def test_pairs_turn_by_their_phases(name):
    """Logits under RoPE are Re[gram ∘ phases], with the Gram matrix of complex pairs."""
    options = ROPES[name]
    encoding = rope(head_dim=DIM, **options)
    layout = options.get("layout", "half_split")
    settings = {key: value for key, value in options.items() if key != "layout"}
    frequencies = rope_frequencies(head_dim=DIM, **settings)
    own = {**WHERE, "scale": 0.3}
    width = 2 * len(frequencies.inverse)

    @jax.jit
    def run(q, k):
        parts = pair_logits(encoding, (), q, k, **own, layout=layout, rotary_dim=width)
        return parts, parts.total, attention_logits(encoding, (), q, k, **own)

    q, _, k, _ = four(batch=(2,), groups=2)
    parts, total, logits = run(q, k)
    np.testing.assert_allclose(total, logits, atol=1e-12)
    first, second = (slice(0, width, 2), slice(1, width, 2))
    if layout == "half_split":
        first, second = slice(0, width // 2), slice(width // 2, width)
    pairs = [x[..., first] + 1j * x[..., second] for x in (q, np.repeat(k, 2, axis=-2))]
    gram = np.einsum("...qhp,...khp->...hpqk", pairs[0], pairs[1].conj())
    offsets = PLACES[:, None] - PLACES[None, :]  # query minus key
    phases = np.exp(1j * np.asarray(frequencies.inverse)[:, None, None] * offsets)
    factor = 0.3 * frequencies.attention_factor**2
    np.testing.assert_allclose(parts.logits, factor * (gram * phases).real, atol=1e-10)
    narrow = run(q.astype(np.float32), k.astype(np.float32))[1]
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, logits, atol=2e-5)


PAIRED = {
    "xpos": (xpos(head_dim=DIM), "half_split", 1),
    "xpos_interleaved": (xpos(head_dim=DIM, layout="interleaved"), "interleaved", 1),
    "axial": (axial_rope(head_dim=DIM), "half_split", 2),
    "mrope": (mrope(head_dim=DIM, sections=(2, 1, 1)), "half_split", 3),
    "none": (identity(), "half_split", 1),
}


@pytest.mark.parametrize("name", PAIRED)
def test_pairs_add_up_and_see_their_own_entries_alone(name):
    encoding, layout, coordinates = PAIRED[name]
    i = PLACES if coordinates == 1 else np.stack([PLACES * (a + 1) for a in range(coordinates)], -1)
    where = {"q_positions": i, "k_positions": i}
    q, _, k, _ = four(groups=2)
    pairs = jax.jit(lambda q, k: pair_logits(encoding, (), q, k, **where, layout=layout))
    logits_of = jax.jit(lambda q, k: attention_logits(encoding, (), q, k, **where))
    parts, logits = pairs(q, k), logits_of(q, k)
    np.testing.assert_allclose(parts.total, logits, atol=1e-12)
    own = [0, 1] if layout == "interleaved" else [0, DIM // 2]
    alone = np.zeros_like(q)
    alone[..., own] = q[..., own]
    found = np.asarray(parts.logits)[:, 0]
    np.testing.assert_allclose(found, logits_of(alone, k), atol=1e-12)
    np.testing.assert_allclose(pairs(alone, k).logits[:, 1:], 0, atol=1e-15)


def test_pairs_beside_a_bias():
    encoding = chain(rope(head_dim=DIM), alibi(num_heads=HEADS))

    @jax.jit
    def run(q, k):
        parts = pair_logits(encoding, ((), ()), q, k, **WHERE)
        return parts.total, attention_logits(encoding, ((), ()), q, k, **WHERE)

    q, _, k, _ = four()
    total, logits = run(q, k)
    np.testing.assert_allclose(total, logits, atol=1e-12)
    mapped = jax.vmap(run)(q[None], k[None])[0]
    np.testing.assert_allclose(mapped[0], logits, atol=1e-12)
    check_grads(lambda *arrays: run(*arrays)[0], (q, k), order=1, modes=["rev"], rtol=1e-5)


def test_frequencies_are_those_of_rope():
    for options in ({}, {"base": 500.0}, {"fraction": 0.5}):
        frequencies = rope_frequencies(head_dim=DIM, **options)
        dim = int(DIM * options.get("fraction", 1))
        expected = inverse_frequencies(dim, base=options.get("base", 10_000.0))
        np.testing.assert_array_equal(frequencies.inverse, expected)
        assert frequencies.attention_factor == 1
    assert rope_frequencies(head_dim=DIM, scaling=YarnScaling(4.0, 64)).attention_factor > 1


# Averages over documents.

SUM = jax.jit(sum_parts, static_argnames="causal")
SHARES = jax.jit(lambda sums: toeplitz_shares(sums.means()))


def documents(seed, count, *, dtype=np.float64):
    shapes = LogitParts(*[(count, 2, 4, 4)] * 5)
    return LogitParts(*(normal(seed + s, *shape, dtype=dtype) for s, shape in enumerate(shapes)))


def by_definition(parts, mask):
    """Means over the documents that have both tokens."""
    seen = mask[:, :, None] & mask[:, None, :]
    counts = seen.sum(0)

    def mean(x):
        return (np.asarray(x) * seen[:, None]).sum(0) / np.maximum(counts, 1)

    return jax.tree.map(mean, parts), jax.tree.map(lambda x: mean(x**2), parts), counts


def test_streamed_means_are_those_of_the_whole():
    parts, mask = documents(0, 6), np.random.default_rng(1).random((6, 4)) < 0.6
    mask[:, 3] = False  # a position that no document has
    shards = [slice(0, 1), slice(1, 4), slice(4, 6)]
    streamed = sum(SUM(jax.tree.map(lambda x: x[s], parts), mask[s]) for s in shards)  # noqa: B023
    means, squares, counts = by_definition(parts, mask)
    actual = jax.jit(lambda sums: sums.means())(streamed)
    np.testing.assert_array_equal(actual.counts, counts)
    assert actual.counts.dtype == np.int32
    for mine, expected in ((actual.parts, means), (actual.squares, squares)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-14), mine, expected)
    total = by_definition(LogitParts(*[parts.total] * 5), mask)[1].bias
    np.testing.assert_allclose(actual.total_squares, total, atol=1e-13)
    np.testing.assert_array_equal(actual.parts.total[:, 3], 0)
    np.testing.assert_array_equal(actual.counts[3], 0)


def test_what_is_masked_is_not_looked_at():
    parts, mask = documents(0, 3), np.array([[True] * 4, [True] * 3 + [False], [False] * 4])
    seen = mask[:, None, :, None] & mask[:, None, None, :]
    broken = jax.tree.map(lambda x: np.where(seen, x, np.nan), parts)
    clean, spoilt = SUM(parts, mask), SUM(broken, mask)
    jax.tree.map(np.testing.assert_array_equal, clean, spoilt)
    gradient = jax.grad(lambda x: jnp.sum(SUM(x, mask).means().total_squares))(broken)
    for leaf in gradient:
        assert np.isfinite(leaf).all()


def test_causal_sums_leave_out_later_keys():
    parts = documents(0, 3)
    plain, causal = SUM(parts), SUM(parts, np.ones(4, bool), causal=True)
    low = np.tri(4, dtype=bool)
    np.testing.assert_array_equal(causal.counts, np.where(low, 3, 0))
    np.testing.assert_allclose(causal.parts.bias, np.where(low, plain.parts.bias, 0), atol=1e-14)
    residuals = SHARES(causal).residual
    A = np.asarray(causal.means().parts.bias[0])
    left = sum(np.sum((d - d.mean()) ** 2) for d in (A.diagonal(k) for k in range(-3, 1)))
    np.testing.assert_allclose(residuals.bias[0], left / np.sum(A**2))


def test_layers_are_summed_apart_and_one_document_needs_no_axis():
    parts = jax.tree.map(lambda x: x[:, None], documents(0, 3))  # [layers, 1 document, ...]
    sums = jax.jit(jax.vmap(sum_parts))(parts)
    means = sums.means()
    assert means.parts.bias.shape == (3, 2, 4, 4)
    assert means.counts.shape == (3, 4, 4)
    shares = SHARES(sums)
    assert shares.share.bias.shape == (3, 2)
    one = sum_parts(jax.tree.map(lambda x: x[1, 0], parts))
    np.testing.assert_allclose(one.parts.bias, means.parts.bias[1])
    alone = SHARES(one)
    np.testing.assert_allclose(shares.residual.bias[1], alone.residual.bias)
    for part, whole in zip(one.means().parts, alone.residual, strict=True):
        np.testing.assert_allclose(whole[0], RESIDUAL(part[0]))


def test_shares_of_the_mean_squared_logits():
    parts, mask = documents(0, 5), np.ones((5, 4), bool)
    mask[:, 3] = False
    shares = SHARES(SUM(parts, mask))
    inside = jax.tree.map(lambda x: x[..., :3, :3], parts)
    whole = np.sum(np.asarray(inside.total) ** 2, axis=(0, 2, 3))
    for name, part in inside._asdict().items():
        np.testing.assert_allclose(
            getattr(shares.share, name), np.sum(part**2, axis=(0, 2, 3)) / whole
        )
        mean = part.mean(0)
        np.testing.assert_allclose(
            getattr(shares.mean_share, name), 5 * np.sum(mean**2, axis=(1, 2)) / whole
        )
        residual = [RESIDUAL(head) for head in mean]
        np.testing.assert_allclose(getattr(shares.residual, name), residual)
        assert (getattr(shares.mean_share, name) <= getattr(shares.share, name)).all()


def test_means_over_nothing_are_zero():
    parts = documents(0, 2)
    sums = SUM(parts, np.zeros((2, 4), bool))
    for leaf in jax.tree.leaves((sums.means(), SHARES(sums))):
        np.testing.assert_array_equal(leaf, 0)


def test_float32_and_derivatives_of_shares():
    parts = documents(0, 3, dtype=np.float32)
    sums = SUM(parts)
    assert {leaf.dtype for leaf in jax.tree.leaves(sums)} == {np.dtype("f4"), np.dtype("i4")}
    shares = SHARES(sums)
    assert {leaf.dtype for leaf in jax.tree.leaves(shares)} == {np.dtype("f4")}
    wide = jax.tree.map(np.float64, parts)
    exact = SHARES(SUM(wide))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), shares, exact)
    loss = jax.jit(
        lambda parts: jnp.stack(jax.tree.leaves(toeplitz_shares(sum_parts(parts).means())))
    )
    check_grads(loss, (wide,), order=1, modes=["rev"], rtol=1e-5)


def test_what_is_refused():
    q, q_p, k, k_p = four()
    none, parts = identity(), documents(0, 2)
    hidden = {"mask": np.ones((2, 4))}
    cases = [
        (
            logit_parts,
            (none, (), q, q_p[:2], k, k_p),
            WHERE,
            r"q_content has shape \(5, 4, 8\), ",
        ),
        (logit_parts, (none, (), q, q_p, k, k_p[..., :2]), WHERE, r"k_position \(5, 4, 2\)"),
        (logit_parts, (none, (), q, q_p, k[:, :3], k_p[:, :3]), WHERE, "4 query heads cannot"),
        (logit_parts, (none, (), *(x[0] for x in (q, q_p, k, k_p))), WHERE, r"\(4, 8\)"),
        (pair_logits, (none, (), q, k), {**WHERE, "layout": "neox"}, "neox"),
        (pair_logits, (none, (), q, k), {**WHERE, "rotary_dim": 3}, "3 of 8 entries would turn"),
        (rope_frequencies, (), {"head_dim": 3}, "3 of 3 entries would turn"),
        (
            rope_frequencies,
            (),
            {"head_dim": 8, "scaling": DynamicScaling(2.0, 8)},
            "depends on the length",
        ),
        (sum_parts, (jax.tree.map(lambda x: x[:, :, :3], parts),), {}, "pass a square one"),
        (sum_parts, (parts,), hidden, "mask is float64, not boolean"),
        (sum_parts, (parts, np.ones((2, 3), bool)), {}, "Incompatible types for broadcasting"),
        (
            sum_parts,
            (parts, np.ones((2, 2, 4), bool)),
            {},
            "broadcast",
        ),
    ]
    for function, arguments, options, message in cases:
        # The type checker of the tests refuses an unknown layout first.
        with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=message):
            inspect.unwrap(function)(*arguments, **options)
    sums = sum_parts(parts)
    with pytest.raises(ValueError, match=r"\(2, 4, 4\) and \(1, 4, 4\)"):
        sums + sum_parts(jax.tree.map(lambda x: x[:, :1], parts))
    with pytest.raises(TypeError, match=r"unsupported operand .* 'PartSums'"):
        1 + sums


def test_counts_of_documents_do_not_wrap():
    x, i = jnp.ones((1, 2, 1, 1)), jnp.arange(2)
    parts = logit_parts(Encoding(), (), x, x, x, x, q_positions=i, k_positions=i)
    many = sum_parts(parts)._replace(counts=jnp.full((2, 2), 2**30, jnp.int32))
    with pytest.raises(OverflowError, match="2147483648 counts of PartSums"):
        many + many
    assert (jax.jit(lambda a, b: (a + b).counts)(many, many) == 2**31 - 1).all()
