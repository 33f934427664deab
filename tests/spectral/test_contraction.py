"""Spectra at their edges; Schur's bounds; what phases contract, and what they do not."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxpe.spectral import (
    contraction_ratio,
    phase_mixing,
    schur_bounds,
    spectrum,
    symbol,
    toeplitz_matrix,
)
from jaxpe.spectral.contraction import amplitude
from jaxpe.spectral.toeplitz import symmetric_part

RNG = np.random.default_rng(0)
N = 6
L = RNG.standard_normal((N, N))
OFFSETS = np.arange(N)[:, None] - np.arange(N)[None, :]
KINDS = ("eigenvalues", "singular")


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
    """At any scale: squares of the largest and the smallest would leave the range of floats."""
    many = np.stack([L, L.T @ L, 0.1 + L, 1e-200 * L, 1e200 * L, -3 * L])
    result = spectrum(many, kind=kind)
    for k, A in enumerate(many):
        values = (
            np.linalg.svd(A, compute_uv=False)
            if kind == "singular"
            else np.linalg.eigvalsh(A + A.T)[::-1] / 2
        )
        size = np.abs(values).max()
        np.testing.assert_allclose(result.values[k] / size, values / size, atol=1e-13)
        for field, expected in zip(result[1:], by_definition(values / size), strict=True):
            np.testing.assert_allclose(field[k], expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_degenerate_matrices_are_defined(kind, dtype):
    Q = np.linalg.qr(L)[0]
    zero, identity, line, projection = np.asarray([
        np.zeros((N, N)), 3 * np.eye(N), np.outer(x := np.arange(1.0, N + 1), x),
        Q[:, :3] @ Q[:, :3].T,
    ], dtype)  # fmt: skip
    fields = np.stack(spectrum(np.stack([zero, identity, line, projection]), kind=kind)[1:], 1)
    assert fields[0].tolist() == [0, 0, np.inf, 0]
    np.testing.assert_allclose(fields[1], [N, N, 1, 0], rtol=1e-5)
    np.testing.assert_allclose(fields[2], [1, 1, np.inf, 1], rtol=1e-5)
    np.testing.assert_allclose(fields[3, :2], [3, 3], rtol=1e-5)
    gradient = jax.jit(jax.grad(lambda A: jnp.sum(spectrum(A, kind=kind).effective_rank)))
    np.testing.assert_allclose(gradient(np.stack([zero, identity])), 0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_of_a_spectrum(kind):
    pick = jax.jit(lambda A: jnp.stack(spectrum(A, kind=kind)[1:]))
    check_grads(pick, (L.T @ L + np.eye(N),), order=1, rtol=1e-5)
    Q = np.linalg.qr(L)[0]
    repeated = (Q * np.array([3.0, 3.0, 2.0, 2.0, 2.0, 1.0])) @ Q.T
    check_grads(lambda A: pick(A)[0], (repeated,), order=1, rtol=1e-5)


def test_masked_logits_are_left_out():
    causal = np.tri(N, dtype=bool)
    for kind in KINDS:
        masked = spectrum(np.where(causal, L, -np.inf), kind=kind, mask=causal)
        np.testing.assert_allclose(masked.values, spectrum(np.tril(L), kind=kind).values)


@pytest.fixture(scope="module")
def positive():
    """Pairs of positive matrices: random ones, and one with phases, of rank one."""
    pairs = []
    for seed in range(20):
        W, E = gram(seed, imaginary=seed % 2), gram(seed + 1, imaginary=seed % 2)
        pairs.append((W + 0.1 * np.eye(N), E))
    pairs.append((gram(3, imaginary=True) + 0.1 * np.eye(N), turn(0.7)))
    return np.stack([np.stack(pair).astype(complex) for pair in pairs], axis=1)


def test_schurs_bounds_hold_for_positive_matrices(positive):
    bounds = schur_bounds(*positive)
    assert bounds.hypotheses.all()
    assert bounds.holds.all()
    for k, (W, E) in enumerate(zip(*positive, strict=True)):
        diagonal, own = np.diag(E).real, np.linalg.eigvalsh(W)
        close = {"atol": 1e-12 * np.abs(own).max() * diagonal.max()}
        np.testing.assert_allclose(bounds.values[k], np.linalg.eigvalsh(W * E)[::-1], **close)
        np.testing.assert_allclose(bounds.lower[k], diagonal.min() * own[0], **close)
        np.testing.assert_allclose(bounds.upper[k], diagonal.max() * own[-1], **close)
        slacks = bounds.values[k, -1] - bounds.lower[k], bounds.upper[k] - bounds.values[k, 0]
        np.testing.assert_allclose([bounds.lower_slack[k], bounds.upper_slack[k]], slacks, **close)
    # Phases of one frequency are a unitary similarity: both are reached.
    np.testing.assert_allclose([bounds.lower_slack[-1], bounds.upper_slack[-1]], 0, atol=1e-12)


def test_hypotheses_that_fail_are_told():
    W, E = gram(1), turn(0.3).real
    turning = np.triu(np.ones((N, N)), 1)
    cases = [
        (W, E, True),
        (0 * W, E, True),
        (symmetric_part(L), E, False),  # indefinite
        (W, symmetric_part(L), False),
        (W + turning - turning.T, E, False),  # not symmetric, of positive xᵀWx
        (W, -np.eye(N), False),
    ]
    bounds = schur_bounds(*(np.stack(x) for x in list(zip(*cases, strict=True))[:2]))
    assert bounds.hypotheses.tolist() == [expected for *_, expected in cases]
    assert not bounds.holds[-1]  # E = −I makes the product negative
    assert bounds.smallest_e[-1] == -1
    assert bounds.holds[1]
    # One side fails alone: 3, −1 and −9 for 2, 0 and −9 of W, and the negative of all.
    one = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, -9.0]])
    off = np.array([[1.0, 2.0, 1.0], [2.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    assert not schur_bounds(np.stack([one, -one]), off).holds.any()
    assert schur_bounds(W.astype(np.float32), E.astype(np.float32)).hypotheses


def test_bounds_of_many_frequencies_at_once():
    """E of every pair `[pairs, n, n]` against W of every head `[heads, 1, n, n]`; a real W too."""
    E = np.stack([turn(theta) for theta in (0.1, 1.0)])
    W = np.stack([gram(5), gram(6)])[:, None]
    bounds = schur_bounds(W, E)
    assert bounds.values.shape == (2, 2, N)
    expected = np.linalg.eigvalsh(W[1, 0] * E[0])[::-1]
    np.testing.assert_allclose(bounds.values[1, 0], expected, atol=1e-12)
    slack = jax.jit(lambda W: schur_bounds(W, E[0].real).upper_slack)
    check_grads(slack, (symmetric_part(L),), order=1)


def test_one_frequency_contracts_real_matrices_alone(positive):
    """W ∘ E = D W D* is a unitary similarity; its real part is a mean of two, for real W."""
    W = positive[0]
    np.testing.assert_allclose(contraction_ratio(W, np.broadcast_to(turn(0.9), W.shape)), 1)
    A = RNG.standard_normal((20, N, N))
    cosines = np.stack([turn(theta).real for theta in np.linspace(0, 3.2, 20)])
    assert contraction_ratio(A + A.swapaxes(1, 2), cosines).max() <= 1 + 1e-12
    pair = np.stack([A, A * cosines])
    before, after = np.cumsum(spectrum(pair, kind="singular").values, axis=-1)
    assert (after <= before + 1e-12).all()  # every Ky Fan norm


def test_what_does_not_contract():
    """A sum over frequencies of what was flat, and logits that vanish without positions."""
    W = np.array([[[1.0, 1.0], [1.0, 1.0]], [[1.0, -1.0], [-1.0, 1.0]]]) / 2
    E = np.stack([np.exp(1j * theta * OFFSETS[:2, :2]) for theta in (0.1, 1.5)])
    assert schur_bounds(W, E).holds.all()
    np.testing.assert_allclose(W.sum(0), np.eye(2))
    assert spectrum((W * E.real).sum(0)).range > 0.4
    ahead = np.outer(np.ones(N), -1j * np.ones(N))  # every pair of a key a quarter turn ahead
    assert spectrum((ahead * turn(0.7)).real, kind="singular").values[0] > 1


def test_ratio_where_there_is_nothing_to_contract():
    E = turn(0.4).real
    cases = [(2 * np.eye(N), E), (np.zeros((N, N)), E), (np.eye(N), np.diag(np.arange(1.0, 7)))]
    W, phases = (np.stack(x) for x in zip(*cases, strict=True))
    assert contraction_ratio(W, phases).tolist() == [1, 1, np.inf]
    assert np.isfinite(jax.grad(contraction_ratio)(2 * np.eye(N), E)).all()
    check_grads(lambda W: contraction_ratio(W, E), (gram(8) + np.diag(np.arange(N)),), order=1)


T = RNG.standard_normal(9)
T = T + T[::-1]


def test_mixing_phases_averages_two_shifted_symbols_and_never_raises_the_amplitude():
    """Lemma B.1, exactly where θ is on the grid."""
    theta, omega = 0.6, RNG.uniform(-3, 3, 11)
    mixed = phase_mixing(T, theta)
    shifted = [symbol(T, omega + sign * theta) for sign in (1, -1)]
    np.testing.assert_allclose(symbol(mixed, omega), np.mean(shifted, axis=0), atol=1e-12)
    M = np.asarray(toeplitz_matrix(T, n=N))
    np.testing.assert_allclose(toeplitz_matrix(mixed, n=N), M * turn(theta).real, atol=1e-13)
    on_grid = 2 * np.pi * np.arange(0, 144, 7) / 144
    mixed = amplitude(jax.jit(jax.vmap(phase_mixing, in_axes=(None, 0)))(T, on_grid))
    before = amplitude(T)
    assert (mixed <= before * (1 + 1e-12)).all()
    assert mixed.min() < 0.8 * before


def test_amplitude_holds_the_spectra_of_sections():
    """And is what their range tends to, from below; of cos ω + cos 2ω it is 2 + 9/8."""
    ranges = [np.ptp(np.linalg.eigvalsh(np.asarray(toeplitz_matrix(T, n=n)))) for n in (5, 40)]
    assert ranges[0] < ranges[1] <= amplitude(T) / np.cos(np.pi / 32)
    assert ranges[1] > 0.95 * amplitude(T)
    coarse = amplitude(T, samples=18)  # m = 18 > 2K = 8
    assert coarse <= amplitude(T, samples=4000) <= coarse / np.cos(np.pi * 4 / 18)
    np.testing.assert_allclose(amplitude(np.array([0.5, 0.5, 0.0, 0.5, 0.5])), 25 / 8, rtol=1e-3)
    check_grads(amplitude, (T,), order=1)


def test_what_is_refused():
    cases = [
        (spectrum, (np.ones((2, 3)),), {}, "square"),
        (spectrum, (L,), {"kind": "trace"}, "trace"),
        (spectrum, (L,), {"mask": np.ones((N, N))}, "mask"),
        (schur_bounds, (L, np.eye(2)), {}, "W has"),
        (phase_mixing, (np.ones(4), 0.1), {}, "odd"),
        (phase_mixing, (T, np.ones(2)), {}, "theta"),
        (amplitude, (T,), {"samples": 4}, "samples"),
    ]
    for function, arguments, options, message in cases:
        with pytest.raises(ValueError, match=message):
            inspect.unwrap(function)(*arguments, **options)
