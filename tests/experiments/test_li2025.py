"""Li (2025): what is told apart on constant sequences, and how terms of bounds grow."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.li2025.expressiveness import FARTHEST, encoding_expressiveness, spread
from experiments.li2025.growth import exponent, generalisation_terms
from jaxpe.encodings import Encoding, EncodingSizes, catalogue
from jaxpe.encodings.families.bias import alibi_slopes
from jaxpe.encodings.registry import CatalogueEntry

SIZES = EncodingSizes(dim=32, num_heads=2, head_dim=8, length=32)
ENTRIES = {entry.name: entry for entry in catalogue()}


@cache
def expressiveness(name):
    return encoding_expressiveness(ENTRIES[name], sizes=SIZES)


# Luo et al. (2022) against the proof of Theorem 3 of Yun et al. (2020), of embeddings that can be
# scaled; Shaw's value term is the one relative encoding that reaches the states without passing a
# softmax.
@pytest.mark.parametrize(
    ("name", "reach"),
    [("rope", 0), ("alibi", 0), ("shaw", FARTHEST), ("sinusoidal", FARTHEST), ("learned", 1)],
)
def test_universal_are_those_that_tell_a_constant_sequence_apart(name, reach):
    found = expressiveness(name)
    assert found.reach == reach
    assert found.universal == (reach >= 1) == found.bidirectional.apart
    assert found.universal_any == (reach == FARTHEST)
    if not reach:  # acts on logits alone
        assert max(found.bidirectional.largest, found.causal.largest) < 1e-12
        assert found.causal_bos.apart


def test_spread_against_all_pairs():
    rows = np.random.default_rng(1).standard_normal((2, 7, 3))
    draws = [
        np.linalg.norm(draw[:, None] - draw[None], axis=-1) / np.linalg.norm(draw, axis=-1).max()
        for draw in rows
    ]
    off = ~np.eye(7, dtype=bool)
    found = spread(rows)
    assert found.largest == pytest.approx(max(d.max() for d in draws))
    assert found.nearest == pytest.approx(max(d[off].min() for d in draws))


@pytest.mark.parametrize("draw", [0, 1, 2])
def test_a_draw_that_is_nan_is_not_passed_over(draw):
    rows = np.random.default_rng(1).standard_normal((3, 4, 2))
    rows[draw, 1] = np.nan
    found = spread(rows)
    assert np.isnan(found).all()
    assert not found.apart


def test_bias_of_alibi_is_the_steepest_slope_times_the_length():
    found = generalisation_terms(ENTRIES["alibi"], sizes=SIZES)
    slope = alibi_slopes(SIZES.num_heads).max()
    assert found.bias == pytest.approx(slope * (SIZES.length - 1))
    ends = SIZES.length * np.array([1, 2, 4, 8])
    assert found.bias_beyond == pytest.approx(
        exponent(ends.tolist(), (slope * (ends - 1)).tolist()), abs=1e-5
    )


def test_a_query_is_among_its_own_keys():
    """A bias of 3 on the diagonal and of 1 elsewhere."""

    def bias(params, q, k, i, j):
        return jnp.where(i[None, :, None] == j[None, None, :], 3.0, 1.0)

    entry = CatalogueEntry("diagonal", "bias", lambda sizes: Encoding(bias=bias))
    assert generalisation_terms(entry, sizes=EncodingSizes(4, 1, 4, 4)).bias == 3.0
