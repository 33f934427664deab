"""Spectra of attention logits, and the value of heads, on the page of an inspection."""

import numpy as np

from jaxpe.analysis.inspect import InspectResult
from jaxpe.analysis.inspect.attention_result import PARTS, HeadStage, SpectralStage
from jaxpe.analysis.inspections import ModelMeasures
from jaxpe.report.findings import Section, Table
from jaxpe.report.numbers import number
from jaxpe.report.pages.inspect_rows import hundreds, row

TITLE, HEADS_TITLE = "Spectra of the logits", "The value of heads"
_UNITS = {"accuracy": "share", "masked": "nats", "causal": "nats", "embedding": "cosine"}
_MOST_HEADS = 8  # heads in the table of drops


def section(stage: SpectralStage, result: InspectResult, of: ModelMeasures) -> Section:
    """Toeplitz shares, ranks, and content and position."""
    findings = [
        row("mean logits beyond Toeplitz, median head", float(np.median(stage.toeplitz)), "share"),
        row("effective rank of mean logits, median head", float(np.median(stage.effective_rank)),
            against=f"at most {result.facts.positions}"),
    ]  # fmt: skip
    parts = stage.parts
    rows = [
        (name, *(hundreds(_median(x[..., k])) for x in (parts.share, parts.residual)))
        for k, name in enumerate(PARTS)
        if (parts.share[..., k] != 0).any()
    ]
    rows.append(("cross terms", hundreds(_median(parts.cross)), ""))
    header = ("part of the logits, median head", "share of squares, %", "beyond Toeplitz, %")
    note = (
        "Toeplitz: one value for each offset j − i. Position: the mean hidden state of each "
        "position, less their common mean. Content: the rest, the common mean included; where it "
        "rotates, this part of content is a function of the offset. Parts cancel, so shares may "
        "exceed 100 %. Beyond Toeplitz is a share of squares, the mean logit included; Attention's "
        "share beyond the offset is of variance."
    )
    return Section(TITLE, findings, [Table("Content and position", header, rows)], note=note)


def heads_section(stage: HeadStage, result: InspectResult, of: ModelMeasures) -> Section:
    """Loss without each head, and the heads of the largest drops."""
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
    rows = []
    for index in np.argsort(-stage.drop, axis=None)[:_MOST_HEADS].tolist():
        layer, head = place = divmod(index, stage.drop.shape[1])
        values = (stage.drop, stage.low, stage.high, stage.p_value)
        cells = (number(float(x[place])).replace("n/a", "–") for x in values)
        rows.append((f"{layer}.{head}", *cells))
    note = "p-values are corrected for all heads; intervals are of a head alone."
    table = Table("Heads of the largest drops", ("head", "drop", "low", "high", "p"), rows, note)
    return Section(HEADS_TITLE, findings, [table])


def _median(values: np.ndarray) -> float:
    """Median of the values that are not NaN: ratios of a few heads are large; NaN if all are."""
    return float(np.nanmedian(values)) if np.isfinite(values).any() else np.nan
