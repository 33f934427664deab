"""RESULTS.md is what its templates and the results make of it, and has no numbers of its own."""

import json
import re
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parent.parent / "experiments"
sys.path.insert(0, str(EXPERIMENTS))
try:
    import literal_numbers
    import render_results
finally:
    sys.path.remove(str(EXPERIMENTS))

# Sections whose numbers are not taken from the files yet. This list only gets shorter.
NOT_YET: set[str] = set()
# Numbers of ours that stand as text: in no file, or not found in one yet. It only gets smaller.
UNTRACED = 1


def test_pages_are_what_make_results_writes():
    pages = render_results.pages()
    assert [path.name for path, text in pages.items() if path.read_text() != text] == []
    assert {path.name for path in pages} >= {"RESULTS.md", "which-encoding.md"}


def test_every_template_is_in_the_contents_and_every_entry_has_one():
    templates = {path.stem for path in render_results.SECTIONS.glob("*.md")}
    assert templates == set(render_results.section_names())


TEMPLATES = sorted(render_results.SECTIONS.rglob("*.md"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_numbers_of_ours_come_from_files(path):
    name, text = path.stem, path.read_text()
    literal, unused = literal_numbers.literal_numbers(text)
    if name in NOT_YET:
        assert literal, f"{name} is done: take it out of NOT_YET"
    else:
        assert literal == [], "write an expression, or list what was given or published"
        assert unused == [], "listed as given, and not there"


def test_the_numbers_without_a_file_are_counted():
    texts = [path.read_text() for path in TEMPLATES]
    assert sum(len(literal_numbers.untraced(text)) for text in texts) == UNTRACED


def test_the_report_in_the_readme_is_that_of_the_file():
    text = (EXPERIMENTS.parent / "README.md").read_text()
    (shown,) = re.findall(r"```\n( +stdlib:.*?)```", text, re.DOTALL)
    printed = render_results.Results()["stdlib_report"]["summary"]
    lines = {" ".join(line.split()) for line in shown.splitlines()}
    assert lines <= {" ".join(line.split()) for line in printed}
    assert len(lines) > 4


@pytest.mark.parametrize("name", sorted({*render_results.result_names()} - {"costs"}))
def test_every_result_names_the_commit_that_made_it(name):
    made_by = json.loads((render_results.RESULTS / f"{name}.json").read_text())["made_by"]
    assert len(made_by["commit"]) >= 7
    assert made_by.get("from") == "history" or len(made_by["sources"]) == 12


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("falls from 0.75 to 12 %", ["0.75", "12"]),
        ("in 3 % of 3 seeds, 1,024 rows and 8.8e-06", ["3", "1,024", "8.8e-06"]),
        ("Table 12 and Section 4.25, Eq. (14), Lemmas 11 to 16, (13), 2025", []),
        ("`d = 64`, 10⁵, 8T, float32, ![a](b-12.png)", []),
        ("{{ r.x | f('.2f') }} and {# given 44: why #}", []),
    ],
)
def test_numbers_that_a_text_may_not_hold(line, found):
    assert [number for _, number in literal_numbers.literal_numbers(line)[0]] == found


def test_numbers_of_others_and_given_ones():
    table = "| claim | theirs | ours |\n|---|---|---|\n| 11 | 12 | 13 |\n| *theirs* | | 14 |\n"
    assert literal_numbers.literal_numbers(table) == ([(3, "13")], [])
    text = "{# given 11, 12: sizes #}\nof 11 rows\n\nof 12\n"
    assert literal_numbers.literal_numbers(text) == ([(4, "12")], [(1, "12")])


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (0.7961, ".1%", "79.6 %"),
        (0.7961, ".1p", "79.6"),
        (-0.071, ".2f", "−0.07"),
        (7.1e-8, ".1es", "7.1e-8"),
        (5.7e4, ".1es", "5.7e4"),
        (None, ".2f", "–"),
    ],
)
def test_numbers_are_written_as_the_page_has_them(value, spec, text):
    assert render_results.f(value, spec) == text


def test_an_interval_of_a_share_stays_within_its_bounds():
    assert render_results.share({"mean": 0.9, "half": 0.36}, ".2f") == "0.90 (0.54 to 1.00)"
    seeds = {"mean": 0.9, "half": 0.36, "seeds": [0.72, 0.99, 0.99]}
    assert render_results.share(seeds, ".2f") == "0.90 (0.72 to 0.99)"


def test_a_template_with_a_wrong_name_says_what_there_is():
    with pytest.raises(Exception, match=r"'tabel' is not in .*'encodings'"):
        render_results.render("{{ r.tabel }}", {"x": {"encodings": 1}}, own="x")
