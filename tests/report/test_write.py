"""Files of a page: they hold the result, show it, and replace an earlier page as a whole."""

import csv
import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.files import output_folder
from jaxpe._core.results import load_result, result_files
from jaxpe.analysis.findings import FindingsComparison
from jaxpe.report import page as page_of
from jaxpe.report.writing import table_files, write
from tests.conftest import small_disk
from tests.report import factory, test_audit, test_inspect


def compared(name="a", number=2):
    """A comparison of so many findings, whose page has no figures."""
    names, estimates = tuple(f"{name}{k}" for k in range(number)), np.ones((3, 2, number))
    estimates[1, 0, 0] = np.nan
    units = ("",) * number
    return FindingsComparison("report", ("x", "y"), names, units, estimates, ({}, {}), (True, True))


def contents(folder):
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


RESULTS = {
    "corpus": factory.STORED,
    "inspect": test_inspect.RESULT,
    "audit": test_audit.result(test_audit.evaluated(True, False)),
    "findings": compared(),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_files_hold_the_result_and_show_it(kind, tmp_path):
    result = RESULTS[kind]
    path, shown = write(result, tmp_path / "a"), page_of(result)
    saved = load_result(type(result), path.with_suffix(".json"))
    assert result_files(saved, "x") == result_files(result, "x")
    assert table_files(page_of(saved)) == table_files(shown)
    assert path.read_text().count("data:image/svg+xml") == len(shown.figures)
    text = path.with_suffix(".md").read_text()
    for finding in shown.findings:
        assert f"| {' | '.join(finding.row()[:2])} |" in text
    for table in shown.tables:
        name = re.sub(r"[^a-z0-9]+", "-", table.title.lower()).strip("-")
        with (tmp_path / "a" / "tables" / f"{name}.csv").open(newline="") as file:
            assert len([*csv.reader(file)]) == 1 + len(table.rows)


def test_the_folder_is_complete(page):
    folder = page.parent
    plots = ("distances", "logo", "map", "offset", "shares")
    figures = {f"figures/{name}.svg" for name in plots}
    names = ("choices", "fit-of-the-encodings", "most-frequent-tokens", "positions-that-stand-out")
    expected = {f"tables/{name}.{kind}" for name in names for kind in ("csv", "tex")}
    pages = {"report.html", "report.md", "report.json", "report.npz", "methods.md", "methods.tex"}
    findings = {"findings.csv", "findings.json", "tables/findings.tex", "references.bib"}
    others = {"encoding.npz", "figures/captions.tex"}
    assert contents(folder).keys() == pages | findings | expected | others | figures
    html = page.read_text("utf-8")
    assert "<script" not in html
    sources = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert {x.split(",")[0] for x in sources} == {"data:image/svg+xml;base64"}


def test_text_from_the_corpus_is_escaped(hostile_page):
    html = hostile_page.read_text("utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert not re.search("<script|<img src=x|<b>corpus|<i>tok", html)
    assert "{{ 7 * 7 }}" in html
    assert not set(html) & {"\0", "\u202e", "\x1b"}
    assert "w" * 41 not in html


def test_figures_and_vectors_of_an_earlier_page_go(page, tmp_path):
    folder = shutil.copytree(page.parent, tmp_path / "report")
    write(factory.analysis(held_out={"dim": 0}), folder)
    plots = {"distances", "map", "offset", "shares", "spectrum"}
    figures = {path.name for path in (folder / "figures").iterdir()}
    assert figures == {"captions.tex", *(f"{name}.svg" for name in plots)}
    assert not (folder / "encoding.npz").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="file/out"):
        write(compared(), tmp_path / "file" / "out")


def test_undefined_numbers_are_null_in_strict_json(tmp_path):
    text = write(compared(), tmp_path).with_suffix(".json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["estimates"][1][0] == [None, 1.0]


def test_what_is_no_result_has_no_page(tmp_path):
    with pytest.raises(TypeError, match="page"):
        write({}, tmp_path)


def test_a_failed_run_leaves_the_old_page_whole(tmp_path, monkeypatch):
    write(compared(), tmp_path)
    before, write_bytes = contents(tmp_path), Path.write_bytes

    def full(path, content):
        write_bytes(path, content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space"):
        write(compared("b"), tmp_path)
    assert contents(tmp_path) == before
    monkeypatch.undo()
    with small_disk(20_000), pytest.raises(InputError, match="cannot write"):
        write(compared("b", 400), tmp_path)
    assert contents(tmp_path) == before


def test_of_two_reports_into_one_folder_one_is_refused(tmp_path):
    """In another thread of this process as in another process."""
    with output_folder(tmp_path), ThreadPoolExecutor() as threads:
        found = threads.submit(write, compared(), tmp_path)
        with pytest.raises(InputError, match="another run"):
            found.result()
        write(compared(), tmp_path / ".")  # whoever holds it may
    write(compared(), tmp_path)


def test_importing_reports_loads_nothing_heavy_and_the_page_of_a_plan_no_jax():
    code = (
        "import sys, jaxpe.report; "
        "heavy = {'matplotlib', 'jinja2', 'rich', 'flax'} & set(sys.modules); "
        "from jaxpe.plans import RopeOptions, explain_rope; "
        "jaxpe.report.page(explain_rope(RopeOptions(head_dim=64, base=1e4, context=2048))); "
        "sys.exit(f'loaded {heavy}' if heavy else 'jax' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
