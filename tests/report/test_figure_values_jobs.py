"""What figures and tables of other jobs show: numbers from those of the result."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxpe.analysis.audit.result import KernelPairs, Training
from jaxpe.analysis.bench import BenchOptions, BenchResult, Verdict
from jaxpe.analysis.bench.job import suite_of
from jaxpe.analysis.bench.measures import EncodingMeasures
from jaxpe.analysis.comparison import ComparedRun, Estimate, Group, RunComparison
from jaxpe.analysis.corpora import ComparedCorpus, ComparedPair, CorporaComparison
from jaxpe.analysis.corpus import Interval
from jaxpe.analysis.extrapolation import SeedInterval
from jaxpe.analysis.extrapolation.forecast import ProgramSeconds
from jaxpe.analysis.training_run import Evaluation
from jaxpe.encodings import EncodingProperties
from jaxpe.plans import RopeOptions, explain_rope
from jaxpe.report import comparison, corpora, training_figures
from jaxpe.report.audit import figures as audit
from jaxpe.report.bench import page as bench
from jaxpe.report.extrapolation import figures as extrapolation
from jaxpe.report.rope import figures as rope
from tests.analysis.test_bench import cell
from tests.report import test_extrapolation as cells
from tests.report.test_figure_values import band, bars, curve, same, spans

AUDIT: Any = SimpleNamespace(
    kernel=KernelPairs(
        np.array([3.0, 1.0, 2.0]), np.array([0.3, 0.1, 0.2]), np.array([6.0, 4.0, 5.0]),
        np.array([7.0, 9.0, 8.0]), (0.25, 0.5), (0.1, 0.2), np.array([4.0, 1.0, -1.0]),
        np.array([1.0, 2.0, 0.0]), np.array([4.0, math.inf, 3.0]),
    ),
    training=Training(np.array([3.0, 2.0]), np.array([3.0, 1.0]), np.array([0.0, 0.5])),
)  # fmt: skip
LINEAR = '{"rope_type": "linear", "factor": 4.0}'
SCALED = explain_rope(RopeOptions(head_dim=16, base=1e4, context=256, scaling=LINEAR, length=512))
HISTORY = [
    {"step": 0, "eval/loss": 3.0, "eval/accuracy": 0.25},
    *({"step": k, "loss": 4.0 - k, "accuracy": k / 4} for k in (1, 2)),
    {"step": 3, "loss": 1.0, "accuracy": 0.75, "eval/loss": 2.0, "eval/accuracy": 0.5},
]
PROBED = [
    {"step": step, "probe/occupied/stress": 1.0 + step, "probe/position/violation_rate": 0.1}
    for step in (0, 1, 8)
] + [{"step": 8, "probe/occupied/violation_rate": 0.3}]
END, COMMON = Evaluation(8, 1.0, 0.75), Evaluation(4, 2.0, 0.5)


def run(name: str, group: str, **fields: Any) -> ComparedRun:
    steps = np.array([1.0, 2.0])
    made = ComparedRun(
        name, group, 0, 0, 8, True, 1234, 61.0, COMMON, END, Evaluation(6, 0.5, 0.8), steps,
        np.array([5.0, 3.0]), np.array([0.0, 8.0]), np.array([4.0, 1.0]), 10,
    )  # fmt: skip
    return made._replace(**fields)


RUNS = RunComparison(
    "poems", "classify", 4,
    (run("a", "a"), run("b", "b", steps=4, common=None, parameters=None, seconds=None,
                        finished=False, held_out=np.array([4.0, 2.0])), run("c", "a")),
    (
        Group("a", Estimate(1.0, 0.25, 2), Interval(0.5, 0.4, 0.6), Estimate(0.0, 0.0, 2), True),
        Group("b", Estimate(2.0, math.nan, 1), Interval(0.7, math.nan, math.nan),
              Estimate(1.0, 0.5, 1), False),
    ),
    {"steps": ("8", "4", "8")}, (),
)  # fmt: skip
CORPORA = CorporaComparison(
    "words", 4, 2, 99, 0,
    tuple(ComparedCorpus(x, 1000 * k, 2000 * k, np.array([[k, 2.0], [3, 4]]))
          for k, x in enumerate("xyz", 1)),
    (ComparedPair("x", "y", 0.5, 0.4, 0.01, 0.03, 0.2, np.radians([10, 40]), 0.6, 4, 8, 9, True),
     ComparedPair("x", "z", 0.3, 0.4, 0.2, 0.4, 0.1, np.zeros(0), 0.9, 4, 8, 9, True)), (),
)  # fmt: skip
OPTIONS = BenchOptions(encoding="alibi", against=("rope",), tasks=("copy",), seeds=2)
PROPERTIES = EncodingProperties(
    "", "bias", "", "", 0, 0, False, True, True, ("queries",), "yes", 2000.0, 64.0, False
)


def measures(name: str, time: float, stress: float) -> EncodingMeasures:
    return EncodingMeasures(
        name, PROPERTIES, 1200, 3 * 2**19, 2.5e-6, time, stress, ProgramSeconds(1.0, 2.0)
    )


def lead(*ends: float) -> SeedInterval:
    return SeedInterval(*map(np.array, ends))


BENCH = BenchResult(
    OPTIONS, suite_of(OPTIONS), 0.95, (measures("alibi", 1.25, math.nan), measures("rope", 2, 0.3)),
    (cell("copy", "alibi", [[1.0, 0.8, 0.6], [1.0, 0.6, 0.4]]),
     cell("copy", "rope", [[0.05, 0.3, 0.1], [0.06, 0.2, 0.1]])),
    (Verdict("copy", "rope", "better", lead(0.25, 0.125, 0.5), 0),),
)  # fmt: skip
RANKS = cells.report(cells.numbers(), cells.tokens())
MEANS = RANKS.mean_reciprocal_rank["sums"]
SUMS = [x.summary["mse"] for x in cells.numbers()]

FIGURES: dict[str, tuple[Any, Any, Any]] = {
    "a kernel": (
        lambda: audit.kernel_figure(AUDIT),
        lambda axes: ([curve(axes[0], k) for k in range(3)]),
        [([3, 1, 2], [0.3, 0.1, 0.2]), ([1, 2, 3], [4, 5, 6]), ([1, 2, 3], [9, 8, 7])],
    ),
    "training and its linearisation": (
        lambda: audit.training_figure(AUDIT),
        lambda axes: (curve(axes[0], "model")[1], curve(axes[0], "linearised")[1],
                      curve(axes[1], 0)[1]),
        ([3, 2], [3, 1], [0, 0.5]),
    ),
    "a bound": (  # one pair has finite and positive sides
        lambda: audit.bound_figure(AUDIT),
        lambda axes: (curve(axes[0], 0), curve(axes[0], 1)),
        (([4], [1]), ([0.5, 8], [0.5, 8])),
    ),
    "eigenvalues of a kernel": (
        lambda: audit.spectrum_figure(AUDIT),
        lambda axes: curve(axes[0], 0),
        ([1, 2, 3], [4, 1, math.nan]),
    ),
    "wavelengths": (  # of linear scaling by 4
        lambda: rope.wavelengths_figure(SCALED),
        lambda axes: tuple(curve(axes[0], k)[1] for k in range(4)),
        (2 * np.pi * 1e4 ** (np.arange(8) / 8), 8 * np.pi * 1e4 ** (np.arange(8) / 8),
         [SCALED.widest.trained] * 2, [512, 512]),
    ),
    "a scaling": (
        lambda: rope.scaling_figure(SCALED),
        lambda axes: curve(axes[0], 0)[1],
        [0.25] * 8,
    ),
    "phase errors": (
        lambda: rope.precision_figure(SCALED),
        lambda axes: (curve(axes[0], "float32"), curve(axes[0], "bfloat16 frequencies")[1],
                      curve(axes[0], -1)[1]),
        (
            tuple(zip(*[(x.length, x.largest) for x in SCALED.precision
                        if (x.dtype, x.rounded) == ("float32", "all")], strict=True)),
            [x.largest for x in SCALED.precision
             if (x.dtype, x.rounded) == ("bfloat16", "frequencies")],
            [np.pi, np.pi],
        ),
    ),
    "curves of training": (
        lambda: training_figures.curves_figure(HISTORY),
        lambda axes: (curve(axes[0], "each step"), curve(axes[0], "held out"),
                      curve(axes[1], "each step")[1], curve(axes[1], "held out")[1],
                      axes[1].get_xlim()),
        (([1, 2, 3], [3, 2, 1]), ([0, 3], [3, 2]), [25, 50, 75], [25, 50], (0, 3)),
    ),
    "a probe": (
        lambda: training_figures.probe_figure(PROBED),
        lambda axes: (curve(axes[4], "occupied"), curve(axes[1], "position"),
                      curve(axes[1], "occupied")),
        (([0, 1, 2], [1, 2, 9]), ([0, 1, 2], [10, 10, 10]), ([2], [30])),
    ),
    "runs": (
        lambda: comparison.losses_figure(RUNS),
        lambda axes: (
            [curve(axes[0], k)[1] for k in range(6)], curve(axes[0], 6)[0],
            [curve(axes[0], k)[0][-1] for k in (0, 1)],
            [axes[0].lines[k].get_color() == axes[0].lines[0].get_color() for k in range(6)],
            sum(not line.get_label().startswith("_") for line in axes[0].lines),
        ),
        ([[5, 3], [4, 1], [5, 3], [4, 1], [5, 3], [4, 2]], [4, 4], [2, 8],
         [True] * 4 + [False] * 2, 2),
    ),
    "corpora": (
        lambda: corpora.configurations_figure(CORPORA),
        lambda axes: (curve(axes[0], "y"), curve(axes[0], 3)),
        (([2, 3], [2, 4]), ([2], [2])),
    ),
    "accuracy beside cost": (
        lambda: bench.accuracy_cost_figure(BENCH),
        lambda axes: (curve(axes[0], "alibi"), curve(axes[0], "rope"),
                      spans(axes[0])[0, :, 0], axes[0].lines[1].get_markerfacecolor() == "white",
                      spans(axes[0])[0, 0, 1] < 60 < spans(axes[0])[0, 1, 1]),
        (([1.25], [60]), ([2], [17.5]), [1.25, 1.25], True, True),
    ),
    "lengths": (
        lambda: extrapolation.lengths_figure(cells.numbers()),
        lambda axes: (curve(axes[0], "alibi"), band(axes[0], 0)[:, 0], curve(axes[0], "always 0"),
                      axes[0].get_ylim(), curve(axes[0], 3)[0]),
        (
            ([8, 16, 32, 64], [0.2, 0.5, 1.0, 7.98]),
            [8, SUMS[0].low[0], SUMS[0].high[0]], ([8, 16, 32, 64], cells.SIZES),
            (0.05 / 2, 9.0 * 2), [8, 8],
        ),
    ),
    "ranks": (
        lambda: extrapolation.ranks_figure(RANKS),
        lambda axes: ([width for *_, width, _ in bars(axes[0])], spans(axes[0])[:, :, 0]),
        ([float(x.mean) for x in MEANS.values()],
         [[float(x.low), float(x.high)] for x in MEANS.values()]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_figures_draw_the_numbers_of_the_result(name):
    draw, read, expected = FIGURES[name]
    same(read(draw().axes), expected)


def plain(rows: Any) -> list[list[str]]:
    return [[cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in rows]


def test_tables_of_runs_have_losses_at_the_common_step_and_their_groups():
    (_, header, runs), (_, _, groups), (_, _, settings) = comparison.comparison_rows(RUNS)
    assert header[1:4] == ["loss, step 4", "accuracy, %", "lowest"]
    assert runs[0] == ("a", "2.0000", "50.0", "0.5000", "6", "8", "1,234", "61 seconds")
    assert runs[1] == ("b", "1.0000", "75.0", "0.5000", "6", "4, stopped", "–", "–")
    assert groups == [
        ("“a” (steps 8)", "2", "1.0000 ± 0.2500", "50.0 [40.0–60.0]", "–"),
        ("“b” (steps 4)", "1", "2.0000", "70.0", "1.0000 ± 0.5000"),
    ]
    assert settings == [("steps", "8", "4", "8")]


def test_tables_of_corpora_and_of_a_benchmark():
    _, pairs = (plain(rows) for *_, rows in corpora.corpora_rows(CORPORA))
    assert pairs == [
        ["x, y", "0.5", "0.4", "0.03", "0.2", "40°", "60 %"],
        ["x, z", "0.3", "0.4", "0.4", "0.1", "–", "90 %"],
    ]
    main, against, scores, properties = (plain(rows) for *_, rows in bench._tables(BENCH))
    assert [row[:5] for row in main] == [
        ["alibi", "1.25×", "1.5", "1,200", "–"], ["rope", "2.00×", "1.5", "1,200", "0.30"],
    ]  # fmt: skip
    assert [row[5].split(" ")[0] for row in main] == ["60", "not"]
    assert against == [["copy", "rope", "better", "+25.0 [12 to 50]", "decided"]]
    assert [row[1].split(" ")[0] for row in scores] == ["100.0", "5.5"]
    assert properties[0] == ["alibi", "relative", "yes", "queries", "2k", "64", "2.5"]


VERDICTS = {  # of a lead, and the number of seeds: what is said of the seeds
    (("better", 0.1, 0.0, 0.2), 0): "decided",
    (("not decided", 0.1, -0.1, 0.2), 7): "7",
    (("not decided", 0.1, -0.1, 0.2), 0): "over 100",
    (("not decided", 0.1, math.nan, math.nan), 0): "unknown",
    (("undefined", math.nan, math.nan, math.nan), 0): "–",
}


def test_verdicts_name_the_seeds_that_would_decide():
    said = {
        case: bench._said(Verdict("copy", "rope", case[0][0], lead(*case[0][1:]), case[1]))[2]
        for case in VERDICTS
    }
    assert said == VERDICTS
