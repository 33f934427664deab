"""Statements of Li (2025) on arrays: what holds, what fails, and by how much."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
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
AUDIT_9 = jax.jit(partial(equation_9, length=T))


def holds(part):
    return {name: bool(comparison.holds) for name, comparison in part.items()}


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("slope", [0.01, 0.3])
def test_equation_9_on_its_own_terms_and_with_more_keys(slope):
    found = AUDIT_9(CONTENT, AWAY, slope=slope, mask=ALL)
    assert holds(found.conclusions)["(9) of one bias"]
    assert not holds(found.conclusions)["(9) at Δ' = Δ"]
    assert all(holds(found.instead).values())
    near = AWAY[0] < T
    trained = softmax((CONTENT - slope * AWAY)[:, near])
    longer = softmax(CONTENT - slope * AWAY)
    rho = longer[:, ~near].sum(axis=1)
    np.testing.assert_allclose(found.measured["share of new keys"], rho)
    flatter = softmax(CONTENT - slope * T / N * AWAY)
    np.testing.assert_allclose(found.measured["share with m = c/n'"], flatter[:, ~near].sum(axis=1))
    np.testing.assert_allclose(longer[:, near], trained * (1 - rho[:, None]))
    np.testing.assert_allclose(
        found.conclusions["(9) at Δ' = Δ"].lhs, np.abs(longer[:, near] - trained).max()
    )


def test_the_share_of_new_keys_decides():
    """Steep biases leave new keys no share; flat ones all that their number gives them."""
    even = np.zeros((ROWS, N))
    steep, flat = (AUDIT_9(even, AWAY, slope=slope, mask=ALL) for slope in (50.0, 0.0))
    assert steep.measured["largest change"].max() < 1e-80
    assert holds(steep.conclusions)["(9) at Δ' = Δ"]
    np.testing.assert_allclose(flat.measured["share of new keys"], (N - T) / N)
    assert not holds(flat.conclusions)["(9) with m = c/n'"]


def test_one_bias_moves_a_weight_by_a_quarter_of_it_at_most():
    """The slope ¼ is reached at α = ½."""
    found = AUDIT_9(np.zeros((ROWS, N)), AWAY, slope=1e-3, mask=AWAY < 2)
    assert found.conclusions["(9) of one bias"].holds
    bias = np.array([0.0, -1e-3])
    change = softmax(np.stack([bias * 0, bias]))[:, 1]
    np.testing.assert_allclose(change[0] - change[1], 0.25e-3, rtol=1e-3)


def test_keys_that_are_masked_are_not_looked_at():
    mask = np.broadcast_to(np.arange(N) >= 2, (ROWS, N))
    spoiled = np.where(mask, CONTENT, 1e3)
    found, other = (AUDIT_9(x, AWAY, slope=0.1, mask=mask) for x in (CONTENT, spoiled))
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(one, two)
    left = softmax((CONTENT - 0.1 * AWAY)[:, 2:])
    share = left[:, AWAY[0, 2:] >= T].sum(axis=1)
    np.testing.assert_allclose(found.measured["share of new keys"], share)


@pytest.mark.parametrize("slope", [0.5, 5.0])
def test_rows_shorter_than_training_where_biases_get_steeper(slope):
    """m = c/n' is then larger than in training."""
    found = AUDIT_9(np.zeros((ROWS, N)), AWAY, slope=slope, mask=AWAY < 3)
    assert np.all(found.measured["share of new keys"] == 0)
    part = found.instead["by new keys and m"]
    steeper, away = slope * T / 3, np.arange(3)
    change = softmax(-steeper * away) - softmax(-slope * away)
    assert 0 < np.abs(change).max() <= part.rhs < 1
    assert part.holds


def test_weights_alone_and_the_ball():
    measured = np.array([[1.5, 2.0], [90.0, 2.0]])
    found = jax.jit(section_4_lipschitz)(
        measured, np.array([2.0, 3.0]), np.array([[2.0, 3.0], [100.0, 3.0]]), whole=measured.prod(1)
    )
    assert holds(found.conclusions) == {"each layer": False, "whole": False}
    assert all(holds(found.instead).values())
    assert (found.measured["C"], found.measured["C^L"]) == (3, 9)


def test_linear_growth_is_seen_where_there_is_any():
    lengths = np.array([4.0, 8.0, 16.0])
    audit = jax.jit(partial(section_4_alibi, lengths=lengths, slope=0.5))
    flat, steep = np.ones(3), lengths
    assert holds(audit(steep, flat, 2 * lengths).conclusions)["grows by m n"]
    found = audit(flat, flat, 2 * lengths)
    assert not holds(found.conclusions)["grows by m n"]
    assert holds(found.instead)["without m"]
    assert not holds(audit(flat, 3 * lengths, 2 * lengths).instead)["without m"]


def test_models_are_compared_with_their_own_bounds():
    """Of the largest of both nothing would be seen."""
    lengths = np.array([4.0, 8.0])
    audit = jax.jit(partial(section_4_alibi, lengths=lengths, slope=0.5))
    measured, bound = np.array([[5.0, 5.0], [1.0, 1.0]]), np.array([[3.0, 3.0], [9.0, 9.0]])
    found = audit(measured, measured, bound)
    assert not holds(found.instead)["without m"]
    np.testing.assert_allclose(found.measured["bound"], 9)


def test_norms_of_encodings():
    sinusoids = jaxpe.sinusoidal_vectors(jnp.arange(40), dim=8)
    table, x, q, a = (RNG.standard_normal((n, 8)) for n in (5, 6, 7, 3))
    norms = jax.jit(section_4_norms)
    found = norms(sinusoids, x, table, q, a)
    assert all(holds(found.conclusions | found.instead).values())
    np.testing.assert_allclose(found.measured["sinusoids"], 2)
    np.testing.assert_allclose(found.measured["√d"], 8**0.5)
    wrong = norms(1.1 * sinusoids, x, table, q, a)
    assert not holds(wrong.instead)["sinusoids, above"]


def test_capacity_says_something_only_where_it_is_small():
    loss = np.array([0.1, 0.2])
    sizes = {"largest_loss": 2.0, "loss_lipschitz": 0.5, "trivial_loss": 0.5}
    capacity = jax.jit(partial(section_4_rademacher, samples=10_000, **sizes))
    for lipschitz, says in ((1.0, True), (1e6, False)):
        found = capacity(loss, loss, np.full(2, lipschitz), np.full(2, 3.0), worst_loss=1.9)
        assert holds(found.hypotheses | found.conclusions) == {
            "loss ≤ M": True, "(8)": True, "says something": says,
        }  # fmt: skip
        # 2 · 0.5 · R_S + 3 · 2 · √(ln(2/0.05)/(2m)), with R_S = C^L · 3/√m.
        right = loss + 0.03 * lipschitz + 6 * (np.log(40) / 20_000) ** 0.5
        np.testing.assert_allclose(found.measured["right side"], right)
    # Means within M, and a single loss that is not.
    assert not holds(capacity(loss, loss, loss, loss, worst_loss=2.1).hypotheses)["loss ≤ M"]
    off = capacity(loss, 50 * loss, np.ones(2), np.ones(2), worst_loss=10.0)
    assert not holds(off.conclusions)["(8)"]
    with pytest.raises(ValueError, match="pass at least 1, and 0 < delta < 1"):
        section_4_rademacher(loss, loss, loss, loss, worst_loss=1.0, samples=0, **sizes)


@pytest.mark.parametrize("order", [2, 4])
def test_wavelets_do_not_stay_close(order):
    length = 16
    found = section_6_wavelet(np.arange(17, 128), dim=16, length=length, order=order)
    assert holds(found.conclusions) == {"stays close": False, "decays": False}
    assert all(holds(found.hypotheses | found.instead).values())
    difference = np.asarray(found.measured["difference"])
    make = jax.jit(partial(jaxpe.encodings.wavelet_vectors, dim=16, length=length, order=order))
    rows = np.asarray(make(np.arange(128)))
    np.testing.assert_allclose(difference, np.linalg.norm(rows[17:] - rows[16], axis=1), atol=1e-6)


def test_wavelets_as_they_are_and_as_they_are_normalised():
    for length in (16, 256):
        found = section_6_wavelet(np.arange(length + 1, 2 * length), dim=16, length=length)
        assert found.measured["norms as they are"].max() < 2
        np.testing.assert_allclose(found.measured["norms"], 1)
        assert found.measured["alive"][0] > found.measured["alive"][-1] > 0
        assert found.measured["finest alive"][0] < found.measured["finest alive"][-1]


def test_wavelets_end_where_the_widest_support_does():
    """Of 2N − 1 = 7 times 2^j = T: what is left there is the norm of PE(T)."""
    found = section_6_wavelet(np.arange(17, 129), dim=16, length=16)
    difference = np.asarray(found.measured["difference"])
    np.testing.assert_allclose(difference[7 * 16 - 17 :], 1, rtol=1e-15)
    assert difference[4 * 16 - 17] > 1.4


def test_haar_has_nothing_beyond_its_length():
    """And so nothing to stay close to."""
    found = section_6_wavelet(np.arange(17, 40), dim=16, length=16, order=1)
    assert not found.measured["alive"][1:].any()
    assert not found.measured["difference"].any()
    assert holds(found.hypotheses) == {"PE(T) ≠ 0": False}
    assert found.measured["finest alive"][-1] == np.inf


def test_legendre_differences_keep_to_their_bound_and_are_not_small():
    found = jax.jit(partial(section_6_legendre, dim=32, length=16))(jnp.arange(17, 200))
    said = holds(found.conclusions)
    assert [name for name in said if not said[name]] == ["small"]
    assert all(holds(found.instead).values())
    k = np.arange(32)
    np.testing.assert_allclose(found.measured["bound"], (k * (k + 1)).sum() * np.exp(-8))
    np.testing.assert_allclose(found.measured["x_T"], np.tanh(4.0))
    values = np.polynomial.legendre.legvander(np.tanh(4.0), 31)
    np.testing.assert_allclose(found.conclusions["small"].rhs, 0.1 * np.linalg.norm(values))


def test_legendre_slopes_are_reached_at_one():
    """P_k'(1) = k(k + 1)/2, of which the rigorous bound is made."""
    k = np.arange(12)
    slopes = [np.polynomial.legendre.Legendre.basis(degree).deriv()(1.0) for degree in k]
    np.testing.assert_allclose(slopes, k * (k + 1) / 2)
