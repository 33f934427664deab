"""Ranges of options end where they are said to, and rules of length switch where they are."""

import dataclasses
import math

import numpy as np
import pytest

from jaxpe import encodings
from jaxpe._core.errors import InputError
from jaxpe._core.options import check_ranges, option
from jaxpe.plans.scaling import DynamicScaling, LongRopeScaling


@dataclasses.dataclass
class Options:
    whole: int = option(1, least=1, most=9)
    share: float | None = option(0.5, above=0, below=1)
    sizes: tuple[int, ...] = option((2,), least=2)


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("whole", (1, 9), (0, 10)),
        ("share", (math.ulp(0.0), math.nextafter(1, 0), None), (0.0, 1.0, math.nan)),
        ("sizes", ((2, 2**31 - 1), ()), ((2, 1), (2**31,))),
    ],
)
def test_options_at_a_bound_are_taken_and_beyond_it_refused(name, allowed, refused):
    for value in allowed:
        check_ranges(Options(**{name: value}))
    for value in refused:
        with pytest.raises(InputError, match=name):
            check_ranges(Options(**{name: value}))


LONGROPE = LongRopeScaling((1.0, 1.0), (4.0, 4.0), original_max_position_embeddings=8)
ONE, KEYS = np.ones((1, 1, 1)), np.arange(11)
MASKED = np.ones((11, 1, 1))


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        (lambda n: LONGROPE.frequencies(4, 100.0, n).inverse[0], {7: 1.0, 8: 1.0, 9: 0.25}),
        (
            lambda n: DynamicScaling(2.0, 8).frequencies(4, 100.0, n).inverse[1] < 0.1,
            {7: False, 8: False, 9: True},
        ),
        (
            lambda size: encodings.sliding_window(size=size)
            .mask((), ONE, MASKED, np.array([5]), KEYS)
            .sum(),
            {1: 1, 2: 3, 3: 5},
        ),
        (
            lambda at: encodings.attention_chunks(size=2)
            .mask((), ONE, MASKED, np.array([at]), KEYS - 4)
            .nonzero()[-1]
            .tolist(),
            {-2: [2, 3], -1: [2, 3], 0: [4, 5], 1: [4, 5], 2: [6, 7]},
        ),
        (
            lambda at: encodings.position_temperature(scale=1.0, period=2)
            .query((), ONE, np.array([at]))
            .item(),
            {-9: 1.0, 0: 1.0, 1: 1 + math.log(2), 2: 1 + math.log(2), 3: 1 + math.log(3)},
        ),
    ],
    ids=["longrope", "dynamic", "window", "chunks", "temperature"],
)  # fmt: skip
def test_rules_next_to_the_number_where_they_switch(rule, values):
    for number, expected in values.items():
        np.testing.assert_allclose(rule(number), expected, rtol=1e-12, err_msg=str(number))
