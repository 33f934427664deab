"""Lemma 18: its contradiction, its bound, its last step; and Remark 20."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.geometry import Distances
from jaxpe.ntk import gradient_flow
from jaxpe.theory import lemma_18, remark_20, verdict

LINE = 0.3 * np.abs(np.arange(3.0)[:, None] - np.arange(3.0))
ONES = np.ones((3, 1))


def random_case(seed, n=7, d=2, decay=3.0):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(size=n))
    D = np.abs(x[:, None] - x)
    return np.exp(-decay * D), rng.normal(size=(n, d)), D


def held(audit):
    return {name for name, comparison in audit.hypotheses.items() if comparison.holds}


def test_no_increasing_kernel_is_positive_definite():
    """(A1) asks for both; with f(0)² < f(d)² λ_min is negative. A decreasing one is possible."""
    for alpha in (1 + LINE, 1e-3 + LINE**2, 5 + np.sqrt(LINE)):
        found = lemma_18(alpha, ONES, LINE)
        assert {"A1 increasing", "A1 diagonal"} <= held(found)
        assert found.hypotheses["A1 positive"].rhs < 0
        assert "A1 positive" not in held(found)
    assert verdict(lemma_18(1 + LINE, ONES, LINE)).startswith(
        "does not apply: A1 positive, A4 fail;"
    )
    found = lemma_18(np.exp(-LINE), ONES, LINE)
    assert found.measured["explained by decreasing f"] == 1
    assert held(found) & {"A1 positive", "A1 diagonal", "A1 increasing"} == {"A1 positive"}


def test_constant_forcing_on_three_positions_is_not_monotone():
    """Everything but the sign of f as asked for: C_b = 0, a corpus on a line, bounded orbits.

    P* = α⁻¹1 has p_0 = p_2 by symmetry and p_1 apart, although 1 is nearer to 0 than 2 is. Nor is
    it if (A1) were asked for i ≠ j alone: α = 2 I + 0.2 d meets all of it.
    """
    for alpha in (np.exp(-LINE), 2 * np.eye(3) + 0.2 * LINE):
        found = lemma_18(alpha, ONES, LINE)
        assert {"A1 positive", "A2", "A3", "A4"} <= held(found)
        assert found.measured["C_b"] == 0
        assert not found.conclusions["monotone"].holds
        P = np.linalg.solve(alpha, ONES)
        np.testing.assert_allclose(P[0], P[2])
        assert abs(P[0] - P[1]) > 0.01


def test_the_published_bound_depends_on_the_unit_of_time():
    """Where (A1) is not met, (13) may fail: α and b times s have the same P*, (13) the factor ‖f‖∞.

    This refutes nothing: no kernel meets (A1), so the lemma is vacuous.
    """
    found = [lemma_18(s * np.exp(-LINE), s * ONES, LINE).conclusions for s in (1.0, 1e-3)]
    assert [bool(conclusions["(13)"].holds) for conclusions in found] == [True, False]
    assert found[1]["(13) with n"].holds


@pytest.mark.parametrize(("seed", "decay"), [(0, 3.0), (1, 1.0), (2, 3.0)])
def test_bounds_and_measured_constants_are_what_they_say(seed, decay):
    """With n, (13) is the triangle inequality; what holds instead is the energy bound."""
    alpha, b, D = random_case(seed, decay=decay)
    audit = lemma_18(alpha, b, D)
    found = audit.measured
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
    orbit = [np.linalg.norm(flow.at(t), axis=1).max() for t in np.linspace(0, 200, 40)]
    assert max(orbit) <= found["R"] * 1.001
    assert found["share above 2R"] == 1
    assert audit.conclusions["(13) with n"].holds
    assert audit.instead["energy bound"].holds
    P, inverse = np.linalg.solve(alpha, b), np.linalg.inv(alpha)
    lhs = np.linalg.norm(P[:, None] - P, axis=-1)
    own = np.diag(inverse)
    rhs = np.sqrt((own[:, None] + own - 2 * inverse) * np.trace(b.T @ P))
    slack = (rhs - lhs)[i, j]
    np.testing.assert_allclose(audit.instead["energy bound"].slack, slack.min(), rtol=1e-8)


def test_absent_positions_do_not_count():
    alpha, b, D = random_case(1)
    present = np.array([True] * 5 + [False] * 2)
    some = lemma_18(alpha, b, Distances(jnp.asarray(D), jnp.asarray(present)))
    part = lemma_18(alpha[:5, :5], b[:5], D[:5, :5])
    for name in ("explained by decreasing f", "C_b", "L_f", "R"):
        np.testing.assert_allclose(some.measured[name], part.measured[name], rtol=1e-6)
    for name in ("(13) with n", "energy bound", "monotone"):
        mine, theirs = ((a.conclusions | a.instead)[name] for a in (some, part))
        np.testing.assert_allclose(mine[:2], theirs[:2], rtol=1e-6)


def test_singular_kernels_and_equal_distributions():
    found = lemma_18(np.ones((3, 3)), np.arange(3.0)[:, None], LINE)
    # b leaves the range: P grows without end.
    assert not held(found) & {"A1 positive", "A4"}
    assert np.isinf(found.measured["condition"])
    assert not found.conclusions["(13)"].holds
    assert all(np.isfinite(c.lhs) for c in found.conclusions.values())
    assert lemma_18(np.eye(3), ONES, 0 * LINE).measured["C_b"] == 0
    found = lemma_18(np.eye(3), np.arange(3.0)[:, None], 0 * LINE)
    assert np.isinf(found.measured["C_b"])
    assert "A2" not in held(found)
    with pytest.raises(ValueError, match="alpha"):
        lemma_18(np.eye(2), ONES, LINE)


def test_a_monotone_kernel_competes_and_cooperative_flows_end_above_zero():
    """Remark 20: ∂ṗ_i/∂p_j = −α_ij, of the other sign than a cooperative system has."""
    found = remark_20(np.exp(-LINE))
    assert held(found) == {"f ≥ 0"}
    assert not found.conclusions["cooperative"].holds
    assert found.measured["share of pairs that compete"] == 1
    alpha = np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, -0.5], [0.0, -0.5, 1.0]])
    found = remark_20(alpha)
    assert not held(found)
    assert found.conclusions["cooperative"].holds
    np.testing.assert_allclose(found.measured["share of pairs that cooperate"], 2 / 3)
