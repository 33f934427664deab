import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.folders import output_folder
from jaxpe.report import files, write_report
from tests.conftest import small_disk
from tests.report import factory


@pytest.fixture
def quick(monkeypatch):
    """Without the figures, which take longest and have tests of their own."""
    monkeypatch.setattr(files, "render_figures", lambda analysis: [])


def test_the_folder_is_complete(page):
    folder = page.parent
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    plots = ("dimension", "encodings", "hellinger", "map", "offset", "scatter", "spectrum")
    figures = [f"figures/{name}.{kind}" for name in plots for kind in ("png", "svg")]
    assert names == [".lock", *figures, "report.html", "report.json"]
    report = json.loads((folder / "report.json").read_text())
    assert report["source"] == "stdlib"
    assert {e["name"]: e["family"] for e in report["encodings"]} == factory.FAMILIES


def test_folders_are_made_and_files_replaced(quick, tmp_path):
    first = write_report(factory.analysis(), tmp_path / "a" / "b")
    before = first.read_bytes()
    assert write_report(factory.analysis(), str(tmp_path / "a" / "b")) == first
    assert first.read_bytes() == before
    write_report(factory.analysis(source="other"), tmp_path / "a" / "b")
    assert b"other" in first.read_bytes()


def test_a_folder_that_cannot_be_written_is_named(quick, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"cannot write .*file/out .*pass a folder"):
        write_report(factory.analysis(), tmp_path / "file" / "out")


def test_undefined_numbers_are_null_in_strict_json(quick, tmp_path):
    page = write_report(factory.analysis(plug_in_trace=float("nan")), tmp_path)
    text = page.with_name("report.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["plug_in"]["trace"] is None


def test_a_failed_run_leaves_the_old_page_whole(quick, tmp_path, monkeypatch):
    page = write_report(factory.analysis(), tmp_path)
    before = page.read_bytes()
    write_bytes = Path.write_bytes

    def full(path, content):
        write_bytes(path, content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_report(factory.analysis(source="other"), tmp_path)
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
    write_report(factory.analysis(), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    numbers, page = (len(before[tmp_path / f"report.{kind}"]) for kind in ("json", "html"))
    with small_disk((numbers + page) // 2), pytest.raises(InputError, match="cannot write"):
        write_report(factory.analysis(source="other"), tmp_path)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


def test_of_two_reports_into_one_folder_one_is_refused(quick, tmp_path):
    """In another thread of this process as in another process."""
    with output_folder(tmp_path), ThreadPoolExecutor() as threads:
        found = threads.submit(write_report, factory.analysis(), tmp_path)
        with pytest.raises(InputError, match="another run is writing"):
            found.result()
        write_report(factory.analysis(), tmp_path / ".")  # whoever holds it may
    write_report(factory.analysis(), tmp_path)
