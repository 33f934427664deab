"""Runs held against each other: what is refused, what is warned of, and intervals over seeds."""

import json
import sys

import numpy as np
import pytest
from scipy import stats

from jaxpe._core.errors import InputError
from jaxpe.analysis import load_result
from jaxpe.analysis.comparison import RunComparison, compare_runs
from jaxpe.analysis.training_run import choices, loss_trend, read_run
from jaxpe.report import page, write
from jaxpe.training.config import load_config
from tests.analysis.runs import WORDS, make_run

LOSSES = {0: 2.0, 4: 1.5, 8: 1.2}


def warned(found):
    """What makes runs less comparable: names, and what it is."""
    rows = [one for section in page(found).sections for one in section.findings]
    return [(one.name, one.value) for one in rows if one.verdict == "less comparable"]


def pair(folder, **changes):
    """Two runs, the second with changes."""
    return make_run(folder / "a", LOSSES), make_run(folder / "b", LOSSES, **changes)


def of_seeds(folder, name, losses, **changes):
    return [
        make_run(folder / f"{name}{k}", {0: 2.0, 4: loss}, init_seed=k, **changes)
        for k, loss in enumerate(losses)
    ]


def test_only_what_differs_is_told_and_the_file_reads_back(tmp_path):
    found = compare_runs(pair(tmp_path, encoding="rope", learning_rate=0.01, task="causal"))
    assert found.settings == {"encoding": ("learned", "rope"), "learning_rate": ("0.001", "0.01")}
    assert [run.name for run in found.runs] == ["a", "b"]
    assert warned(found) == []
    saved = load_result(RunComparison, write(found, tmp_path / "out").with_suffix(".json"))
    assert (saved.settings, saved.groups[0].name) == (found.settings, found.groups[0].name)
    np.testing.assert_array_equal(saved.runs[1].held_out, found.runs[1].held_out)
    (a,), (b,) = of_seeds(tmp_path, "c", [1.2]), of_seeds(tmp_path, "d", [1.1], encoding="rope")
    first, second = compare_runs([a, b]).groups
    assert (first.name, second.name) == ("d0", "c0")
    assert second.behind.mean == pytest.approx(0.1)
    assert np.isnan(second.behind.half)  # one seed has no interval


@pytest.mark.parametrize("shared", [0, 1, 3])
def test_seeds_are_paired_and_other_seeds_independent(tmp_path, shared):
    """Also where one of three is shared, whose difference alone has no interval."""
    ours, theirs = np.array([1.0, 1.3, 1.1]), np.array([1.2, 1.4, 1.35])
    seed = {} if shared == 3 else {"seed": 7}
    runs = of_seeds(tmp_path, "a", ours), of_seeds(tmp_path, "b", theirs, encoding="rope", **seed)
    if shared == 1:
        runs[1][0] = of_seeds(tmp_path, "c", theirs[:1], encoding="rope")[0]
    first, second = compare_runs([*runs[0], *runs[1]]).groups
    assert (first.name, first.loss.seeds, second.paired) == ("a0", 3, shared == 3)
    test = stats.ttest_rel(theirs, ours) if shared == 3 else stats.ttest_ind(
        theirs, ours, equal_var=False
    )  # fmt: skip
    ends = second.behind.mean - second.behind.half, second.behind.mean + second.behind.half
    np.testing.assert_allclose(ends, test.confidence_interval())


def test_the_best_of_equal_configurations_is_not_significant(tmp_path):
    """Eight of the same law, which intervals of 95 % each tell apart in two cases of five."""
    losses = np.random.default_rng(0).normal(1.2, 0.1, size=(8, 3))
    runs = [
        run
        for k, own in enumerate(losses)
        for run in of_seeds(tmp_path, f"{k}-", own, learning_rate=0.001 * (k + 1))
    ]
    last = compare_runs(runs).groups[-1].behind
    best, worst = np.argmin(losses.mean(axis=1)), np.argmax(losses.mean(axis=1))
    paired = stats.ttest_rel(losses[worst], losses[best])
    interval = paired.confidence_interval(1 - 0.05 / 28)  # of 8 · 7 / 2 pairs
    np.testing.assert_allclose((last.mean - last.half, last.mean + last.half), interval)
    assert last.mean - last.half < 0


def test_accuracies_are_shares_of_the_documents_evaluated(tmp_path):
    """Three seeds of one accuracy, of 10 documents each; drawing 10 or more of 10 is all."""
    runs = of_seeds(tmp_path, "a", [1.0, 1.3, 1.1], task="classify")
    (group,) = compare_runs(runs).groups
    expected = stats.binomtest(15, 30).proportion_ci(method="wilson")
    np.testing.assert_allclose(group.accuracy[1:], expected)
    drawn = [make_run(tmp_path / str(k), LOSSES, evaluate_rows=k) for k in (10, 11, 9)]
    found = [(run.drawn, run.evaluated) for run in compare_runs(drawn).runs]
    assert found == [(None, 10), (None, 10), (9, 9)]


def test_runs_of_different_lengths_meet_at_their_last_common_step(tmp_path):
    a = make_run(tmp_path / "a", {0: 2.0, 4: 1.5, 8: 1.2})
    b = make_run(tmp_path / "b", {0: 2.0, 4: 1.4, 6: 1.3})
    found = compare_runs([a, b])
    assert found.step == 4
    assert [run.at(found.step).loss for run in found.runs] == [1.5, 1.4]
    assert ("all runs", "`steps`") in warned(found)
    assert compare_runs([a, make_run(tmp_path / "c", {0: 2.0, 3: 1.4})]).step is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "mlm"}, "tasks"),
        ({"tokens": (*WORDS, "c")}, "vocabularies"),
        ({"documents": 2}, "content"),
        ({"documents": 2, "source": "letters.txt"}, "corpora"),
    ],
)
def test_losses_that_do_not_compare_are_refused(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        compare_runs(pair(tmp_path, **changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"documents": 2, "length": 32}, "`length`"),
        ({"documents": 2, "seed": 1, "encoding": "rope"}, "`seed`"),
        ({"evaluate_rows": 5}, "`evaluate_rows`"),
        ({"finished": False}, "stopped at step 8"),
        ({"summary": {"extended_after": 4}}, "extended at step 4"),
    ],
)
def test_what_makes_them_less_comparable_is_told(tmp_path, changes, said):
    found = compare_runs(pair(tmp_path, **changes))
    assert [what for _, what in warned(found)] == [said]


def test_seeds_that_hold_out_other_documents_are_repeats_and_no_fault(tmp_path):
    # As the documentation tells: several encodings, each from several seeds.
    runs = [
        make_run(
            tmp_path / f"{name}{k}", {0: 2.0, 4: loss + k / 10}, encoding=name, seed=k, documents=k
        )
        for name, loss in (("alibi", 1.2), ("rope", 1.1))
        for k in range(2)
    ]
    found = compare_runs(runs)
    assert warned(found) == []
    assert found.groups[1].paired
    unpaired = make_run(tmp_path / "c", {0: 2.0, 4: 1.3}, encoding="t5", seed=5, documents=5)
    assert [what for _, what in warned(compare_runs([*runs[2:], unpaired]))] == ["`seed`"]


@pytest.mark.parametrize(
    ("losses", "direction"),
    [
        ({0: 8.0, 6: 5.2, 8: 5.1}, "falling"),
        ({0: 8.0, 6: 5.101, 8: 5.1}, "level"),
        ({0: 8.0, 4: 5.0, 8: 5.2}, "rising"),
        ({0: 0.7, 6: 0.66, 8: 0.655}, "falling"),  # less than 1 %, and a tenth of its fall
        ({0: 8.0, 8: 5.2}, "unknown"),
        ({0: 200.0, 4: 98.5, 6: 100.0, 8: 100.0}, "rising"),  # more than 1 % above its least
    ],
)
def test_where_a_loss_goes(tmp_path, losses, direction):
    run = read_run(make_run(tmp_path / "a", losses))
    assert loss_trend(run).direction == direction


def test_what_was_chosen_is_told_with_its_origin(tmp_path):
    run = read_run(make_run(tmp_path / "a", LOSSES, length=32))
    found = choices(run.config, run.vocabulary.task)
    assert (found["length"], found["model.dim"]) == (("32", "asked for"), ("128", "default"))
    assert found["model.hidden"].value == "512"


def test_a_run_of_a_module_that_is_not_imported_can_be_looked_at(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # of another test
    folder = make_run(tmp_path / "a", LOSSES, encoding="mine:made")
    with pytest.raises(InputError, match="import mine"):
        load_config(folder)
    assert json.loads((folder / "config.json").read_text())["encoding"] == "mine:made"
    assert choices(read_run(folder).config, "causal")["encoding"].value == "mine:made"
