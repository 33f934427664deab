"""LieRE, ComRoPE and mixed RoPE: matrix exponentials position by position, limits and shifts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.special

from jaxpe import attention_logits, axial_rope, rope
from jaxpe.encodings import (
    comrope,
    directional_rope,
    golden_gate_rope,
    inverse_frequencies,
    liere,
    mixed_rope,
)

HEADS, WIDTH, N = 2, 8, 5
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, HEADS, WIDTH))
GRID = RNG.integers(-3, 9, (N, 2), dtype=np.int32)


def drawn(encoding):
    return encoding.init(jax.random.key(1))


def turned(encoding, params, positions=GRID):
    return np.asarray(jax.jit(encoding.query)(params, X, positions))


def logits(encoding, params, positions):
    run = jax.jit(lambda i: attention_logits(encoding, params, X, X, q_positions=i, k_positions=i))
    return np.asarray(run(positions))


def by_exponentials(upper, positions):
    """exp(Σ_a x_a (U_a − U_aᵀ)) of every block, from SciPy; upper `[axes, heads, blocks, *]`."""
    axes, heads, blocks, _ = upper.shape
    block = WIDTH // blocks
    out = np.zeros_like(X)
    for n, place in enumerate(positions.reshape(N, axes)):
        for h in range(HEADS):
            for b in range(blocks):
                U = np.zeros((axes, block, block))
                U[:, *np.triu_indices(block, 1)] = upper[:, h % heads, b]
                A = np.einsum("a,aij->ij", place, U - U.swapaxes(1, 2))
                part = slice(b * block, (b + 1) * block)
                out[n, h, part] = scipy.linalg.expm(A) @ X[n, h, part]
    return out


@pytest.mark.parametrize(
    ("block", "axes", "heads"), [(4, 2, None), (8, 2, HEADS), (2, 2, None), (4, 1, HEADS)]
)
def test_liere_is_the_exponential_of_each_block(block, axes, heads):
    encoding = liere(head_dim=WIDTH, block=block, axes=axes, num_heads=heads, extent=10.0)
    params = drawn(encoding)
    positions = GRID if axes == 2 else GRID[:, 0]
    expected = by_exponentials(np.asarray(params["upper"]), positions / 10)
    np.testing.assert_allclose(turned(encoding, params, positions), expected, atol=1e-10)


@pytest.mark.parametrize("heads", [None, HEADS])
def test_comrope_is_the_exponential_of_multiples(heads):
    encoding = comrope(head_dim=WIDTH, block=4, num_heads=heads, extent=10.0)
    params = drawn(encoding)
    upper = params["multipliers"][:, None, :, None] * params["upper"][None]
    expected = by_exponentials(np.asarray(upper), GRID / 10)
    np.testing.assert_allclose(turned(encoding, params), expected, atol=1e-10)


def test_mixed_rope_turns_each_pair_by_the_sum_of_its_angles():
    encoding = mixed_rope(head_dim=WIDTH, num_heads=HEADS)
    params = drawn(encoding)
    angles = np.einsum("na,ahk->nhk", GRID, params["frequencies"])
    z = (X[..., ::2] + 1j * X[..., 1::2]) * np.exp(1j * angles)
    expected = np.stack([z.real, z.imag], -1).reshape(X.shape)
    np.testing.assert_allclose(turned(encoding, params), expected, atol=1e-10)
    orbit = encoding.vectors(params, GRID).reshape(X.shape)
    np.testing.assert_allclose(orbit[..., ::2], np.cos(angles), atol=1e-12)
    np.testing.assert_allclose(orbit[..., 1::2], np.sin(angles), atol=1e-12)


def test_mixed_rope_begins_with_two_directions_at_right_angles():
    """μ·[cos φ, cos(φ + π/2)] and μ·[sin φ, sin(φ + π/2)] with μ = 10^(−4k/head_dim)."""
    x, y = np.asarray(drawn(mixed_rope(head_dim=WIDTH, num_heads=3))["frequencies"])
    z = (x + 1j * y).reshape(3, 2, 2)  # head, half, k
    np.testing.assert_allclose(np.abs(z), np.broadcast_to([1.0, 10**-0.5], z.shape))
    np.testing.assert_allclose(z[:, 1] / z[:, 0], 1j, atol=1e-12)
    np.testing.assert_allclose(np.angle(z[:, 0, 0]), np.angle(z[:, 0, 1]))
    assert np.ptp(np.angle(z[:, 0, 0])) > 0.1


def test_mixed_rope_with_an_axis_a_pair_is_axial():
    own = inverse_frequencies(WIDTH // 2)
    nothing = np.zeros_like(own)
    one_head = np.array([[*own, *nothing], [*nothing, *own]])
    params = {"frequencies": np.repeat(one_head[:, None], HEADS, 1)}
    axial = axial_rope(head_dim=WIDTH, layout="interleaved")
    found = turned(mixed_rope(head_dim=WIDTH, num_heads=HEADS), params)
    np.testing.assert_allclose(found, axial.query((), X, GRID), atol=1e-12)


LINE = GRID[:, 0]
OMEGA = inverse_frequencies(WIDTH)


@pytest.mark.parametrize(
    ("encoding", "params"),
    [
        (mixed_rope(head_dim=WIDTH, num_heads=HEADS, axes=1), None),
        (liere(head_dim=WIDTH, block=2, axes=1), {"upper": -OMEGA.reshape(1, 1, -1, 1)}),
        (
            comrope(head_dim=WIDTH, block=2, axes=1),
            {"upper": -np.ones((1, WIDTH // 2, 1)), "multipliers": OMEGA[None]},
        ),
    ],
)
def test_with_one_coordinate_and_blocks_of_two_each_is_rope(encoding, params):
    params = drawn(encoding) if params is None else params
    expected = rope(head_dim=WIDTH, layout="interleaved").query((), X, LINE)
    np.testing.assert_allclose(turned(encoding, params, LINE), expected, atol=1e-12)


def test_rotations_with_and_without_float64_in_one_process():
    encoding = comrope(head_dim=WIDTH, block=4)
    for wide in (True, False):
        with jax.enable_x64(wide):
            params = drawn(encoding)
            for transform in (lambda f: f, jax.jit, jax.vmap):
                shape = (2, N) if transform is jax.vmap else (N,)
                x, i = np.ones((*shape, HEADS, WIDTH), np.float32), np.ones((*shape, 2), np.int32)
                rotate = transform(lambda x, i, params=params: encoding.query(params, x, i))
                assert rotate(x, i).shape == x.shape


def test_no_positions_are_rotated_to_none():
    encoding = comrope(head_dim=WIDTH, block=4)
    assert encoding.query(drawn(encoding), X[:0], GRID[:0]).shape == X[:0].shape


@pytest.mark.parametrize(
    ("encoding", "by_offset"),
    [
        (mixed_rope(head_dim=WIDTH, num_heads=HEADS), True),
        (comrope(head_dim=WIDTH, block=4), True),
        (liere(head_dim=WIDTH, block=2), True),
        (liere(head_dim=WIDTH, block=4), False),
    ],
)
def test_logits_depend_on_offsets_where_generators_commute(encoding, by_offset):
    params = drawn(encoding)
    here, there = (logits(encoding, params, GRID / 10 + s) for s in (np.zeros(2), [0.7, -1.1]))
    assert (np.abs(here - there).max() < 1e-10) == by_offset


def test_rotations_stay_rotations_far_out():
    """At 2³¹ the phases are wrong in float32, but no length changes."""
    encoding = liere(head_dim=WIDTH, block=4, axes=1)
    x, far = X.astype(np.float32), np.array([0, 10, 1000, 10**6, 2**31 - 1], np.int32)
    out = np.asarray(jax.jit(encoding.query)(drawn(encoding), x, far), np.float64)
    sizes = np.linalg.norm(out, axis=-1) / np.linalg.norm(X, axis=-1)
    np.testing.assert_allclose(sizes, 1, atol=2e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mixed_rope(head_dim=6, num_heads=2), "multiple of 2·axes"),
        (lambda: liere(head_dim=8, block=3), "pass a divisor"),
        (lambda: liere(head_dim=8, block=2, extent=0.0), "extent must be positive"),
        (lambda: ask(liere(head_dim=8, block=2), LINE), r"pass \[..., n, 2\]"),
        (lambda: ask(liere(head_dim=4, block=2), GRID), "pass head_dim=8"),
        (lambda: ask(mixed_rope(head_dim=8, num_heads=1), GRID), "pass num_heads=2"),
        (lambda: ask(liere(head_dim=8, block=2), GRID, X.astype(int)), "turns floats"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def ask(encoding, positions, x=X):
    return encoding.query(drawn(encoding), jnp.asarray(x), positions)


def test_golden_gate_turns_by_the_position_along_its_own_direction():
    """Against the author's published loop, with his ten steps to the golden ratio and erf⁻¹."""
    encoding = golden_gate_rope(
        head_dim=WIDTH, num_heads=HEADS, min_frequency=0.1, max_frequency=2.0, zero_share=0.25
    )
    g = 2.0
    for _ in range(10):
        g = (1 + g) ** (1 / 3)
    z = np.arange(1, HEADS * WIDTH // 2 + 1)[:, None] * (1 / g) ** np.arange(1, 3) % 1
    directions = scipy.special.erfinv(2 * z - 1)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    omega = np.array([0.0, 0.1, 0.1 * 20**0.5, 2.0])
    angles = np.einsum("na,hka->nhk", GRID, directions.reshape(HEADS, -1, 2) * omega[:, None])
    z = (X[..., : WIDTH // 2] + 1j * X[..., WIDTH // 2 :]) * np.exp(1j * angles)
    expected = np.concatenate([z.real, z.imag], axis=-1)
    np.testing.assert_allclose(turned(encoding, ()), expected, atol=1e-4)  # ten steps
    here, there = (logits(encoding, (), GRID / 10 + s) for s in (np.zeros(2), [0.7, -1.1]))
    np.testing.assert_allclose(here, there, atol=1e-10)


def test_headings_have_the_period_of_a_turn():
    """DRoPE: qᵀR(β − α)k, so whole turns of either agent change nothing, unlike in RoPE."""
    heading = np.linspace(-3.0, 9.0, N)
    turns = 2 * np.pi * np.arange(N)
    for encoding, periodic in ((directional_rope(head_dim=WIDTH), True), (rope(head_dim=8), False)):
        change = turned(encoding, (), heading + turns) - turned(encoding, (), heading)
        assert (np.abs(change).max() < 1e-9) == periodic
    q, k = (y[..., : WIDTH // 2] + 1j * y[..., WIDTH // 2 :] for y in (X, X[::-1]))
    phase = np.exp(1j * (heading[:, None] - heading[None]))
    expected = (np.einsum("ihd,jhd->hij", q, k.conj()) * phase).real / WIDTH**0.5
    where = {"q_positions": heading, "k_positions": heading}
    found = attention_logits(directional_rope(head_dim=WIDTH), (), X, X[::-1], **where)
    np.testing.assert_allclose(found, expected, atol=1e-12)
