import functools
import operator
import os
import time

import pytest

from jaxpe._core.errors import InputError
from jaxpe._core.processes import Helper


def _quitting():
    return os._exit  # of the question


def _sleeping():
    return time.sleep


def _sleeping_first(seconds):
    time.sleep(seconds)
    return time.sleep


def _printing():
    return print


def _failing():
    raise InputError("no tokenizer")


def test_a_helper_answers_one_question_after_another():
    with Helper(functools.partial(operator.methodcaller, "upper")) as helper:
        assert helper.status() is None
        helper.wait_until_ready()
        assert [helper.ask(word) for word in ("one", "two")] == ["ONE", "TWO"]
    assert helper.status() == 0


def test_what_a_helper_prints_is_no_answer(capfd):
    with Helper(_printing) as helper:
        assert helper.ask("hello") is None
    assert capfd.readouterr() == ("", "hello\n")


def test_what_is_printed_before_it_begins_is_no_answer(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print('Loading', end='')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Helper(functools.partial(operator.itemgetter, 0)) as helper:
        assert helper.ask("abc") == "a"


@pytest.mark.parametrize("question", [0, 3, "no number"])
def test_the_end_of_a_helper_is_an_error_of_who_asks(question, capfd):
    with Helper(_quitting) as helper:
        with pytest.raises((OSError, EOFError)):
            helper.ask(question)
        helper._process.wait()
        with pytest.raises((OSError, EOFError)):
            helper.ask(question)
    assert helper.status() == (question if isinstance(question, int) else 1)


def test_a_helper_that_cannot_begin(capfd):
    with Helper(_failing) as helper, pytest.raises((OSError, EOFError)):
        helper.wait_until_ready()
    assert helper.status() == 1
    assert "no tokenizer" in capfd.readouterr().err


def test_a_helper_that_works_is_ended():
    with Helper(_sleeping) as helper:
        helper.wait_until_ready()
        helper._send(60)
        begun = time.monotonic()
    assert helper.status() != 0
    assert time.monotonic() - begun < 30


def test_a_helper_that_nobody_waited_for_is_ended_before_its_end_is_waited_for(monkeypatch):
    done = []
    with Helper(functools.partial(_sleeping_first, 60)) as helper:
        for name in ("kill", "wait"):
            act = getattr(helper._process, name)
            monkeypatch.setattr(
                helper._process, name, lambda *given, name=name, act=act: (done.append(name), act())
            )
    assert done[:2] == ["kill", "wait"]
    assert helper.status() != 0


def test_a_part_of_an_application_starts_no_helper(monkeypatch):
    monkeypatch.setattr("sys.frozen", True, raising=False)
    with pytest.raises(FileNotFoundError):
        Helper(_sleeping)
