"""Comparisons and what is said of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.theory import Audit, all_less_equal, boolean, less_equal, verdict
from jaxpe.theory.audit import within
from jaxpe.theory.cirrincione2026.evaluations import even_width
from jaxpe.theory.statements import NOTHING_COMPARED, Statement


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


def test_what_is_not_checked_leaves_a_failure_undecided():
    yes, no, unchecked = boolean(True), boolean(False), {"U": None, "V": None}
    assert verdict(Audit({}, {"B": yes}, {}, {}, unchecked)) == "holds; not checked: U, V"
    said = verdict(Audit({"A": yes}, {"B": no}, {}, {}, unchecked))
    assert said == "not decided: B fails; not checked: U, V"
    assert verdict(Audit({"A": no}, {"B": yes}, {}, {}, unchecked)) == "not claimed: A fails; holds"
    added = Audit({"A": yes}, {}, {}).add_hypotheses({"A": no, "C": no}, unchecked=("U",))
    assert [bool(x.holds) for x in added.hypotheses.values()] == [
        True,
        False,
    ]  # its own comes first
    assert added.unchecked == {"U": None}


def test_noise_comes_on_top_of_the_tolerance():
    for excess, holds in ((0.29, True), (0.31, False)):
        assert less_equal(1.0 + excess, 1.0, tolerance=0.1 / (1 + excess), noise=0.2).holds == holds


def test_even_widths_are_below_the_number_of_positions_and_16_at_most():
    assert [even_width(n) for n in (2, 3, 4, 5, 17, 18, 100)] == [0, 2, 2, 4, 16, 16, 16]


def test_the_matrix_of_the_positions_present():
    matrix = np.arange(9).reshape(3, 3)
    np.testing.assert_array_equal(within(matrix, np.arange(3) != 1), [[0, 2], [6, 8]])


def test_sentences_have_their_numbers_and_follow_what_holds():
    made = {
        "plain": "{lhs} of {rhs}",
        "either": {"holds": "+ {lhs}", "fails": "− {rhs}"},
        "compared": {"finite": "{lhs} and {rhs}"},
    }
    statement = Statement(*["" for _ in range(4)], "reproduced", "", made)
    for claim, sides, text in (
        ("plain", less_equal(1.0, 2.0), "1 of 2"),
        ("either", less_equal(1.0, 2.0), "+ 1"),
        ("either", less_equal(3.0, 2.0), "− 2"),
        ("compared", less_equal(0.0, 0.0), NOTHING_COMPARED),
        ("compared", less_equal(0.0, 1.0), "0 and 1"),
        ("compared", less_equal(1.0, 0.0), "1 and 0"),
    ):
        assert statement.sentence(claim, sides, number=lambda x: f"{x:.0f}") == text
