import io
import sys

import pytest
import rich.console

from jaxpe._core.errors import MissingExtraError
from jaxpe.analysis.corpus import Where
from jaxpe.report import encoding_table, summary_table
from tests.report import factory


def printed(table) -> str:
    console = rich.console.Console(width=80, file=io.StringIO(), force_terminal=False)
    console.print(table)
    return console.file.getvalue().replace("\N{NO-BREAK SPACE}", " ")


def test_summary_at_80_columns():
    text = printed(summary_table(factory.analysis(where=Where(None, None, 21))))
    assert max(map(len, text.splitlines())) <= 80
    for words in (
        "stdlib: 12,480 documents",
        "Significant dimensions",
        "6 positions",
        "90 %",
        "alibi",
        "Documents cut at 48 tokens 21 of 12,480 documents",
    ):
        assert words in " ".join(text.split())


def test_encodings_at_80_columns_without_wrapping():
    lines = printed(encoding_table(factory.analysis())).splitlines()
    assert max(map(len, lines)) <= 80
    assert "alibi 1 0.31 0.12 0.12 22 % 0.69" in [" ".join(line.split()) for line in lines]
    assert sum(line.strip() != "" for line in lines) == 2 + 2 + len(factory.FAMILIES)
    assert sum(line.strip() == "" for line in lines) == 1 + len(set(factory.FAMILIES.values()))


def test_the_widest_numbers_fit_80_columns():
    extremes = {"dim": 4096, "scaled_stress": 0.00123, "mantel_r": -0.5}
    extremes |= {"position_scaled_stress": 0.00123, "violation_rate": 0.995}
    case = factory.analysis(encodings=[factory.score("legendre_clipped", **extremes)])
    lines = printed(encoding_table(case)).splitlines()
    row = "legendre_clipped 4096 0.00123 0.00123 0.00123 over 99 % -0.50"
    assert row in [" ".join(line.split()) for line in lines]


def test_no_correlation_is_no_number():
    case = factory.analysis(encodings=[factory.score("alibi", mantel_r=float("nan"))])
    assert "n/a" in printed(encoding_table(case))


def test_rows_without_text_are_told():
    assert "3 rows without text left out" in printed(summary_table(factory.analysis(null_texts=3)))


def test_no_encodings():
    assert "encoding" in printed(encoding_table(factory.analysis(encodings=[])))


def test_a_source_is_neither_markup_nor_a_terminal_escape():
    text = printed(summary_table(factory.analysis(source="[red]\x1b[31mx\u202e")))
    assert "[red]⟨U+001B⟩[31mx⟨U+202E⟩" in text
    assert "\x1b" not in text


def test_without_rich_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.text", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'jaxpe\[report\]'"):
        summary_table(factory.analysis())
