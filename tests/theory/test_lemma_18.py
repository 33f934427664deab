"""Lemma 18: its contradiction, its bound, its last step; and Remark 20."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import Distances
from jaxpe.ntk import gradient_flow
from jaxpe.theory import lemma_18, remark_20, verdict

LINE = 0.3 * np.abs(np.arange(3.0)[:, None] - np.arange(3.0))
audit = jax.jit(lemma_18)


def random_case(seed, n=7, d=2, decay=3.0):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(size=n))
    D = np.abs(x[:, None] - x)
    return np.exp(-decay * D), rng.normal(size=(n, d)), D


@pytest.mark.parametrize("f", [lambda d: 1 + d, lambda d: 1e-3 + d**2, lambda d: 5 + np.sqrt(d)])
def test_no_increasing_kernel_is_positive_definite(f):
    """(A1) asks for both; with f(0)² < f(d)² λ_min is negative."""
    found = audit(f(LINE), np.ones((3, 1)), LINE)
    assert found.hypotheses["A1 increasing"].holds
    assert found.hypotheses["A1 diagonal"].holds
    assert not found.hypotheses["A1 positive"].holds
    assert found.hypotheses["A1 positive"].rhs < 0


def test_decreasing_kernels_are_possible():
    found = audit(np.exp(-LINE), np.ones((3, 1)), LINE)
    assert found.measured["explained by decreasing f"] == 1
    assert found.hypotheses["A1 positive"].holds
    assert not found.hypotheses["A1 diagonal"].holds
    assert not found.hypotheses["A1 increasing"].holds


@pytest.mark.parametrize("seed", range(4))
def test_no_kernel_meets_the_first_hypothesis(seed):
    """Positive definite ones, among them such whose entries off the diagonal do rise with d."""
    alpha, b, D = random_case(seed)
    rising = 2 * np.eye(7) + 0.2 * D + 0.1 * seed * np.ones((7, 7))
    for kernel in (alpha, rising, np.eye(7) + 1e-3):
        hypotheses = audit(kernel, b, D).hypotheses
        assert hypotheses["A1 positive"].holds
        assert not hypotheses["A1 diagonal"].holds


def test_constant_forcing_on_three_positions_is_not_monotone():
    """Everything but the sign of f as asked for: C_b = 0, a corpus on a line, bounded orbits.

    P* = α⁻¹1 has p_0 = p_2 by symmetry and p_1 apart, although 1 is nearer to 0 than 2 is.
    """
    a, c = np.exp(-0.3), np.exp(-0.6)
    found = audit(np.exp(-LINE), np.ones((3, 1)), LINE)
    for name in ("A2", "A3", "A4"):
        assert found.hypotheses[name].holds
    assert found.measured["C_b"] == 0
    assert not found.conclusions["monotone"].holds
    P = np.linalg.solve([[1, a, c], [a, 1, a], [c, a, 1]], np.ones(3))
    np.testing.assert_allclose(P[0], P[2])
    assert abs(P[0] - P[1]) > 0.4


def test_without_the_diagonal_an_increasing_kernel_is_not_monotone_either():
    """If (A1) were asked for i ≠ j alone: α = 2 I + 0.2 d meets all of it, with C_b = 0."""
    found = audit(2 * np.eye(3) + 0.2 * LINE, np.ones((3, 1)), LINE)
    for name in ("A1 positive", "A2", "A3", "A4"):
        assert found.hypotheses[name].holds
    assert found.measured["C_b"] == 0
    assert not found.conclusions["monotone"].holds


def test_the_published_bound_depends_on_the_unit_of_time():
    """Where (A1) is not met, (13) may fail: α and b times s have the same P*, (13) the factor ‖f‖∞.

    This refutes nothing: no kernel meets (A1), so the lemma is vacuous.
    """
    holds = [
        bool(audit(s * np.exp(-LINE), s * np.ones((3, 1)), LINE).conclusions["(13)"].holds)
        for s in (1.0, 1e-3)
    ]
    assert holds == [True, False]
    with_n = audit(1e-3 * np.exp(-LINE), 1e-3 * np.ones((3, 1)), LINE).conclusions["(13) with n"]
    assert with_n.holds


@pytest.mark.parametrize("seed", range(5))
def test_with_n_the_bound_is_the_triangle_inequality(seed):
    """For every kernel that is a function of distance, its right side is 2R at least."""
    alpha, b, D = random_case(seed)
    found = audit(alpha, b, D)
    assert found.measured["share above 2R"] == 1
    assert found.conclusions["(13) with n"].holds
    assert found.measured["constant of (13) with n"] * D[D > 0].min() >= 7 * found.measured["R"]


@pytest.mark.parametrize("seed", range(5))
def test_what_holds_instead(seed):
    alpha, b, D = random_case(seed, decay=1.0)
    found = audit(alpha, b, D)
    assert found.instead["energy bound"].holds
    # Its two sides, as they are defined.
    P, inverse = np.linalg.solve(alpha, b), np.linalg.inv(alpha)
    lhs = np.linalg.norm(P[:, None] - P, axis=-1)
    own = np.diag(inverse)
    rhs = np.sqrt((own[:, None] + own - 2 * inverse) * np.trace(b.T @ P))
    slack = (rhs - lhs)[np.triu_indices(7, 1)]
    np.testing.assert_allclose(found.instead["energy bound"].slack, slack.min(), rtol=1e-8)


def test_measured_constants_are_what_they_say():
    alpha, b, D = random_case(0)
    found = audit(alpha, b, D).measured
    i, j = np.triu_indices(7, 1)
    slopes = np.abs(alpha[i] - alpha[j]).max(axis=1) / D[i, j]
    np.testing.assert_allclose(found["L_f"], slopes.max())
    quotients = np.linalg.norm(b[i] - b[j], axis=1) / D[i, j]
    np.testing.assert_allclose(found["C_b"], quotients.max(), rtol=1e-6)
    np.testing.assert_allclose(found["condition"], np.linalg.cond(alpha), rtol=1e-8)
    largest, least, each = alpha.max(), np.linalg.eigvalsh(alpha)[0], found["R"] * found["L_f"]
    for name, terms in (("(13)", 2 * each * largest), ("(13) with n", 7 * each)):
        constant = found[f"constant of {name}"]
        np.testing.assert_allclose(constant, (found["C_b"] + terms) / least, rtol=1e-8)
    flow = gradient_flow(alpha, b, np.zeros_like(b))
    orbit = [np.linalg.norm(flow.at(t), axis=1).max() for t in np.linspace(0, 200, 400)]
    assert max(orbit) <= found["R"] * 1.001


def test_absent_positions_do_not_count():
    alpha, b, D = random_case(1)
    present = np.array([True] * 5 + [False] * 2)
    some = audit(alpha, b, Distances(jnp.asarray(D), jnp.asarray(present)))
    part = audit(alpha[:5, :5], b[:5], D[:5, :5])
    for name in ("explained by decreasing f", "C_b", "L_f", "R"):
        np.testing.assert_allclose(some.measured[name], part.measured[name], rtol=1e-6)
    for name in ("(13) with n", "energy bound", "monotone"):
        mine, theirs = ((a.conclusions | a.instead)[name] for a in (some, part))
        np.testing.assert_allclose(mine.lhs, theirs.lhs, rtol=1e-6)
        np.testing.assert_allclose(mine.rhs, theirs.rhs, rtol=1e-6)


def test_a_singular_kernel_is_said_to_be_one():
    found = audit(np.ones((3, 3)), np.arange(3.0)[:, None], LINE)
    assert not found.hypotheses["A1 positive"].holds
    assert not found.hypotheses["A4"].holds  # b leaves the range: P grows without end
    assert np.isinf(found.measured["condition"])
    assert not found.conclusions["(13)"].holds
    assert all(np.isfinite(c.lhs) for c in found.conclusions.values())


def test_equal_distributions_need_equal_forcing():
    D = np.zeros((3, 3))
    assert audit(np.eye(3), np.ones((3, 1)), D).measured["C_b"] == 0
    found = audit(np.eye(3), np.arange(3.0)[:, None], D)
    assert np.isinf(found.measured["C_b"])
    assert not found.hypotheses["A2"].holds


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"alpha has shape \(2, 2\), b \(3, 1\)"):
        lemma_18(np.eye(2), np.ones((3, 1)), LINE)


def test_the_verdict_names_what_fails():
    said = verdict(audit(1 + LINE, np.ones((3, 1)), LINE))
    assert said.startswith("not claimed: A1 positive, A4 fail; (13)")


def test_a_monotone_kernel_competes():
    """Remark 20: ∂ṗ_i/∂p_j = −α_ij, of the other sign than a cooperative system has."""
    found = remark_20(np.exp(-LINE))
    assert found.hypotheses["f ≥ 0"].holds
    assert not found.conclusions["cooperative"].holds
    assert found.measured["share of pairs that compete"] == 1
    flow = gradient_flow(np.exp(-LINE), np.zeros((3, 1)), np.zeros((3, 1)))
    pushed = gradient_flow(np.exp(-LINE), np.zeros((3, 1)), np.array([[1.0], [0.0], [0.0]]))
    assert np.all((pushed.at(1e-3) - flow.at(1e-3))[1:] < 0)


def test_cooperative_flows_end_above_zero():
    alpha = np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, -0.5], [0.0, -0.5, 1.0]])
    found = remark_20(alpha)
    assert found.conclusions["cooperative"].holds
    assert not found.hypotheses["f ≥ 0"].holds
    end = gradient_flow(alpha, np.array([[0.0], [0.0], [1.0]]), np.zeros((3, 1))).fixed_point()
    assert np.all(end.positions > 0)
