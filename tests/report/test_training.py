"""The pages of runs and of their comparison: numbers of the log, and commands that can be run."""

import math
import shlex

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.analysis.comparison import compare_runs
from jaxpe.analysis.training_run import read_run
from jaxpe.report import draw, page
from tests.analysis.runs import make_run
from tests.analysis.test_comparison import of_seeds, pair

LOSSES = {0: 8.0, 6: 5.2, 8: 5.1}


def shown(folder, losses=LOSSES, **changes):
    return page(read_run(make_run(folder / "a", losses, **changes)))


def test_cards_curves_and_rows_are_of_the_log(tmp_path):
    found = shown(tmp_path)
    loss, perplexity, trend, parameters = found.lead
    assert (loss.value, loss.reference, parameters.value) == (5.1, 8.0, 1234)
    assert (perplexity.value, perplexity.reference) == (math.exp(5.1), math.exp(8.0))
    assert (trend.value, trend.reference) == pytest.approx((-0.1, 2.9))
    _, _, held_out = draw(found.figures[0]).axes[0].lines
    np.testing.assert_array_equal(held_out.get_xydata(), [*LOSSES.items()])
    probe = {
        "first": {"occupied/violation_rate": 0.25, "occupied/stress": 3.0},
        "last": {"occupied/violation_rate": 0.5, "occupied/stress": 2.0},
    }
    classes = shown(tmp_path / "classes", task="classify", summary={"probe": probe})
    assert (classes.lead[1].value, classes.lead[1].unit) == (0.5, "share")
    rows = {name: [x.replace("\N{NO-BREAK SPACE}", " ") for x in cells]
            for name, *cells in classes.tables[0].rows}  # fmt: skip
    assert "perplexity" not in rows
    assert rows["loss, nats"] == ["8", "5.1", "5.1"]
    assert rows["violation rate"] == ["25 %", "", "50 %"]
    assert rows["raw stress, Eq. (4)"] == ["3", "", "2"]


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        (LOSSES, "falling"),
        ({0: 8.0, 6: 5.101, 8: 5.1}, "level"),
        ({0: 8.0, 4: 5.0, 8: 5.2}, "rising"),
        ({0: 8.0, 8: 5.2}, "not judged"),
    ],
)
def test_longer_training_is_advised_first_where_it_helps(tmp_path, losses, verdict):
    found = shown(tmp_path, losses)
    assert found.lead[2].verdict == verdict
    assert ("--resume" in found.steps[0].paste) == (verdict in ("falling", "not judged"))


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
    with pytest.raises(InputError, match="resume"):
        shown(tmp_path / "c", finished=False)


def test_a_lead_is_decided_above_0(tmp_path):
    runs = of_seeds(tmp_path, "a", [1.0, 1.3]), of_seeds(tmp_path, "b", [1.2, 1.4], encoding="rope")
    found = compare_runs([*runs[0], *runs[1]])
    first, second = found.groups
    for half, decided in ((0.11, False), (0.09, True)):
        behind = second.behind._replace(mean=0.1, half=half)
        *losses, lead = page(found._replace(groups=(first, second._replace(behind=behind)))).lead
        assert lead.verdict == ("significant" if decided else "not significant")
        assert (lead.value, lead.low, lead.high) == (0.1, 0.1 - half, 0.1 + half)
        assert [loss.value for loss in losses] == [first.loss.mean, second.loss.mean]
        more = lead.paste.endswith("a0-init-2 " + str(tmp_path / "b0-init-2"))  # a third seed
        assert more == (not decided)


def test_a_table_has_every_run_and_the_curves(tmp_path):
    found = page(compare_runs(pair(tmp_path, encoding="rope", finished=False)))
    table, settings = found.tables
    assert [row[:4] for row in table.rows] == [["a", "1.2000", "1.2000", "8"],
                                               ["b", "1.2000", "1.2000", "8"]]  # fmt: skip
    assert [row[-2:] for row in table.rows] == [["1,234", "61 seconds"], ["–", "–"]]
    assert settings.rows[0] == ("encoding", "learned", "rope")
    lines = draw(found.figures[0]).axes[0].lines
    np.testing.assert_array_equal(lines[0].get_ydata(), [2.0, 1.5, 1.2])
    assert found.lead[-1].verdict == "not judged"  # of one seed
    same = page(compare_runs(of_seeds(tmp_path, "c", [1.0, 1.2])))
    assert (len(same.lead), same.steps) == (1, [])
