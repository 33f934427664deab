"""What attention logits are made of: a table, a page, and the numbers as JSON."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxpe._errors import require
from jaxpe.report._figures import ENCODING_COLOURS, PLUG_IN, SPLIT_HALF, new_figure, render
from jaxpe.report._page import template
from jaxpe.report._table import make_table
from jaxpe.report._words import number, percent, plural, visible
from jaxpe.report._write import prepare_directory, write_files

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import rich.table

PARTS = (
    "content–content",
    "content–position",
    "position–content",
    "position–position",
    "bias",
)
SCORES = {
    "accuracy": "accuracy",
    "masked": "minus the loss in nats a masked token",
    "causal": "minus the loss in nats a next token",
    "embedding": "cosine with the embedding that all heads together give",
}
UNITS = {"accuracy": "points", "masked": "nats", "causal": "nats", "embedding": ""}
_ORANGE, _SKY, _PALE = ENCODING_COLOURS["rope"], ENCODING_COLOURS["smacof"], "#CFCFCF"
_PART_COLOURS = (_PALE, _SKY, ENCODING_COLOURS["alibi"], SPLIT_HALF, PLUG_IN)
_LINES = (SPLIT_HALF, PLUG_IN, ENCODING_COLOURS["alibi"], _ORANGE, "#CC79A7")
_DIVERGING = "PuOr_r"
_MOST_LAYERS = 12  # in the grid of logits; of more, half as many are shown
_MOST_PIXELS = 40_000  # of the grid: more would make a heavy page
_MOST_HEADS = 12  # with an interval each


class MeanLogits(NamedTuple):
    """Logits of each layer and head, averaged over documents, on n positions of text.

    Attributes:
        logits: `[layers, heads, n, n]`; NaN where a decoder does not look.
        toeplitz: share of their squares that no Toeplitz matrix explains.
        circulant: the same for circulant matrices; NaN for decoders.
        diagonals: means of the diagonals j − i = −(n − 1) ... n − 1.
        symbol: f(ω) = Σ t_k e^{ikω} of them, complex, at ω evenly from 0 to π.
        szego: distance of the spectrum of their Toeplitz matrix from its symbol.
        singular: singular values, descending.
        eigenvalues: of the symmetric part, descending.
        effective_rank: of the singular values.
        condition: likewise.
        range: λ_max − λ_min of the symmetric part at Σ λ² = 1.
    """

    logits: np.ndarray
    toeplitz: np.ndarray
    circulant: np.ndarray
    diagonals: np.ndarray
    symbol: np.ndarray
    szego: np.ndarray
    singular: np.ndarray
    eigenvalues: np.ndarray
    effective_rank: np.ndarray
    condition: np.ndarray
    range: np.ndarray


class Variance(NamedTuple):
    """Where the variance of the logits over documents and pairs of different positions lies.

    Shares are free of sampling noise in the mean, and may come out below 0; what is left of 1 is
    that of the tokens. They are 0 where the logits do not vary.

    Attributes:
        level: the mean logit, `[layers, heads]`.
        total: the variance.
        offset: share that the offset j − i explains.
        place: share that the places i and j explain beyond it.
    """

    level: np.ndarray
    total: np.ndarray
    offset: np.ndarray
    place: np.ndarray

    @property
    def position(self) -> np.ndarray:
        """Share that position explains."""
        return self.offset + self.place

    @property
    def residual(self) -> np.ndarray:
        """Share of what position explains that no Toeplitz matrix does; NaN where it is nothing."""
        some = self.position > 0
        return np.divide(
            self.place, self.position, out=np.full_like(self.place, np.nan), where=some
        )


class PartShares(NamedTuple):
    """Logits as a sum of five parts.

    Attributes:
        share: mean square of each part over that of the logits, `[layers, heads, 5]`.
        mean_share: the same of the part's mean over documents.
        residual: share of that mean that no Toeplitz matrix explains.
        cross: what the shares lack to 1: the products of different parts, `[layers, heads]`.
    """

    share: np.ndarray
    mean_share: np.ndarray
    residual: np.ndarray
    cross: np.ndarray


class Pairs(NamedTuple):
    """Logits of rotary models, pair by pair of entries that turn.

    Attributes:
        angles: in radians a position, `[pairs]`.
        share: mean square over that of the logits, `[layers, heads, pairs]`.
    """

    angles: np.ndarray
    share: np.ndarray


class HeadDrops(NamedTuple):
    """What is lost without each head.

    Attributes:
        kind: what stood in place of the head: "zero", or its "mean" over tokens.
        documents: that scores are means over.
        score: with all heads.
        drop: score less that without the head, `[layers, heads]`.
        low, high: ends of 95 % intervals, over documents.
        head: layer and head of the largest drop, from 0.
        largest_share: of the sum of the drops that lies in it, and a 95 % interval.
        share_by_chance: its 95 % quantile where each document's drops are dealt anew to heads.
        entropy: of the shares, over that of an even spread.
    """

    kind: str
    documents: int
    score: float
    drop: np.ndarray
    low: np.ndarray
    high: np.ndarray
    head: tuple[int, int]
    largest_share: tuple[float, float, float]
    share_by_chance: float
    entropy: float


class SpectralReport(NamedTuple):
    """All that `jaxpe spectral` found.

    Attributes:
        source: the corpus.
        model: what was looked at, in words.
        facts: sizes and settings, by name.
        causal: whether tokens look back only.
        means: logits averaged over documents.
        single: numbers of single documents' logits, averaged over them, `[layers, heads]`.
        variance: of the logits.
        parts: content and position, by the means of hidden states at each place, in all layers.
        embedded: the same by what the encoding adds to the embeddings, in the first layer.
        pairs: of rotary models.
        ablations: one for each kind.
        seconds: by stage.
    """

    source: str
    model: str
    facts: dict[str, Any]
    causal: bool
    means: MeanLogits
    single: dict[str, np.ndarray]
    variance: Variance
    parts: PartShares
    embedded: PartShares
    pairs: Pairs | None
    ablations: list[HeadDrops]
    seconds: dict[str, float]


class Headline(NamedTuple):
    """A number on a card."""

    value: str
    label: str
    detail: str


def spectral_table(report: SpectralReport) -> "rich.table.Table":
    """One row a layer: `rich.print(spectral_table(report))`.

    Raises `MissingExtraError` without the extra `report`.
    """
    unit = UNITS[report.facts["score"]]
    header = ["layer", "position", "offset", "Toeplitz\nresidual", "eff.\nrank", "range",
              f"worst drop\n{unit}".strip(), "its\nhead"]  # fmt: skip
    variance, means = report.variance, report.means
    rows = [
        (
            str(layer),
            percent(_positive(variance.position[layer].mean())),
            percent(_positive(variance.offset[layer].mean())),
            number(_residual(report, layer)),
            number(_middle(means.effective_rank[layer])),
            number(_middle(means.range[layer])),
            *_worst(report, layer),
        )
        for layer in range(len(variance.level))
    ]
    title = f"{visible(report.source)}, {visible(report.model)}"
    return make_table(title, header, rows, right=range(1, len(header)))


def write_spectral(report: SpectralReport, directory: str | os.PathLike[str]) -> Path:
    """Write spectral.html, spectral.json, mean_logits.npy and the figures; return the page's path.

    Raises `InputError` where the folder cannot be written, and `MissingExtraError` without the
    extra `report`.
    """
    directory = prepare_directory(directory)
    drawn = [figure for figure in FIGURES if figure[-1](report)]
    figures = [render(report, *figure[:-1]) for figure in drawn]
    page = template("spectral.html.j2").render(
        report=report,
        headlines=spectral_headlines(report),
        findings=spectral_findings(report),
        rows=layer_rows(report),
        parts=part_rows(report),
        unit=UNITS[report.facts["score"]],
        figures=figures,
        score=SCORES[report.facts["score"]],
    )
    logits = io.BytesIO()
    np.save(logits, report.means.logits.astype(np.float32))
    files = {
        "mean_logits.npy": logits.getvalue(),
        "spectral.json": _lines(spectral_json(report)).encode(),
        "spectral.html": page.encode(),
    }
    return write_files(directory, figures, files)


def spectral_json(report: SpectralReport) -> dict[str, Any]:
    """The report as plain values; numbers that are not finite are null.

    The mean logits themselves are left out, and a complex symbol is a pair of lists.
    """
    means = report.means._asdict()
    del means["logits"]
    means["symbol"] = {"real": means["symbol"].real, "imaginary": means["symbol"].imag}
    variance = report.variance
    fields = report._asdict() | {
        "means": means,
        "variance": variance._asdict() | {"residual": variance.residual},
        "parts": {"names": PARTS} | report.parts._asdict(),
        "embedded": report.embedded._asdict(),
        "pairs": None if report.pairs is None else report.pairs._asdict(),
        "ablations": [drops._asdict() for drops in report.ablations],
    }
    return _plain(fields)


def spectral_headlines(report: SpectralReport) -> list[Headline]:
    """The numbers on the cards."""
    shares = (report.variance.position, report.variance.offset)
    position, offset = (percent(_positive(share.mean())) for share in shares)
    means, single = report.means, report.single
    cards = [
        Headline(position, "Logits that position explains",
                 "share of the variance, mean of all heads"),
        Headline(offset, "Logits that the offset explains", "the Toeplitz part of it"),
        Headline(number(_middle(means.toeplitz)), "Toeplitz residual of mean logits",
                 f"middle head; {number(_middle(single['toeplitz']))} of single documents"),
        Headline(number(_middle(means.effective_rank)), "Effective rank of mean logits",
                 f"of at most {means.logits.shape[-1]}; "
                 f"{number(_middle(single['effective_rank']))} of single documents"),
    ]  # fmt: skip
    for drops in report.ablations[:1]:
        layer, head = drops.head
        cards.append(
            Headline(_drop(report, drops.drop[layer, head]), "Largest drop without a head",
                     f"head {head} of layer {layer}")
        )  # fmt: skip
    return cards


def spectral_findings(report: SpectralReport) -> list[str]:
    """What the numbers say, in sentences."""
    found = [*_of_position(report), *_of_spectra(report), *_of_parts(report)]
    if report.pairs is not None:
        found.append(_of_pairs(report, report.pairs))
    return found + [sentence for drops in report.ablations for sentence in _of_heads(report, drops)]


def _of_position(report: SpectralReport) -> list[str]:
    variance = report.variance
    by_layer = variance.position.mean(axis=1)
    most, least = int(by_layer.argmax()), int(by_layer.argmin())
    share = percent(_positive(by_layer[most]))
    sentences = [
        f"Position explains {share} of the variance of the logits in layer {most}, where it "
        f"explains most, and {percent(_positive(by_layer[least]))} in layer {least}, where least. "
        "The rest lies in the tokens."
        if most != least
        else f"Position explains {share} of the variance of the logits, tokens the rest."
    ]
    layer, head = divmod(int(variance.offset.argmax()), variance.offset.shape[1])
    peak = _peak(report, layer, head)
    sentences.append(
        f"The offset alone explains most in head {head} of layer {layer}, "
        f"{percent(_positive(variance.offset[layer, head]))}; in the mean over documents that head "
        f"looks hardest at offset {_signed_number(peak)}."
    )
    judged = variance.position >= 0.02
    if judged.any():
        residual = _middle(np.clip(variance.residual[judged], 0, 1))
        sentences.append(
            f"In the {plural(int(judged.sum()), 'head')} of {judged.size} where position explains "
            f"2\N{NO-BREAK SPACE}% or more, the middle one has {percent(residual)} of that beyond "
            "any Toeplitz matrix."
        )
    else:
        sentences.append("In no head does position explain 2\N{NO-BREAK SPACE}%.")
    return sentences


def _of_spectra(report: SpectralReport) -> list[str]:
    means, single, n = report.means, report.single, report.means.logits.shape[-1]
    ranks = _middle(means.effective_rank), _middle(single["effective_rank"])
    return [
        f"No Toeplitz matrix explains {percent(_middle(means.toeplitz))} of the squared mean "
        f"logits of the middle head, and {percent(_middle(single['toeplitz']))} of the squares of "
        "those of a single document (constants are Toeplitz).",
        f"The effective rank is {number(ranks[0])} in the mean and {number(ranks[1])} for a single "
        f"document, of at most {n}. The spectrum of the Toeplitz part is off its symbol by "
        f"{percent(_middle(means.szego))} of the range in the middle head.",
    ]


def _of_parts(report: SpectralReport) -> list[str]:
    share, cross = report.parts.share.mean(axis=(0, 1)), report.parts.cross
    named = [f"{name} {percent(x)}" for name, x in zip(PARTS, share, strict=True) if x > 0]
    return [
        f"As sums of products, by the mean hidden state at each place: {', '.join(named)} of the "
        f"squared logits, mean of all heads. The cross terms are {_signed(cross.mean())}, between "
        f"{_signed(cross.min())} and {_signed(cross.max())} by head."
    ]


def _of_pairs(report: SpectralReport, pairs: Pairs) -> str:
    n = report.means.logits.shape[-1]
    share = pairs.share.mean(axis=(0, 1))
    slow = pairs.angles * n < 2 * np.pi
    top = int(share.argmax())
    return (
        f"Of the squares of the {len(share)} rotary pairs, "
        f"{percent(share[slow].sum() / max(share.sum(), 1e-12))} lies in the "
        f"{int(slow.sum())} that turn less than once in {n} positions; pair {top}, of "
        f"{number(2 * np.pi / max(pairs.angles[top], 1e-12))} positions a turn, has most."
    )


def _of_heads(report: SpectralReport, drops: HeadDrops) -> list[str]:
    layer, head = drops.head
    low, high = drops.low[layer, head], drops.high[layer, head]
    instead = "nothing" if drops.kind == "zero" else "its mean"
    name = f"head {head} of layer {layer}"
    largest = _drop(report, drops.drop[layer, head])
    if not (low > 0 and drops.drop[layer, head] > 0):
        return [
            f"With {instead} in place of a head, no loss can be told from none over "
            f"{drops.documents} documents; the largest is that of {name}, {largest}."
        ]
    share, least, most = drops.largest_share
    chance = percent(drops.share_by_chance)
    beyond = share > drops.share_by_chance
    verdict = f"more than the {chance} of" if beyond else f"no more than the {chance} of"
    return [
        f"With {instead} in place of a head, {name} costs most, {largest} (interval "
        f"{_bare_drop(report, low)} to {_bare_drop(report, high)}). It holds {percent(share)} of "
        f"the sum of all drops (interval {percent(least)} to {percent(most)}), {verdict} drops "
        f"dealt to heads by chance; an even spread would be {percent(1 / drops.drop.size)}."
    ]


def layer_rows(report: SpectralReport) -> list[list[str]]:
    """The table of the page: numbers of each layer; of a mean and of single documents where two."""
    means, single, variance = report.means, report.single, report.variance

    def both(name: str, layer: int) -> str:
        of_mean, own = getattr(means, name)[layer], single[name][layer]
        return f"{number(_middle(of_mean))} / {number(_middle(own))}"

    return [
        [
            str(layer),
            percent(_positive(variance.position[layer].mean())),
            percent(_positive(variance.offset[layer].mean())),
            number(_residual(report, layer)),
            both("toeplitz", layer),
            number(_middle(means.circulant[layer])),
            both("szego", layer),
            both("effective_rank", layer),
            number(_middle(means.condition[layer])),
            both("range", layer),
            " in head ".join(_worst(report, layer)),
        ]
        for layer in range(len(variance.level))
    ]


def part_rows(report: SpectralReport) -> list[list[str]]:
    """A row for each part: shares and residuals, mean of all heads."""
    parts, embedded = report.parts, report.embedded
    columns = (parts.share, parts.mean_share, parts.residual, embedded.share, embedded.residual)
    rows = [[name, *(number(x[..., k].mean()) for x in columns)] for k, name in enumerate(PARTS)]
    cross = (number(parts.cross.mean()), "", "", number(embedded.cross.mean()), "")
    return [*rows, ["cross terms", *cross]]


# --- figures


def logits_figure(report: SpectralReport) -> "matplotlib.figure.Figure":
    """Mean logits of layers and heads, each centred and on its own scale."""
    layers = shown_layers(len(report.means.logits))
    logits = report.means.logits[layers]
    count, heads, n, _ = logits.shape
    side = min(n, max(4, int((_MOST_PIXELS / (count * heads)) ** 0.5)))
    canvas = np.full((count * (side + 1) - 1, heads * (side + 1) - 1), np.nan)
    for row in range(count):
        for column in range(heads):
            place = (slice(x * (side + 1), x * (side + 1) + side) for x in (row, column))
            canvas[tuple(place)] = _scaled(_blocks(logits[row, column], side))
    height = min(9.0, 0.9 + 4.9 * count / heads)
    figure, (axis,) = new_figure("Mean logits, head by head", height=height)
    axis.imshow(canvas, cmap=_DIVERGING, vmin=-1, vmax=1, interpolation="none")
    middles = np.arange(max(count, heads)) * (side + 1) + (side - 1) / 2
    axis.set_xticks(middles[:heads], [str(head) for head in range(heads)])
    axis.set_yticks(middles[:count], [str(layer) for layer in layers])
    axis.set(xlabel="head", ylabel="layer")
    _bare(axis)
    return figure


def offsets_figure(report: SpectralReport) -> "matplotlib.figure.Figure":
    """Means of the diagonals of all heads, each centred and on its own scale."""
    offsets, diagonals = _near(report)
    layers, heads, _ = diagonals.shape
    rows = np.stack([_scaled(row) for row in diagonals.reshape(layers * heads, -1)])
    figure, (axis,) = new_figure("Mean logits by offset, all heads", height=4.4)
    edges = (offsets[0] - 0.5, offsets[-1] + 0.5, layers * heads - 0.5, -0.5)
    image = axis.imshow(rows, cmap=_DIVERGING, vmin=-1, vmax=1, interpolation="none",
                        aspect="auto", extent=edges)  # fmt: skip
    shown = range(0, layers, max(1, layers // 12))
    axis.set_yticks([layer * heads + (heads - 1) / 2 for layer in shown], [str(x) for x in shown])
    for layer in range(1, layers):
        axis.axhline(layer * heads - 0.5, color="white", lw=1)
    axis.set(xlabel="offset j − i of the key from the query", ylabel="layer, its heads within")
    _bare(axis, ticks=True)
    bar = figure.colorbar(image, ax=axis, ticks=[-1, 0, 1])
    bar.ax.set_yticklabels(["low", "mean", "high"])
    return figure


def symbols_figure(report: SpectralReport) -> "matplotlib.figure.Figure":
    """Diagonals and symbols of the heads whose logits the offset explains most."""
    offsets, diagonals = _near(report)
    share = report.variance.offset
    best = [divmod(int(i), share.shape[1]) for i in np.argsort(-share, axis=None)[: len(_LINES)]]
    figure, (by_offset, by_frequency) = new_figure(
        f"The offset explains up to {percent(_positive(share.max()))} of a head", height=5.6, rows=2
    )
    omega = np.linspace(0, np.pi, 129)
    for colour, (layer, head) in zip(_LINES, best, strict=False):
        label = f"layer {layer}, head {head}: {percent(_positive(share[layer, head]))}"
        own = diagonals[layer, head]
        by_offset.plot(offsets, own, color=colour, lw=1.5, label=label)
        known = np.where(np.isfinite(own), own, 0)
        f = np.exp(1j * np.outer(omega, offsets)) @ known
        f = np.abs(f) if report.causal else f.real
        by_frequency.plot(omega / np.pi, f, color=colour, lw=1.5)
    by_offset.set(xlabel="offset j − i of the key from the query", ylabel="mean logit, centred")
    by_frequency.set(
        xlabel="frequency ω/π", ylabel="|f(ω)|" if report.causal else "symbol, Re f(ω)"
    )
    figure.legend(*by_offset.get_legend_handles_labels(), loc="outside lower center", ncols=2,
                  fontsize=9.5)  # fmt: skip
    return figure


def spectra_figure(report: SpectralReport) -> "matplotlib.figure.Figure":
    """Singular values and effective ranks by layer."""
    means, count = report.means, len(report.means.singular)
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
        (means.effective_rank, SPLIT_HALF, "mean logits", -0.12),
        (report.single["effective_rank"], PLUG_IN, "single documents", 0.12),
    ):
        x = np.repeat(rank + moved, found.shape[1])
        ranks.plot(x, found.ravel(), ".", color=colour, ms=5, alpha=0.6, mew=0, label=label)
        ranks.plot(rank + moved, np.median(found, axis=1), color=colour, lw=1.2)
    ranks.set(title="effective rank, all heads", xlabel="layer", ylim=(0, None))
    _whole_ticks(ranks, count, most=6)
    figure.legend(*ranks.get_legend_handles_labels(), loc="outside lower center", ncols=2,
                  fontsize=9.5, markerscale=2.5)  # fmt: skip
    return figure


def variance_figure(report: SpectralReport) -> "matplotlib.figure.Figure":
    """What explains the variance of the logits, layer by layer."""
    variance = report.variance
    by_layer = _positive(variance.position.mean(axis=1))
    top = int(by_layer.argmax())
    figure, (axis,) = new_figure(
        f"Position explains {percent(by_layer[top])} of the variance in layer {top}", height=3.4
    )
    offset, place = (_positive(x.mean(axis=1)) for x in (variance.offset, variance.place))
    tokens = np.clip(1 - offset - place, 0, 1)
    shares = {
        "the offset j − i": (offset, SPLIT_HALF),
        "the places i, j beyond it": (place, _ORANGE),
        "the tokens": (tokens, _PALE),
    }
    _stack(figure, axis, shares)
    axis.set(ylabel="share of the variance", ylim=(0, 1))
    return figure


def parts_figure(report: SpectralReport) -> "matplotlib.figure.Figure":
    """Mean squares of the parts, layer by layer, and what their products make of them."""
    figure, (stack, cross) = new_figure(
        "Content and position in the squared logits", height=5.0, rows=2, sharex=True,
        height_ratios=(2, 1),
    )  # fmt: skip
    share = report.parts.share.mean(axis=1)
    of_sum = share / np.maximum(share.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    named = zip(PARTS, of_sum.T, _PART_COLOURS, strict=True)
    _stack(figure, stack, {name: (x, colour) for name, x, colour in named if x.max() > 0})
    stack.set(ylabel="share of their squares", ylim=(0, 1), xlabel="")
    of_layer = report.parts.cross.mean(axis=1)
    cross.bar(np.arange(len(share)), of_layer, 0.8, color="#777777")
    cross.axhline(0, color="#333333", lw=0.8)
    if np.abs(of_layer).max() > 1:
        cross.set_yscale("symlog", linthresh=1)
    cross.set_ylim(min(-0.1, 1.1 * of_layer.min()), max(0.1, 1.1 * of_layer.max()))
    cross.set(xlabel="layer", ylabel="cross terms")
    return figure


def heads_figure(report: SpectralReport) -> "matplotlib.figure.Figure":
    """Maps of layers and heads."""
    variance = report.variance
    residual = np.where(variance.position >= 0.02, np.clip(variance.residual, 0, 1), np.nan)
    maps: list[tuple[str, np.ndarray, dict[str, Any]]] = [
        ("position explains", variance.position, {"cmap": "viridis", "vmin": 0}),
        ("of it, not Toeplitz", residual, {"cmap": "viridis", "vmin": 0, "vmax": 1}),
    ]
    for drops in report.ablations:
        most = max(float(np.abs(drops.drop).max()), 1e-12)
        words = {"zero": "drop without the head", "mean": "drop with its mean"}[drops.kind]
        maps.append((words, drops.drop, {"cmap": _DIVERGING, "vmin": -most, "vmax": most}))
    rows, (layers, heads) = (len(maps) + 1) // 2, variance.level.shape
    panel = np.clip(2.2 * layers / heads, 0.7, 2.6) + 0.95
    figure, axes = new_figure("Head by head", rows=rows, columns=2, height=0.4 + rows * panel)
    for axis, (title, values, colours) in zip(axes, maps, strict=False):
        image = axis.imshow(values, interpolation="none", aspect="auto", **colours)
        axis.set(title=title, xlabel="head", ylabel="layer", facecolor="#DDDDDD")
        _whole_ticks(axis, heads, most=6)
        axis.set_yticks(range(0, layers, max(1, layers // 6)))
        _bare(axis, ticks=True)
        figure.colorbar(image, ax=axis, pad=0.02, format="%.2g")
    for axis in axes[len(maps) :]:
        axis.axis("off")
    return figure


def ablation_figure(report: SpectralReport) -> "matplotlib.figure.Figure":
    """The heads that cost most, with intervals."""
    first = report.ablations[0]
    order = np.argsort(-first.drop, axis=None)[:_MOST_HEADS]
    names = [f"{i // first.drop.shape[1]}.{i % first.drop.shape[1]}" for i in order]
    certain = first.low[first.head] > 0
    found = f"The largest drop is {percent(first.largest_share[0])} of them all"
    figure, (axis,) = new_figure(found if certain else "No drop can be told from none", height=3.6)
    looks = {"zero": (SPLIT_HALF, "o", "zero in its place"), "mean": (PLUG_IN, "D", "its mean")}
    for moved, drops in zip((-0.13, 0.13), report.ablations, strict=False):
        colour, marker, label = looks[drops.kind]
        middle, low, high = (x.ravel()[order] for x in (drops.drop, drops.low, drops.high))
        x = np.arange(len(order)) + (moved if len(report.ablations) > 1 else 0)
        axis.vlines(x, low, high, color=colour, lw=1.4)
        axis.plot(x, middle, marker, color=colour, ms=5, label=label)
    axis.axhline(0, color="#999999", lw=0.8)
    axis.set_xticks(range(len(order)), names, rotation=45)
    axis.set(xlabel="layer.head", ylabel="drop of the score")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2,
                  fontsize=9.5)  # fmt: skip
    return figure


def frequencies_figure(report: SpectralReport) -> "matplotlib.figure.Figure":
    """Squares of the logits of each rotary pair, as shares of their sum."""
    assert report.pairs is not None  # FIGURES asks
    angles, share = report.pairs.angles, report.pairs.share.mean(axis=1)
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
    _bare(axis, ticks=True)
    figure.colorbar(image, ax=axis, label="share of the squares", pad=0.02)
    return figure


def shown_layers(count: int) -> list[int]:
    """The layers of the grid: all, or a few from the first to the last.

    >>> shown_layers(3), shown_layers(30)
    ([0, 1, 2], [0, 6, 12, 17, 23, 29])
    """
    if count <= _MOST_LAYERS:
        return list(range(count))
    return np.linspace(0, count - 1, _MOST_LAYERS // 2).round().astype(int).tolist()


def _always(report: SpectralReport) -> bool:
    return True


def _ablated(report: SpectralReport) -> bool:
    return bool(report.ablations)


def _rotary(report: SpectralReport) -> bool:
    return report.pairs is not None


FIGURES: tuple[tuple[str, Callable[[SpectralReport], Any], str, Callable[..., bool]], ...] = (
    (
        "variance",
        variance_figure,
        "The logits of all documents and pairs of positions, mean of the heads. The offset: what a "
        "Toeplitz matrix of its own for each head explains. The places: what any other matrix of "
        "means explains. Sampling noise cancels between two halves of the documents.",
        _always,
    ),
    (
        "heads",
        heads_figure,
        "Share of the variance that position explains; of that, the share no Toeplitz matrix does "
        "(grey where position explains under 2 %); what the score loses without the head.",
        _always,
    ),
    (
        "logits",
        logits_figure,
        "Averages over documents, queries downwards, keys to the right, each centred and on its "
        "own scale (neighbouring positions are averaged where there are many). Stripes along the "
        "diagonal are offsets. Of more than 12 layers six are shown.",
        _always,
    ),
    (
        "offsets",
        offsets_figure,
        "Means along the diagonals j − i = k of the mean logits, one row a head, centred and each "
        "on its own scale, up to half the length: few pairs are farther apart. Offset 0, a token "
        "and itself, is left out.",
        _always,
    ),
    (
        "symbols",
        symbols_figure,
        "The heads whose logits the offset explains best: means along the diagonals, and the "
        "symbol f(ω) = Σ t_k e^(ikω) of the diagonals shown, k ≠ 0.",
        _always,
    ),
    (
        "spectra",
        spectra_figure,
        "Left: singular values of the mean logits, from the first layer (dark) to the last. Right: "
        "the exponential of the entropy of the singular values, one dot a head, lines through the "
        "middle ones.",
        _always,
    ),
    (
        "parts",
        parts_figure,
        "Queries and keys as content plus position, by the mean hidden state at each place. Above: "
        "mean squares of the parts, as shares of their sum. Below: what products of different "
        "parts add, as a multiple of the squared logits (logarithmic beyond ±1). Far below 0 large "
        "parts cancel.",
        _always,
    ),
    (
        "frequencies",
        frequencies_figure,
        "Rotary pairs of entries, from the fastest to the slowest: mean squares of their logits as "
        "shares of the sum over pairs, mean of the heads. Cross terms are left out.",
        _rotary,
    ),
    (
        "ablation",
        ablation_figure,
        "The heads whose loss costs most, with 95 % intervals over documents. The first of many "
        "is the largest by chance too.",
        _ablated,
    ),
)


def _stack(figure, axis, shares: dict[str, tuple[np.ndarray, str]]) -> None:
    """Bars of layers, one share on top of the other."""
    below = 0.0
    for label, (share, colour) in shares.items():
        axis.bar(np.arange(len(share)), share, 0.8, bottom=below, color=colour, label=label)
        below = below + share
    axis.set(xlabel="layer")
    _whole_ticks(axis, len(np.atleast_1d(below)))
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=3,
                  fontsize=9.5)  # fmt: skip


def _near(report: SpectralReport) -> tuple[np.ndarray, np.ndarray]:
    """Offsets up to half the length, and centred diagonals there; NaN at 0, which is left out."""
    n = report.means.logits.shape[-1]
    far = max(2, n // 2)
    offsets = np.arange(-far, 1 if report.causal else far + 1)
    shown = report.means.diagonals[..., offsets + n - 1] - report.variance.level[..., None]
    return offsets, np.where(offsets == 0, np.nan, shown)


def _peak(report: SpectralReport, layer: int, head: int) -> int:
    offsets, diagonals = _near(report)
    return int(offsets[np.nanargmax(diagonals[layer, head])])


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
    viridis = require("matplotlib", extra="report").colormaps["viridis"]
    return [viridis(0.9 * k / max(count - 1, 1)) for k in range(count)]


def _whole_ticks(axis: "matplotlib.axes.Axes", count: int, *, most: int = 12) -> None:
    axis.set_xticks(range(0, count, max(1, -(-count // most))))


def _bare(axis: "matplotlib.axes.Axes", *, ticks: bool = False) -> None:
    axis.spines[:].set_visible(False)
    if not ticks:
        axis.tick_params(length=0)


def _middle(values: np.ndarray) -> float:
    """The median of what is a number (∞ among them), NaN where nothing is."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else float("nan")


def _compact(value: float) -> str:
    return number(value) if value < 1000 else f"{value / 1000:.3g}k"


def _positive(share: Any) -> Any:
    """Shares without what noise leaves below 0."""
    return np.maximum(share, 0.0)


def _signed(share: float) -> str:
    return f"{_signed_number(round(100 * float(share)))}\N{NO-BREAK SPACE}%"


def _signed_number(whole: int) -> str:
    """With a plus or a minus."""
    return f"{whole:+,d}".replace("-", "\N{MINUS SIGN}") if whole else "0"


def _drop(report: SpectralReport, drop: float) -> str:
    """With its unit."""
    return f"{_bare_drop(report, drop)} {UNITS[report.facts['score']]}".strip()


def _bare_drop(report: SpectralReport, drop: float) -> str:
    return f"{100 * drop:.1f}" if report.facts["score"] == "accuracy" else number(drop)


def _worst(report: SpectralReport, layer: int) -> tuple[str, str]:
    """The largest drop of a layer, without its unit, and its head."""
    if not report.ablations:
        return "n/a", "n/a"
    drop = report.ablations[0].drop[layer]
    head = int(drop.argmax())
    return _bare_drop(report, drop[head]), str(head)


def _residual(report: SpectralReport, layer: int) -> float:
    """Of the middle head; noise may leave less than 0 or more than 1."""
    return float(np.clip(_middle(report.variance.residual[layer]), 0, 1))


def _plain(value: Any) -> Any:
    """JSON values, numbers to six digits."""
    if isinstance(value, dict):
        return {name: _plain(x) for name, x in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def _lines(fields: dict[str, Any]) -> str:
    """JSON with a line for each entry, and one for each of an entry's own."""

    def entry(name: str, value: Any) -> str:
        if isinstance(value, dict) and len(value) > 1:
            inner = ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            return f"  {json.dumps(name)}: {{\n{inner}\n  }}"
        return f"  {json.dumps(name)}: {json.dumps(value)}"

    return "{\n" + ",\n".join(entry(*item) for item in fields.items()) + "\n}\n"
