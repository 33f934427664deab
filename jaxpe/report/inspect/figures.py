"""Figures of the page on a model."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxpe.analysis.inspect import InspectResult, Means
from jaxpe.report import style
from jaxpe.report.attention.logit_figures import bare, whole_ticks
from jaxpe.report.inspect import text
from jaxpe.report.style import Rendered, add_legend, new_figure, render
from jaxpe.report.text import number, percent

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

Figure = "matplotlib.figure.Figure"
_COLOURS = (style.INDIGO, style.VERMILION, style.GREEN, style.ORANGE, style.SKY, style.PINK)
_NEAR = 8  # offsets by which heads are chosen
_CAPTIONS = {
    "table": (
        "Left: Euclidean norm of each position vector; the line is the mean norm of token "
        "embeddings. Right: mean cosine of centred vectors by their offset."
    ),
    "bias": "What each head adds to the logits by the offset j − i: below 0 the key is earlier.",
    "wavelengths": (
        "Positions in which each rotary frequency makes one turn. One above the line of the "
        "training length was never seen to come round."
    ),
    "stress": (
        "Stress against documents that nothing was fitted to, with 95 % intervals: lower is "
        "better, 1 is no fit."
    ),
    "shares": (
        "Share of the variance of each head's logits that positions explain. The lines are means "
        "over heads with 95 % intervals: documents as they are, and in random order."
    ),
    "offsets": (
        "Mean attention weight by the offset j − i: all heads (band: from the 5th to the 95th "
        "percentile), and the three heads with most weight at one offset of at most 8."
    ),
    "heads": "Weight on the first token, and evenness of attention, head by head.",
    "prior": (
        "Overlap of attention with that to a dummy document of one repeated token, and to another "
        "real document; a point is a head, a line the mean over heads."
    ),
    "probe": "Share of the variance of the position that a linear probe explains, 95 % intervals.",
    "moved": "95 % intervals over documents. The dashed line is the reference of the table.",
    "loss": "Nats a token by position, with 95 % intervals over texts.",
    "far": (
        "What the tokens before a passage are worth when they are read so many positions further "
        "back, in nats a token. Below 0 the context does harm."
    ),
    "needles": "Share of facts retrieved, in percent, by their depth in texts of each length.",
}


def inspect_figures(result: InspectResult) -> dict[str, list[Rendered]]:
    """The figures of each section."""
    drawn = {
        section: render(result, *((name, draw, _CAPTIONS[name]) for name, draw in own(result)))
        for section, own in _SECTIONS.items()
    }
    return {section: figures for section, figures in drawn.items() if figures}


Drawings = list[tuple[str, Callable[[InspectResult], "matplotlib.figure.Figure"]]]


def _encoding(result: InspectResult) -> Drawings:
    found = result.encoding
    if found is None:
        return []
    drawn: Drawings = []
    if found.table is not None:
        drawn.append(("table", table_figure))
    if found.bias is not None:
        drawn.append(("bias", bias_figure))
    if found.rope is not None:
        drawn.append(("wavelengths", turning_figure))
    return drawn


def _geometry(result: InspectResult) -> Drawings:
    shown = result.geometry is not None and result.geometry.held_out is not None
    return [("stress", stress_figure)] if shown else []


def _attention(result: InspectResult) -> Drawings:
    return [] if result.attention is None else [("shares", shares_figure)]


def _offsets(result: InspectResult) -> Drawings:
    return (
        [] if result.attention is None else [("offsets", offsets_figure), ("heads", sinks_figure)]
    )


def _prior(result: InspectResult) -> Drawings:
    return [] if result.attention is None else [("prior", prior_figure)]


def _probe(result: InspectResult) -> Drawings:
    return [] if result.probe is None else [("probe", probe_figure)]


def _ablation(result: InspectResult) -> Drawings:
    return [] if result.ablation is None else [("moved", moved_figure)]


def _loss(result: InspectResult) -> Drawings:
    if result.loss is None:
        return []
    return [("loss", loss_figure), *([("far", far_figure)] if result.loss.far else [])]


def _needles(result: InspectResult) -> Drawings:
    return [] if result.needles is None else [("needles", needles_figure)]


_SECTIONS: dict[str, Callable[[InspectResult], Drawings]] = {
    "encoding": _encoding,
    "geometry": _geometry,
    "attention": _attention,
    "offsets": _offsets,
    "prior": _prior,
    "probe": _probe,
    "ablation": _ablation,
    "loss": _loss,
    "needles": _needles,
}
NAMES = tuple(_CAPTIONS)


def table_figure(result: InspectResult) -> "matplotlib.figure.Figure":
    """Norms and cosines of learned position vectors."""
    table: Any = result.encoding and result.encoding.table
    figure, (norms, cosines) = new_figure(
        f"{table.positions} vectors fill {table.rank:.0f} directions", columns=2, height=3.0
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


def bias_figure(result: InspectResult) -> "matplotlib.figure.Figure":
    """Bias by offset and head."""
    bias: Any = result.encoding and result.encoding.bias
    reach = bias.shape[1] // 2
    figure, (axis,) = new_figure("What the bias adds to the logits", height=3.4)
    axis.plot(np.arange(-reach, reach + 1), bias.T, lw=1.1, alpha=0.8)
    axis.axhline(0, color="#999999", lw=0.8)
    axis.set(xlabel="offset j − i", ylabel="bias")
    return figure


def turning_figure(result: InspectResult) -> "matplotlib.figure.Figure":
    """Wavelengths, as `jaxpe rope` draws them."""
    from jaxpe.report.rope.figures import wavelengths_figure

    rope: Any = result.encoding and result.encoding.rope
    return wavelengths_figure(rope)


def stress_figure(result: InspectResult) -> "matplotlib.figure.Figure":
    """Held-out stress of the table beside others."""
    found: Any = result.geometry
    rows = {
        "corpus' own": found.own,
        "sinusoids": found.sinusoidal,
        "the model's table": found.held_out,
    }
    shown = {name: value for name, value in rows.items() if value is not None}
    figure, (axis,) = new_figure(
        f"Held-out stress of the table: {number(found.held_out.estimate)}", height=2.6
    )
    for place, value in enumerate(shown.values()):
        axis.hlines(place, value.low, value.high, color=_COLOURS[place])
        axis.plot(value.estimate, place, "o", color=_COLOURS[place])
    axis.set_yticks(range(len(shown)), list(shown))
    axis.set(xlabel="stress at the best scale", xlim=(0, None), ylim=(-0.5, len(shown) - 0.5))
    return figure


def shares_figure(result: InspectResult) -> "matplotlib.figure.Figure":
    """Share of positions in the variance of logits, by head and by layer."""
    found: Any = result.attention
    figure, (heads, lines) = new_figure(
        f"Positions explain {percent(found.overall.estimate)} of the logits' variance",
        columns=2, height=3.6, width_ratios=(1, 1.25),
    )  # fmt: skip
    _map(figure, heads, found.variance.position, vmax=1.0)
    layers = np.arange(len(found.share.mean))
    _band(lines, layers, found.share, style.INDIGO, "documents")
    shuffled = found.variance.shuffled.mean(axis=1)
    lines.plot(layers, shuffled, color=style.VERMILION, lw=1.4, label="random order")
    lines.set(xlabel="layer", ylabel="share of the variance", ylim=(0, 1))
    lines.legend(fontsize=9, loc="upper right")
    whole_ticks(lines, len(layers), most=6)
    return figure


def offsets_figure(result: InspectResult) -> "matplotlib.figure.Figure":
    """Attention by offset."""
    found: Any = result.attention
    weights = found.offsets.reshape(-1, found.offsets.shape[-1])
    reach = weights.shape[-1] // 2
    causal = result.facts.kind == "causal"
    offsets = np.arange(-reach, 1 if causal else reach + 1)
    weights = weights[:, : len(offsets)]
    near = weights[:, np.abs(offsets) <= _NEAR]
    top = np.argsort(-near.max(axis=1))[:3]
    heads = found.first.shape[1]
    figure, (axis,) = new_figure("Attention by offset", height=3.6)
    low, middle, high = np.quantile(weights, (0.05, 0.5, 0.95), axis=0)
    axis.fill_between(offsets, low, high, color="#CCCCCC", lw=0, label="all heads")
    axis.plot(offsets, middle, color="#666666", lw=1.2, label="median head")
    for place, colour in zip(top, _COLOURS, strict=False):
        name = f"head {place // heads}.{place % heads}"
        axis.plot(offsets, weights[place], color=colour, lw=1.4, label=name)
    floor = max(1e-5, float(np.min(middle[middle > 0], initial=1.0)) / 10)
    axis.set(xlabel="offset j − i, tokens", ylabel="mean weight", yscale="log", ylim=(floor, 1.2))
    _offset_ticks(axis, int(offsets[0]), int(offsets[-1]))
    add_legend(figure, axis, columns=3)
    return figure


def sinks_figure(result: InspectResult) -> "matplotlib.figure.Figure":
    """Weight on the first token, and evenness, by head."""
    found: Any = result.attention
    figure, axes = new_figure(
        f"{percent(found.sink.estimate)} of attention goes to the first token",
        columns=2, height=3.6,
    )  # fmt: skip
    for axis, values, title in zip(
        axes, (found.first, found.evenness), ("on the first token", "evenness"), strict=True
    ):
        _map(figure, axis, values, vmax=1.0)
        axis.set_title(title)
    return figure


def prior_figure(result: InspectResult) -> "matplotlib.figure.Figure":
    """Overlap with a dummy and with another document."""
    found: Any = result.attention
    figure, (axis,) = new_figure(
        f"Overlap with a dummy {percent(found.dummy_overall.estimate)}, with a document "
        f"{percent(found.other_overall.estimate)}",
        height=3.4,
    )
    pairs = (
        (found.dummy, style.INDIGO, "a dummy"),
        (found.other, style.ORANGE, "another document"),
    )
    for values, colour, name in pairs:
        layers = np.arange(len(values))
        axis.plot(layers, values, ".", color=colour, ms=3, alpha=0.35)
        axis.plot(layers, values.mean(axis=1), color=colour, label=name)
    axis.set(xlabel="layer", ylabel="overlap", ylim=(0, 1))
    whole_ticks(axis, len(found.dummy), most=8)
    add_legend(figure, axis, columns=2)
    return figure


def probe_figure(result: InspectResult) -> "matplotlib.figure.Figure":
    """R² of the probe by layer."""
    found: Any = result.probe
    best = int(np.argmax(found.r2.mean))
    figure, (axis,) = new_figure(
        f"R² of the position: {found.r2.mean[best]:.2f} {text.behind(result, best)}", height=3.2
    )
    _band(axis, found.layers, found.r2, style.INDIGO, "")
    axis.axhline(0, color="#999999", lw=0.8)
    bottom = min(0.0, float(np.min(found.r2.low)))
    axis.set(xlabel="layers below the probe", ylabel="R²", ylim=(max(bottom, -1.0), 1.02))
    return figure


def moved_figure(result: InspectResult) -> "matplotlib.figure.Figure":
    """Values of the ways to move positions, with intervals."""
    found: Any = result.ablation
    moved = list(reversed(found.moved))
    embedding = found.measure == "embedding"
    title = "Cosine with the usual output" if embedding else "Loss where positions are moved"
    figure, (axis,) = new_figure(title, height=3.2)
    for place, one in enumerate(moved):
        axis.hlines(place, one.value.low, one.value.high, color=style.INDIGO)
        axis.plot(one.value.estimate, place, "o", color=style.INDIGO)
    if embedding:
        axis.axvline(found.reference, color=style.CHANCE, lw=1.0, ls="--")
    axis.set_yticks(range(len(moved)), [one.name for one in moved])
    axis.set_xlabel("cosine" if embedding else "nats a token")
    return figure


def loss_figure(result: InspectResult) -> "matplotlib.figure.Figure":
    """Loss by position under each scaling."""
    found: Any = result.loss
    figure, (axis,) = new_figure(
        f"Loss {found.scaled[0].loss.mean[-1]:.2f} nats a token at {found.length:,} tokens",
        height=3.4,
    )
    middles = np.sqrt(found.edges[:-1] * found.edges[1:])
    for one, colour in zip(found.scaled, _COLOURS, strict=False):
        _band(axis, middles, one.loss, colour, one.name)
    if 0 < found.context < found.length:
        axis.axvline(found.context, color=style.CHANCE, lw=1.0, ls="--", label="context")
    axis.set(xlabel="position", ylabel="loss, nats a token")
    axis.set_xscale("log", base=2)
    axis.set_xticks(found.edges[:-1], [f"{edge:,}" for edge in found.edges[:-1]])
    if len(found.scaled) > 1:
        add_legend(figure, axis, columns=3)
    return figure


def far_figure(result: InspectResult) -> "matplotlib.figure.Figure":
    """Gain of far context under each scaling."""
    found: Any = result.loss
    figure, (axis,) = new_figure("What context at a distance is worth", height=3.6)
    places = np.arange(len(found.distances))
    shifts = np.linspace(-0.15, 0.15, len(found.far)) if len(found.far) > 1 else [0.0]
    for one, colour, shift in zip(found.far, _COLOURS, shifts, strict=False):
        axis.vlines(places + shift, one.gain.low, one.gain.high, color=colour, lw=1.2)
        axis.plot(places + shift, one.gain.mean, "o-", color=colour, lw=1.0, ms=4, label=one.name)
    axis.axhline(0, color="#999999", lw=0.8)
    axis.set_xticks(places, [f"{int(distance):,}" for distance in found.distances])
    axis.set(xlabel=f"distance, positions (context {found.context:,})", ylabel="gain, nats a token")
    add_legend(figure, axis, columns=2)
    return figure


def needles_figure(result: InspectResult) -> "matplotlib.figure.Figure":
    """Accuracy by depth and length."""
    found: Any = result.needles
    figure, (axis,) = new_figure(
        f"{percent(float(found.by_length.mean[-1]))} of facts found in "
        f"{int(found.lengths[-1]):,} tokens",
        height=1.4 + 0.5 * len(found.lengths),
    )
    image = axis.imshow(found.accuracy.mean, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    for (row, column), value in np.ndenumerate(found.accuracy.mean):
        ink = "white" if value < 0.6 else "black"
        axis.text(column, row, f"{100 * value:.0f}", ha="center", va="center", color=ink)
    axis.set_xticks(range(len(found.depths)), [f"{depth:.1f}" for depth in found.depths])
    axis.set_yticks(range(len(found.lengths)), [f"{int(length):,}" for length in found.lengths])
    axis.set(xlabel="depth", ylabel="tokens")
    bare(axis, ticks=True)
    figure.colorbar(image, ax=axis, pad=0.02, format="%.1f")
    return figure


def _offset_ticks(axis: Any, low: int, high: int) -> None:
    """Offsets on a scale that is wide around 0, with whole numbers in plain digits."""
    axis.set_xscale("symlog", linthresh=4, linscale=1.5)
    steps = [0, *(sign * 4**k for k in range(10) for sign in (-1, 1))]
    shown = sorted(step for step in steps if low <= step <= high)
    axis.set_xticks(shown, [f"{step}".replace("-", "−") for step in shown])
    axis.minorticks_off()


def _map(figure: Any, axis: Any, values: np.ndarray, *, vmax: float) -> None:
    """Layers and heads as an image."""
    layers, heads = values.shape
    image = axis.imshow(values, aspect="auto", interpolation="none", vmin=0, vmax=vmax)
    axis.set(xlabel="head", ylabel="layer")
    whole_ticks(axis, heads, most=6)
    axis.set_yticks(range(0, layers, max(1, layers // 6)))
    bare(axis, ticks=True)
    figure.colorbar(image, ax=axis, pad=0.02, format="%.1f")


def _band(axis: Any, x: Any, found: Means, colour: str, label: str) -> None:
    """A line with its interval."""
    axis.fill_between(x, found.low, found.high, color=colour, alpha=0.2, lw=0)
    axis.plot(x, found.mean, color=colour, marker="o", ms=3, label=label or None)
