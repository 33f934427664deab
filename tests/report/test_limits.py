"""Numbers at which an inspection, a figure or a table says something else."""

import re
from typing import Any

import pytest

from jaxpe.analysis.corpus import Interval
from jaxpe.report import encodings
from jaxpe.report.corpus import figures as corpus
from jaxpe.report.text import number, percent, with_interval
from tests.report.factory import analysis, score
from tests.report.test_predicates import below


def title(draw: Any, **fields: Any) -> str:
    return draw(analysis(**fields)).get_suptitle().replace("\N{NO-BREAK SPACE}", " ")


def position_title(low: float) -> str:
    shares = {f"{name}_share": Interval(0.06, low, 0.08) for name in ("noise", "composition")}
    shares["position_share"] = Interval(0.06, low, 0.08)
    return title(corpus.shares_figure, intervals=shares)


LIMITS: dict[str, tuple[Any, dict[Any, Any]]] = {
    "share of position": (
        lambda low: re.findall(r"at most 8|6 %", position_title(low))[0],
        {0.0: "at most 8", 1e-6: "6 %"},
    ),
    "encodings that follow distances": (
        lambda r: title(corpus.scatter_figure, encodings=[score("alibi", mantel_r=r)])[:9],
        {0.3: "Highest M", 0.2999: "No fixed "},
    ),
    "digits of a growth": (
        encodings._digits,
        {0.0: "0.00", 0.0049: "5e-03", 0.0051: "0.01", 99.99: "99.99", 100.0: "100"},
    ),
    "thousands": (
        encodings.scaled,
        {below(999.5): "999", 999.5: "1k", 999_499.0: "999k", 999_500.0: "1M", 2e9: "2G"},
    ),
    "shares that look equal": (  # an interval of 4 %, of which a twentieth is 0.2 %
        lambda x: with_interval(Interval(x, 0.051, 0.091), percent).replace("\xa0", ""),
        {0.0525: "5% (5% to 9%)", 0.0535: "5.3% (5.1% to 9.1%)"},
    ),
    "ends near 0": (  # a thousandth of the width is 0.00012
        lambda low: with_interval(Interval(0.06, low, 0.12), number),
        {0.0001: "0.06 (0.00 to 0.12)", 0.00013: "0.0600 (0.0001 to 0.1200)"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_what_is_said_changes_at_its_number(name):
    said, values = LIMITS[name]
    assert {value: said(value) for value in values} == values
