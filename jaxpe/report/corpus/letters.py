"""Letters of sequences: information of each position, sentences and a table."""

import math
from collections.abc import Iterator

import numpy as np

from jaxpe.analysis.corpus.result import CorpusAnalysis, LetterInformation
from jaxpe.report.corpus.headlines import reaches
from jaxpe.report.corpus.predicates import information_sum, is_sequences, kmer_length
from jaxpe.report.tables import Table
from jaxpe.report.text import number, percent, plural, position_name, ranges, visible

_MOST_NAMED = 5  # letters whose background frequencies a sentence can give


def letter_sentences(analysis: CorpusAnalysis) -> Iterator[tuple[str, str]]:
    """Sentences on the information of the positions about their letters, by key."""
    letters = analysis.letters
    if letters is None or not analysis.position.significant_rank:
        return
    few = (letters.documents > 0) & np.isnan(letters.bits[0])
    if few.any():
        yield (
            "few sequences",
            f"Positions {ranges(few, limit=6, origin=analysis.origin)} have fewer than "
            f"{letters.least} sequences, too few for bits about {letters.size} letters.",
        )
    if np.isnan(letters.bits[0]).all():
        return
    most, k = int(np.nanargmax(letters.bits[1])), kmer_length(analysis)
    estimate, low, high = (f"{max(value, 0):.2f}" for value in letters.bits[:, most])
    unit = f"{k}-mer" if k else "letter"
    yield (
        "letters",
        f"Information about the {unit}, against {letters.size} equally frequent ones, reaches "
        f"{estimate} bits ({low} to {high}) of {math.log2(letters.size):.2f} at position "
        f"{position_name(most, analysis.origin)}.",
    )
    if k:
        yield (
            "k-mers overlap",
            f"A {k}-mer at position p covers p to p + {k - 1}. So {k}-mers overlap, their bits do "
            "not add up, and positions just before a site reach into it.",
        )
    else:
        which = "The others" if few.any() else "All positions"
        yield "sum of bits", f"{which} add up to {information_sum(letters.bits):.1f} bits."
    if is_sequences(analysis):
        yield from _background(analysis, letters)


def _background(analysis: CorpusAnalysis, letters: LetterInformation) -> Iterator[tuple[str, str]]:
    """Information against the background, and the positions that differ from it."""
    differing, single = letters.differing, not kmer_length(analysis)
    if single:
        whose = "all positions"
        if len(differing):
            others = int(np.count_nonzero(letters.documents)) - len(differing)
            whose = f"the {plural(others, 'position')} that do not differ"
        shares = zip(letters.letters, letters.background, strict=True)
        named = ", ".join(f"{letter} {percent(share)}" for letter, share in shares)
        named = f" ({named})" * (len(letters.letters) <= _MOST_NAMED)
        yield (
            "background",
            "That counts unequal frequencies of the letters everywhere. Against the composition of "
            f"{whose}{named}, it is {information_sum(letters.relative):.1f} bits.",
        )
        if (reach := reaches(analysis).get("beginning")) is not None:
            yield (
                "two kinds of bits",
                f"The {number(reach.bits.estimate)} bits per token are a mean over positions, "
                "against the composition of all positions with the site.",
            )
    if not len(differing):
        return
    at = np.isin(np.arange(analysis.length), differing)
    found = [x.position for x in analysis.standing_out]
    hidden = at & ~np.isin(np.arange(analysis.length), found)
    verb = "position differs" if len(differing) == 1 else "positions differ"
    text = (
        f"{len(differing)} {verb} from the composition of the others: "
        f"{ranges(at, limit=6, origin=analysis.origin)}."
    )
    if hidden.any() and not analysis.from_counts:
        text += (
            f" Of these, {ranges(hidden, limit=6, origin=analysis.origin)} "
            f"{'does' if hidden.sum() == 1 else 'do'} not stand out: no letter is shown to be "
            "more or less frequent there than at both of the nearest two."
        )
    yield "differing", text


def standing_out(analysis: CorpusAnalysis) -> Iterator[tuple[str, str]]:
    """Positions that differ from the nearest two, and what the largest difference is."""
    found = analysis.standing_out
    if not found:
        return
    are_found = np.isin(np.arange(analysis.length), [x.position for x in found])
    tokens = [(x.position, token) for x in found for token in x.tokens]
    at, token = max(tokens, key=lambda x: x[1].share - x[1].neighbours)
    name = position_name(at, analysis.origin)
    stands = "position stands" if len(found) == 1 else "positions stand"
    which = (
        "documents, one of each group of dependent ones,"
        if analysis.groups < analysis.documents
        else "documents"
    )
    yield (
        "standing out",
        f"{len(found)} {stands} out against the two nearest positions: "
        f"{ranges(are_found, limit=6, origin=analysis.origin)}. At position {name}, "
        f"{percent(token.share)} of the {which} have {visible(token.token)!r}; at the "
        f"nearest two, {percent(token.neighbours)}.",
    )


def letter_table(analysis: CorpusAnalysis) -> Table | None:
    """Table of the information and the consensus of each position of sequences, if any."""
    letters = analysis.letters
    if letters is None or not letters.alphabet:
        return None
    consensus, differing = letters.shares.argmax(axis=1), set(letters.differing.tolist())
    header = [
        "position", "bits", "95 %, low", "95 %, high", "against background", "consensus",
        "share", "documents", "differs", "stands out",
    ]  # fmt: skip
    found = {x.position for x in analysis.standing_out}
    rows = []
    for i, documents in enumerate(letters.documents.tolist()):
        bits = [
            "" if np.isnan(x) else f"{round(x, 3) + 0.0:.3f}"
            for x in (*letters.bits[:, i], letters.relative[0, i])
        ]
        name = letters.letters[consensus[i]] if documents else ""
        share = f"{letters.shares[i].max():.3f}" if documents else ""
        verdicts = ["yes" * (i in positions) for positions in (differing, found)]
        rows.append((f"{i - analysis.origin}", *bits, name, share, f"{documents}", *verdicts))
    return "Information by position", header, rows
