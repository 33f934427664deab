"""The runner of commands with a page, and progress."""

import time

import pytest

from jaxpe.analysis import counts
from jaxpe.cli import console, pages
from jaxpe.cli.commands import options_class
from jaxpe.cli.console import Lines
from tests.analysis.runs import make_run


def test_compared_counts_have_a_page_with_command_and_date(command, tmp_path):
    for name, word in (("a", "the"), ("b", "one")):
        lines = "\n".join(f"{word} w{i % 7} w{i % 5} w{i % 3}" for i in range(80))
        (tmp_path / f"{name}.txt").write_text(lines)
        options = counts.CountOptions(
            sources=(str(tmp_path / f"{name}.txt"),), length=4, folds=8, nulls=0
        )
        counts.count(options, tmp_path / name)
    words = ("compare", tmp_path / "a", tmp_path / "b", "--mds-dim", 2, "--permutations", 99)
    code, out, err = command(*words, "--figures", "png", "--out", tmp_path / "page")
    assert code == 0, err
    page = tmp_path / "page" / "corpora.html"
    assert f"Page: {page}   (" in out.replace("\n", "")
    assert err.endswith("s  writing the page\n")
    text = (tmp_path / "page" / "methods.md").read_text()
    assert f"Command: `jaxpe compare {tmp_path / 'a'} {tmp_path / 'b'} --mds-dim 2" in text
    assert list((tmp_path / "page" / "figures").glob("*.png"))


def test_folders_of_several_kinds_are_not_compared(command, tmp_path):
    make_run(tmp_path / "run", {0: 2.0, 4: 1.0})
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "report.json").write_text("{}")
    code, _, err = command("compare", tmp_path / "run", tmp_path / "report", "--out", tmp_path)
    assert code == 2
    assert "run holds a run, but " in err
    assert "report holds a report; pass folders of one kind" in err
    code, _, err = command("compare", tmp_path / "no", tmp_path / "nil", "--out", tmp_path)
    assert (code, "no holds no run" in err) == (2, True)


def test_a_file_is_named_with_its_hash_or_its_size(monkeypatch, tmp_path):
    monkeypatch.setattr(pages, "_LARGEST_HASHED", 3)
    (tmp_path / "a").write_text("abc")  # the example of FIPS 180-2
    assert "(sha256 ba7816bf8f01cfea" in pages.file_identity(tmp_path / "a")
    (tmp_path / "b").write_text("abcd")
    assert pages.file_identity(tmp_path / "b") == "b (4 bytes)"


@pytest.mark.parametrize(
    ("total", "text"),
    [
        (5, "x: 2 of 5, about 68 seconds left"),  # 45 s for two
        (1500, "x: 2 of 1,500, about 9 hours left"),
        (None, "x: 2"),
        (1, "x"),
    ],
)
def test_the_time_left_is_of_the_pace_so_far(monkeypatch, total, text):
    monkeypatch.setattr(time, "monotonic", lambda: 145.0)
    assert console._Task("x", total, begun=100.0, done=2).text() == text


def test_stages_have_a_line_and_long_ones_more(monkeypatch):
    monkeypatch.setattr(console, "_PAUSE", 0.2)
    said: list[str] = []
    with Lines(options_class("merge"), say=said.append) as lines:
        for _ in lines.track((None,), "stage 1 of 2: reading"):
            for _ in lines.track(range(3), "rows"):
                time.sleep(0.15)
        for _ in lines.track((None,), "stage 2 of 2: fitting"):
            lines.say("pass `weights=3`")
    texts = [line.split("  ")[-1] for line in said]
    assert next(text for text in texts if ":" in text) == "stage 1 of 2: reading"
    assert any("stage 1 of 2: reading; rows: 1 of 3, about" in text for text in texts)
    assert texts[-2:] == ["stage 2 of 2: fitting", "pass --weights 3"]


def test_nothing_is_said_after_the_end(monkeypatch):
    monkeypatch.setattr(console, "_PAUSE", 0.05)
    said: list[str] = []
    with Lines(options_class("merge"), say=said.append):
        time.sleep(0.12)
    count = len(said)
    assert said[0].endswith("s  working")
    time.sleep(0.12)
    assert len(said) == count
