"""Page of a comparison of corpora."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxpe.analysis.corpora import ComparedCorpus, ComparedPair, CorporaComparison
from jaxpe.report.findings import Figure, Finding, Page, Section, Table
from jaxpe.report.numbers import name_list, number, percent, plural
from jaxpe.report.writing import page

_ON_TOP = 4  # pairs as cards


@page.register
def corpora_page(result: CorporaComparison) -> Page:
    """Page of a comparison: each pair against chance, sizes, and two dimensions of each."""
    pairs = [_pair(pair) for pair in sorted(result.pairs, key=lambda pair: pair.p_adjusted)]
    corpora = [(each.name, f"{each.documents:,}", f"{each.tokens:,}") for each in result.corpora]
    configurations = Figure(
        "configurations",
        "Two dimensions of each corpus",
        "From split halves, turned and scaled onto the first corpus (Procrustes); a ring marks "
        "the first position. What is left between curves may be noise.",
        [functools.partial(plot_configurations, result.corpora)],
        height=4.2,
    )
    sizes = Table("Sizes", ("corpus", "documents", "tokens"), corpora)
    findings = [*pairs[_ON_TOP:], *_warnings(result)]
    return Page(
        name="corpora",
        title=f"Positional geometries of {name_list([each.name for each in result.corpora])}",
        about=f"{plural(result.length, 'position')}, tokenizer {result.tokenizer}",
        lead=pairs[:_ON_TOP],
        sections=[Section("Pairs", findings, [_pair_table(result), sizes], [configurations])],
        settings={"dimensions": f"{result.dim}", "seed": f"{result.seed}"},
        methods=f"Geometries of {result.length:,} positions (tokenizer {result.tokenizer}) were "
        "compared by the distance of their split-half Gram matrices. p-values are of "
        f"{result.permutations:,} random deals of the folds, adjusted by Holm's method [@jaxpe].",
    )


def _pair(pair: ComparedPair) -> Finding:
    """The distance of two corpora against that of random deals of their folds."""
    names = f"{pair.first} and {pair.second}"
    finding = Finding(
        f"distance of {names}", pair.distance, reference=pair.chance,
        against="95 % of random deals stay below", verdict="no significant difference",
        sentence="There may be too few documents to tell them apart.",
    )  # fmt: skip
    if not pair.differ:
        return finding
    todo = f"Do not use vectors fitted to one of {names} for the other."
    return finding._replace(verdict="they differ", sentence="", todo=todo)


def _pair_table(result: CorporaComparison) -> Table:
    header = ("corpora", "p", "p (Holm)", "Procrustes", "angle", "overlap", "folds", "tokens")
    rows = []
    for pair in result.pairs:
        numbers = map(number, (pair.p_value, pair.p_adjusted, pair.residual))
        angle = f"{np.degrees(pair.angles[-1]):.0f}°" if len(pair.angles) else "–"
        sizes = f"{pair.folds}", f"{pair.tokens:,}"
        rows.append(
            (f"{pair.first}, {pair.second}", *numbers, angle, percent(pair.overlap), *sizes)
        )
    return Table(
        "Pairs", header, rows,
        "Procrustes: share of the second configuration that the first, turned and scaled, does not "
        "explain. Angle: the largest principal angle. Overlap: Σ min(p, q) of all tokens. Tokens: "
        "of a fold, thinned to equally many.",
    )  # fmt: skip


def _warnings(result: CorporaComparison) -> Iterator[Finding]:
    """Reasons that make corpora less comparable."""
    less = functools.partial(Finding, verdict="less comparable")
    for pair in result.pairs:
        names = f"{pair.first}, {pair.second}"
        if not pair.of_position:
            sentence = "A difference may come from the documents that reach late positions."
            todo = "Count both with `nulls` and at least 8 `folds`."
            yield less(names, "without null corpora", sentence=sentence, todo=todo)
        if pair.shared:
            sentence = "They are no independent samples."
            yield less(names, f"{plural(pair.shared, 'shard')} shared", sentence=sentence)
    if ungrouped := [each.name for each in result.corpora if not each.grouped]:
        sentence = "Near-copies and documents of one author make p-values too small."
        yield less(", ".join(ungrouped), "no `group_field`", sentence=sentence)


def plot_configurations(corpora: Sequence[ComparedCorpus], ax: Any) -> None:
    """Two dimensions of each corpus, rotated onto the first."""
    for each in corpora:
        x, y = np.asarray(each.coordinates, float).T
        (line,) = ax.plot(x, y, lw=1.2, marker="o", ms=2.5, label=each.name)
        ax.plot(x[:1], y[:1], color=line.get_color(), marker="o", ms=9, mfc="none", ls="none")
    ax.set(xlabel="first dimension", ylabel="second dimension", aspect="equal")
    ax.legend()
