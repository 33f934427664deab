"""Sentences, headlines and table cells of the page on attention logits."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxpe.analysis.attention.result import JUDGED
from jaxpe.report.text import Headline, number, percent, plural

if TYPE_CHECKING:
    from jaxpe.analysis.attention import AttentionAnalysis, HeadDrops, Pairs

# Below this share, or above 1 less it, one of two causes is named alone.
TELLING = 0.2
UNITS = {"accuracy": "points", "masked": "nats", "causal": "nats", "embedding": ""}
_SCORED = {
    "accuracy": " of accuracy",
    "masked": " a masked token",
    "causal": " a token",
    "embedding": " of the cosine with its own output",
}


def spectral_headlines(result: "AttentionAnalysis") -> list[Headline]:
    """The numbers on the cards."""
    means, variance = result.means, result.variance
    position, shuffled, offset = (
        percent(positive(share.mean()))
        for share in (variance.position, variance.shuffled, variance.offset)
    )
    toeplitz, rank = percent(median(means.toeplitz)), number(median(means.effective_rank))
    n = means.logits.shape[-1]
    cards = [
        Headline("Variance explained by positions", position, f"{shuffled} in random order"),
        Headline("Variance explained by the offset", offset, "j − i alone; mean of all heads"),
        Headline("Mean logits beyond Toeplitz", toeplitz, "of squares, median head"),
        Headline("Effective rank of mean logits", rank, f"of at most {n}, median head"),
    ]
    for drops in result.ablations[:1]:
        drop, (layer, head) = drop_words(result, drops.drop[drops.head]), drops.head
        noise = "; within noise" if is_noise(drops) else ""
        cards.append(Headline("Largest drop without a head", drop, f"{_name(layer, head)}{noise}"))
    return cards


def spectral_summary(result: "AttentionAnalysis") -> str:
    """Summary of the role of positions in attention, and the next steps.

    >>> spectral_summary(found)  # doctest: +SKIP
    'Positions explain 27 % of the variance of the attention logits ...'
    """
    untrained = "This model has not been trained: the numbers describe its initial weights."
    first = "" if result.facts.trained else untrained
    parts = [first, _variance(result), _cause(result), _drop(result)]
    return " ".join(part for part in parts if part)


def _variance(result: "AttentionAnalysis") -> str:
    by_layer = positive(result.variance.position.mean(axis=1))
    top = int(by_layer.argmax())
    return (
        f"Positions explain {percent(positive(result.variance.position.mean()))} of the variance "
        "of the attention logits, the scores before the softmax. They explain most in layer "
        f"{top} ({percent(by_layer[top])})."
    )


def _cause(result: "AttentionAnalysis") -> str:
    """Whether the encoding or words with typical positions make logits depend on position."""
    position, shuffled = (
        positive(share.mean()) for share in (result.variance.position, result.variance.shuffled)
    )
    if position < JUDGED:
        return ""
    if shuffled / position > 1 - TELLING:
        cause = "the encoding is the cause, not words with typical positions"
    elif shuffled / position < TELLING:
        cause = "words with typical positions are the cause, not the encoding"
    else:
        cause = "the encoding and words with typical positions are both causes"
    return (
        f"With the tokens of each document in random order they explain {percent(shuffled)}: "
        f"{cause}."
    )


def _drop(result: "AttentionAnalysis") -> str:
    if not result.ablations:
        return ""
    drops = result.ablations[0]
    noise = ", which is within the noise of the documents drawn" if is_noise(drops) else ""
    cost = drop_words(result, drops.drop[drops.head]) + _SCORED[result.facts.score]
    return f"Ablating {_name(*drops.head)} costs most, {cost}{noise}."


def is_noise(drops: "HeadDrops") -> bool:
    """Whether the largest drop is within noise."""
    return bool(drops.tested and not drops.certain[drops.head])


def _name(layer: int, head: int) -> str:
    return f"head {head} of layer {layer}"


def spectral_findings(result: "AttentionAnalysis") -> list[str]:
    """Findings of a spectral analysis that the summary does not contain."""
    sentences = [_offset(result), _residual(result), *_spectra(result), _parts(result)]
    if result.pairs is not None:
        sentences.append(_pairs(result, result.pairs))
    return sentences + [_heads(result, drops) for drops in result.ablations]


def _offset(result: "AttentionAnalysis") -> str:
    offset = result.variance.offset
    layer, head = divmod(int(offset.argmax()), offset.shape[1])
    share = percent(positive(offset[layer, head]))
    return (
        f"The offset j − i explains most in {_name(layer, head)}, {share} of the variance. Its "
        f"mean logit is largest at offset {_signed_number(peak(result, layer, head))}."
    )


def _residual(result: "AttentionAnalysis") -> str:
    residual = result.variance.residual
    judged = int((~np.isnan(residual)).sum())
    if not judged:
        return "In no head do positions explain 2\N{NO-BREAK SPACE}%."
    beyond = percent(median(np.clip(residual, 0, 1)))
    return (
        f"Positions explain 2\N{NO-BREAK SPACE}% or more in {judged} of "
        f"{plural(residual.size, 'head')}. In the median one, {beyond} of their share is not a "
        "function of the offset."
    )


def _spectra(result: "AttentionAnalysis") -> list[str]:
    means, single, n = result.means, result.single, result.means.logits.shape[-1]
    return [
        "A Toeplitz matrix has one value for each offset. The nearest one leaves "
        f"{percent(median(means.toeplitz))} of the squared mean logits unexplained in the median "
        f"head, and {percent(median(single.toeplitz))} for single documents.",
        f"The effective rank is {number(median(means.effective_rank))} for mean logits and "
        f"{number(median(single.effective_rank))} for single documents, of at most {n}. In the "
        "median head the spectrum of the Toeplitz part differs from its symbol by "
        f"{percent(median(means.szego))} of its range.",
    ]


def _parts(result: "AttentionAnalysis") -> str:
    parts = result.parts
    cross = parts.cross[~np.isnan(parts.cross)]
    if not cross.size:
        return "The logits are 0: they have no parts."
    shares = {name: mean(parts.share[..., k]) for k, name in enumerate(parts.names)}
    named = ", ".join(f"{name} {percent(x)}" for name, x in shares.items() if x > 0)
    return (
        "Queries and keys are sums of position (the mean hidden state at it) and content (the "
        f"rest). Shares of the squared logits, mean of all heads: {named}. Cross terms make "
        f"{_signed(cross.mean())}, between {_signed(cross.min())} and {_signed(cross.max())} by "
        "head."
    )


def _pairs(result: "AttentionAnalysis", pairs: "Pairs") -> str:
    n = result.means.logits.shape[-1]
    share = pairs.share.mean(axis=(0, 1))
    slow = pairs.angles * n < 2 * np.pi
    top = int(share.argmax())
    period = 2 * np.pi / max(pairs.angles[top], 1e-12)
    return (
        f"Of the {len(share)} rotary pairs, {int(slow.sum())} never complete a rotation within {n} "
        f"positions; these make {percent(share[slow].sum() / max(share.sum(), 1e-12))} of the "
        f"squares. Pair {top}, with a period of {number(period)} positions, makes most."
    )


def _heads(result: "AttentionAnalysis", drops: "HeadDrops") -> str:
    replaced = f"With {'zeros' if drops.kind == 'zero' else 'its mean'} in place of a head"
    layer, head = drops.head
    largest = f"{_name(layer, head)}, {drop_words(result, drops.drop[layer, head])}"
    if drops.tested and not drops.certain.any():
        return (
            f"{replaced}, no drop exceeds the noise of {drops.documents} documents. The largest "
            f"belongs to {largest}."
        )
    if is_noise(drops):
        drop = np.where(drops.certain, drops.drop, -np.inf)
        other = np.unravel_index(drop.argmax(), drop.shape)
        return (
            f"{replaced}, the largest drop is within noise ({largest}). The largest beyond noise "
            f"belongs to {_name(*map(int, other))}, {drop_words(result, drops.drop[other])}."
        )
    low, high = (_bare_drop(result, x[layer, head]) for x in (drops.low, drops.high))
    share, least, most = map(percent, drops.largest_share)
    cost = (
        f"{replaced}, the drop is largest for {largest} (interval {low} to {high} by itself). It "
        f"holds {share} of the sum of all drops (interval {least} to {most})"
    )
    even = f"an even spread would be {percent(1 / drops.drop.size)}"
    if not drops.tested:
        return f"{cost}; {even}. Any change lowers the cosine, so drops are not tested."
    verdict = "more" if drops.largest_share[0] > drops.share_by_chance else "no more"
    return (
        f"{cost}, {verdict} than the {percent(drops.share_by_chance)} of drops dealt to heads at "
        f"random; {even}. Tested together, {int(drops.certain.sum())} of "
        f"{plural(drops.drop.size, 'head')} {'has' if drops.certain.sum() == 1 else 'have'} a drop "
        "beyond noise."
    )


def layer_rows(result: "AttentionAnalysis") -> list[list[str]]:
    """Rows of the table of layers. Cells with two numbers: mean logits, and single documents."""
    means, single = result.means, result.single

    def both(name: str, layer: int, written: Callable[[float], str] = percent) -> str:
        values = (getattr(source, name)[layer] for source in (means, single))
        return " / ".join(written(median(x)) for x in values)

    def row(layer: int) -> list[str]:
        name, position, *others = position_cells(result, layer)
        shuffled = percent(positive(result.variance.shuffled[layer].mean()))
        return [
            name,
            f"{position} / {shuffled}",
            *others,
            both("toeplitz", layer),
            percent(median(means.circulant[layer])),
            both("szego", layer),
            both("effective_rank", layer, number),
            number(median(means.condition[layer])),
            both("range", layer, number),
            " in head ".join(worst_drop(result, layer)),
        ]

    return [row(layer) for layer in range(len(result.variance.level))]


def position_cells(result: "AttentionAnalysis", layer: int) -> list[str]:
    """A layer: shares of position and of the offset, and the residual of its median head."""
    variance = result.variance
    residual = np.clip(median(variance.residual[layer]), 0, 1)  # noise may leave less, or more
    return [
        str(layer),
        percent(positive(variance.position[layer].mean())),
        percent(positive(variance.offset[layer].mean())),
        _or_dash(float(residual)),
    ]


def part_rows(result: "AttentionAnalysis") -> list[list[str]]:
    """A row for each part: shares and residuals, mean of all heads."""
    parts, embedded = result.parts, result.embedded
    columns = (parts.share, parts.mean_share, parts.residual, embedded.share, embedded.residual)
    rows = [
        [name, *(_or_dash(mean(x[..., k])) for x in columns)] for k, name in enumerate(parts.names)
    ]
    cross, of_embedded = (_or_dash(mean(of.cross)) for of in (parts, embedded))
    return [*rows, ["cross terms", cross, "", "", of_embedded, ""]]


def _or_dash(value: float) -> str:
    """A share; a dash for NaN."""
    return "\N{EN DASH}" if np.isnan(value) else percent(value)


def mean(values: np.ndarray) -> float:
    """Mean of the values that are not NaN; NaN if all are."""
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size else float("nan")


def median(values: np.ndarray) -> float:
    """Median of the values that are not NaN, including ∞; NaN if all are."""
    values = values[~np.isnan(values)]
    return float(np.median(values)) if values.size else float("nan")


def positive(share: Any) -> Any:
    """Shares, clipped at 0, because noise may make them negative."""
    return np.maximum(share, 0.0)


def _signed(share: float) -> str:
    return f"{_signed_number(round(100 * float(share)))}\N{NO-BREAK SPACE}%"


def _signed_number(value: int) -> str:
    """Whole number with a plus or minus sign."""
    return f"{value:+,d}".replace("-", "\N{MINUS SIGN}") if value else "0"


def drop_words(result: "AttentionAnalysis", drop: float) -> str:
    """Drop of the score with its unit."""
    return f"{_bare_drop(result, drop)} {UNITS[result.facts.score]}".strip()


def _bare_drop(result: "AttentionAnalysis", drop: float) -> str:
    return f"{100 * drop:.1f}" if result.facts.score == "accuracy" else number(drop)


def worst_drop(result: "AttentionAnalysis", layer: int) -> tuple[str, str]:
    """The largest drop of a layer, without its unit, and its head."""
    if not result.ablations:
        return "n/a", "n/a"
    drop = result.ablations[0].drop[layer]
    head = int(drop.argmax())
    return _bare_drop(result, drop[head]), str(head)


def near(result: "AttentionAnalysis") -> tuple[np.ndarray, np.ndarray]:
    """Offsets up to half the length, and their centred diagonals; NaN at 0, which is left out."""
    n = result.means.logits.shape[-1]
    far = max(2, n // 2)
    offsets = np.arange(-far, 1 if result.causal else far + 1)
    shown = result.means.diagonals[..., offsets + n - 1] - result.variance.level[..., None]
    return offsets, np.where(offsets == 0, np.nan, shown)


def peak(result: "AttentionAnalysis", layer: int, head: int) -> int:
    """Offset, up to half the length, with the largest mean logit of a head."""
    offsets, diagonals = near(result)
    return int(offsets[np.nanargmax(diagonals[layer, head])])
