"""Letters on the page of a corpus: their logo, their positions, and what stands out."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxpe import plot
from jaxpe.analysis.corpus.result import CorpusResult
from jaxpe.report.findings import Figure, Finding, Section, Table
from jaxpe.report.numbers import percent, position_name, ranges, visible

_MOST_NAMED = 5  # letters whose background frequencies a sentence can give
_LOGO_ROW, _LOGO_ROWS = 40, 4  # positions of a row of a logo, and rows
_TOKENS = 3  # tokens of a position that stands out
_OPEN = 64  # rows up to which a table of positions is open
_count, _bits = partial(Finding, unit="count"), partial(Finding, unit="bits")


def is_sequences(result: CorpusResult) -> bool:
    """Whether the documents are nucleotides, amino acids, or aligned at a site."""
    letters = result.letters
    return bool(result.facts.origin or (letters is not None and letters.alphabet))


def kmer_length(result: CorpusResult) -> int:
    """Length of overlapping k-mers; 0 for other tokens."""
    name, _, k = result.facts.tokenizer.partition(":")
    return int(k) if name == "kmer" and k.isdecimal() and int(k) > 1 else 0


def information_sum(bits: np.ndarray) -> float:
    """Sum over positions of information `[3, n]`, at least 0."""
    return max(float(np.nansum(bits[0])), 0.0)


def findings(result: CorpusResult) -> list[Finding]:
    """Positions that differ, and information about letters; of text, only with a dimension."""
    letters, found = result.letters, []
    if letters is None or not (result.position.significant_rank or is_sequences(result)):
        return []
    origin, k, judged = result.facts.origin, kmer_length(result), np.isfinite(letters.bits[0])
    if is_sequences(result):
        at = _at(result, letters.differing) if len(letters.differing) else ""
        label = "positions that differ from the background"
        found.append(_count(label, len(letters.differing), against=at))
    if judged.any() and not k and is_sequences(result):
        shares = zip(letters.letters, letters.background, strict=True)
        named = ", ".join(f"{visible(letter)} {percent(share)}" for letter, share in shares)
        said = f"Background: {named}." * (len(letters.letters) <= _MOST_NAMED)
        relative = information_sum(letters.relative)
        found.append(_bits("information against the background", relative, sentence=said))
    if judged.any() and not k:
        total = information_sum(letters.bits)
        said = "A sum, as if positions were independent; unequal composition adds to each."
        found.append(_bits("information of all positions", total, sentence=said))
    if judged.any():
        most = int(np.nanargmax(letters.bits[1]))
        label = f"largest information, at position {position_name(most, origin)}"
        said = f"A {k}-mer covers {k} positions, so bits do not add up." * bool(k)
        ends = (max(float(x), 0.0) for x in letters.bits[:, most])
        size = {"reference": math.log2(letters.size), "against": "at most"}
        found.append(_bits(label, *ends, **size, sentence=said))
    if (few := (letters.documents > 0) & ~judged).any():
        label = f"positions with fewer than {letters.least} sequences"
        at = _at(result, np.flatnonzero(few))
        found.append(_count(label, int(few.sum()), against=at, verdict="not judged"))
    return found


def _at(result: CorpusResult, positions: Sequence[int] | np.ndarray) -> str:
    """Positions in a few words."""
    mask = np.isin(np.arange(result.facts.length), positions)
    return f"at {ranges(mask, limit=6, origin=result.facts.origin)}"


def sections(result: CorpusResult, shown: Sequence[Finding]) -> list[Section]:
    """The logo and the table of positions, and the positions that stand out.

    Args:
        result: result of the report.
        shown: findings that are not at the top.
    """
    found = []
    if result.letters is not None:
        found.append(Section("Letters", shown, figures=[logo_figure(result)]))
        if (table := letter_table(result)) is not None:
            folded = result.facts.length > _OPEN
            found.append(Section(table.title, tables=[table], folded=folded))
    if result.standing_out:
        found.append(Section("Positions that stand out", tables=[_shift_table(result)]))
    return found


def methods(result: CorpusResult) -> str:
    """Sentences on the tests of letters."""
    tested = (
        "Positions that stand out are those whose tokens differ from the two nearest positions by "
        "McNemar's exact test [@mcnemar1947] with Bonferroni's correction."
    )
    logos = (
        "Sequence logos follow [@schneider1990]. Bits have Miller's correction for few sequences "
        "[@miller1955] and intervals by the delta method. Positions that differ from the "
        "background, the letters of all positions that do not, are found by a likelihood-ratio "
        "test with Bonferroni's correction."
    )
    return " ".join([tested] * bool(result.standing_out) + [logos] * bool(result.letters))


def logo_figure(result: CorpusResult) -> Figure:
    """Sequence logo: letters as high as their share of the information of a position, in bits."""
    letters: Any = result.letters
    origin, count = result.facts.origin, result.facts.length
    start = max(0, min(origin - _LOGO_ROW // 2, count - _LOGO_ROWS * _LOGO_ROW))
    shown = range(start, min(count, start + _LOGO_ROWS * _LOGO_ROW))
    width = math.ceil(len(shown) / math.ceil(len(shown) / _LOGO_ROW))  # rows of about one length
    names = [visible(letter).replace(" ", "␣") for letter in letters.letters]
    top, caption = math.log2(letters.size), ""
    if len(letters.differing):
        top = min(1.1 * np.nanmax(letters.bits[2], initial=0) or 1, top)
    elif is_sequences(result):
        caption = " No position differs from the background: the heights are of its composition."
    heights = letters.shares * np.nan_to_num(letters.bits[0])[:, None]
    panels = []
    for first in range(0, len(shown), width):
        at = slice(shown[first], min(shown[first] + width, shown.stop))
        row = heights[at], names, letters.bits[:, at], at.start - origin, (width, top)
        panels.append(partial(plot_logo, *row))
    caption = (
        "A stack is as high as the information of its position: log₂ of the alphabet less the "
        f"entropy, corrected for few documents. Bars are 95 % intervals.{caption}"
    )
    height = 1.7 if len(panels) > 1 else 2.6
    return Figure("logo", "Letters by position", caption, panels, height=height)


def plot_logo(
    heights: np.ndarray, names: Sequence[str], bits: np.ndarray, first: int, size: Any, ax: Any
) -> None:
    """A row of a logo with intervals.

    Args:
        heights: `[n, letters]`, in bits.
        names: letters.
        bits: `[3, n]`, information and the ends of its interval.
        first: position of the first stack.
        size: positions and bits of the axes, equal in all rows.
        ax: axes to draw into.
    """
    plot.logo(heights, names, first=first, ax=ax)
    mean, low, high = bits
    bars = np.clip([mean - low, high - mean], 0, None)
    at = first + np.arange(len(mean))
    ax.errorbar(at, mean, bars, fmt="none", ecolor="#777777", lw=0.8)
    ax.set(xlim=(first - 0.5, first - 0.5 + size[0]), ylim=(0, size[1]), xlabel="position")
    ax.locator_params(axis="x", integer=True)


def letter_table(result: CorpusResult) -> Table | None:
    """Table of the information and the consensus of each position of sequences, if any."""
    letters, origin = result.letters, result.facts.origin
    if letters is None or not letters.alphabet:
        return None
    differing, found = set(letters.differing.tolist()), {x.position for x in result.standing_out}
    header = ("position", "bits", "against background", "low", "high", "consensus", "share",
              "documents", "differs", "stands out")  # fmt: skip
    bits, rows = np.vstack([letters.bits[:1], letters.relative]).round(3) + 0.0, []  # no −0.000
    for i, documents in enumerate(letters.documents.tolist()):
        numbers = ["" if np.isnan(x) else f"{x:.3f}".replace("-", "−") for x in bits[:, i]]
        most = int(letters.shares[i].argmax())
        consensus = visible(letters.letters[most]), f"{letters.shares[i, most]:.3f}"
        verdicts = ["yes" * (i in positions) for positions in (differing, found)]
        most_common = consensus if documents else ("", "")
        rows.append((position_name(i, origin), *numbers, *most_common, f"{documents:,}", *verdicts))
    note = (
        "Bits against the background with 95 % interval. Differs from the background: "
        "likelihood-ratio test. Stands out: exact test against the two nearest positions. Both "
        "with Bonferroni’s correction."
    )
    return Table("Information by position", header, rows, note)


def standing_out(result: CorpusResult) -> list[Finding]:
    """Number of positions that stand out from the nearest two, and where."""
    found, held_out = result.standing_out, result.held_out
    if not found:
        return []
    todo = (
        "Positions that stand out may belong to the site or to all such sequences: report on "
        "sequences of the same origin without the site, too."
    )
    aligned = bool(result.facts.origin and held_out is not None and held_out.dim)
    where = _at(result, [x.position for x in found])
    return [_count("positions that stand out", len(found), against=where, todo=todo * aligned)]


def _shift_table(result: CorpusResult) -> Table:
    rows = []
    for position, shifts in result.standing_out:
        name = position_name(position, result.facts.origin)
        for shift in sorted(shifts, key=lambda x: x.p_value)[:_TOKENS]:
            shares = percent(shift.share), percent(shift.neighbours)
            rows.append((name, visible(shift.token, limit=40), *shares))
    header = ("position", "token", "here", "mean of nearest two")
    note = (
        "Shares of independent documents that reach all three positions; the strongest tokens. "
        "Tokens may differ where a position as a whole is too noisy to judge."
    )
    return Table("Positions that stand out", header, rows, note)
