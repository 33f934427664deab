"""Where attention goes: laws of each measure, degenerate rows, derivatives."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxpe import spectral
from jaxpe.encodings import attention_weights
from jaxpe.spectral import (
    attention_distance,
    attention_entropy,
    attention_evenness,
    attention_profile,
    first_share,
    near_share,
)

N, HEADS = 6, 2
CAUSAL = np.tri(N, dtype=bool)
LOGITS = 2 * np.random.default_rng(0).standard_normal((3, HEADS, N, N))
WEIGHTS = np.where(CAUSAL, np.exp(LOGITS), 0)
WEIGHTS /= WEIGHTS.sum(axis=-1, keepdims=True)
PROFILE = jax.jit(attention_profile, static_argnames="window")


def by_definition(a, allowed, i, j, window):
    """All measures of one row of weights."""
    entropy = -sum(x * np.log(x) for x in a if x > 0)
    evenness = entropy / np.log(allowed) if allowed > 1 else 0
    far = [abs(i - k) for k in j]
    distance = sum(x * d for x, d in zip(a, far, strict=True))
    near = sum(x for x, d in zip(a, far, strict=True) if d <= window)
    return entropy, evenness, distance, near, a[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_profile_is_its_definition(dtype):
    weights = WEIGHTS.astype(dtype)
    profile = PROFILE(weights, window=2, mask=CAUSAL)
    assert all(field.dtype == dtype for field in profile)
    stacked = np.stack(profile, axis=-1)
    for at in np.ndindex(3, HEADS, N):
        expected = by_definition(WEIGHTS[at], at[-1] + 1, at[-1], range(N), 2)
        np.testing.assert_allclose(stacked[at], expected, rtol=2e-6, atol=1e-6)
    mapped = jax.vmap(lambda a: attention_profile(a, window=2, mask=CAUSAL))(weights)
    for one, other in zip(mapped, profile, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_even_causal_weights():
    """log t keys, half of the way back, a share of w + 1 of t, and of one."""
    t = np.arange(1, N + 1)
    even = np.broadcast_to(CAUSAL / t[:, None], (1, N, N))
    profile = PROFILE(even, window=2, mask=CAUSAL)
    np.testing.assert_allclose(profile.entropy[0], np.log(t), atol=1e-15)
    np.testing.assert_allclose(profile.evenness[0], t > 1)
    np.testing.assert_allclose(profile.distance[0], (t - 1) / 2, atol=1e-14)
    np.testing.assert_allclose(profile.near[0], np.minimum(t, 3) / t)
    np.testing.assert_allclose(profile.first[0], 1 / t)
    whole = attention_evenness(np.full((1, N, N), 1 / N))
    np.testing.assert_allclose(whole, 1)
    assert (attention_evenness(even)[0, :-1] < 1).all()  # of keys that the mask does not allow


def test_one_key_and_none():
    """All on the key one before: no entropy, distance 1; a masked row is 0 in everything."""
    back = np.eye(N, k=-1)[None]
    profile = PROFILE(back, window=0, mask=CAUSAL)
    np.testing.assert_array_equal(profile.entropy, 0)
    np.testing.assert_array_equal(profile.evenness, 0)
    np.testing.assert_array_equal(profile.distance[0], [0] + [1] * (N - 1))
    np.testing.assert_array_equal(profile.near, 0)
    np.testing.assert_array_equal(near_share(back, window=1)[0], [0] + [1] * (N - 1))
    np.testing.assert_array_equal(profile.first[0], [0, 1] + [0] * (N - 2))
    nothing = PROFILE(np.zeros((1, N, N)), window=2, mask=np.zeros((N, N), bool))
    assert not np.any(nothing)


def test_orders_of_keys_and_shifts_of_positions():
    """Entropy does not see where keys are; distances see offsets alone."""
    order = np.random.default_rng(1).permutation(N)
    shuffled = WEIGHTS[..., order]
    whole = attention_entropy(WEIGHTS)
    np.testing.assert_allclose(attention_entropy(shuffled), whole, atol=1e-14)
    where = {"q_positions": np.arange(N), "k_positions": order}
    expected = PROFILE(WEIGHTS, window=1)
    far = {name: x + np.int64(2**30) for name, x in where.items()}  # no float32 holds these
    for own in (where, far):
        moved = PROFILE(shuffled.astype(np.float32), window=1, **own)
        np.testing.assert_allclose(moved.distance, expected.distance, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(moved.near, expected.near, rtol=1e-5, atol=1e-6)


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


def test_shares_grow_with_what_they_are_of():
    widths = [near_share(WEIGHTS, window=w) for w in range(N)]
    assert (np.diff(widths, axis=0) >= 0).all()
    np.testing.assert_allclose(widths[-1], 1)
    np.testing.assert_allclose(widths[0], np.diagonal(WEIGHTS, axis1=-2, axis2=-1))
    np.testing.assert_allclose(first_share(WEIGHTS, keys=N), 1)
    np.testing.assert_allclose(first_share(WEIGHTS, keys=2), WEIGHTS[..., :2].sum(-1))


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
    assert np.exp(-2000.0) == 0
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(measures(x) ** 2)))(extreme)
    assert np.isfinite(gradient).all()
    assert not np.any(gradient[:, :, 2])


def test_weights_too_small_for_a_logarithm_count_as_nothing():
    tiny = np.array([[[1e-40, 1.0]]], np.float32)
    assert tiny[0, 0, 0] > 0
    assert attention_entropy(tiny) == 0
    assert np.isfinite(jax.grad(lambda a: attention_entropy(a).sum())(tiny)).all()


def test_a_weight_of_nan_is_not_taken_for_nothing():
    weights = np.array([[[np.nan, 0.5], [0.0, 1.0]]])
    np.testing.assert_array_equal(np.isnan(attention_entropy(weights)), [[True, False]])
    assert np.isnan(attention_evenness(weights)[0, 0])


def test_half_precision_is_summed_in_float32():
    n = 300
    even = np.full((1, 1, n), 2.0**-9).astype(jnp.bfloat16)  # exact; a bfloat16 sum ends at 1/2
    assert first_share(even, keys=n).dtype == np.float32
    np.testing.assert_allclose(first_share(even, keys=n), n / 512)
    np.testing.assert_allclose(attention_entropy(even), n / 512 * np.log(512), rtol=1e-6)


def test_what_is_refused():
    one = {"q_positions": np.arange(1)}
    cases = [
        (attention_entropy, (np.eye(N),), {}, r"weights have shape \(6, 6\): pass \[..., heads"),
        (attention_evenness, (WEIGHTS, np.eye(N)), {}, "mask is float64, not boolean"),
        (attention_evenness, (WEIGHTS, CAUSAL[:2]), {}, r"mask has shape \(2, 6\), which does not"),
        (attention_distance, (WEIGHTS[..., :1, :],), {}, "1 queries attend to 6 keys: pass q_pos"),
        (attention_distance, (WEIGHTS,), one, r"q_positions have shape \(1,\): pass .* n = 6"),
        (near_share, (WEIGHTS,), {"window": -1}, "window is -1: pass 0"),
        (first_share, (WEIGHTS,), {"keys": 0}, "keys is 0, but the weights have 6: pass 1 to"),
        (first_share, (WEIGHTS,), {"keys": 7}, "keys is 7"),
    ]
    for function, arguments, options, message in cases:
        with pytest.raises(ValueError, match=message):
            inspect.unwrap(function)(*arguments, **options)


def test_the_function_is_not_hidden_by_its_module():
    assert callable(spectral.attention_profile)
