"""The two theorems on NoPE as audits: what they compare, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from jaxpe.theory import STATEMENTS, STATEMENTS_ON_OWN_MODELS, nope_theorem_1, nope_theorem_2
from jaxpe.theory.audit import verdict

N = 5
T = np.arange(1.0, N + 1)
IDS = np.array([0, 3, 1, 4, 1])
EVEN = np.tri(N) / T[:, None]


def hidden_with(positions):
    """Hidden states `[n, 4]` with these in the third row."""
    return np.stack([T * 0 + 1, T == 1, positions, np.sin(T)], axis=1)


first_audit = jax.jit(nope_theorem_1, static_argnames=("bos", "tolerance"))
second_audit = jax.jit(nope_theorem_2, static_argnames="tolerance")


def first(positions=T, weights=EVEN, ids=IDS, **options):
    return first_audit(hidden_with(positions), weights, ids, **options)


def second(logits, content, positions=T, **options):
    return second_audit(logits, content, hidden_with(positions), **options)


def test_positions_and_even_attention_are_the_theorem():
    audit = first()
    assert verdict(audit) == "holds"
    assert audit.conclusions["h_3 = t"].lhs == audit.conclusions["(25)"].lhs == 0
    assert audit.measured["first told wrong"] == N + 1


def test_an_error_is_found_where_it_is():
    audit = first(T + np.array([0, 0.1, 0, -0.7, 0]))
    np.testing.assert_allclose(audit.measured["error by position"], [0, 0.1, 0, 0.7, 0])
    assert audit.measured["first told wrong"] == 4
    np.testing.assert_allclose(audit.measured["positions told wrong"], 1 / N)
    assert verdict(audit) == "refuted: h_3 = t fails"
    assert verdict(first(T + 0.2)) == "holds"
    assert verdict(first(T + 0.2, tolerance=0.1)) == "refuted: h_3 = t fails"


def test_it_is_not_claimed_without_its_hypotheses():
    for ids in ([3, 0, 1, 4, 1], [0, 3, 0, 4, 1], [3, 3, 1, 4, 1]):
        assert verdict(first(ids=np.array(ids))) == "not claimed: <bos> first fails; holds"
    assert first(ids=IDS + 7, bos=7).hypotheses["<bos> first"].holds
    ahead = np.full((N, N), 1 / N)
    assert verdict(first(weights=ahead)) == "not claimed: causal mask fails; (25) fails"
    uneven = EVEN.copy()
    uneven[2, :3] = [0.5, 0.25, 0.25]
    np.testing.assert_allclose(first(weights=uneven).conclusions["(25)"].lhs, 1 / 2 - 1 / 3)


def test_batches_count_the_worst_document():
    hidden = np.stack([hidden_with(T), hidden_with(T + 2.0)])
    ids, weights = np.stack([IDS, IDS[::-1]]), np.stack([EVEN, EVEN])
    audit = first_audit(hidden, weights, ids)
    assert audit.conclusions["h_3 = t"].lhs == 2
    assert audit.hypotheses["<bos> first"].lhs == 0.5


def test_logits_are_content_minus_the_offset():
    content = np.random.default_rng(0).normal(size=(N, N))
    logits = content - (T[:, None] - T[None, :])
    audit = second(logits, content)
    assert verdict(audit) == "holds"
    np.testing.assert_allclose(audit.conclusions["(36)"].lhs, 0, atol=1e-14)
    np.testing.assert_allclose(audit.measured["size of content"], np.abs(content).max())
    assert verdict(second(content, content)) == "refuted: (36) fails"
    np.testing.assert_allclose(
        second(content, content).measured["error by offset"], np.arange(N), atol=1e-14
    )


def test_keys_that_are_masked_do_not_count():
    content = np.zeros((N, N))
    logits = np.where(np.tri(N, dtype=bool), -(T[:, None] - T[None, :]), 99.0)
    assert verdict(second(logits, content)) == "holds"


def test_positions_must_be_there():
    content = np.zeros((N, N))
    audit = second(-(T[:, None] - T[None, :]), content, positions=T + 0.3)
    assert verdict(audit) == "not claimed: h_3 = t fails; holds"
    assert second(content, content, positions=T + 0.3, tolerance=0.7).hypotheses["h_3 = t"].holds


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_narrow_floats_are_taken(dtype):
    audit = first_audit(jnp.asarray(hidden_with(T), dtype), jnp.asarray(EVEN, jnp.float32), IDS)
    assert verdict(audit) == "holds"


def test_shapes_are_checked():
    with pytest.raises((ValueError, TypeCheckError), match=r"hidden|weights"):
        nope_theorem_1(hidden_with(T), EVEN[1:], IDS)
    with pytest.raises(ValueError, match="row=4 is none of the 4 rows"):
        nope_theorem_1(hidden_with(T), EVEN, IDS, row=4)
    with pytest.raises((ValueError, TypeCheckError), match="hidden"):
        nope_theorem_2(EVEN, EVEN, hidden_with(T)[1:])
    with pytest.raises(ValueError, match="row=-1 is none of the 4 rows"):
        nope_theorem_2(EVEN, EVEN, hidden_with(T), row=-1)


def test_they_are_listed_apart_from_those_of_any_model():
    names = [statement.name for statement in STATEMENTS_ON_OWN_MODELS]
    assert {"NoPE Theorem 1", "NoPE Theorem 2"} <= set(names)
    assert not set(names) & {statement.name for statement in STATEMENTS}
