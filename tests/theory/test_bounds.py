"""Statements of Li (2025) on arrays: what holds, what fails, and by how much."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import encodings
from jaxpe.theory import (
    equation_9,
    section_4_alibi,
    section_4_lipschitz,
    section_4_norms,
    section_4_rademacher,
    section_6_legendre,
    section_6_wavelet,
)

RNG = np.random.default_rng(0)
ROWS, N, T = 4, 12, 5
CONTENT = RNG.standard_normal((ROWS, N))
AWAY = np.broadcast_to(np.arange(N - 1, -1, -1), (ROWS, N))  # of the last query
ALL = np.ones((ROWS, N), bool)


def audit_9(content, slope, mask=ALL):
    return equation_9(content, AWAY, slope=slope, mask=mask, length=T)


def holds(part):
    return {name: bool(comparison.holds) for name, comparison in part.items()}


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("slope", [0.01, 0.3])
def test_equation_9_on_its_own_terms_and_with_more_keys(slope):
    """Keys that are masked are not looked at."""
    for first in (0, 2):
        mask = np.broadcast_to(np.arange(N) >= first, (ROWS, N))
        found = audit_9(np.where(mask, CONTENT, 1e3), slope, mask)
        content, away = CONTENT[:, first:], AWAY[0, first:]
        assert holds(found.conclusions)["(9) of one bias"]
        assert all(holds(found.instead).values())
        near = away < T
        trained = softmax((content - slope * away)[:, near])
        longer = softmax(content - slope * away)
        rho = longer[:, ~near].sum(axis=1)
        np.testing.assert_allclose(found.measured["share of new keys"], rho)
        flatter = softmax(content - slope * T / len(away) * away)[:, ~near].sum(axis=1)
        np.testing.assert_allclose(found.measured["share with m = c/n'"], flatter)
        change = found.conclusions["(9) at Δ' = Δ"]
        assert not change.holds
        np.testing.assert_allclose(change.lhs, np.abs(longer[:, near] - trained).max())


def test_the_share_of_new_keys_decides():
    """Steep biases leave new keys no share; flat ones all that their number gives them."""
    even = np.zeros((ROWS, N))
    steep, flat = (audit_9(even, slope) for slope in (50.0, 0.0))
    assert steep.measured["largest change"].max() < 1e-80
    assert holds(steep.conclusions)["(9) at Δ' = Δ"]
    np.testing.assert_allclose(flat.measured["share of new keys"], (N - T) / N)
    assert not holds(flat.conclusions)["(9) with m = c/n'"]


@pytest.mark.parametrize("slope", [0.5, 5.0])
def test_rows_shorter_than_training_where_biases_get_steeper(slope):
    """m = c/n' is then larger than in training."""
    found = audit_9(np.zeros((ROWS, N)), slope, AWAY < 3)
    assert np.all(found.measured["share of new keys"] == 0)
    part = found.instead["by new keys and m"]
    steeper, away = slope * T / 3, np.arange(3)
    change = softmax(-steeper * away) - softmax(-slope * away)
    assert 0 < np.abs(change).max() <= part.rhs < 1
    # The largest of two equal logits a quarter of its range apart: tanh(r/4), which is reached.
    np.testing.assert_allclose(part.rhs, np.tanh(2 * slope * (T / 3 - 1) / 4))


def test_weights_alone_and_the_ball():
    measured = np.array([[1.5, 2.0], [90.0, 2.0]])
    found = section_4_lipschitz(
        measured, np.array([2.0, 3.0]), np.array([[2.0, 3.0], [100.0, 3.0]]), whole=measured.prod(1)
    )
    assert holds(found.conclusions) == {"each layer": False, "whole": False}
    assert all(holds(found.instead).values())
    assert (found.measured["C"], found.measured["C^L"]) == (3, 9)


def test_linear_growth_is_seen_where_there_is_any():
    """Models are compared with their own bounds: of the largest of both nothing would be seen."""
    lengths = np.array([4.0, 8.0, 16.0])
    audit = partial(section_4_alibi, lengths=lengths, slope=0.5)
    flat, steep = np.ones(3), lengths
    assert holds(audit(steep, flat, 2 * lengths).conclusions)["grows by m n"]
    found = audit(flat, flat, 2 * lengths)
    assert not holds(found.conclusions)["grows by m n"]
    assert holds(found.instead)["without m"]
    assert not holds(audit(flat, 3 * lengths, 2 * lengths).instead)["without m"]
    measured, bound = np.outer([5.0, 1.0], flat), np.outer([3.0, 9.0], flat)
    found = audit(measured, measured, bound)
    assert not holds(found.instead)["without m"]
    np.testing.assert_allclose(found.measured["bound"], 9)


def test_norms_of_encodings():
    sinusoids = encodings.sinusoidal_vectors(jnp.arange(40), dim=8)
    table, x, q, a = (RNG.standard_normal((n, 8)) for n in (5, 6, 7, 3))
    found = section_4_norms(sinusoids, x, table, q, a)
    assert all(holds(found.conclusions | found.instead).values())
    np.testing.assert_allclose(found.measured["sinusoids"], 2)
    np.testing.assert_allclose(found.measured["√d"], 8**0.5)
    assert not holds(section_4_norms(1.1 * sinusoids, x, table, q, a).instead)["sinusoids, above"]


def test_capacity_says_something_only_where_it_is_small():
    loss = np.array([0.1, 0.2])
    sizes = {"largest_loss": 2.0, "loss_lipschitz": 0.5, "trivial_loss": 0.5, "samples": 10_000}
    capacity = partial(section_4_rademacher, **sizes)
    for lipschitz, says in ((1.0, True), (1e6, False)):
        found = capacity(loss, loss, np.full(2, lipschitz), np.full(2, 3.0), worst_loss=1.9)
        expected = {"loss ≤ M": True, "(8)": True, "says something": says}
        assert holds(found.hypotheses | found.conclusions) == expected
        # 2 · 0.5 · R_S + 3 · 2 · √(ln(2/0.05)/(2m)), with R_S = C^L · 3/√m.
        right = loss + 0.03 * lipschitz + 6 * (np.log(40) / 20_000) ** 0.5
        np.testing.assert_allclose(found.measured["right side"], right)
    # Means within M, and a single loss that is not.
    off = capacity(loss, 50 * loss, np.ones(2), np.ones(2), worst_loss=2.1)
    assert not holds(off.hypotheses)["loss ≤ M"]
    assert not holds(off.conclusions)["(8)"]


def test_wavelets_do_not_stay_close():
    """They end where the widest support does, 7 T; what is left there is the norm of PE(T)."""
    found = section_6_wavelet(np.arange(17, 128), dim=16, length=16)
    assert holds(found.conclusions) == {"stays close": False, "decays": False}
    assert all(holds(found.hypotheses | found.instead).values())
    difference = np.asarray(found.measured["difference"])
    rows = np.asarray(encodings.wavelet_vectors(np.arange(128), dim=16, length=16, order=4))
    np.testing.assert_allclose(difference, np.linalg.norm(rows[17:] - rows[16], axis=1), atol=1e-6)
    np.testing.assert_allclose(difference[7 * 16 - 17 :], 1, rtol=1e-15)
    assert difference[4 * 16 - 17] > 1.4
    assert found.measured["norms as they are"].max() < 2
    np.testing.assert_allclose(found.measured["norms"][: 7 * 16 - 15], 1)
    assert found.measured["alive"][0] > found.measured["alive"][90] > 0


def test_haar_has_nothing_beyond_its_length():
    """And so nothing to stay close to."""
    found = section_6_wavelet(np.arange(17, 40), dim=16, length=16, order=1)
    assert not found.measured["alive"][1:].any()
    assert not found.measured["difference"].any()
    assert holds(found.hypotheses) == {"PE(T) ≠ 0": False}
    assert found.measured["finest alive"][-1] == np.inf


def test_legendre_differences_keep_to_their_bound_and_are_not_small():
    """P_k'(1) = k(k + 1)/2, of which the bound is made."""
    found = section_6_legendre(jnp.arange(17, 200), dim=32, length=16)
    said = holds(found.conclusions)
    assert [name for name in said if not said[name]] == ["small"]
    assert all(holds(found.instead).values())
    k = np.arange(32)
    np.testing.assert_allclose(found.measured["bound"], (k * (k + 1)).sum() * np.exp(-8))
    np.testing.assert_allclose(found.measured["x_T"], np.tanh(4.0))
    basis = [np.polynomial.legendre.Legendre.basis(degree) for degree in k]
    norm = np.linalg.norm([p.deriv()(1.0) for p in basis[:12]])  # exact for these
    np.testing.assert_allclose(norm, np.linalg.norm(k[:12] * (k[:12] + 1) / 2))
    by_x = np.linalg.norm(k * (k + 1) / 2) * (np.tanh(17 / 4) - np.tanh(4.0))
    np.testing.assert_allclose(found.measured["bound by x"][0], min(by_x, 2 * 32**0.5), rtol=1e-6)
    values = [p(np.tanh(4.0)) for p in basis]
    np.testing.assert_allclose(found.conclusions["small"].rhs, 0.1 * np.linalg.norm(values))
