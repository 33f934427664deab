"""check_attention: right attention passes, in blocks and shards, too; faults are named.

Faults of public threads are in `test_mutants.py`.
"""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import InputError
from jaxpe.conformance import alibi_bias, check_attention, t5_bias
from jaxpe.conformance.attention import ATTENTION_CHECKS
from jaxpe.conformance.diagnosis import Hypothesis, Trial, diagnose
from jaxpe.encodings import alibi, attend, mrope, rope, t5
from jaxpe.plans.programs.base import QueryScaling
from tests.conformance.ports import NONE, PLAN, Port

HEADS = {"heads": 4, "key_value_heads": 2}
TABLE = np.random.default_rng(0).normal(size=(32, 4))
PARAMS = {"table": jnp.asarray(TABLE)}
SINKS = np.array([0.5, -1.0, 2.0, 0.0])
CHUNKED = PLAN._replace(window=20, name="chunked_attention")
TWO_SIDED = PLAN._replace(window=20, two_sided=True)
SCALED = PLAN._replace(query_scaling=QueryScaling(0.5, 8.0, 1, "all"))
BOTH = {"causal": False}
# Port, plan, options, and the fault with a word of its sentence; None for none.
CASES = {
    "plain": (Port(), PLAN, {}, None),
    "window": (Port(window=300), PLAN._replace(window=300), {}, None),
    "two-sided window": (Port(window=20, two_sided=True, causal=False), TWO_SIDED, BOTH, None),
    "chunks": (Port(chunk=20), CHUNKED, {}, None),
    "softcap": (Port(more={"softcap": 5.0}), PLAN, {"softcap": 5.0}, None),
    "sinks": (Port(more={"sinks": SINKS}), PLAN, {"sinks": SINKS}, None),
    "no positions": (Port(rotate=None), NONE, {}, None),
    "wide window": (Port(window=301), PLAN._replace(window=300), {}, ("window", "301")),
    "sliding in place of chunks": (Port(window=20), CHUNKED, {}, ("window", "slides")),
    "chunks in place of sliding": (
        Port(chunk=20), PLAN._replace(window=20), {}, ("window", "is a chunk"),
    ),
    "one-sided": (Port(window=20, causal=False), TWO_SIDED, BOTH, ("window", "earlier")),
    "documents by index": (Port(documents="index"), PLAN, {}, ("documents", "each other")),
    "scale": (Port(more={"scale": 1.0}), PLAN, {}, ("scale", "wanted 0.25")),
    "two-sided": (Port(causal=False), PLAN, {}, ("causal mask", "later keys")),
    "no cap": (Port(), PLAN, {"softcap": 1.0}, ("softcap", "not capped")),
    "no sinks": (Port(), PLAN, {"sinks": SINKS}, ("sinks", "no attention")),
    "query scaling": (Port(), SCALED, {}, ("query scaling", "not scaled")),
    "bucket distance": (
        Port(rotate=None, bias=t5_bias(TABLE, max_distance=64)), NONE, {"bias": t5_bias(TABLE)},
        ("bucket distance", "64; wanted 128"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_faults_are_named_and_nothing_else(name):
    port, plan, options, fault = CASES[name]
    result = check_attention(port, plan, **HEADS, **options)
    if fault is None:
        assert result.passed, result.text()
        skipped = {check.name for check in result.checks if check.status == "not checked"}
        assert {check.name for check in result.checks} == set(ATTENTION_CHECKS)
        assert skipped == {"axes", *(() if plan.window else ("window",))}
    else:
        assert [one.name for one in result.faults] == [fault[0]], result.text()
        assert fault[1] in result.faults[0].text


def ours(encoding, params=(), *, causal=True, by_index=False, **options):
    """`jaxpe.encodings.attend` as a callable of the check."""

    def run(q, k, v, positions, *, key_positions=None, segments=None, key_segments=None):
        keys = positions if key_positions is None else key_positions
        one = np.ones(positions.shape[:2], int) if segments is None else segments
        many = np.ones(keys.shape[:2], int) if key_segments is None else key_segments
        order = [p[..., 0] if p.ndim == 3 else p for p in (positions, keys)]
        if by_index and positions.shape == keys.shape:  # of a model with several axes
            order = [np.broadcast_to(np.arange(positions.shape[1]), positions.shape[:2])] * 2
        seen = Port(causal=causal).seen(*order, one, many)
        return attend(
            encoding, params, q, k, v, q_positions=positions, k_positions=keys,
            mask=jnp.asarray(seen[:, None]), **options,
        )  # fmt: skip

    return run


OURS = {
    "blocks": (ours(rope(head_dim=16), implementation="blocks", block_size=8), PLAN, {}),
    "alibi": (ours(alibi(num_heads=4)), NONE, {"bias": alibi_bias(4)}),
    "t5": (
        ours(t5(num_heads=4), PARAMS, scale=1.0, causal=False), NONE,
        {"bias": t5_bias(TABLE, bidirectional=True), "scale": 1.0, "causal": False},
    ),
    "sections": (
        ours(mrope(head_dim=16, sections=(4, 2, 2)), by_index=True),
        PLAN._replace(sections=(4, 2, 2), section_order="contiguous"), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OURS)
def test_encodings_of_this_library_pass(name):
    run, plan, options = OURS[name]
    checks = ["values", "rows", "packed", *(["axes"] if plan.sections else [])]
    result = check_attention(run, plan, **HEADS, **options, only=checks)
    assert result.passed, result.text()


@pytest.mark.parametrize(("window", "passed"), [(20, True), (19, False), (None, False)])
def test_windows_of_paths(window, passed):
    plan, paths = PLAN._replace(window=20), {"cache": Port(window=window)}
    only = ["values", "cache"]
    result = check_attention(Port(window=20), plan, **HEADS, paths=paths, only=only)
    assert result.passed == passed, result.text()


@pytest.mark.parametrize("fault", ["window", "segments", "last keys"])
def test_faults_of_decoding_alone(fault):
    plan = PLAN._replace(window=200) if fault == "window" else PLAN
    right = Port(window=plan.window)

    def faulty(q, k, v, positions, *, key_positions, segments, key_segments):
        call = right
        if q.shape[1] == 1 and fault == "window":
            call = Port()
        elif q.shape[1] == 1 and fault == "segments":
            segments, key_segments = np.ones_like(segments), np.ones_like(key_segments)
        elif q.shape[1] == 1:
            k, v, key_positions = k[:, -64:], v[:, -64:], key_positions[:, -64:]
            key_segments = key_segments[:, -64:]
        return call(q, k, v, positions, key_positions=key_positions, segments=segments,
                    key_segments=key_segments)  # fmt: skip

    result = check_attention(faulty, plan, **HEADS)
    assert [check.name for check in result.checks if check.status == "failed"] == ["decode"]


@pytest.mark.parametrize("plan", [PLAN, TWO_SIDED])
def test_what_takes_whole_rows_alone_is_checked_on_them(plan):
    port = Port(window=plan.window, causal=not plan.two_sided)  # the window has one side
    result = check_attention(
        lambda q, k, v, positions: port(q, k, v, positions), plan, **HEADS, causal=port.causal
    )
    assert [fault.name for fault in result.faults] == ["window"] * plan.two_sided
    reasons = {check.name: check.text for check in result.checks if check.status == "not checked"}
    assert "key_positions" in reasons["decode"]
    assert "segments" in reasons["packed"]


@pytest.mark.parametrize(("error", "name"), [(0.39, "cause"), (0.41, "unexplained")])
def test_a_cause_explains_an_output_three_times_as_well_as_the_reference(error, name):
    """The output is 1.2 tolerances from the reference."""
    outputs, inputs = np.zeros((1, 1, 1, 4)), SimpleNamespace(positions=np.zeros((1, 1), int))
    trial = Trial("values", inputs, outputs, outputs + 1.2, np.ones(()))
    cause = Hypothesis("cause", "text", lambda inputs: outputs + 1.2 - error)
    assert [fault.name for fault in diagnose([trial], [cause])] == [name]


@pytest.mark.parametrize(
    ("plan", "options"),
    [
        (PLAN, {"heads": 4, "key_value_heads": 3}),
        (NONE, {"heads": 4, "bias": alibi_bias(6)}),
        (PLAN._replace(kind="linear"), {"heads": 4}),
    ],
)
def test_heads_and_plans_that_do_not_fit(plan, options):
    with pytest.raises(InputError):
        check_attention(Port(), plan, **options)
