"""Short texts of values and durations, and sizes that programs share, at their bounds."""

import itertools
from typing import NamedTuple

import jax
import pytest

from jaxpe._core import progress
from jaxpe._core.arrays import add_counts, rounded_size, sum_counts
from jaxpe._core.errors import differences, nearest, reason, shortened
from jaxpe._core.options import parse_length
from jaxpe._core.progress import Clock, duration
from jaxpe._core.results import short_repr


class Holder(NamedTuple):
    value: object


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(89.0, "89 seconds"), (90.0, "2 minutes"), (5400.0, "2 hours"), (172_800.0, "2 days")],
)
def test_units_of_a_duration(seconds, text):
    assert duration(seconds) == text


def test_stages_of_one_name_add_up(monkeypatch):
    times = itertools.chain([10.0, 11.0, 13.0, 17.0, 25.0])
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(times))
    clock = Clock()
    for name in ("a", "b", "a"):
        clock.lap(name)
    assert clock.laps == {"a": 1 + 4, "b": 2}
    assert clock.total() == 15


def test_sizes_have_at_most_an_eighth_of_padding_and_few_values():
    sizes = [rounded_size(size) for size in range(1, 257)]
    assert all(size <= rounded <= max(size * 9 / 8, size) for size, rounded in enumerate(sizes, 1))
    assert sizes[:16] == list(range(1, 17))
    assert [size for size in sorted(set(sizes)) if size > 128] == list(range(144, 257, 16))
    assert [rounded_size(33, steps=steps) for steps in (1, 2, 4, 8, 16)] == [64, 48, 40, 36, 34]


def test_texts_of_errors_and_results_are_short():
    assert short_repr(Holder([1] * 7)) == "Holder(value=[7 items])"
    assert short_repr(Holder(dict.fromkeys("abcdefg"))) == "Holder(value={7 items})"
    assert shortened("y" * 61).startswith("y" * 40 + "... (CRC-32 ")
    assert len(reason(ValueError("a" * 301))) == 300
    assert {*differences({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 4})} == {"b", "c"}
    # Ratios 2·2/(4 + 4) = 0.5 and 2·1/(4 + 4).
    assert (nearest("abxy", ["abcd"]), nearest("axyz", ["abcd"])) == ("abcd", None)


@pytest.mark.parametrize(
    ("text", "length"), [("2k", 2048), ("3M", 3 * 2**20), ("1_000", 1000), ("12,345k", 12_641_280)]
)
def test_lengths_in_binary_units(text, length):
    assert parse_length("length", text) == length


def test_counts_at_the_largest_integer():
    """250 + 5 = 255 is the largest of uint8; a traced sum beyond it saturates."""
    a, b = (jax.numpy.array([x, 1], jax.numpy.uint8) for x in (250, 5))
    assert add_counts(a, b, "words").tolist() == [255, 2]
    assert sum_counts(jax.numpy.stack([a, b]), 0, "words").tolist() == [255, 2]
    assert jax.jit(lambda x: add_counts(x, x, "words"))(a).tolist() == [255, 2]
    with pytest.raises(OverflowError, match="256 words"):
        add_counts(a, b + jax.numpy.uint8(1), "words")
    with pytest.raises(OverflowError, match="256 words"):
        sum_counts(jax.numpy.stack([a, b, jax.numpy.ones_like(a)]), 0, "words")
