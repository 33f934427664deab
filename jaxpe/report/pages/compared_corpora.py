"""Page of a comparison of corpora."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxpe.analysis.corpora import LEVEL, ComparedCorpus, ComparedPair, CorporaComparison
from jaxpe.report.findings import Figure, Finding, Page, Section, Table
from jaxpe.report.numbers import name_list, number, percent
from jaxpe.report.writing import page


@page.register
def corpora_page(result: CorporaComparison) -> Page:
    """Page of a comparison: each pair against chance, sizes, and two dimensions of each."""
    pairs = [_pair(pair) for pair in result.pairs]
    names = name_list([each.name for each in result.corpora])
    corpora = [(each.name, f"{each.documents:,}", f"{each.tokens:,}") for each in result.corpora]
    configurations = Figure(
        "configurations",
        "Two dimensions of each corpus",
        "From split halves, turned and scaled onto the first corpus (Procrustes); a ring marks "
        "the first position. What is left between curves may be noise.",
        [functools.partial(plot_configurations, result.corpora)],
        height=4.2,
    )
    return Page(
        name="corpora",
        title=f"Positional geometries of {names}",
        about=f"{result.length:,} positions, tokenizer {result.tokenizer}",
        lead=pairs[:1],
        sections=(
            Section("Pairs", pairs[1:], [_pair_table(result)], [configurations]),
            Section("Sizes", tables=[Table("Sizes", ["corpus", "documents", "tokens"], corpora)]),
            *([Section("Warnings", note=" ".join(result.warnings))] if result.warnings else []),
        ),
        settings={"dimensions": f"{result.dim}", "seed": f"{result.seed}"},
        methods=(
            f"Geometries of {len(result.corpora)} corpora at {result.length:,} positions "
            f"(tokenizer {result.tokenizer}) were compared by the distance of their split-half "
            f"Gram matrices. p-values are of {result.permutations:,} random deals of the folds, "
            "adjusted by Holm's method [@jaxpe]."
        ),
    )


def _pair(pair: ComparedPair) -> Finding:
    """The distance of two corpora against that of random deals of their folds."""
    differ = pair.p_adjusted <= LEVEL
    sentence = "There may be too few documents to tell these corpora apart."
    if differ:
        sentence = "Their positions are arranged differently."
    return Finding(
        f"distance of {pair.first} and {pair.second}",
        pair.distance,
        reference=pair.chance,
        against="95 % of random deals stay below",
        verdict="they differ" if differ else "no significant difference",
        sentence=sentence,
        todo=f"Do not use vectors fitted to one of {pair.first} and {pair.second} for the other."
        if differ
        else "",
    )


def _pair_table(result: CorporaComparison) -> Table:
    rows = [
        (
            f"{pair.first}, {pair.second}",
            number(pair.p_adjusted),
            number(pair.residual),
            f"{np.degrees(pair.angles[-1]):.0f}°" if len(pair.angles) else "–",
            percent(pair.overlap),
        )
        for pair in result.pairs
    ]
    note = (
        "Procrustes: share of the second configuration that the first, turned and scaled, does not "
        "explain. Angle: the largest principal angle. Overlap: Σ min(p, q) of all tokens."
    )
    return Table("Pairs", ["corpora", "p (Holm)", "Procrustes", "angle", "overlap"], rows, note)


def plot_configurations(corpora: Sequence[ComparedCorpus], ax: Any) -> None:
    """Two dimensions of each corpus, rotated onto the first."""
    for each in corpora:
        x, y = np.asarray(each.coordinates, float).T
        (line,) = ax.plot(x, y, lw=1.2, marker="o", ms=2.5, label=each.name)
        ax.plot(x[:1], y[:1], color=line.get_color(), marker="o", ms=9, mfc="none", ls="none")
    ax.set(xlabel="first dimension", ylabel="second dimension", aspect="equal")
    ax.legend()
