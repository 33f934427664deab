"""Spectra at their edges; Schur's bounds; what phases contract, and what they do not."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from jaxpe.spectral import (
    amplitude,
    contraction_ratio,
    phase_mixing,
    schur_bounds,
    spectrum,
    symbol,
    symmetric_part,
    toeplitz_matrix,
)

RNG = np.random.default_rng(0)
N = 6
L = RNG.standard_normal((N, N))
OFFSETS = np.arange(N)[:, None] - np.arange(N)[None, :]
KINDS = ("eigenvalues", "singular")
SPECTRUM = jax.jit(spectrum, static_argnames="kind")
BOUNDS, RATIO = jax.jit(schur_bounds), jax.jit(contraction_ratio)
MIXING, AMPLITUDE, SYMBOL = jax.jit(phase_mixing), jax.jit(amplitude), jax.jit(symbol)


def gram(seed, *, imaginary=False, n=N):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 4)) + (1j * rng.standard_normal((n, 4)) if imaginary else 0)
    return x @ x.conj().T


def turn(theta):
    return np.exp(1j * OFFSETS * theta)


def by_definition(values):
    v = np.abs(values)
    p = v / v.sum()
    p = p[p > 1e-14]
    frobenius = np.sqrt(np.sum(v**2))
    return (
        np.exp(-np.sum(p * np.log(p))),
        (frobenius / v.max()) ** 2,
        v.max() / v.min(),
        (values.max() - values.min()) / frobenius,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_spectrum_is_its_definition(kind):
    many = np.stack([L, L.T @ L, 0.1 + L])
    result = SPECTRUM(many, kind=kind)
    for k, A in enumerate(many):
        values = (
            np.linalg.svd(A, compute_uv=False)
            if kind == "singular"
            else np.linalg.eigvalsh(A + A.T)[::-1] / 2
        )
        np.testing.assert_allclose(result.values[k], values, atol=1e-13)
        for field, expected in zip(result[1:], by_definition(values), strict=True):
            np.testing.assert_allclose(field[k], expected, rtol=1e-9)
    mapped = jax.vmap(lambda A: SPECTRUM(A, kind=kind))(many)
    np.testing.assert_allclose(mapped.effective_rank, result.effective_rank)


@pytest.mark.parametrize("kind", KINDS)
def test_shape_does_not_depend_on_size_and_has_its_bounds(kind):
    one = SPECTRUM(L, kind=kind)
    for factor in (1e-200, 1e200, -3.0):  # squares would leave the range of float64
        scaled = SPECTRUM(factor * L, kind=kind)
        np.testing.assert_allclose(scaled[1:], one[1:])
    assert 1 <= one.stable_rank <= N
    assert 1 <= one.effective_rank <= N
    assert 0 < one.range <= np.sqrt(2)
    narrow = SPECTRUM(L.astype(np.float32), kind=kind)
    assert narrow.effective_rank.dtype == np.float32
    np.testing.assert_allclose(narrow[1:], one[1:], rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_degenerate_matrices_are_defined(kind, dtype):
    zero, identity = np.zeros((N, N), dtype), 3 * np.eye(N, dtype=dtype)
    flat = SPECTRUM(zero, kind=kind)
    assert [x.item() for x in flat[1:]] == [0, 0, np.inf, 0]
    one = SPECTRUM(identity, kind=kind)
    np.testing.assert_allclose(one[1:], [N, N, 1, 0], rtol=1e-5)
    line = SPECTRUM(np.outer(x := np.arange(1.0, N + 1), x).astype(dtype), kind=kind)
    np.testing.assert_allclose(line[1:], [1, 1, np.inf, 1], rtol=1e-5)
    for A in (zero, identity):
        gradient = jax.grad(lambda A: SPECTRUM(A, kind=kind).effective_rank)(A)
        np.testing.assert_allclose(gradient, 0, atol=1e-5)


def test_r_equal_values_have_the_effective_rank_r():
    Q = np.linalg.qr(L)[0]
    projection = Q[:, :3] @ Q[:, :3].T
    for kind in KINDS:
        np.testing.assert_allclose(SPECTRUM(projection, kind=kind)[1:3], [3, 3])


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_of_a_spectrum(kind):
    pick = jax.jit(lambda A: jnp.stack(spectrum(A, kind=kind)[1:]))
    check_grads(pick, (L,), order=1, rtol=1e-5)
    check_grads(pick, (L.T @ L + np.eye(N),), order=1, rtol=1e-5)
    Q = np.linalg.qr(L)[0]
    repeated = (Q * np.array([3.0, 3.0, 2.0, 2.0, 2.0, 1.0])) @ Q.T
    check_grads(lambda A: pick(A)[0], (repeated,), order=1, rtol=1e-5)


def test_causal_logits_have_only_their_diagonal_as_eigenvalues():
    """So symmetric part and singular values are what is looked at; the masked are left out."""
    causal = np.tri(N, dtype=bool)
    seen = np.where(causal, L, -np.inf)
    low = np.tril(L)
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(low)), np.sort(np.diag(L)))
    for kind in KINDS:
        masked, plain = SPECTRUM(seen, kind=kind, mask=causal), SPECTRUM(low, kind=kind)
        np.testing.assert_allclose(masked.values, plain.values)
        assert masked.range > 0
    # A shift, all below the diagonal: eigenvalues 0, but it moves every token.
    shift = np.eye(N, k=-1)
    np.testing.assert_allclose(SPECTRUM(shift, kind="singular").values, [1] * (N - 1) + [0])
    assert SPECTRUM(shift).values.max() > 0.9


def check_schur(W, E):
    bounds = BOUNDS(W, E)
    assert bounds.hypotheses
    assert bounds.holds
    values = np.linalg.eigvalsh(np.asarray(W * E))
    diagonal, own = np.diag(E).real, np.linalg.eigvalsh(W)
    size = np.abs(own).max() * diagonal.max()
    np.testing.assert_allclose(bounds.values, values[::-1], atol=1e-12 * size)
    np.testing.assert_allclose(bounds.lower, diagonal.min() * own[0], atol=1e-12 * size)
    np.testing.assert_allclose(bounds.upper, diagonal.max() * own[-1], atol=1e-12 * size)
    assert bounds.lower_slack >= -1e-12 * size
    assert bounds.upper_slack >= -1e-12 * size
    return bounds


@settings(max_examples=30, deadline=None, database=None, derandomize=True)
@given(seed=st.integers(0, 2**31), imaginary=st.booleans())
def test_schurs_bounds_hold_for_positive_matrices(seed, imaginary):
    W, E = gram(seed, imaginary=imaginary), gram(seed + 1, imaginary=imaginary)
    check_schur(W + 0.1 * np.eye(N), E)


def test_phases_are_a_rank_one_matrix_with_unit_diagonal():
    W = gram(3, imaginary=True) + 0.1 * np.eye(N)
    bounds = check_schur(W, turn(0.7))
    np.testing.assert_allclose(np.diag(turn(0.7)), 1)
    assert np.linalg.matrix_rank(turn(0.7)) == 1
    np.testing.assert_allclose([bounds.lower_slack, bounds.upper_slack], 0, atol=1e-12)


def test_hypotheses_that_fail_are_told():
    W, E = gram(1), turn(0.3).real
    assert not BOUNDS(symmetric_part(L), E).hypotheses  # indefinite
    assert not BOUNDS(W, symmetric_part(L)).hypotheses
    turning = np.triu(np.ones((N, N)), 1)
    assert not BOUNDS(W + turning - turning.T, E).hypotheses  # not symmetric, of positive xᵀWx
    assert BOUNDS(W, E).hypotheses
    assert BOUNDS(W.astype(np.float32), E.astype(np.float32)).hypotheses
    # Without them the bound may fail: E = −W° makes the product negative.
    wrong = BOUNDS(W, -np.eye(N))
    assert not wrong.holds
    assert wrong.smallest_e == -1
    zero = BOUNDS(np.zeros((N, N)), E)
    assert zero.hypotheses
    assert zero.holds


def test_bounds_of_many_frequencies_at_once():
    """E of every pair `[pairs, n, n]` against W of every head `[heads, 1, n, n]`; a real W too."""
    E = np.stack([turn(theta) for theta in (0.1, 1.0)])
    W = np.stack([gram(5), gram(6)])[:, None]
    bounds = BOUNDS(W, E)
    assert bounds.values.shape == (2, 2, N)
    assert bounds.holds.all()
    one = BOUNDS(W[1, 0], E[0])
    np.testing.assert_allclose(bounds.upper_slack[1, 0], one.upper_slack, atol=1e-12)
    mapped = jax.vmap(schur_bounds, in_axes=(None, 0))(W[0, 0], E)
    np.testing.assert_allclose(mapped.values, bounds.values[0], atol=1e-12)
    slack = jax.jit(lambda W: schur_bounds(W, E[0].real).upper_slack)
    check_grads(slack, (symmetric_part(L),), order=1)


def test_the_phases_of_one_frequency_contract_nothing():
    """W ∘ E = D W D* is a unitary similarity: all spectra are those of W."""
    W = gram(7, imaginary=True)
    np.testing.assert_allclose(RATIO(W, turn(0.9)), 1)
    any_at_all = L + 1j * RNG.standard_normal((N, N))
    for kind in KINDS[1:]:
        before, after = (SPECTRUM(A, kind=kind).values for A in (any_at_all, any_at_all * turn(2)))
        np.testing.assert_allclose(after, before)


@settings(max_examples=30, deadline=None, database=None, derandomize=True)
@given(seed=st.integers(0, 2**31), theta=st.floats(0, 3.2))
def test_the_cosine_of_one_frequency_contracts_real_matrices(seed, theta):
    A = np.random.default_rng(seed).standard_normal((N, N))
    W = A + A.T  # indefinite
    assert RATIO(W, turn(theta).real) <= 1 + 1e-12
    pair = np.stack([A, A * turn(theta).real])
    before, after = np.asarray(SPECTRUM(pair, kind="singular").values)
    assert (np.cumsum(after) <= np.cumsum(before) + 1e-12).all()  # every Ky Fan norm


def test_a_sum_over_frequencies_may_spread_what_was_flat():
    """Σ W_p = I has the range 0; Σ W_p ∘ E_p has not, though each term stays within its bounds."""
    W = np.array([[[1.0, 1.0], [1.0, 1.0]], [[1.0, -1.0], [-1.0, 1.0]]]) / 2
    E = np.stack([np.exp(1j * theta * OFFSETS[:2, :2]) for theta in (0.1, 1.5)])
    assert schur_bounds(W, E).holds.all()
    np.testing.assert_allclose(W.sum(0), np.eye(2))
    turned = (W * E.real).sum(0)
    assert spectrum(turned).range > 0.4


def test_turned_logits_may_be_large_where_those_without_positions_vanish():
    q, k = np.ones(N), 1j * np.ones(N)  # every pair of a key a quarter turn ahead
    W = np.outer(q, k.conj())
    np.testing.assert_array_equal(W.real, 0)
    assert SPECTRUM((W * turn(0.7)).real, kind="singular").values[0] > 1


def test_ratio_where_there_is_nothing_to_contract():
    E = turn(0.4).real
    assert RATIO(2 * np.eye(N), E) == 1
    assert RATIO(np.zeros((N, N)), E) == 1
    assert RATIO(np.eye(N), np.diag(np.arange(1.0, N + 1))) == np.inf
    np.testing.assert_allclose(RATIO(gram(2), np.ones((N, N))), 1)
    gradient = jax.grad(lambda W: RATIO(W, E))(2 * np.eye(N))
    assert np.isfinite(gradient).all()
    check_grads(lambda W: RATIO(W, E), (gram(8) + np.diag(np.arange(N)),), order=1)
    assert RATIO(gram(2).astype(np.float32), E.astype(np.float32)).dtype == np.float32
    many = RATIO(np.stack([gram(2), gram(3)]), E)
    np.testing.assert_allclose(many[1], RATIO(gram(3), E))


T = RNG.standard_normal(9)
T = T + T[::-1]


def test_mixing_phases_averages_two_shifted_symbols():
    theta, omega = 0.6, RNG.uniform(-3, 3, 11)
    mixed = MIXING(T, theta)
    shifted = [SYMBOL(T, omega + sign * theta) for sign in (1, -1)]
    np.testing.assert_allclose(SYMBOL(mixed, omega), np.mean(shifted, axis=0), atol=1e-12)
    M = np.asarray(toeplitz_matrix(T, n=N))
    np.testing.assert_allclose(toeplitz_matrix(mixed, n=N), M * turn(theta).real, atol=1e-13)


def test_mixing_phases_never_raises_the_amplitude():
    """Lemma B.1; to half a percent, which the grid may miss, or exactly where θ is on the grid."""
    before = AMPLITUDE(T)
    thetas = np.linspace(0, np.pi, 40)
    mixed = jax.jit(jax.vmap(phase_mixing, in_axes=(None, 0)))(T, thetas)
    ratios = np.asarray(AMPLITUDE(mixed) / before)
    assert ratios.max() <= 1 / np.cos(np.pi / 32)
    assert ratios.min() < 0.8
    on_grid = 2 * np.pi * np.arange(0, 144, 7) / 144
    mixed = jax.jit(jax.vmap(phase_mixing, in_axes=(None, 0)))(T, on_grid)
    assert (np.asarray(AMPLITUDE(mixed)) <= before * (1 + 1e-12)).all()


def test_amplitude_holds_the_spectra_of_sections():
    """And is what their range tends to, from below."""
    ranges = [np.ptp(np.linalg.eigvalsh(np.asarray(toeplitz_matrix(T, n=n)))) for n in (5, 40)]
    assert ranges[0] < ranges[1] <= AMPLITUDE(T) / np.cos(np.pi / 32)
    assert ranges[1] > 0.95 * AMPLITUDE(T)
    coarse = amplitude(T, samples=18)  # m = 18 > 2K = 8
    assert coarse <= amplitude(T, samples=4000) <= coarse / np.cos(np.pi * 4 / 18)
    np.testing.assert_allclose(AMPLITUDE(np.array([0.0, 2.0, 0.0])), 0)
    assert AMPLITUDE(T.astype(np.float32)).dtype == np.float32
    check_grads(AMPLITUDE, (T,), order=1)
    check_grads(jax.jit(phase_mixing), (T, 0.3), order=1)


def test_what_is_refused():
    cases = [
        (spectrum, (np.ones((2, 3)),), {}, r"shape \(2, 3\): pass a square one"),
        (spectrum, (L,), {"kind": "trace"}, "kind 'trace': pass 'eigenvalues' or 'singular'"),
        (spectrum, (L,), {"mask": np.ones((N, N))}, "mask is float64, not boolean"),
        (schur_bounds, (L, np.eye(2)), {}, r"W has shape \(6, 6\), E \(2, 2\): pass both of one"),
        (contraction_ratio, (np.ones(3), L), {}, r"shape \(3,\): pass a square one"),
        (phase_mixing, (np.ones(4), 0.1), {}, r"shape \(4,\): pass an odd number of them"),
        (phase_mixing, (T, np.ones(2)), {}, r"theta has shape \(2,\): pass one number"),
        (amplitude, (T,), {"samples": 4}, "samples is 4, too few for 9 diagonals"),
    ]
    for function, arguments, options, message in cases:
        with pytest.raises(ValueError, match=message):
            inspect.unwrap(function)(*arguments, **options)
