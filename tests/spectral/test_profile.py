"""Where attention goes: laws of each measure, degenerate rows, derivatives."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxpe.encodings import attention_weights
from jaxpe.spectral import attention_profile
from jaxpe.spectral.profile import (
    attention_distance,
    attention_entropy,
    attention_evenness,
    first_share,
    near_share,
)

N, HEADS = 6, 2
CAUSAL = np.tri(N, dtype=bool)
LOGITS = 2 * np.random.default_rng(0).standard_normal((3, HEADS, N, N))
WEIGHTS = np.where(CAUSAL, np.exp(LOGITS), 0)
WEIGHTS /= WEIGHTS.sum(axis=-1, keepdims=True)


def by_definition(a, allowed, i, j, window):
    """All measures of one row of weights."""
    entropy = -sum(x * np.log(x) for x in a if x > 0)
    evenness = entropy / np.log(allowed) if allowed > 1 else 0
    far = [abs(i - k) for k in j]
    distance = sum(x * d for x, d in zip(a, far, strict=True))
    near = sum(x for x, d in zip(a, far, strict=True) if d <= window)
    return entropy, evenness, distance, near, a[0]


def test_a_profile_is_its_definition():
    """With integers beyond the float32 ones as positions, in an order of their own for keys."""
    order = np.random.default_rng(1).permutation(N)
    far = {"q_positions": np.arange(N) + 2**30, "k_positions": order + 2**30}
    for weights, places, where in ((WEIGHTS, range(N), {}), (WEIGHTS[..., order], order, far)):
        mask = CAUSAL[:, order] if where else CAUSAL
        for dtype in (np.float32, np.float64):
            profile = attention_profile(weights.astype(dtype), window=2, mask=mask, **where)
            assert all(field.dtype == dtype for field in profile)
            stacked = np.stack(profile, axis=-1)
            for at in np.ndindex(3, HEADS, N):
                expected = by_definition(weights[at], at[-1] + 1, at[-1], places, 2)
                np.testing.assert_allclose(stacked[at], expected, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(first_share(WEIGHTS, keys=2), WEIGHTS[..., :2].sum(-1))
    near = near_share(WEIGHTS, window=0)
    np.testing.assert_allclose(near, np.diagonal(WEIGHTS, axis1=-2, axis2=-1))


def test_one_key_and_none():
    """All on the key one before: no entropy, distance 1; a masked row is 0 in everything."""
    back = np.tile(np.eye(N, k=-1), (3, HEADS, 1, 1))
    profile = attention_profile(back, window=2, mask=CAUSAL)
    assert not np.any(profile.entropy)
    assert not np.any(profile.evenness)
    np.testing.assert_array_equal(profile.distance[0, 0], [0] + [1] * (N - 1))
    np.testing.assert_array_equal(profile.first[0, 0], [0, 1] + [0] * (N - 2))
    assert not np.any(near_share(back, window=0))
    assert not np.any(attention_profile(0 * back, window=2, mask=CAUSAL & False))
    even = attention_profile(CAUSAL / np.arange(1, N + 1)[:, None] + 0 * back, window=2)
    assert (even.evenness[..., :-1] < 1).all()  # of keys that the mask does not allow


def test_positions_of_every_document_and_of_cached_keys():
    """`[documents, n]` beside `[layers, documents, heads, n, n]`; the last query alone."""
    stretch = np.array([1.0, 2.0, 0.5])
    positions = np.arange(N) * stretch[:, None]
    layers = np.stack([WEIGHTS, WEIGHTS])
    plain = attention_distance(WEIGHTS)
    found = attention_distance(layers, q_positions=positions, k_positions=positions)
    np.testing.assert_allclose(found, np.stack([plain * stretch[:, None, None]] * 2))
    where = {"q_positions": np.array([N - 1]), "k_positions": np.arange(N, dtype=float)}
    last = attention_distance(WEIGHTS[..., -1:, :], **where)
    np.testing.assert_allclose(last[..., 0], plain[..., -1])


def test_derivatives_through_the_softmax():
    """Finite where keys are masked, also a whole row, and where a weight underflows to 0."""
    mask = CAUSAL.copy()
    mask[2] = False

    @jax.jit
    def measures(logits):
        weights = attention_weights(logits, mask)
        return jnp.stack(attention_profile(weights, window=1, mask=mask))

    check_grads(measures, (LOGITS,), order=1, modes=["rev"])
    extreme = LOGITS.copy()
    extreme[..., 0] = -2000
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(measures(x) ** 2)))(extreme)
    assert np.isfinite(gradient).all()
    assert not np.any(gradient[:, :, 2])


def test_weights_too_small_for_a_logarithm_and_of_nan():
    tiny = np.array([[[1e-40, 1.0]]], np.float32)
    assert attention_entropy(tiny) == 0
    assert np.isfinite(jax.grad(lambda a: attention_entropy(a).sum())(tiny)).all()
    weights = np.array([[[np.nan, 0.5]]], np.float32)
    assert np.isnan(attention_entropy(weights)[0, 0])
    assert np.isnan(attention_evenness(weights)[0, 0])


def test_half_precision_is_summed_in_float32():
    n = 300
    even = np.full((1, 1, n), 2.0**-9).astype(jnp.bfloat16)  # exact; a bfloat16 sum ends at 1/2
    np.testing.assert_allclose(first_share(even, keys=n), n / 512)
    np.testing.assert_allclose(attention_entropy(even), n / 512 * np.log(512), rtol=1e-6)


def test_what_is_refused():
    one = {"q_positions": np.arange(1)}
    cases = [
        (attention_entropy, (np.eye(N),), {}, "heads"),
        (attention_evenness, (WEIGHTS, np.eye(N)), {}, "mask"),
        (attention_evenness, (WEIGHTS, CAUSAL[:2]), {}, "mask"),
        (attention_distance, (WEIGHTS[..., :1, :],), {}, "q_positions"),
        (attention_distance, (WEIGHTS,), one, "q_positions"),
    ]
    for function, arguments, options, message in cases:
        with pytest.raises(ValueError, match=message):
            inspect.unwrap(function)(*arguments, **options)
