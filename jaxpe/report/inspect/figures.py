"""Figures of the page on a model."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect import (
    AblationStage,
    AttentionStage,
    GeometryStage,
    LearnedTable,
    LossStage,
    Means,
    NeedleStage,
    ProbeStage,
)
from jaxpe.report import style
from jaxpe.report.attention.figures import head_map, integer_ticks, remove_frame
from jaxpe.report.inspect import text
from jaxpe.report.rope.figures import wavelengths_figure
from jaxpe.report.style import Draw, add_legend, new_figure
from jaxpe.report.text import number, percent

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

_COLOURS = (style.INDIGO, style.VERMILION, style.GREEN, style.ORANGE, style.SKY, style.PINK)
_NEAR = 8  # offsets by which heads are chosen


def table_figure(table: LearnedTable) -> "matplotlib.figure.Figure":
    """Norms and cosines of learned position vectors."""
    figure, (norms, cosines) = new_figure(
        f"{table.positions} vectors have effective rank {table.rank:.0f}", columns=2, height=3.0
    )
    norms.plot(table.norms, color=style.INDIGO, lw=1.2)
    norms.axhline(table.token_norm, color=style.CHANCE, lw=1.0, ls="--")
    norms.set(xlabel="position", ylabel="norm", ylim=(0, None))
    most = max(2, table.positions // 2)
    cosines.plot(table.cosine[:most], color=style.INDIGO)
    cosines.axhline(0, color="#999999", lw=0.8)
    cosines.set(xlabel="offset", ylabel="mean cosine")
    _offset_ticks(cosines, 0, most - 1)
    return figure


def bias_figure(bias: np.ndarray) -> "matplotlib.figure.Figure":
    """Bias by offset and head."""
    reach = bias.shape[1] // 2
    figure, (axis,) = new_figure("Bias of the logits", height=3.4)
    axis.plot(np.arange(-reach, reach + 1), bias.T, lw=1.1, alpha=0.8)
    axis.axhline(0, color="#999999", lw=0.8)
    axis.set(xlabel="offset j − i", ylabel="bias")
    return figure


def stress_figure(stage: GeometryStage) -> "matplotlib.figure.Figure":
    """Held-out stress of the table beside others."""
    assert stage.held_out is not None
    rows = {
        "the corpus's own": stage.own,
        "sinusoids": stage.sinusoidal,
        "the model's table": stage.held_out,
    }
    figure, (axis,) = new_figure(
        f"Held-out stress of the table: {number(stage.held_out.estimate)}", height=2.6
    )
    _intervals(axis, {name: value for name, value in rows.items() if value is not None}, _COLOURS)
    axis.set(xlabel="scaled stress", xlim=(0, None))
    return figure


def shares_figure(stage: AttentionStage) -> "matplotlib.figure.Figure":
    """Share of the logit variance that positions explain, by head and by layer."""
    figure, (heads, lines) = new_figure(
        f"Positions explain {percent(stage.overall.estimate)} of the logits' variance",
        columns=2, height=3.6, width_ratios=(1, 1.25),
    )  # fmt: skip
    head_map(figure, heads, stage.variance.position, vmin=0, vmax=1)
    layers = stage.layer_numbers
    _band(lines, layers, stage.share, style.INDIGO, "documents")
    shuffled = stage.variance.shuffled.mean(axis=1)
    lines.plot(layers, shuffled, color=style.VERMILION, lw=1.4, label="random order")
    lines.set(xlabel="layer", ylabel="share of the variance", ylim=(0, 1))
    lines.legend(fontsize=9, loc="upper right")
    integer_ticks(lines, layers[-1] + 1, most=6)
    return figure


def offsets_figure(stage: AttentionStage) -> "matplotlib.figure.Figure":
    """Attention by offset."""
    weights = stage.offsets.reshape(-1, stage.offsets.shape[-1])
    reach = weights.shape[-1] // 2
    causal = not stage.at_offset(1).any()
    offsets = np.arange(-reach, 1 if causal else reach + 1)
    weights = weights[:, : len(offsets)]
    near = weights[:, np.abs(offsets) <= _NEAR]
    top = np.argsort(-near.max(axis=1))[:3]
    heads = stage.first.shape[1]
    figure, (axis,) = new_figure("Attention by offset", height=3.6)
    low, middle, high = np.quantile(weights, (0.05, 0.5, 0.95), axis=0)
    axis.fill_between(offsets, low, high, color="#CCCCCC", lw=0, label="all heads")
    axis.plot(offsets, middle, color="#666666", lw=1.2, label="median head")
    for index, colour in zip(top, _COLOURS, strict=False):
        name = f"head {index // heads}.{index % heads}"
        axis.plot(offsets, weights[index], color=colour, lw=1.4, label=name)
    floor = max(1e-5, float(np.min(middle[middle > 0], initial=1.0)) / 10)
    axis.set(xlabel="offset j − i, tokens", ylabel="mean weight", yscale="log", ylim=(floor, 1.2))
    _offset_ticks(axis, int(offsets[0]), int(offsets[-1]))
    add_legend(figure, axis, columns=3)
    return figure


def heads_figure(stage: AttentionStage) -> "matplotlib.figure.Figure":
    """Weight on the first token, and evenness, by head."""
    figure, axes = new_figure(
        f"{percent(stage.sink.estimate)} of attention goes to the first token",
        columns=2, height=3.6,
    )  # fmt: skip
    for axis, values, title in zip(
        axes, (stage.first, stage.evenness), ("on the first token", "evenness"), strict=True
    ):
        head_map(figure, axis, values, vmin=0, vmax=1)
        axis.set_title(title)
    return figure


def prior_figure(stage: AttentionStage) -> "matplotlib.figure.Figure":
    """Overlap with a dummy and with another document."""
    figure, (axis,) = new_figure(
        f"Overlap with a dummy {percent(stage.dummy_overall.estimate)}, with a document "
        f"{percent(stage.other_overall.estimate)}",
        height=3.4,
    )
    pairs = (
        (stage.dummy, style.INDIGO, "a dummy"),
        (stage.other, style.ORANGE, "another document"),
    )
    layers = stage.layer_numbers
    for values, colour, name in pairs:
        axis.plot(layers, values, ".", color=colour, ms=3, alpha=0.35)
        axis.plot(layers, values.mean(axis=1), color=colour, label=name)
    axis.set(xlabel="layer", ylabel="overlap", ylim=(0, 1))
    integer_ticks(axis, layers[-1] + 1, most=8)
    add_legend(figure, axis, columns=2)
    return figure


def probe_figure(stage: ProbeStage) -> "matplotlib.figure.Figure":
    """R² of the probe by layer."""
    best = int(np.argmax(stage.r2.mean))
    figure, (axis,) = new_figure(
        f"R² of the position: {stage.r2.mean[best]:.2f} {text.layer_name(stage, best)}", height=3.2
    )
    _band(axis, stage.layers, stage.r2, style.INDIGO, "")
    axis.axhline(0, color="#999999", lw=0.8)
    bottom = min(0.0, float(np.min(stage.r2.low)))
    axis.set(xlabel="layers before the probe", ylabel="R²", ylim=(max(bottom, -1.0), 1.02))
    return figure


def moved_figure(stage: AblationStage) -> "matplotlib.figure.Figure":
    """Output or loss under each change of the positions."""
    embedding = stage.measure == "embedding"
    title = "Cosine with the original output" if embedding else "Loss by change of the positions"
    figure, (axis,) = new_figure(title, height=3.2)
    rows = {move.name.replace("own", "original"): move.value for move in reversed(stage.moved)}
    _intervals(axis, rows, [style.INDIGO] * len(rows))
    if embedding:
        axis.axvline(stage.reference, color=style.CHANCE, lw=1.0, ls="--")
    axis.set_xlabel("cosine" if embedding else "nats a token")
    return figure


def loss_figure(stage: LossStage) -> "matplotlib.figure.Figure":
    """Loss by position under each scaling."""
    figure, (axis,) = new_figure(
        f"Loss {stage.scaled[0].loss.mean[-1]:.2f} nats a token at {stage.length:,} tokens",
        height=3.4,
    )
    middles = np.sqrt(stage.edges[:-1] * stage.edges[1:])
    for scaled, colour in zip(stage.scaled, _COLOURS, strict=False):
        _band(axis, middles, scaled.loss, colour, scaled.name)
    if 0 < stage.context < stage.length:
        axis.axvline(stage.context, color=style.CHANCE, lw=1.0, ls="--", label="context")
    axis.set(xlabel="position", ylabel="loss, nats a token")
    axis.set_xscale("log", base=2)
    axis.set_xticks(stage.edges[:-1], [f"{edge:,}" for edge in stage.edges[:-1]])
    if len(stage.scaled) > 1:
        add_legend(figure, axis, columns=3)
    return figure


def far_figure(stage: LossStage) -> "matplotlib.figure.Figure":
    """Gain from far context under each scaling."""
    figure, (axis,) = new_figure("Gain from context at a distance", height=3.6)
    ticks = np.arange(len(stage.distances))
    shifts = np.linspace(-0.15, 0.15, len(stage.far)) if len(stage.far) > 1 else [0.0]
    for far, colour, shift in zip(stage.far, _COLOURS, shifts, strict=False):
        x = ticks + shift
        axis.vlines(x, far.gain.low, far.gain.high, color=colour, lw=1.2)
        axis.plot(x, far.gain.mean, "o-", color=colour, lw=1.0, ms=4, label=far.name)
    axis.axhline(0, color="#999999", lw=0.8)
    axis.set_xticks(ticks, [f"{int(distance):,}" for distance in stage.distances])
    axis.set(xlabel=f"distance, positions (context {stage.context:,})", ylabel="gain, nats a token")
    add_legend(figure, axis, columns=2)
    return figure


def needles_figure(stage: NeedleStage) -> "matplotlib.figure.Figure":
    """Accuracy by depth and length."""
    figure, (axis,) = new_figure(
        f"{percent(float(stage.by_length.mean[-1]))} of facts retrieved from "
        f"{int(stage.lengths[-1]):,} tokens",
        height=1.4 + 0.5 * len(stage.lengths),
    )
    image = axis.imshow(stage.accuracy.mean, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    for (row, column), value in np.ndenumerate(stage.accuracy.mean):
        ink = "white" if value < 0.6 else "black"
        axis.text(column, row, f"{100 * value:.0f}", ha="center", va="center", color=ink)
    axis.set_xticks(range(len(stage.depths)), [f"{depth:.1f}" for depth in stage.depths])
    axis.set_yticks(range(len(stage.lengths)), [f"{int(length):,}" for length in stage.lengths])
    axis.set(xlabel="depth", ylabel="tokens")
    remove_frame(axis)
    figure.colorbar(image, ax=axis, pad=0.02, format="%.1f")
    return figure


def _offset_ticks(axis: Any, low: int, high: int) -> None:
    """Offsets on a scale that is wide around 0, with whole numbers in plain digits."""
    axis.set_xscale("symlog", linthresh=4, linscale=1.5)
    steps = [0, *(sign * 4**k for k in range(10) for sign in (-1, 1))]
    shown = sorted(step for step in steps if low <= step <= high)
    axis.set_xticks(shown, [f"{step}".replace("-", "−") for step in shown])
    axis.set_xlim(low, high)
    axis.minorticks_off()


def _intervals(axis: "matplotlib.axes.Axes", rows: dict[str, Interval], colours: Any) -> None:
    """Estimates with their intervals, one a row from below."""
    for row, (interval, colour) in enumerate(zip(rows.values(), colours, strict=False)):
        axis.hlines(row, interval.low, interval.high, color=colour)
        axis.plot(interval.estimate, row, "o", color=colour)
    axis.set_yticks(range(len(rows)), list(rows))
    axis.set_ylim(-0.5, len(rows) - 0.5)


def _band(axis: "matplotlib.axes.Axes", x: Any, means: Means, colour: str, label: str) -> None:
    """A line with its interval."""
    axis.fill_between(x, means.low, means.high, color=colour, alpha=0.2, lw=0)
    axis.plot(x, means.mean, color=colour, marker="o", ms=3, label=label or None)


class StageFigure(NamedTuple):
    """A figure of a section: how it is drawn of a stage, and how to read it."""

    section: str
    draw: Draw
    caption: str
    data: Callable[[Any], Any] = lambda stage: stage  # what is drawn of it; None for no figure


FIGURES = (
    StageFigure(
        "encoding", table_figure,
        "Left: Euclidean norm of each position vector; the line is the mean norm of token "
        "embeddings. Right: mean cosine of centred vectors by their offset.",
        lambda stage: stage.table,
    ),
    StageFigure(
        "encoding", bias_figure,
        "Added to the logits by each head, by the offset j − i. Below 0 the key is earlier.",
        lambda stage: stage.bias,
    ),
    StageFigure(
        "encoding", wavelengths_figure,
        "Positions in which each rotary frequency completes one rotation. Those above the line of "
        "the training length never did in training.",
        lambda stage: stage.rope,
    ),
    StageFigure(
        "geometry", stress_figure,
        "Scaled stress on documents that nothing was fitted to, with 95 % intervals. Lower is "
        "better; 1 is no fit.",
        lambda stage: stage if stage.held_out else None,
    ),
    StageFigure(
        "attention", shares_figure,
        "Share of the variance of each head's logits that positions explain. The lines are means "
        "over heads with 95 % intervals: documents as they are, and in random order.",
    ),
    StageFigure(
        "offsets", offsets_figure,
        "Mean attention weight by the offset j − i: all heads (band: 5th to 95th percentile), and "
        "the three heads with most weight at one offset of at most 8.",
    ),
    StageFigure(
        "offsets", heads_figure,
        "Weight on the first token, and evenness of attention, by head.",
    ),
    StageFigure(
        "prior", prior_figure,
        "Overlap of attention with a dummy document of one repeated token, and with another real "
        "document. Points are heads, lines their means.",
    ),
    StageFigure(
        "probe", probe_figure,
        "Share of the variance of the position that a linear probe explains, with 95 % intervals.",
    ),
    StageFigure(
        "ablation", moved_figure,
        "95 % intervals over documents. A dashed line is the cosine of two unrelated documents.",
    ),
    StageFigure(
        "loss", loss_figure, "Nats a token by position, with 95 % intervals over texts."
    ),
    StageFigure(
        "loss", far_figure,
        "What the tokens before a passage are worth, in nats a token, when they are read so many "
        "positions further back. Below 0 the context does harm.",
        lambda stage: stage if stage.far else None,
    ),
    StageFigure(
        "needles", needles_figure,
        "Percent of facts retrieved, by their depth in texts of each length.",
    ),
)  # fmt: skip
