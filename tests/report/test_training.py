"""The pages of runs and of their comparison: rules, numbers, and commands that can be run."""

import math
import shlex

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.analysis.comparison import compare_runs
from jaxpe.analysis.training_run import loss_trend, read_run
from jaxpe.report import draw, page
from jaxpe.report.pages.compared_runs import new_seeds
from jaxpe.report.pages.training import summary_rows
from tests.analysis.runs import make_run
from tests.analysis.test_comparison import of_seeds, pair

LOSSES = {0: 8.0, 6: 5.2, 8: 5.1}


def shown(folder, losses=LOSSES, **changes):
    return page(read_run(make_run(folder / "a", losses, **changes)))


def test_cards_are_of_the_last_evaluation_against_the_first(tmp_path):
    loss, perplexity, trend, parameters = shown(tmp_path).lead
    assert (loss.value, loss.reference, parameters.value) == (5.1, 8.0, 1234)
    assert (perplexity.value, perplexity.reference) == (math.exp(5.1), math.exp(8.0))
    assert trend.value == pytest.approx(-0.1)
    assert trend.reference == pytest.approx(2.9)
    accuracy = shown(tmp_path / "classes", task="classify").lead[1]
    assert (accuracy.value, accuracy.unit) == (0.5, "share")


@pytest.mark.parametrize(
    ("losses", "verdict", "said"),
    [
        (LOSSES, "falling", ""),
        ({0: 8.0, 6: 5.101, 8: 5.1}, "level", "higher rate"),
        ({0: 8.0, 4: 5.0, 8: 5.2}, "rising", "overfits"),
        ({0: 5.0, 4: 6.0, 8: 7.0}, "rising", "before training"),
        ({0: 8.0, 8: 5.2}, "not judged", "Too few"),
    ],
)
def test_the_verdict_is_of_the_trend_and_longer_training_comes_first_where_it_helps(
    tmp_path, losses, verdict, said
):
    found = shown(tmp_path, losses)
    assert found.lead[2].verdict == verdict
    assert said in found.lead[2].sentence
    first = found.steps[0].paste
    assert ("--resume" in first) == (verdict in ("falling", "not judged"))


def test_commands_name_folders_that_they_make_and_modules(tmp_path):
    steps = {step.name: step.paste for step in shown(tmp_path, encoding="mine:made").steps}
    out = str(tmp_path / "a")
    assert shlex.split(steps["loss after longer training"]) == [
        *("jaxpe", "train", "--encoding", "mine:made", "--steps", "16", "--out", out, "--resume"),
    ]
    train, compare = steps["worth of the encoding"].split(" && ")
    assert shlex.split(compare) == ["jaxpe", "compare", out, f"{out}-none"]
    assert shlex.split(train)[1:] == [
        *("train", "poems.txt", "--encoding", "none", "--steps", "8", "--out", f"{out}-none"),
    ]
    assert "published theorems" not in steps  # an audit does not import modules
    assert "jaxpe audit" in str(shown(tmp_path / "b").steps)


def test_a_run_that_is_not_finished_has_no_page(tmp_path):
    with pytest.raises(InputError, match="resume it first"):
        shown(tmp_path, finished=False)


def test_rows_of_a_probe_are_of_its_first_and_last_step(tmp_path):
    probe = {
        "first": {"occupied/violation_rate": 0.25, "occupied/stress": 3.0},
        "last": {"occupied/violation_rate": 0.5, "occupied/stress": 2.0},
    }
    done = read_run(make_run(tmp_path / "a", LOSSES, task="classify", summary={"probe": probe}))
    rows = {name: cells for name, *cells in summary_rows(done.summary)}
    assert "perplexity" not in rows
    assert [x.replace("\N{NO-BREAK SPACE}", " ") for x in rows["violation rate"]] == [
        "25 %", "", "50 %"
    ]  # fmt: skip
    assert rows["raw stress, Eq. (4)"] == ["3", "", "2"]


def test_curves_are_of_the_log(tmp_path):
    (curves,) = shown(tmp_path).figures
    _, _, held_out = draw(curves).axes[0].lines
    np.testing.assert_array_equal(held_out.get_xydata(), [*LOSSES.items()])


def test_a_lead_is_decided_above_0(tmp_path):
    runs = of_seeds(tmp_path, "a", [1.0, 1.3]), of_seeds(tmp_path, "b", [1.2, 1.4], encoding="rope")
    found = compare_runs([*runs[0], *runs[1]])
    first, second = found.groups
    for half, decided in ((0.1, False), (math.nextafter(0.1, 0), True)):
        behind = second.behind._replace(mean=0.1, half=half)
        changed = found._replace(groups=(first, second._replace(behind=behind)))
        *losses, lead = page(changed).lead
        assert lead.verdict == ("significant" if decided else "not significant")
        assert (lead.value, lead.low, lead.high) == (0.1, 0.1 - half, 0.1 + half)
        assert [loss.value for loss in losses] == [first.loss.mean, second.loss.mean]
        assert [x.out.name for x in new_seeds(changed)] == ["a0-init-2", "b0-init-2"]
        assert lead.paste.endswith("a0-init-2 " + str(tmp_path / "b0-init-2")) == (not decided)


def test_one_seed_is_not_judged_and_runs_of_one_configuration_neither(tmp_path):
    found = page(compare_runs(pair(tmp_path, encoding="rope")))
    assert found.lead[-1].verdict == "not judged"
    same = page(compare_runs(of_seeds(tmp_path, "c", [1.0, 1.2])))
    assert len(same.lead) == 1
    assert not same.steps


def test_a_table_has_every_run_and_the_curves(tmp_path):
    found = compare_runs(pair(tmp_path, encoding="rope", finished=False))
    table, settings = page(found).tables
    assert [row[:2] for row in table.rows] == [["a", "1.2000"], ["b", "1.2000"]]
    assert [row[-2:] for row in table.rows] == [["1,234", "61 seconds"], ["–", "–"]]
    assert settings.rows[0] == ("encoding", "learned", "rope")
    lines = draw(page(found).figures[0]).axes[0].lines
    np.testing.assert_array_equal(lines[0].get_ydata(), [2.0, 1.5, 1.2])


@pytest.mark.parametrize(
    ("losses", "rising"), [({0: 2.0, 4: 1.0, 8: 1.01}, False), ({0: 2.0, 4: 1.0, 8: 1.0102}, True)]
)
def test_a_loss_rises_above_1_percent(tmp_path, losses, rising):
    assert (loss_trend(read_run(make_run(tmp_path / "a", losses))).direction == "rising") == rising
