"""Tables of computed properties, cell by cell."""

import pytest

from jaxpe import EncodingSizes
from jaxpe.analysis.properties import PropertyTable
from jaxpe.encodings import EncodingProperties
from jaxpe.report import page

LARGE = EncodingProperties(
    "", "bias", "one", "", 262_144, 0, True, True, ("table", "queries", "keys", "weights"),
    "constant", 0.0176, 4_746_760.0, 999_499.0, True,
)  # fmt: skip
NOTHING = EncodingProperties(
    "none", "absolute", "one", "", 0, 0, False, False, (), "told apart", 8.0, 0.0, 0.0, False
)
CASES = [
    (LARGE, "262,144|both|constant|0.0176T|4.75M|999k|θ q k w"),
    (NOTHING, "0|–|told apart|≥ 8T|0|0|–"),
    (NOTHING._replace(fixed=1024), "(1,024)|–|told apart|≥ 8T|0|0|–"),
    (
        LARGE._replace(fixed=7, relative=False, reach=1.25),
        "262,144 (7)|absolute|constant|1.25T|4.75M|999k|θ q k w",
    ),
]


@pytest.mark.parametrize(("row", "cells"), CASES)
def test_cells(row, cells):
    table, *_ = page(PropertyTable("overview", EncodingSizes(), (row,))).tables
    assert list(table.rows[0]) == [row.name, *cells.split("|")]
    assert len(table.header) == len(table.rows[0])


def test_the_overview_has_origins():
    row = LARGE._replace(vectors="a line", adopted=(0, 1, 1))
    _, origins = page(PropertyTable("overview", EncodingSizes(), (row, NOTHING))).tables
    assert list(origins.rows[0][1:]) == [
        "bias", "0 · 1 · 1", "table, queries, keys, weights", "a line", "one",
    ]  # fmt: skip
    assert list(origins.rows[1][1:]) == ["absolute", "", "–", "–", "one"]
