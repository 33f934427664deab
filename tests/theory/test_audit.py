"""Comparisons and what is said of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.theory import Audit, all_less_equal, boolean, less_equal, verdict


def test_a_comparison_has_both_sides():
    found = less_equal(2.0, 5.0)
    assert (found.lhs, found.rhs, found.slack, found.holds) == (2, 5, 3, True)
    assert not less_equal(5.0, 2.0).holds
    assert less_equal(2.0, 2.0).holds


def test_tolerance_is_relative():
    assert not less_equal(1.0 + 1e-6, 1.0).holds
    assert less_equal(1.0 + 1e-6, 1.0, tolerance=1e-5).holds
    assert less_equal(1e6 + 1.0, 1e6, tolerance=1e-5).holds
    assert not less_equal(1e-12, 0.0, tolerance=1e-5 / 2).holds


@pytest.mark.parametrize("sides", [(np.nan, 1.0), (1.0, np.nan)])
def test_nothing_holds_of_nan(sides):
    assert not less_equal(*sides).holds
    lhs, rhs = (jnp.array([0.0, side]) for side in sides)
    assert not all_less_equal(lhs, rhs).holds


def test_infinities():
    assert less_equal(1.0, np.inf).holds
    assert not less_equal(np.inf, 1.0).holds
    assert not less_equal(np.inf, 1.0, tolerance=0.1).holds
    assert less_equal(1.0, np.inf, tolerance=0.1).holds
    assert less_equal(np.inf, np.inf).holds
    assert less_equal(np.inf, np.inf).slack == 0


def test_the_worst_of_many():
    lhs, rhs = jnp.array([[1.0, 7.0], [2.0, 0.0]]), jnp.array([[2.0, 4.0], [9.0, 0.0]])
    worst = all_less_equal(lhs, rhs)
    assert (worst.lhs, worst.rhs, worst.slack, worst.holds) == (7, 4, -3, False)
    others = all_less_equal(lhs, rhs, where=jnp.array([[True, False], [True, True]]))
    assert (others.lhs, others.rhs, others.holds) == (0, 0, True)
    nothing = all_less_equal(lhs, rhs, where=jnp.zeros((2, 2), bool))
    assert (nothing.lhs, nothing.rhs, nothing.slack, nothing.holds) == (0, 0, 0, True)


def test_passes_through_jit_and_vmap():
    def audit(x):
        return Audit({"h": less_equal(x, 1.0)}, {"c": all_less_equal(x * jnp.arange(3.0), 2.0)}, {})

    found = jax.jit(jax.vmap(audit))(jnp.array([0.5, 3.0]))
    assert found.hypotheses["h"].holds.tolist() == [True, False]
    assert found.conclusions["c"].lhs.tolist() == [1.0, 6.0]


def test_nothing_to_compare_holds():
    nothing = all_less_equal(jnp.zeros((0, 3)), jnp.zeros((0, 3)))
    assert (nothing.lhs, nothing.rhs, nothing.holds) == (0, 0, True)


def test_rounding_may_be_allowed_for():
    assert less_equal(1e-9, 0.0, noise=1e-8).holds
    assert not less_equal(1e-7, 0.0, noise=1e-8).holds


def test_verdicts():
    yes, no = boolean(True), boolean(False)
    assert verdict(Audit({"A": yes}, {"B": yes}, {})) == "holds"
    assert verdict(Audit({"A": yes}, {"B": no, "C": no}, {})) == "refuted: B, C fail"
    assert verdict(Audit({"A": no}, {"B": no}, {})) == "not claimed: A fails; B fails"
    assert verdict(Audit({}, {"B": no}, {}, {"D": yes})) == "refuted: B fails"
    said = verdict(Audit({}, {"B": yes}, {}, {"D": no}))
    assert said == "holds; of what holds instead D fails"
