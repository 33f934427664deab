"""ReRoPE, SelfExtend and dual chunk attention: their offsets pair by pair, limits and shifts."""

import jax
import numpy as np
import pytest

from jaxpe.encodings import (
    alibi,
    attention_logits,
    chain,
    dual_chunk,
    identity,
    rerope,
    rope,
    self_extend,
)
from jaxpe.encodings.combine import rescaled

HEADS, WIDTH = 2, 4
QUERIES = np.array([0, 3, 4, 9, -2, 700, 25], np.int32)
KEYS = np.array([5, 4, 0, -7, 2, 699, 31, 8, 690], np.int32)
RNG = np.random.default_rng(0)
Q, K = RNG.standard_normal((7, HEADS, WIDTH)), RNG.standard_normal((9, 1, WIDTH))
ROPE = rope(head_dim=WIDTH)


def logits(encoding, i=QUERIES, j=KEYS):
    return np.asarray(
        jax.jit(lambda i, j: attention_logits(encoding, (), Q, K, q_positions=i, k_positions=j))(
            i, j
        )
    )


def clipped(i, j, *, window, leak=0.0):
    d = i - j
    if abs(d) < window:
        return d
    return np.sign(d) * (window + leak * (abs(d) - window))


def grouped(i, j, *, window, group):
    if abs(i - j) < window:
        return i - j
    shift = window - window // group
    return i // group - j // group + (shift if i > j else -shift)


def chunked(i, j, *, chunk, local):
    c = chunk - local
    if i // c < j // c:
        return -chunked(j, i, chunk=chunk, local=local)
    apart = i // c - j // c
    own = i % c
    places = {0: own, 1: min(own + c, chunk)}
    return places.get(apart, min(2 * c - 1, chunk)) - j % c


CASES = {
    "rerope": (rerope(ROPE, window=4), lambda i, j: clipped(i, j, window=4)),
    "leaky": (rerope(ROPE, window=4, leak=0.25), lambda i, j: clipped(i, j, window=4, leak=0.25)),
    "self_extend": (
        self_extend(ROPE, window=6, group=3),
        lambda i, j: grouped(i, j, window=6, group=3),
    ),
    "dual_chunk": (
        dual_chunk(ROPE, chunk=5, local=2),
        lambda i, j: chunked(i, j, chunk=5, local=2),
    ),
    "dual_chunk_mostly_local": (
        dual_chunk(ROPE, chunk=7, local=5),
        lambda i, j: chunked(i, j, chunk=7, local=5),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_offsets_pair_by_pair(name):
    """q·R(δ)k with the published offset δ(i, j), mirrored for keys ahead; heads share keys."""
    encoding, offset = CASES[name]
    expected = np.zeros((HEADS, len(QUERIES), len(KEYS)))
    for a, i in enumerate(QUERIES.tolist()):
        for b, j in enumerate(KEYS.tolist()):
            angle = -offset(i, j) * np.array([1.0, 0.01])
            k = K[b, 0, :2] + 1j * K[b, 0, 2:]
            turned = k * np.exp(1j * angle)
            q = Q[a, :, :2] + 1j * Q[a, :, 2:]
            expected[:, a, b] = np.real(np.conj(q) * turned).sum(-1) / WIDTH**0.5
    np.testing.assert_allclose(logits(encoding), expected, atol=1e-10)


@pytest.mark.parametrize(
    "encoding",
    [
        rerope(ROPE, window=1000),
        self_extend(ROPE, window=1000, group=10),
        self_extend(ROPE, window=5, group=1),
        dual_chunk(ROPE, chunk=2000, local=0),
    ],
)
def test_wide_enough_each_is_rope(encoding):
    """SelfExtend with groups of one, too; one chunk holds the positions from 0 on."""
    i, j = np.abs(QUERIES), np.abs(KEYS)
    np.testing.assert_allclose(logits(encoding, i, j), logits(ROPE, i, j), atol=1e-10)


@pytest.mark.parametrize(
    ("make", "period"),
    [
        (lambda causal: rerope(ROPE, window=4, leak=0.5, causal=causal), 1),
        (lambda causal: self_extend(ROPE, window=6, group=3, causal=causal), 3),
        (lambda causal: dual_chunk(ROPE, chunk=5, local=2, causal=causal), 3),
    ],
)
def test_causal_computes_the_past_alone_and_shifts_by_a_period_change_nothing(make, period):
    encoding, whole = make(True), logits(make(False))
    found = logits(encoding)
    past = QUERIES[:, None] >= KEYS
    np.testing.assert_allclose(found[:, past], whole[:, past], atol=1e-12)
    assert np.abs(found - whole)[:, ~past].max() > 1e-2
    moved = [logits(encoding, QUERIES + s, KEYS + s)[:, past] for s in (period, 1)]
    np.testing.assert_allclose(moved[0], found[:, past], atol=1e-10)
    assert (np.abs(moved[1] - found[:, past]).max() < 1e-10) == (period == 1)


def test_rescaled_scales_products_but_no_bias():
    bias = alibi(num_heads=HEADS)
    whole, alone = logits(rescaled(identity()._replace(bias=bias.bias), 3.0)), logits(bias)
    content = logits(identity())
    np.testing.assert_allclose(whole, 3 * content + (alone - content), atol=1e-12)
    assert rescaled(ROPE, 2.0).init is ROPE.init


@pytest.mark.parametrize(
    "make",
    [
        lambda: rerope(ROPE, window=4, leak=1.0),
        lambda: rerope(alibi(num_heads=2), window=4),
        lambda: rerope(identity(), window=4),
        lambda: self_extend(ROPE, window=5, group=2),
        lambda: dual_chunk(ROPE, chunk=5, local=5),
        lambda: chain(rerope(ROPE, window=4), self_extend(ROPE, window=4, group=2)),
    ],
)
def test_what_makes_no_sense_is_refused(make):
    with pytest.raises(ValueError, match=r"pass|chain"):
        make()
