"""What the README claims is run here, as it stands."""

import importlib
import os
import re
import typing
from pathlib import Path
from typing import get_origin

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import jaxpe
import jaxpe.analysis.counts
import jaxpe.analysis.extrapolation

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_every_python_block_runs_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, object] = {}
    # As a reader would have it: float32, and JAX's own rules of promotion.
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        for block in blocks:
            exec(compile(block, "README.md", "exec"), names)


def test_the_block_on_a_real_model_runs(tmp_path, monkeypatch):
    folder = os.environ.get("JAXPE_MODELS_DIR")
    if not folder:
        pytest.skip("JAXPE_MODELS_DIR is not set: no real models here")
    (block,) = re.findall(r"```py\n(.*?)```", README, re.DOTALL)
    model = str(Path(folder).resolve() / "all-MiniLM-L6-v2")
    monkeypatch.chdir(tmp_path)
    names = {"jaxpe": jaxpe, "nn": jaxpe.nn, "jnp": jnp, "nnx": nnx}
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        exec(block.replace("all-MiniLM-L6-v2", model), names)
    assert (tmp_path / "mine" / "model.safetensors").is_file()


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", README))
def test_links_lead_somewhere(target):
    assert (ROOT / target).exists()


def test_the_commands_named_exist():
    makefile = (ROOT / "Makefile").read_text()
    for command in re.findall(r"^make ([\w-]+)", README, re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)
    from jaxpe.cli import main, report

    blocks = "".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL))
    named = set(re.findall(r"^jaxpe (\w+)", blocks, re.MULTILINE))
    assert {"report", "train", "count"} <= named <= set(main.COMMANDS)
    for option in set(
        re.findall(r"--([a-z-]+)", re.findall(r"^jaxpe report sst2.*$", README, re.M)[0])
    ):
        assert option.replace("-", "_") in typing.get_type_hints(report.Command)


def test_versions_agree():
    assert f'version = "{jaxpe.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"version: {jaxpe.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {jaxpe.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_public_name_is_documented_with_an_example():
    packages = sorted(
        path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for path in (ROOT / "jaxpe").rglob("__init__.py")
        if not {"_core", "cli"} & set(path.parts)
    )
    functions = {
        f"{package}.{name}": value
        for package in packages
        for name, value in _offered(importlib.import_module(package))
        if callable(value) and not isinstance(value, type) and get_origin(value) is None
    }
    assert len(functions) > 400
    without = [name for name, value in functions.items() if ">>>" not in (value.__doc__ or "")]
    assert without == []


def _offered(package):
    """Names and values in `__all__` of a package."""
    return [(name, getattr(package, name)) for name in getattr(package, "__all__", ())]


def test_pure_rooms_import_neither_flax_nor_optax_nor_files():
    reads_vectors = ROOT / "jaxpe" / "encodings" / "stored.py"  # the one that is about a file
    for room in ("geometry", "encodings", "spectral"):
        for path in {*(ROOT / "jaxpe" / room).glob("*.py")} - {reads_vectors}:
            text = path.read_text()
            assert not re.search(r"^\s*(import|from) (flax|optax|pathlib|os|io)\b", text, re.M), (
                path
            )
            later = r"^\s*from jaxpe\.(data|report|nn|training)"
            assert not re.search(later, text, re.M), path
