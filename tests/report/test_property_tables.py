"""Tables of computed properties: their cells, widths, and options of the command."""

import json
import math

import pytest

from jaxpe import EncodingSizes
from jaxpe.analysis.properties import Told
from jaxpe.encodings import CATALOGUE, EncodingProperties
from jaxpe.encodings.beyond import Extrapolation, Stretch
from jaxpe.encodings.expressiveness import Expressiveness, Spread
from jaxpe.encodings.growth import Cost, Generalisation, Growth
from jaxpe.report import property_json, property_markdown, property_table
from tests.report.test_table import printed

NAN = float("nan")
SIZES = EncodingSizes()
OVERVIEW = EncodingProperties(262_144, 0, True, True, True, (), "constant", 4e6, 9e5, True)
APART = Spread(1.0, 0.5)
WIDEST = {
    "expressiveness": Told(OVERVIEW, Expressiveness(APART, APART, APART, 16)),
    "generalisation": Generalisation(
        Growth(22.63, 0.5, -0.27), 80586.3, 1.93, Growth(262_144, 1.0, 1.0)
    ),
    "extrapolation": Extrapolation((Stretch("told apart", 0.004, 103.0),) * 3, 0.0176),
    "cost": Cost(Growth(4_746_760.0, 1.2057, -0.0001), True),
    "overview": OVERVIEW,
}
CELLS = {
    "expressiveness": "| both | yes | to 16T | yes | constant |",
    "generalisation": "| 22.63 d^0.5 n^-0.27 | 80.6k n^1.93 | 262,144 d^1 n^1 |",
    "extrapolation": "| told apart | told apart | told apart | 4e-03 | 103 | 0.0176T |",
    "cost": "| 4.75M | 1.21 | 0.00 | yes |",
}


@pytest.mark.parametrize("about", WIDEST)
def test_at_80_columns_nothing_is_cut(about):
    rows = dict.fromkeys(CATALOGUE, WIDEST[about])
    text = printed(property_table(about, rows, SIZES))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert all(entry.name in text for entry in CATALOGUE)


@pytest.mark.parametrize("about", CELLS)
def test_markdown_has_the_same_cells(about):
    header, dashes, row = property_markdown(about, {CATALOGUE[0]: WIDEST[about]}).splitlines()
    assert header.count("|") == dashes.count("|") == row.count("|")
    assert row == "| `none` " + CELLS[about]


@pytest.mark.parametrize("about", CELLS)
def test_json_has_the_numbers(about):
    table = property_json(about, {CATALOGUE[0]: WIDEST[about]}, SIZES)
    assert (table["about"], table["sizes"]["length"]) == (about, 512)
    assert table["encodings"][0]["name"] == "none"
    json.dumps(table, allow_nan=False)


def test_what_is_not_there_has_no_number():
    nothing = Growth(0.0, NAN, NAN)
    (_, _, row) = property_markdown(
        "generalisation", {CATALOGUE[0]: Generalisation(nothing, 0.0, NAN, nothing)}
    ).splitlines()
    assert row == "| `none` | – | – | 0 |"
    (_, _, row) = property_markdown("cost", {CATALOGUE[0]: Cost(nothing, False)}).splitlines()
    assert row == "| `none` | 0 | – | – | – |"
    undefined = Extrapolation((Stretch("undefined", NAN, NAN),) * 3, 8.0)
    (_, _, row) = property_markdown("extrapolation", {CATALOGUE[0]: undefined}).splitlines()
    assert row == "| `none` | undefined | undefined | undefined | – | – | ≥ 8T |"
    (stretch, *_) = property_json("extrapolation", {CATALOGUE[0]: undefined}, SIZES)["encodings"][
        0
    ]["stretches"]
    assert stretch == {"state": "undefined", "smallest": None, "mean": None}
    assert math.isnan(undefined.stretches[0].mean)


@pytest.mark.parametrize(
    ("reach", "universal", "any_length"),
    [(0, "no", "no"), (1, "yes", "inside"), (4, "yes", "to 4T"), (64, "yes", "yes")],
)
def test_reach_in_words(reach, universal, any_length):
    told = Told(OVERVIEW, Expressiveness(APART, APART, APART, reach))
    (_, _, row) = property_markdown("expressiveness", {CATALOGUE[0]: told}).splitlines()
    assert f"| {universal} | {any_length} |" in row


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
    assert "no encoding rop; there are none" in err
    assert "did you mean 'rope'?" in err
    assert not out
