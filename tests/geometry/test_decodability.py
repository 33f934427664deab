"""The linear probe for positions: least squares, what leaves it alone, degenerate hidden states."""

import jax
import numpy as np
import pytest

from jaxpe.geometry import position_decodability

RNG = np.random.default_rng(0)
ROWS, N, D = 8, 10, 4
NOISE = RNG.standard_normal((ROWS, N, D))
HIDDEN = NOISE + 0.3 * np.arange(N)[None, :, None] * np.array([1.0, -1.0, 0.0, 2.0])
MASK = RNG.random((ROWS, N)) < 0.7
ROTATION = np.linalg.qr(RNG.standard_normal((D, D)))[0]
EVERYWHERE = np.ones((ROWS, N), bool)


@jax.jit
def probe(x, mask):
    return tuple(position_decodability(x, mask=mask)[:2])


def from_middles(mask):
    """Positions from the mean of those in their row that count, and these means."""
    t = np.broadcast_to(np.arange(mask.shape[1]), mask.shape)
    middles = np.ma.masked_array(t, ~mask).mean(axis=1).data[:, None] + 0 * t
    return t - middles, middles


def by_lstsq(hidden, mask, *, ridge=0.0):
    """Least squares of standardised entries with the penalty as more rows.

    Entries are what least squares on the middles of the rows leaves of them.
    """
    t, middles = from_middles(mask)
    (x, y, m), (x_new, y_new, m_new) = (
        [z[k::2][mask[k::2]] for z in (hidden, t, middles)] for k in (0, 1)
    )
    slope = np.linalg.lstsq(np.stack([0 * y + 1, m], 1), x, rcond=None)[0][1]
    x, x_new = x - m[:, None] * slope, x_new - m_new[:, None] * slope
    more = np.sqrt(ridge * len(x)) * np.eye(hidden.shape[2])
    A = np.concatenate([(x - x.mean(0)) / x.std(0), more])
    slopes = np.linalg.lstsq(A, np.r_[y, np.zeros(hidden.shape[2])], rcond=None)[0]
    missed = y_new - (x_new - x.mean(0)) / x.std(0) @ slopes
    return 1 - (missed**2).sum() / (y_new**2).sum(), np.abs(missed).mean()


@pytest.mark.parametrize("ridge", [1e-12, 0.5])
def test_it_is_ridge_regression(ridge):
    find = jax.jit(lambda x, mask: position_decodability(x, mask=mask, ridge=ridge))
    for mask in (EVERYWHERE, MASK):
        found = find(HIDDEN, mask)
        np.testing.assert_allclose(found[:2], by_lstsq(HIDDEN, mask, ridge=ridge), rtol=1e-9)
        assert 0.3 < found.r2 < 0.99
        missed, spread = np.asarray(found.missed), np.asarray(found.spread)
        np.testing.assert_allclose(1 - missed.sum() / spread.sum(), found.r2, rtol=1e-12)
        places = from_middles(mask)[0][1::2]
        np.testing.assert_allclose(spread, (places**2 * mask[1::2]).sum(axis=1))


def test_shifts_scales_and_what_is_masked_leave_it_alone():
    expected = probe(HIDDEN, MASK)
    moved = HIDDEN * [1e-3, 1.0, 1e3, 1e9] + np.array([3.0, -1.0, 0.5, 9.0])
    np.testing.assert_allclose(probe(moved, MASK), expected, rtol=1e-9)
    # A rotation matters as far as the ridge does.
    np.testing.assert_allclose(probe(HIDDEN @ ROTATION, MASK), expected, rtol=1e-6)
    other = np.where(MASK[..., None], HIDDEN, np.nan)
    np.testing.assert_array_equal(probe(other, MASK), expected)
    assert np.isnan(probe(other, EVERYWHERE)).all()


def test_float32_keeps_digits_and_exponents():
    expected = probe(HIDDEN, MASK)
    for scale in (1e-30, 1e-21, 1e18, 1e30):
        scaled = (scale * HIDDEN).astype(np.float32)
        np.testing.assert_allclose(probe(scaled, MASK), expected, rtol=1e-4)
    # Whole numbers up to 2²⁴ are exact, and so are their differences, but not their quotients.
    small = np.round(8 * HIDDEN).astype(np.float32)
    mask = np.broadcast_to((np.arange(N) > 0) & (np.arange(N) < N - 1), (ROWS, N))
    np.testing.assert_allclose(probe(small + 2.0**22, mask), probe(small, mask), rtol=1e-4)
    # Rank 4 of 12: in float32 too the ridge decides, not rounding.
    twice = np.concatenate([HIDDEN, HIDDEN @ ROTATION, -HIDDEN], axis=-1)
    np.testing.assert_allclose(probe(twice, MASK), expected, rtol=1e-5)
    np.testing.assert_allclose(probe(twice.astype(np.float32), MASK), expected, rtol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_positions_far_below_the_noise_beside_them(dtype):
    """In one direction of 16, rotated: its slope is shrunk by s²/(s² + ridge).

    Entries have variance 15/16, as that direction takes none.
    """
    rng = np.random.default_rng(3)
    hidden = rng.standard_normal((200, N, 16))
    turn = np.linalg.qr(rng.standard_normal((16, 16)))[0]
    for size in (0.02, 2e-3, 2e-4):
        hidden[..., 5] = size * np.arange(N) / (N - 1)
        slope = 1 / (1 + 1e-8 * 15 / 16 * 12 * (N - 1) / (N + 1) / size**2)
        r2, _ = probe((hidden @ turn).astype(dtype), np.ones((200, N), bool))
        np.testing.assert_allclose(r2, 1 - (1 - slope) ** 2, atol=0.01)


def test_a_position_in_a_row_is_read_exactly():
    hidden = NOISE.copy()
    hidden[..., 2] = np.arange(N)
    np.testing.assert_allclose(probe(hidden, EVERYWHERE), [1, 0], atol=1e-3)


def rows_of_topics(seed, rows=64, n=40):
    """States of a topic alone, one of two, and the mask of rows whose length goes with it."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, 2, rows)
    lengths = np.where(topic == 1, rng.integers(30, n + 1, rows), rng.integers(5, 15, rows))
    states = topic[:, None, None] + rng.standard_normal((rows, n, 8))
    return states, np.arange(n) < lengths[:, None]


def test_a_topic_with_longer_rows_is_no_position():
    states, masks = map(np.stack, zip(*map(rows_of_topics, range(20)), strict=True))
    many = jax.jit(jax.vmap(lambda x, mask: position_decodability(x, mask=mask).r2))
    assert abs(many(states, masks).mean()) < 0.03  # 0.12 where positions count from the start
    clock = np.arange(states.shape[2])[:, None]
    np.testing.assert_allclose(many(states + 100 * clock, masks), 1, atol=1e-5)
    shuffled = np.random.default_rng(0).permuted(np.broadcast_to(clock, states.shape), axis=2)
    assert many(states + shuffled, masks).mean() < 0.03


def test_a_probe_is_judged_on_other_rows():
    """Noise tells nothing of rows unseen, and a probe with many directions does harm there."""
    noise = np.random.default_rng(1).standard_normal((400, N, D))
    assert abs(probe(noise, np.ones((400, N), bool))[0]) < 0.02
    wide = np.random.default_rng(2).standard_normal((2, N, 20))
    assert probe(wide, EVERYWHERE[:2])[0] < -0.1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_states_that_are_all_alike_and_nothing_that_counts_tell_nothing(dtype):
    for value in (0.0, 0.1, 1e6):
        found = probe(np.full((ROWS, N, D), value, dtype), EVERYWHERE)
        np.testing.assert_allclose(found, [0, (N / 2) / 2], atol=1e-6)
        assert found[0].dtype == dtype
    np.testing.assert_array_equal(probe(NOISE[:, :1].astype(dtype), EVERYWHERE[:, :1]), [0, 0])
    halves = np.arange(ROWS)[:, None] % 2 + 0 * EVERYWHERE > 0
    assert probe(HIDDEN.astype(dtype), halves)[0] <= 0  # nothing to fit to
    for nothing in (~EVERYWHERE, ~halves):
        np.testing.assert_array_equal(probe(HIDDEN.astype(dtype), nothing), [0, 0])
    with pytest.raises(ValueError, match="two"):
        position_decodability(HIDDEN[:1])
    with pytest.raises(ValueError, match="ridge"):
        position_decodability(HIDDEN, ridge=1e-18)


def test_gradients_are_finite_where_nothing_is_told_and_0_where_nothing_counts():
    slope = jax.jit(jax.grad(lambda x, mask: position_decodability(x, mask=mask).r2))
    assert np.isfinite(slope(np.zeros((ROWS, N, D)), EVERYWHERE)).all()
    found = slope(np.where(MASK[..., None], HIDDEN, np.nan), MASK)
    assert np.isfinite(found).all()
    assert not np.any(found[~MASK])
