"""Tables of computed properties and of counts, cell by cell."""

import numpy as np
import pytest

from jaxpe._core.options import Choice
from jaxpe.analysis.counts.settings import CountSettings
from jaxpe.analysis.counts.stored import CountedShard, CountHeader, StoredCounts
from jaxpe.analysis.properties import PropertyTable
from jaxpe.encodings import EncodingSizes
from jaxpe.encodings.analysis.properties import EncodingProperties
from jaxpe.report import page

LARGE = EncodingProperties(
    "", "bias", "one", "", 262_144, 0, True, True, ("table", "queries", "keys", "weights"),
    "constant", 0.0176, 4_746_760.0, 999_499.0, True,
)  # fmt: skip
NOTHING = EncodingProperties(
    "none", "absolute", "one", "", 0, 0, False, False, (), "told apart", 8.0, 0.0, 0.0, False
)


@pytest.mark.parametrize(
    ("row", "cells", "origins"),
    [
        (
            LARGE._replace(vectors="a line", adopted=(0, 1, 1)),
            "262,144|both|constant|0.0176T|4.75M|999k|θ q k w",
            "bias|0 · 1 · 1|table, queries, keys, weights|a line|one",
        ),
        (NOTHING, "0|–|told apart|≥ 8T|0|0|–", "absolute||–|–|one"),
        (
            LARGE._replace(fixed=7, relative=False, reach=1.25),
            "262,144 (7)|absolute|constant|1.25T|4.75M|999k|θ q k w",
            "bias||table, queries, keys, weights|–|one",
        ),
    ],
)
def test_cells_of_properties(row, cells, origins):
    tables = page(PropertyTable("overview", EncodingSizes(), (row,))).tables
    for table, expected in zip(tables, (cells, origins), strict=True):
        assert [*table.rows[0]] == [row.name, *expected.split("|")]
        assert len(table.header) == len(table.rows[0])


def test_rows_of_counts():
    table = np.zeros((2, 2, 3), np.int64)
    table[0, 0, 1] = table[1, 0, 1] = table[0, 1, 2] = 500
    settings = CountSettings("words", "", 8, (0, 4, 8), 3, (), 2, 5, 1, 0, "author")
    shard = CountedShard("a", 9, "0", 600)
    lost = CountedShard("x", 9, "", 0, null_texts=1, unreadable="why")
    choice = Choice("column", "body", "the only one", "pass another")
    header = CountHeader(1200, settings, (shard, shard, lost), "body", (choice,), ["a", "b", "c"])
    shown = page(StoredCounts(table, np.zeros((5, 1, 2, 3), np.int64), header))
    documents, tokens, cells = shown.lead
    assert (documents.value, tokens.value, cells.value, cells.reference) == (1200, 1500, 2, 6)
    rows = [*shown.tables[0].rows]
    assert rows[:2] == [("positions", "8 in 2 bins"), ("vocabulary", "3 (words)")]
    left_out = [x for name, x in rows if name == "left out"]
    assert left_out == ["1 row without text", "x, 9 bytes: why"]
