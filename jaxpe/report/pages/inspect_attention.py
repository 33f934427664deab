"""Attention on the page of an inspection: logits, offsets, sinks, frequencies."""

from functools import partial
from typing import Any

import numpy as np

from jaxpe.analysis.inspect import JUDGED, AttentionSinks, AttentionStage, InspectResult
from jaxpe.analysis.inspections import ModelMeasures
from jaxpe.report.findings import Figure, Finding, Section, Table
from jaxpe.report.numbers import percent
from jaxpe.report.pages.inspect_rows import (
    at,
    hundreds,
    layer_table,
    measure,
    plot_curves,
    plot_heads,
    row,
)

SINK = 0.3  # share of attention from which sinks matter to users (Gu et al. 2025)
_MOST = 0.5  # share of its weight from which a head belongs to a kind of key
_TELLING = 0.2  # below this share, or above 1 less it, one of two causes is named alone
_NEAR = 8  # offsets by which heads are chosen for the figure


def position_share(of: ModelMeasures, stage: AttentionStage) -> Finding:
    """Share of the logits that positions explain, and whether encoding or words are the cause."""
    parts = stage.variance.position, stage.variance.shuffled
    position, shuffled = (max(float(share.mean()), 0.0) for share in parts)
    verdict, said = "both", "The encoding and words with typical positions are both causes."
    if position < JUDGED:
        verdict, said = "none", "Attention logits hardly depend on positions."
    elif shuffled / position > 1 - _TELLING:
        verdict, said = (
            "the encoding",
            "The encoding is the cause, not words with typical positions.",
        )
    elif shuffled / position < _TELLING:
        verdict, said = "words", "Words with typical positions are the cause, not the encoding."
    return measure(of, "position_share", f"cause: {verdict}", sentence=said)


def sinks(of: ModelMeasures, found: AttentionSinks, *, causal: bool) -> Finding:
    """Weight on sinks; advice where they surely take over 30 %."""
    said = "Sinks are the rule in decoders, and no fault." if causal else ""
    if found.weight_overall.low < SINK or not len(found.positions):
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
    """What positions explain of the logits, and where the weights go."""
    layers, variance, by_head = stage.layer_numbers, stage.variance, stage.variance.position
    shares = {
        "documents": stage.share,
        "random order": (variance.shuffled.mean(axis=1),),
    }
    shown = [
        partial(plot_heads, by_head, "positions explain", layers=layers, vmin=0, vmax=1),
        partial(plot_heads, stage.first, "on the first token", layers=layers, vmin=0, vmax=1),
    ]
    figures = [
        Figure("heads", "Logits explained by positions, and weight on the first token",
               "Each layer and head.", shown, columns=2),
        Figure("logit-shares", "Share of the logits' variance that positions explain",
               "Mean of the heads of a layer with 95 % intervals, and in random order.",
               [partial(plot_curves, layers, shares, "layer", "share", ylim=(0, 1))], height=2.6),
        Figure("attention-by-offset", "Mean attention weight by offset",
               "Band: 5th to 95th percentile of all heads. The others have most weight at an "
               f"offset of at most {_NEAR}.", [partial(_plot_offsets, stage.offsets, layers)]),
    ]  # fmt: skip
    note = (
        "Share: variance of a head's logits, over documents and pairs i ≠ j, that their mean at "
        "(i, j) explains, without noise. Weights: means over queries at positions from 1."
    )
    findings = [*_logits(stage), *_weights(of, stage)]
    return Section("Attention", findings, [_keys_table(stage)], figures, note)


def _logits(stage: AttentionStage) -> list[Finding]:
    """Shares of positions in the logits, and of offsets in them."""
    variance, layers, by_head = stage.variance, stage.layer_numbers, stage.variance.position
    top, head = int(stage.share.mean.argmax()), np.unravel_index(by_head.argmax(), by_head.shape)
    findings = [
        row("logits explained in random order of tokens", max(stage.shuffled, 0.0), "share"),
        row("largest share of a layer", at(stage.share, top), "share", f"layer {layers[top]}"),
        row("largest share of a head", float(by_head[head]), "share",
            f"head {layers[head[0]]}.{head[1]}"),
    ]  # fmt: skip
    if (position := float(by_head.mean())) >= JUDGED:
        beyond = max(float(variance.place.mean()), 0.0) / position
        express = "can" if beyond < _TELLING else "alone cannot"
        findings.append(row("positional share beyond the offset j − i", beyond, "share",
                            f"a relative encoding {express} express it"))  # fmt: skip
    if judged := int((~np.isnan(variance.residual)).sum()):
        median = float(np.nanmedian(np.clip(variance.residual, 0, 1)))
        against = f"{judged} of {by_head.size} heads with 2 % or more"
        findings.append(
            row("positional share beyond the offset, median head", median, "share", against=against)
        )
    return findings


def _weights(of: ModelMeasures, stage: AttentionStage) -> list[Finding]:
    """Where attention goes: the first token, sinks, offsets, and without content."""
    findings = [row("attention to the first token", stage.sink, "share",
                    reference=stage.first_by_chance, against="equal weights")]  # fmt: skip
    if (sinks := stage.sinks) is not None:
        findings.append(row("heads with a sink", sinks.rate_overall, "share"))
        norms = sinks.norm.mean[np.isfinite(sinks.norm.mean)]
        if len(sinks.positions):
            place, share = sinks.positions[0], float(sinks.position_share[0])
            findings.append(row("sinks at one position", share, "share", f"position {place}"))
        if round(float(norms.max(initial=0.0))) > 1:
            findings.append(row("largest norm of sinks over the median token", float(norms.max())))
    if stage.baseline is not None:
        findings.append(measure(of, "baseline"))
    if stage.bands is not None:
        name = "queries and keys in wavelengths up to 32 tokens"
        findings.append(row(name, at(stage.bands.overall, 0), "share"))
    if stage.special_overall.estimate > 0:
        findings.append(row("attention to special tokens", stage.special_overall, "share"))
    dummy = "one repeated token in place of the text"
    return [
        *findings,
        row(
            "overlap with attention to a dummy document",
            stage.dummy_overall,
            "share",
            against=dummy,
        ),
        row("overlap with attention to another document", stage.other_overall, "share"),
    ]


def key_weights(stage: AttentionStage) -> dict[str, np.ndarray]:
    """Mean weight of heads on one kind of key, `[layers, heads]`, by its name."""
    offsets = {"the token before": -1, "the token itself": 0, "the next token": 1}
    weights = {name: stage.at_offset(offset) for name, offset in offsets.items()}
    if not weights["the next token"].any():  # a decoder
        del weights["the next token"]
    return {"the first token": stage.first} | weights


def _keys_table(stage: AttentionStage) -> Table:
    rows = []
    for name, weight in key_weights(stage).items():
        layer, head = np.unravel_index(weight.argmax(), weight.shape)
        most = f"{stage.layer_numbers[layer]}.{head}: {hundreds(weight.max())}"
        count = f"{(weight > _MOST).sum()} of {weight.size}"
        rows.append((name, hundreds(weight.mean()), count, most))
    header = ("key", "weight, %", "heads over 50 %", "most in head, %")
    return Table("Keys of heads", header, rows)


def _sinks_table(sinks: AttentionSinks) -> Table:
    names = [f"position {place}" for place in sinks.positions]
    names += [f"token {word}" for word in sinks.tokens]
    shares = np.concatenate([sinks.position_share, sinks.token_share]).tolist()
    rows = [(name, percent(share)) for name, share in zip(names, shares, strict=True)]
    return Table("Most frequent sinks", ("of all sinks", "share"), rows)


def layer_tables(stage: AttentionStage) -> list[Table]:
    """One row a layer, means of its heads: logits, weights, sinks and frequencies; all sinks."""
    variance, names = stage.variance, [*map(str, stage.layer_numbers)]
    logits = {
        "positions, %": stage.share.mean, "low, %": stage.share.low, "high, %": stage.share.high,
        "offset, %": variance.offset, "random order, %": variance.shuffled,
        "overlap with a dummy, %": stage.dummy, "with another document, %": stage.other,
    }  # fmt: skip
    weights = {
        "first, %": stage.first, "before, %": stage.at_offset(-1), "evenness": stage.evenness,
        "effective keys": np.exp(stage.entropy), "distance, tokens": stage.distance,
    }  # fmt: skip
    use: dict[str, np.ndarray] = {}
    if (sinks := stage.sinks) is not None:
        use |= {"documents with a sink, %": sinks.rate, "weight on sinks, %": sinks.weight,
                "norm of sinks": sinks.norm.mean[stage.layer_numbers]}  # fmt: skip
    if stage.baseline is not None:
        use["offset alone, %"] = stage.baseline.by_layer.mean
    if stage.bands is not None:
        low, high = (f"{x:,.0f}" for x in stage.bands.edges)
        for k, name in enumerate((f"to {low}", f"{low} to {high}", f"over {high}")):
            use[f"wavelengths {name}, %"] = stage.bands.share[..., k]
    titles = ("Logits by layer", "Attention by layer", "Sinks, offset and frequencies by layer")
    made = zip(titles, (logits, weights, use), strict=True)
    tables = [layer_table(title, names, columns) for title, columns in made if columns]
    return [*tables, *([_sinks_table(sinks)] if sinks and len(sinks.positions) else [])]


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
