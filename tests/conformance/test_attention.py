"""check_attention: our attention passes, in blocks and shards, too; faults are named."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import InputError
from jaxpe.conformance import ATTENTION_CHECKS, alibi_bias, check_attention, t5_bias
from jaxpe.conformance.attention_faults import _slope_faults
from jaxpe.conformance.diagnosis import Hypothesis, Trial, diagnose
from jaxpe.conformance.reference import Alibi, published_slopes
from jaxpe.encodings import alibi, attend, identity, mrope, rope, t5
from jaxpe.plans import LayerPlan, QueryScaling, simple_plan

PLAN = simple_plan(head_dim=16, base=1e4, context=2048)
HEADS = {"heads": 4, "key_value_heads": 2}
TABLE = np.random.default_rng(0).normal(size=(32, 4))
PARAMS = {"table": jnp.asarray(TABLE)}
NONE = PLAN._replace(kind="none", turning=0, frequencies=np.zeros(0), unscaled=np.zeros(0))
SECTIONED = PLAN._replace(sections=(4, 2, 2), section_order="contiguous")
SINKS = np.array([0.5, -1.0, 2.0, 0.0])


def seen(positions, key_positions, segments, key_segments, *, window=None, causal=True):
    """Mask of pairs, `[batch, 1, n_q, n_k]`."""
    positions, keys = (p[..., 0] if p.ndim == 3 else p for p in (positions, key_positions))
    offsets = positions[:, :, None] - keys[:, None]
    mask = (offsets < (window or 2**30)) & ((offsets >= 0) | (not causal))
    return (mask & (segments[:, :, None] == key_segments[:, None]))[:, None]


def ours(encoding, params=(), *, window=None, causal=True, mask=seen, **options) -> Callable:
    """`jaxpe.encodings.attend` as a callable of the check."""

    def run(q, k, v, positions, *, key_positions=None, segments=None, key_segments=None):
        keys = positions if key_positions is None else key_positions
        one = np.ones(positions.shape[:2], int) if segments is None else segments
        many = np.ones(keys.shape[:2], int) if key_segments is None else key_segments
        visible = mask(positions, keys, one, many, window=window, causal=causal)
        return attend(
            encoding, params, q, k, v, q_positions=positions, k_positions=keys,
            mask=jnp.asarray(visible), **options,
        )  # fmt: skip

    return run


def two_sided(positions, keys, segments, key_segments, **options):
    offsets = np.abs(positions[:, :, None] - keys[:, None])
    return ((offsets < 20) & (segments[:, :, None] == key_segments[:, None]))[:, None]


def chunks(positions, keys, *segments, size=20, **options):
    same = positions[:, :, None] // size == keys[:, None] // size
    return seen(positions, keys, *segments) & same[:, None]


class Case(NamedTuple):
    attend: Callable
    plan: LayerPlan
    options: dict = {}  # noqa: RUF012


ROPE = rope(head_dim=16)
RIGHT = {
    "rope": Case(ours(ROPE), PLAN),
    "blocks": Case(ours(ROPE, implementation="blocks", block_size=8), PLAN),
    "window": Case(ours(ROPE, window=300), PLAN._replace(window=300)),
    "two-sided window": Case(
        ours(ROPE, mask=two_sided), PLAN._replace(window=20, two_sided=True), {"causal": False},
    ),
    "chunks": Case(
        ours(ROPE, mask=chunks), PLAN._replace(window=20, name="chunked_attention"),
    ),
    "softcap": Case(ours(ROPE, cap=5.0), PLAN, {"softcap": 5.0}),
    "sinks": Case(ours(ROPE, sink=SINKS), PLAN, {"sinks": SINKS}),
    "no positions": Case(ours(identity()), NONE),
    "alibi": Case(ours(alibi(num_heads=4)), NONE, {"bias": alibi_bias(4)}),
    "t5 decoder": Case(
        ours(t5(num_heads=4, bidirectional=False), PARAMS, scale=1.0),
        NONE, {"bias": t5_bias(TABLE), "scale": 1.0},
    ),
    "t5 encoder": Case(
        ours(t5(num_heads=4), PARAMS, scale=1.0, causal=False),
        NONE, {"bias": t5_bias(TABLE, bidirectional=True), "scale": 1.0, "causal": False},
    ),
    "sections": Case(ours(mrope(head_dim=16, sections=(4, 2, 2))), SECTIONED),
}  # fmt: skip


def by_index(*arguments, **options):
    """Mask of a model with several axes, which is causal by the index in the row."""
    positions, keys, *segments = arguments
    if positions.ndim < 3 or positions.shape != keys.shape:
        return seen(*arguments, **options)
    run = np.broadcast_to(np.arange(positions.shape[1]), positions.shape[:2])
    return seen(run, run, *segments, **options)


@pytest.mark.parametrize("name", RIGHT)
def test_right_implementations_pass(name):
    case = RIGHT[name]
    run = case.attend
    if name == "sections":
        run = ours(mrope(head_dim=16, sections=(4, 2, 2)), mask=by_index)
    paths = {"cache": _token_by_token(run)} if name == "rope" else {}
    result = check_attention(run, case.plan, **HEADS, **case.options, paths=paths)
    assert result.passed, result.text()
    skipped = {check.name for check in result.checks if check.status == "not checked"}
    of_path = {name for name in skipped if "," in name}  # the cache takes no segments
    assert of_path == (
        {f"cache, {x}" for x in ("left padding", "packed", "window")} if paths else set()
    )
    skipped -= of_path
    assert {check.name for check in result.checks} - of_path == {*ATTENTION_CHECKS, *paths}
    wanted = {"axes", "window"} - ({"window"} if case.plan.window else set())
    assert skipped == wanted - ({"axes"} if case.plan.sections else set())


def _token_by_token(run: Callable, position: Callable = lambda t: t) -> Callable:
    """Attention with a cache of a fixed number of keys, one token at a time."""

    def decode(q, k, v, positions):
        outputs, filled = [], np.arange(q.shape[1]) + 0 * positions
        for t in range(q.shape[1]):
            outputs.append(
                run(q[:, t : t + 1], k, v, positions[:, t : t + 1] * 0 + position(t),
                    key_positions=positions, segments=np.ones_like(positions[:, :1]),
                    key_segments=(filled <= t).astype(int))
            )  # fmt: skip
        return np.concatenate(outputs, 1)

    return decode


def _all_documents(positions, keys, segments, key_segments, **options):
    return seen(positions, keys, (segments > 0) + 0, (key_segments > 0) + 0, **options)


def _by_index(positions, keys, segments, key_segments, **options):
    """Causal mask by the index in the row, documents unseen."""
    if positions.shape != keys.shape:
        return seen(positions, keys, segments, key_segments, **options)
    n = positions.shape[1]
    return (np.tri(n, dtype=bool) & (key_segments > 0)[:, None])[:, None]


FAULTS: dict[str, tuple[Case, str, str]] = {
    "pairing": (
        Case(ours(rope(head_dim=16, layout="interleaved")), PLAN), "pairing", "wanted half",
    ),
    "base": (Case(ours(rope(head_dim=16, base=5e5)), PLAN), "base", "500,000"),
    "keys alone": (
        Case(ours(ROPE, encoded_queries=True), PLAN),
        "not rotated", "queries are not rotated; keys are right",
    ),
    "no positions": (Case(ours(identity()), PLAN), "not rotated", "queries and keys are not"),
    "needless": (Case(ours(ROPE), NONE), "needless rotation", "10,000"),
    "window": (
        Case(ours(ROPE, window=301), PLAN._replace(window=300)),
        "window", "301 keys, itself included; wanted 300",
    ),
    "sliding in place of chunks": (
        Case(ours(ROPE, window=20), PLAN._replace(window=20, name="chunked_attention")),
        "window", "the window slides",
    ),
    "chunks in place of sliding": (
        Case(ours(ROPE, mask=chunks), PLAN._replace(window=20)), "window", "is a chunk",
    ),
    "one-sided": (
        Case(ours(ROPE, window=20, causal=False), PLAN._replace(window=20, two_sided=True),
             {"causal": False}),
        "window", "earlier keys alone",
    ),
    "no window": (Case(ours(ROPE), PLAN._replace(window=300)), "no window", "wanted 300"),
    "documents": (
        Case(ours(ROPE, mask=_all_documents), PLAN), "documents", "look at each other",
    ),
    "documents by index": (
        Case(ours(ROPE, mask=_by_index), PLAN), "documents", "look at each other",
    ),
    "scale": (Case(ours(ROPE, scale=1.0), PLAN), "scale", "scaled by 1; wanted 0.25"),
    "two-sided": (Case(ours(ROPE, causal=False), PLAN), "causal mask", "later keys"),
    "no cap": (Case(ours(ROPE), PLAN, {"softcap": 1.0}), "softcap", "not capped"),
    "no sinks": (Case(ours(ROPE), PLAN, {"sinks": SINKS}), "sinks", "no attention"),
    "slopes": (
        Case(ours(alibi(num_heads=4, slopes=2.0 ** (-2.0 * np.arange(4)))), NONE,
             {"bias": alibi_bias(4)}),
        "slopes", "from h = 0",
    ),
    "no bias": (Case(ours(identity()), NONE, {"bias": alibi_bias(4)}), "no bias", "no bias"),
    "buckets": (
        Case(ours(t5(num_heads=4), PARAMS), NONE, {"bias": t5_bias(TABLE)}),
        "bucket direction", "decoder",
    ),
    "distance": (
        Case(ours(t5(num_heads=4, bidirectional=False, max_distance=64), PARAMS),
             NONE, {"bias": t5_bias(TABLE)}),
        "bucket distance", "64; wanted 128",
    ),
    "sections": (
        Case(ours(mrope(head_dim=16, sections=(4, 2, 2), interleaved_sections=True),
                  mask=by_index), SECTIONED),
        "sections", "interleaved",
    ),
    "query scaling": (
        Case(ours(ROPE), PLAN._replace(query_scaling=QueryScaling(0.5, 8.0, 1, "all"))),
        "query scaling", "not scaled",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault):
    case, name, text = FAULTS[fault]
    result = check_attention(case.attend, case.plan, **HEADS, **case.options)
    assert [one.name for one in result.faults] == [name], result.text()
    assert text in result.faults[0].text


def test_faulty_slopes_of_six_heads_are_those_of_four_and_of_eight():
    faults = [bias.slopes for *_, bias in _slope_faults(Alibi(published_slopes(6)))]
    np.testing.assert_allclose(-np.log2(faults[2]), [1, 2, 3, 4, 5, 6])
    np.testing.assert_allclose(-np.log2(faults[3]), [2, 4, 6, 8, 2, 4])


@pytest.mark.parametrize(("position", "text"), [
    (lambda t: 0, "queries: all positions are 0"), (lambda t: t + 1, "queries: positions are 1"),
])  # fmt: skip
def test_a_faulty_cache_is_found_beside_a_right_prefill(position, text):
    run = ours(ROPE)
    paths = {"cache": _token_by_token(run, position)}
    result = check_attention(run, PLAN, **HEADS, paths=paths)
    assert [check.name for check in result.checks if check.status == "failed"] == ["cache"]
    assert text in result.faults[0].text
    alone = check_attention(run, PLAN, **HEADS, paths=paths, only=["cache, values"])
    assert [(check.name, check.status) for check in alone.checks] == [("cache", "failed")]


@pytest.mark.parametrize(("window", "passed"), [(20, True), (19, False), (None, False)])
def test_windows_of_paths(window, passed):
    run, path = ours(ROPE, window=20), ours(ROPE, window=window)
    plan = PLAN._replace(window=20)
    result = check_attention(run, plan, **HEADS, paths={"cache": path}, only=["values", "cache"])
    assert result.passed == passed, result.text()


@pytest.mark.parametrize("fault", ["window", "segments", "last keys"])
def test_faults_of_decoding_alone(fault):
    plan = PLAN._replace(window=200) if fault == "window" else PLAN
    run = ours(ROPE, window=plan.window)

    def faulty(q, k, v, positions, *, key_positions, segments, key_segments):
        call = run
        if q.shape[1] == 1 and fault == "window":
            call = ours(ROPE)
        elif q.shape[1] == 1 and fault == "segments":
            segments, key_segments = np.ones_like(segments), np.ones_like(key_segments)
        elif q.shape[1] == 1:
            k, v, key_positions = k[:, -64:], v[:, -64:], key_positions[:, -64:]
            key_segments = key_segments[:, -64:]
        return call(q, k, v, positions, key_positions=key_positions, segments=segments,
                    key_segments=key_segments)  # fmt: skip

    result = check_attention(faulty, plan, **HEADS)
    assert [check.name for check in result.checks if check.status == "failed"] == ["decode"]


def test_heads_that_are_tiled():
    run = ours(ROPE)

    def tiled(q, k, v, positions):
        return run(q, jnp.tile(k, (1, 1, 2, 1)), jnp.tile(v, (1, 1, 2, 1)), positions)

    result = check_attention(tiled, PLAN, **HEADS)
    assert [fault.name for fault in result.faults] == ["grouped heads"]
    reasons = {check.name: check.text for check in result.checks if check.status == "not checked"}
    assert reasons["decode"] == "attend takes no key_positions"
    assert reasons["packed"] == "attend takes no segments"


def test_a_window_alone_is_diagnosed():
    plan = PLAN._replace(window=300)
    result = check_attention(ours(ROPE, window=301), plan, **HEADS, only=["window"])
    assert [fault.name for fault in result.faults] == ["window"]
    assert [check.name for check in result.checks] == ["window"]


def test_both_edges_of_a_window_are_seen_without_key_positions():
    run = ours(ROPE, window=20, causal=False)

    def whole_rows(q, k, v, positions):
        return run(q, k, v, positions)

    plan = PLAN._replace(window=20, two_sided=True)
    result = check_attention(whole_rows, plan, **HEADS, causal=False, only=["window"])
    assert [fault.name for fault in result.faults] == ["window"]
    assert "earlier keys alone" in result.faults[0].text


@pytest.mark.parametrize(("error", "name"), [(0.39, "cause"), (0.41, "unexplained")])
def test_a_cause_explains_an_output_three_times_as_well_as_the_reference(error, name):
    """The output is 1.2 tolerances from the reference."""
    outputs, inputs = np.zeros((1, 1, 1, 4)), SimpleNamespace(positions=np.zeros((1, 1), int))
    trial = Trial("values", inputs, outputs, outputs + 1.2, np.ones(()))
    cause = Hypothesis("cause", "text", lambda inputs: outputs + 1.2 - error)
    assert [fault.name for fault in diagnose([trial], [cause])] == [name]


def test_errors():
    with pytest.raises(InputError, match="key_value_heads must divide heads; got 3 and 4"):
        check_attention(ours(ROPE), PLAN, heads=4, key_value_heads=3)
    with pytest.raises(InputError, match="`bias` has 6 heads; wanted 4"):
        check_attention(ours(ROPE), NONE, **HEADS, bias=alibi_bias(6))
    with pytest.raises(InputError, match="have no attention"):
        check_attention(ours(ROPE), PLAN._replace(kind="linear"), heads=4)
