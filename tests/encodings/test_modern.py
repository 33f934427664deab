"""Encodings of 2024 to 2026: loops in NumPy float64, limits, and laws inside a decoder."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe import encodings
from jaxpe.encodings import (
    EncodingSizes,
    ResonanceScaling,
    YarnScaling,
    catalogue,
    chain,
    identity,
    interleaved_layers,
    per_head,
)
from jaxpe.encodings.base import Rows, bind_context, encoding_at
from jaxpe.encodings.context import causal_convolution, preceding, running_sum, sums_to_the_end
from jaxpe.encodings.families.data_dependent import inverse_of_unit_lower
from jaxpe.nn import (
    Decoder,
    TransformerConfig,
    packed_positions,
    padded_positions,
)
from jaxpe.nn.attention import Context, MultiHeadAttention
from tests.nn.models import shapes_of

N, DIM, HEADS, WIDTH = 7, 8, 2, 4
SIZES = EncodingSizes(DIM, HEADS, WIDTH, 16)
I = np.arange(N)  # noqa: E741


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


X, Q, K, V = normal(N, DIM), *(normal(N, HEADS, WIDTH, seed=s) for s in (1, 2, 3))


def made(encoding, seed=0):
    """Parameters off their initial values."""
    rng = np.random.default_rng(seed)
    params = jax.jit(encoding.init)(jax.random.key(seed))
    return jax.tree.map(lambda x: np.asarray(x) + 0.3 * rng.standard_normal(x.shape), params)


@functools.partial(jax.jit, static_argnums=0)
def logits(encoding, params, x=X, q=Q, k=K):
    bound = encoding_at(encoding, params, jnp.asarray(x), I)
    return encodings.attention_logits(bound, params, q, k, q_positions=I, k_positions=I)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def softplus(z):
    return np.log1p(np.exp(z))


def products(q=Q, k=K):
    return np.einsum("ihd,jhd->hij", q, k)


PLAIN = products() / WIDTH**0.5


# Loops over the published formulas.


def fox_loop(params, x, sign=1):
    bias = np.zeros((HEADS, N, N))
    log_f = -softplus(-sign * (x @ params["kernel"] + params["bias"]))
    for h, i, j in np.ndindex(HEADS, N, N):
        low, high = sorted((i, j))
        bias[h, i, j] = log_f[low + 1 : high + 1, h].sum()
    return PLAIN + bias


def path_loop(params, x):
    wide = np.einsum("nd,dr,rhe->nhe", x, params["down"], params["up"])
    padded = np.concatenate([np.zeros((2, HEADS, WIDTH)), wide])
    conv = sum(params["conv"][t] * padded[t : t + N] for t in range(3))
    w = conv * sigmoid(conv)
    w /= np.sqrt((w**2).sum(-1, keepdims=True) + 1e-6)
    beta = 2 * sigmoid(x @ params["kernel"] + params["bias"])
    found = products()
    for h, i, j in np.ndindex(HEADS, N, N):
        row = Q[i, h]
        for t in range(i, j, -1):
            row = row - beta[t, h] * (row @ w[t, h]) * w[t, h]
        if j <= i:
            found[h, i, j] = row @ K[j, h]
    return found / WIDTH**0.5


def selective_loop(params, x):
    steps = np.einsum(
        "nd,dhe->nhe", x / np.linalg.norm(x, axis=1, keepdims=True), params["projection"]
    )
    padded = np.concatenate([np.zeros((3, *steps.shape[1:])), steps])
    conv = sum(params["conv"][t] * padded[t : t + N] for t in range(4))
    angles = np.cumsum(conv, axis=0) * 500_000.0 ** (-2 * np.arange(WIDTH // 2) / WIDTH)
    turn = np.exp(1j * angles)
    q, k = ((y[..., :2] + 1j * y[..., 2:]) * turn for y in (Q, K))
    return np.einsum("ihd,jhd->hij", q, k.conj()).real / WIDTH**0.5


def carope_loop(params, x):
    steps = 1 / (softplus(x @ params["kernel"]) + 1)
    turn = np.zeros((N, HEADS, WIDTH // 2), complex)
    for i, h, k in np.ndindex(turn.shape):
        turn[i, h, k] = np.exp(1j * sum(steps[t, h] ** k for t in range(i + 1)))
    q, k = ((y[..., :2] + 1j * y[..., 2:]) * turn for y in (Q, K))
    return np.einsum("ihd,jhd->hij", q, k.conj()).real / WIDTH**0.5


def grape_additive_loop(params, x):
    slopes = [2.0**-4, 2.0**-8]
    bias = np.zeros((HEADS, N, N))
    for h, i, j in np.ndindex(HEADS, N, N):
        gate = softplus(params["gate"][h] @ K[j, h] / WIDTH**0.5)
        bias[h, i, j] = -abs(i - j) * softplus(params["rate"][h]) * slopes[h] * gate
    return PLAIN + bias


def pope_loop(params, x):
    theta = 10_000.0 ** (-np.arange(WIDTH) / WIDTH)
    delta = np.clip(params["phase"], -2 * np.pi, 0)
    found = np.zeros((HEADS, N, N))
    for h, i, j in np.ndindex(HEADS, N, N):
        angles = theta * (i - j) - delta[h]
        found[h, i, j] = (softplus(Q[i, h]) * softplus(K[j, h]) * np.cos(angles)).sum()
    return found / WIDTH**0.5


def fope_loop(params, x):
    kept = np.array([1.0])  # of 1 and 0.01, for 2π/16
    turned = []
    for y in (Q, K):
        cos, sin = np.ones((2, N, HEADS, 2))
        cos[..., 0] = np.einsum("nD,hDc->nhc", np.cos(np.outer(I, kept)), params["cosines"])[..., 0]
        sin[..., 0] = np.einsum("nD,hDc->nhc", np.sin(np.outer(I, kept)), params["sines"])[..., 0]
        a, b = y[..., :2], y[..., 2:]
        turned.append(np.concatenate([a * cos - b * sin, b * cos + a * sin], -1))
    return products(*turned) / WIDTH**0.5


def grape_multiplicative_loop(params, x):
    turn = np.exp(1j * I[:, None, None] * np.exp(params["log_frequencies"]))
    q, k = ((y[..., :2] + 1j * y[..., 2:]) * turn for y in (Q, K))
    return np.einsum("ihd,jhd->hij", q, k.conj()).real / WIDTH**0.5


def ssmax_loop(params, x):
    return PLAIN * np.log(I + 1)[None, :, None] * params["scale"][:, None, None]


LOOPS = {
    "fox": fox_loop,
    "cable": lambda params, x: fox_loop(params, x, sign=-1),
    "path": path_loop,
    "selective_rope": selective_loop,
    "carope": carope_loop,
    "grape_a": grape_additive_loop,
    "grape_m": grape_multiplicative_loop,
    "pope": pope_loop,
    "fope": fope_loop,
    "ssmax": ssmax_loop,
    "llama4_scaling": lambda params, x: PLAIN * (1 + 0.1 * np.log(1 + (I + 1) // 4))[None, :, None],
    "ministral_scaling": lambda params, x: PLAIN * (1 + 0.1 * np.log(1 + I // 4))[None, :, None],
}


@pytest.mark.parametrize("name", LOOPS)
def test_logits_are_those_of_the_published_formula(name):
    (entry,) = catalogue(name)
    encoding = entry.make(SIZES)
    params = made(encoding)
    np.testing.assert_allclose(logits(encoding, params), LOOPS[name](params, X), atol=1e-10)


# What each is in a limit.


def test_limits():
    fox = encodings.fox(dim=DIM, num_heads=HEADS)
    open_gate = {"kernel": np.zeros((DIM, HEADS)), "bias": np.full(HEADS, 40.0)}
    np.testing.assert_allclose(logits(fox, open_gate), PLAIN, atol=1e-12)
    constant = {"kernel": np.zeros((DIM, HEADS)), "bias": np.zeros(HEADS)}
    slopes = encodings.alibi(num_heads=HEADS, slopes=np.log(2))
    np.testing.assert_allclose(logits(fox, constant), logits(slopes, ()), atol=1e-12)

    selective = encodings.selective_rope(dim=DIM, num_heads=HEADS, head_dim=WIDTH, conv_width=1)
    direction = X[0] / np.linalg.norm(X[0])
    steps = {
        "projection": np.broadcast_to(direction[:, None, None], (DIM, HEADS, WIDTH // 2)),
        "conv": np.ones((1, HEADS, WIDTH // 2)),
    }
    same = np.broadcast_to(X[:1], X.shape)
    rope = encodings.rope(head_dim=WIDTH, base=500_000.0)
    np.testing.assert_allclose(logits(selective, steps, x=same), logits(rope, ()), atol=1e-9)

    plain_rope = logits(encodings.rope(head_dim=WIDTH), ())
    learned = encodings.grape_multiplicative(head_dim=WIDTH)
    np.testing.assert_allclose(
        logits(learned, learned.init(jax.random.key(0))), plain_rope, atol=1e-12
    )
    long = encodings.fope(num_heads=HEADS, head_dim=WIDTH, length=1000, stddev=0.0)
    np.testing.assert_allclose(logits(long, long.init(jax.random.key(0))), plain_rope, atol=1e-12)


def test_waves_are_first_mixed_with_xavier_normal_weights():
    encoding = encodings.fope(num_heads=8, head_dim=128, length=1000)
    params = jax.device_get(encoding.init(jax.random.key(0)))
    kept = int(np.sum(10_000.0 ** (-np.arange(64) / 64) >= 2 * np.pi / 1000))
    for part in params.values():
        assert part.shape == (8, kept, kept)
        np.testing.assert_allclose(np.std(part - np.eye(kept)), 0.3 / kept**0.5, rtol=0.05)


def test_chunks_go_on_before_the_first_position():
    i, x = np.arange(-7, 8), jnp.ones((15, 1, 2))
    mask = encodings.attention_chunks(size=3).mask((), x, x, jnp.asarray(i), jnp.asarray(i))
    np.testing.assert_array_equal(mask[0], i[:, None] // 3 == i[None, :] // 3)


@pytest.mark.parametrize("n", [1, 5])
def test_unit_lower_matrices_are_inverted(n):
    rng = np.random.default_rng(0)
    lower = np.tril(rng.standard_normal((2, n, n)), -1) + np.eye(n)
    np.testing.assert_allclose(
        jax.jit(inverse_of_unit_lower)(lower), np.linalg.inv(lower), atol=1e-12
    )


@pytest.mark.parametrize("block", [1, 3])
def test_sums_to_the_end_in_blocks(block):
    x = np.random.default_rng(0).standard_normal((2, 8))
    found = jax.jit(functools.partial(sums_to_the_end, block=block))(x)
    np.testing.assert_allclose(found, np.cumsum(x[:, ::-1], axis=1)[:, ::-1], atol=1e-14)


def test_resonance_turns_in_whole_positions():
    found = encodings.rope_frequencies(head_dim=64, scaling=ResonanceScaling())
    wavelengths = 2 * np.pi / found.inverse
    np.testing.assert_allclose(wavelengths, np.round(wavelengths), atol=1e-9)
    assert wavelengths[0] == pytest.approx(6)
    yarn = YarnScaling(4.0, 64)
    after = encodings.rope_frequencies(head_dim=64, scaling=ResonanceScaling(yarn))
    before = encodings.rope_frequencies(head_dim=64, scaling=yarn)
    np.testing.assert_allclose(2 * np.pi / after.inverse, np.round(2 * np.pi / before.inverse))
    assert after.attention_factor == before.attention_factor


# Sums and convolutions over a row, against a loop that walks it.

VALID = np.array([1, 1, 0, 1, 1, 1, 0], bool)
STARTS = np.array([1, 0, 0, 0, 1, 0, 0], bool)
STARTS_ON_PADDING = np.array([1, 0, 1, 0, 0, 0, 0], bool)


@jax.jit
def sums_and_windows(part, kernel, rows, carries):
    sums, preceded, convolved = (rows._replace(carry=carry) for carry in carries)
    return (
        running_sum(part, sums),
        preceding(part, preceded, 3),
        causal_convolution(part, kernel, convolved),
    )


@pytest.mark.parametrize(
    ("valid", "starts"),
    [(None, None), (VALID, None), (None, STARTS), (VALID, STARTS), (VALID, STARTS_ON_PADDING)],
)
def test_sums_and_windows_of_a_row_in_pieces(valid, starts):
    values, kernel = normal(N, 3), normal(3, 3)
    sums, windows, total, before = [], [], np.zeros(3), [np.zeros(3)] * 2
    for t in range(N):
        if starts is not None and starts[t]:
            total, before = np.zeros(3), [np.zeros(3)] * 2
        counted = valid is None or valid[t]
        own = values[t] if counted else np.zeros(3)
        total = total + own
        sums.append(total)
        windows.append([*before, own])
        if counted:
            before = [before[1], own]
    in_pieces = [slice(0, 0), slice(0, 3), slice(3, 3), slice(3, 4), slice(4, N)]
    for pieces in ([slice(0, N)], in_pieces):
        carries, found = [None, None, None], [[], [], []]
        for piece in pieces:
            rows = Rows(*(None if a is None else a[piece] for a in (valid, starts)))
            results = sums_and_windows(values[piece], kernel, rows, carries)
            for i, (value, carry) in enumerate(results):
                found[i].append(np.asarray(value))
                carries[i] = carry
        whole = [np.concatenate(a) for a in found]
        kept = slice(None) if valid is None else valid
        np.testing.assert_allclose(whole[0], sums, atol=1e-12)
        np.testing.assert_allclose(whole[1][kept], np.asarray(windows)[kept], atol=1e-12)
        expected = np.einsum("nwc,wc->nc", np.asarray(windows), kernel)
        np.testing.assert_allclose(whole[2][kept], expected[kept], atol=1e-12)


# Inside a decoder.

CONFIG = TransformerConfig(vocab_size=11, dim=DIM, num_layers=3, num_heads=HEADS)
IDS = np.array([[1, 5, 3, 9, 0, 2, 7]])
ROPE = encodings.rope(head_dim=WIDTH)
FOX = encodings.fox(dim=DIM, num_heads=HEADS)
LAYERED = {
    "path": encodings.path_attention(dim=DIM, num_heads=HEADS, head_dim=WIDTH, chunk=4),
    "fox_on_one_head_in_a_window": chain(
        per_head([encodings.fox(dim=DIM, num_heads=1), ROPE], heads=[1, 1]),
        encodings.sliding_window(size=3),
    ),
    "pattern_of_two_with_one_left_over": interleaved_layers(chain(ROPE, FOX), identity(), period=2),
}


@functools.cache
def decoder(encoding, **changes):
    """A decoder with parameters off their initial values, the same for the same names."""
    config = dataclasses.replace(CONFIG, **changes)

    def make():
        return Decoder(config, layer_encoding=encoding, rngs=nnx.Rngs(0))

    graphdef, _ = nnx.split(shapes_of(make), nnx.Param)
    params = jax.device_get(jax.jit(lambda: nnx.split(make(), nnx.Param)[1])())
    rng = np.random.default_rng(0)
    return nnx.merge(
        graphdef,
        jax.tree.map(
            lambda x: jax.device_put(x + 0.2 * rng.standard_normal(x.shape).astype(x.dtype)), params
        ),
    )


def program(model):
    """The model as one program: hidden states and cache."""
    graphdef, params = nnx.split(model, nnx.Param)

    @jax.jit
    def run(params, ids, options):
        out = nnx.merge(graphdef, params)(ids, **options)
        return out.hidden, out.cache

    def call(ids, **options):
        hidden, cache = run(params, ids, options)
        return np.asarray(hidden), cache

    return call


@pytest.mark.parametrize("name", LAYERED)
def test_decoder_laws(name):
    """One token at a time, packed and padded give what the whole gives."""
    model = decoder(LAYERED[name])
    run = program(model)
    whole, _ = run(IDS)
    cache, outs = model.empty_cache(batch=1, slots=N + 1), []
    for t in range(N):
        hidden, cache = run(IDS[:, t : t + 1], cache=cache)
        outs.append(hidden)
    np.testing.assert_allclose(np.concatenate(outs, 1), whole, atol=3e-6)

    segments, every = np.array([[0, 0, 0, 1, 1, 1, 1]]), np.ones((1, N), bool)
    positions = packed_positions(segments)
    packed, _ = run(IDS, segments=segments, positions=positions, mask=every)
    np.testing.assert_allclose(packed[:, :3], whole[:, :3], atol=3e-6)
    moved_ids = np.concatenate([IDS[:, 3:], IDS[:, :3]], 1)
    alone, _ = run(moved_ids)
    np.testing.assert_allclose(packed[:, 3:], alone[:, :4], atol=3e-6)

    mask = np.array([[True, False, True, True, True, False, True]])
    kept = np.flatnonzero(mask[0])
    padded, _ = run(IDS, segments=0 * segments, positions=padded_positions(mask), mask=mask)
    short = np.concatenate([IDS[:, kept], IDS[:, :2]], 1)  # of the same shape
    alone, _ = run(short)
    np.testing.assert_allclose(padded[:, kept], alone[:, :5], atol=3e-6)


# Bad input.


def test_refused():
    fox = encodings.fox(dim=DIM, num_heads=HEADS)
    params, path = fox.init(jax.random.key(0)), LAYERED["path"]
    context, _ = fox.context(params, X[None], I, Rows())
    places = {"q_positions": I, "k_positions": I}
    config = TransformerConfig(vocab_size=5, dim=DIM, num_layers=1, num_heads=HEADS)
    attention = MultiHeadAttention(config, encoding=fox, rngs=nnx.Rngs(0))
    apart = Context(I, I[:3])
    refused = {
        "q_context": lambda: encodings.attention_logits(fox, params, Q, K, **places),
        "no `context`": lambda: bind_context(ROPE, X, X),
        "dim=8": lambda: fox.context(params, jnp.zeros((3, 5)), I[:3], Rows()),
        "2 axes": lambda: fox.context(params, jnp.zeros(DIM), I[:1], Rows()),
        "the context of": lambda: encodings.attention_logits(
            bind_context(fox, context, context), params, Q, K, **places
        ),
        "all define": lambda: chain(path, path),
        "inner products": lambda: encodings.encoding_distances(
            fox, params, I, num_heads=HEADS, head_dim=WIDTH
        ),
        "one encoding": lambda: jaxpe.nn.head_encoding(decoder(FOX)),
        "cross-attention": lambda: attention(jnp.asarray(X), apart, source=jnp.asarray(X[:3])),
        "pairs": lambda: encodings.carope(dim=4, num_heads=1, head_dim=3),
    }
    for word, call in refused.items():
        with pytest.raises(ValueError, match=word):
            call()
