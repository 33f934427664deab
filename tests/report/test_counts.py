"""The page of counts: numbers of their tables, and what was left out."""

import numpy as np

from jaxpe._core.options import Choice
from jaxpe.analysis.counts import CountedShard, CountHeader, CountSettings, StoredCounts
from jaxpe.report import page


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
    assert [*shown.tables[0].rows] == [
        ("positions", "8 in 2 bins"),
        ("vocabulary", "3 (words)"),
        ("folds", "2, and 5 nulls in 1"),
        ("kept together", "documents of the same 'author' in a fold"),
        ("column of text", "body"),
        ("column", "body: the only one"),
        ("left out", "1 row without text"),
        ("left out", "x, 9 bytes: why"),
    ]
    assert shown.title.endswith("2 shards")
