"""Words of an analysis of attention: cards, sentences, and the cells of its tables."""

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


def spectral_headlines(result: "AttentionAnalysis") -> list[Headline]:
    """The numbers on the cards."""
    means, variance = result.means, result.variance
    position, shuffled, offset = (
        percent(positive(share.mean()))
        for share in (variance.position, variance.shuffled, variance.offset)
    )
    cards = [
        Headline(
            "Variance of logits by positions", position, f"{shuffled} with tokens in random order"
        ),
        Headline("Variance of logits by the offset", offset, "j − i alone; mean of all heads"),
        Headline(
            "Mean logits beyond Toeplitz",
            percent(middle(means.toeplitz)),
            "of squares, middle head",
        ),
        Headline(
            "Effective rank of mean logits",
            number(middle(means.effective_rank)),
            f"of at most {means.logits.shape[-1]}, middle head",
        ),
    ]
    for drops in result.ablations[:1]:
        layer, head = drops.head
        doubt = drops.tested and not drops.certain[layer, head]
        cards.append(
            Headline(
                "Largest drop without a head",
                drop_words(result, drops.drop[layer, head]),
                f"layer {layer}, head {head}{'; within noise' if doubt else ''}",
            )
        )
    return cards


def spectral_summary(result: "AttentionAnalysis") -> str:
    """Summary of the result and of what to do next, for a reader who has read nothing else.

    >>> spectral_summary(found)  # doctest: +SKIP
    'Before softmax, attention gives every pair of a query at position i and a key at ...'
    """
    parts = [_of_training, _of_variance, _of_origin, _of_drops, _advice]
    return " ".join(text for part in parts if (text := part(result)))


def _of_training(result: "AttentionAnalysis") -> str:
    if result.facts.trained:
        return ""
    return (
        "This model has not been trained: the numbers describe its initial weights, and say "
        "nothing of what training makes of position. Train one (`jaxpe train`) and pass its folder "
        "as the model."
    )


def _of_variance(result: "AttentionAnalysis") -> str:
    variance = result.variance
    mean, by_layer = positive(variance.position.mean()), variance.position.mean(axis=1)
    most = int(by_layer.argmax())
    return (
        "Before softmax, attention gives every pair of a query at position i and a key at position "
        "j a score, the logit. The positions explain "
        f"{percent(mean)} of the variance of the logits over pairs and documents, most in layer "
        f"{most} ({percent(positive(by_layer[most]))}); the rest differs between documents."
    )


def _of_origin(result: "AttentionAnalysis") -> str:
    """Sentences on the origin of the dependence on position: the encoding or the words."""
    variance = result.variance
    mean, shuffled = positive(variance.position.mean()), positive(variance.shuffled.mean())
    if mean < JUDGED:
        return ""
    kept = shuffled / mean
    if kept > 1 - TELLING:
        cause = "the encoding is the cause, and not words that have their usual places"
    elif kept < TELLING:
        cause = "words that have their usual places are the cause, and not the encoding"
    else:
        cause = "both the encoding and words that have their usual places are causes"
    return f"With the tokens of each document in random order it is {percent(shuffled)}: {cause}."


def _of_drops(result: "AttentionAnalysis") -> str:
    for drops in result.ablations[:1]:
        layer, head = drops.head
        known = not drops.tested or drops.certain[layer, head]
        doubt = "" if known else ", which is within the noise of the documents drawn"
        return (
            f"Without head {head} of layer {layer} the model loses most, "
            f"{drop_words(result, drops.drop[layer, head])}{_of_what(result)}{doubt}."
        )
    return ""


def _of_what(result: "AttentionAnalysis") -> str:
    return {
        "accuracy": " of accuracy",
        "masked": " a masked token",
        "causal": " a token",
        "embedding": " of the cosine with its own output",
    }[result.facts.score]


def _advice(result: "AttentionAnalysis") -> str:
    """Kinds of encoding that can express the dependence on position seen here."""
    if not result.facts.trained:
        return ""
    variance = result.variance
    position = positive(variance.position.mean())
    if position < JUDGED:
        return "So little depends on positions that a model without an encoding may do as well."
    beyond = positive(variance.place.mean()) / position
    if beyond < TELLING:
        return (
            f"The offset j − i alone explains all but {percent(beyond)} of what positions do: a "
            "relative encoding (rotary, a bias) can express it."
        )
    return (
        f"Of what positions do, {percent(beyond)} is no function of the offset j − i: a relative "
        "encoding alone cannot express it."
    )


def spectral_findings(result: "AttentionAnalysis") -> list[str]:
    """Findings of a spectral analysis, in sentences."""
    found = [*_of_position(result), *_of_spectra(result), *_of_parts(result)]
    if result.pairs is not None:
        found.append(_of_pairs(result, result.pairs))
    return found + [sentence for drops in result.ablations for sentence in _of_heads(result, drops)]


def _of_position(result: "AttentionAnalysis") -> list[str]:
    variance = result.variance
    by_layer = variance.position.mean(axis=1)
    most, least = int(by_layer.argmax()), int(by_layer.argmin())
    share = percent(positive(by_layer[most]))
    shuffled = percent(positive(variance.shuffled.mean(axis=1)[most]))
    also = f" and least in layer {least} ({percent(positive(by_layer[least]))})"
    sentences = [
        f"Positions explain the largest share of the variance of the logits in layer {most} "
        f"({share}){also if most != least else ''}. With the tokens of each document in random "
        f"order they explain {shuffled} in layer {most}: this part is due to the encoding alone."
    ]
    layer, head = divmod(int(variance.offset.argmax()), variance.offset.shape[1])
    hardest = peak(result, layer, head)
    sentences.append(
        f"The offset j − i explains most in head {head} of layer {layer}, "
        f"{percent(positive(variance.offset[layer, head]))} of its variance; its mean logit is "
        f"largest at offset {_signed_number(hardest)}."
    )
    judged = ~np.isnan(variance.residual)
    if judged.any():
        residual = middle(np.clip(variance.residual, 0, 1))
        sentences.append(
            f"Positions explain 2\N{NO-BREAK SPACE}% or more in "
            f"{plural(int(judged.sum()), 'head')} of {judged.size}. Of that, {percent(residual)} "
            "is no function of the offset, in the middle one of these heads."
        )
    else:
        sentences.append("In no head do positions explain 2\N{NO-BREAK SPACE}%.")
    return sentences


def _of_spectra(result: "AttentionAnalysis") -> list[str]:
    means, single, n = result.means, result.single, result.means.logits.shape[-1]
    ranks = middle(means.effective_rank), middle(single.effective_rank)
    return [
        "A Toeplitz matrix has one value for each offset. The nearest one leaves "
        f"{percent(middle(means.toeplitz))} of the squares of the mean logits unexplained (middle "
        f"head), and {percent(middle(single.toeplitz))} of those of a single document.",
        f"The effective rank of the mean logits is {number(ranks[0])}, that of a single document "
        f"{number(ranks[1])}, of at most {n}. The spectrum of the Toeplitz part differs from its "
        f"symbol by {percent(middle(means.szego))} of its range (middle head).",
    ]


def _of_parts(result: "AttentionAnalysis") -> list[str]:
    parts = result.parts
    share = [average(parts.share[..., k]) for k in range(len(parts.names))]
    cross = parts.cross[~np.isnan(parts.cross)]
    if not cross.size:
        return ["The logits are 0: they have no parts."]
    named = [f"{name} {percent(x)}" for name, x in zip(parts.names, share, strict=True) if x > 0]
    return [
        "Queries and keys are each a sum of position (the mean hidden state there) and content "
        f"(the rest). Of the squared logits their products have: {', '.join(named)}, mean of all "
        f"heads. Cross terms have {_signed(cross.mean())}, between {_signed(cross.min())} and "
        f"{_signed(cross.max())} by head."
    ]


def _of_pairs(result: "AttentionAnalysis", pairs: "Pairs") -> str:
    n = result.means.logits.shape[-1]
    share = pairs.share.mean(axis=(0, 1))
    slow = pairs.angles * n < 2 * np.pi
    top = int(share.argmax())
    return (
        f"Of the {len(share)} rotary pairs, {int(slow.sum())} turn less than once in {n} "
        f"positions, and have {percent(share[slow].sum() / max(share.sum(), 1e-12))} of the "
        f"squares. Pair {top} has most; its period is "
        f"{number(2 * np.pi / max(pairs.angles[top], 1e-12))} positions."
    )


def _of_heads(result: "AttentionAnalysis", drops: "HeadDrops") -> list[str]:
    instead = f"With {'nothing' if drops.kind == 'zero' else 'its mean'} in place of a head"
    layer, head = drops.head
    largest = _named_drop(result, drops, layer, head)
    if drops.tested and not drops.certain.any():
        return [
            f"{instead}, no drop exceeds the noise of {drops.documents} documents; the largest is "
            f"that of {largest}."
        ]
    if drops.tested and not drops.certain[layer, head]:
        certain = np.where(drops.certain, drops.drop, -np.inf)
        other = _named_drop(result, drops, *divmod(int(certain.argmax()), certain.shape[1]))
        return [
            f"{instead}, the largest drop, that of {largest}, is within noise; of those beyond it, "
            f"the largest is that of {other}."
        ]
    share, least, most = drops.largest_share
    costs = (
        f"{instead}, the drop is largest for head {head} of layer {layer}, "
        f"{drop_words(result, drops.drop[layer, head])} (interval "
        f"{_bare_drop(result, drops.low[layer, head])} to "
        f"{_bare_drop(result, drops.high[layer, head])} by itself)"
    )
    holds = (
        f"It holds {percent(share)} of the sum of all drops (interval {percent(least)} to "
        f"{percent(most)})"
    )
    even = f"an even spread would be {percent(1 / drops.drop.size)}"
    if not drops.tested:
        return [
            f"{costs}. {holds}; {even}. Drops are not tested: any change lowers the cosine with "
            "the output of all heads."
        ]
    verdict = "more" if share > drops.share_by_chance else "no more"
    return [
        f"{costs}. Tested together, {plural(int(drops.certain.sum()), 'head')} of "
        f"{drops.drop.size} have drops beyond noise. {holds}, {verdict} than the "
        f"{percent(drops.share_by_chance)} of drops assigned to heads at random; {even}."
    ]


def _named_drop(result: "AttentionAnalysis", drops: "HeadDrops", layer: int, head: int) -> str:
    return f"head {head} of layer {layer}, {drop_words(result, drops.drop[layer, head])}"


def layer_rows(result: "AttentionAnalysis") -> list[list[str]]:
    """The table of the page: numbers of each layer; of a mean and of single documents where two."""
    means, single = result.means, result.single

    def both(name: str, layer: int, written: Callable[[float], str] = percent) -> str:
        of_mean, own = getattr(means, name)[layer], getattr(single, name)[layer]
        return f"{written(middle(of_mean))} / {written(middle(own))}"

    def row(layer: int) -> list[str]:
        name, place, *others = position_cells(result, layer)
        shuffled = percent(positive(result.variance.shuffled[layer].mean()))
        return [
            name,
            f"{place} / {shuffled}",
            *others,
            both("toeplitz", layer),
            percent(middle(means.circulant[layer])),
            both("szego", layer),
            both("effective_rank", layer, number),
            number(middle(means.condition[layer])),
            both("range", layer, number),
            " in head ".join(worst_drop(result, layer)),
        ]

    return [row(layer) for layer in range(len(result.variance.level))]


def position_cells(result: "AttentionAnalysis", layer: int) -> list[str]:
    """A layer, what place and the offset explain in it, and the residual of its middle head."""
    variance = result.variance
    residual = np.clip(middle(variance.residual[layer]), 0, 1)  # noise may leave less, or more
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
        [name, *(_or_dash(average(x[..., k])) for x in columns)]
        for k, name in enumerate(parts.names)
    ]
    cross = (_or_dash(average(parts.cross)), "", "", _or_dash(average(embedded.cross)), "")
    return [*rows, ["cross terms", *cross]]


def _or_dash(value: float) -> str:
    """A share; a dash where there is none."""
    return "\N{EN DASH}" if np.isnan(value) else percent(value)


def average(values: np.ndarray) -> float:
    """The mean of what is a number, NaN where nothing is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def middle(values: np.ndarray) -> float:
    """The median of what is a number (∞ among them), NaN where nothing is."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else float("nan")


def positive(share: Any) -> Any:
    """Shares without what noise leaves below 0."""
    return np.maximum(share, 0.0)


def _signed(share: float) -> str:
    return f"{_signed_number(round(100 * float(share)))}\N{NO-BREAK SPACE}%"


def _signed_number(whole: int) -> str:
    """Whole number with a plus or minus sign."""
    return f"{whole:+,d}".replace("-", "\N{MINUS SIGN}") if whole else "0"


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
    """Offsets up to half the length, and centred diagonals there; NaN at 0, which is left out."""
    n = result.means.logits.shape[-1]
    far = max(2, n // 2)
    offsets = np.arange(-far, 1 if result.causal else far + 1)
    shown = result.means.diagonals[..., offsets + n - 1] - result.variance.level[..., None]
    return offsets, np.where(offsets == 0, np.nan, shown)


def peak(result: "AttentionAnalysis", layer: int, head: int) -> int:
    """Offset, up to half the length, with the largest mean logit of a head."""
    offsets, diagonals = near(result)
    return int(offsets[np.nanargmax(diagonals[layer, head])])
