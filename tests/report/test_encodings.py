"""The table of the catalogue."""

import math

from jaxpe import EncodingSizes
from jaxpe.encodings import CATALOGUE, EncodingProperties
from jaxpe.report import catalogue_json, catalogue_markdown, catalogue_table
from tests.report.test_table import printed

SIZES = EncodingSizes()
LARGE = EncodingProperties(
    trainable=262_144,
    fixed=262_144,
    absolute=True,
    relative=True,
    order=True,
    gradient=("table", "queries", "keys", "weights"),
    beyond="constant",
    flops=4_746_760.0,
    bytes=999_499.0,
    looped=True,
)
NOTHING = EncodingProperties(0, 0, False, False, False, (), "yes", 0.0, 0.0, False)


def test_at_80_columns_nothing_is_cut():
    rows = {entry: LARGE._replace(fixed=0) for entry in CATALOGUE}
    text = printed(catalogue_table(rows, SIZES))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    cells = [line.split() for line in text.splitlines()]
    expected = ["262,144", "both", "constant", "≥4.75M", "≥999k", "θ", "q", "k", "w"]
    for entry in CATALOGUE:
        assert [entry.name, *expected] in cells


def test_families_are_set_apart():
    lines = printed(catalogue_table(dict.fromkeys(CATALOGUE, LARGE), SIZES)).splitlines()
    empty = [i for i, line in enumerate(lines) if not line.strip()]
    families = {entry.family for entry in CATALOGUE}
    assert len(empty) >= len(families) - 1


def test_markdown_names_everything():
    rows = dict(zip(CATALOGUE, (NOTHING, LARGE), strict=False))
    header, dashes, first, second = catalogue_markdown(rows).splitlines()
    assert header.count("|") == dashes.count("|") == first.count("|") == 11
    assert first.startswith("| `none` | absolute | 0 | – | yes | 0 | 0 | – | – |")
    assert "| 262,144 (262,144) | both | constant | ≥4.75M | ≥999k | table, queries, keys" in second


def test_json_is_all_numbers():
    table = catalogue_json({CATALOGUE[0]: NOTHING._replace(flops=math.pi)}, SIZES)
    assert table["sizes"]["length"] == 512
    assert table["encodings"][0]["flops"] == math.pi
