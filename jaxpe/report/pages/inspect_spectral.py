"""Spectra of attention logits, and the value of heads, on the page of an inspection."""

from functools import partial

import numpy as np

from jaxpe.analysis.inspect import (
    PARTS,
    HeadDrops,
    HeadStage,
    InspectResult,
    RotaryPairs,
    SpectralStage,
    Variance,
)
from jaxpe.analysis.inspections import ModelMeasures
from jaxpe.report.findings import Figure, Finding, Section, Table
from jaxpe.report.numbers import number, percent
from jaxpe.report.pages.inspect_rows import hundreds, layer_table, plot_curves, row

TITLE, HEADS_TITLE = "Spectra of the logits", "The value of heads"
_UNITS = {"accuracy": "share", "masked": "nats", "causal": "nats", "embedding": "cosine"}
_MOST_HEADS = 12  # heads in the table of drops
_SHOWN = 4  # heads whose symbols are drawn


def section(stage: SpectralStage, result: InspectResult, of: ModelMeasures) -> Section:
    """Toeplitz shares, ranks, content and position, and rotary pairs."""
    n, mean, single = stage.logits.shape[-1], stage.mean, stage.single
    findings = [
        row("mean logits beyond Toeplitz, median head", float(np.median(mean.toeplitz)), "share",
            reference=float(np.median(single.toeplitz)), against="single documents"),
        row("effective rank of mean logits, median head", float(np.median(mean.effective_rank)),
            reference=float(np.median(single.effective_rank)),
            against=f"at most {n}; single documents"),
        row("distance of spectrum and symbol, median head", float(np.median(mean.szego)), "share"),
    ]  # fmt: skip
    if stage.pairs is not None:
        findings += _pairs(stage.pairs, n)
    tables, figures = [_parts(stage)], []
    if (attention := result.attention) is not None:
        figures = [_symbols(stage, attention.variance)]
    note = (
        "Toeplitz: one value for each offset j − i; its symbol is the Fourier series of these. "
        "Position is the mean hidden state at it, content the rest; cross terms complete their sum."
    )
    return Section(TITLE, findings, tables, figures, note)


def heads_section(stage: HeadStage, result: InspectResult, of: ModelMeasures) -> Section:
    """What the model loses without each head, and the heads of the largest drops."""
    findings = [row for drops in stage.drops for row in _drops(drops, _UNITS[stage.score])]
    tables = []
    if result.attention is not None:
        tables = [_head_table(drops, result.attention.variance) for drops in stage.drops]
    return Section(HEADS_TITLE, findings, tables)


def _pairs(pairs: RotaryPairs, n: int) -> list[Finding]:
    """Rotary pairs: those without a rotation, and the one of most."""
    share = pairs.share.mean(axis=(0, 1))
    slow, top = pairs.angles * n < 2 * np.pi, int(share.argmax())
    total, period = max(float(share.sum()), 1e-12), 2 * np.pi / max(pairs.angles[top], 1e-12)
    never = f"{int(slow.sum())} of {len(share)} pairs, within {n} positions"
    return [
        row("logits in pairs that never complete a rotation", float(share[slow].sum()) / total,
            "share", against=never),
        row("logits in the rotary pair of most", float(share[top]) / total, "share",
            f"period {number(period)} positions"),
    ]  # fmt: skip


def _drops(drops: HeadDrops, unit: str) -> list[Finding]:
    """The largest drop of the score without a head, and whether one head carries the effect."""
    layer, head = place = drops.head
    name = f"without a head, {'zeros' if drops.kind == 'zero' else 'its mean'} in its place"
    noise = bool(drops.tested and not drops.certain[place])
    ends = {"low": float(drops.low[place]), "high": float(drops.high[place])}
    judged = ""
    if drops.tested and not noise:
        more = drops.largest_share.estimate > drops.share_by_chance
        judged = f"{'more' if more else 'no more'} than by chance"
    found = [
        row(f"largest drop {name}", float(drops.drop[place]), unit,
            f"head {layer}.{head}{', within noise' * noise}", **ends),
        row(f"share of it in all drops {name}", drops.largest_share, "share", judged,
            reference=drops.share_by_chance, against="dealt at random"),
    ]  # fmt: skip
    if drops.tested:
        against = f"of {drops.drop.size}, on {drops.documents} documents"
        count = int(drops.certain.sum())
        found.append(row(f"drops beyond noise {name}", count, "count", against=against))
    return found


def _parts(stage: SpectralStage) -> Table:
    """Shares and Toeplitz residuals of the parts of the logits, mean of all heads."""
    parts, embedded = stage.parts, stage.embedded
    columns = (parts.share, parts.mean_share, parts.residual, embedded.share, embedded.residual)
    rows = [(name, *(hundreds(_mean(x[..., k])) for x in columns)) for k, name in enumerate(PARTS)]
    cross, of_embedded = (hundreds(_mean(of.cross)) for of in (parts, embedded))
    rows.append(("cross terms", cross, "", "", of_embedded, ""))
    header = ("part of the logits", "share of squares, %", "share of its mean, %",
              "beyond Toeplitz, %", "embedded, %", "embedded beyond Toeplitz, %")  # fmt: skip
    note = "Embedded: position is the vector that is added to the embeddings, in the first layer."
    return Table("Content and position", header, rows, note)


def _mean(values: np.ndarray) -> float:
    """Mean of the values that are not NaN; NaN if all are."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else np.nan


def _head_table(drops: HeadDrops, variance: Variance) -> Table:
    """The heads of the largest drops, with what positions explain of their logits."""
    rows = []
    for index in np.argsort(-drops.drop, axis=None)[:_MOST_HEADS].tolist():
        place = divmod(index, drops.drop.shape[1])
        ends = (number(float(x[place])) for x in (drops.drop, drops.low, drops.high))
        p_value = drops.p_value[place]
        rows.append((
            f"{place[0]}.{place[1]}", *ends, "–" if np.isnan(p_value) else number(float(p_value)),
            percent(max(float(variance.position[place]), 0.0)),
            hundreds(float(np.clip(variance.residual[place], 0, 1))),
        ))  # fmt: skip
    replaced = "zeros" if drops.kind == "zero" else "its mean"
    header = ("head", "drop", "low", "high", "p", "positions explain", "beyond the offset, %")
    note = "p-values are of one-sided tests, corrected for all heads; intervals of a head alone."
    return Table(f"Heads of the largest drops, {replaced} in place", header, rows, note)


def _symbols(stage: SpectralStage, variance: Variance) -> Figure:
    """Diagonals and symbols of the heads whose logits depend most on the offset."""
    n, share = stage.logits.shape[-1], variance.offset
    far = max(2, n // 2)
    offsets = np.arange(-far, 1 if stage.causal else far + 1)
    near = np.where(offsets == 0, np.nan, stage.diagonals()[..., offsets + n - 1])
    best = [divmod(int(i), share.shape[1]) for i in np.argsort(-share, axis=None)[:_SHOWN]]
    omega = np.linspace(0, np.pi, 129)
    waves = np.exp(1j * np.outer(omega, offsets))
    diagonals, symbols = {}, {}
    for place in best:
        name = f"head {place[0]}.{place[1]}: {percent(max(float(share[place]), 0.0))}"
        symbol = waves @ np.nan_to_num(near[place])
        diagonals[name] = (near[place],)
        symbols[name] = (np.abs(symbol) if stage.causal else symbol.real,)
    shown = "|f(ω)|" if stage.causal else "Re f(ω)"
    panels = [
        partial(plot_curves, offsets, diagonals, "offset j − i of the key", "mean logit, centred"),
        partial(plot_curves, omega / np.pi, symbols, "frequency ω/π", shown),
    ]
    caption = "The heads whose logits the offset explains best, with its share of their variance."
    return Figure(
        "symbols", "Mean logits by offset, and their symbols", caption, panels, height=2.6
    )


def layer_tables(stage: SpectralStage | None) -> list[Table]:
    """One row a layer, medians of its heads: mean logits, and single documents."""
    if stage is None:
        return []
    names = [f"{layer}" for layer in range(len(stage.mean.toeplitz))]
    columns = {
        f"{name}{of}{unit}": np.median(getattr(numbers, field), axis=1)
        for field, name, unit in (("toeplitz", "beyond Toeplitz", ", %"), ("szego", "Szegő", ", %"),
                                  ("effective_rank", "effective rank", ""))
        for of, numbers in (("", stage.mean), (", single", stage.single))
    }  # fmt: skip
    return [layer_table("Spectra by layer, median head", names, columns)]
