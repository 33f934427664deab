"""DeBERTa, TUPE, DAPE and Inkling: their formulas entry by entry, and laws of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.encodings import attention_logits, dape, deberta, identity, inkling, kerple, rope
from jaxpe.encodings.base import Rows, encoding_at

HEADS, WIDTH, DIM = 2, 4, 6
QUERIES = np.array([0, 3, 4, 9, 2, 11, 25], np.int32)
KEYS = np.array([5, 4, 0, 0, 2, 30, 31, 8, 3], np.int32)
RNG = np.random.default_rng(0)
Q, K = RNG.standard_normal((7, HEADS, WIDTH)), RNG.standard_normal((9, HEADS, WIDTH))
X = RNG.standard_normal((7, DIM))


def drawn(encoding):
    """Parameters far from 0, so that every term matters."""
    params = encoding.init(jax.random.key(0))
    return jax.tree.map(lambda x: np.asarray(x) + RNG.standard_normal(x.shape), params)


def logits(encoding, params, q=Q, k=K, i=QUERIES, j=KEYS):
    run = jax.jit(lambda p, i, j: attention_logits(encoding, p, q, k, q_positions=i, k_positions=j))
    return np.asarray(run(params, i, j))


def content():
    return np.einsum("qhd,khd->hqk", Q, K) / WIDTH**0.5


def pairs():
    for a, i in enumerate(QUERIES.tolist()):
        for b, j in enumerate(KEYS.tolist()):
            yield a, i, b, j


# DeBERTa


def deberta_row(d, span, max_distance):
    """`make_log_bucket_position` and the clamp of Hugging Face's DeBERTa v2, with a power for log.

    The bucket is the smallest b with |d| ≤ mid·((max − 1)/mid)^((b − mid)/(mid − 1)).
    """
    mid, bucket = span // 2, abs(d)
    if max_distance is not None and bucket > mid:
        bucket = mid
        while bucket < span and abs(d) ** (mid - 1) * mid ** (bucket - mid) > mid ** (mid - 1) * (
            max_distance - 1
        ) ** (bucket - mid):
            bucket += 1
    return min(max(int(np.sign(d)) * bucket + span, 0), 2 * span - 1)


@pytest.mark.parametrize(("span", "max_distance"), [(8, 20), (6, None)])
def test_deberta_term_by_term(span, max_distance):
    """Content to content, content to position and position to content."""
    encoding = deberta(num_heads=HEADS, head_dim=WIDTH, num_buckets=span, max_distance=max_distance)
    params = drawn(encoding)
    expected = np.zeros((HEADS, 7, 9))
    for a, i, b, j in pairs():
        row = deberta_row(i - j, span, max_distance)
        for h in range(HEADS):
            q, k = Q[a, h], K[b, h]
            terms = q @ k + q @ params["key_table"][row, h] + k @ params["query_table"][row, h]
            expected[h, a, b] = terms / (3 * WIDTH) ** 0.5
    np.testing.assert_allclose(logits(encoding, params), expected, atol=1e-10)


# DAPE


def test_dape_pair_by_pair():
    """A + B + MLP([A; B]) across the heads, as the authors' `mlp2` of torch layers."""
    base = kerple(num_heads=HEADS)
    encoding = dape(base, num_heads=HEADS, hidden=3)
    params = drawn(encoding)
    A, B = content(), np.asarray(base.bias(params["base"], Q, K, QUERIES, KEYS))
    expected = A + B
    for a, _, b, _ in pairs():
        seen = np.concatenate([A[:, a, b], B[:, a, b]])
        units = seen @ params["weight_in"] + params["bias_in"]
        units = np.where(units > 0, units, 0.01 * units)
        expected[:, a, b] += units @ params["weight_out"] + params["bias_out"]
    np.testing.assert_allclose(logits(encoding, params), expected, atol=1e-10)


# Inkling


def explicit_inkling(params, r, extent):
    expected = np.zeros((HEADS, 7, 9))
    for a, i, b, j in pairs():
        for h in range(HEADS):
            if 0 <= i - j < extent:
                expected[h, a, b] = r[a, h] @ params["profiles"][:, i - j]
    return expected


def test_inkling_pair_by_pair():
    """Biases of queries at their distances, 0 outside; τ multiplies queries and biases alike."""
    encoding = inkling(num_heads=HEADS, dim=DIM, rank=3, extent=8, log_floor=4, alpha=0.5)
    params = drawn(encoding)
    r = np.einsum("nd,dhr->nhr", X, params["projection"])
    expected = content() + explicit_inkling(params, r, 8)
    tau = [1 + 0.5 * np.log(max((i + 1) / 4, 1)) for i in QUERIES.tolist()]
    expected *= np.array(tau)[:, None]

    @jax.jit
    def run(params, x, i, j):
        own, _ = encoding.context(params, x, i, Rows())
        other = jnp.zeros((9, *own.shape[1:]))
        return attention_logits(
            encoding, params, Q, K, q_positions=i, k_positions=j, q_context=own, k_context=other
        )

    np.testing.assert_allclose(run(params, X, QUERIES, KEYS), expected, atol=1e-10)


def test_inkling_looks_at_the_tokens():
    """Another query's token changes its row of biases and no other."""
    encoding = inkling(num_heads=HEADS, dim=DIM, extent=8)
    params, i = drawn(encoding), np.arange(7, dtype=np.int32)
    other = X.copy()
    other[4] += 1.0

    @jax.jit
    def bias(x):
        return encoding_at(encoding, params, x, i).bias(params, Q, Q, i, i)

    moved = np.abs(np.asarray(bias(X) - bias(other)))
    assert (moved[:, 4, :5] > 1e-6).all()
    moved[:, 4, :5] = 0
    assert not moved.any()


def test_what_makes_no_sense_is_refused():
    for call in (
        lambda: deberta(num_heads=1, head_dim=WIDTH, num_buckets=8, max_distance=5),
        lambda: dape(rope(head_dim=4), num_heads=2),
        lambda: dape(identity(), num_heads=2),
        lambda: encoding_at(inkling(num_heads=2, dim=4), {}, X, QUERIES),
    ):
        with pytest.raises(ValueError, match="pass"):
            call()
