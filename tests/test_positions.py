"""Pages of released models: every row is judged, and a page says what the result says."""

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
sys.path.append(str(Path(__file__).parents[1] / "docs" / "_ext"))
from docutils import nodes
from reference import positions

ROWS = {row.slug: row for row in positions.rows()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("positions")


@pytest.fixture(scope="module")
def results(folder):
    return {slug: positions.judged(slug, folder / "configs") for slug in ROWS}


def built(slug, folder):
    """A page as one node."""
    return nodes.section("", *positions.page(ROWS[slug], folder))


def links(page):
    return {one["refuri"] for one in page.findall(nodes.reference)}


def test_every_row_is_judged_without_unread_keys(results):
    assert {slug for slug, one in results.items() if one.status != "judged"} == set()
    assert {slug: one.unread for slug, one in results.items() if one.unread} == {}
    refusing = {s for s, one in results.items() if one.programs and one.programs[0].problem}
    assert refusing == set()


def test_a_page_has_layers_figure_threads_and_configuration(folder, results):
    page = built("gemma-4-26b-a4b", folder)
    titles = [one.astext() for one in page.findall(nodes.title)]
    assert {"Layers", "Frequencies", "Known reports", "Configuration"} <= set(titles)
    assert "https://github.com/apple/coreai-models/issues/66" in links(page)
    assert "https://huggingface.co/google/gemma-4-26B-A4B" in links(page)
    (image,) = page.findall(nodes.image)
    assert b"<svg" in (folder / image["uri"]).read_bytes()
    assert not list(built("bert", folder).findall(nodes.image))  # nothing rotates
    cells = [one.astext() for one in page.findall(nodes.entry)]
    assert "128 of 512" in cells
    assert "262,144" in cells


LONGER = [slug for slug, row in ROWS.items() if row.long and row.long["length"]]


@pytest.mark.parametrize("slug", LONGER)
def test_recipes_have_the_numbers_of_the_vendor(slug, folder):
    long = ROWS[slug].long
    found = re.search(r"factor (\d+) from ([\d,]+) positions", long["text"])
    factor, original = float(found[1]), int(found[2].replace(",", ""))
    result = positions.judged(slug, folder / "configs", long["length"])
    texts = {one.program: one.text for one in result.recipes}
    patch = json.loads(texts["config.json"])
    entry = patch.get("text_config", patch)["rope_parameters"]
    assert entry["factor"] == factor
    assert entry["original_max_position_embeddings"] == original


def test_the_table_of_all_models_has_the_numbers_of_each(results):
    own = [one.replace("\u00a0", " ") for one in positions.overview(results["gemma-4-26b-a4b"])]
    assert own[1:3] == ["10,000, 1,000,000", "256 of 256, 128 of 512"]
    assert positions.overview(results["command-r7b"])[0] == "24 of 32"
    assert positions.overview(results["bert"])[0] == "none: position table"
    assert positions.overview(results["ministral-3-8b"])[-1] == "vLLM 0.33, SGLang 0.5.23"


def test_programs_that_agree_on_every_group_have_one_table():
    tables = [(f"What programs compute in {x} layers", ["quantity", "all"], [("base", y)])
              for x, y in (("full", "2"), ("sliding", "1"))]  # fmt: skip
    ((_, header, cells),) = positions.program_tables(tables)
    assert (header, cells) == (["", "full", "sliding"], [("base", "2", "1")])
