"""Which rows, names, steps and files a page has: choices that are neither words nor one number."""

import re
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from jaxpe.analysis.corpora import LEVEL
from jaxpe.analysis.corpus import Interval, StandingOut, TokenShift
from jaxpe.analysis.inspections import compare_inspections, inspected_models
from jaxpe.analysis.training_run import read_run
from jaxpe.report import comparison, corpora, style, training_run
from jaxpe.report.bench.advice import advice as bench_advice
from jaxpe.report.bench.page import _beyond
from jaxpe.report.corpus import figures as corpus
from jaxpe.report.corpus.tables import encoding_table
from jaxpe.report.corpus.text import keyed_sentences
from jaxpe.report.files import write_files
from jaxpe.report.methods import methods
from jaxpe.report.page import View, term_links, with_contents
from jaxpe.report.style import Rendered
from tests.analysis.runs import make_run
from tests.analysis.test_bench import cell
from tests.report import test_figure_values_jobs as jobs
from tests.report.factory import REACH, WHERE, N, analysis, score
from tests.report.test_numbers import numbers
from tests.report.test_predicates import above


def test_contents_are_of_four_sections_and_the_longest_term_is_linked():
    pages = {n: with_contents("<!-- contents -->" + "<h2>A</h2>" * n) for n in (3, 4)}
    assert ["<nav" in page for page in pages.values()] == [False, True]
    link = term_links({"near": "short", "nearness": "long"})
    assert str(link("nearness, near")) == '<a href="#long">nearness</a>, <a href="#short">near</a>'


def test_files_for_a_paper_are_not_the_figures_of_the_page(tmp_path):
    def draw() -> Figure:
        figure = Figure((5.0, 3.0), layout="constrained")
        figure.suptitle("title")
        figure.subplots()
        return figure

    found = compare_inspections(inspected_models()[:2])
    view = View("inspections", {"summary": ""}, [Rendered("x", "", draw)], [], [], "page")
    (tmp_path / "figures").mkdir()
    for other in ("x.png", "x.pdf"):
        (tmp_path / "figures" / other).touch()
    widths = {}
    for form in ("screen", "paper"):
        write_files(tmp_path, found, view, figures="svg", style=form)
        svg = (tmp_path / "figures" / "x.svg").read_text()
        widths[form] = float(re.findall(r'width="([\d.]+)pt"', svg)[0]) / 72
    assert widths == {"screen": pytest.approx(5.0), "paper": pytest.approx(3.25)}
    assert sorted(file.name for file in (tmp_path / "figures").iterdir()) == [
        "captions.tex", "x.svg"
    ]  # fmt: skip
    png = Rendered("x", "", draw).file()
    assert int.from_bytes(png[16:20], "big") == 5 * 200  # dots an inch


@pytest.mark.parametrize(("from_counts", "count"), [(False, "20 rotated"), (True, " rotated")])
def test_rotated_corpora_of_a_count_have_no_number(from_counts, count):
    said = methods(analysis(from_counts=from_counts))
    assert f"less those of{'' if from_counts else ' '}{count} corpora" in said


def trained(folder: Any, **summary: Any) -> str:
    run = read_run(make_run(folder, {0: 3.0, 4: 2.0, 8: 1.0}, summary=summary))
    return training_run.trained_summary(run)


def test_a_run_says_what_was_cut_and_how_long_its_steps_took(tmp_path):
    said = {n: trained(tmp_path / f"{n}", longest=n) for n in (64, 65)}
    assert ["cut to 64" in text for text in said.values()] == [False, True]
    for at, words in ((0, "and 61 seconds"), (7, "after 7 took 61"), (8, "documents. On")):
        text = trained(tmp_path / f"at{at}", resumed_at=at)
        assert words in text.replace("On 10", "On"), text
    assert "fell by 1 of 2 in all" in said[64]


def group(name: str, mean: float, half: float, seeds: int = 2) -> Any:
    made = jobs.RUNS.groups[1]
    return made._replace(
        name=name, loss=made.loss._replace(seeds=seeds), behind=made.behind._replace(
            mean=mean, half=half)
    )  # fmt: skip


def compared(mean: float, half: float, *others: Any, seeds: int = 2) -> Any:
    first = jobs.RUNS.groups[0]._replace(loss=jobs.RUNS.groups[0].loss._replace(seeds=seeds))
    return jobs.RUNS._replace(groups=(first, group("b", mean, half, seeds), *others))


def test_a_lead_is_taken_only_where_its_interval_excludes_0():
    steps = [
        comparison.advice(compared(mean, 0.5))[0].text.split(" ")[0] for mean in (above(0.5), 0.5)
    ]
    assert steps == ["Take", "Train"]
    said = [comparison.comparison_summary(compared(mean, 0.5)) for mean in (above(0.5), 0.5)]
    assert ["not significant" in text for text in said] == [False, True]
    assert "of all pairs" not in said[0]
    assert "of all pairs" in comparison.comparison_summary(compared(1.0, 0.5, group("c", 2.0, 0.5)))
    tables = [len(comparison.comparison_rows(compared(1.0, 0.5, seeds=n))) for n in (1, 2)]
    assert tables == [2, 3]


def test_a_name_has_at_most_two_settings():
    listed = {
        n: comparison.title_of(
            jobs.RUNS._replace(settings={str(k): ("x", "y", "z") for k in range(n)}), "b"
        )
        for n in (0, 1, 2, 3)
    }
    assert [text.count(" y") for text in listed.values()] == [0, 1, 2, 0]


def test_two_corpora_differ_up_to_the_level():
    pair = jobs.CORPORA.pairs[0]
    for p_value, differ in ((LEVEL, True), (above(LEVEL), False)):
        one = jobs.CORPORA._replace(pairs=(pair._replace(p_value=p_value, p_adjusted=p_value),))
        assert ("not differ" not in corpora.corpora_summary(one)) == differ
        assert bool(corpora.advice(one)) == differ


def sentence(key: str, **fields: Any) -> str:
    return keyed_sentences(analysis(**fields)).get(key, "").replace("\N{NO-BREAK SPACE}", " ")


def test_letters_are_named_where_they_are_sure():
    letters = analysis().letters
    bits = letters.bits.copy()
    bits[:, 9] = [1.5, 0.2, 2.0]  # the largest estimate, of a wide interval
    own = letters._replace(bits=bits)
    assert "position 7" in sentence("letters", letters=own)
    own = own._replace(alphabet="nucleotides")
    assert "Of these" in sentence("differing", letters=own)
    assert "Of these" not in sentence("differing", letters=own, from_counts=True)
    shifts = [StandingOut(7, [TokenShift("A", 0.8, 0.7, 0.01), TokenShift("C", 0.5, 0.1, 0.01)])]
    assert numbers(sentence("standing out", standing_out=shifts)) == [1, 7, 7, 50, 10]
    for groups, dependent in ((12_480, False), (12_479, True)):
        said = sentence("standing out", standing_out=shifts, groups=groups)
        assert ("one of each group" in said) == dependent


@pytest.mark.parametrize(
    ("half", "most", "expected"),
    [(1, 1, [90]), (3, 3, [3, 90, 2]), (2, 3, [2, 3, 90])],
)
def test_the_first_positions_have_half_of_the_bits_and_most(half, most, expected):
    reach = REACH._replace(half=Interval(half, half, half), most=Interval(most, most, most))
    assert numbers(sentence("half of the bits", where=WHERE._replace(start=reach))) == expected


def test_the_last_family_of_a_table_ends_where_its_encodings_do():
    names = ["mds", "smacof", "rope", "alibi"]
    table = encoding_table(analysis(encodings=[score(name) for name in names]))
    assert [row.end_section for row in table.rows] == [False, True, True, True]


def test_documents_that_are_not_judged_are_one_observation_only_if_they_are():
    nobody = {"present": np.zeros(N, bool), "significant_rank": 0}
    said = [sentence("not judged", position=nobody, groups=n, intervals={}) for n in (1, 2)]
    assert ["single observation" in text for text in said] == [True, False]


def test_a_logo_has_rows_of_letters_about_its_site(monkeypatch):
    monkeypatch.setattr(corpus, "_LOGO_ROW", 4)
    monkeypatch.setattr(corpus, "_LOGO_ROWS", 2)
    axes = corpus.logo_figure(analysis(origin=20)).axes
    assert [axis.get_xlim() for axis in axes] == [(-2.5, 1.5), (1.5, 5.5)]
    last = corpus.logo_figure(analysis(origin=47)).axes[0]
    assert last.get_xlim() == (40 - 47 - 0.5, 44 - 47 - 0.5)
    (axis,) = corpus.logo_figure(analysis(origin=9)).axes[:1]  # positions 7 to 10
    assert axis.get_ylim() == pytest.approx((0, 1.1 * 1.6))
    top = max(patch.get_extents().y1 for patch in axis.patches)
    assert axis.transData.inverted().transform((0, top))[1] == pytest.approx(1.4)
    ends = axis.collections[0].get_segments()[0][:, 1]
    np.testing.assert_allclose(ends, [1.3, 1.6])


def test_letters_of_a_stack_have_their_heights_the_highest_on_top():
    axis = Figure().subplots()
    style.stack_letters(axis, 3, {"A": 0.6, "C": 0.2, "G": 0.0009})
    boxes = [patch.get_path().get_extents() for patch in axis.patches]
    assert [[box.y0, box.y1] for box in boxes] == [
        pytest.approx([0, 0.2]), pytest.approx([0.2, 0.8])
    ]  # fmt: skip
    assert [box.x0 + box.x1 for box in boxes] == pytest.approx([6, 6])
    assert boxes[0].width == pytest.approx(0.95)
    colours = [patch.get_facecolor() for patch in axis.patches]
    assert colours[0] != colours[1]


def bench_result(*verdicts: tuple[str, int], budget: str = "smoke") -> Any:
    options = jobs.BenchOptions(encoding="alibi", budget=budget)
    made = tuple(
        jobs.Verdict("copy", "rope", said, jobs.lead(0, 0, 0), seeds) for said, seeds in verdicts
    )
    return jobs.BENCH._replace(options=options, verdicts=made)


@pytest.mark.parametrize(
    ("verdicts", "budget", "expected"),
    [
        ([("not learned", 0), ("not decided", 9)], "smoke", "--budget small"),
        ([("not learned", 0), ("not decided", 9)], "medium", "--seeds 9"),
        ([("not decided", 21)], "medium", "--seeds 21"),
        ([("not decided", 1), ("not decided", 7)], "small", "--seed 1"),
        ([("better", 0)], "small", "--budget medium"),
        ([("better", 0)], "medium", "jaxpe train"),
    ],
)
def test_the_next_step_of_a_benchmark(verdicts, budget, expected):
    (step,) = bench_advice(bench_result(*verdicts, budget=budget))
    assert expected in step.paste
    if expected == "--seed 1":
        assert "2 open comparisons" in step.text


def test_scores_that_are_not_there_have_their_reason():
    learned = cell("copy", "a", [[1.0, np.nan, 0.5], [1.0, 0.5, 0.5]])
    assert _beyond(learned, 0.95) == "failed"
    assert _beyond(learned._replace(defined=np.array([True, False, True])), 0.95) == "undefined"
    equal = cell("copy", "a", [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    assert _beyond(equal, 0.95).split(" ")[0] == "100"
