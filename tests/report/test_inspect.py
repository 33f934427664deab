"""The page of an inspection: advice, numbers and figures are those of the result."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect import InspectResult
from jaxpe.analysis.inspect.attention_result import (
    PARTS,
    AttentionSinks,
    AttentionStage,
    HeadStage,
    OffsetBaseline,
    PartShares,
    RotaryBands,
    SpectralStage,
    Variance,
)
from jaxpe.analysis.inspect.averages import Means
from jaxpe.analysis.inspect.result import (
    AblationStage,
    EncodingStage,
    FarContextGain,
    GeometryStage,
    InspectFacts,
    LearnedTable,
    LossStage,
    NeedleStage,
    PositionMove,
    ProbeStage,
    ScaledLoss,
    ScalingChange,
    TextReach,
)
from jaxpe.report.drawing import draw
from jaxpe.report.findings import Finding
from jaxpe.report.writing import page, write

GRID = np.arange(1.0, 7.0).reshape(2, 3)  # two layers of three heads


def interval(mean: float) -> Interval:
    return Interval(mean, mean - 0.1, mean + 0.2)


def means(values: Any) -> Means:
    array = np.asarray(values, float)
    return Means(array, array - 0.1, array + 0.2)


def variance(offset: Any, place: Any, shuffled: Any) -> Variance:
    level = np.zeros_like(offset)
    return Variance(level, level + 1, offset, place, shuffled)


# Weights of a decoder by offset: on earlier keys, and none on later ones.
WEIGHTS = np.concatenate([GRID[..., None] * [0.01, 0.02, 0.04, 0.08], np.zeros((2, 3, 3))], axis=2)
SINKS = AttentionSinks(
    GRID / 8, interval(0.4), GRID / 9, interval(0.3), np.array([0, 3]), np.array([0.8, 0.2]),
    ["<s>", "the"], np.array([0.7, 0.3]), means(np.arange(8.0)),
)  # fmt: skip
ATTENTION = AttentionStage(
    variance=variance(GRID / 20, np.flip(GRID) / 50, GRID / 25), share=means([0.3, 0.5]),
    overall=interval(0.4), offsets=WEIGHTS,
    first=GRID / 7, first_by_chance=0.25, sink=interval(0.5),
    special=interval(0.05), dummy=interval(0.3), other=interval(0.2),
    layers=np.array([4, 7]), sinks=SINKS,
    baseline=OffsetBaseline(means([0.1, 0.2]), interval(0.15)),
    bands=RotaryBands(
        np.array([32.0, 64.0]),
        np.stack([GRID / 20, GRID / 10, GRID / 30], axis=-1), means([0.2, 0.5, 0.1]),
    ),
)  # fmt: skip
TABLE = LearnedTable(4, 8, np.array([1.0, 2.0, 3.0, 5.0]), 1.5, 2.4, np.array([1, 0.6, 0.2, 0]), 2)
GEOMETRY = GeometryStage(6, 1200, 0.4, 0.3, interval(0.33), -0.25, interval(0.6), 2)
PROBE = ProbeStage(5, np.array([0, 2, 4]), means([0.2, 0.9, 0.5]), np.array([3.0, 1.0, 2.0]), 4.0)
MOVES = [
    PositionMove(name, interval(value), interval(value - 2), tokens)
    for name, value, tokens in (
        ("own", 2.0, None), ("shifted", 2.4, None), ("shuffled", 2.5, interval(0.3))
    )
]  # fmt: skip
REACH = TextReach(
    "loss", 6, np.array([16, 32, 64]), means([np.nan, 0.5, 0.2]), 32, 16, 64,
    means([0.3, 0.1, 0.2]), means([-0.2, -0.1]),
)  # fmt: skip
ABLATION = AblationStage("causal", 5, 3, MOVES, 4.0)
LOSS = LossStage(
    3, 64, 32, np.array([1, 16, 64]),
    [ScaledLoss("own", means([3.0, 2.0])), ScaledLoss("YaRN", means([3.5, 2.5]))],
    8, np.array([0, 48]),
    [FarContextGain("own", means([0.6, 0.1])), FarContextGain("YaRN", means([0.7, 0.4]))],
    "", [ScalingChange("YaRN", 2.0, interval(0.4), interval(-0.3))], REACH,
)  # fmt: skip
NEEDLES = NeedleStage(
    np.array([100, 2000]), np.array([0.0, 0.5]), 4, means([[1.0, 0.6], [0.4, 0.1]]),
    means([0.8, 0.25]), 0.2,
)  # fmt: skip
DROPS = HeadStage(
    "causal", 8, 1.0, GRID / 10, GRID / 20, GRID / 5, (7 - GRID) / 100, Interval(0.3, 0.2, 0.4), 0.2
)
SPECTRAL = SpectralStage(
    False, GRID / 10, GRID,
    PartShares(*(GRID[..., None] * x for x in (np.ones(5) / 4, np.ones(5) / 50))),
)  # fmt: skip
FACTS = InspectFacts(
    "m", "s", "causal", "rotary", 2, 3, 8, 24, 100, 7_000_000, 512, 62, 16, 1200, 256, 0, "0",
    command="jaxpe inspect m",
)  # fmt: skip
RESULT = InspectResult(
    FACTS, {}, EncodingStage(TABLE, np.array([[-3.0, np.nan, 0.5]]), None), GEOMETRY, ATTENTION,
    SPECTRAL, DROPS, PROBE, ABLATION, LOSS, NEEDLES,
)  # fmt: skip


def found(name: str, result: InspectResult = RESULT) -> Finding:
    """The finding of a name, which the page has once."""
    (one,) = (finding for finding in page(result).findings if finding.name == name)
    return one


def changed(**stages: Any) -> InspectResult:
    """The result with other fields of stages."""
    return RESULT._replace(
        **{name: getattr(RESULT, name)._replace(**fields) for name, fields in stages.items()}
    )


def advised(name: str, **stages: Any) -> bool:
    """Whether the finding of a name has something to do."""
    return bool(found(name, changed(**stages)).todo)


def ends(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high)


def shifted(low: float, high: float) -> dict[str, Any]:
    return {"moved": [MOVES[0], MOVES[1]._replace(change=ends(low, high)), MOVES[2]]}


def weight(low: float) -> dict[str, Any]:
    return {"sinks": SINKS._replace(weight_overall=Interval(0.5, low, 0.6))}


def middle(high: float) -> dict[str, Any]:
    return {"reach": REACH._replace(middle=Means(*np.array([[-1, -1], [-1, -1], [-1, high]])))}


# Findings with advice: stages for which there is none, and for which there is some.
ADVICE = {
    "attention to sinks": ({"attention": weight(0.29)}, {"attention": weight(0.31)}),
    "loss added by shifted positions": (
        {"ablation": shifted(0.04, 0.1)}, {"ablation": shifted(0.06, 0.1)}
    ),
    "effect of the middle of a text less its start": (
        {"loss": middle(0.1)}, {"loss": middle(-0.1)}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ADVICE)
def test_advice_follows_the_ends_of_intervals(name):
    without, with_advice = ADVICE[name]
    assert not advised(name, **without)
    assert advised(name, **with_advice)


def test_the_scaling_that_helps_most_at_the_largest_multiple_is_advised():
    name = "change of the loss on a far passage"
    rows = (("YaRN", 2.0, -9.0), ("linear", 4.0, -1.0), ("NTK", 4.0, -2.0), ("YaRN", 8.0, 1.0))
    made = [ScalingChange(x, k, interval(0.4), ends(high - 2, high)) for x, k, high in rows]
    one = found(name, changed(loss={"scalings": made}))
    assert (one.value, '"dynamic", "factor": 4,' in one.paste) == (-3, True)
    none = page(changed(loss={"scalings": made[-1:]})).findings
    assert name not in [each.name for each in none]


def test_a_wrong_configuration_comes_first():
    def lead(*severities):
        points = [SimpleNamespace(severity=x, text=x) for x in severities]
        rope = SimpleNamespace(findings=points, widest=None)
        return page(RESULT._replace(encoding=EncodingStage(None, None, rope))).lead[0]

    assert (lead("risk", "wrong").value, lead("risk", "wrong").paste) == (1, "jaxpe rope m")
    assert not lead("risk").name.startswith("faults")


def test_what_is_not_significant_is_not_claimed():
    for p, noise in ((0.04, False), (0.06, True)):
        result = RESULT._replace(heads=DROPS._replace(p_value=np.full((2, 3), p)))
        assert ("noise" in found("largest drop without a head", result).verdict) == noise
    for x, better in ((0.29, True), (0.31, False)):
        fit = {"corrected": x, "shuffled": Interval(0.4, 0.3, 0.5)}
        one = found("scaled stress of the table against position", changed(geometry=fit))
        assert one.verdict.startswith("better") == better


VALUES = {
    "logits explained by positions": (0.4, 0.3, 0.6),
    "logits explained in random order of tokens": 0.14,
    "largest share of a head": 0.32,
    "positional share beyond the offset j − i": 0.07 / 0.245,
    "attention to the first token": (0.5, 0.4, 0.7),
    "documents with a sink, mean of heads": (0.4, 0.3, 0.6),
    "largest norm of sinks over the median token": 7,
    "norms of queries and keys in wavelengths beyond the context": (0.1, 0.0, 0.3),
    "attention to special tokens": (0.05, -0.05, 0.25),
    "overlap with attention to one repeated token": (0.3, 0.2, 0.5),
    "linear probe of position, R² of the best layer": (0.9, 0.8, 1.1),
    "mean error of the probe at its best": 1,
    "loss at the original positions": (2, 1.9, 2.2),
    "loss added by shuffled positions": (0.5, 0.4, 0.7),
    "loss added by shifted positions": (0.4, 0.3, 0.6),
    "loss at the first positions": (3, 2.9, 3.2),
    "loss at the last positions": (2, 1.9, 2.2),
    "worth of context right before a passage": (0.6, 0.5, 0.8),
    "worth of far context": (0.1, 0.0, 0.3),
    "facts retrieved from the longest text": (0.25, 0.15, 0.45),
    "effective rank of the position table": 2.4,
    "norm of position vectors, median": 2.5,
    "cosine of neighbouring positions": 0.6,
    "lowest bias of the logits": -3,
    "highest bias of the logits": 0.5,
    "scaled stress of the table against position": 0.3,
    "held-out stress of the table": (0.33, 0.23, 0.53),
    "Mantel correlation with position": -0.25,
    "mean logits beyond Toeplitz, median head": 0.35,
    "effective rank of mean logits, median head": 3.5,
    "largest drop without a head": (0.6, 0.3, 1.2),
    "share of it in all drops": (0.3, 0.2, 0.4),
    "drops beyond noise": 5,
}


@pytest.mark.parametrize("name", VALUES)
def test_findings_have_the_numbers_of_the_result(name):
    one, expected = found(name), VALUES[name]
    shown = (one.value, one.low, one.high) if isinstance(expected, tuple) else one.value
    assert shown == pytest.approx(expected)


TABLES = {
    "Keys of heads": [  # weights 1 to 6 times 1 / 7, 0.04 and 0.08
        ("the first token", "50", "3 of 6", "7.2: 86"),
        ("the token before", "14", "0 of 6", "7.2: 24"),
        ("the token itself", "28", "0 of 6", "7.2: 48"),
    ],
    "Attention by layer": [  # norms of the layers 4 and 7 of all eight
        ("4", "30", "10", "29", "22", "10", "7", "20", "4", "2"),
        ("7", "50", "25", "71", "56", "20", "17", "50", "7", "5"),
    ],
    "Most frequent sinks": [
        ("position 0", "80\xa0%"), ("position 3", "20\xa0%"), ("<s>", "70\xa0%"),
        ("the", "30\xa0%"),
    ],
    "Content and position": [
        *((name, "88", "7") for name in PARTS), ("cross terms", "−338", "")  # 100 − 5 · 87.5
    ],
    "Reach": [  # of six texts: the lower end is one-sided, 0.1 · t(0.95) / t(0.975) of 5 degrees
        ("16", "–"), ("32", f"0.50 ({0.5 - 0.1 * 2.015048 / 2.570582:.2f} to 0.70)"),
        ("64", f"0.20 ({0.2 - 0.1 * 2.015048 / 2.570582:.2f} to 0.40)"),
    ],
    "Facts retrieved": [
        ("100", "100", "60", "80"), ("2,000", "40", "10", "25")
    ],
}  # fmt: skip


@pytest.mark.parametrize("title", TABLES)
def test_tables_have_the_numbers_of_the_result(title):
    (table,) = (table for table in page(RESULT).tables if table.title == title)
    assert [tuple(row) for row in table.rows] == TABLES[title]


def test_figures_draw_the_numbers_of_the_result():
    axes = {each.name: draw(each).axes for each in page(RESULT).figures}
    lines = {
        name: [(line.get_label(), *map(np.ndarray.tolist, map(np.asarray, line.get_data())))
               for line in shown[0].lines] for name, shown in axes.items()
    }  # fmt: skip
    images = [np.asarray(ax.images[0].get_array()) for ax in axes["heads"][:2]]
    np.testing.assert_allclose(images, [ATTENTION.variance.position, GRID / 7])
    assert lines["probe"][0][1:] == ([0, 2, 4], [0.2, 0.9, 0.5])
    assert lines["position-table"][0][1:] == ([0, 1, 2, 3], [1, 2, 3, 5])
    assert lines["loss"][1] == ("YaRN", [4, 32], [3.5, 2.5])
    name, offsets, weights = lines["attention-by-offset"][1]
    assert (name, offsets) == ("head 7.2", [-3, -2, -1, 0])
    assert weights == pytest.approx(WEIGHTS[1, 2, :4])


def test_stages_without_a_result_are_named_and_names_are_escaped(tmp_path):
    facts = FACTS._replace(model="<script>x</script>\u202e", left_out="Layer 3 is not seen.")
    result = InspectResult(facts, {"needles": "no <b>head</b>"})
    text = write(result, tmp_path).read_text()
    assert not [x for x in ("<script>x", "<b>head", "\u202e") if x in text]
    assert page(result).tables[-1].rows[0][1:] == ("needles", "no <b>head</b>")
    assert not page(InspectResult(FACTS, {})).sections
