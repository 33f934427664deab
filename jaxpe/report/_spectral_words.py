"""What a spectral report says in words: cards, sentences, and the cells of its tables."""

from typing import Any, NamedTuple

import numpy as np

from jaxpe.report._spectral_report import PARTS, HeadDrops, Pairs, SpectralReport, peak
from jaxpe.report._words import number, percent, plural

UNITS = {"accuracy": "points", "masked": "nats", "causal": "nats", "embedding": ""}


class Headline(NamedTuple):
    """A number on a card."""

    value: str
    label: str
    detail: str


def spectral_headlines(report: SpectralReport) -> list[Headline]:
    """The numbers on the cards."""
    shares = (report.variance.position, report.variance.offset)
    position, offset = (percent(positive(share.mean())) for share in shares)
    means, single = report.means, report.single
    cards = [
        Headline(position, "Logits that position explains",
                 "share of the variance, mean of all heads"),
        Headline(offset, "Logits that the offset explains", "the Toeplitz part of it"),
        Headline(number(middle(means.toeplitz)), "Toeplitz residual of mean logits",
                 f"middle head; {number(middle(single['toeplitz']))} of single documents"),
        Headline(number(middle(means.effective_rank)), "Effective rank of mean logits",
                 f"of at most {means.logits.shape[-1]}; "
                 f"{number(middle(single['effective_rank']))} of single documents"),
    ]  # fmt: skip
    for drops in report.ablations[:1]:
        layer, head = drops.head
        cards.append(
            Headline(drop_words(report, drops.drop[layer, head]), "Largest drop without a head",
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
    share = percent(positive(by_layer[most]))
    sentences = [
        f"Position explains {share} of the variance of the logits in layer {most}, where it "
        f"explains most, and {percent(positive(by_layer[least]))} in layer {least}, where least. "
        "The rest lies in the tokens."
        if most != least
        else f"Position explains {share} of the variance of the logits, tokens the rest."
    ]
    layer, head = divmod(int(variance.offset.argmax()), variance.offset.shape[1])
    hardest = peak(report, layer, head)
    sentences.append(
        f"The offset alone explains most in head {head} of layer {layer}, "
        f"{percent(positive(variance.offset[layer, head]))}; in the mean over documents that head "
        f"looks hardest at offset {_signed_number(hardest)}."
    )
    judged = variance.position >= 0.02
    if judged.any():
        residual = middle(np.clip(variance.residual[judged], 0, 1))
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
    ranks = middle(means.effective_rank), middle(single["effective_rank"])
    return [
        f"No Toeplitz matrix explains {percent(middle(means.toeplitz))} of the squared mean "
        f"logits of the middle head, and {percent(middle(single['toeplitz']))} of the squares of "
        "those of a single document (constants are Toeplitz).",
        f"The effective rank is {number(ranks[0])} in the mean and {number(ranks[1])} for a single "
        f"document, of at most {n}. The spectrum of the Toeplitz part is off its symbol by "
        f"{percent(middle(means.szego))} of the range in the middle head.",
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
    largest = drop_words(report, drops.drop[layer, head])
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
    means, single = report.means, report.single

    def both(name: str, layer: int) -> str:
        of_mean, own = getattr(means, name)[layer], single[name][layer]
        return f"{number(middle(of_mean))} / {number(middle(own))}"

    return [
        [
            *position_cells(report, layer),
            both("toeplitz", layer),
            number(middle(means.circulant[layer])),
            both("szego", layer),
            both("effective_rank", layer),
            number(middle(means.condition[layer])),
            both("range", layer),
            " in head ".join(worst_drop(report, layer)),
        ]
        for layer in range(len(report.variance.level))
    ]


def position_cells(report: SpectralReport, layer: int) -> list[str]:
    """A layer, what position and the offset explain in it, and the residual of its middle head."""
    variance = report.variance
    residual = np.clip(middle(variance.residual[layer]), 0, 1)  # noise may leave less, or more
    return [
        str(layer),
        percent(positive(variance.position[layer].mean())),
        percent(positive(variance.offset[layer].mean())),
        number(float(residual)),
    ]


def part_rows(report: SpectralReport) -> list[list[str]]:
    """A row for each part: shares and residuals, mean of all heads."""
    parts, embedded = report.parts, report.embedded
    columns = (parts.share, parts.mean_share, parts.residual, embedded.share, embedded.residual)
    rows = [[name, *(number(x[..., k].mean()) for x in columns)] for k, name in enumerate(PARTS)]
    cross = (number(parts.cross.mean()), "", "", number(embedded.cross.mean()), "")
    return [*rows, ["cross terms", *cross]]


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


def drop_words(report: SpectralReport, drop: float) -> str:
    """With its unit."""
    return f"{_bare_drop(report, drop)} {UNITS[report.facts['score']]}".strip()


def _bare_drop(report: SpectralReport, drop: float) -> str:
    return f"{100 * drop:.1f}" if report.facts["score"] == "accuracy" else number(drop)


def worst_drop(report: SpectralReport, layer: int) -> tuple[str, str]:
    """The largest drop of a layer, without its unit, and its head."""
    if not report.ablations:
        return "n/a", "n/a"
    drop = report.ablations[0].drop[layer]
    head = int(drop.argmax())
    return _bare_drop(report, drop[head]), str(head)
