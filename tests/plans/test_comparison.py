"""Disagreements of programs: what differs, by how much, and what is no difference; phase errors."""

import math

import ml_dtypes
import numpy as np
import pytest

from jaxpe.plans import phase_errors
from jaxpe.plans.comparison import disagreements, largest_ratio, same_frequencies, shown_error
from jaxpe.plans.result import GroupNumbers, PhaseError, ProgramResult
from jaxpe.plans.scaling import inverse_frequencies
from tests.plans.conftest import read

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
    assert largest_ratio(W, W) == largest_ratio(W[:0], W[:0]) == 1.0
    assert largest_ratio(W * [0.5, 1.9, 1], W) == 0.5  # 1/2 is further from 1 than 1.9
    assert math.isnan(largest_ratio(W, W[:2]))
    assert not same_frequencies(W, W[:2])


def errors_of(inverse, length):
    return {(e.dtype, e.rounded): (e.largest, e.lost) for e in phase_errors(inverse, length)}


ROUNDED = inverse_frequencies(128).astype(ml_dtypes.bfloat16).astype(float)
SHORT = 19 * np.abs(ROUNDED - inverse_frequencies(128)).max()


@pytest.mark.parametrize(
    ("inverse", "length", "dtype", "rounded", "largest", "lost"),
    [
        # 1/3 is 0.333984375 in bfloat16, 171/512; 2**-20 is exact.
        ([1 / 3, 2.0**-20], 100, "bfloat16", "frequencies", 99 * (171 / 512 - 1 / 3), 0),
        ([1 / 3, 2.0**-20], 200, "bfloat16", "frequencies", 199 * (171 / 512 - 1 / 3), 1),
        ([1 / 3, 2.0**-20], 20_000, "bfloat16", "frequencies", math.pi, 1),
        # From 256 to 512, bfloat16 has even numbers: 299 is 1 away, and 300, the last, is exact.
        ([1.0], 301, "bfloat16", "all", 1.0, 1),
        # Positions that float16 does not hold.
        ([1.0, 1e-3], 2**20, "float16", "all", math.pi, 2),
        (inverse_frequencies(128), 20, "bfloat16", "frequencies", SHORT, None),
    ],
)
def test_phase_errors(inverse, length, dtype, rounded, largest, lost):
    found = errors_of(np.array(inverse), length)[dtype, rounded]
    assert found[0] == pytest.approx(largest, rel=1e-3)
    assert lost in (None, found[1])


def test_phase_errors_against_the_rounding_of_the_types():
    found = errors_of(inverse_frequencies(128), 4096)
    assert 1e-5 < found["float32", "all"][0] < 1e-3 < 0.1 < found["float16", "all"][0]
    # Positions above 256 are rounded to multiples of 16: 8 away at most, at ω = 1 radians.
    assert found["bfloat16", "all"][1] > found["bfloat16", "frequencies"][1] > 0
    shown = [shown_error(PhaseError(8, "", "all", x, 1)) for x in (math.pi, 3.06, 3.04, 0.0074)]
    assert shown == ["π (lost)", "π (lost)", "3", "0.0074"]


@pytest.mark.parametrize("length", [200, 3000, 4096])
def test_phase_errors_are_listed_once_for_each_length(explain, length):
    precision = explain(read("published")["Llama 3.1 8B"], length=length).precision
    lengths = [e.length for e in precision if (e.dtype, e.rounded) == ("float32", "all")]
    assert lengths == [2**k for k in range(8, 12) if 2**k < length] + [length]
