"""Numbers at which an inspection, a figure or a table says something else."""

import math
import re
from typing import Any

import numpy as np
import pytest

from jaxpe.analysis.corpus import Interval
from jaxpe.analysis.inspections import UsualRange, inspected_models
from jaxpe.report import encodings
from jaxpe.report.corpus import figures as corpus
from jaxpe.report.inspect import summary, text
from jaxpe.report.text import number, percent, with_interval
from tests.report import test_figure_values_models as models
from tests.report.factory import analysis, score
from tests.report.test_numbers import RESULT, moved
from tests.report.test_predicates import LEAST, above, below

MODEL = inspected_models()[0]


def word(said: str | list[str], *words: str) -> str:
    """The first of these words in sentences, or nothing."""
    joined = said if isinstance(said, str) else " ".join(said)
    return next((x for x in words if x in joined), "")


def unusual(low: float, high: float) -> str:
    """Whether a measure is outside of a range from 0.2 to 0.5."""
    values = {"probe": Interval(0.3, low, high)}
    return word(
        [*summary._unusual(MODEL._replace(values=values))], "Above", "Below", "in the range"
    )


def ordered(low: float, high: float) -> str:
    ends = models.MOVES[1]._replace(change=Interval(0.1, low, high))
    stage = models.ABLATION._replace(moved=[models.MOVES[0], ends])
    return word(summary._order_sentence(stage), "adds", "takes", "not change")


def degree(distance: float) -> str:
    """Of an output that shuffled positions move by a share of the way to unrelated documents."""
    shuffled = models.MOVES[1]._replace(value=Interval(1 - 0.5 * distance, 0.0, 1.0))
    stage = models.ABLATION._replace(
        measure="embedding", moved=[models.MOVES[0], shuffled], reference=0.5
    )
    return word(text.ablation_sentences(stage), "hardly", "moderately", "strongly")


def offsets(**fields: Any) -> str:
    """What is said of sinks and special tokens."""
    said = text.offsets_sentences(models.STAGE._replace(**fields))
    return word(said, "up to 2 times") + word(said, " special") + word(said, "Sinks")


def sinks(norm: float = 1.0, tokens: int = 2) -> str:
    own = models.STAGE.sinks._replace(norm=models.means([norm]), tokens=["a", "b"][:tokens])
    return offsets(sinks=own, special_overall=models.interval(0.0))


def heads_on_first(weight: float) -> int:
    """Heads of which more than half of the weight is on the first token."""
    first = np.full((2, 3), weight)
    said = text.offsets_sentences(models.STAGE._replace(first=first, offsets=models.WEIGHTS / 99))
    return int(re.findall(r"(\d) of 6", " ".join(said))[0])


def said_of_sinks(low: float) -> str:
    own = models.STAGE.sinks._replace(weight_overall=Interval(0.5, low, 0.6))
    result = RESULT._replace(attention=models.STAGE._replace(sinks=own))
    return word(summary.inspect_summary(result), "Sinks take")


def fits(length: int) -> str:
    return word(text.loss_sentences(models.LOSS._replace(length=length)), "fit the context")


def title(draw: Any, **fields: Any) -> str:
    return draw(analysis(**fields)).get_suptitle().replace("\N{NO-BREAK SPACE}", " ")


def position_title(low: float) -> str:
    shares = {f"{name}_share": Interval(0.06, low, 0.08) for name in ("noise", "composition")}
    shares["position_share"] = Interval(0.06, low, 0.08)
    return title(corpus.shares_figure, intervals=shares)


LIMITS: dict[str, tuple[Any, dict[Any, Any]]] = {
    "an unusual measure": (
        lambda ends: unusual(*ends),
        {
            (0.5, 0.6): "in the range", (above(0.5), 0.6): "Above",
            (0.1, 0.2): "in the range", (0.1, below(0.2)): "Below",
        },
    ),
    "a change of a loss": (
        lambda ends: ordered(*ends),
        {
            (0.0, 1.0): "not change", (LEAST, 1.0): "adds",
            (-1.0, 0.0): "not change", (-1.0, -LEAST): "takes",
        },
    ),
    "a change of an output": (
        degree, {0.09: "hardly", 0.11: "moderately", 0.49: "moderately", 0.51: "strongly"},
    ),
    "norms of sinks": (sinks, {1.4: "Sinks", 1.6: "up to 2 timesSinks"}),
    "no sinks": (lambda tokens: sinks(2.0, tokens), {0: "", 1: "up to 2 timesSinks"}),
    "special tokens": (
        lambda x: word(offsets(special_overall=Interval(x, x, x)), " special"),
        {0.0: "", LEAST: " special"},
    ),
    "heads on a key": (heads_on_first, {0.5: 0, above(0.5): 6}),
    "sinks of a summary": (said_of_sinks, {0.3: "", above(0.3): "Sinks take"}),
    "texts in a context of 32": (fits, {0: "", 32: "fit the context", 33: ""}),
    "position in hidden states": (
        lambda x: word(
            text.probe_sentences(models.PROBE._replace(r2=models.means([x] * 3))), "not"
        ),
        {0.0: "not", LEAST: ""},
    ),
    "reach of an output": (  # of 32 tokens, all of them tried
        lambda n: word(text.reach_summary(
            models.REACH._replace(measure="embedding", low=n, high=math.inf)), "all of", "first"),
        {31: "first", 32: "all of"},
    ),
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
def test_what_is_said_changes_at_its_number(name, monkeypatch):
    monkeypatch.setattr(summary, "usual_range", lambda *_: UsualRange(0.2, 0.5, 3, True))
    said, values = LIMITS[name]
    assert {value: said(value) for value in values} == values


def test_an_ordinary_change_has_its_size():
    assert "cosine 0.30" in summary._order_sentence(moved(0.3, measure="embedding"))
