"""Figures of the page on attention logits."""

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxpe._core.errors import require
from jaxpe.report import style
from jaxpe.report.attention.text import is_noise, mean, near, positive
from jaxpe.report.style import (
    ENCODING_COLOURS,
    PLUG_IN,
    POSITION,
    Draw,
    Drawing,
    add_legend,
    drawings,
    new_figure,
)
from jaxpe.report.text import number, percent

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

    from jaxpe.analysis.attention import AttentionAnalysis, HeadDrops

DIVERGING = "PuOr_r"
_LINES = (POSITION, PLUG_IN, style.GREEN, style.ORANGE, style.PINK)
_MOST_LAYERS = 12  # layers in the grid of logits; of more layers, half as many are shown
_MOST_PIXELS = 40_000  # pixels of the grid: more would make a large page
_PALE = "#CFCFCF"
_PART_COLOURS = (_PALE, ENCODING_COLOURS["smacof"], ENCODING_COLOURS["alibi"], POSITION, PLUG_IN)
_MOST_HEADS = 12  # heads with an interval in the figure


def variance_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """Shares of the variance of the logits, layer by layer."""
    variance = result.variance
    by_layer = positive(variance.position.mean(axis=1))
    top = int(by_layer.argmax())
    figure, (axis,) = new_figure(
        f"Positions explain {percent(by_layer[top])} of the variance in layer {top}", height=3.4
    )
    offset, positions = (positive(x.mean(axis=1)) for x in (variance.offset, variance.place))
    rest = np.clip(1 - offset - positions, 0, 1)
    shares = {
        "the offset j − i": (offset, POSITION),
        "positions i, j beyond it": (positions, ENCODING_COLOURS["rope"]),
        "the rest": (rest, _PALE),
    }
    _stack(figure, axis, shares)
    shuffled = positive(variance.shuffled.mean(axis=1))
    axis.plot(np.arange(len(shuffled)), shuffled, "k_", ms=12, mew=2)
    axis.set(ylabel="share of the variance", ylim=(0, 1))
    return figure


def parts_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """Mean squares of the parts and their cross terms, layer by layer."""
    figure, (stack, cross) = new_figure(
        "Content and position in the squared logits", height=5.0, rows=2, sharex=True,
        height_ratios=(2, 1),
    )  # fmt: skip
    share = _layer_means(result.parts.share)
    relative = share / np.maximum(share.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    named = zip(result.parts.names, relative.T, _PART_COLOURS, strict=True)
    _stack(figure, stack, {name: (x, colour) for name, x, colour in named if x.max() > 0})
    stack.set(ylabel="share of their squares", ylim=(0, 1), xlabel="")
    by_layer = _layer_means(result.parts.cross[..., None])[:, 0]
    cross.bar(np.arange(len(share)), by_layer, 0.8, color="#777777")
    cross.axhline(0, color="#333333", lw=0.8)
    if np.abs(by_layer).max() > 1:
        cross.set_yscale("symlog", linthresh=1)
    cross.set_ylim(min(-0.1, 1.1 * by_layer.min()), max(0.1, 1.1 * by_layer.max()))
    cross.set(xlabel="layer", ylabel="cross terms")
    return figure


def _layer_means(values: np.ndarray) -> np.ndarray:
    """Means over heads of `[layers, heads, parts]` without NaN; 0 where all are NaN."""
    return np.array([[np.nan_to_num(mean(x)) for x in layer.T] for layer in values])


def heads_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """Shares of variance and drops, by layer and head."""
    variance = result.variance
    residual = np.clip(variance.residual, 0, 1)
    maps: list[tuple[str, np.ndarray, dict[str, Any]]] = [
        ("positions explain", variance.position, {"cmap": "viridis", "vmin": 0}),
        ("of it, beyond the offset", residual, {"cmap": "viridis", "vmin": 0, "vmax": 1}),
    ]
    for drops in result.ablations:
        most = max(float(np.abs(drops.drop).max()), 1e-12)
        words = {"zero": "drop without the head", "mean": "drop with its mean"}[drops.kind]
        colours = {"cmap": DIVERGING, "vmin": -most, "vmax": most}
        maps.append((words, drops.drop, colours))
    rows, (layers, heads) = (len(maps) + 1) // 2, variance.level.shape
    panel = np.clip(2.2 * layers / heads, 0.7, 2.6) + 0.95
    figure, axes = new_figure("Head by head", rows=rows, columns=2, height=0.4 + rows * panel)
    for axis, (title, values, colours) in zip(axes, maps, strict=False):
        head_map(figure, axis, values, **colours)
        axis.set(title=title, facecolor="#DDDDDD")
    for axis in axes[len(maps) :]:
        axis.axis("off")
    return figure


def ablation_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """The largest drops with intervals; hollow where a drop is within noise."""
    first = result.ablations[0]
    order = np.argsort(-first.drop, axis=None)[:_MOST_HEADS]
    names = [f"{i // first.drop.shape[1]}.{i % first.drop.shape[1]}" for i in order]
    figure, (axis,) = new_figure(_ablation_title(first), height=3.6)
    looks = {"zero": (POSITION, "o", "zero in its place"), "mean": (PLUG_IN, "D", "its mean")}
    for shift, drops in zip((-0.13, 0.13), result.ablations, strict=False):
        colour, marker, label = looks[drops.kind]
        drop, low, high = (x.ravel()[order] for x in (drops.drop, drops.low, drops.high))
        x = np.arange(len(order)) + (shift if len(result.ablations) > 1 else 0)
        axis.vlines(x, low, high, color=colour, lw=1.4)
        axis.plot(x, drop, marker, color=colour, mfc="white", ms=5)
        certain = drops.certain.ravel()[order] | (not drops.tested)
        axis.plot(x[certain], drop[certain], marker, color=colour, ms=5, label=label)
    axis.axhline(0, color="#999999", lw=0.8)
    axis.set_xticks(range(len(order)), names, rotation=45)
    axis.set(xlabel="layer.head", ylabel="drop of the score")
    add_legend(figure, axis, columns=2)
    return figure


def _ablation_title(drops: "HeadDrops") -> str:
    if not is_noise(drops):
        return f"The largest drop is {percent(drops.largest_share[0])} of them all"
    if drops.certain.any():
        return "The largest drop is within noise"
    return "No drop is beyond noise"


def frequencies_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """Share of each rotary pair in the squared logits."""
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
    remove_frame(axis)
    figure.colorbar(image, ax=axis, label="share of the squares", pad=0.02)
    return figure


def _stack(figure, axis, shares: dict[str, tuple[np.ndarray, str]]) -> None:
    """Stacked bars of shares, by layer."""
    below = 0.0
    for label, (share, colour) in shares.items():
        axis.bar(np.arange(len(share)), share, 0.8, bottom=below, color=colour, label=label)
        below = below + share
    axis.set(xlabel="layer")
    integer_ticks(axis, len(np.atleast_1d(below)))
    add_legend(figure, axis, columns=3)


def _compact(value: float) -> str:
    return number(value) if value < 1000 else f"{value / 1000:.3g}k"


def logits_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """Mean logits of layers and heads, each centred and on its own scale."""
    layers = shown_layers(len(result.means.logits))
    logits = result.means.logits[layers]
    count, heads, n, _ = logits.shape
    side = min(n, max(4, int((_MOST_PIXELS / (count * heads)) ** 0.5)))
    tiles = np.full((count, heads, side + 1, side + 1), np.nan)  # with a margin
    for head in np.ndindex(count, heads):
        tiles[head][:-1, :-1] = _scaled(_blocks(logits[head], side))
    canvas = tiles.swapaxes(1, 2).reshape(count * (side + 1), -1)[:-1, :-1]
    height = min(9.0, 0.9 + 4.9 * count / heads)
    figure, (axis,) = new_figure("Mean logits, head by head", height=height)
    axis.imshow(canvas, cmap=DIVERGING, vmin=-1, vmax=1, interpolation="none")
    middles = np.arange(max(count, heads)) * (side + 1) + (side - 1) / 2
    axis.set_xticks(middles[:heads], [str(head) for head in range(heads)])
    axis.set_yticks(middles[:count], [str(layer) for layer in layers])
    axis.set(xlabel="head", ylabel="layer")
    remove_frame(axis)
    axis.tick_params(length=0)
    return figure


def offsets_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """Means of the diagonals of all heads, each centred and on its own scale."""
    offsets, diagonals = near(result)
    layers, heads, _ = diagonals.shape
    rows = np.stack([_scaled(row) for row in diagonals.reshape(layers * heads, -1)])
    figure, (axis,) = new_figure("Mean logits by offset, all heads", height=4.4)
    edges = (offsets[0] - 0.5, offsets[-1] + 0.5, layers * heads - 0.5, -0.5)
    image = axis.imshow(rows, cmap=DIVERGING, vmin=-1, vmax=1, interpolation="none",
                        aspect="auto", extent=edges)  # fmt: skip
    shown = range(0, layers, max(1, layers // 12))
    axis.set_yticks([layer * heads + (heads - 1) / 2 for layer in shown], [str(x) for x in shown])
    for layer in range(1, layers):
        axis.axhline(layer * heads - 0.5, color="white", lw=1)
    axis.set(xlabel="offset j − i of the key from the query", ylabel="layer, its heads within")
    remove_frame(axis)
    bar = figure.colorbar(image, ax=axis, ticks=[-1, 0, 1])
    bar.ax.set_yticklabels(["low", "mean", "high"])
    return figure


def symbols_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """Diagonals and symbols of the heads whose logits depend most on the offset."""
    offsets, diagonals = near(result)
    share = result.variance.offset
    best = [divmod(int(i), share.shape[1]) for i in np.argsort(-share, axis=None)[: len(_LINES)]]
    figure, (by_offset, by_frequency) = new_figure(
        f"The offset explains up to {percent(positive(share.max()))} of a head", height=5.6, rows=2
    )
    omega = np.linspace(0, np.pi, 129)
    for colour, (layer, head) in zip(_LINES, best, strict=False):
        label = f"layer {layer}, head {head}: {percent(positive(share[layer, head]))}"
        means = diagonals[layer, head]
        by_offset.plot(offsets, means, color=colour, lw=1.5, label=label)
        f = np.exp(1j * np.outer(omega, offsets)) @ np.nan_to_num(means)
        f = np.abs(f) if result.causal else f.real
        by_frequency.plot(omega / np.pi, f, color=colour, lw=1.5)
    by_offset.set(xlabel="offset j − i of the key from the query", ylabel="mean logit, centred")
    shown = "|f(ω)|" if result.causal else "symbol, Re f(ω)"
    by_frequency.set(xlabel="frequency ω/π", ylabel=shown)
    add_legend(figure, by_offset, columns=2)
    return figure


def spectra_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """Singular values and effective ranks by layer."""
    means, count = result.means, len(result.means.singular)
    figure, (values, ranks) = new_figure("Spectra of the logits", height=3.9, columns=2)
    colours = _dark_to_light(count)
    for layer, singular in enumerate(means.singular):
        largest = np.maximum(singular[:, :1], np.finfo(float).tiny)
        median = np.median(singular / largest, axis=0)
        label = f"layer {layer}" if layer in (0, count - 1) else None
        shown = np.where(median > 1e-7, median, np.nan)
        number = np.arange(1, len(median) + 1)
        values.semilogy(number, shown, color=colours[layer], lw=1.3, label=label)
    values.set(title="mean logits, median head", xlabel="number", ylabel="singular value / largest")
    values.legend(fontsize=9.5)
    for rank, colour, label, shift in (
        (means.effective_rank, POSITION, "mean logits", -0.12),
        (result.single.effective_rank, PLUG_IN, "single documents", 0.12),
    ):
        x = np.arange(count) + shift
        ranks.plot(x, rank, ".", color=colour, ms=5, alpha=0.6, mew=0)
        ranks.plot(x, np.median(rank, axis=1), color=colour, lw=1.2, label=label)
    ranks.set(title="effective rank, all heads", xlabel="layer", ylim=(0, None))
    integer_ticks(ranks, count, most=6)
    add_legend(figure, ranks, columns=2)
    return figure


def shown_layers(count: int) -> list[int]:
    """Layers in the grid of logits: all, or six from the first to the last."""
    if count <= _MOST_LAYERS:
        return list(range(count))
    return np.linspace(0, count - 1, _MOST_LAYERS // 2).round().astype(int).tolist()


def _blocks(matrix: np.ndarray, side: int) -> np.ndarray:
    """Means of blocks, `[side, side]`; NaN for a block without numbers."""
    edges = np.linspace(0, len(matrix), side + 1).round().astype(int)[:-1]
    finite = np.isfinite(matrix)

    def summed(x: np.ndarray) -> np.ndarray:
        return np.add.reduceat(np.add.reduceat(x, edges, axis=0), edges, axis=1)

    total, count = summed(np.where(finite, matrix, 0.0)), summed(finite.astype(float))
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)


def _scaled(values: np.ndarray) -> np.ndarray:
    """Values centred and scaled to ±1 at the 99th percentile; NaN stays."""
    centred = values - np.nanmean(values)
    return centred / max(float(np.nanquantile(np.abs(centred), 0.99)), 1e-30)


def _dark_to_light(count: int) -> list[Any]:
    """Colours of layers, from dark to light."""
    viridis = require("matplotlib", extra="report").colormaps["viridis"]
    return [viridis(0.9 * k / max(count - 1, 1)) for k in range(count)]


def integer_ticks(axis: "matplotlib.axes.Axes", count: int, *, most: int = 12) -> None:
    """Ticks at integers from 0, at most `most` of them."""
    axis.set_xticks(range(0, count, max(1, -(-count // most))))


def remove_frame(axis: "matplotlib.axes.Axes") -> None:
    """Hide the frame around an image."""
    axis.spines[:].set_visible(False)


def head_map(figure: Any, axis: Any, values: np.ndarray, **colours: Any) -> None:
    """Image of a value of each layer and head."""
    layers, heads = values.shape
    image = axis.imshow(values, aspect="auto", interpolation="none", **colours)
    axis.set(xlabel="head", ylabel="layer")
    integer_ticks(axis, heads, most=6)
    axis.set_yticks(range(0, layers, max(1, layers // 6)))
    remove_frame(axis)
    figure.colorbar(image, ax=axis, pad=0.02, format="%.2g")


_CAPTIONS: dict[Draw, str] = {
    variance_figure: (
        "Variance of the logits over documents and pairs of positions, mean of the heads: the part "
        "that is a function of the offset, the rest of what positions explain, and what differs "
        "between documents. Black bars: both parts of positions with the tokens of each document "
        "in random order."
    ),
    heads_figure: (
        "Share of the variance that positions explain; of that, the share that is not a function "
        "of the offset (grey where positions explain under 2 %); drop of the score without the "
        "head."
    ),
    logits_figure: (
        "Averages over documents, queries downwards, keys to the right, each centred and on its "
        "own scale. Neighbouring positions are averaged if there are many. Stripes along the "
        "diagonal are offsets. Of more than 12 layers six are shown."
    ),
    offsets_figure: (
        "Means along the diagonals j − i = k of the mean logits, one row per head, centred and "
        "each on its own scale. Offsets go up to half the length, because few pairs are farther "
        "apart. Offset 0, a token and itself, is left out."
    ),
    symbols_figure: (
        "The heads whose logits the offset explains best: means along the diagonals, and the "
        "symbol f(ω) = Σ t_k e^(ikω) of the diagonals shown, k ≠ 0."
    ),
    spectra_figure: (
        "Left: singular values of the mean logits, from the first layer (dark) to the last. Right: "
        "effective rank, one dot per head, lines through the medians."
    ),
    parts_figure: (
        "Queries and keys as sums of position, the mean hidden state at it, and content. Above: "
        "mean squares of the parts, as shares of their sum. Below: products of different parts, as "
        "a multiple of the squared logits (logarithmic beyond ±1). Far below 0 large parts cancel."
    ),
    frequencies_figure: (
        "Rotary pairs of entries, from the fastest to the slowest: mean squares of their logits as "
        "shares of the sum over pairs, mean of the heads. Cross terms are left out."
    ),
    ablation_figure: (
        "The heads of the largest drops, with 95 % intervals over documents of each head alone. "
        "Hollow ones are within noise when all heads are tested together, at 5 % (a cosine is not "
        "tested)."
    ),
}
FIGURES = drawings(_CAPTIONS)


def shown_figures(result: "AttentionAnalysis") -> list[Drawing]:
    """Entries of `FIGURES` for which the result has data."""
    absent = {"frequencies": result.pairs is None, "ablation": not result.ablations}
    return [figure for figure in FIGURES if not absent.get(figure[0], False)]
