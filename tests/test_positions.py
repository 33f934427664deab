"""Pages of released models: every row is judged; the site renders the pages."""

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
sys.path.append(str(Path(__file__).parents[1] / "docs" / "_ext"))
from reference import positions

ROWS = {row.slug: row for row in positions.rows()}


def test_every_row_is_judged_without_unread_keys():
    results = {slug: positions.judged(slug) for slug in ROWS}
    assert {slug for slug, one in results.items() if one.status != "judged"} == set()
    assert {slug: one.unread for slug, one in results.items() if one.unread} == {}
    refusing = {s for s, one in results.items() if one.programs and one.programs[0].problem}
    assert refusing == set()
    cells = [one.replace("\u00a0", " ") for one in positions.overview(results["gemma-4-26b-a4b"])]
    assert cells[1:3] == ["10,000, 1,000,000", "256 of 256, 128 of 512"]


@pytest.mark.parametrize("slug", [s for s, row in ROWS.items() if row.long and row.long["length"]])
def test_recipes_have_the_numbers_of_the_vendor(slug):
    long = ROWS[slug].long
    found = re.search(r"factor (\d+) from ([\d,]+) positions", long["text"])
    result = positions.judged(slug, long["length"])
    (patch,) = (json.loads(one.text) for one in result.recipes if one.program == "config.json")
    entry = patch.get("text_config", patch)["rope_parameters"]
    assert entry["factor"] == float(found[1])
    assert entry["original_max_position_embeddings"] == int(found[2].replace(",", ""))
