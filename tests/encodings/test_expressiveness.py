"""What is told apart on constant sequences, what is added, what it costs: against the laws."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe import EncodingSizes, catalogue
from jaxpe.encodings import (
    encoding_cost,
    encoding_expressiveness,
    encoding_extrapolation,
    encoding_generalisation,
)
from jaxpe.encodings.analysis.expressiveness import FARTHEST, spread
from jaxpe.encodings.analysis.length_extrapolation import extrapolation
from jaxpe.encodings.analysis.power_law import exponent

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


@pytest.mark.parametrize("name", ["rope", "alibi"])
def test_what_acts_on_logits_alone_keeps_a_constant_sequence_constant(name):
    found = expressiveness(name)
    assert found.bidirectional.largest < 1e-12
    assert found.causal.largest < 1e-12
    assert found.causal_bos.apart


def test_without_a_mask_alibi_commutes_with_reversal():
    """So no norm makes such networks dense among all maps of sequences."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 9, 2, 4))
    i = np.arange(9)
    alibi = jaxpe.alibi(num_heads=2)
    straight, turned = (
        jaxpe.attend(alibi, (), *(x[order] for x in (q, k, v)), q_positions=i, k_positions=i)
        for order in (i, i[::-1])
    )
    np.testing.assert_allclose(turned, straight[::-1], atol=1e-14)


def test_alibi_in_the_mask_of_a_causal_layer_costs_no_operation():
    """A mask is added to the logits anyway; one for each head takes no more operations."""
    n, heads, width = 32, 4, 8
    q, k, v = np.random.default_rng(0).standard_normal((3, n, heads, width))
    causal = np.where(np.tri(n, dtype=bool), 0.0, -1e30)[None]
    i = np.arange(n)
    slopes = np.asarray(jaxpe.encodings.alibi_slopes(heads))
    both = causal - slopes[:, None, None] * np.abs(i[:, None] - i)

    def layer(q, k, v, mask):
        logits = jnp.einsum("ihd,jhd->hij", q, k) / width**0.5 + mask
        return jnp.einsum("hij,jhd->ihd", jax.nn.softmax(logits), v)

    plain, biased = (jax.jit(layer).lower(q, k, v, mask).compile() for mask in (causal, both))
    assert plain.cost_analysis()["flops"] == biased.cost_analysis()["flops"] > 0
    alibi = jaxpe.alibi(num_heads=heads)
    expected = jaxpe.attend(
        alibi, (), q, k, v, q_positions=i, k_positions=i, mask=np.tri(n, dtype=bool)
    )
    np.testing.assert_allclose(biased(q, k, v, both), expected, atol=1e-12)


def test_no_encoding_tells_positions_after_a_bos_by_one_over_their_number():
    """Under a causal mask position i sees the <bos> as one of i + 1 tokens."""
    n, (bos, token) = 8, np.random.default_rng(0).standard_normal((2, 3))
    v = np.concatenate([bos[None], np.repeat(token[None], n - 1, 0)])
    q, i = np.zeros((n, 1, 3)), np.arange(n)
    mask = np.tril(np.ones((n, n), bool))
    out = jaxpe.attend(
        jaxpe.identity(), (), q, q, v[:, None], q_positions=i, k_positions=i, mask=mask
    )
    share = 1 / np.arange(1, n + 1)[:, None]
    np.testing.assert_allclose(out[:, 0], token + share * (bos - token), atol=1e-14)
    assert spread(np.asarray(out)[None, :, 0]).apart


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


def test_lengths_too_short_to_measure_are_refused():
    short, one = EncodingSizes(16, 2, 8, 3), EncodingSizes(16, 2, 8, 1)
    for measure in (encoding_generalisation, encoding_cost):
        with pytest.raises(ValueError, match=r"length=3 has no quarter .* pass at least 4"):
            measure(ENTRIES["alibi"], sizes=short)
    with pytest.raises(ValueError, match=r"length=1 has no neighbours .* pass 2 or more"):
        encoding_extrapolation(ENTRIES["alibi"], sizes=one)


def test_norm_of_sinusoids_is_the_root_of_half_the_width():
    found = encoding_generalisation(ENTRIES["sinusoidal"], sizes=SIZES)
    assert found.norm.value == pytest.approx(np.sqrt(SIZES.dim / 2))
    assert (found.norm.dim, found.norm.length) == (pytest.approx(0.5), 0.0)
    assert (found.bias, found.parameters.value) == (0.0, 0.0)


def test_bias_of_alibi_is_the_steepest_slope_times_the_length():
    found = encoding_generalisation(ENTRIES["alibi"], sizes=SIZES)
    slope = jaxpe.encodings.alibi_slopes(SIZES.num_heads).max()
    assert found.bias == pytest.approx(slope * (SIZES.length - 1))
    ends = SIZES.length * np.array([1, 2, 4, 8])
    assert found.bias_beyond == pytest.approx(
        exponent(ends.tolist(), (slope * (ends - 1)).tolist()), abs=1e-5
    )


def test_loops_cost_as_often_as_they_run():
    """The recurrence of Legendre polynomials against its steps written out."""
    cost = encoding_cost(ENTRIES["legendre_clipped"], sizes=SIZES)
    assert cost.looped
    assert cost.flops.dim == pytest.approx(1, abs=0.1)

    def unrolled(i, x):
        p = [jnp.ones_like(i), i]
        for k in range(1, SIZES.dim - 1):
            p.append(((2 * k + 1) * i * p[-1] - k * p[-2]) / (k + 1))
        return x + jnp.stack(p, axis=-1)

    shapes = (jnp.zeros(SIZES.length), jnp.zeros((SIZES.length, SIZES.dim)))
    # Not compiled: fusion would compute the low degrees again for each higher one.
    flops = jax.jit(unrolled).lower(*shapes).cost_analysis()["flops"] / SIZES.length
    assert 0.5 < cost.flops.value / flops < 2


def test_cost_of_alibi_is_that_of_pairs():
    cost = encoding_cost(ENTRIES["alibi"], sizes=SIZES)
    assert not cost.looped
    assert (cost.flops.dim, cost.flops.length) == (0.0, pytest.approx(1.0, abs=0.02))


@pytest.mark.parametrize(
    ("name", "state", "reach"),
    [
        ("sinusoidal", "told apart", 8.0),
        ("learned", "undefined", 1.0),
        ("shaw", "constant", 17 / 32),
        ("cosine", "repeats", 1.0),
    ],
)
def test_states_beyond_the_length(name, state, reach):
    found = encoding_extrapolation(ENTRIES[name], sizes=SIZES)
    assert [stretch.state for stretch in found.stretches] == [state] * 3
    assert found.reach == reach


def test_steps_of_a_line_that_bends():
    """Steps of 1 to 2T, of 1/4 to 4T, of 1/20 beyond; steps between stretches do not count."""
    length = 10
    steps = np.repeat([1.0, 0.25, 0.05], [2 * length, 2 * length, 4 * length])
    steps[np.array([1, 2, 4]) * length - 1] = 3.0
    found = extrapolation(np.concatenate([[0.0], np.cumsum(steps)])[:-1, None], length=length)
    shares = [(stretch.smallest, stretch.mean) for stretch in found.stretches]
    np.testing.assert_allclose(shares, [(1, 1), (0.25, 0.25), (0.05, 0.05)], rtol=1e-9)
    assert found.reach == pytest.approx(4.1)


def test_a_row_that_is_undefined_ends_the_reach():
    rows = np.arange(32.0)[:, None]
    rows[9] = np.nan
    found = extrapolation(rows, length=4)
    assert [stretch.state for stretch in found.stretches] == [
        "told apart",
        "undefined",
        "told apart",
    ]
    assert found.reach == 9 / 4
    assert np.isnan(found.stretches[1].smallest)


def test_rows_that_come_again_repeat_though_others_do_not():
    """Every row beyond the length equals one within it; not the other way round."""
    rows = np.concatenate([np.arange(4.0), np.tile([0.0, 1.0], 14)])[:, None]
    assert {one.state for one in extrapolation(rows, length=4).stretches} == {"repeats"}
