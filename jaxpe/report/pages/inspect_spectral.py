"""Spectra of attention logits, and the value of heads, on the page of an inspection."""

from functools import partial

import numpy as np

from jaxpe.analysis.inspect import PARTS, HeadStage, InspectResult, SpectralStage, Variance
from jaxpe.analysis.inspections import ModelMeasures
from jaxpe.report.findings import Figure, Section, Table
from jaxpe.report.numbers import number, percent
from jaxpe.report.pages.inspect_rows import hundreds, plot_curves, row

TITLE, HEADS_TITLE = "Spectra of the logits", "The value of heads"
_UNITS = {"accuracy": "share", "masked": "nats", "causal": "nats", "embedding": "cosine"}
_MOST_HEADS = 8  # heads in the table of drops
_SHOWN = 4  # heads whose symbols are drawn


def section(stage: SpectralStage, result: InspectResult, of: ModelMeasures) -> Section:
    """Toeplitz shares, ranks, and content and position."""
    findings = [
        row("mean logits beyond Toeplitz, median head", float(np.median(stage.toeplitz)), "share"),
        row("effective rank of mean logits, median head", float(np.median(stage.effective_rank)),
            against=f"at most {stage.logits.shape[-1]}"),
    ]  # fmt: skip
    parts = stage.parts
    rows = [
        (name, *(hundreds(_mean(x[..., k])) for x in (parts.share, parts.residual)))
        for k, name in enumerate(PARTS)
    ]
    rows.append(("cross terms", hundreds(_mean(parts.cross)), ""))
    header = ("part of the logits", "share of squares, %", "beyond Toeplitz, %")
    attention = result.attention
    figures = [] if attention is None else [_symbols(stage, attention.variance)]
    note = (
        "Toeplitz: one value for each offset j − i. Position: its mean hidden state; content: the "
        "rest."
    )
    return Section(TITLE, findings, [Table("Content and position", header, rows)], figures, note)


def heads_section(stage: HeadStage, result: InspectResult, of: ModelMeasures) -> Section:
    """What the model loses without each head, and the heads of the largest drops."""
    layer, head = place = stage.head
    noise = bool(stage.tested and not stage.certain[place])
    ends = {"low": float(stage.low[place]), "high": float(stage.high[place])}
    judged = ""
    if stage.tested and not noise:
        more = stage.largest_share.estimate > stage.share_by_chance
        judged = f"{'more' if more else 'no more'} than by chance"
    findings = [
        row("largest drop without a head", float(stage.drop[place]), _UNITS[stage.measure],
            f"head {layer}.{head}{', within noise' * noise}", **ends),
        row("share of it in all drops", stage.largest_share, "share", judged,
            reference=stage.share_by_chance, against="dealt at random"),
    ]  # fmt: skip
    if stage.tested:
        against = f"of {stage.drop.size}, on {stage.documents} documents"
        findings.append(row("drops beyond noise", int(stage.certain.sum()), "count",
                            against=against))  # fmt: skip
    attention = result.attention
    tables = [] if attention is None else [_head_table(stage, attention.variance)]
    return Section(HEADS_TITLE, findings, tables)


def _mean(values: np.ndarray) -> float:
    """Mean of the values that are not NaN; NaN if all are."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else np.nan


def _head_table(stage: HeadStage, variance: Variance) -> Table:
    """The heads of the largest drops, with what positions explain of their logits."""
    rows = []
    for index in np.argsort(-stage.drop, axis=None)[:_MOST_HEADS].tolist():
        place = divmod(index, stage.drop.shape[1])
        ends = (number(float(x[place])) for x in (stage.drop, stage.low, stage.high))
        p_value = stage.p_value[place]
        rows.append((
            f"{place[0]}.{place[1]}", *ends, "–" if np.isnan(p_value) else number(float(p_value)),
            percent(max(float(variance.position[place]), 0.0)),
        ))  # fmt: skip
    header = ("head", "drop", "low", "high", "p", "positions explain")
    note = "p-values are corrected for all heads; intervals are of a head alone."
    return Table("Heads of the largest drops", header, rows, note)


def _symbols(stage: SpectralStage, variance: Variance) -> Figure:
    """Diagonals and symbols of the heads whose logits depend most on the offset."""
    n, share = stage.logits.shape[-1], variance.offset
    far = max(2, n // 2)
    offsets = np.arange(-far, 1 if stage.causal else far + 1)
    near = np.where(offsets == 0, np.nan, stage.diagonals()[..., offsets + n - 1])
    omega = np.linspace(0, np.pi, 129)
    waves = np.exp(1j * np.outer(omega, offsets))
    diagonals, symbols = {}, {}
    for index in np.argsort(-share, axis=None)[:_SHOWN].tolist():
        place = divmod(index, share.shape[1])
        name = f"head {place[0]}.{place[1]}: {percent(max(float(share[place]), 0.0))}"
        symbol = waves @ np.nan_to_num(near[place])
        diagonals[name] = (near[place],)
        symbols[name] = (np.abs(symbol) if stage.causal else symbol.real,)
    shown = "|f(ω)|" if stage.causal else "Re f(ω)"
    panels = [
        partial(plot_curves, offsets, diagonals, "offset j − i of the key", "mean logit, centred"),
        partial(plot_curves, omega / np.pi, symbols, "frequency ω/π", shown),
    ]
    caption = "Heads whose logits the offset explains best, with that share."
    title = "Mean logits by offset, and their symbols"
    return Figure("symbols", title, caption, panels, height=2.6)
