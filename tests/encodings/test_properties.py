"""Computed properties of encodings: positions beyond the length, and what they cost."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import encodings
from jaxpe.encodings import EncodingSizes, catalogue
from jaxpe.encodings.analysis.properties import extrapolation
from jaxpe.encodings.families.bias import alibi_slopes

SIZES = EncodingSizes(dim=32, num_heads=2, head_dim=8, length=32)


@cache
def properties(name):
    return encodings.encoding_properties(*catalogue(name), sizes=SIZES)


def test_alibi_in_the_mask_of_a_causal_layer_costs_no_operation():
    """A mask is added to the logits anyway; one for each head takes no more operations."""
    n, heads, width = 32, 4, 8
    q, k, v = np.random.default_rng(0).standard_normal((3, n, heads, width))
    causal = np.where(np.tri(n, dtype=bool), 0.0, -1e30)[None]
    i = np.arange(n)
    slopes = np.asarray(alibi_slopes(heads))
    both = causal - slopes[:, None, None] * np.abs(i[:, None] - i)

    def layer(q, k, v, mask):
        logits = jnp.einsum("ihd,jhd->hij", q, k) / width**0.5 + mask
        return jnp.einsum("hij,jhd->ihd", jax.nn.softmax(logits), v)

    plain, biased = (jax.jit(layer).lower(q, k, v, mask).compile() for mask in (causal, both))
    assert plain.cost_analysis()["flops"] == biased.cost_analysis()["flops"] > 0
    alibi = encodings.alibi(num_heads=heads)
    expected = encodings.attend(
        alibi, (), q, k, v, q_positions=i, k_positions=i, mask=np.tri(n, dtype=bool)
    )
    np.testing.assert_allclose(biased(q, k, v, both), expected, atol=1e-12)


def test_loops_cost_as_often_as_they_run():
    """The recurrence of Legendre polynomials against its steps written out."""
    found = properties("legendre_clipped")
    assert found.looped

    def unrolled(i, x):
        p = [jnp.ones_like(i), i]
        for k in range(1, SIZES.dim - 1):
            p.append(((2 * k + 1) * i * p[-1] - k * p[-2]) / (k + 1))
        return x + jnp.stack(p, axis=-1)

    shapes = (jnp.zeros(SIZES.length), jnp.zeros((SIZES.length, SIZES.dim)))
    # Not compiled: fusion would compute the low degrees again for each higher one.
    flops = jax.jit(unrolled).lower(*shapes).cost_analysis()["flops"] / SIZES.length
    assert 0.5 < found.flops / flops < 2


def test_reach_of_a_line_that_bends():
    """Steps of 1 to 2T, of 1/4 to 4T, of 1/20 beyond."""
    length = 10
    steps = np.repeat([1.0, 0.25, 0.05], [2 * length, 2 * length, 4 * length])
    rows = np.concatenate([[0.0], np.cumsum(steps)])[:-1, None]
    assert extrapolation(rows, length=length) == ("told apart", pytest.approx(4.1))


def test_the_step_out_of_the_length_is_none_within_it():
    rows = np.array([0.0, 1.0, 2.0, 3.0, *(3.01 + np.arange(28))])[:, None]
    assert extrapolation(rows, length=4) == ("told apart", 1.0)


def test_a_row_that_is_undefined_ends_the_reach():
    rows = np.arange(32.0)[:, None]
    rows[9] = np.nan
    assert extrapolation(rows, length=4) == ("undefined", 9 / 4)


def test_rows_that_come_again_repeat_though_others_do_not():
    """Every row beyond the length equals one within it; not the other way round."""
    rows = np.concatenate([np.arange(4.0), np.tile([0.0, 1.0], 14)])[:, None]
    assert extrapolation(rows, length=4)[0] == "repeats"
