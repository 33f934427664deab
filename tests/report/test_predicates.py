"""Sentences and advice at the number that decides them, and at the numbers next to it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jaxpe.report.corpora import corpora_summary
from jaxpe.report.inspect.text import _change, geometry_sentences

from jaxpe.analysis.bench import BenchOptions, BenchResult, Verdict
from jaxpe.analysis.bench.job import suite_of
from jaxpe.analysis.corpora import LEVEL, ComparedPair, CorporaComparison
from jaxpe.analysis.corpus import Interval
from jaxpe.analysis.extrapolation import SeedInterval
from jaxpe.analysis.extrapolation.ranks import Lead
from jaxpe.analysis.inspect import GeometryStage, PositionMove
from jaxpe.data import NeighbourSimilarity
from jaxpe.report.bench.advice import advice as bench_advice
from jaxpe.report.corpus.predicates import beats_equal, nearness
from jaxpe.report.corpus.text import keyed_sentences
from jaxpe.report.text import number
from tests.report.factory import N, analysis

LEAST = math.ulp(0.0)
REPORT = analysis()  # of two significant dimensions


def above(x: float) -> float:
    return math.nextafter(x, math.inf)


def below(x: float) -> float:
    return math.nextafter(x, -math.inf)


def changed(**fields: Any) -> Any:
    """The usual report with other fields; of a nested one, some of its own as a dict."""
    nested = {
        name: getattr(REPORT, name)._replace(**value)
        for name, value in fields.items()
        if isinstance(value, dict) and name != "intervals"
    }
    return REPORT._replace(**fields | nested)


def said(key: str, fields: Callable[[Any], dict[str, Any]]) -> Callable[[Any], bool]:
    """Whether the report on a corpus has a sentence, by the number in it."""
    return lambda value: key in keyed_sentences(changed(**fields(value)))


def _own(second: float, width: float) -> dict[str, Any]:
    """Stress of two dimensions, of which both are significant; the first is 0, up to an end."""
    own = [Interval(0.0, 0.0, width), Interval(second, second, second)]
    return {"held_out": {"own": own}}


def _over_equal(*ends: float) -> Any:
    return changed(held_out={"over_equal": Interval(*ends)})


def _gain_keys(ends: tuple[float, float]) -> set[str]:
    keys = keyed_sentences(changed(held_out={"gain": Interval(0.0, *ends)}))
    verdicts = ("fitted ", "fixed scores", "fixed ties")
    return {key for key in keys if key.startswith(verdicts)}


def share(name: str, *ends: float) -> dict[str, Any]:
    return {"intervals": REPORT.intervals | {name: Interval(*ends)}}


def bench(seeds: int) -> str:
    """Advice on the smallest budget, where one comparison needs seeds."""
    options, lead = BenchOptions(encoding="alibi"), SeedInterval(*np.zeros(3))
    verdict = Verdict("copy", "rope", "not decided", lead, seeds)
    (step,) = bench_advice(BenchResult(options, suite_of(options), 0.95, (), (), (verdict,)))
    return "seeds" if f"--seeds {seeds}" in step.paste else "budget"


def corpora(p_adjusted: float) -> str:
    """Summary of two pairs of corpora, one of them certain."""
    pair = ComparedPair("a", "b", 1, 0.5, 0.0, 0.0, 0.1, np.zeros(1), 0.5, 4, 4, 100, True)
    pairs = [pair, pair._replace(p_adjusted=p_adjusted)]
    return corpora_summary(CorporaComparison("words", 4, 2, 99, 0, [], pairs, [])).split(
        " differ "
    )[0][-1]


def geometry(corrected: float) -> bool:
    fields = dict.fromkeys(GeometryStage._fields, None)
    numbers = {"corrected": corrected, "shuffled": Interval(0.4, 0.3, 0.5), "significant": 1}
    return "fits better" in " ".join(geometry_sentences(GeometryStage(**fields | numbers)))


def moved(change: float) -> bool:
    move = PositionMove("shuffled", *[Interval(change, change, change)] * 2, None)
    return _change(move, "it").startswith("changes")


def nearness_of(ends: tuple[float, float], *, sign: int = 1) -> str:
    """Nearness by its interval, of distances that grow with the offset, or fall."""
    curve = {"by_offset": np.sort(sign * REPORT.position.by_offset, axis=0)[[1, 0, 2]]}
    return nearness(changed(position=curve, **share("nearness", 0.0, *ends)))


PREDICATES: dict[str, tuple[Callable[[Any], Any], dict[Any, Any]]] = {
    "number": (
        number,
        {
            **{0.0: "0", LEAST: "< 1e-6", below(1e-6): "< 1e-6", 1e-6: "1e-06"},
            **{-LEAST: "> -1e-6", -1e-6: "-1e-06", below(999.5): "999", 999.5: "1,000"},
            **{-999.5: "-1,000", 9999.5: "10,000"},
        },
    ),
    "advice on a benchmark": (bench, {1: "seeds", 20: "seeds", 21: "budget"}),
    "pairs that differ": (corpora, {LEVEL: "2", above(LEVEL): "1"}),
    "few reach": (
        said("few reach", lambda last: {"documents_per_position": np.full(N, last)}),
        {11_231: True, 11_232: False},  # of 12,480 documents
    ),
    "few reach, of the last position with tokens": (
        said("few reach", lambda last: {"documents_per_position": np.append([last] * (N - 1), 0)}),
        {11_231: True, 11_232: False},
    ),
    "like composition": (
        said("like composition", lambda r: {"position": {"composition_correlation": r}}),
        {below(0.3): False, 0.3: True},
    ),
    "clipped shares": (
        said("clipped shares", lambda x: share("noise_share", x, x, x)),
        {1.004: False, 1.006: True, -0.004: False, -0.006: True},
    ),
    "neighbours' p-value": (
        said("neighbours", lambda p: {"neighbours": NeighbourSimilarity(0.11, 0.001, p, 99)}),
        {below(0.01): True, 0.01: False},
    ),
    "neighbours' similarity": (
        said("neighbours", lambda x: {"neighbours": NeighbourSimilarity(x, 0.001, 0.001, 99)}),
        {0.01: False, above(0.01): True},
    ),
    "groups": (said("groups", lambda count: {"groups": count}), {11_232: True, 11_233: False}),
    "another dimension, by a tie": (
        said("another dimension", lambda x: _own(x, 0.0)),
        {0.0: False, 0.01: False, above(0.01): True},
    ),
    "another dimension, by an interval": (
        said("another dimension", lambda x: _own(x, 0.02)),
        {0.01: False, 0.02: False, above(0.02): True},
    ),
    "noise that wide encodings fit": (
        said("wider fit noise", lambda x: share("noise_share", 0.5, x, 0.6)),
        {0.01: False, above(0.01): True},
    ),
    "gain": (
        _gain_keys,
        {
            **{(LEAST, 1.0): {"fixed scores worse", "fitted better"}},
            **{ends: {"fixed ties", "fitted undecided"} for ends in ((0.0, 1.0), (-1.0, 0.0))},
            (-1.0, -LEAST): {"fixed scores better", "fitted worse"},
        },
    ),
    "nearness": (
        nearness_of,
        {(LEAST, 1.0): "more", **dict.fromkeys(((0.0, 1.0), (-1.0, 0.0)), "undecided")},
    ),
    "nearness, by the trend of distances": (
        lambda case: nearness_of(case[1:], sign=case[0]),
        {
            **{(1, 0.1, 0.3): "more", (-1, 0.1, 0.3): "mixed"},
            **{(1, -0.3, -0.1): "mixed", (-1, -0.3, -0.1): "less"},
        },
    ),
    "a lead": (
        lambda low: Lead(("rope",), SeedInterval(*map(np.array, (0.1, low, 0.2))), True).sure,
        {-LEAST: False, 0.0: False, LEAST: True},
    ),
    "over equal distances, by an interval": (
        lambda low: beats_equal(_over_equal(0.2, low, 0.3)),
        {0.0: False, LEAST: True},
    ),
    "over equal distances, by a tenth": (  # of 0.48
        lambda size: beats_equal(_over_equal(size, 0.01, 0.3)),
        {0.047: False, 0.049: True},
    ),
}


@pytest.mark.parametrize("name", PREDICATES)
def test_what_is_said_changes_at_its_number(name):
    predicate, values = PREDICATES[name]
    assert {value: predicate(value) for value in values} == values
