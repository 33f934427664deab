"""Tables of a corpus analysis for a console of 80 columns."""

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxpe.analysis.corpus.result import CorpusAnalysis
from jaxpe.report.corpus.headlines import INTERVAL, headlines, where_table
from jaxpe.report.corpus.predicates import families, fixed_stress
from jaxpe.report.tables import make_table
from jaxpe.report.text import number, percent, visible, without_text

if TYPE_CHECKING:
    import rich.table


def summary_table(analysis: CorpusAnalysis) -> "rich.table.Table":
    """Table of the headline numbers: `rich.print(summary_table(analysis))`.

    Raises:
        MissingExtraError: without the extra `report`.

    >>> rich.print(summary_table(found))  # doctest: +SKIP
    """
    left_out = without_text(analysis.null_texts)
    size = f"{analysis.documents:,} documents{left_out}, length {analysis.length}"
    title = f"{visible(analysis.source)}: {size}\n{_reading(analysis)}"
    _, _, where = where_table(analysis) or ("", [], [])
    cards = headlines(analysis)
    others = [
        (label, value, ", ".join([ends] * bool(ends) + [f"of {count} documents"] * bool(count)))
        for label, value, ends, count in where
        if label not in {card.label for card in cards}
    ]
    rows = [*cards, *others]
    return make_table(title, ["", "value", f"{INTERVAL}, details"], rows, right=())


def _reading(analysis: CorpusAnalysis) -> str:
    """Tokenizer, column and split that were read."""
    chosen = {choice.setting: choice.value for choice in analysis.choices}
    column = analysis.given.get("text_field") or chosen.get("column of text")
    column = column or chosen.get("column of ids")
    parts = {"tokenizer": analysis.tokenizer, "column": column, "split": chosen.get("split")}
    return ", ".join(f"{name} {visible(x)}" for name, x in parts.items() if x is not None)


def encoding_table(analysis: CorpusAnalysis) -> "rich.table.Table":
    """Table of the fit of each encoding; lower is better, except for Mantel r.

    Raises:
        MissingExtraError: without the extra `report`.

    >>> rich.print(encoding_table(found))  # doctest: +SKIP
    """
    header, rows = encoding_rows(analysis)
    groups = families(analysis.encodings).values()
    title = "Fit of the encodings by family (stress: lower is better)"
    table = make_table(title, header, rows, right=range(1, len(header)))
    for end in itertools.accumulate(map(len, groups)):
        table.rows[end - 1].end_section = True
    return table


def encoding_rows(analysis: CorpusAnalysis) -> tuple[list[str], Sequence[tuple[str, ...]]]:
    """Header and rows of the fit of each encoding, by family."""
    header = ["encoding", "dim", "scaled", "position", "held out", "violation\nrate", "Mantel\nr"]
    held_out, groups = fixed_stress(analysis), families(analysis.encodings).values()
    rows = [
        (
            score.name,
            f"{score.dim}",
            number(score.scaled_stress),
            number(score.position_scaled_stress),
            number(held_out[score.name].estimate) if score.name in held_out else "",
            percent(score.violation_rate),
            f"{round(score.mantel_r, 2) + 0.0:.2f}" if math.isfinite(score.mantel_r) else "n/a",
        )
        for score in itertools.chain(*groups)
    ]
    return header, rows
