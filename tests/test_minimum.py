"""What `make test-minimum` runs beside the geometry: every module, and every command once.

Nothing here is about versions but the first test; the rest shows what the lowest ones cannot do.
"""

import importlib
import json
import os
import pkgutil
import re
import tomllib
from itertools import chain
from pathlib import Path

import jax
import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import jaxpe
from jaxpe.analysis.counts import read_counts
from jaxpe.cli import main
from jaxpe.training import load_run
from tests.analysis.inspect.folders import text, with_tokenizer

ROOT = Path(__file__).parents[1]
COUNT = "--length 8 --folds 4 --nulls 2"
# Each command, as small as it gets, with the file that it writes. Those that need what another
# made are tried below.
COMMANDS = {
    "report": ("{films} --dim 4 --splits 2 --out {out}", "report.html"),
    "audit": ("{films} --examples 16 --length 6 --steps 4 --out {out}", "audit.json"),
    "rope": ("--head-dim 8 --context 64 --out {out}", "rope.html"),
    "extrapolate": (
        "--tasks parity --encodings none alibi --seeds 1 --steps 2 --length 2 --factors 1 2 "
        "--batch 4 --out {out}",
        "extrapolation.json",
    ),
}
ELSEWHERE = {
    "batch", "encodings", "golden", "count", "inspect", "merge", "train", "compare",
}  # fmt: skip


@pytest.fixture
def run(command, films, tmp_path):
    """Run a command that must succeed; returns what it printed."""
    if not os.environ.get("JAXPE_TEST_MINIMUM"):
        pytest.skip("JAXPE_TEST_MINIMUM is not set: commands have more thorough tests of their own")

    def call(name, words):
        code, printed, errors = command(name, *words.format(films=films, out=tmp_path).split())
        assert code == 0, errors
        return printed

    return call


def test_the_versions_declared_are_those_that_are_tried():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = (project["dependencies"], *project["optional-dependencies"].values())
    declared = set()
    for requirement in map(Requirement, chain(*lists)):
        assert not requirement.specifier or str(requirement.specifier).startswith(">="), requirement
        least = str(requirement.specifier).removeprefix(">=")
        declared |= {(canonicalize_name(requirement.name), least)} if least else set()
    tried = (ROOT / "constraints-minimum.txt").read_text()
    pinned = re.findall(r"^([\w.-]+)==(.+)$", tried, flags=re.MULTILINE)
    assert {(canonicalize_name(name), version) for name, version in pinned} == declared


def test_no_private_name_of_jax_is_used():
    private = re.compile(
        r"\bjax\.(_(?!_)|interpreters|lib\b|config\.values|core\.(?!Tracer\b|eval_jaxpr\b))"
    )
    hidden = re.compile(r"from jax(\.\w+)* import (_|core\b|interpreters\b)")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("jaxpe", "experiments")
        for path in (ROOT / folder).rglob("*.py")
        for line in path.read_text().splitlines()
        if private.search(line) or (hidden.search(line) and "jax.extend" not in line)
    ]
    assert not found


def test_every_module_can_be_imported():
    names = [module.name for module in pkgutil.walk_packages(jaxpe.__path__, "jaxpe.")]
    assert {
        "jaxpe.cli",
        "jaxpe.data.formats.table",
        "jaxpe.geometry.distances.stress",
    } <= set(names)
    for name in names:
        importlib.import_module(name)


@pytest.mark.parametrize("name", COMMANDS)
def test_command(run, tmp_path, name):
    words, made = COMMANDS[name]
    run(name, words)
    assert (tmp_path / made).stat().st_size > 1000


def test_a_command_that_is_not_whole_is_refused_in_one_line(command, tmp_path):
    code, printed, errors = command("count", "--out", tmp_path)
    assert (code, printed, errors.count("\n")) == (2, "", 1)
    assert "no files; pass paths" in errors


def test_encodings(run):
    table = json.loads(
        run("encodings", "rope --about overview --dim 16 --heads 2 --head-dim 8 --form json")
    )
    assert [row["name"] for row in table["encodings"]] == ["rope"]


def test_golden(run, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    run("golden", "{out} --out {out}")
    assert np.load(tmp_path / "golden.npz")["version"] == 1


def test_count_and_merge(run, tmp_path):
    run("count", f"{{films}} {COUNT} --out {{out}}/many")
    (tmp_path / "few.txt").write_text("good word1\nbad word2 word3\nbad\ngood\n")
    words = f"{COUNT} --vocab {{out}}/many"
    run("count", f"{{out}}/few.txt {words} --out {{out}}/few")
    run("merge", "{out}/many {out}/few --out {out}/both")
    many, few, both = (read_counts(tmp_path / name).counts for name in ("many", "few", "both"))
    assert np.sum(few.tokens) == 7
    np.testing.assert_array_equal(both.tokens, np.asarray(many.tokens) + np.asarray(few.tokens))


def test_train_and_load(run, tmp_path):
    model = "--model.dim 8 --model.layers 1 --model.heads 2 --length 8"
    run("train", f"{{films}} {model} --steps 2 --out {{out}}/run")
    found = load_run(tmp_path / "run")
    assert found.step == 2
    assert all(bool(np.isfinite(x).all()) for x in jax.tree.leaves(found.params))


def test_inspect(run, tmp_path):
    model, source = with_tokenizer("tiny_llama", tmp_path / "model"), text(tmp_path / "text.txt")
    run("inspect", f"{model} {source} --quick --length 16 --examples 8 --out {{out}}/page")
    assert (tmp_path / "page" / "inspect.html").stat().st_size > 1000


def test_no_command_is_missing():
    assert main.COMMANDS.keys() == COMMANDS.keys() | ELSEWHERE
