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


def warned(found):
    """What makes runs less comparable: names, and what it is."""
    rows = [one for section in page(found).sections for one in section.findings]
    return [(one.name, one.value) for one in rows if one.verdict == "less comparable"]


LOSSES = {0: 2.0, 4: 1.5, 8: 1.2}


def pair(folder, **changes):
    """Two runs, the second with changes."""
    return make_run(folder / "a", LOSSES), make_run(folder / "b", LOSSES, **changes)


def of_seeds(folder, name, losses, **changes):
    return [
        make_run(folder / f"{name}{k}", {0: 2.0, 4: loss}, init_seed=k, **changes)
        for k, loss in enumerate(losses)
    ]


def test_only_what_differs_is_told(tmp_path):
    found = compare_runs(pair(tmp_path, encoding="rope", learning_rate=0.01))
    assert found.settings == {"encoding": ("learned", "rope"), "learning_rate": ("0.001", "0.01")}
    assert [run.name for run in found.runs] == ["a", "b"]
    assert warned(found) == []


def test_a_value_asked_for_that_is_the_default_is_no_difference(tmp_path):
    found = compare_runs(pair(tmp_path, encoding="learned", tokenizer="words", task="causal"))
    assert found.settings == {}
    assert len(found.groups) == 1


def test_one_seed_has_no_interval(tmp_path):
    (a,), (b,) = of_seeds(tmp_path, "a", [1.2]), of_seeds(tmp_path, "b", [1.1], encoding="rope")
    found = compare_runs([a, b])
    assert [group.name for group in found.groups] == ["b0", "a0"]
    assert found.groups[1].behind.mean == pytest.approx(0.1)
    assert np.isnan(found.groups[1].behind.half)


def test_seeds_are_paired(tmp_path):
    ours, theirs = np.array([1.0, 1.3, 1.1]), np.array([1.2, 1.4, 1.35])
    runs = of_seeds(tmp_path, "a", ours), of_seeds(tmp_path, "b", theirs, encoding="rope")
    found = compare_runs([*runs[0], *runs[1]])
    first, second = found.groups
    assert (first.name, second.name, second.paired) == ("a0", "b0", True)
    interval = stats.ttest_rel(theirs, ours).confidence_interval()
    assert second.behind.mean - second.behind.half == pytest.approx(interval.low)
    assert second.behind.mean + second.behind.half == pytest.approx(interval.high)
    assert first.loss.seeds == 3


def test_the_best_of_equal_configurations_is_not_significant(tmp_path):
    """Eight of the same law, which intervals of 95 % each tell apart in two cases of five."""
    losses = np.random.default_rng(0).normal(1.2, 0.1, size=(8, 3))
    runs = [
        run
        for k, own in enumerate(losses)
        for run in of_seeds(tmp_path, f"{k}-", own, learning_rate=0.001 * (k + 1))
    ]
    found = compare_runs(runs)
    best, worst = np.argmin(losses.mean(axis=1)), np.argmax(losses.mean(axis=1))
    paired = stats.ttest_rel(losses[worst], losses[best])
    interval = paired.confidence_interval(1 - 0.05 / 28)  # of 8 · 7 / 2 pairs
    last = found.groups[-1].behind
    np.testing.assert_allclose((last.mean - last.half, last.mean + last.half), interval)
    assert last.mean - last.half < 0


def test_accuracies_are_shares_of_the_documents(tmp_path):
    """Three seeds of one accuracy, of 10 documents each."""
    runs = of_seeds(tmp_path, "a", [1.0, 1.3, 1.1], task="classify")
    (group,) = compare_runs(runs).groups
    expected = stats.binomtest(15, 30).proportion_ci(method="wilson")
    np.testing.assert_allclose(group.accuracy[1:], expected)


@pytest.mark.parametrize("shared", [0, 1])
def test_other_seeds_are_independent(tmp_path, shared):
    """Also where one of three is shared, whose difference alone has no interval."""
    ours, theirs = np.array([1.0, 1.3, 1.1]), np.array([1.2, 1.4, 1.35])
    runs = of_seeds(tmp_path, "a", ours), of_seeds(tmp_path, "b", theirs, encoding="rope", seed=7)
    if shared:
        runs[1][0] = of_seeds(tmp_path, "c", theirs[:1], encoding="rope")[0]
    found = compare_runs([*runs[0], *runs[1]])
    second = found.groups[1]
    assert not second.paired
    interval = stats.ttest_ind(theirs, ours, equal_var=False).confidence_interval()
    assert second.behind.mean - second.behind.half == pytest.approx(interval.low)


def test_runs_of_different_lengths_meet_at_their_last_common_step(tmp_path):
    a = make_run(tmp_path / "a", {0: 2.0, 4: 1.5, 8: 1.2})
    b = make_run(tmp_path / "b", {0: 2.0, 4: 1.4, 6: 1.3})
    found = compare_runs([a, b])
    assert found.step == 4
    assert [run.at(found.step).loss for run in found.runs] == [1.5, 1.4]
    assert ("all runs", "`steps`") in warned(found)
    c = make_run(tmp_path / "c", {0: 2.0, 3: 1.4})
    assert compare_runs([a, c]).step is None


def test_a_run_that_was_stopped_is_compared_and_told_of(tmp_path):
    found = compare_runs(pair(tmp_path, finished=False))
    assert [run.summary is None for run in found.runs] == [False, True]
    assert warned(found) == [("b", "stopped at step 8")]


def test_an_extended_run_is_told_of_and_is_another_configuration(tmp_path):
    found = compare_runs(pair(tmp_path, summary={"extended_after": 4}))
    assert warned(found) == [("b", "extended at step 4")]
    assert len(found.groups) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "mlm"}, "different tasks (causal and mlm)"),
        ({"tokens": (*WORDS, "c")}, "different vocabularies (3 tokens and 4 tokens)"),
        ({"documents": 2}, "different content"),
        ({"documents": 2, "source": "letters.txt"}, "different corpora (poems.txt and letters"),
    ],
)
def test_losses_that_do_not_compare_are_refused(tmp_path, changes, message):
    with pytest.raises(InputError) as caught:
        compare_runs(pair(tmp_path, **changes))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"documents": 2, "length": 32}, "`length`"),
        ({"documents": 2, "seed": 1, "encoding": "rope"}, "`seed`"),
        ({"evaluate_rows": 5}, "`evaluate_rows`"),
    ],
)
def test_what_makes_them_less_comparable_is_told(tmp_path, changes, said):
    ((_, what),) = warned(compare_runs(pair(tmp_path, **changes)))
    assert what == said


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
    assert warned(compare_runs([runs[0], runs[1]])) == []  # one configuration
    other = {"encoding": "t5", "seed": 5, "documents": 5}
    unpaired = make_run(tmp_path / "c", {0: 2.0, 4: 1.3}, **other)
    assert [what for _, what in warned(compare_runs([*runs[2:], unpaired]))] == ["`seed`"]


def test_classifiers_of_different_tokenizers_compare(tmp_path):
    a = make_run(tmp_path / "a", LOSSES, task="classify")
    changes = {"tokens": ("x",), "documents": 2, "tokenizer": "bytes"}
    found = compare_runs([a, make_run(tmp_path / "b", LOSSES, task="classify", **changes)])
    assert [what for _, what in warned(found)] == ["`tokenizer`"]


def test_folders_that_cannot_be_compared(tmp_path):
    a = make_run(tmp_path / "a", LOSSES)
    begun = make_run(tmp_path / "begun", LOSSES)
    (begun / "log.jsonl").write_text('{"step": 0, "eval/loss": 2.0}\n')
    for runs, message in (
        ([a], "pass two folders"),
        ([a, a], "there twice"),
        ([a, tmp_path / "nowhere"], "nowhere holds no run"),
        ([a, begun], "no evaluation after a training step"),
    ):
        with pytest.raises(InputError, match=message):
            compare_runs(runs)


def test_names_are_as_long_as_they_must_be(tmp_path):
    runs = [make_run(tmp_path / where / "run", LOSSES) for where in ("x", "y")]
    assert [run.name for run in compare_runs(runs).runs] == ["x/run", "y/run"]


def test_the_file_reads_back(tmp_path):
    found = compare_runs(pair(tmp_path, encoding="rope", finished=False))
    saved = load_result(RunComparison, write(found, tmp_path / "out").with_suffix(".json"))
    assert (saved.settings, saved.groups[0].name) == (found.settings, found.groups[0].name)
    np.testing.assert_array_equal(saved.runs[1].held_out, found.runs[1].held_out)


@pytest.mark.parametrize(
    ("losses", "direction"),
    [
        ({0: 8.0, 6: 5.2, 8: 5.1}, "falling"),
        ({0: 8.0, 6: 5.101, 8: 5.1}, "level"),
        ({0: 8.0, 4: 5.0, 8: 5.2}, "rising"),
        ({0: 0.7, 6: 0.66, 8: 0.655}, "falling"),  # less than 1 %, and a tenth of its fall
        ({0: 8.0, 8: 5.2}, "unknown"),
        ({0: 200.0, 6: 101.0, 8: 100.0}, "level"),  # by 1 % of itself, and no more
        ({0: 120.0, 6: 101.0, 8: 100.0}, "level"),  # by 1 of 20, which are 5 %
        ({0: 200.0, 4: 99.0, 6: 100.0, 8: 100.0}, "level"),  # 1 % above its least
        ({0: 200.0, 4: 98.5, 6: 100.0, 8: 100.0}, "rising"),
        ({0: 110.0, 6: 100.75, 8: 100.0}, "falling"),  # less than 1 %, more than 5 % of its fall
    ],
)
def test_where_a_loss_goes(tmp_path, losses, direction):
    run = read_run(make_run(tmp_path / "a", losses))
    assert loss_trend(run).direction == direction


def test_what_was_chosen_is_told_with_its_origin(tmp_path):
    run = read_run(make_run(tmp_path / "a", LOSSES, length=32))
    found = choices(run.config, run.vocabulary.task)
    assert found["length"] == ("32", "asked for")
    assert found["model.dim"] == ("128", "default")
    assert found["task"].value == "causal"
    assert found["model.hidden"] == ("512", "4 times model.dim")
    assert "pretrained" not in found


def test_a_run_of_a_module_that_is_not_imported_can_be_looked_at(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # of another test
    folder = make_run(tmp_path / "a", LOSSES, encoding="mine:made")
    with pytest.raises(InputError, match="import mine first"):
        load_config(folder)
    assert json.loads((folder / "config.json").read_text())["encoding"] == "mine:made"
    assert choices(read_run(folder).config, "causal")["encoding"].value == "mine:made"
