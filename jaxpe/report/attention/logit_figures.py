"""Figures of the mean logits of heads: as matrices, by offset, by frequency, and their spectra."""

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxpe._core.errors import require
from jaxpe.report import style
from jaxpe.report.attention.text import near, positive
from jaxpe.report.style import PLUG_IN, POSITION, add_legend, new_figure
from jaxpe.report.text import percent

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

    from jaxpe.analysis.attention import AttentionAnalysis

DIVERGING = "PuOr_r"
_LINES = (POSITION, PLUG_IN, style.GREEN, style.ORANGE, style.PINK)
_MOST_LAYERS = 12  # in the grid of logits; of more, half as many are shown
_MOST_PIXELS = 40_000  # of the grid: more would make a heavy page


def logits_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """Mean logits of layers and heads, each centred and on its own scale."""
    layers = shown_layers(len(result.means.logits))
    logits = result.means.logits[layers]
    count, heads, n, _ = logits.shape
    side = min(n, max(4, int((_MOST_PIXELS / (count * heads)) ** 0.5)))
    canvas = np.full((count * (side + 1) - 1, heads * (side + 1) - 1), np.nan)
    for row in range(count):
        for column in range(heads):
            place = (slice(x * (side + 1), x * (side + 1) + side) for x in (row, column))
            canvas[tuple(place)] = _scaled(_blocks(logits[row, column], side))
    height = min(9.0, 0.9 + 4.9 * count / heads)
    figure, (axis,) = new_figure("Mean logits, head by head", height=height)
    axis.imshow(canvas, cmap=DIVERGING, vmin=-1, vmax=1, interpolation="none")
    middles = np.arange(max(count, heads)) * (side + 1) + (side - 1) / 2
    axis.set_xticks(middles[:heads], [str(head) for head in range(heads)])
    axis.set_yticks(middles[:count], [str(layer) for layer in layers])
    axis.set(xlabel="head", ylabel="layer")
    bare(axis)
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
    bare(axis, ticks=True)
    bar = figure.colorbar(image, ax=axis, ticks=[-1, 0, 1])
    bar.ax.set_yticklabels(["low", "mean", "high"])
    return figure


def symbols_figure(result: "AttentionAnalysis") -> "matplotlib.figure.Figure":
    """Diagonals and symbols of the heads whose logits the offset explains most."""
    offsets, diagonals = near(result)
    share = result.variance.offset
    best = [divmod(int(i), share.shape[1]) for i in np.argsort(-share, axis=None)[: len(_LINES)]]
    figure, (by_offset, by_frequency) = new_figure(
        f"The offset explains up to {percent(positive(share.max()))} of a head", height=5.6, rows=2
    )
    omega = np.linspace(0, np.pi, 129)
    for colour, (layer, head) in zip(_LINES, best, strict=False):
        label = f"layer {layer}, head {head}: {percent(positive(share[layer, head]))}"
        own = diagonals[layer, head]
        by_offset.plot(offsets, own, color=colour, lw=1.5, label=label)
        known = np.where(np.isfinite(own), own, 0)
        f = np.exp(1j * np.outer(omega, offsets)) @ known
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
    colours = _of_layers(count)
    for layer, singular in enumerate(means.singular):
        largest = np.maximum(singular[:, :1], np.finfo(float).tiny)
        middle = np.median(singular / largest, axis=0)
        label = f"layer {layer}" if layer in (0, count - 1) else None
        shown = np.where(middle > 1e-7, middle, np.nan)
        values.semilogy(np.arange(1, len(middle) + 1), shown, color=colours[layer], lw=1.3,
                        label=label)  # fmt: skip
    values.set(title="mean logits, middle head", xlabel="number", ylabel="singular value / largest")
    values.legend(fontsize=9.5)
    rank = np.arange(count)
    for found, colour, label, moved in (
        (means.effective_rank, POSITION, "mean logits", -0.12),
        (result.single.effective_rank, PLUG_IN, "single documents", 0.12),
    ):
        x = np.repeat(rank + moved, found.shape[1])
        ranks.plot(x, found.ravel(), ".", color=colour, ms=5, alpha=0.6, mew=0, label=label)
        ranks.plot(rank + moved, np.median(found, axis=1), color=colour, lw=1.2)
    ranks.set(title="effective rank, all heads", xlabel="layer", ylim=(0, None))
    whole_ticks(ranks, count, most=6)
    figure.legend(*ranks.get_legend_handles_labels(), loc="outside lower center", ncols=2,
                  fontsize=9.5, markerscale=2.5)  # fmt: skip
    return figure


def shown_layers(count: int) -> list[int]:
    """The layers of the grid: all, or a few from the first to the last."""
    if count <= _MOST_LAYERS:
        return list(range(count))
    return np.linspace(0, count - 1, _MOST_LAYERS // 2).round().astype(int).tolist()


def _blocks(matrix: np.ndarray, side: int) -> np.ndarray:
    """Means of blocks, `[side, side]`; NaN where all is."""
    edges = np.linspace(0, len(matrix), side + 1).round().astype(int)[:-1]
    known = np.isfinite(matrix)

    def summed(x: np.ndarray) -> np.ndarray:
        return np.add.reduceat(np.add.reduceat(x, edges, axis=0), edges, axis=1)

    total, count = summed(np.where(known, matrix, 0.0)), summed(known.astype(float))
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)


def _scaled(values: np.ndarray) -> np.ndarray:
    """Centred, the largest deviations at ±1; NaN stays."""
    centred = values - np.nanmean(values)
    return centred / max(float(np.nanquantile(np.abs(centred), 0.99)), 1e-30)


def _of_layers(count: int) -> list[Any]:
    """Colours from dark to light."""
    viridis = require("matplotlib", extra="report").colormaps["viridis"]
    return [viridis(0.9 * k / max(count - 1, 1)) for k in range(count)]


def whole_ticks(axis: "matplotlib.axes.Axes", count: int, *, most: int = 12) -> None:
    """Whole numbers from 0, at most so many."""
    axis.set_xticks(range(0, count, max(1, -(-count // most))))


def bare(axis: "matplotlib.axes.Axes", *, ticks: bool = False) -> None:
    """Without a frame, and without ticks unless asked for."""
    axis.spines[:].set_visible(False)
    if not ticks:
        axis.tick_params(length=0)
