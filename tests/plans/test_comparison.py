"""Disagreements of programs: what differs, by how much, and what is no difference."""

import math

import numpy as np
import pytest

from jaxpe.plans.comparison import disagreements, largest_ratio, same_frequencies
from jaxpe.plans.evaluation import phase_errors
from jaxpe.plans.result import GroupNumbers, ProgramResult

W = np.array([1.0, 0.1, 0.01])
USUAL = GroupNumbers(0, True, "yarn", 1e4, 6, 4.0, 4096, 1.2, 1.5, 1.0, None, "half", W)


def differences(*changes, longest=(1000, 1000), problems=(None, None)):
    """Disagreements of program "a", as usual, and "b", with changes."""
    pair = (USUAL, USUAL._replace(**dict(changes)))
    programs = [
        ProgramResult(name, "", "", (), problem, length, () if problem else (numbers,))
        for name, problem, length, numbers in zip("ab", problems, longest, pair, strict=True)
    ]
    return {one.what: (one.group, *one.values.values()) for one in disagreements(tuple(programs))}


@pytest.mark.parametrize(
    ("field", "value", "texts"),
    [
        ("base", 1e4 * (1 + 9e-7), None),
        ("base", 1e4 * (1 + 3e-6), ("10,000", "10,000")),
        ("base", 2e4, ("10,000", "20,000")),
        ("turning", 4, ("6", "4")),
        ("factor", math.nan, None),  # not stated
        ("original", 8192, ("4,096", "8,192")),
        ("attention_factor", 1.2004, None),  # 1.200 with the four digits of the tables
        ("attention_factor", 1.2006, ("1.2", "1.201")),
        ("logit_factor", 1.5004, None),
        ("query_factor", 1.0001, ("1", "1.0001")),
        ("rope_type", "linear", ("yarn", "linear")),
        ("pairing", "interleaved", ("half", "interleaved")),
        ("pairing", "interleaved, weights permuted", None),
        ("pairing", "half, in transformers", None),
        ("turns", False, ("rotates", "does not rotate")),
        ("frequencies", W * (1 + 9e-7), None),
        ("frequencies", W * [1, 1.1, 0.8], ("the same", "up to 0.8 times")),
        ("frequencies", W * [1, 1.3, 0.8], ("the same", "up to 1.3 times")),
        ("frequencies", W[:2], ("the same", "2 of them")),
    ],
)
def test_quantities_that_programs_compute_differently(field, value, texts):
    assert differences((field, value)) == ({} if texts is None else {field: (0, *texts)})


def test_programs_that_refuse_or_allow_other_lengths():
    assert differences(longest=(1000, 2000)) == {"longest": (None, "1,000", "2,000")}
    refused = differences(problems=(None, "no class"), longest=(1000, math.nan))
    assert refused == {"problem": (None, "reads it", "no class")}


def test_ratios_of_frequencies():
    assert largest_ratio(W, W) == 1.0
    assert largest_ratio(W * [0.5, 1.9, 1], W) == 0.5  # 1/2 is further from 1 than 1.9
    assert math.isnan(largest_ratio(W, W[:2]))
    assert largest_ratio(W[:0], W[:0]) == 1.0
    assert not same_frequencies(W, W[:2])


@pytest.mark.parametrize(("length", "lost"), [(100, 0), (200, 1), (20_000, 1)])
def test_phase_error_of_one_rounded_frequency(length, lost):
    """1/3 is 0.333984375 in bfloat16, 171/512; 2**-20 is exact."""
    errors = {(e.dtype, e.rounded): e for e in phase_errors(np.array([1 / 3, 2.0**-20]), length)}
    found = errors["bfloat16", "frequencies"]
    expected = min((length - 1) * (171 / 512 - 1 / 3), math.pi)
    assert (found.largest, found.lost) == (pytest.approx(expected, rel=1e-3), lost)


def test_phase_error_is_the_largest_near_the_end():
    """From 256 to 512, bfloat16 has even numbers: 299 is 1 away, and 300, the last, is exact."""
    errors = {(e.dtype, e.rounded): e for e in phase_errors(np.ones(1), 301)}
    assert errors["bfloat16", "all"].largest == 1
