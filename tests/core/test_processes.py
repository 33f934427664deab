import contextlib
import functools
import operator
import os
import time

import pytest

from jaxpe._core.processes import Helper


def _quitting():
    return os._exit  # of the question


def _sleeping():
    return time.sleep


def test_a_helper_answers_one_question_after_another():
    with contextlib.closing(Helper(functools.partial(operator.methodcaller, "upper"))) as helper:
        assert helper.status() is None
        assert [helper.ask(word) for word in ("one", "two")] == ["ONE", "TWO"]
    assert helper.status() is not None


def test_what_a_helper_prints_is_no_answer(capfd):
    with contextlib.closing(Helper(_printing)) as helper:
        assert helper.ask("hello") is None
    assert capfd.readouterr() == ("", "hello\n")


def _printing():
    return print


@pytest.mark.parametrize("question", [0, 3, "no number"])
def test_the_end_of_a_helper_is_an_error_of_who_asks(question, capfd):
    with contextlib.closing(Helper(_quitting)) as helper:
        with pytest.raises((OSError, EOFError)):
            helper.ask(question)
        helper._process.wait()
        with pytest.raises((OSError, EOFError)):
            helper.ask(question)
    assert helper.status() == (question if isinstance(question, int) else 1)


def test_a_helper_that_is_killed_while_it_works():
    with contextlib.closing(Helper(_sleeping)) as helper:
        helper.kill()
        with pytest.raises((OSError, EOFError)):
            helper.ask(60)


def test_a_part_of_an_application_starts_no_helper(monkeypatch):
    monkeypatch.setattr("sys.frozen", True, raising=False)
    with pytest.raises(FileNotFoundError):
        Helper(_sleeping)
