"""Findings of an inspection in sentences and numbers."""

import math

import numpy as np

from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.inspect import (
    AblationFound,
    AttentionFound,
    InspectResult,
    LossFound,
    Means,
    Moved,
)
from jaxpe.report.text import Headline, number, percent, plural, visible

MOST = 0.5  # share of a head's weight from which it is counted as a head of one kind
_SAME = 5e-4  # change of a loss in nats below which it shows as none
_ROBUST = 0.1  # loss in nats up to which a change counts as small

KINDS = {
    "the first token": "first",
    "the token before": -1,
    "the token itself": 0,
    "the next token": 1,
}


def percent_between(found: Interval) -> str:
    """A share with its interval.

    >>> percent_between(Interval(0.5, 0.4, 0.61))
    '50\\xa0% (40 to 61)'
    """
    if math.isnan(found.low):
        return percent(found.estimate)
    return f"{percent(found.estimate)} ({100 * found.low:.0f} to {100 * found.high:.0f})"


def between(found: Interval, digits: int = 2) -> str:
    """A number with its interval.

    >>> between(Interval(1.234, 1.0, 1.5))
    '1.23 (1.00 to 1.50)'
    """
    mean = f"{found.estimate:.{digits}f}"
    if math.isnan(found.low):
        return mean
    return f"{mean} ({found.low:.{digits}f} to {found.high:.{digits}f})".replace("-", "−")


def at(found: Means, *place: int) -> Interval:
    """The mean and interval at a place of the arrays."""
    return Interval(*(float(np.asarray(x)[place]) for x in found))


def inspect_summary(result: InspectResult) -> str:
    """Summary of what position does in the model, a paragraph of a few sentences.

    >>> inspect_summary(inspect_model(options))  # doctest: +SKIP
    'Positions enter all-MiniLM-L6-v2 as learned vectors ...'
    """
    parts = (_entering(result), _using(result), _needing(result), _reaching(result))
    return " ".join(part for part in parts if part)


def _entering(result: InspectResult) -> str:
    facts = result.facts
    text = f"Positions enter {visible(facts.model)} as {ways(facts.encoding)}"
    if result.attention is None:
        return f"{text}."
    return (
        f"{text} and explain {percent_between(result.attention.overall)} of the variance of its "
        "attention logits."
    )


def ways(encoding: str) -> str:
    """Ways in which positions enter, in words.

    >>> ways("learned vectors and bias")
    'learned vectors and biases of the logits'
    """
    named = {"rotary": "rotations of queries and keys", "bias": "biases of the logits"}
    return " and ".join(named.get(one, one) for one in encoding.split(" and "))


def _using(result: InspectResult) -> str:
    parts = []
    if (attention := result.attention) is not None:
        sink = percent_between(attention.sink)
        parts.append(
            f"{sink} of attention goes to the first token, where even weights would give it "
            f"{percent(attention.first_by_chance)}"
        )
    if (probe := result.probe) is not None:
        best, last = int(np.argmax(probe.r2.mean)), len(probe.r2.mean) - 1
        said = (
            f"a linear probe reads the position with R² = {between(at(probe.r2, best))} "
            f"{behind(result, best)}"
        )
        if best != last:
            said += f" and {between(at(probe.r2, last))} behind the last layer"
        parts.append(said)
    return _sentence("; ".join(parts))


def behind(result: InspectResult, place: int) -> str:
    """Place at which a probe was applied, in words."""
    assert result.probe is not None
    layer = int(result.probe.layers[place])
    if layer == 0:
        return "before the first layer"
    return "behind the last layer" if layer == result.facts.layers else f"behind layer {layer - 1}"


def moved_of(found: AblationFound, name: str) -> Moved | None:
    """The entry of a way to move tokens; None where it was not tried."""
    return next((one for one in found.moved if one.name == name), None)


def _needing(result: InspectResult) -> str:
    if (found := result.ablation) is None:
        return ""
    shuffled, shifted = moved_of(found, "shuffled"), moved_of(found, "shifted")
    assert shuffled is not None
    if found.measure == "embedding":
        text = (
            "With positions in random order the cosine of its output with the usual one is "
            f"{between(shuffled.value)}, where two different documents have {found.reference:.2f}"
        )
        if shifted is not None:
            text += f"; with all positions {found.shift} further on it is {between(shifted.value)}"
        return f"{text}."
    own = found.moved[0].value
    text = (
        f"With positions in random order the loss rises from {own.estimate:.2f} by "
        f"{between(shuffled.change)} nats a token"
    )
    if shifted is not None:
        rise = shifted.change.estimate
        text += f"; with all positions {found.shift:,} further on it "
        text += "does not change" if abs(rise) < _SAME else f"rises by {between(shifted.change)}"
    return f"{text}."


def _reaching(result: InspectResult) -> str:
    parts = []
    if (loss := result.loss) is not None:
        parts.append(_far(loss) or _flat(loss))
    if (needles := result.needles) is not None:
        last = len(needles.lengths) - 1
        parts.append(
            f"of facts in {int(needles.lengths[last]):,} tokens it retrieves "
            f"{percent_between(at(needles.by_length, last))}, where guessing gives "
            f"{percent(needles.chance)}"
        )
    return _sentence("; ".join(part for part in parts if part))


def _far(loss: LossFound) -> str:
    if not loss.far:
        return ""
    gains, at_most = loss.far[0].gain, int(loss.distances[-1])
    text = (
        f"a context right before a passage is worth {between(at(gains, 0))} nats a token, and "
        f"{at_most:,} positions before it {between(at(gains, len(loss.distances) - 1))}"
    )
    if len(loss.far) > 1:
        best = max(loss.far[1:], key=lambda one: float(one.gain.mean[-1]))
        text += f", or {between(at(best.gain, -1))} under {best.name}"
    return text


def _flat(loss: LossFound) -> str:
    means = loss.scaled[0].loss
    return (
        f"the loss falls from {between(at(means, 0))} nats a token at the start of a text to "
        f"{between(at(means, -1))} at its end"
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


def head_kinds(found: AttentionFound) -> dict[str, np.ndarray]:
    """Weight that heads have on one kind of key, `[layers, heads]`, by its name."""
    looks_ahead = bool(found.at_offset(1).any())
    return {
        name: found.first if kind == "first" else found.at_offset(int(kind))
        for name, kind in KINDS.items()
        if kind != 1 or looks_ahead
    }


def headlines(result: InspectResult) -> list[Headline]:
    """The numbers on top of the page."""
    found = []
    if (attention := result.attention) is not None:
        found += [
            Headline(
                "Logits explained by positions",
                percent(attention.overall.estimate),
                f"of their variance; {_ends(attention.overall)}",
            ),
            Headline(
                "Attention to the first token",
                percent(attention.sink.estimate),
                f"by chance {percent(attention.first_by_chance)}",
            ),
        ]
    if (probe := result.probe) is not None:
        best = int(np.argmax(probe.r2.mean))
        found.append(
            Headline("Position decodable", f"R² {probe.r2.mean[best]:.2f}", behind(result, best))
        )
    if (ablation := result.ablation) is not None:
        shuffled = moved_of(ablation, "shuffled")
        assert shuffled is not None
        if ablation.measure == "embedding":
            said = ("Cosine, positions shuffled", f"{shuffled.value.estimate:.2f}")
        else:
            said = ("Loss, positions shuffled", f"+{shuffled.change.estimate:.2f} nats")
        found.append(Headline(*said, f"{plural(ablation.documents, 'document')}"))
    if (needles := result.needles) is not None:
        found.append(
            Headline(
                "Facts retrieved",
                percent(float(needles.by_length.mean[-1])),
                f"of {int(needles.lengths[-1]):,} tokens; chance {percent(needles.chance)}",
            )
        )
    if (geometry := result.geometry) is not None:
        found.append(
            Headline(
                "Stress of the table",
                number(geometry.corrected),
                f"in random order {number(geometry.shuffled.estimate)}",
            )
        )
    return found


def _ends(found: Interval) -> str:
    if math.isnan(found.low):
        return "no interval"
    return f"{100 * found.low:.0f} to {100 * found.high:.0f} %"


def is_small(change: Interval) -> bool:
    """Whether a change of a loss is small, up to the far end of its interval."""
    return max(abs(change.low), abs(change.high)) < _ROBUST
