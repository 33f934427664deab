"""Ranks, tables, text, figures and numbers of extrapolation, true of made-up reports."""

import dataclasses
import io
import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from rich.console import Console
from scipy.special import ndtri, stdtrit

from jaxpe._core.errors import InputError
from jaxpe._core.results import result_files
from jaxpe.analysis import load_result
from jaxpe.analysis.extrapolation import (
    ExtrapolationCell,
    ExtrapolationResult,
    SeedInterval,
    Suite,
    compared,
    lead_interval,
    leaders,
    mean_reciprocal_rank,
    pair_level,
    reciprocal_ranks,
    seed_interval,
)
from jaxpe.analysis.extrapolation.intervals import seed_means
from jaxpe.analysis.extrapolation.ranks import LOWER_IS_BETTER, error_of_zero
from jaxpe.report import extrapolation_table, write
from jaxpe.report.extrapolation import figures as drawn
from jaxpe.report.extrapolation import page, text
from jaxpe.report.extrapolation.text import advice, summary
from jaxpe.report.methods import methods
from jaxpe.report.style import render

NUMBERS = Suite(
    name="sums",
    tasks=("running_sum",),
    encodings=("sinusoidal", "alibi", "learned"),
    length=8,
    rows=1000,
)
TOKENS = Suite(
    name="strings",
    tasks=("copy", "parity"),
    encodings=("none", "rope", "t5"),
    length=4,
    rates=(1e-3,),
)
SIZES = np.array([1.0, 2.0, 4.0, 8.0])  # mean squares of the labels at each length


def cell(suite, task, encoding, scores):
    """A cell whose ranking metric is `[seeds, lengths]`."""
    scores = np.asarray(scores, float)
    if task.startswith("running"):
        metric, found = "mse", {"mse": scores, "relative_mse": scores / SIZES[: scores.shape[1]]}
    else:
        metric, found = "accuracy", {"accuracy": scores, "exact": scores**4}
    return ExtrapolationCell(
        suite=suite.name,
        task=task,
        encoding=encoding,
        metric=metric,
        lengths=suite.lengths[: scores.shape[1]],
        scores=found,
        summary=seed_means(found, tests=suite.tests),
        defined=np.ones(scores.shape[1], bool),
        rate=suite.rates[-1],
        rates=suite.rates,
        tuning=np.ones(len(suite.rates)),
        loss=np.full(len(scores), 0.1),
        seconds={"training": 1.0},
        tests=suite.tests,
    )


def scored(found, scores):
    """The same cell with other scores."""
    return found._replace(scores=scores, summary=seed_means(scores, tests=found.tests))


def seeds_of(*middle, count=3, spread=0.01):
    """Scores `[seeds, lengths]` around a middle."""
    return np.array(middle) + spread * np.linspace(-1, 1, count)[:, None]


def undefined(found, *, beyond):
    """The same cell, not defined from a place on."""
    scores = {name: x.copy() for name, x in found.scores.items()}
    for x in scores.values():
        x[:, beyond:] = np.nan
    return scored(found, scores)._replace(defined=np.arange(len(found.defined)) < beyond)


def failed(found, *seeds):
    """The same cell, the training of some seeds come to NaN."""
    scores = {name: x.copy() for name, x in found.scores.items()}
    for x in scores.values():
        x[list(seeds)] = np.nan
    return scored(found, scores)


def numbers(count=3):
    return [
        cell(NUMBERS, "running_sum", "sinusoidal", seeds_of(0.1, 1.5, 4.5, 9.0, count=count)),
        cell(NUMBERS, "running_sum", "alibi", seeds_of(0.2, 0.5, 1.0, 7.98, count=count)),
        undefined(
            cell(NUMBERS, "running_sum", "learned", seeds_of(0.05, 1, 1, 1, count=count)), beyond=1
        ),
    ]


def tokens():
    middles = {
        "copy": {"none": (0.9, 0.5, 0.3, 0.2), "rope": (1, 0.6, 0.2, 0.1), "t5": (1, 0.7, 0.1, 0)},
        "parity": {"none": (0.8, 0.7, 0.7, 0.7), "rope": (1, 0.8, 0.7, 0.7), "t5": (1, 1, 1, 1)},
    }
    return [
        cell(TOKENS, task, name, np.clip(seeds_of(*middle), 0, 1))
        for task, own in middles.items()
        for name, middle in own.items()
    ]


def report(*suites):
    settings = [NUMBERS if cells[0].suite == "sums" else TOKENS for cells in suites]
    return ExtrapolationResult(
        suites=tuple(settings),
        cells=tuple(x for cells in suites for x in cells),
        mean_reciprocal_rank={cells[0].suite: mean_reciprocal_rank(cells) for cells in suites},
        comparisons=tuple(one for cells in suites for one in compared(cells)),
        seconds={"whole": 5.0},
    )


def some_failed():
    found = tokens()
    return [failed(found[0], 1), failed(found[1], 0, 1, 2), *found[2:]]


def tied():
    return [scored(found, tokens()[0].scores) for found in tokens()]


CASES = {
    "two suites": report(numbers(), tokens()),
    "failed": report(some_failed()),
    "one seed": report(numbers(count=1)),
    "one encoding": report(numbers()[:1]),
    "ties": report(tied()),
    "nothing at all": report([failed(x, 0, 1, 2) for x in numbers()[:2]]),
    "no longer inputs": report([cell(TOKENS, "copy", n, np.ones((3, 1))) for n in ("none", "t5")]),
}


def suites_of(case):
    return [case.cells_of(suite) for suite in case.suites]


def cells_of(name, suite=0):
    return suites_of(CASES[name])[suite]


def plain(text):
    return text.replace("\N{NO-BREAK SPACE}", " ")


def place_by_place(cells):
    """1/rank by sorting, one task, seed and length after another."""
    names = list(dict.fromkeys(x.encoding for x in cells))
    found = {name: [] for name in names}
    for task in dict.fromkeys(x.task for x in cells):
        own = {x.encoding: x for x in cells if x.task == task}
        seeds, lengths = own[names[0]].scores[own[names[0]].metric].shape
        for seed in range(seeds):
            for place in range(1, lengths):
                worth = {}
                for name, x in own.items():
                    value = x.scores[x.metric][seed, place]
                    lower = x.metric in LOWER_IS_BETTER
                    worth[name] = -np.inf if np.isnan(value) else (-value if lower else value)
                order = sorted(names, key=lambda name: -worth[name])
                for name in names:
                    shared = [1 / (k + 1) for k, x in enumerate(order) if worth[x] == worth[name]]
                    found[name].append(np.mean(shared))
    return found


@pytest.mark.parametrize("name", ["two suites", "failed", "one seed", "one encoding", "ties"])
def test_ranks_are_those_of_sorting(name):
    for cells in suites_of(CASES[name]):
        slow, fast = place_by_place(cells), reciprocal_ranks(cells)
        for encoding, shares in fast.items():
            np.testing.assert_allclose(shares.ravel(), slow[encoding])
        sums = sum(fast.values())  # whoever is where, the places are all given away
        np.testing.assert_allclose(sums, np.sum(1 / np.arange(1, len(fast) + 1)))


def test_intervals_are_over_seeds():
    cells = cells_of("two suites", 1)
    cells = [scored(cells[0], {"accuracy": cells[0].scores["accuracy"][::-1]}), *cells[1:]]
    for name, shares in reciprocal_ranks(cells).items():
        of_seeds = [np.mean(shares[:, seed]) for seed in range(3)]
        expected = seed_interval(np.array(of_seeds), within=(0.0, 1.0), trials=6)  # 2 tasks, 3 n
        found = mean_reciprocal_rank(cells)[name]
        np.testing.assert_allclose(found, expected)


def test_the_best_comes_first():
    numbers_, strings = suites_of(CASES["two suites"])
    assert [x.encoding for x in text.by_task(numbers_)["running_sum"]] == [
        "alibi", "sinusoidal", "learned",
    ]  # fmt: skip
    assert text.by_task(strings)["parity"][0].encoding == "t5"
    assert next(iter(mean_reciprocal_rank(strings))) == "t5"
    same = text.by_task(cells_of("no longer inputs"))["copy"]
    assert [x.encoding for x in same] == ["none", "t5"]
    shuffled = [scored(same[0], {"accuracy": np.zeros((3, 1))}), same[1]]
    assert [x.encoding for x in text.by_task(shuffled)["copy"]] == ["t5", "none"]
    middles = {"none": (0.5, 0.2, 0.9), "t5": (0.9, 0.3, 0.1)}  # each leads at one longer length
    equal = [cell(TOKENS, "copy", name, seeds_of(*middle)) for name, middle in middles.items()]
    assert [x.encoding for x in text.by_task(equal)["copy"]] == ["t5", "none"]


def test_rows_say_what_is_undefined_or_failed():
    rows = text.task_rows(text.by_task(cells_of("two suites"))["running_sum"])
    assert rows[0] == ["alibi", "0.2 ± 0.0248", "0.5 ± 0.0248", "1 ± 0.0248", "7.98 ± 0.0248",
                       "0.003"]  # fmt: skip
    assert rows[2][1:] == ["0.05 ± 0.0248", *["undefined"] * 3, "0.003"]
    by_name = {row[0]: row for row in text.task_rows(cells_of("failed")[:3])}
    assert by_name["NoPE (none)"][1:5] == ["1 of 3 failed"] * 4
    assert by_name["rope"][1:5] == ["failed"] * 4
    assert by_name["t5"][2] == "70.0 [67–73]"
    assert text.task_rows(cells_of("one seed"))[0][1] == "0.09"
    assert text.task_header(cells_of("two suites")) == [
        "encoding", "8 = T", "16 = 2T", "32 = 4T", "64 = 8T", "rate",
    ]  # fmt: skip


def test_an_infinite_score_is_a_failure():
    found = cells_of("two suites")[0]
    scores = {name: np.where(x > 4, np.inf, x) for name, x in found.scores.items()}
    own = scored(found, scores)
    assert text.task_rows([own])[0][1:5] == ["0.1 ± 0.0248", "1.5 ± 0.0248", "failed", "failed"]
    assert "(3 of 3)" in " ".join(text._failures([own]))
    assert np.isnan(own.summary["mse"].mean[2])


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_said_and_tabled(name):
    case = CASES[name]
    console = Console(width=100, file=io.StringIO())
    console.print(extrapolation_table(case))
    printed = console.file.getvalue()
    assert "…" not in printed
    for cells in suites_of(case):
        for task, own in text.by_task(cells).items():
            assert f"{cells[0].suite}, {task}: " in printed
            for row in text.task_rows(own):
                assert re.search(r" +".join(map(re.escape, row)), printed)
    assert ("mean reciprocal rank" in printed) == (name not in ("one encoding", "no longer inputs"))
    found = text.extrapolation_findings(case)
    assert len(set(found)) == len(found)
    assert all(sentence.endswith(".") and "nan" not in sentence for sentence in found)


def said_of(result):
    """Sentences of the findings, in order, with plain spaces."""
    return [plain(x) for x in text.extrapolation_findings(result)]


def numbers_in(said):
    return re.findall(r"\d[\d,.]*(?<![,.])", said)


def ranks_of(case, suite):
    """Numbers of the mean reciprocal ranks of the first and the second, and of the lead."""
    cells = case.cells_of(case.suites[suite])
    first, second, *_ = mean_reciprocal_rank(cells).values()
    said = [text.with_interval(x) for x in (first, second, leaders(cells).lead)]
    assert (first.mean, second.mean) == pytest.approx([(1, 1 / 2), (7 / 9, 7 / 12)][suite])
    return [*numbers_in("; ".join(said)), *numbers_in("not 0")]


def pooled(share, trials):
    """Wilson's interval of a share of trials: the m with (share − m)² = z² m (1 − m)/trials."""
    c = ndtri(0.975) ** 2 / trials
    return sorted(np.roots([1 + c, -2 * share - c, share**2]))


def test_findings_say_what_the_numbers_do():
    found = said_of(CASES["two suites"])
    # Which finding it is, by a key word, the suite it is of, and the numbers in it.
    expected = [
        ("ranks first", "sums", ["8", *ranks_of(CASES["two suites"], 0)]),
        ("at T itself", "sums", ["0.2", "0.05"]),
        ("always saying 0", "sums", ["0", "1", "8", "16", "32", "64"]),
        ("ranks first", "strings", ["4", *ranks_of(CASES["two suites"], 1)]),
        ("at T itself", "strings", ["99", "99"]),
        ("best accuracies", "strings", ["32", "20", "99"]),
        ("largest of the grid", "sums", ["3", "3"]),
        ("Equal for all", "sums", ["1,000", "8", "3", "1,000", "64", "0.0003", "0.001", "0.003"]),
        ("Equal for all", "strings", ["4", "3", "1,000", "64", "0.001"]),
        ("uses the learning rate of the lowest training loss", "", ["25"]),
    ]
    assert len(found) == len(expected)
    for sentence, (key, suite, numbers_) in zip(found, expected, strict=True):
        assert key in sentence
        assert f"“{suite}”" in sentence or not suite
        unnamed = re.sub("“.*?”", "", sentence)
        assert numbers_in(unnamed) == numbers_
    assert re.findall("“(.*?)”", found[0]) == ["sums", "alibi", "sinusoidal"]
    assert re.findall("“(.*?)”", found[3]) == ["strings", "t5", "NoPE (none)"]
    assert re.findall("“(.*?)”", found[2]) == [
        "sums", "running_sum", "alibi", "sinusoidal", "alibi",
    ]  # fmt: skip
    assert "at 64 none" in found[2]  # 7.98/8, less than 1, has an interval that is not
    assert "not significantly" in found[0]  # three seeds that agree, as they may by chance


def test_the_interval_decides_what_is_told_apart():
    ahead = leaders(cells_of("two suites", 1))
    assert ahead.first == ("t5",)
    by_name = {name: place_by_place(cells_of("two suites", 1))[name] for name in ("t5", "none")}
    seedwise = [np.mean(np.reshape(x, (2, 3, 3)), axis=(0, 2)) for x in by_name.values()]
    level = pair_level(3)
    expected = seed_interval(seedwise[0] - seedwise[1], within=(-1.0, 1.0), level=level)
    assert ahead.lead.mean == expected.mean
    assert ahead.lead.low <= expected.low
    np.testing.assert_allclose(ahead.lead, lead_interval(*seedwise, trials=2, level=level))
    other = numbers(count=12)
    mixed = [x.scores["mse"].copy() for x in other[:2]]
    for seed in range(4):  # these say otherwise
        mixed[0][seed], mixed[1][seed] = mixed[1][seed].copy(), mixed[0][seed].copy()
    cells = [scored(x, x.scores | {"mse": y}) for x, y in zip(other, mixed, strict=False)]
    assert not leaders(cells).sure
    assert leaders(other).sure
    assert "not significant" in text._rank_text(cells)[0]
    assert "no clear first" in drawn._title(cells)
    assert "“alibi” first" in drawn._title(other)
    assert "one seed gives no interval" in text._rank_text(cells_of("one seed"))[0]
    tie = text._rank_text(cells_of("ties"))[0]
    assert re.findall("“(.*?)”", tie) == ["strings", "NoPE (none)", "rope", "t5"]
    assert "share the first place" in tie
    assert f"({text.with_interval(SeedInterval(11 / 18, *pooled(11 / 18, 18)))})" in tie
    assert text._rank_text(cells_of("one encoding")) == []


def test_findings_of_odd_reports():
    assert "“NoPE (none)” on “copy” (1 of 3) and “rope” on “copy” (3 of 3)" in " ".join(
        text.extrapolation_findings(CASES["failed"])
    )
    nothing = " ".join(text.extrapolation_findings(CASES["nothing at all"]))
    assert "at 8 none; at 16 none; at 32 none; at 64 none." in nothing
    assert "(relative squared error below 1; of one seed): at 8 all;" in " ".join(
        text.extrapolation_findings(CASES["one seed"])
    )


def test_a_report_is_a_page_numbers_and_figures(tmp_path):
    case = CASES["two suites"]
    html = write(case, tmp_path, figures="png").read_text()
    files = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert files == ["captions.tex"] + [
        f"{n}.{e}" for n in ("lengths_1", "lengths_2", "ranks") for e in ("png", "svg")
    ]
    for path in (tmp_path / "figures").glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
        assert path.stat().st_size < 200_000
    assert "NaN" not in (tmp_path / "extrapolation.json").read_text()
    loaded = load_result(ExtrapolationResult, tmp_path / "extrapolation.json")
    assert said_of(loaded) == said_of(case)
    before = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    assert "seconds" not in write(loaded, tmp_path, figures="png").read_text()
    assert {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()} == before
    assert html.count("<figure") == html.count("data:image/svg+xml") == 3
    assert "<script" not in html
    assert html.index('class="lead') < html.index("Findings")
    order = [html.index(x) for x in ("Findings", "Scores: ", ">Figures<", "How it was computed")]
    assert order == sorted(order)
    for row in text.task_rows(cells_of("two suites")):
        for value in row:
            assert f">{value}<" in html


def test_numbers_are_those_of_the_cells():
    found = json_of(CASES["two suites"])
    learned = found["cells"][2]
    assert (learned["encoding"], learned["lengths"]) == ("learned", [8, 16, 32, 64])
    assert learned["defined"] == [True, False, False, False]
    assert learned["scores"]["mse"][0] == [0.04, None, None, None]
    mean, *beyond = learned["summary"]["mse"]["mean"]
    assert mean == pytest.approx(0.05)
    assert beyond == [None] * 3
    alibi = found["mean_reciprocal_rank"]["sums"]["alibi"]
    assert (alibi["mean"], alibi["high"]) == (1.0, 1.0)
    assert alibi["low"] == pytest.approx(pooled(1.0, 9)[0])
    assert found["suites"][1]["tasks"] == ["copy", "parity"]
    assert json_of(CASES["one encoding"])["mean_reciprocal_rank"] == {"sums": {}}


def json_of(case):
    return json.loads(result_files(case, "x")["x.json"])


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_drawn(name):
    for cells in suites_of(CASES[name]):
        assert drawn.lengths_figure(cells).get_suptitle()
        assert drawn._lengths_caption(cells).startswith("Means over seeds")
    if name in ("two suites", "ties", "failed"):
        assert drawn.ranks_figure(CASES[name]).get_suptitle()


def test_always_zero_is_what_labels_say():
    np.testing.assert_allclose(error_of_zero(cells_of("two suites")), SIZES)
    np.testing.assert_allclose(error_of_zero(numbers(count=1)[:1]), SIZES)  # one model is enough
    assert np.isnan(error_of_zero(cells_of("nothing at all"))).all()


def test_encodings_look_different_and_many_are_left_out():
    names = [
        "none", "sinusoidal", "learned", "legendre", "rope", "rope_linear", "rope_ntk",
        "rope_dynamic", "rope_yarn", "xpos", "rope_partial", "alibi", "alibi_over_length", "shaw",
    ]  # fmt: skip
    looks = drawn.line_styles(names)
    assert len({str(x) for x in looks.values()}) == len(names)
    for family in (("rope", "rope_yarn", "xpos"), ("alibi", "alibi_over_length")):
        assert len({looks[name]["color"] for name in family}) == 1
    suite = dataclasses.replace(TOKENS, tasks=("parity",), encodings=tuple(names))
    cells = [
        cell(suite, "parity", name, seeds_of(0.9, 0.03 * k, 0.03 * k, 0.03 * k))
        for k, name in enumerate(names)
    ]
    assert drawn.shown_encodings(cells) == names[-8:]
    assert "Of 14 encodings the first 8 by rank are shown." in drawn._lengths_caption(cells)
    (figure,) = render(cells, ("lengths_1", drawn.lengths_figure, ""))
    assert len(figure.svg) < 200_000
    assert figure.svg == render(cells, ("lengths_1", drawn.lengths_figure, ""))[0].svg


def test_names_from_outside_are_escaped(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "render_extrapolation", lambda report: [])
    name = "<script>alert(1)</script>\u202e"
    suite = dataclasses.replace(NUMBERS)
    object.__setattr__(suite, "name", name)  # which `Suite` refuses
    cells = tuple(x._replace(suite=name) for x in numbers()[:1])
    case = ExtrapolationResult((suite,), cells, {name: {}})
    html = write(case, tmp_path).read_text()
    assert "<script" not in html
    assert "\u202e" not in html


def test_figures_of_an_earlier_report_do_not_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "render_extrapolation", lambda report: [])
    folder = tmp_path / "figures"
    folder.mkdir()
    for name in ("lengths_2.png", "ranks.svg", "lengths_mine.png", "ranks.txt"):
        (folder / name).touch()
    write(CASES["one encoding"], tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["lengths_mine.png", "ranks.txt"]
    (folder / "ranks.png").mkdir()
    with pytest.raises(InputError, match=r"cannot write .*make room"):
        write(CASES["one encoding"], tmp_path)


def noisy(spread):
    """Strings of which none beats rope beyond T by 0.2, seeds apart by a spread."""
    away = spread * np.array([[1.0], [-1.0], [0.3], [-0.3]])
    steady = np.full((4, 4), 0.5)
    return [
        cell(TOKENS, "copy", "none", steady + 0.2 + away),
        cell(TOKENS, "copy", "rope", steady - away),
        cell(TOKENS, "copy", "t5", steady - 0.4),
    ]


def test_a_lead_is_decided_by_its_interval_or_says_how_many_seeds_would():
    by_name = {x.encoding: x for x in compared(noisy(0.01))}
    assert {x.best for x in by_name.values()} == {"none"}
    assert [x.decided for x in by_name.values()] == [True, True]
    assert by_name["rope"].lead.mean == pytest.approx(0.2)
    assert not any(x.seeds for x in by_name.values())
    rope, t5 = compared(noisy(0.15))
    assert (rope.decided, t5.decided) == (False, True)
    assert rope.seeds > 4
    spread = 0.3 * np.std([1, -1, 0.3, -0.3], ddof=1)
    halves = {n: stdtrit(n - 1, 1 - 0.025 / 3) * spread / n**0.5 for n in range(1, 101)}
    assert halves[rope.seeds] < 0.2 <= halves[rope.seeds - 1]  # of three pairs
    least = 0.2 / np.sqrt(halves[99] * halves[100])  # between what 99 and 100 seeds need
    for factor, seeds in ((least, 100), (1.01 * least, 0)):  # more than 100 are not recommended
        assert compared(noisy(0.15 * factor))[0].seeds == seeds
    one = compared([scored(x, {k: v[:1] for k, v in x.scores.items()}) for x in noisy(0.15)])
    assert not any(x.decided or x.seeds for x in one)
    assert not any(x.decided or x.seeds for x in compared(tied()))


def test_seeds_that_would_decide_are_enough_for_the_trials():
    """One row of 100 apart on every seed: the spread decides at once, the trials do not."""
    rows = TOKENS.tests * 3
    means = {"none": 0.51, "t5": 0.5}
    apart = [cell(TOKENS, "copy", name, np.full((3, 4), mean)) for name, mean in means.items()]
    (found,) = compared(apart)
    assert not found.decided
    assert found.seeds > 3
    more = np.full(found.seeds, 0.51), np.full(found.seeds, 0.5)
    assert lead_interval(*more, trials=rows, level=0.95).low > 0
    assert lead_interval(*(x[1:] for x in more), trials=rows, level=0.95).low <= 0


def test_errors_are_compared_by_their_ratio():
    (found,) = compared(numbers()[:2])
    assert found.best == "alibi"
    ratio = np.log(1.5 * 4.5 * 9 / (0.5 * 1 * 7.9)) / 3
    assert found.lead.mean == pytest.approx(ratio, rel=1e-2)
    # What is not defined beyond T, or failed, is compared with nothing.
    assert [x.encoding for x in compared(numbers())] == ["sinusoidal"]
    assert compared(cells_of("nothing at all")) == ()
    assert compared(cells_of("no longer inputs")) == ()


def test_the_summary_says_what_is_decided_and_what_to_do():
    said = plain(summary(report(noisy(0.15))))
    decided, open_ = said.index("decided: it is better"), said.index("not decided: whether")
    assert decided < said.index("“t5” (10 %)") < open_ < said.index("“rope” (50 %; about")
    needed = compared(noisy(0.15))[0].seeds
    assert f"about {needed} seeds would decide" in said
    # Which one of two is not decided: the advice names both.
    assert "try “NoPE (none)” or “rope” first." in plain(advice(report(noisy(0.15)))[0].text)
    assert "try “alibi” (running_sum), “NoPE (none)” (copy), “t5” (parity) first." in plain(
        advice(CASES["two suites"])[0].text
    )
    assert "without scores beyond T: “learned”" in summary(CASES["two suites"])
    for name, case in CASES.items():
        said = summary(case)
        assert "nan" not in said
        assert ("one seed has no interval" in said) == (name == "one seed")
        assert f"{len(case.cells)} pairs" in methods(case)
        step = advice(case)[0].text
        nothing = "Nothing is compared" in step or "No encoding has learned" in step
        assert nothing == (not case.comparisons)


def sums(*errors, seeds=3, spread=0.001):
    """Running sums with relative errors, equal at all lengths."""
    pairs = zip(NUMBERS.encodings, errors, strict=False)
    steps = 1 + spread * np.linspace(-1, 1, seeds)[:, None]
    return [cell(NUMBERS, "running_sum", n, e * steps * SIZES) for n, e in pairs]


def guesses(*means):
    """Parity, of which 75 % need no input, with accuracies equal at all lengths."""
    pairs = zip(TOKENS.encodings, means, strict=False)
    return [cell(TOKENS, "parity", n, seeds_of(*[m] * 4))._replace(chance=0.75) for n, m in pairs]


def test_nothing_is_decided_by_ties_seeds_that_agree_or_models_that_have_not_learned():
    equal = sums(0.5, 0.5 * (1 + 1e-7), seeds=2, spread=0)  # apart by rounding, twice alike
    (pair,) = compared(equal)
    assert (pair.decided, pair.seeds) == (False, 0)
    assert "“sinusoidal” and “alibi” share the best mean, 2." in plain(summary(report(equal)))
    apart = plain(summary(report(sums(0.5, 0.6, seeds=2, spread=0))))
    assert "whether it is better than “alibi” (2.4; seeds that agree have no interval)" in apart
    assert text.task_rows(equal)[0][1] == "0.5"  # not ± 0
    assert "try" not in advice(report(equal))[0].text
    tie = plain(summary(report(tied())))
    assert "On “copy”, “NoPE (none)”, “rope” and “t5” share the best mean, 33 %" in tie
    assert "decided:" not in tie
    for unlearned in (sums(1.01, 1.5), guesses(0.75, 0.7), sums(1.1, 1.2, seeds=1)):
        assert not any(x.learned for x in unlearned)
        assert compared(unlearned) == ()
        assert "has learned" in advice(report(unlearned))[0].text
        assert "try" not in advice(report(unlearned))[0].text
        assert not leaders(unlearned).sure
    some = guesses(0.75, 0.9, 0.8)
    assert [x.learned for x in some] == [False, True, True]
    assert [(x.best, x.encoding, x.decided) for x in compared(some)] == [("rope", "t5", True)]
    said = plain(summary(report(some)))
    assert said.endswith("not learned at T (75 % needs no input): “NoPE (none)”.")
    assert "try “rope” first." in advice(report(some))[0].text


def test_no_encoding_is_never_a_bare_none(tmp_path):
    case = report(tokens())
    html = write(case, tmp_path).read_text()
    html = re.sub(r"<nav.*?</nav>", "", html, flags=re.S)
    table = html[html.index("Findings") : html.index("What the words mean")]
    assert re.findall(r"(?<!\()\bnone\b", table.replace("NoPE (none)", "")) == []
    settings = html[html.index("How it was computed") :].replace("NoPE (none)", "")
    assert "none" not in settings.lower()
    assert json_of(case)["cells"][0]["encoding"] == "none"  # the name to pass
    axis = drawn.ranks_figure(case).axes[0]
    assert "NoPE (none)" in [label.get_text() for label in axis.get_yticklabels()]


def test_intervals_of_shares_stay_there():
    near = [cell(TOKENS, "copy", n, [[0.9, 0.99, 1, 0]] * 2 + [[1, 0.2, 1, 0.01]]) for n in "ab"]
    for x in near:
        for found in x.summary.values():
            assert (found.low >= 0).all()
            assert (found.high <= 1).all()
            assert (found.low <= found.mean).all()
            assert (found.mean <= found.high).all()
