"""Every command once, in this process, with its real arguments on a tiny input.

It ends with 0 and leaves the files that it promises; its page shows what the saved result holds.
`make test-minimum` runs this with the lowest versions of everything.
"""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

from jaxpe import theory
from jaxpe._core.errors import InputError
from jaxpe._core.results import load_result, result_files
from jaxpe.analysis.audit import AuditResult
from jaxpe.analysis.corpus import CorpusResult
from jaxpe.analysis.corpus.vectors import scored_entries
from jaxpe.analysis.counts import CountOptions, count, read_counts
from jaxpe.analysis.extrapolation import ExtrapolationResult
from jaxpe.analysis.inspect import InspectOptions, inspect_model
from jaxpe.analysis.inspect.job import STAGES
from jaxpe.analysis.subject import SubjectOptions, read_subject
from jaxpe.cli.commands import COMMANDS, load
from jaxpe.report import page
from jaxpe.report.writing import table_files
from jaxpe.training import load_run
from tests.analysis.inspect.folders import text, with_tokenizer
from tests.analysis.runs import make_run

COUNT = {"length": 6, "folds": 8, "nulls": 0}


class Words(NamedTuple):
    """Words of a command line, the files that it promises, and the type of its result."""

    words: str
    files: tuple[str, ...] = ()
    result: str = ""


LINES = {
    "report": Words(
        "{films} --dim 4 --splits 2",
        ("report.html", "encoding.npz", "figures/shares.svg", "findings.csv", "methods.tex"),
        "jaxpe.analysis.corpus:CorpusResult",
    ),
    "audit": Words(
        "{films} --examples 16 --length 6 --steps 4",
        ("audit.html", "figures/kernel.svg"),
        "jaxpe.analysis.audit:AuditResult",
    ),
    "inspect": Words(
        "{there}/model {there}/text.txt --quick --length 16 --examples 8",
        ("inspect.html", "figures/heads.svg"),
        "jaxpe.analysis.inspect:InspectResult",
    ),
    "extrapolate": Words(
        "--tasks parity --encodings mine_66:halved none --seeds 2 --steps 2 --length 3 "
        "--factors 1 2 --batch 4 --tests 4 --dim 8 --heads 1 --layers 1 --rates 0.001",
        ("extrapolation.html", "figures/lengths.svg"),
        "jaxpe.analysis.extrapolation:ExtrapolationResult",
    ),
    "rope": Words(
        "{there}/config.json --length 128k",
        ("rope.html", "figures/wavelengths.svg"),
        "jaxpe.plans:RopeAnalysis",
    ),
    "compare": Words(
        "{there}/many {there}/few --mds-dim 2 --permutations 39",
        ("corpora.html", "figures/configurations.svg"),
        "jaxpe.analysis.corpora:CorporaComparison",
    ),
    "compare runs": Words(
        "{there}/a {there}/b --figures png --style paper",
        ("comparison.html", "figures/losses.svg", "figures/losses.png"),
        "jaxpe.analysis.comparison:RunComparison",
    ),
    "train": Words(
        "{films} --encoding none --model.dim 8 --model.layers 1 --model.heads 2 --length 8 "
        "--steps 2",
        ("train.html", "config.json", "summary.json", "figures/curves.png"),
    ),
    "golden": Words("{there}/config.json", ("golden.json", "golden.npz")),
    "count": Words(
        "{films} --length 6 --folds 8 --nulls 2 --tokenizer bytes --bins 3", ("counts.npz",)
    ),
    "merge": Words("{there}/many {there}/few --weights 2 1", ("counts.npz",)),
    "encodings": Words("rope t5 --about overview --dim 16 --heads 2 --head-dim 8 --form json"),
    "batch": Words("{there}/batch.npz --longest 8k --json --junit {there}/junit.xml"),
}


@pytest.fixture(scope="module")
def there(films, tmp_path_factory) -> Path:
    """Inputs: a model, its text and configuration, a batch, counts, and folders of two runs."""
    folder = tmp_path_factory.mktemp("there")
    with_tokenizer("tiny_llama", folder / "model")
    text(folder / "text.txt")
    own = "return jaxpe.encodings.alibi(num_heads=sizes.num_heads, slopes=0.5)"
    (folder / "mine_66.py").write_text(f"import jaxpe\n\ndef halved(sizes):\n    {own}\n")
    shutil.copy(folder / "model" / "config.json", folder)
    np.savez(folder / "batch.npz", position_ids=[[0, 1, 2, 0, 1]], segment_ids=[[1, 1, 1, 2, 2]])
    lines = films.read_text().splitlines()
    for name, rows in (("many", lines[41:]), ("few", lines[1:41])):
        (folder / f"{name}.txt").write_text("\n".join(line.split("\t")[1] for line in rows))
        count(CountOptions(sources=(str(folder / f"{name}.txt"),), **COUNT), folder / name)
    for name, encoding in (("a", "rope"), ("b", "alibi")):
        make_run(folder / name, {0: 2.0, 4: 1.5}, encoding=encoding)
    return folder


def test_no_command_is_missing():
    assert {name.split()[0] for name in LINES} == COMMANDS.keys()


@pytest.mark.parametrize("name", LINES)
def test_a_command_leaves_what_it_promises(command, films, there, tmp_path, monkeypatch, name):
    monkeypatch.chdir(there)  # where a module of one's own is
    monkeypatch.setattr(sys, "path", list(sys.path))
    out, (words, files, kind) = tmp_path / "out", LINES[name]
    words = words.format(films=films, there=there).split()
    code, printed, errors = command(name.split()[0], *words, *(["--out", out] * bool(files)))
    assert code == 0, errors
    assert [path for path in files if not (out / path).is_file()] == []
    if kind:
        (file,) = (path.with_suffix(".json") for path in out.glob("*.html"))
        assert f"Page: {out}/{file.stem}.html" in printed.replace("\n", "")
        found = load_result(load(kind), file)
        saved = result_files(found, file.stem)
        assert json.loads(saved.pop(file.name)) == json.loads(file.read_text())
        assert all((out / path).read_bytes() == content for path, content in saved.items())
        for path, content in table_files(page(found)).items():
            written = (out / path).read_text("utf-8")
            assert re.sub(r"\.0\b", "", written) == re.sub(r"\.0\b", "", content)
        assert f"jaxpe {name.split()[0]} {words[0]}" in (out / "methods.md").read_text()
    if name in CHECKS:
        CHECKS[name](out, printed, there)


def check_report(out, printed, there):
    """Rows of all encodings of the catalogue."""
    found = load_result(CorpusResult, out / "report.json")
    n, rows = found.facts.length, {row.name: row for row in found.encodings}
    maps = {entry.name: entry.vectors for entry in scored_entries()}
    assert [*rows] == ["mds", *maps]
    for name, row in rows.items():
        assert row.note.startswith(maps.get(name, "")), name
        assert row.dim == (1 if name in ("alibi", "log_position") else 4)
        assert 0 <= row.scaled_stress <= 1
        assert row.distances.shape == (n, n)
        assert row.parameters == 0 or not row.fixed
    assert rows["learned"].parameters == 4 * n
    drawn = [name for name, row in rows.items() if "8 draws" in row.note]
    assert drawn == ["learned", "random", "fourier", "low_rank"]
    np.testing.assert_allclose(rows["rope"].distances, rows["sinusoidal"].distances, atol=1e-5)
    assert rows["alibi"].distances[0, 1] == pytest.approx(1)  # the slope of a head is a scale


def check_audit(out, printed, there):
    """What must come out whatever the corpus: softmax ignores a shift; α is E[g gᵀ]."""
    report = json.loads((out / "audit.json").read_text())
    found = load_result(AuditResult, out / "audit.json")
    by_name = {entry["name"]: entry for entry in report["statements"]}
    assert [*by_name] == [statement.name for statement in theory.STATEMENTS]
    for name, entry in by_name.items():
        # What is said to hold instead does, on every model.
        assert all(sides["holds"] for sides in entry["instead"].values()), name
        failed = [k for k, sides in entry["conclusions"].items() if not sides["holds"]]
        assert all(conclusion in entry["verdict"] for conclusion in failed)
    # No kernel is positive definite and an increasing function of d_H.
    vacuous = {name for name, entry in by_name.items() if entry["status"] == "vacuous"}
    assert vacuous == {"Lemma 18", "Remark 20"}
    assert not by_name["Lemma 18"]["hypotheses"]["A1 diagonal"]["holds"]
    assert by_name["Theorem 1"]["verdict"] == "holds"
    assert by_name["Corollary 15"]["unchecked"] == ["positional frequencies"]
    for name in ("Lemma 11", "Lemma 12"):  # the model classifies
        assert not by_name[name]["hypotheses"]["masked loss"]["holds"]
    training, kernel = found.training, found.kernel
    assert len(training.losses) == 5
    assert training.losses[-1] < training.losses[0]
    assert training.output_distance[0] == 0
    order = np.argsort(kernel.distances)
    assert len(order) == len(kernel.alpha) == len(kernel.bound) == 15
    for fit, sign in ((kernel.increasing, 1), (kernel.decreasing, -1)):
        assert (sign * np.diff(fit[order]) >= 0).all()


def check_extrapolation(out, printed, there):
    found = load_result(ExtrapolationResult, out / "extrapolation.json")
    scores = np.array([cell.scores["accuracy"] for cell in found.cells])
    assert ((scores >= 0) & (scores <= 1)).all()
    assert [x.first for x in found.comparisons()] == ["mine_66:halved"]
    assert [cost.parameters for cost in found.costs] == [0, 0]
    assert found.costs[1].relative_time == 1


def check_corpora(out, printed, there):
    (pair,) = json.loads((out / "corpora.json").read_text())["pairs"]
    assert (40 * pair["p_value"]) % 1 == pytest.approx(0, abs=1e-9)
    assert (len(pair["angles"]), pair["folds"]) == (2, 8)


def check_run(out, printed, there):
    """A run brings its documents, and is inspected on held-out ones."""
    params = jax.tree.leaves(load_run(out).params)
    assert all(bool(np.isfinite(x).all()) for x in params)
    assert printed.splitlines()[0].startswith("films.tsv: classify, 108 documents")
    options = InspectOptions(model=str(out), stages=("encoding", "loss"), examples=8)
    found = inspect_model(options)
    assert set(found.absent) == STAGES.keys() - {"encoding"}
    assert (found.facts.source, found.facts.documents) == ("films.tsv, held out", 12)
    # What it brings is not passed over in silence.
    for name, value in (("length", 64), ("task", "mlm"), ("source", "sst2")):
        with pytest.raises(InputError, match=name):
            read_subject(SubjectOptions(model=str(out), **{name: value}))


def check_count(out, printed, there):
    settings = read_counts(out).header.settings
    assert (settings.edges[-1], len(settings.edges), settings.nulls) == (6, 4, 2)


def check_merge(out, printed, there):
    many, few, both = (read_counts(x) for x in (there / "many", there / "few", out))
    columns = [both.header.tokens.index(token) for token in few.header.tokens]
    rest = both.table[..., columns] - few.table
    assert both.table.sum() == 2 * many.table.sum() + few.table.sum()
    assert (rest.min(), rest.sum() % 2) == (0, 0)


def check_encodings(out, printed, there):
    assert [row["name"] for row in json.loads(printed)["encodings"]] == ["rope", "t5"]


def check_batch(out, printed, there):
    assert json.loads(printed)["passed"] is True
    assert 'failures="0"' in (there / "junit.xml").read_text()


CHECKS = {
    "report": check_report,
    "audit": check_audit,
    "extrapolate": check_extrapolation,
    "compare": check_corpora,
    "train": check_run,
    "count": check_count,
    "merge": check_merge,
    "encodings": check_encodings,
    "batch": check_batch,
}
