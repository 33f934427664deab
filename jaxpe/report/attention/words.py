"""What an analysis of attention says in words: cards, sentences, and the cells of its tables."""

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxpe.report.words import Headline, number, percent, plural

if TYPE_CHECKING:
    from jaxpe.analysis.attention import AttentionAnalysis, HeadDrops, Pairs

UNITS = {"accuracy": "points", "masked": "nats", "causal": "nats", "embedding": ""}


def spectral_headlines(result: "AttentionAnalysis") -> list[Headline]:
    """The numbers on the cards."""
    shares = (result.variance.position, result.variance.shuffled, result.variance.offset)
    position, shuffled, offset = (percent(positive(share.mean())) for share in shares)
    means, single = result.means, result.single
    cards = [
        Headline(
            "Logits that place in the document explains",
            position,
            f"of the variance, mean of all heads; {shuffled} with tokens in random order",
        ),
        Headline("Logits that the offset explains", offset, "the Toeplitz part of it"),
        Headline(
            "Toeplitz residual of mean logits",
            number(middle(means.toeplitz)),
            f"middle head; {number(middle(single.toeplitz))} of single documents",
        ),
        Headline(
            "Effective rank of mean logits",
            number(middle(means.effective_rank)),
            f"of at most {means.logits.shape[-1]}; "
            f"{number(middle(single.effective_rank))} of single documents",
        ),
    ]
    for drops in result.ablations[:1]:
        layer, head = drops.head
        doubt = drops.tested and not drops.certain[layer, head]
        cards.append(
            Headline(
                "Largest drop without a head",
                drop_words(result, drops.drop[layer, head]),
                f"head {head} of layer {layer}{', not told from none' if doubt else ''}",
            )
        )
    return cards


def spectral_findings(result: "AttentionAnalysis") -> list[str]:
    """What the numbers say, in sentences."""
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
    also = f", and {percent(positive(by_layer[least]))} in layer {least}, where least"
    sentences = [
        f"Place in the document explains {share} of the variance of the logits in layer {most}, "
        f"where it explains most{also if most != least else ''}. That is the encoding's doing, and "
        "that of the words that tend to stand at a place: with the tokens of each document in "
        f"random order it is {shuffled} in layer {most}."
    ]
    layer, head = divmod(int(variance.offset.argmax()), variance.offset.shape[1])
    hardest = peak(result, layer, head)
    sentences.append(
        f"The offset alone explains most in head {head} of layer {layer}, "
        f"{percent(positive(variance.offset[layer, head]))}; in the mean over documents that head "
        f"looks hardest at offset {_signed_number(hardest)}."
    )
    judged = ~np.isnan(variance.residual)
    if judged.any():
        residual = middle(np.clip(variance.residual, 0, 1))
        sentences.append(
            f"In the {plural(int(judged.sum()), 'head')} of {judged.size} where place explains "
            f"2\N{NO-BREAK SPACE}% or more, the middle one has {percent(residual)} of that beyond "
            "any Toeplitz matrix."
        )
    else:
        sentences.append("In no head does place explain 2\N{NO-BREAK SPACE}%.")
    return sentences


def _of_spectra(result: "AttentionAnalysis") -> list[str]:
    means, single, n = result.means, result.single, result.means.logits.shape[-1]
    ranks = middle(means.effective_rank), middle(single.effective_rank)
    return [
        f"No Toeplitz matrix explains {percent(middle(means.toeplitz))} of the squared mean "
        f"logits of the middle head, and {percent(middle(single.toeplitz))} of the squares of "
        "those of a single document (constants are Toeplitz).",
        f"The effective rank is {number(ranks[0])} in the mean and {number(ranks[1])} for a single "
        f"document, of at most {n}. At this length the spectrum of the Toeplitz part, less its "
        f"level, is {percent(middle(means.szego))} of the range away from samples of its symbol in "
        "the middle head; a small distance alone does not show that longer ones have a symbol.",
    ]


def _of_parts(result: "AttentionAnalysis") -> list[str]:
    parts = result.parts
    share = [average(parts.share[..., k]) for k in range(len(parts.names))]
    cross = parts.cross[~np.isnan(parts.cross)]
    if not cross.size:
        return ["The logits are 0: there is nothing to take apart."]
    named = [f"{name} {percent(x)}" for name, x in zip(parts.names, share, strict=True) if x > 0]
    return [
        f"As sums of products, by the mean hidden state at each place: {', '.join(named)} of the "
        f"squared logits, mean of all heads. The cross terms are {_signed(cross.mean())}, between "
        f"{_signed(cross.min())} and {_signed(cross.max())} by head."
    ]


def _of_pairs(result: "AttentionAnalysis", pairs: "Pairs") -> str:
    n = result.means.logits.shape[-1]
    share = pairs.share.mean(axis=(0, 1))
    slow = pairs.angles * n < 2 * np.pi
    top = int(share.argmax())
    return (
        f"Of the squares of the {len(share)} rotary pairs, "
        f"{percent(share[slow].sum() / max(share.sum(), 1e-12))} lies in the "
        f"{int(slow.sum())} that turn less than once in {n} positions; pair {top}, of "
        f"{number(2 * np.pi / max(pairs.angles[top], 1e-12))} positions a turn, has most."
    )


def _of_heads(result: "AttentionAnalysis", drops: "HeadDrops") -> list[str]:
    instead = f"With {'nothing' if drops.kind == 'zero' else 'its mean'} in place of a head"
    layer, head = drops.head
    largest = _named_drop(result, drops, layer, head)
    if drops.tested and not drops.certain.any():
        return [
            f"{instead}, no loss can be told from none over {drops.documents} documents; the "
            f"largest is that of {largest}."
        ]
    if drops.tested and not drops.certain[layer, head]:
        certain = np.where(drops.certain, drops.drop, -np.inf)
        other = _named_drop(result, drops, *divmod(int(certain.argmax()), certain.shape[1]))
        return [
            f"{instead}, the largest drop, that of {largest}, cannot be told from none; of those "
            f"that can, the largest is that of {other}."
        ]
    share, least, most = drops.largest_share
    costs = (
        f"{instead}, head {head} of layer {layer} costs most, "
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
            f"{costs}. {holds}; {even}. These are sizes alone: any change takes from a cosine with "
            "what was there before, so that no loss is tested against none."
        ]
    verdict = "more" if share > drops.share_by_chance else "no more"
    return [
        f"{costs}; with all heads considered, {plural(int(drops.certain.sum()), 'head')} of "
        f"{drops.drop.size} can be told from none. {holds}, {verdict} than the "
        f"{percent(drops.share_by_chance)} of drops dealt to heads by chance; {even}."
    ]


def _named_drop(result: "AttentionAnalysis", drops: "HeadDrops", layer: int, head: int) -> str:
    return f"head {head} of layer {layer}, {drop_words(result, drops.drop[layer, head])}"


def layer_rows(result: "AttentionAnalysis") -> list[list[str]]:
    """The table of the page: numbers of each layer; of a mean and of single documents where two."""
    means, single = result.means, result.single

    def both(name: str, layer: int) -> str:
        of_mean, own = getattr(means, name)[layer], getattr(single, name)[layer]
        return f"{number(middle(of_mean))} / {number(middle(own))}"

    def row(layer: int) -> list[str]:
        name, place, *others = position_cells(result, layer)
        shuffled = percent(positive(result.variance.shuffled[layer].mean()))
        return [
            name,
            f"{place} / {shuffled}",
            *others,
            both("toeplitz", layer),
            number(middle(means.circulant[layer])),
            both("szego", layer),
            both("effective_rank", layer),
            number(middle(means.condition[layer])),
            both("range", layer),
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
    """A number; a dash where there is none."""
    return "\N{EN DASH}" if np.isnan(value) else number(value)


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
    """With a plus or a minus."""
    return f"{whole:+,d}".replace("-", "\N{MINUS SIGN}") if whole else "0"


def drop_words(result: "AttentionAnalysis", drop: float) -> str:
    """With its unit."""
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
    """Of the offsets up to half the length, that which a head looks hardest at in the mean."""
    offsets, diagonals = near(result)
    return int(offsets[np.nanargmax(diagonals[layer, head])])
