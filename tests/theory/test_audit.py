"""Comparisons and what is said of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.theory import verdict
from jaxpe.theory.audit import Audit, all_less_equal, boolean, less_equal, within
from jaxpe.theory.cirrincione2026.evaluations import even_width
from jaxpe.theory.statements import NOTHING_COMPARED, Statement

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("lhs", "rhs", "options", "holds"),
    [
        (2.0, 5.0, {}, True),
        (2.0, 2.0, {}, True),
        (5.0, 2.0, {}, False),
        (1.0 + 1e-6, 1.0, {}, False),
        (1.0 + 1e-6, 1.0, {"tolerance": 1e-5}, True),
        (1e6 + 1.0, 1e6, {"tolerance": 1e-5}, True),
        (1e-12, 0.0, {"tolerance": 1e-5 / 2}, False),  # it is relative
        (1e-9, 0.0, {"noise": 1e-8}, True),
        (1e-7, 0.0, {"noise": 1e-8}, False),
        (1.29, 1.0, {"tolerance": 0.1 / 1.29, "noise": 0.2}, True),  # noise comes on top
        (1.31, 1.0, {"tolerance": 0.1 / 1.31, "noise": 0.2}, False),
        (NAN, 1.0, {}, False),
        (1.0, NAN, {}, False),
        (INF, 1.0, {"tolerance": 0.1}, False),
        (1.0, INF, {"tolerance": 0.1}, True),
        (INF, INF, {}, True),
    ],
)
def test_comparisons(lhs, rhs, options, holds):
    found = less_equal(lhs, rhs, **options)
    assert found.holds == holds
    np.testing.assert_equal(float(found.slack), 0.0 if lhs == rhs else rhs - lhs)
    many = all_less_equal(np.array([0.0, lhs]), np.array([0.0, rhs]), **options)
    assert many.holds == holds


def test_the_worst_of_many():
    lhs, rhs = np.array([[1.0, 7.0], [2.0, 0.0]]), np.array([[2.0, 4.0], [9.0, 0.0]])
    assert all_less_equal(lhs, rhs) == (7, 4, -3, False)
    assert all_less_equal(lhs, rhs, where=lhs < 7) == (0, 0, 0, True)
    assert all_less_equal(lhs, rhs, where=lhs > 7) == (0, 0, 0, True)
    assert all_less_equal(lhs[:0], rhs[:0]) == (0, 0, 0, True)


def test_verdicts_also_under_jit_and_vmap():
    yes, no, unchecked = boolean(True), boolean(False), {"U": None, "V": None}
    audit = jax.jit(jax.vmap(lambda x: Audit({"h": less_equal(x, 1.0)}, {}, {})))
    assert audit(np.array([0.5, 3.0])).hypotheses["h"].holds.tolist() == [True, False]
    for parts, said in [
        (({"A": yes}, {"B": yes}), "holds"),
        (({"A": yes}, {"B": no, "C": no}), "refuted: B, C fail"),
        (({"A": no}, {"B": no}), "does not apply: A fails; B fails"),
        (({}, {"B": no}, {"D": yes}), "refuted: B fails"),
        (({}, {"B": yes}, {"D": no}), "holds; of what holds instead D fails"),
        (({}, {"B": yes}, {}, unchecked), "holds; not checked: U, V"),
        (({"A": yes}, {"B": no}, {}, unchecked), "not decided: B fails; not checked: U, V"),
        (({"A": no}, {"B": yes}, {}, unchecked), "does not apply: A fails; holds"),
    ]:
        assert verdict(Audit(*parts[:2], {}, *parts[2:])) == said
    added = Audit({"A": yes}, {}, {}).add_hypotheses({"A": no, "C": no}, unchecked=("U",))
    # Its own comes first.
    assert [bool(x.holds) for x in added.hypotheses.values()] == [True, False]
    assert added.unchecked == {"U": None}


def test_even_widths_are_below_the_number_of_positions_and_16_at_most():
    assert [even_width(n) for n in (2, 3, 4, 5, 17, 18, 100)] == [0, 2, 2, 4, 16, 16, 16]


def test_the_matrix_of_the_positions_present():
    matrix = jnp.arange(9).reshape(3, 3)
    np.testing.assert_array_equal(within(matrix, np.arange(3) != 1), [[0, 2], [6, 8]])


def test_sentences_have_their_numbers_and_follow_what_holds():
    made = {
        "plain": "{lhs} of {rhs}",
        "either": {"holds": "+ {lhs}", "fails": "− {rhs}"},
        "compared": {"finite": "{lhs} and {rhs}"},
    }
    statement = Statement(*["" for _ in range(4)], "reproduced", "", made)
    for claim, sides, text in (
        ("plain", (1.0, 2.0), "1 of 2"),
        ("either", (1.0, 2.0), "+ 1"),
        ("either", (3.0, 2.0), "− 2"),
        ("compared", (0.0, 0.0), NOTHING_COMPARED),
        ("compared", (1.0, 0.0), "1 and 0"),
    ):
        assert statement.sentence(claim, less_equal(*sides), number=lambda x: f"{x:.0f}") == text
