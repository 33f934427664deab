"""Versions, and imports of every module: `make test-minimum` runs this with the lowest ones."""

import importlib
import pkgutil
import re
import tomllib
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import jaxpe

ROOT = Path(__file__).parents[1]


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
