"""Parts add up to the logits under every kind of encoding; rotary pairs; averages of documents."""

import inspect
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxpe.encodings import (
    DynamicScaling,
    Encoding,
    YarnScaling,
    alibi,
    attention_logits,
    axial_rope,
    catalogue,
    chain,
    identity,
    mrope,
    rope,
    rope_frequencies,
    sinusoidal_vectors,
    xpos,
)
from jaxpe.geometry.distances.toeplitz import toeplitz_residual
from jaxpe.spectral import logit_parts, sum_parts, toeplitz_shares
from jaxpe.spectral.decomposition import LogitParts, pair_logits
from tests.encodings.kinds import SIZES
from tests.unchecked import unchecked

N, HEADS, DIM = 5, SIZES.num_heads, SIZES.head_dim
PLACES = np.array([3, 4, 0, 9, 11])
WHERE = {"q_positions": PLACES, "k_positions": PLACES}
# Hooks that are linear or not, of positions with one or more coordinates, and biases.
KINDS = ("rope_partial", "xpos", "mrope", "t5", "cope", "shaw")


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def four(*, batch=(), groups=HEADS):
    """Queries of content and of position, keys of content and of position."""
    heads = (HEADS, HEADS, groups, groups)
    return [normal(s, *batch, N, h, DIM) for s, h in enumerate(heads)]


@pytest.mark.parametrize("name", KINDS)
def test_parts_add_up_to_the_logits(name):
    """Products without the bias are those of their vectors alone where hooks are linear."""
    (entry,) = catalogue(name)
    encoding = entry.first_layer(SIZES)
    rng = np.random.default_rng(3)
    params = jax.device_get(encoding.init(jax.random.key(0)))
    params = jax.tree.map(lambda x: x + 0.1 * rng.standard_normal(x.shape), params)
    i = np.sort(rng.choice(SIZES.length, (2, N)), axis=-1).astype(np.int32)
    if entry.coordinates > 1:
        i = rng.integers(0, 9, (2, N, entry.coordinates), dtype=np.int32)
    where = {"q_positions": i, "k_positions": i, "scale": 0.3}
    bare = encoding._replace(bias=identity().bias)

    @jax.jit
    def run(params, q, q_p, k, k_p):
        parts = logit_parts(encoding, params, q, q_p, k, k_p, **where)
        alone = [attention_logits(bare, params, a, b, **where) for a in (q, q_p) for b in (k, k_p)]
        return parts, attention_logits(encoding, params, q + q_p, k + k_p, **where), alone

    parts, logits, alone = run(params, *four(batch=(2,), groups=2))
    np.testing.assert_allclose(parts.total, logits, atol=1e-12)
    np.testing.assert_allclose(parts[:4], alone, atol=1e-12)
    assert encoding.defines("bias") == np.abs(parts.bias).any()


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


@jax.jit
def position_residuals(vectors, W):
    """Of queries and keys of one projection, tied: of their sum over heads, and head by head."""
    zero = 0 * (p := (vectors @ W).reshape(len(vectors), HEADS, -1))
    i = jnp.arange(len(p))
    parts = logit_parts(identity(), (), zero, p, zero, p, q_positions=i, k_positions=i)
    term = parts.position_position
    return toeplitz_residual(term.sum(0)), jnp.stack([toeplitz_residual(head) for head in term])


def test_positions_are_toeplitz_where_the_projection_is_an_isometry():
    """Of sinusoids summed over heads; not head by head, not for others, and not of tables."""
    vectors = np.asarray(sinusoidal_vectors(np.arange(16), dim=SIZES.dim))
    whole, heads = position_residuals(vectors, np.linalg.qr(normal(5, SIZES.dim, SIZES.dim))[0])
    assert whole < 1e-26
    assert heads.min() > 1e-3
    # Heads that take whole pairs (sin, cos), turned at will, are Toeplitz one by one.
    turns = np.kron(np.eye(SIZES.dim // 2), np.array([[0.6, -0.8], [0.8, 0.6]]))
    assert position_residuals(vectors, turns)[1].max() < 1e-26
    # W_Q = W_K does not make it so, though random ones are within a few percent.
    whole, _ = position_residuals(vectors, normal(0, SIZES.dim, SIZES.dim) / SIZES.dim**0.5)
    assert 1e-3 < whole < 0.1
    whole, _ = position_residuals(normal(6, 16, SIZES.dim), np.eye(SIZES.dim))
    assert 0.3 < whole < 0.7  # the diagonal is large, and nearly constant


# Rotary encodings, by pairs.

ROPES = {
    "half": {},
    "partial_interleaved": {"fraction": 0.25, "layout": "interleaved"},
    "yarn": {"scaling": YarnScaling(4.0, 64)},
    "dynamic": {"scaling": DynamicScaling(4.0, 8), "length": 16},
}


@pytest.mark.parametrize("name", ROPES)
def test_pairs_turn_by_their_phases(name):
    """Logits under RoPE are Re[gram ∘ phases], with the Gram matrix of complex pairs."""
    options = ROPES[name]
    encoding = chain(rope(head_dim=DIM, **options), alibi(num_heads=HEADS))
    layout = options.get("layout", "half")
    settings = {key: value for key, value in options.items() if key != "layout"}
    frequencies = rope_frequencies(head_dim=DIM, **settings)
    own = {**WHERE, "scale": 0.3}
    width = 2 * len(frequencies.inverse)

    @jax.jit
    def run(q, k):
        parts = pair_logits(encoding, ((), ()), q, k, **own, layout=layout, rotary_dim=width)
        return parts, parts.total, attention_logits(encoding, ((), ()), q, k, **own)

    q, _, k, _ = four(batch=(2,), groups=2)
    parts, total, logits = run(q, k)
    np.testing.assert_allclose(total, logits, atol=1e-12)
    first, second = (slice(0, width, 2), slice(1, width, 2))
    if layout == "half":
        first, second = slice(0, width // 2), slice(width // 2, width)
    pairs = [x[..., first] + 1j * x[..., second] for x in (q, np.repeat(k, 2, axis=-2))]
    gram = np.einsum("...qhp,...khp->...hpqk", pairs[0], pairs[1].conj())
    offsets = PLACES[:, None] - PLACES[None, :]  # query minus key
    phases = np.exp(1j * np.asarray(frequencies.inverse)[:, None, None] * offsets)
    factor = 0.3 * frequencies.attention_factor**2
    np.testing.assert_allclose(parts.logits, factor * (gram * phases).real, atol=1e-10)


PAIRED = {
    "xpos_interleaved": (xpos(head_dim=DIM, layout="interleaved"), "interleaved", 1),
    "axial": (axial_rope(head_dim=DIM), "half", 2),
    "mrope": (mrope(head_dim=DIM, sections=(2, 1, 1)), "half", 3),
}


@pytest.mark.parametrize("name", PAIRED)
def test_pairs_add_up_and_see_their_own_entries_alone(name):
    encoding, layout, coordinates = PAIRED[name]
    i = PLACES if coordinates == 1 else np.stack([PLACES * (a + 1) for a in range(coordinates)], -1)
    where = {"q_positions": i, "k_positions": i}
    q, _, k, _ = four(groups=2)

    @jax.jit
    def run(q, k):
        parts = pair_logits(encoding, (), q, k, **where, layout=layout)
        return parts.logits, parts.total, attention_logits(encoding, (), q, k, **where)

    pairs, total, logits = run(q, k)
    np.testing.assert_allclose(total, logits, atol=1e-12)
    own = [0, 1] if layout == "interleaved" else [0, DIM // 2]
    alone = np.zeros_like(q)
    alone[..., own] = q[..., own]
    only, _, expected = run(alone, k)
    np.testing.assert_allclose(pairs[:, 0], expected, atol=1e-12)
    np.testing.assert_allclose(only[:, 1:], 0, atol=1e-15)


# Averages over documents.

SHARES = jax.jit(lambda sums: toeplitz_shares(sums.means()))


def documents(seed, count):
    return LogitParts(*(normal(seed + s, count, 2, 4, 4) for s in range(5)))


def by_definition(parts, mask):
    """Means over the documents that have both tokens."""
    seen = mask[:, :, None] & mask[:, None, :]
    counts = seen.sum(0)

    def mean(x):
        return (np.asarray(x) * seen[:, None]).sum(0) / np.maximum(counts, 1)

    return jax.tree.map(mean, parts), jax.tree.map(lambda x: mean(x**2), parts), counts


def close(mine, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-13), mine, expected)


def test_streamed_means_are_those_of_the_whole():
    """Also where what is masked is NaN."""
    parts, mask = documents(0, 6), np.random.default_rng(1).random((6, 4)) < 0.6
    mask[:, 3] = False  # a position that no document has
    seen = mask[:, None, :, None] & mask[:, None, None, :]
    broken = jax.tree.map(lambda x: np.where(seen, x, np.nan), parts)
    sums = [sum_parts(jax.tree.map(lambda x: x[s], broken), mask[s])  # noqa: B023
            for s in (slice(0, 3), slice(3, 6))]  # fmt: skip
    actual = sum(sums).means()
    means, squares, counts = by_definition(parts, mask)
    np.testing.assert_array_equal(actual.counts, counts)
    assert actual.counts.dtype == np.int32
    close((actual.parts, actual.squares), (means, squares))
    total = by_definition(LogitParts(*[parts.total] * 5), mask)[1].bias
    np.testing.assert_allclose(actual.total_squares, total, atol=1e-13)
    np.testing.assert_array_equal(actual.parts.total[:, 3], 0)
    gradient = jax.grad(lambda x: jnp.sum(sum_parts(x, mask).means().total_squares))(broken)
    for leaf in gradient:
        assert np.isfinite(leaf).all()


def test_causal_sums_leave_out_later_keys():
    parts = documents(0, 3)
    plain, causal = sum_parts(parts), sum_parts(parts, np.ones(4, bool), causal=True)
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
    means, shares = sums.means(), SHARES(sums)
    one = sum_parts(jax.tree.map(lambda x: x[1, 0], parts))
    np.testing.assert_allclose(one.parts.bias, means.parts.bias[1])
    np.testing.assert_allclose(shares.residual.bias[1], SHARES(one).residual.bias)


def test_shares_of_the_mean_squared_logits():
    parts, mask = documents(0, 5), np.ones((5, 4), bool)
    mask[:, 3] = False
    shares = SHARES(sum_parts(parts, mask))
    inside = jax.tree.map(lambda x: x[..., :3, :3], parts)
    whole = np.sum(np.asarray(inside.total) ** 2, axis=(0, 2, 3))
    residual = jax.vmap(toeplitz_residual)

    def of_part(part):
        mean = part.mean(0)
        share = np.sum(part**2, axis=(0, 2, 3)) / whole
        return share, 5 * np.sum(mean**2, axis=(1, 2)) / whole, residual(mean)

    for mine, expected in zip(zip(*shares, strict=True), map(of_part, inside), strict=True):
        np.testing.assert_allclose(mine, expected)
    empty = sum_parts(parts, 0 * mask > 1)
    for leaf in jax.tree.leaves((empty.means(), SHARES(empty))):
        np.testing.assert_array_equal(leaf, 0)


def test_derivatives_of_shares():
    loss = jax.jit(
        lambda parts: jnp.stack(jax.tree.leaves(toeplitz_shares(sum_parts(parts).means())))
    )
    check_grads(loss, (documents(0, 3),), order=1, modes=["rev"], rtol=1e-5)


def test_what_is_refused():
    q, q_p, k, k_p = four()
    none, parts = identity(), documents(0, 2)
    parts_of, sums = partial(logit_parts, none, ()), inspect.unwrap(sum_parts)
    calls = [
        (lambda: parts_of(q, q_p[:2], k, k_p, **WHERE), "q_content"),
        (lambda: parts_of(q, q_p, k, k_p[..., :2], **WHERE), "k_position"),
        (lambda: parts_of(q, q_p, k[:, :3], k_p[:, :3], **WHERE), "heads"),
        (lambda: pair_logits(none, (), q, k, **WHERE, layout="neox"), "neox"),
        (lambda: pair_logits(none, (), q, k, **WHERE, rotary_dim=3), "3 of 8"),
        (lambda: rope_frequencies(head_dim=8, scaling=DynamicScaling(2.0, 8)), "length"),
        (lambda: sums(jax.tree.map(lambda x: x[:, :, :3], parts)), "square"),
        (lambda: sums(parts, np.ones((2, 4))), "mask"),
        (lambda: sums(parts, np.ones((2, 3), bool)), "broadcast"),
        (lambda: sums(parts) + sums(jax.tree.map(lambda x: x[:, :1], parts)), r"\(1, 4, 4\)"),
    ]
    for call, message in calls:
        with unchecked(), pytest.raises(ValueError, match=message):
            call()


def test_counts_of_documents_do_not_wrap():
    sums = sum_parts(documents(0, 2))
    many = sums._replace(counts=jnp.full((4, 4), 2**30, jnp.int32))
    with pytest.raises(OverflowError, match="2147483648"):
        many + many
    assert (jax.jit(lambda a, b: (a + b).counts)(many, many) == 2**31 - 1).all()
