"""Tables of computed properties: their cells, widths, and options of the command."""

import json

import pytest

from jaxpe import EncodingSizes, catalogue
from jaxpe.analysis.properties import (
    CostRow,
    ExpressivenessRow,
    ExtrapolationRow,
    GeneralisationRow,
    PropertyTable,
)
from jaxpe.encodings import EncodingProperties, Expressiveness, PowerLaw
from jaxpe.encodings.analysis.expressiveness import Spread
from jaxpe.encodings.analysis.length_extrapolation import Stretch
from jaxpe.report import property_table, property_text
from tests.report.test_table import printed

NAN = float("nan")
LARGE = EncodingProperties(
    name="",
    family="",
    source="",
    vectors="",
    trainable=262_144,
    fixed=0,
    absolute=True,
    relative=True,
    order=True,
    gradient=("table", "queries", "keys", "weights"),
    beyond="constant",
    flops=4_746_760.0,
    bytes=999_499.0,
    looped=True,
)
NOTHING = EncodingProperties(
    "none", "absolute", "one", "", 0, 0, False, False, False, (), "yes", 0.0, 0.0, False
)
APART = Spread(1.0, 0.5)
WIDEST = {
    "overview": LARGE,
    "expressiveness": ExpressivenessRow("", LARGE, Expressiveness(APART, APART, APART, 16)),
    "generalisation": GeneralisationRow(
        "", PowerLaw(22.63, 0.5, -0.27), 80586.3, 1.93, PowerLaw(262_144, 1.0, 1.0)
    ),
    "extrapolation": ExtrapolationRow("", (Stretch("told apart", 0.004, 103.0),) * 3, 0.0176),
    "cost": CostRow("", PowerLaw(4_746_760.0, 1.2057, -0.0001), True),
}
CELLS = {
    "overview": "|  |  | 262,144 | both | constant | 4.75M | 999k | table, queries, keys,",
    "expressiveness": "| both | yes | to 16T | yes | constant |",
    "generalisation": "| 22.63 d^0.5 n^-0.27 | 80.6k n^1.93 | 262,144 d^1 n^1 |",
    "extrapolation": "| told apart | told apart | told apart | 4e-03 | 103 | 0.0176T |",
    "cost": "| 4.75M | 1.21 | 0.00 | yes |",
}


def table(about, *rows):
    return PropertyTable(about, EncodingSizes(), rows)


def of_every_encoding(about):
    rows = [WIDEST[about]._replace(name=entry.name) for entry in catalogue()]
    if about == "overview":
        rows = [row._replace(family=e.family) for row, e in zip(rows, catalogue(), strict=True)]
    return table(about, *rows)


def only_row(about, row):
    """The last line of the Markdown table of one row."""
    (_, _, line) = property_text(table(about, row)).splitlines()
    return line


@pytest.mark.parametrize("about", WIDEST)
def test_at_80_columns_nothing_is_cut(about):
    text = printed(property_table(of_every_encoding(about)))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    lines = [line.split() for line in text.splitlines() if line.strip()]
    assert {entry.name for entry in catalogue()} <= {line[0] for line in lines}
    if about == "overview":
        cells = ["262,144", "both", "constant", "4.75M", "999k", "θ", "q", "k", "w"]
        assert ["none", *cells] in lines


def test_families_are_set_apart():
    lines = printed(property_table(of_every_encoding("overview"))).splitlines()
    empty = [i for i, line in enumerate(lines) if not line.strip()]
    assert len(empty) >= len({entry.family for entry in catalogue()}) - 1


@pytest.mark.parametrize("about", CELLS)
def test_markdown_has_the_same_cells(about):
    header, dashes, row = property_text(table(about, WIDEST[about])).splitlines()
    assert header.count("|") == dashes.count("|") == row.count("|")
    assert row.startswith("| `` " + CELLS[about])


def test_markdown_of_the_overview_names_everything():
    row = NOTHING
    expected = "| `none` | absolute |  | 0 | – | yes | 0 | 0 | – | – | one |"
    assert only_row("overview", row) == expected
    fixed = only_row("overview", row._replace(fixed=1024, vectors="a line", adopted=(0, 1, 1)))
    assert "| absolute | 0 · 1 · 1 | (1,024) |" in fixed
    assert "| a line | one |" in fixed
    _, dashes, _ = property_text(table("overview", row)).splitlines()
    right = [i for i, cell in enumerate(dashes.split("|")[1:-1]) if cell.strip() == "---:"]
    header = property_text(table("overview", row)).splitlines()[0].split("|")[1:-1]
    assert [header[i].strip() for i in right] == ["adopted by", "parameters", "FLOPs", "bytes"]


def test_what_is_not_there_has_no_number():
    nothing = PowerLaw(0.0, NAN, NAN)
    row = GeneralisationRow("none", nothing, 0.0, NAN, nothing)
    assert only_row("generalisation", row) == "| `none` | – | – | 0 |"
    assert only_row("cost", CostRow("none", nothing, False)) == "| `none` | 0 | – | – | – |"
    undefined = ExtrapolationRow("none", (Stretch("undefined", NAN, NAN),) * 3, 8.0)
    expected = "| `none` | undefined | undefined | undefined | – | – | ≥ 8T |"
    assert only_row("extrapolation", undefined) == expected


@pytest.mark.parametrize(
    ("reach", "universal", "any_length"),
    [(0, "no", "no"), (1, "yes", "inside"), (4, "yes", "to 4T"), (64, "yes", "yes")],
)
def test_reach_in_words(reach, universal, any_length):
    row = ExpressivenessRow("none", LARGE, Expressiveness(APART, APART, APART, reach))
    assert f"| {universal} | {any_length} |" in only_row("expressiveness", row)


def test_the_command_prints_each_table(command):
    sizes = ("--dim", 16, "--heads", 2, "--head-dim", 8, "--length", 32)
    code, out, err = command("encodings", "alibi", "--about", "cost", *sizes)
    assert code == 0, err
    assert "Cost: width 16, 2 heads of 8, length 32" in " ".join(out.split())
    words = ("encodings", "alibi", "--about", "extrapolation", *sizes, "--form")
    _, out, _ = command(*words, "markdown")
    expected = "| `alibi` | told apart | told apart | told apart | 1.00 | 1.00 | ≥ 8T |"
    assert out.splitlines()[2] == expected
    _, out, _ = command(*words, "json")
    assert json.loads(out)["encodings"][0]["reach"] == 8


def test_the_command_knows_the_nearest_name(command):
    code, out, err = command("encodings", "rop", "--about", "cost")
    assert code == 2
    assert "did you mean 'rope'?" in err
    assert not out
