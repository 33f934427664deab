"""RoPE frequencies of papers, against the loops of their authors' code and numbers that they print.

CoPE: `modeling_cope.py`. RIFLEx: `riflex_utils.py`. DyPE: `transformer_flux.py`, method "ntk".
LongRoPE2: Algorithm 2, and the critical dimensions of Section 2.1.
"""

import math

import numpy as np
import pytest

from jaxpe.encodings import (
    ClippedScaling,
    DypeScaling,
    RiflexScaling,
    critical_dimension,
    longrope2_scaling,
    rope,
    rope_frequencies,
    rope_to_hf,
)


def plain(dim, base):
    return [1 / base ** (2 * k / dim) for k in range(dim // 2)]


def cope_loop(dim, base, n):
    frequencies = plain(dim, base)
    for j in range(n):
        frequencies[dim // 2 - n + j] *= 0.5 * (1 + math.cos(math.pi * j / (n - 1)))
    return frequencies


def hope_loop(dim, base, length):
    return [f if 2 * math.pi / f < length else 0.0 for f in plain(dim, base)]


def riflex_loop(dim, base, repetition, target):
    """k is 4 and its period 50 for HunyuanVideo, where b = 256, d = 16 and N = 48."""
    frequencies = plain(dim, base)
    periods = [round(2 * math.pi / f) for f in frequencies]
    differences = [abs(period - repetition) for period in periods]
    k = differences.index(min(differences)) + 1
    if (dim, base, repetition) == (16, 256.0, 48):
        assert (k, periods[k - 1]) == (4, 50)
    if target > periods[k - 1]:
        frequencies[k - 1] = 0.9 * 2 * math.pi / target
    return frequencies


def dype_loop(dim, base, scale, t):
    ratio = max(1.0, (scale ** (dim / (dim - 2))) ** (2.0 * t**2.0))
    return plain(dim, base * ratio)


def longrope2_loop(dim, base, critical, divisors):
    """λ before c: those of the base for which ω_c is divided by λ_c."""
    at = divisors[0] * base ** (2 * critical / dim)
    faster = plain(dim, at ** (dim / (2 * critical)))[:critical]
    slow = plain(dim, base)[critical:]
    return [*faster, *(f / d for f, d in zip(slow, divisors, strict=True))]


def high_frequency(dim, base, length):
    turning = critical_dimension(dim, base=base, original_max_position_embeddings=length)
    return ClippedScaling(dim // 2 - turning, smooth=False)


def longrope2(dim, base, critical, divisors):
    return longrope2_scaling(
        dim, base=base, factor=4.0, original_max_position_embeddings=512, critical=critical,
        divisors=divisors,
    )  # fmt: skip


CASES = {
    "CoPE, Llama 3": (lambda d, b, n: ClippedScaling(n), cope_loop, 128, 1e7, 20),
    "HoPE": (high_frequency, hope_loop, 64, 1e4, 512),
    "RIFLEx, HunyuanVideo": (lambda d, b, *a: RiflexScaling(*a), riflex_loop, 16, 256.0, 48, 66),
    "RIFLEx, inside the period": (
        lambda d, b, *a: RiflexScaling(*a), riflex_loop, 16, 256.0, 48, 50
    ),
    "DyPE, FLUX, noise": (lambda d, b, *a: DypeScaling(*a), dype_loop, 56, 1e4, 4.0, 1.0),
    "DyPE, FLUX, half-way": (lambda d, b, *a: DypeScaling(*a), dype_loop, 56, 1e4, 4.0, 0.5),
    "DyPE, FLUX, image": (lambda d, b, *a: DypeScaling(*a), dype_loop, 56, 1e4, 4.0, 0.0),
    "LongRoPE2": (longrope2, longrope2_loop, 16, 1e4, 5, (4.5, 5.0, 8.0)),
}  # fmt: skip


def test_longrope2_keeps_the_frequencies_of_short_texts():
    found = longrope2(16, 1e4, 5, (4.5, 5.0, 8.0)).frequencies(16, 1e4, 512)
    np.testing.assert_allclose(found.inverse, plain(16, 1e4), rtol=1e-12)
    assert found.attention_factor == 1


@pytest.mark.parametrize("case", CASES)
def test_frequencies_are_those_of_the_authors(case):
    make, loop, dim, base, *numbers = CASES[case]
    scaling = make(dim, base, *numbers)
    found = rope_frequencies(head_dim=dim, base=base, scaling=scaling, length=10**6)
    np.testing.assert_allclose(found.inverse, loop(dim, base, *numbers), rtol=1e-12)
    assert found.attention_factor == 1
    if case.startswith("LongRoPE2"):  # short texts keep theirs; transformers can express it
        short = rope_frequencies(head_dim=dim, base=base, scaling=scaling, length=512)
        np.testing.assert_allclose(short.inverse, plain(dim, base))
        assert rope_to_hf(head_dim=dim, scaling=scaling)["rope_type"] == "longrope"
    else:
        assert rope(head_dim=dim, base=base, scaling=scaling).rotates
        with pytest.raises(ValueError, match="Hugging Face has no type for"):
            rope_to_hf(head_dim=dim, scaling=scaling)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rope(head_dim=8, scaling=ClippedScaling(5)), "clipped is 5: pass 0 to 4"),
        (lambda: rope(head_dim=8, scaling=DypeScaling(4.0, 1.5)), "pass 1 for noise"),
        (lambda: rope(head_dim=8, scaling=RiflexScaling(48, 0)), "target must be positive"),
        (lambda: longrope2(8, 1e4, 5, None), "pass 1 to 4"),
        (lambda: longrope2(8, 1e4, 2, (4.0,)), "1 divisors: pass 2"),
    ],
)
def test_numbers_that_make_no_sense(make, message):
    with pytest.raises(ValueError, match=message):
        make()
