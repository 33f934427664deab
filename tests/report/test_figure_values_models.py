"""What figures and tables of models show: numbers from those of the result."""

import re
from typing import Any

import numpy as np
import pytest

from jaxpe.analysis.attention.result import HeadDrops, MeanLogits, Pairs, SingleDocuments, residual
from jaxpe.analysis.corpus import Interval
from jaxpe.analysis.inspect.result import (
    AblationStage,
    AttentionSinks,
    AttentionStage,
    FarContextGain,
    GeometryStage,
    LearnedTable,
    LossStage,
    Means,
    NeedleStage,
    OffsetBaseline,
    PositionMove,
    ProbeStage,
    RotaryBands,
    ScaledLoss,
    ScalingChange,
    TextReach,
)
from jaxpe.report.attention import figures as attention
from jaxpe.report.attention import text as attention_text
from jaxpe.report.inspect import figures as inspect
from jaxpe.report.inspect import tables
from tests.report import test_spectral as spectral
from tests.report.test_figure_values import band, bars, curve, image, same, spans

LAYERS, HEADS, LENGTH = 2, 3, 4
GRID = np.arange(1.0, LAYERS * HEADS + 1).reshape(LAYERS, HEADS)  # 1 to 6
OFFSETS = np.arange(2 * LENGTH - 1) + 10 * GRID[..., None]  # of the diagonals
ONE = GRID / 10
DROPS = HeadDrops(
    "zero", 8, 1.0, GRID / 10, GRID / 20, GRID / 5, (7 - GRID) / 100, (1, 2), (0.3, 0.2, 0.4),
    0.2, 0.5,
)  # fmt: skip
VARIANCE = spectral.variance(GRID / 20, np.flip(GRID) / 50)._replace(level=GRID, shuffled=GRID / 25)
LOGITS = np.arange(float(LAYERS * HEADS * LENGTH**2)).reshape(LAYERS, HEADS, LENGTH, LENGTH) ** 2
RANKS = np.array([[1.0, 2.0, 9.0], [3.0, 4.0, 5.0]])
ATTENTION = spectral.report()._replace(
    means=MeanLogits(
        LOGITS, ONE, ONE / 2, OFFSETS, OFFSETS + 0j, ONE / 4,
        np.array([[[4.0, 1.0], [2.0, 1.0], [1.0, 1.0]]] * 2) * GRID[..., None], ONE, RANKS,
        RANKS + 100, ONE * 3,
    ),
    single=SingleDocuments(ONE + 0.3, ONE / 8, RANKS + 10, ONE * 5),
    variance=VARIANCE,
    pairs=Pairs(np.array([2 * np.pi / 3, 0.02]), np.stack([GRID, 3 * np.ones_like(GRID)], -1)),
    ablations=[DROPS, DROPS._replace(kind="mean", drop=GRID / 40)],
)  # fmt: skip
PARTS = ATTENTION.parts._replace(
    share=np.array([4.0, 2.0, 1.0, 1.0, 0.0]) * GRID[..., None], cross=GRID - 5
)
POSITION, OFFSET = VARIANCE.position, VARIANCE.offset


def scaled(values: np.ndarray) -> np.ndarray:
    """Values about their mean, in units of the 99th percentile of their size."""
    centred = values - values[np.isfinite(values)].mean()
    return centred / np.quantile(np.abs(centred[np.isfinite(centred)]), 0.99)


NEAR = np.array([-2, -1, 1, 2])  # offsets up to half of the length
CENTRED = OFFSETS[..., NEAR + LENGTH - 1] - GRID[..., None]
WAVES = np.exp(1j * np.outer(np.linspace(0, np.pi, 129), NEAR))
MEDIANS = np.median(GRID, axis=1)  # of layers


def interval(mean: float) -> Interval:
    return Interval(mean, mean - 0.1, mean + 0.2)


def means(values: Any) -> Means:
    array = np.asarray(values, float)
    return Means(array, array - 0.1, array + 0.2)


# Weights of a decoder by offset: on earlier keys, and none on later ones.
WEIGHTS = np.concatenate([GRID[..., None] * [0.01, 0.02, 0.04, 0.08], np.zeros((2, 3, 3))], axis=2)
STAGE = AttentionStage(
    variance=VARIANCE, share=means([0.3, 0.5]), overall=interval(0.4), shuffled=0.2,
    offsets=WEIGHTS, entropy=np.log(GRID**2 + 1), evenness=GRID / 8, distance=2 * GRID,
    first=GRID / 7, first_by_chance=0.25, sink=interval(0.5), special=GRID / 50,
    special_overall=interval(0.05), dummy=GRID / 9, other=GRID / 12,
    dummy_overall=interval(0.3), other_overall=interval(0.2), dummies=["a"],
    layers=np.array([4, 7]),
    sinks=AttentionSinks(
        GRID / 8, interval(0.4), GRID / 9, interval(0.3), GRID, np.array([0, 3]),
        np.array([0.8, 0.2]), ["<s>", "the"], np.array([0.7, 0.3]), means(np.arange(8.0)),
    ),
    baseline=OffsetBaseline(GRID / 10, means([0.1, 0.2]), interval(0.15)),
    bands=RotaryBands(
        np.array([2.0, 40.0, 99.0]), np.array([32.0, 64.0]),
        np.stack([GRID / 20, GRID / 10, GRID / 30], axis=-1), means([0.2, 0.5, 0.1]),
    ),
)  # fmt: skip
TABLE = LearnedTable(4, 8, np.array([1.0, 2.0, 3.0, 5.0]), 1.5, 2.4, np.array([1, 0.6, 0.2, 0]), 2)
GEOMETRY = GeometryStage(
    6, 1200, 9.0, 0.4, 0.3, interval(0.33), None, interval(0.11), -0.25, 0.2, interval(0.6), None, 2
)
PROBE = ProbeStage(5, np.array([0, 2, 4]), means([0.2, 0.9, 0.5]), np.array([3.0, 1.0, 2.0]), 4.0)
MOVES = [
    PositionMove(name, interval(value), interval(value - 2), tokens)
    for name, value, tokens in (
        ("own", 2.0, None), ("shuffled", 2.5, interval(0.3)), ("same", 3.0, None)
    )
]  # fmt: skip
REACH = TextReach(
    "loss", 6, np.array([16, 32]), means([np.nan, 0.5]), 16, 0, 64, means([0.3, 0.1, 0.2])
)
ABLATION = AblationStage("causal", 5, 3, MOVES, 4.0)
LOSS = LossStage(
    3, 64, 32, np.array([1, 16, 64]),
    [ScaledLoss("own", means([3.0, 2.0])), ScaledLoss("YaRN", means([3.5, 2.5]))],
    8, np.array([0, 48]),
    [FarContextGain("own", means([0.6, 0.1])), FarContextGain("YaRN", means([0.7, 0.4]))],
    None, None, "", [ScalingChange("YaRN", 2.0, interval(0.4), interval(-0.3))], REACH,
)  # fmt: skip
NEEDLES = NeedleStage(
    np.array([100, 2000]), np.array([0.0, 0.5]), 4, means([[1.0, 0.6], [0.4, 0.1]]),
    means([0.8, 0.25]), 0.2, "", "",
)  # fmt: skip


def labels(axis: Any, which: str) -> list[str]:
    return [text.get_text() for text in getattr(axis, f"get_{which}ticklabels")()]


# What draws a figure, what is read from its axes, and what it is by the numbers above.
FIGURES: dict[str, tuple[Any, Any, Any]] = {
    "shares of the logits": (
        lambda: attention.variance_figure(ATTENTION),
        lambda axes: (
            [height for *_, height in bars(axes[0])], [bottom for _, bottom, *_ in bars(axes[0])],
            curve(axes[0], 0),
        ),
        (
            [0.1, 0.25, 0.1, 0.04, 0.8, 0.71], [0, 0, 0.1, 0.25, 0.2, 0.29],
            ([0, 1], [0.08, 0.2]),
        ),
    ),
    "parts of logits": (
        lambda: attention.parts_figure(ATTENTION._replace(parts=PARTS)),
        lambda axes: (
            [height for *_, height in bars(axes[0])],
            [height for *_, height in bars(axes[1])], axes[1].get_ylim(),
        ),
        ([0.5, 0.5, 0.25, 0.25, *4 * [0.125]], [-3, 0], (-3.3, 0.1)),
    ),
    "heads": (
        lambda: attention.heads_figure(ATTENTION),
        lambda axes: (
            *[image(axis) for axis in axes[:4]],
            *[axis.images[0].get_clim() for axis in axes[1:4]],
        ),
        (
            POSITION, residual(OFFSET, POSITION - OFFSET), GRID / 10, GRID / 40,
            (0, 1), (-0.6, 0.6), (-0.15, 0.15),
        ),
    ),
    "largest drops": (  # of the heads from the last to the first
        lambda: attention.ablation_figure(ATTENTION),
        lambda axes: (
            spans(axes[0])[:, :, 1], spans(axes[0], 1)[:, 0, 0], curve(axes[0], 0)[1],
            curve(axes[0], 2)[1], [len(curve(axes[0], k)[0]) for k in (1, 3)],
        ),
        (
            [[x / 20, x / 5] for x in (6, 5, 4, 3, 2, 1)], np.arange(6) + 0.13,
            np.arange(6, 0, -1) / 10, np.arange(6, 0, -1) / 40, [5, 5],  # p ≤ 0.05: 2 to 6
        ),
    ),
    "rotary pairs": (
        lambda: attention.frequencies_figure(ATTENTION),
        lambda axes: image(axes[0]),
        [[2 / 5, 3 / 5], [5 / 8, 3 / 8]],
    ),
    "logits by offset": (
        lambda: attention.offsets_figure(ATTENTION),
        lambda axes: (
            np.delete(image(axes[0]), 2, axis=1), axes[0].images[0].get_extent(),
            axes[0].get_yticks(), [curve(axes[0], 0)[1][0]],
        ),
        ([scaled(row) for row in CENTRED.reshape(6, 4)], [-2.5, 2.5, 5.5, -0.5], [1, 4], [2.5]),
    ),
    "a symbol": (  # of the last head, whose offset explains most
        lambda: attention.symbols_figure(ATTENTION),
        lambda axes: (curve(axes[0], 0)[1][NEAR + 2], curve(axes[1], 0), len(axes[0].lines)),
        (CENTRED[1, 2], (np.linspace(0, 1, 129), (WAVES @ CENTRED[1, 2]).real), 5),
    ),
    "a symbol of a decoder": (
        lambda: attention.symbols_figure(ATTENTION._replace(causal=True)),
        lambda axes: curve(axes[1], 0)[1],
        np.abs(WAVES[:, :2] @ CENTRED[1, 2, :2]),
    ),
    "spectra": (
        lambda: attention.spectra_figure(ATTENTION),
        lambda axes: (
            curve(axes[0], "layer 1"), curve(axes[1], "mean logits"),
            curve(axes[1], "single documents"), curve(axes[1], 4)[1],
        ),
        (
            ([1, 2], [1, 0.5]), ([-0.12, 0.88], [2, 4]), ([0.12, 1.12], [12, 14]), [11, 13],
        ),
    ),
    "logits": (
        lambda: attention.logits_figure(ATTENTION),
        lambda axes: (image(axes[0])[:4, 5:9], image(axes[0])[5:, :4], image(axes[0]).shape),
        (scaled(LOGITS[0, 1]), scaled(LOGITS[1, 0]), (9, 14)),
    ),
    "a table": (
        lambda: inspect.table_figure(TABLE),
        lambda axes: (curve(axes[0], 0)[1], curve(axes[0], 1)[1], curve(axes[1], 0)[1],
                      axes[1].get_xlim()),
        (TABLE.norms, [1.5, 1.5], [1, 0.6], (0, 1)),
    ),
    "stress of a table": (
        lambda: inspect.stress_figure(GEOMETRY),
        lambda axes: (spans(axes[0])[0, :, 0], spans(axes[0], 1)[0, :, 0], curve(axes[0], 1)),
        ([0.01, 0.31], [0.23, 0.53], ([0.33], [1])),
    ),
    "shares of layers": (
        lambda: inspect.shares_figure(STAGE),
        lambda axes: (image(axes[0]), curve(axes[1], "documents"), band(axes[1], 0),
                      curve(axes[1], "random order")),
        (POSITION, ([4, 7], [0.3, 0.5]), [[4, 7], [0.2, 0.4], [0.5, 0.7]], ([4, 7], [0.08, 0.2])),
    ),
    "attention by offset": (
        lambda: inspect.offsets_figure(STAGE),
        lambda axes: (
            curve(axes[0], "median head"), band(axes[0], 0), curve(axes[0], "head 1.2")[1],
            axes[0].get_ylim(), axes[0].get_xlim(), axes[0].get_xticks(),
        ),
        (
            ([-3, -2, -1, 0], 3.5 * np.array([0.01, 0.02, 0.04, 0.08])),
            [[-3, -2, -1, 0],
             *(np.array([[1.25], [5.75]]) * [0.01, 0.02, 0.04, 0.08])],  # of 1 to 6
            [0.06, 0.12, 0.24, 0.48], (0.0035, 1.2), (-3, 0), [-1, 0],
        ),
    ),
    "first token": (
        lambda: inspect.heads_figure(STAGE),
        lambda axes: (image(axes[0]), image(axes[1])),
        (GRID / 7, GRID / 8),
    ),
    "overlaps": (
        lambda: inspect.prior_figure(STAGE),
        lambda axes: (curve(axes[0], "a dummy"), curve(axes[0], "another document")),
        (([4, 7], [2 / 9, 5 / 9]), ([4, 7], [2 / 12, 5 / 12])),
    ),
    "a probe": (
        lambda: inspect.probe_figure(PROBE),
        lambda axes: (curve(axes[0], 0), band(axes[0], 0)[1:], axes[0].get_ylim()),
        (([0, 2, 4], [0.2, 0.9, 0.5]), [[0.1, 0.8, 0.4], [0.4, 1.1, 0.7]], (0, 1.02)),
    ),
    "moves": (
        lambda: inspect.moved_figure(ABLATION),
        lambda axes: (labels(axes[0], "y"), [curve(axes[0], k)[0][0] for k in range(3)],
                      len(axes[0].lines)),
        (["same", "shuffled", "original"], [3, 2.5, 2], 3),
    ),
    "moves of an output": (
        lambda: inspect.moved_figure(ABLATION._replace(measure="embedding")),
        lambda axes: curve(axes[0], 3)[0],
        [4, 4],
    ),
    "losses": (
        lambda: inspect.loss_figure(LOSS),
        lambda axes: (curve(axes[0], "YaRN"), band(axes[0], 0), curve(axes[0], "context")[0]),
        (([4, 32], [3.5, 2.5]), [[4, 32], [2.9, 1.9], [3.2, 2.2]], [32, 32]),
    ),
    "gains": (
        lambda: inspect.far_figure(LOSS),
        lambda axes: (curve(axes[0], "own"), curve(axes[0], "YaRN"), spans(axes[0])[:, :, 1]),
        (([-0.15, 0.85], [0.6, 0.1]), ([0.15, 1.15], [0.7, 0.4]), [[0.5, 0.8], [0, 0.3]]),
    ),
    "needles": (
        lambda: inspect.needles_figure(NEEDLES),
        lambda axes: (image(axes[0]), [text.get_color() for text in axes[0].texts],
                      [text.get_text() for text in axes[0].texts]),
        (NEEDLES.accuracy.mean, ["black", "black", "white", "white"], ["100", "60", "40", "10"]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_figures_draw_the_numbers_of_the_result(name):
    draw, read, expected = FIGURES[name]
    same(read(draw().axes), expected)


TITLES = {
    "variance": [29, 1],  # largest share of a layer
    "ablation": [30],
    "frequencies": [0, 2, 51],  # 2/5 and 5/8 of the squares of two layers
    "symbols": [30],
}


def test_titles_have_the_largest_numbers():
    said = {
        name: [float(x) for x in re.findall(r"\d+", draw(ATTENTION).get_suptitle())]
        for name, draw, _ in attention.FIGURES
        if name in TITLES
    }
    assert said == TITLES


def rows(found: list[tables.Table], *which: int) -> list[list[str]]:
    """Rows of some tables, with plain spaces and minus signs."""
    chosen = [found[k] for k in which or range(len(found))]
    return [
        [cell.replace("\N{NO-BREAK SPACE}", " ").replace("−", "-") for cell in row]
        for table in chosen
        for row in table.rows
    ]


TABLES: dict[str, tuple[Any, list[list[str]]]] = {
    "attention": (
        lambda: rows(tables.attention_tables(STAGE)),
        [["4", "30", "20 to 50", "10", "8"], ["7", "50", "40 to 70", "25", "20"]],
    ),
    "keys": (  # weights 1 to 6 times 0.04, 0.08 and 1 / 7
        lambda: rows(tables.offsets_tables(STAGE), 0),
        [
            ["the first token", "50", "3 of 6", "7.2: 86 %"],
            ["the token before", "14", "0 of 6", "7.2: 24 %"],
            ["the token itself", "28", "0 of 6", "7.2: 48 %"],
        ],
    ),
    "layers": (
        lambda: rows(tables.offsets_tables(STAGE), 1),
        [["4", "29", "8", "0.25", "6", "4"], ["7", "71", "20", "0.62", "27", "10"]],
    ),
    "sinks and bands": (  # norms of the layers 4 and 7 of all eight
        lambda: rows(tables.offsets_tables(STAGE), 2, 3),
        [
            ["4", "25", "22", "4.0", "10", "10", "20", "7"],
            ["7", "62", "56", "7.0", "20", "25", "50", "17"],
            ["position 0", "80 %"], ["position 3", "20 %"],
            ["token <s>", "70 %"], ["token the", "30 %"],
        ],
    ),
    "geometry": (
        lambda: rows(tables.geometry_tables(GEOMETRY)),
        [[name, value] for name, value in zip(
            [row[0] for row in tables.geometry_tables(GEOMETRY)[0].rows],
            ["0.3", "0.6 (0.5 to 0.8)", "0.4", "0.33 (0.23 to 0.53)", "n/a",
             "0.11 (0.01 to 0.31)", "-0.25", "20 %", "6, 1,200", "2"], strict=True,
        )],
    ),
    "overlaps": (
        lambda: rows(tables.prior_tables(STAGE)),
        [["4", "22", "17"], ["7", "56", "42"]],
    ),
    "probe": (
        lambda: [row[1:] for row in rows(tables.probe_tables(PROBE))],
        [["0.20 (0.10 to 0.40)", "3.0"], ["0.90 (0.80 to 1.10)", "1.0"],
         ["0.50 (0.40 to 0.70)", "2.0"], ["0.00", "4.0"]],
    ),
    "changes of a loss": (
        lambda: rows(tables.ablation_tables(ABLATION)),
        [["original", "2.00 (1.90 to 2.20)", "–"],
         ["shuffled", "2.50 (2.40 to 2.70)", "0.50 (0.40 to 0.70)"],
         ["same", "3.00 (2.90 to 3.20)", "1.00 (0.90 to 1.20)"],
         ["uniform guess", "4.00", "–"]],
    ),
    "changes of an output": (
        lambda: rows(tables.ablation_tables(ABLATION._replace(measure="embedding"))),
        [["shuffled", "2.50 (2.40 to 2.70)", "0.30 (0.20 to 0.50)"],
         ["same", "3.00 (2.90 to 3.20)", "–"], ["another document", "4.00", "–"]],
    ),
    "losses": (
        lambda: rows(tables.loss_tables(LOSS), 0, 1, 2),
        [["1 to 15", "3.00 (2.90 to 3.20)", "3.50 (3.40 to 3.70)"],
         ["16 to 63", "2.00 (1.90 to 2.20)", "2.50 (2.40 to 2.70)"],
         ["0", "0.60 (0.50 to 0.80)", "0.70 (0.60 to 0.90)"],
         ["48", "0.10 (0.00 to 0.30)", "0.40 (0.30 to 0.60)"],
         ["YaRN", "2", "0.40 (0.30 to 0.60)", "-0.30 (-0.40 to -0.10)"]],
    ),
    "reach": (  # of six texts: the lower end is one-sided, 0.1 · t(0.95) / t(0.975) of 5 degrees
        lambda: rows(tables.reach_tables(REACH)),
        [["16", "–"], ["32", f"0.50 ({0.5 - 0.1 * 2.015048 / 2.570582:.2f} to 0.70)"],
         ["start", "0.30 (0.20 to 0.50)"], ["middle", "0.10 (0.00 to 0.30)"],
         ["end", "0.20 (0.10 to 0.40)"]],
    ),
    "needles": (
        lambda: rows(tables.needles_tables(NEEDLES)),
        [["100", "100", "60", "80", "70 to 100"], ["2,000", "40", "10", "25", "15 to 45"]],
    ),
    "layers of logits": (  # medians of a layer's heads; of one document after the slash
        lambda: [[cell.replace("\N{NO-BREAK SPACE}", "") for cell in row[:1] + row[1:]]
                 for row in attention_text.layer_rows(ATTENTION)],
        [["0", "20% / 8%", "10%", "50%", "20% / 50%", "10%", "5% / 2%", "2 / 12", "102",
          "0.6 / 1", "0.3 in head 2"],
         ["1", "29% / 20%", "25%", "14%", "50% / 80%", "25%", "12% / 6%", "4 / 14", "104",
          "1.5 / 2.5", "0.6 in head 2"]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_tables_have_the_numbers_of_the_result(name):
    made, expected = TABLES[name]
    assert made() == expected
