import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.files import output_folder
from jaxpe._core.results import load_result
from jaxpe.analysis.corpus import CorpusResult
from jaxpe.report.findings import Figure
from jaxpe.report.pages import corpus, letters
from jaxpe.report.writing import write
from tests.conftest import small_disk
from tests.report import factory

NO_FIGURE = Figure("none", "none", "", [lambda ax: None])


@pytest.fixture
def quick(monkeypatch):
    """Without the figures, which take longest and have tests of their own."""
    monkeypatch.setattr(corpus, "corpus_figures", lambda result: [])
    monkeypatch.setattr(letters, "logo_figure", lambda result: NO_FIGURE)


def test_the_folder_is_complete(page):
    folder = page.parent
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    plots = ("distances", "logo", "map", "offset", "shares")
    figures = {f"figures/{name}.{kind}" for name in plots for kind in ("png", "svg")}
    tables = ("fit-of-the-encodings", "most-frequent-tokens", "positions-that-stand-out")
    expected = {f"tables/{name}.{kind}" for name in tables for kind in ("csv", "tex")}
    pages = {"report.html", "report.md", "report.json", "report.npz", "methods.md", "methods.tex"}
    findings = {"findings.csv", "findings.json", "tables/findings.tex", "references.bib"}
    others = {".lock", "encoding.npz", "figures/captions.tex"}
    assert names == pages | findings | expected | others | figures
    fit = (folder / "tables" / "fit-of-the-encodings.tex").read_text()
    assert "log\\_position" in fit
    assert fit.count("\\\\\n") == 1 + len(factory.FAMILIES)
    report = json.loads((folder / "report.json").read_text())
    assert report["facts"]["name"] == "stdlib"
    assert {e["name"]: e["family"] for e in report["encodings"]} == factory.FAMILIES


def test_the_page_is_self_contained_and_names_no_source_file(page):
    html = page.read_text("utf-8")
    assert "<script" not in html
    sources = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert {x.split(",")[0] for x in sources} == {"data:image/svg+xml;base64"}
    assert "default-src 'none'" in html
    assert "docs/" not in html


def test_text_from_the_corpus_is_escaped(hostile_page):
    html = hostile_page.read_text("utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert not re.search("<script|<img src=x|<b>corpus|<i>tok", html)
    assert "{{ 7 * 7 }}" in html
    assert "⟨U+0000⟩" in html
    assert "⟨U+D800⟩" in html
    assert not set(html) & {"\0", "\u202e", "\x1b"}
    assert "w" * 40 + "…" in html
    assert "w" * 41 not in html


def test_figures_and_vectors_of_an_earlier_page_go(tmp_path):
    write(factory.analysis(), tmp_path, figures="png")
    assert (tmp_path / "figures" / "shares.png").exists()
    write(factory.analysis(letters=None, position={"significant_rank": 0}), tmp_path)
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    plots = {"distances", "map", "offset", "shares", "spectrum"}
    assert names == {"captions.tex", *(f"{name}.svg" for name in plots)}
    assert not (tmp_path / "encoding.npz").exists()


def test_folders_are_made_and_files_replaced(quick, tmp_path):
    first = write(factory.analysis(), tmp_path / "a" / "b")
    before = first.read_bytes()
    assert write(factory.analysis(), str(tmp_path / "a" / "b")) == first
    assert first.read_bytes() == before
    write(factory.analysis(facts={"name": "other"}), tmp_path / "a" / "b")
    assert b"other" in first.read_bytes()


def test_a_folder_that_cannot_be_written_is_named(quick, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"cannot write .*file/out.*pass a folder"):
        write(factory.analysis(), tmp_path / "file" / "out")


def test_undefined_numbers_are_null_in_strict_json(quick, tmp_path):
    page = write(factory.analysis(position={"trace": float("nan")}), tmp_path)
    text = page.with_name("report.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["position"]["trace"] is None


def test_a_saved_result_is_the_result(quick, tmp_path):
    case = factory.analysis()
    saved = load_result(CorpusResult, write(case, tmp_path).with_name("report.json"))
    assert jax.tree.structure(saved) == jax.tree.structure(case._replace(seconds={}))
    jax.tree.map(np.testing.assert_array_equal, saved, case._replace(seconds={}))


@pytest.mark.parametrize("stranger", [None, {}, factory.score("rope").distances])
def test_what_is_no_result_has_no_page(stranger, tmp_path):
    with pytest.raises(TypeError, match="has no page"):
        write(stranger, tmp_path)


def test_a_failed_run_leaves_the_old_page_whole(quick, tmp_path, monkeypatch):
    page = write(factory.analysis(), tmp_path)
    before = page.read_bytes()
    write_bytes = Path.write_bytes

    def full(path, content):
        write_bytes(path, content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space left on device"):
        write(factory.analysis(facts={"name": "other"}), tmp_path)
    assert page.read_bytes() == before
    assert not list(tmp_path.rglob(".part*"))


def test_importing_the_room_loads_nothing_heavy():
    code = (
        "import sys, jaxpe.report; "
        "heavy = {'matplotlib', 'jinja2', 'rich', 'flax'} & set(sys.modules); "
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_full_disk_leaves_every_file_of_the_old_report(quick, tmp_path):
    write(factory.analysis(), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    largest = len(before[tmp_path / "report.npz"])
    with small_disk(largest // 2), pytest.raises(InputError, match="cannot write"):
        write(factory.analysis(facts={"name": "other"}), tmp_path)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


def test_of_two_reports_into_one_folder_one_is_refused(quick, tmp_path):
    """In another thread of this process as in another process."""
    with output_folder(tmp_path), ThreadPoolExecutor() as threads:
        found = threads.submit(write, factory.analysis(), tmp_path)
        with pytest.raises(InputError, match="another run is writing"):
            found.result()
        write(factory.analysis(), tmp_path / ".")  # whoever holds it may
    write(factory.analysis(), tmp_path)
