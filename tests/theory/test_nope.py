"""The two theorems on NoPE as audits: what they compare, and what they refuse."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.theory import STATEMENTS, STATEMENTS_ON_OWN_MODELS, nope_theorem_1, nope_theorem_2
from jaxpe.theory.audit import verdict
from tests.unchecked import unchecked

N = 5
T = np.arange(1.0, N + 1)
IDS = np.array([0, 3, 1, 4, 1])
EVEN = np.tri(N) / T[:, None]


def hidden_with(positions):
    """Hidden states `[n, 4]` with these in the third row."""
    return np.stack([T * 0 + 1, T == 1, positions, np.sin(T)], axis=1)


def first(positions=T, weights=EVEN, ids=IDS, **options):
    return nope_theorem_1(hidden_with(positions), weights, ids, **options)


def second(logits, content, positions=T, **options):
    return nope_theorem_2(logits, content, hidden_with(positions), **options)


def test_positions_and_even_attention_are_the_theorem():
    audit = first()
    assert verdict(audit) == "holds"
    assert audit.conclusions["h_3 = t"].lhs == audit.conclusions["(25)"].lhs == 0
    assert audit.measured["first told wrong"] == N + 1
    narrow = jnp.asarray(hidden_with(T), jnp.bfloat16)
    assert verdict(nope_theorem_1(narrow, EVEN.astype(np.float32), IDS)) == "holds"


def test_an_error_is_found_where_it_is():
    audit = first(T + np.array([0, 0.1, 0, -0.7, 0]))
    np.testing.assert_allclose(audit.measured["error by position"], [0, 0.1, 0, 0.7, 0])
    assert audit.measured["first told wrong"] == 4
    np.testing.assert_allclose(audit.measured["positions told wrong"], 1 / N)
    assert verdict(audit) == "refuted: h_3 = t fails"
    assert verdict(first(T + 0.2)) == "holds"
    assert verdict(first(T + 0.2, tolerance=0.1)) == "refuted: h_3 = t fails"
    many = np.stack([hidden_with(T), hidden_with(T + 2.0)])  # the worst document counts
    worst = nope_theorem_1(many, np.stack([EVEN, EVEN]), np.stack([IDS, IDS[::-1]]))
    assert worst.conclusions["h_3 = t"].lhs == 2
    assert worst.hypotheses["<bos> first"].lhs == 0.5


def test_it_is_not_claimed_without_its_hypotheses():
    for ids in ([3, 0, 1, 4, 1], [0, 3, 0, 4, 1], [3, 3, 1, 4, 1]):
        assert verdict(first(ids=np.array(ids))) == "does not apply: <bos> first fails; holds"
    assert first(ids=IDS + 7, bos=7).hypotheses["<bos> first"].holds
    ahead = np.full((N, N), 1 / N)
    assert verdict(first(weights=ahead)) == "does not apply: causal mask fails; (25) fails"
    uneven = EVEN.copy()
    uneven[2, :3] = [0.5, 0.25, 0.25]
    np.testing.assert_allclose(first(weights=uneven).conclusions["(25)"].lhs, 1 / 2 - 1 / 3)


def test_logits_are_content_minus_the_offset():
    content = np.random.default_rng(0).normal(size=(N, N))
    logits = content - (T[:, None] - T[None, :])
    masked = np.where(np.tri(N, dtype=bool), logits, 99.0)  # later keys do not count
    audit = second(masked, content)
    assert verdict(audit) == "holds"
    np.testing.assert_allclose(audit.conclusions["(36)"].lhs, 0, atol=1e-14)
    np.testing.assert_allclose(audit.measured["size of content"], np.abs(content).max())
    wrong = second(content, content)
    assert verdict(wrong) == "refuted: (36) fails"
    np.testing.assert_allclose(wrong.measured["error by offset"], np.arange(N), atol=1e-14)
    away = second(logits, content, positions=T + 0.3)
    assert verdict(away) == "does not apply: h_3 = t fails; holds"
    assert second(logits, content, positions=T + 0.3, tolerance=0.7).hypotheses["h_3 = t"].holds


def test_shapes_are_checked():
    hidden = hidden_with(T)
    for call, message in [
        (lambda: nope_theorem_1(hidden, EVEN[1:], IDS), "weights"),
        (lambda: nope_theorem_1(hidden, EVEN, IDS, row=4), "row"),
        (lambda: nope_theorem_2(EVEN, EVEN, hidden[1:]), "hidden"),
        (lambda: nope_theorem_2(EVEN, EVEN, hidden, row=-1), "row"),
    ]:
        with unchecked(), pytest.raises(ValueError, match=message):
            call()


def test_they_are_listed_apart_from_those_of_any_model():
    names = {statement.name for statement in STATEMENTS_ON_OWN_MODELS}
    assert {"NoPE Theorem 1", "NoPE Theorem 2"} <= names
    assert not names & {statement.name for statement in STATEMENTS}
