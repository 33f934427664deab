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
MODEL = "--model.dim 8 --model.layers 1 --model.heads 2 --length 8 --steps 2"
TASKS = (
    "--tasks parity --encodings none alibi --seeds 1 --steps 2 --length 2 --factors 1 2 --batch 4"
)
# Each command, as small as it gets, with the file that it writes, in an order in which later ones
# may use what earlier ones made. Those elsewhere have tests of their own that run them.
COMMANDS = {
    "report": ("{films} --dim 4 --splits 2 --out {out}", "report.html"),
    "audit": ("{films} --examples 16 --length 6 --steps 4 --out {out}", "audit.json"),
    "rope": ("--head-dim 8 --context 64 --out {out}", "rope.html"),
    "extrapolate": (TASKS + " --out {out}", "extrapolation.json"),
    "encodings": ("rope --about overview --dim 16 --heads 2 --head-dim 8 --form json", ""),
    "golden": ("{out} --out {out}", "golden.npz"),
    "train": ("{films} " + MODEL + " --out {out}/run", "run"),
    "inspect": (
        "{out}/model {out}/text.txt --quick --length 16 --examples 8 --out {out}/page",
        "page/inspect.html",
    ),
    "count": ("{films} " + COUNT + " --out {out}/many", "many"),
    "merge": ("{out}/many {out}/few --out {out}/both", "both"),
}
ELSEWHERE = {"batch", "compare"}


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
    names = {module.name for module in pkgutil.walk_packages(jaxpe.__path__, "jaxpe.")}
    assert {"jaxpe.cli", "jaxpe.data.formats.table"} <= names
    for name in names:
        importlib.import_module(name)


def test_no_command_is_missing():
    assert main.COMMANDS.keys() == COMMANDS.keys() | ELSEWHERE


def test_commands(command, films, tmp_path):
    if not os.environ.get("JAXPE_TEST_MINIMUM"):
        pytest.skip("JAXPE_TEST_MINIMUM is not set: commands have more thorough tests of their own")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "few.txt").write_text("good word1\nbad word2 word3\nbad\ngood\n")
    with_tokenizer("tiny_llama", tmp_path / "model")
    text(tmp_path / "text.txt")
    printed = {}

    def run(name, words):
        words = words.format(films=films, out=tmp_path).split()
        code, printed[name], errors = command(name, *words)
        assert code == 0, (name, errors)

    for name, (words, made) in COMMANDS.items():
        run(name, words)
        if name == "count":
            run(name, "{out}/few.txt " + COUNT + " --vocab {out}/many --out {out}/few")
        assert (tmp_path / made).exists()
    assert [row["name"] for row in json.loads(printed["encodings"])["encodings"]] == ["rope"]
    many, few, both = (read_counts(tmp_path / name).counts for name in ("many", "few", "both"))
    assert np.sum(few.tokens) == 7
    np.testing.assert_array_equal(both.tokens, np.asarray(many.tokens) + np.asarray(few.tokens))
    params = jax.tree.leaves(load_run(tmp_path / "run").params)
    assert all(bool(np.isfinite(x).all()) for x in params)
