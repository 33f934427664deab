"""What the README and the pages of the site claim is run here, as it stands."""

import contextlib
import importlib
import os
import re
import typing
from pathlib import Path
from typing import get_origin

import jax
import pytest

import jaxpe
import jaxpe.analysis.counts
import jaxpe.analysis.extrapolation

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = {path.name: path for path in (README, *sorted(DOCS.glob("*.md")))}
TEXTS = {name: path.read_text("utf-8") for name, path in PAGES.items()}
ALL = "\n".join(TEXTS.values())


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def as_a_reader():
    """As a reader would have it: float32, and JAX's own rules of promotion."""
    stack = contextlib.ExitStack()
    stack.enter_context(jax.enable_x64(False))
    stack.enter_context(jax.numpy_dtype_promotion("standard"))
    stack.enter_context(jax.numpy_rank_promotion("allow"))
    return stack


@pytest.mark.parametrize("page", [name for name in TEXTS if blocks(TEXTS[name], "python")])
def test_every_python_block_of_a_page_runs_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with as_a_reader():
        for block in blocks(TEXTS[page], "python"):
            exec(compile(block, page, "exec"), names)


def test_the_block_on_a_real_model_runs(tmp_path, monkeypatch):
    folder = os.environ.get("JAXPE_MODELS_DIR")
    if not folder:
        pytest.skip("JAXPE_MODELS_DIR is not set: no real models here")
    (block,) = blocks(ALL, "py")
    tiny = Path(__file__).parent / "parity"
    for name, model in {  # of models that no package has, tiny ones of their architecture
        "all-MiniLM-L6-v2": Path(folder).resolve() / "all-MiniLM-L6-v2",
        "flan-t5-small": tiny / "tiny_t5_gated",
        "pythia-160m": tiny / "models" / "gpt_neox",
    }.items():
        block = block.replace(name, str(model))
    monkeypatch.chdir(tmp_path)
    with as_a_reader():
        exec(block, {})
    assert (tmp_path / "mine" / "model.safetensors").is_file()


# Pages that the build makes; its own check of links has them.
MADE = ("gallery/", "notebooks/", "api/", "example/", "commands/")
LINKS = sorted(
    {
        (name, target)
        for name, text in TEXTS.items()
        for target in re.findall(r"\]\(([^)#\s]+)", text)
        if "://" not in target and (name == "README.md" or not target.startswith(MADE))
    }
)


def test_links_lead_somewhere():
    lost = [(name, to) for name, to in LINKS if not (PAGES[name].parent / to).exists()]
    assert lost == []


def test_the_commands_named_exist():
    makefile = (ROOT / "Makefile").read_text()
    for command in re.findall(r"^make ([\w-]+)", ALL, re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)
    from jaxpe.cli.commands import COMMANDS, options_class

    named = set(re.findall(r"^jaxpe (\w+)", "".join(blocks(ALL, "sh")), re.MULTILINE))
    assert {"report", "train", "count"} <= named <= set(COMMANDS)
    (line,) = re.findall(r"^jaxpe report sst2.*$", ALL, re.M)
    for option in set(re.findall(r"--([a-z-]+)", line)):
        assert option.replace("-", "_") in typing.get_type_hints(options_class("report"))


def test_versions_agree():
    assert f'version = "{jaxpe.__version__}"' in (ROOT / "pyproject.toml").read_text()
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"version: {jaxpe.__version__}" in citation
    entry = (ROOT / "jaxpe/report/references.bib").read_text().splitlines()[0]
    assert f"version={{{jaxpe.__version__}}}" in entry
    (authors,) = re.findall(r"(?m)^authors:\n((?:  - .*\n)+)", citation)
    names = re.findall(r"name: (.*)", authors)
    assert f"author={{{' and '.join(f'{{{name}}}' for name in names)}}}" in entry
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
    assert len(functions) > 250
    without = [name for name, value in functions.items() if ">>>" not in (value.__doc__ or "")]
    assert without == []


def _offered(package):
    """Names and values in `__all__` of a package."""
    return [(name, getattr(package, name)) for name in getattr(package, "__all__", ())]
