"""Numbers, ranges and names as pages write them."""

import math

import numpy as np
import pytest

from jaxpe.report.numbers import interval_texts, number, percent, ranges, visible


@pytest.mark.parametrize("write", [number, percent])
def test_an_interval_shows_both_ends_unless_they_are_equal(write):
    for low in (1e-5, 0.0512, 0.5, 0.99999, 1234.5):
        for high in (low, low * (1 + 1e-4), low * 2):
            ends = interval_texts(low, low, high, write)[1:]
            assert len(set(ends)) == (1 if high == low else 2), ends


@pytest.mark.parametrize(
    ("interval", "write", "text"),
    [
        ((0.103, 0.0951, 0.11), number, "0.103 0.095 0.110"),
        ((0.0636, -0.071, 0.198), number, "0.064 −0.071 0.198"),
        ((3e-13, 2e-13, 4e-13), number, "< 1e-6 < 1e-6 < 1e-6"),
        ((math.inf, 1.0, math.nan), number, "n/a 1.00 n/a"),
        ((5.0, 4.0, 6.0), number, "5 4 6"),
        ((0.0588, 0.0541, 0.0639), percent, "5.9 % 5.4 % 6.4 %"),
    ],
)
def test_the_ends_of_an_interval_have_the_decimals_of_its_estimate(interval, write, text):
    shown = " ".join(interval_texts(*interval, write))
    assert shown.replace("\N{NO-BREAK SPACE}", " ") == text


def test_ranges_name_few_runs_and_count_the_rest():
    assert ranges(np.isin(np.arange(20), [0, 2, 4, 6, 8, 9, 10])) == "0, 2, 4, 6 and 3 more"


def test_hidden_characters_are_named_and_letters_of_every_script_stay():
    for hidden in "\0\x1b\n\u202e\u2028\ud800":
        assert visible(f"a{hidden}b") == f"a⟨U+{ord(hidden):04X}⟩b"
    assert visible("naïve שלום 日本 🙂 a b") == "naïve שלום 日本 🙂 a b"
