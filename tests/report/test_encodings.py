"""Tables of computed properties, cell by cell."""

import pytest

from jaxpe import EncodingSizes
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
from jaxpe.report import page

NAN = float("nan")
LARGE = EncodingProperties(
    "", "bias", "one", "", 262_144, 0, True, True, True, ("table", "queries", "keys", "weights"),
    "constant", 4_746_760.0, 999_499.0, True,
)  # fmt: skip
NOTHING = EncodingProperties(
    "none", "absolute", "one", "", 0, 0, False, False, False, (), "yes", 0.0, 0.0, False
)
APART, ALIKE = Spread(1.0, 0.5), Spread(1.0, 0.0)
NO_LAW = PowerLaw(0.0, NAN, NAN)
BEYOND = Stretch("told apart", 0.004, 103.0)
UNDEFINED = Stretch("undefined", NAN, NAN)
CASES = [
    ("overview", LARGE, "262,144|both|constant|4.75M|999k|θ q k w"),
    ("overview", NOTHING, "0|–|yes|0|0|–"),
    ("overview", NOTHING._replace(fixed=1024, order=True), "(1,024)|order|yes|0|0|–"),
    ("overview", LARGE._replace(fixed=7, relative=False),
     "262,144 (7)|absolute|constant|4.75M|999k|θ q k w"),
    ("expressiveness", ExpressivenessRow("", LARGE, Expressiveness(APART, APART, APART, 16)),
     "both|yes|to 16T|yes|constant"),
    ("expressiveness", ExpressivenessRow("", LARGE, Expressiveness(APART, APART, ALIKE, 1)),
     "both|yes|inside|no|constant"),
    ("generalisation",
     GeneralisationRow("", PowerLaw(22.63, 0.5, -0.27), 80586.3, 1.93, PowerLaw(262_144.0, 1.0, 1.0)),
     "22.63 d^0.5 n^-0.27|80.6k n^1.93|262,144 d^1 n^1"),
    ("generalisation", GeneralisationRow("none", NO_LAW, 0.0, NAN, NO_LAW), "–|–|0"),
    ("extrapolation", ExtrapolationRow("", (BEYOND,) * 3, 0.0176),
     "told apart|told apart|told apart|4e-03|103|0.0176T"),
    ("extrapolation", ExtrapolationRow("", (UNDEFINED,) * 3, 8.0),
     "undefined|undefined|undefined|–|–|≥ 8T"),
    ("cost", CostRow("", PowerLaw(4_746_760.0, 1.2057, -0.0001), True), "4.75M|1.21|0.00|yes"),
    ("cost", CostRow("none", NO_LAW, False), "0|–|–|–"),
]  # fmt: skip


@pytest.mark.parametrize(("about", "row", "cells"), CASES)
def test_cells(about, row, cells):
    table, *_ = page(PropertyTable(about, EncodingSizes(), (row,))).tables
    assert list(table.rows[0]) == [row.name, *cells.split("|")]
    assert len(table.header) == len(table.rows[0])


def test_the_overview_has_origins():
    row = LARGE._replace(vectors="a line", adopted=(0, 1, 1))
    _, origins = page(PropertyTable("overview", EncodingSizes(), (row, NOTHING))).tables
    assert list(origins.rows[0][1:]) == [
        "bias", "0 · 1 · 1", "table, queries, keys, weights", "a line", "one",
    ]  # fmt: skip
    assert list(origins.rows[1][1:]) == ["absolute", "", "–", "–", "one"]
