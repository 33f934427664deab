"""A benchmark: verdicts of known truth, parts and their merge, resuming, the page."""

import dataclasses
import json
import sys

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT
from jaxpe._core.results import result_files
from jaxpe.analysis import load_result
from jaxpe.analysis.bench import (
    BenchOptions,
    BenchResult,
    bench,
    bench_part,
    job,
    merge_parts,
    verdicts,
)
from jaxpe.analysis.extrapolation import ExtrapolationCell, SeedInterval, cells
from jaxpe.analysis.extrapolation.forecast import Forecast, ProgramSeconds
from jaxpe.analysis.extrapolation.intervals import seed_means
from jaxpe.report import write

SMALLEST = {
    "length": 2, "steps": 2, "batch": 4, "seeds": 2, "dim": 8, "heads": 2, "hidden": 8, "layers": 1,
    "rates": (1e-2,), "tests": 8,
}  # fmt: skip
OPTIONS = BenchOptions(encoding="alibi", against=("none",), tasks=("copy",))


def cell(task, encoding, accuracies):
    """A cell of accuracies `[seeds, lengths]`."""
    scores = {"accuracy": np.asarray(accuracies)}
    return ExtrapolationCell(
        "bench", task, encoding, "accuracy", (4, 8, 16), scores, seed_means(scores, tests=100),
        np.ones(3, bool), 1e-2, (1e-2,), np.ones(1), np.ones(len(accuracies)), {}, 100, 0.1,
    )  # fmt: skip


def drawn(rng, means, seeds=4):
    """Cells of three tasks, of encodings whose seeds scatter around known means beyond T."""
    return [
        cell(task, name, rng.binomial(100, np.clip(rng.normal(
            [0.9, mean, mean], 0.05, (seeds, 3)), 0, 1)) / 100)
        for task in ("copy", "reverse", "sort") for name, mean in means.items()
    ]  # fmt: skip


def test_verdicts_on_equal_encodings_hold_jointly_and_find_what_differs():
    rng, equal = np.random.default_rng(0), dict.fromkeys(("mine", "a", "b", "c"), 0.6)
    families = [verdicts(drawn(rng, equal), "mine") for _ in range(80)]
    wrong = sum(any(x.verdict in ("better", "worse") for x in found) for found in families)
    assert wrong <= 8  # 5 % of 80 are 4; 8 and fewer have a probability of 98 %
    assert {len(found) for found in families} == {9}
    apart = verdicts(drawn(rng, equal | {"a": 0.1, "b": 0.95}), "mine")
    said = {(x.rival, x.verdict) for x in apart}
    assert {("a", "better"), ("b", "worse")} <= said
    assert all(x.lead.low < x.lead.mean < x.lead.high for x in apart)


def test_what_is_not_learned_or_not_defined_gets_no_verdict():
    high, low = np.full((3, 3), 0.9), np.full((3, 3), 0.05)
    ends = np.array([[0.9, np.nan, np.nan]] * 3)
    mine = cell("copy", "mine", high)
    for scores, verdict in ((low, "not learned"), (ends, "undefined"), (high, "not decided")):
        (found,) = verdicts([mine, cell("copy", "a", scores)], "mine")
        assert (found.verdict, np.isnan(found.lead.mean)) == (verdict, verdict != "not decided")
    near = high - np.array([[0.1], [0.0], [0.05]])  # more seeds would decide, whoever is judged
    ((one,), (other,)) = (verdicts([mine, cell("copy", "a", near)], x) for x in ("mine", "a"))
    assert (one.verdict, one.lead.mean) == ("not decided", -other.lead.mean)
    assert one.seeds == other.seeds > 3
    (one_seed,) = verdicts([cell("copy", "mine", high[:1]), cell("copy", "a", low[:1] + 0.1)], "a")
    assert one_seed.verdict == "not decided"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (5e-324, 0.2, "better"),
        (0.0, 0.2, "not decided"),
        (-0.2, 0.0, "not decided"),
        (-0.2, -5e-324, "worse"),
    ],
)
def test_an_interval_that_ends_at_0_decides_nothing(low, high, verdict, monkeypatch):
    lead = SeedInterval(*map(np.array, (0.1, low, high)))
    module = sys.modules["jaxpe.analysis.bench.verdicts"]  # its function hides it
    monkeypatch.setattr(module, "lead_interval", lambda *_, **__: lead)
    pair = [cell("copy", name, np.full((2, 3), 0.9)) for name in ("mine", "a")]
    assert verdicts(pair, "mine")[0].verdict == verdict


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The smallest budget, and the result in a folder into which two parts were merged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(job.BUDGETS, "smoke", SMALLEST)
        folder = tmp_path_factory.mktemp("bench")
        parts = [folder / "a", folder / "b"]
        assert [bench_part(OPTIONS, out, part=(n, 2)) for n, out in enumerate(parts, 1)] == [1, 1]
        merge_parts(OPTIONS, parts[::-1], folder / "whole")
        with pytest.MonkeyPatch.context() as trained:
            trained.setattr(cells, "trainer", None)  # from here on nothing is trained
            found = bench(OPTIONS, folder / "whole")
        yield folder / "whole", found


def without_times(result):
    return result_files(result._replace(measures=()), "bench")


def test_an_interrupted_run_trains_only_what_is_not_there(small, tmp_path, monkeypatch):
    """It is the whole that merged parts are, too."""
    out, found = small
    trained = []
    for path in (path for path in out.iterdir() if path.is_file()):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for path in tmp_path.glob("*-copy-alibi*"):
        path.unlink()
    trainer = cells.trainer
    monkeypatch.setattr(cells, "trainer", lambda *args: trained.append(1) or trainer(*args))
    again = bench(OPTIONS, tmp_path)
    assert trained == [1]
    assert again.measures == found.measures
    assert without_times(again) == without_times(found)


def test_merged_parts_are_the_whole(small, tmp_path):
    assert without_times(bench(OPTIONS, tmp_path)) == without_times(small[1])


def test_parts_that_are_missing_are_named(small, tmp_path):
    first = small[0].with_name("a")
    with pytest.raises(InputError, match=r"part 2/2 lacks 1 cell: .*--part 2/2 --out part-2"):
        merge_parts(OPTIONS, [first], tmp_path / "whole")
    with pytest.raises(InputError, match="`part` is 3/2"):
        bench_part(OPTIONS, first, part=(3, 2))


def test_the_page_and_the_tables_are_of_the_result(small, tmp_path):
    _, found = small
    fast = tuple(row._replace(token_seconds=2.5e-6) for row in found.measures)
    page = write(found._replace(measures=fast), tmp_path).read_text()
    rows = (tmp_path / "tables" / "scores.csv").read_text().splitlines()
    assert rows[0] == "encoding,task,length,mean,low,high,seeds"
    first = found.cells[0].scores["accuracy"][:, 0].mean()
    assert [len(rows), float(rows[1].split(",")[3])] == [7, pytest.approx(first, abs=1e-6)]
    table = (tmp_path / "tables" / "accuracy-beyond-t-in-beside-cost.csv").read_text()
    assert table.splitlines()[0] == "encoding,time,MiB,params,stress,copy"
    assert [line.split(",")[0] for line in table.splitlines()[1:]] == ["alibi", "NoPE"]
    properties = (tmp_path / "tables" / "properties.csv").read_text().splitlines()
    ends = [line.rpartition(",")[2] for line in properties]
    assert ends == ["µs/token", "2.5", "2.5"]
    assert page.count("data:image/svg+xml") == 1
    assert "jaxpe bench alibi --against none --budget small --tasks copy" in page
    assert load_result(BenchResult, tmp_path / "bench.json").verdicts[0].task == "copy"


def test_tasks_of_numbers_are_refused():
    with pytest.raises(InputError, match=r"`tasks`: running_sum have no accuracy"):
        bench(dataclasses.replace(OPTIONS, tasks=("running_sum",)), "nowhere")
    with pytest.raises(InputError, match="`against` names no other"):
        bench(dataclasses.replace(OPTIONS, against=("alibi",)), "nowhere")


def test_the_command_computes_parts_and_says_how_to_merge_them(
    small, command, tmp_path, monkeypatch
):
    out, _ = small
    words = ("bench", "alibi", "--against", "none", "--tasks", "copy")
    code, printed, err = command(*words, "--out", out)
    assert code == 0, err
    assert "accuracy" in printed.lower()
    assert json.loads((out / "bench.json").read_text())["options"]["budget"] == "smoke"
    part = tmp_path / "own"
    monkeypatch.setattr("jaxpe.cli.bench.bench_part", lambda *_, **__: 1)
    code, printed, err = command(*words, "--part", "1/2", "--out", part)
    assert code == 0, err
    assert f"--merge {part} part-2 --out whole" in " ".join(printed.split())
    code, printed, err = command(*words, "--part", "3", "--out", tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert "--part" in err


@pytest.mark.parametrize("steps", [100, 100_000])
def test_the_forecast_from_programs_adds_constants_and_steps(steps, tmp_path):
    """Constants of three pairs do not grow with steps; the pace counts the steps."""
    suite = dataclasses.replace(job.suite_of(OPTIONS), steps=steps, tests=1)
    suite = dataclasses.replace(suite, tasks=("copy", "sort"))
    pairs = [(suite, task, name) for task in suite.tasks for name in suite.encodings][:3]
    programs = {name: ProgramSeconds(1.0, 2.0) for name in suite.encodings}
    left = [
        Forecast(pairs, tmp_path, SILENT, programs=programs, pace=pace).left()
        for pace in (0.0, 1e-9, 2e-9)
    ]
    assert left[2] - left[1] == pytest.approx(left[1] - left[0])
    assert 20 < left[0] < 60
