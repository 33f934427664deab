"""Attention on the page of an inspection: logits, offsets, sinks, frequencies."""

from functools import partial
from typing import Any

import numpy as np

from jaxpe.analysis.inspect import InspectResult
from jaxpe.analysis.inspect.attention_result import JUDGED, AttentionSinks, AttentionStage
from jaxpe.analysis.inspections import ModelMeasures
from jaxpe.report.findings import Figure, Finding, Section, Table
from jaxpe.report.numbers import number, percent
from jaxpe.report.pages.inspect_rows import (
    hundreds,
    measure,
    plot_curves,
    plot_heads,
    row,
)

SINK = 0.3  # share of attention from which sinks matter to users (Gu et al. 2025)
_MOST = 0.5  # share of its weight from which a head belongs to a kind of key
_TELLING = 0.2  # below this share, or above 1 less it, one of two causes is named alone
_SINKS = 3  # positions, and tokens
_NEAR = 8  # offsets by which heads are chosen for the figure
_CAUSES = {
    "none": "Logits hardly depend on positions.",
    "positions": "Shuffled words leave it: it comes from the encoding, the causal mask, or the "
    "sink of the first token.",
    "words": "Encoding and causal mask add little.",
    "both": "Words with typical positions add to it.",
}


def position_share(of: ModelMeasures, stage: AttentionStage) -> Finding:
    """Share of the logits that positions explain, and whether they or words are the cause."""
    parts = stage.variance.position, stage.variance.shuffled
    position, shuffled = (max(float(share.mean()), 0.0) for share in parts)
    cause = "both"
    if position < JUDGED:
        cause = "none"
    elif shuffled / position > 1 - _TELLING:
        cause = "positions"
    elif shuffled / position < _TELLING:
        cause = "words"
    return measure(of, "position_share", f"cause: {cause}", sentence=_CAUSES[cause])


def sinks(of: ModelMeasures, found: AttentionSinks, *, causal: bool) -> Finding:
    """Weight on sinks; advice where they surely take over 30 %."""
    if not len(found.positions):
        return measure(of, "sinks")
    said = "; the rule in decoders, no fault" if causal else ""
    said = f"Most often at position {found.positions[0]}{said}."
    if found.weight_overall.low < SINK:
        return measure(of, "sinks", sentence=said)
    first = int(found.positions[0]) + 1
    tokens = "the first token" if first == 1 else f"the first {first} tokens"
    todo = "Leave sinks out of averages of attention maps."
    paste = f"attention[..., {first - 1}] = 0; attention /= attention.sum(-1, keepdims=True)"
    if causal:
        todo = (
            f"Keep {tokens} in a cache that drops old ones, and leave sinks out of averages over "
            "tokens. In JAX, for a model of jaxpe.nn.load_causal_lm:"
        )
        paste = f"cache = jaxpe.nn.evict_tokens(model.decoder, cache, start={first}, count=dropped)"
        paste += "  # dropped: number of old tokens"
    return measure(of, "sinks", sentence=said, todo=todo, paste=paste)


def section(stage: AttentionStage, result: InspectResult, of: ModelMeasures) -> Section:
    """Share of positions in the logits, and the targets of the weights."""
    layers, by_head = stage.layer_numbers, stage.variance.position
    shown = [
        partial(plot_heads, by_head, "positions explain", layers=layers, vmin=0, vmax=1),
        partial(plot_heads, stage.first, "on the first token", layers=layers, vmin=0, vmax=1),
    ]
    figures = [
        Figure("heads", "Logits explained by positions, and weight on the first token",
               "Each layer and head.", shown, columns=2),
        Figure("attention-by-offset", "Mean attention weight by offset",
               f"Band: 5th to 95th percentile of heads. Others: most weight within {_NEAR} tokens.",
               [partial(_plot_offsets, stage.offsets, layers)]),
    ]  # fmt: skip
    note = (
        "Share: variance of a head's logits, over documents and pairs i ≠ j, that their mean at "
        "(i, j) explains. Weights: means over queries. Sink: a key with a mean weight over 0.3 "
        "from the other queries that see it."
    )
    findings = [*_logits(stage), *_weights(of, stage)]
    return Section("Attention", findings, [_keys_table(stage)], figures, note)


def _logits(stage: AttentionStage) -> list[Finding]:
    """Shares of positions in the logits, and of offsets in them."""
    variance, layers, by_head = stage.variance, stage.layer_numbers, stage.variance.position
    layer, head = np.unravel_index(by_head.argmax(), by_head.shape)
    findings = [
        row("logits explained in random order of tokens", max(stage.shuffled, 0.0), "share"),
        row("largest share of a head", float(by_head.max()), "share",
            f"head {layers[layer]}.{head}"),
    ]  # fmt: skip
    if (position := float(by_head.mean())) >= JUDGED:
        beyond = max(float(variance.place.mean()), 0.0) / position
        express = "can" if beyond < _TELLING else "alone cannot"
        findings.append(row("positional share beyond the offset j − i", beyond, "share",
                            f"a relative encoding {express} express it"))  # fmt: skip
    return findings


def _weights(of: ModelMeasures, stage: AttentionStage) -> list[Finding]:
    """Targets of attention: the first token, sinks, offsets, and without content."""
    findings = [row("attention to the first token", stage.sink, "share",
                    reference=stage.first_by_chance, against="equal weights")]  # fmt: skip
    findings.append(row("documents with a sink, mean of heads", stage.sinks.rate_overall, "share"))
    if round(norm := float(np.nanmax([0.0, *stage.sinks.norm.mean]))) > 1:
        findings.append(row("largest norm of sinks over the median token", norm))
    findings.append(measure(of, "baseline"))
    if stage.special.estimate > 0:
        findings.append(row("attention to special tokens", stage.special, "share"))
    return [*findings, row(
        "overlap with attention to one repeated token", stage.dummy, "share",
        reference=stage.other.estimate, against="another document",
    )]  # fmt: skip


def _keys_table(stage: AttentionStage) -> Table:
    """Weight of heads on four kinds of key."""
    offsets = {"the token before": -1, "the token itself": 0, "the next token": 1}
    weights = {"the first token": stage.first}
    weights |= {name: stage.at_offset(offset) for name, offset in offsets.items()}
    rows = []
    for name, weight in weights.items():
        layer, head = np.unravel_index(weight.argmax(), weight.shape)
        most = f"{stage.layer_numbers[layer]}.{head}: {hundreds(weight.max())}"
        count = f"{(weight > _MOST).sum()} of {weight.size}"
        rows.append((name, hundreds(weight.mean()), count, most))
    shown = rows if weights["the next token"].any() else rows[:3]  # of a decoder
    header = ("key", "weight, %", "heads over 50 %", "most in head, %")
    return Table("Keys of heads", header, shown)


def layer_tables(result: InspectResult) -> list[Table]:
    """One row a layer, means or medians of its heads; and the most frequent sinks."""
    stage = result.attention
    if stage is None:
        return []
    sinks, baseline = stage.sinks, stage.baseline.by_layer.mean
    means = {"positions": stage.share.mean, "offset": stage.variance.offset, "first": stage.first,
             "sinks": sinks.weight, "offset alone": baseline}  # fmt: skip
    columns = {"norm of sinks": sinks.norm.mean[stage.layer_numbers]}
    if stage.bands is not None:
        means["wavelengths beyond context"] = stage.bands.share[..., 2]
    if (spectral := result.spectral) is not None:
        means["beyond Toeplitz"] = np.median(spectral.toeplitz, axis=1)
        columns["effective rank"] = np.median(spectral.effective_rank, axis=1)
    cells = [[*map(hundreds, x if x.ndim == 1 else x.mean(axis=1))] for x in means.values()]
    cells += [[*map(number, x.tolist())] for x in columns.values()]
    header = ("layer", *(f"{name}, %" for name in means), *columns)
    note = (
        "Of logits: positions, offset, Toeplitz. Of weights: first, sinks, offset alone. Of "
        "queries and keys: wavelengths."
    )
    rows = [*zip(map(str, stage.layer_numbers), *cells, strict=True)]
    tables = [Table("Attention by layer", header, rows, note)]
    if len(sinks.positions):
        names = [*(f"position {x}" for x in sinks.positions[:_SINKS]), *sinks.tokens[:_SINKS]]
        shares = [*sinks.position_share[:_SINKS], *sinks.token_share[:_SINKS]]
        found = [*zip(names, map(percent, shares), strict=True)]
        tables.append(Table("Most frequent sinks", ("position or token", "of all sinks"), found))
    return tables


def _plot_offsets(weights: np.ndarray, layers: list[int], ax: Any) -> None:
    """Mean weight by offset, `[layers, heads, 2n − 1]`: all heads, and three that look nearby."""
    heads, reach = weights.shape[1], weights.shape[-1] // 2
    shown = weights.reshape(-1, weights.shape[-1])
    if not shown[:, reach + 1].any():  # a decoder
        shown = shown[:, : reach + 1]
    offsets = np.arange(shown.shape[1]) - reach
    low, middle, high = np.quantile(shown, (0.05, 0.5, 0.95), axis=0)
    curves: dict[str, tuple[np.ndarray, ...]] = {"median head": (middle, low, high)}
    for index in np.argsort(-shown[:, np.abs(offsets) <= _NEAR].max(axis=1))[:3]:
        curves[f"head {layers[index // heads]}.{index % heads}"] = (shown[index],)
    floor = max(1e-5, float(np.min(middle[middle > 0], initial=1.0)) / 10)
    plot_curves(offsets, curves, "offset j − i, tokens", "mean weight", ax, yscale="log",
                ylim=(floor, 1.2))  # fmt: skip
