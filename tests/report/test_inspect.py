"""The page of an inspection: verdicts at their thresholds, numbers and figures of the result."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxpe.analysis.corpus import Interval
from jaxpe.analysis.inspect import (
    PARTS,
    AblationStage,
    AttentionSinks,
    AttentionStage,
    EncodingStage,
    FarContextGain,
    GeometryStage,
    HeadStage,
    InspectFacts,
    InspectResult,
    LearnedTable,
    LossStage,
    Means,
    NeedleStage,
    OffsetBaseline,
    PartShares,
    PositionMove,
    ProbeStage,
    RotaryBands,
    ScaledLoss,
    ScalingChange,
    SpectralStage,
    TextReach,
    Variance,
)
from jaxpe.analysis.inspections import UsualRange
from jaxpe.report.drawing import draw
from jaxpe.report.findings import Finding
from jaxpe.report.pages import inspect_rows
from jaxpe.report.pages.inspect import matters_more
from jaxpe.report.writing import page, write

LEAST = np.nextafter(0, 1)
GRID = np.arange(1.0, 7.0).reshape(2, 3)  # two layers of three heads


def above(x: float) -> float:
    return float(np.nextafter(x, np.inf))


def below(x: float) -> float:
    return float(np.nextafter(x, -np.inf))


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


def logits(position: float, *, beyond: float = 0.0, shuffled: float = 0.5) -> InspectResult:
    one = np.ones((2, 4))  # the mean of eight equal numbers is this number
    parts = variance(one * (position - beyond), one * beyond, one * shuffled)
    return changed(attention={"variance": parts})._replace(spectral=None)


def moved(name: str, *ends: float, measure: str = "causal", value: float = 0.5) -> InspectResult:
    """One of the moves with a change of these ends."""
    change = Interval(sum(ends) / 2, *ends)
    moves = [
        move if move.name != name else move._replace(change=change, value=interval(value))
        for move in MOVES
    ]
    return changed(ablation={"moved": moves, "measure": measure, "reference": 0.0})


def reach(**fields: Any) -> InspectResult:
    return changed(loss={"reach": REACH._replace(**fields)})


def scalings(*rows: tuple[str, float, float]) -> InspectResult:
    """Scalings with their multiple, and the upper end of the change far away."""
    made = [ScalingChange(name, multiple, interval(0.4), Interval(high - 1, high - 2, high))
            for name, multiple, high in rows]  # fmt: skip
    return changed(loss={"scalings": made})


def drops(**fields: Any) -> InspectResult:
    return RESULT._replace(heads=DROPS._replace(**fields))


def configured(*severities: str) -> list[tuple[float, str]]:
    """Value and command of the card on a wrong configuration."""
    points = [SimpleNamespace(severity=x, text=x) for x in severities]
    rope = SimpleNamespace(findings=points, widest=None)
    lead = page(RESULT._replace(encoding=EncodingStage(None, None, rope))).lead
    return [(one.value, one.paste) for one in lead if one.name.startswith("faults")]


EXPLAINED = "logits explained by positions"
POSITIONAL = "positional share beyond the offset j − i"
SHIFTED, FAR = "loss added by shifted positions", "change of the loss on a far passage"
# What is said, at a number and next to it.
RULES: dict[str, tuple[Any, dict[Any, Any]]] = {
    "positions matter to logits": (
        lambda x: found(EXPLAINED, logits(x, shuffled=x)).verdict,
        {below(0.02): "cause: none", 0.02: "cause: positions"},
    ),
    "cause of logits": (
        lambda x: found(EXPLAINED, logits(1.0, shuffled=x)).verdict.removeprefix("cause: "),
        {above(0.8): "positions", 0.8: "both", 0.2: "both", below(0.2): "words"},
    ),
    "what can express the logits": (
        lambda x: "cannot" in found(POSITIONAL, logits(1.0, beyond=x)).verdict,
        {below(0.2): False, 0.2: True},
    ),
    "sinks to keep": (
        lambda low: bool(found("attention to sinks", changed(
            attention={"sinks": SINKS._replace(weight_overall=Interval(0.5, low, 0.6))}
        )).todo),
        {below(0.3): False, 0.3: True},
    ),
    "heads on a key": (
        lambda x: page(changed(attention={"first": np.full((2, 3), x)})).tables[0].rows[0][2],
        {0.5: "0 of 6", above(0.5): "6 of 6"},
    ),
    "norms of sinks": (
        lambda x: "largest norm of sinks over the median token" in [
            one.name for one in page(changed(
                attention={"sinks": SINKS._replace(norm=means([0.0, x, *[0.0] * 6]))}
            )).findings
        ],
        {1.4: False, 1.6: True},
    ),
    "a bound of the search": (
        lambda case: (lambda one: (one.value, one.unit, bool(one.todo)))(
            found("effective length", reach(measure=case[0], high=case[1]))
        ),
        {
            ("loss", 63): (32, "tokens", True), ("loss", 64): (32, "tokens or more", True),
            ("embedding", 64): (16, "tokens or more", False),
        },
    ),
    "lost in the middle": (
        lambda high: bool(found("effect of the middle of a text less its start", reach(
            middle=Means(*np.array([[-1, -1], [-1, -1], [-1, high]], float))
        )).todo),
        {0.0: False, -LEAST: True},
    ),
    "order matters to a loss": (
        lambda ends: matters_more(Interval(0.05, *ends), "causal"),
        {
            (above(0.05), 1.0): True, (0.05, 1.0): None, (-1.0, 0.05): None,
            (-1.0, below(0.05)): False,
        },
    ),
    "order matters to an output": (
        lambda ends: matters_more(Interval(-0.05, *ends), "embedding"),
        {
            (-1.0, -above(0.05)): True, (-1.0, -0.05): None, (-0.05, 1.0): None,
            (-below(0.05), 1.0): False,
        },
    ),
    "what order is good for": (
        lambda ends: found(
            "loss added by shuffled positions", moved("shuffled", *ends)
        ).sentence.split()[2],
        {(0.0, 1.0): "change.", (LEAST, 1.0): "worse", (-1.0, -LEAST): "better"},
    ),
    "a change of an output": (  # of the way to unrelated texts
        lambda x: found("output under shuffled positions", moved(
            "shuffled", -1.0, 0.0, measure="embedding", value=1 - x
        )).verdict,
        {0.09: "changes hardly", 0.11: "changes moderately", 0.51: "changes strongly"},
    ),
    "a shift": (
        lambda ends: (lambda one: (one.verdict, bool(one.todo)))(
            found(SHIFTED, moved("shifted", *ends))
        ),
        {
            (-1.0, 1.0): ("no change", False), (0.0, 0.02): ("hardly changes", False),
            (0.0, 0.1): ("not decided", False), (0.06, 0.1): ("absolute positions count", True),
        },
    ),
    "a scaling that helps": (
        lambda high: [one.name for one in page(scalings(("YaRN", 2.0, high))).findings].count(FAR),
        {0.0: 0, -LEAST: 1},
    ),
    "texts shorter than the context": (
        lambda case: [one.name for one in page(
            reach(high=case[0])._replace(facts=FACTS._replace(longest=case[1]))
        ).steps if one.paste.endswith("--longest 512")],
        {
            (63, 511): ["longest text measured"], (64, 511): ["effective length"],
            (63, 512): [], (64, 512): [],
        },
    ),
    "texts that a tokenizer cuts": (
        lambda cut: any("tokenizer" in one.name for one in page(
            RESULT._replace(facts=FACTS._replace(cut=cut))
        ).steps),
        {0: False, 1: True, 511: True, 512: False},
    ),
    "a table that fits": (
        lambda x: found("scaled stress of the table against position", changed(
            geometry={"corrected": x, "shuffled": Interval(0.4, 0.3, 0.5)}
        )).verdict.split()[0],
        {below(0.3): "better", 0.3: "no"},
    ),
    "a drop beyond noise": (
        lambda p: found(
            "largest drop without a head", drops(p_value=np.full((2, 3), p))
        ).verdict,
        {0.05: "head 1.2", above(0.05): "head 1.2, within noise", math.nan: "head 1.2"},
    ),
    "more than by chance": (
        lambda share: found(
            "share of it in all drops",
            drops(share_by_chance=share),
        ).verdict,
        {below(0.3): "more than by chance", 0.3: "no more than by chance"},
    ),
    "a probe that reads": (
        lambda x: "not" in found("linear probe of position, R² of the best layer", changed(
            probe={"r2": means([x] * 3)}
        )).verdict,
        {0.0: True, LEAST: False},
    ),
    "a wrong configuration": (
        lambda severities: configured(*severities),
        {("risk",): [], ("risk", "wrong"): [(1, "jaxpe rope m")]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_a_verdict_changes_at_its_number(name):
    rule, values = RULES[name]
    assert {value: rule(value) for value in values} == values


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ((0.5, 0.6), "in their range"), ((above(0.5), 0.6), "above them"),
        ((0.1, 0.2), "in their range"), ((0.1, below(0.2)), "below them"),
    ],
)  # fmt: skip
def test_a_measure_is_beside_those_of_models_inspected_before(monkeypatch, ends, verdict):
    monkeypatch.setattr(inspect_rows, "usual_range", lambda *_: UsualRange(0.2, 0.5, 3, True))
    baseline = ATTENTION.baseline._replace(overall=Interval(0.3, *ends))
    one = found(
        "attention explained by the offset alone", changed(attention={"baseline": baseline})
    )
    assert one.verdict == verdict
    assert "3 other decoders" in one.against


def test_the_scaling_that_helps_most_at_the_largest_multiple_is_advised():
    result = scalings(
        ("YaRN", 2.0, -9.0), ("linear", 4.0, -1.0), ("NTK", 4.0, -2.0), ("YaRN", 8.0, 1.0)
    )
    assert found(FAR, result).value == -3
    assert found(FAR, result).paste.startswith('"rope_type": "dynamic", "factor": 4,')


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


def test_parts_of_no_logits_have_no_row():
    share = SPECTRAL.parts.share * (np.arange(5) < 4)  # no bias
    parts = SPECTRAL.parts._replace(share=share)
    tables = page(changed(spectral={"parts": parts})).tables
    (rows,) = (table.rows for table in tables if table.title == "Content and position")
    assert [row[0] for row in rows] == [*PARTS[:4], "cross terms"]


def test_wavelengths_are_beside_those_of_equal_norms():
    plan = SimpleNamespace(
        frequencies=2 * np.pi / np.array([8.0, 64.0, 65.0, 999.0]), trained=64, base=1e4,
        rope_type="default", never_round=2,
    )  # fmt: skip
    rope = SimpleNamespace(findings=[], widest=plan)
    result = RESULT._replace(encoding=EncodingStage(None, None, rope))
    assert (
        found("norms of queries and keys in wavelengths beyond the context", result).reference
        == 0.5
    )


def test_details_are_folded_where_there_are_many_findings():
    opened = [one for one in page(RESULT).sections if not one.folded]
    assert "Attention" not in [one.title for one in opened]
    few = InspectResult(FACTS, {}, attention=ATTENTION)
    assert not page(few).sections[0].folded


def test_stages_without_a_result_are_named_and_names_are_escaped(tmp_path):
    facts = FACTS._replace(model="<script>x</script>\u202e", left_out="Layer 3 is not seen.")
    result = InspectResult(facts, {"needles": "no <b>head</b>"}, attention=ATTENTION)
    text = write(result, tmp_path).read_text()
    assert "<script>x" not in text
    assert "<b>head" not in text
    assert "\u202e" not in text
    assert page(result).tables[-1].rows == [
        ("Retrieval by depth and length", "needles", "no <b>head</b>")
    ]
    assert "Layer 3" in text
    assert not page(InspectResult(FACTS, {})).sections
