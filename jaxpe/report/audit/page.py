"""Verdicts on the published statements: a table, a page and figures."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from jaxpe import theory
from jaxpe.report.audit.advice import advice
from jaxpe.report.audit.figures import FIGURES
from jaxpe.report.page import View
from jaxpe.report.style import render
from jaxpe.report.tables import make_table
from jaxpe.report.text import number, plural, site_page, visible
from jaxpe.theory.audit import NOTHING_COMPARED

if TYPE_CHECKING:
    import rich.table

    from jaxpe.analysis.audit import AuditedStatement, AuditResult


# Display of each outcome.
OUTCOMES = {
    "holds": "holds", "refuted": "refuted", "not decided": "not decided",
    "not claimed": "does not apply",
}  # fmt: skip


class Line(NamedTuple):
    """A comparison as text: "if" a hypothesis, "then" a conclusion, "instead" what is true."""

    claim: str
    text: str
    holds: str


def audit_table(result: "AuditResult") -> "rich.table.Table":
    """Table of all hypotheses and conclusions for a console: `rich.print(audit_table(result))`.

    Raises `MissingExtraError` without the extra `report`.

    >>> rich.print(audit_table(result))  # doctest: +SKIP
    """
    header = ["statement", "hypotheses and conclusions", "holds"]
    rows, ends = [], []
    for statement in result.statements:
        comparisons = [(f"{line.claim}: {line.text}", line.holds) for line in lines(statement)]
        left = [
            f"{statement.name}\n{OUTCOMES[statement.outcome]} here",
            *[""] * (len(comparisons) - 1),
        ]
        rows += [(name, *line) for name, line in zip(left, comparisons, strict=True)]
        ends.append(len(rows) - 1)
    title = f"{visible(result.source)}, {visible(result.model)}"
    table = make_table(title, header, rows, right=())
    for end in ends:
        table.rows[end].end_section = True
    return table


def audit_summary(result: "AuditResult") -> str:
    """Number of statements that hold on this model and corpus, as a paragraph.

    >>> audit_summary(result)  # doctest: +SKIP
    'Of 13 published statements, 1 holds on this model and corpus, ...'
    """
    names = {
        outcome: [statement.name for statement in result.statements if statement.outcome == outcome]
        for outcome in OUTCOMES
    }
    hold, refuted, undecided, silent = map(len, names.values())
    text = (
        f"Of {plural(len(result.statements), 'published statement')}, {hold} "
        f"{'holds' if hold == 1 else 'hold'} on this model and corpus, {refuted} "
        f"{'is' if refuted == 1 else 'are'} refuted by them, {undecided} "
        f"{'is' if undecided == 1 else 'are'} not decided, and {silent} "
        f"{'does' if silent == 1 else 'do'} not apply. A statement is refuted where every "
        "hypothesis holds and a conclusion fails; where a hypothesis fails, it does not apply. "
        "Where a conclusion fails and a hypothesis is not checked, it is not decided. All numbers "
        "are of sampled counts and examples, and are not judged against noise."
    )
    if refuted:
        text += f" Refuted: {', '.join(names['refuted'])}."
    if not result.facts.trained:
        text += (
            " The model is as initialised, and so are its positions: pass a trained model to judge "
            "statements on trained positions."
        )
    general = Counter(statement.status for statement in result.statements)
    statuses = ", ".join(f"{count} {status}" for status, count in general.most_common())
    return f"{text} In general, whatever the model, by the page Results: {statuses}."


def lines(statement: "AuditedStatement") -> Iterator[Line]:
    """The comparisons of a statement: hypotheses, conclusions and replacements."""
    (published,) = (entry for entry in theory.STATEMENTS if entry.name == statement.name)
    parts = ("hypotheses", "conclusions", "instead")
    for part, word in zip(parts, ("if", "then", "instead"), strict=True):
        for name, sides in getattr(statement, part).items():
            text = published.sentence(f"{word} {name}", sides, number=_side)
            holds = "–" if text == NOTHING_COMPARED else "yes" if sides.holds else "no"
            yield Line(f"{word} {name}", text, holds)
        for name in statement.unchecked if part == "hypotheses" else ():
            yield Line(f"if {name}", str(published.sentences[f"if {name}"]), "not checked")


def claim_links(statement: "AuditedStatement") -> list[tuple[str, str]]:
    """Identifier and address of each claim on the page "Results" about a statement.

    >>> claim_links(result.statements[0])[0]  # doctest: +SKIP
    ('theorem-1', '.../results/cirrincione2026.html#theorem-1')
    """
    (published,) = (entry for entry in theory.STATEMENTS if entry.name == statement.name)
    page = site_page("results/cirrincione2026")
    return [(claim, f"{page}#{claim}") for claim in published.results]


def view(result: "AuditResult") -> View:
    """Page of an audit."""
    shown = {
        "summary": audit_summary(result),
        "lines": lines,
        "words": OUTCOMES,
        "claims": claim_links,
    }
    rows = [(one.name, *line) for one in result.statements for line in lines(one)]
    tables = [("Statements", ["statement", "claim", "found", "holds"], rows)]
    return View("audit", shown, render(result, *FIGURES), tables, advice(result), "theory")


def _side(value: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    written_out = value == 0 or 1e-6 <= abs(value) < 1e6
    return number(value) if written_out else f"{value:.2e}"
