import re
import sys

import pytest

from jaxpe._core.errors import MissingExtraError
from jaxpe.analysis.corpus import TopTokens
from jaxpe.data import Choice
from jaxpe.report.corpus import page as page_module
from jaxpe.report.corpus.page import FAMILIES, view
from jaxpe.report.methods import methods, methods_latex, references
from jaxpe.report.page import render_page as rendered
from jaxpe.report.text import site_page
from tests.report import factory


@pytest.fixture
def render_page(monkeypatch):
    """Page of an analysis, without figures."""
    monkeypatch.setattr(page_module, "render_figures", lambda analysis: [])
    return lambda analysis: rendered(analysis, view(analysis))


def test_the_page_is_self_contained(page):
    html = page.read_text("utf-8")
    assert "<script" not in html
    sources = re.findall(r'(?:src|href)="([^"]*)"', html)
    contents = [source for source in sources if source.startswith("#section")]
    assert all(html.count(f'<h2 id="{place[1:]}"') == 1 for place in contents)
    assert len(contents) > 4
    sources = [source for source in sources if source not in contents]
    definitions = [source for source in sources if source.startswith("#")]
    assert all(html.count(f'<dt id="{place[1:]}"') == 1 for place in definitions)
    others = [s.split(",")[0] for s in sources if s not in definitions]
    assert others[:10] == ["data:image/svg+xml;base64"] * 10
    assert others[10:] == ["https://arxiv.org/abs/2604.05217"]  # fetched by no one
    assert "example.org" not in html
    assert site_page("reading-a-report") in html
    assert "default-src 'none'" in html


def test_methods_of_a_report_have_its_numbers():
    where = factory.WHERE._replace(words=3_210, tokens=factory.analysis().tokens - 1_001)
    case = factory.analysis(where=where, unknown_tokens=1_234, inputs=("sst2",))
    text = methods(case)
    for words in ("12,480 documents in 12,480 groups", "the first 48 positions", "20 rotated",
                  "0.10 (95 % interval 0.05 to 0.20)", "the 3,210 words", "(1,001 tokens)",
                  "1,234 outside", "SST-2 [@socher2013]"):  # fmt: skip
        assert words in text
    cited = re.findall(r"\\cite\{(.*?)\}", methods_latex(text))
    entries = re.findall(r"^@\w+{(\w+),", references(case), re.M)
    assert sorted(",".join(cited).split(",")) == sorted(entries)


def test_every_paper_that_the_page_cites_is_among_the_references(page):
    text = re.sub(r'"data:[^"]*"', "", page.read_text("utf-8"))  # images are one long word
    years = re.findall(r"([A-Z]\w+) (?:et al\. )?\(?((?:19|20)\d\d)\)", text)
    keys = {f"{name.lower()}{year}" for name, year in years} - {"stephens1990"}
    assert len(keys) >= 3
    assert keys <= set(re.findall(r"{(\w+),", references(factory.analysis())))


def test_the_page_says_how_it_was_computed(page):
    html = page.read_text("utf-8")
    for words in (
        "stdlib",
        "12,480",
        "cohort",
        "permutation null",
        "9.80",
        "Eq. (3)",
        "Eq. (4)",
    ):
        assert words in html


def test_text_from_the_corpus_is_escaped(hostile_page):
    html = hostile_page.read_text("utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<script" not in html
    assert "<img src=x" not in html
    assert "<b>corpus" not in html
    assert "<i>tok" not in html
    assert "{{ 7 * 7 }}" in html
    assert "⟨U+0000⟩" in html
    assert "⟨U+D800⟩" in html
    assert not set(html) & {"\0", "\u202e", "\x1b"}
    assert "w" * 40 + "…" in html
    assert "w" * 41 not in html


def test_encodings_are_grouped_by_families_that_are_explained(render_page):
    case = factory.analysis(encodings=[factory.score("rope"), factory.score("x", family="new")])
    html = render_page(case)
    assert "<i>rotary</i>: rotations of queries and keys" in html
    assert "<i>new</i></span>" in html
    assert html.count('<tr class="family">') == 2


def test_every_family_of_the_report_is_explained():
    assert all(FAMILIES[family] for family in factory.FAMILIES.values())


def test_the_page_says_what_was_chosen_and_what_was_left_out(render_page):
    choice = Choice("length", "64", "5 % of the documents are as long", "pass `length`")
    html = render_page(factory.analysis(choices=(choice,), null_texts=3))
    assert "What was chosen for you" in html
    for cell in ("length</th>", "64</bdi>", "5 % of the documents", "pass <code>length</code>"):
        assert cell in html
    assert "12,480 documents, 3 rows without text left out" in html
    html = render_page(factory.analysis())
    assert "What was chosen for you" not in html
    assert "left out" not in html


def test_empty_tables_say_so(render_page):
    html = render_page(factory.analysis(encodings=[], top_tokens=[TopTokens(3, [])]))
    assert "no encoding was scored" in html
    assert '<span class="soft">none</span>' in html


def test_without_jinja2_the_extra_is_named(monkeypatch, render_page):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'jaxpe\[report\]'"):
        render_page(factory.analysis())
