"""Figures of an analysis of attention: shares and drops by layer and head; the list of all."""

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxpe.report.attention import logit_figures
from jaxpe.report.attention.text import average, positive
from jaxpe.report.style import (
    ENCODING_COLOURS,
    PLUG_IN,
    POSITION,
    Drawing,
    add_legend,
    new_figure,
)
from jaxpe.report.text import number, percent

if TYPE_CHECKING:
    import matplotlib.figure

    from jaxpe.analysis.attention import AttentionAnalysis, HeadDrops

_PALE = "#CFCFCF"
_PART_COLOURS = (_PALE, ENCODING_COLOURS["smacof"], ENCODING_COLOURS["alibi"], POSITION, PLUG_IN)
_MOST_HEADS = 12  # with an interval each
_LARGE = 0.4  # share that an axis from 0 to 1 shows well


def variance_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """Shares of the variance of the logits, layer by layer."""
    variance = result.variance
    by_layer = positive(variance.position.mean(axis=1))
    top = int(by_layer.argmax())
    figure, (axis,) = new_figure(
        f"Positions explain {percent(by_layer[top])} of the variance in layer {top}", height=3.4
    )
    offset, place = (positive(x.mean(axis=1)) for x in (variance.offset, variance.place))
    rest = np.clip(1 - offset - place, 0, 1)
    shares = {
        "the offset j − i": (offset, POSITION),
        "positions i, j beyond it": (place, ENCODING_COLOURS["rope"]),
        "the rest": (rest, _PALE),
    }
    _stack(figure, axis, shares)
    shuffled = positive(variance.shuffled.mean(axis=1))
    axis.plot(np.arange(len(shuffled)), shuffled, "k_", ms=12, mew=2)
    top = max(float((offset + place).max()), float(shuffled.max()))
    axis.set(ylabel="share of the variance", ylim=(0, 1 if top > _LARGE else 1.25 * top or 1))
    return figure


def parts_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """Mean squares of the parts, layer by layer, and what their products make of them."""
    figure, (stack, cross) = new_figure(
        "Content and position in the squared logits", height=5.0, rows=2, sharex=True,
        height_ratios=(2, 1),
    )  # fmt: skip
    share = _by_layer(result.parts.share)
    of_sum = share / np.maximum(share.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    named = zip(result.parts.names, of_sum.T, _PART_COLOURS, strict=True)
    _stack(figure, stack, {name: (x, colour) for name, x, colour in named if x.max() > 0})
    stack.set(ylabel="share of their squares", ylim=(0, 1), xlabel="")
    of_layer = _by_layer(result.parts.cross[..., None])[:, 0]
    cross.bar(np.arange(len(share)), of_layer, 0.8, color="#777777")
    cross.axhline(0, color="#333333", lw=0.8)
    if np.abs(of_layer).max() > 1:
        cross.set_yscale("symlog", linthresh=1)
    cross.set_ylim(min(-0.1, 1.1 * of_layer.min()), max(0.1, 1.1 * of_layer.max()))
    cross.set(xlabel="layer", ylabel="cross terms")
    return figure


def _by_layer(values: np.ndarray) -> np.ndarray:
    """Means over the heads `[layers, heads, parts]` where there is a number; 0 where none is."""
    return np.array([[np.nan_to_num(average(x)) for x in layer.T] for layer in values])


def heads_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """Maps of layers and heads."""
    variance = result.variance
    residual = np.clip(variance.residual, 0, 1)
    maps: list[tuple[str, np.ndarray, dict[str, Any]]] = [
        ("positions explain", variance.position, {"cmap": "viridis", "vmin": 0}),
        ("of it, beyond the offset", residual, {"cmap": "viridis", "vmin": 0, "vmax": 1}),
    ]
    for drops in result.ablations:
        most = max(float(np.abs(drops.drop).max()), 1e-12)
        words = {"zero": "drop without the head", "mean": "drop with its mean"}[drops.kind]
        colours = {"cmap": logit_figures.DIVERGING, "vmin": -most, "vmax": most}
        maps.append((words, drops.drop, colours))
    rows, (layers, heads) = (len(maps) + 1) // 2, variance.level.shape
    panel = np.clip(2.2 * layers / heads, 0.7, 2.6) + 0.95
    figure, axes = new_figure("Head by head", rows=rows, columns=2, height=0.4 + rows * panel)
    for axis, (title, values, colours) in zip(axes, maps, strict=False):
        image = axis.imshow(values, interpolation="none", aspect="auto", **colours)
        axis.set(title=title, xlabel="head", ylabel="layer", facecolor="#DDDDDD")
        logit_figures.whole_ticks(axis, heads, most=6)
        axis.set_yticks(range(0, layers, max(1, layers // 6)))
        logit_figures.bare(axis, ticks=True)
        figure.colorbar(image, ax=axis, pad=0.02, format="%.2g")
    for axis in axes[len(maps) :]:
        axis.axis("off")
    return figure


def ablation_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """The heads that cost most, with intervals; hollow where a drop is within noise."""
    first = result.ablations[0]
    order = np.argsort(-first.drop, axis=None)[:_MOST_HEADS]
    names = [f"{i // first.drop.shape[1]}.{i % first.drop.shape[1]}" for i in order]
    figure, (axis,) = new_figure(_ablation_title(first), height=3.6)
    looks = {"zero": (POSITION, "o", "zero in its place"), "mean": (PLUG_IN, "D", "its mean")}
    for moved, drops in zip((-0.13, 0.13), result.ablations, strict=False):
        colour, marker, label = looks[drops.kind]
        middle, low, high = (x.ravel()[order] for x in (drops.drop, drops.low, drops.high))
        x = np.arange(len(order)) + (moved if len(result.ablations) > 1 else 0)
        axis.vlines(x, low, high, color=colour, lw=1.4)
        axis.plot(x, middle, marker, color=colour, mfc="white", ms=5)
        sure = drops.certain.ravel()[order] | (not drops.tested)
        axis.plot(x[sure], middle[sure], marker, color=colour, ms=5)
        axis.plot([], [], marker, color=colour, ms=5, label=label)
    axis.axhline(0, color="#999999", lw=0.8)
    axis.set_xticks(range(len(order)), names, rotation=45)
    axis.set(xlabel="layer.head", ylabel="drop of the score")
    add_legend(figure, axis, columns=2)
    return figure


def _ablation_title(drops: "HeadDrops") -> str:
    if not drops.tested or drops.certain[drops.head]:
        return f"The largest drop is {percent(drops.largest_share[0])} of them all"
    if drops.certain.any():
        return "The largest drop is within noise"
    return "No drop is beyond noise"


def frequencies_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """Squares of the logits of each rotary pair, as shares of their sum."""
    assert result.pairs is not None  # shown_figures asks
    angles, share = result.pairs.angles, result.pairs.share.mean(axis=1)
    share = share / np.maximum(share.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    layers, count = share.shape
    top = int(share.mean(axis=0).argmax())
    figure, (axis,) = new_figure(
        f"Pair {top} of {count} has most, {percent(share[:, top].mean())}",
        height=float(np.clip(1.9 + 0.17 * layers, 2.4, 5)),
    )
    image = axis.imshow(share, cmap="viridis", vmin=0, interpolation="none", aspect="auto")
    shown = range(0, count, max(1, -(-count // 7)))
    turns = [_compact(2 * np.pi / max(angles[k], 1e-12)) for k in shown]
    axis.set_xticks(list(shown), [f"{k}\n{turn}" for k, turn in zip(shown, turns, strict=True)])
    axis.set_yticks(range(0, layers, max(1, layers // 8)))
    axis.set(xlabel="pair, and its positions a turn", ylabel="layer")
    logit_figures.bare(axis, ticks=True)
    figure.colorbar(image, ax=axis, label="share of the squares", pad=0.02)
    return figure


FIGURES: tuple[Drawing, ...] = (
    (
        "variance",
        variance_figure,
        "Variance of the logits over documents and pairs of positions, mean of the heads: the part "
        "that is a function of the offset, the rest of what positions explain, and what differs "
        "between documents. Black bars: both parts of positions with the tokens of each document "
        "in random order.",
    ),
    (
        "heads",
        heads_figure,
        "Share of the variance that positions explain; of that, the share that is no function of "
        "the offset (grey where positions explain under 2 %); drop of the score without the head.",
    ),
    (
        "logits",
        logit_figures.logits_figure,
        "Averages over documents, queries downwards, keys to the right, each centred and on its "
        "own scale (neighbouring positions are averaged where there are many). Stripes along the "
        "diagonal are offsets. Of more than 12 layers six are shown.",
    ),
    (
        "offsets",
        logit_figures.offsets_figure,
        "Means along the diagonals j − i = k of the mean logits, one row a head, centred and each "
        "on its own scale, up to half the length: few pairs are farther apart. Offset 0, a token "
        "and itself, is left out.",
    ),
    (
        "symbols",
        logit_figures.symbols_figure,
        "The heads whose logits the offset explains best: means along the diagonals, and the "
        "symbol f(ω) = Σ t_k e^(ikω) of the diagonals shown, k ≠ 0.",
    ),
    (
        "spectra",
        logit_figures.spectra_figure,
        "Left: singular values of the mean logits, from the first layer (dark) to the last. Right: "
        "effective rank, one dot a head, lines through the middle ones.",
    ),
    (
        "parts",
        parts_figure,
        "Queries and keys as sums of position, the mean hidden state there, and content. Above: "
        "mean squares of the parts, as shares of their sum. Below: what products of different "
        "parts add, as a multiple of the squared logits (logarithmic beyond ±1). Far below 0 large "
        "parts cancel.",
    ),
    (
        "frequencies",
        frequencies_figure,
        "Rotary pairs of entries, from the fastest to the slowest: mean squares of their logits as "
        "shares of the sum over pairs, mean of the heads. Cross terms are left out.",
    ),
    (
        "ablation",
        ablation_figure,
        "The heads of the largest drops, with 95 % intervals over documents of each head alone. "
        "Hollow ones are within noise when all heads are tested together, at 5 % (a cosine is not "
        "tested).",
    ),
)


def shown_figures(result: "AttentionAnalysis") -> list[Drawing]:
    """Entries of `FIGURES` for which the result has data."""
    absent = {"frequencies": result.pairs is None, "ablation": not result.ablations}
    return [figure for figure in FIGURES if not absent.get(figure[0], False)]


def _stack(figure, axis, shares: dict[str, tuple[np.ndarray, str]]) -> None:
    """Bars of layers, one share on top of the other."""
    below = 0.0
    for label, (share, colour) in shares.items():
        axis.bar(np.arange(len(share)), share, 0.8, bottom=below, color=colour, label=label)
        below = below + share
    axis.set(xlabel="layer")
    logit_figures.whole_ticks(axis, len(np.atleast_1d(below)))
    add_legend(figure, axis, columns=3)


def _compact(value: float) -> str:
    return number(value) if value < 1000 else f"{value / 1000:.3g}k"
