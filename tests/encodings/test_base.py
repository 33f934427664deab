"""The interface: hooks, their composition, and what positions may be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import encodings
from jaxpe.encodings import (
    Encoding,
    alibi,
    chain,
    identity,
    learned,
    per_head,
    rope,
    scale_positions,
    shaw,
)
from jaxpe.encodings.attention import attend
from jaxpe.encodings.attention_terms import attention_logits
from jaxpe.encodings.base import align_positions, as_positions
from tests.unchecked import unchecked

N, HEADS, DIM = 5, 4, 8
PLACES = np.arange(N)
KEY = jax.random.key(0)
HOOKS = ("embed", "query", "key", "bias", "value", "vectors")

logits_of = jax.jit(attention_logits, static_argnums=0)
attended = jax.jit(attend, static_argnums=0)


def normal(seed, *shape, dtype=float):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def qkv(heads=HEADS, dtype=float):
    return tuple(normal(seed, N, heads, DIM, dtype=dtype) for seed in range(3))


def at(i):
    return {"q_positions": i, "k_positions": i}


def add(amount):
    return lambda params, x, positions: x + amount


def times(amount):
    return lambda params, x, positions: x * amount


def constant(amount):
    """Bias and value term that are one number, to count what was added."""
    return Encoding(
        bias=lambda params, q, k, i, j: jnp.full((HEADS, N, N), amount),
        value=lambda params, weights, i, j: jnp.full((N, HEADS, DIM), amount),
    )


# --- chain ---


@pytest.mark.parametrize("hook", ["embed", "query", "key"])
def test_links_apply_in_order(hook):
    first, second = (Encoding(**{hook: f}) for f in (add(1.0), times(3.0)))
    x = np.ones((N, 1, 2))
    for encoding, expected in ((chain(first, second), 6), (chain(second, first), 4)):
        params = encoding.init(KEY)
        np.testing.assert_array_equal(getattr(encoding, hook)(params, x, PLACES), expected)
        assert [name for name in HOOKS if encoding.defines(name)] == [hook]


def test_biases_and_value_terms_add_and_absent_ones_do_not_count():
    q, k, _ = qkv()
    weights = np.ones((HEADS, N, N))
    three = chain(constant(1.0), identity(), constant(2.5))
    params = three.init(KEY)
    assert params == ((), (), ())
    np.testing.assert_array_equal(three.bias(params, q, k, PLACES, PLACES), 3.5)
    np.testing.assert_array_equal(three.value(params, weights, PLACES, PLACES), 3.5)
    none = Encoding(bias=lambda *args: None, value=lambda *args: None)
    silent = chain(none, none)
    assert silent.bias(silent.init(KEY), q, k, PLACES, PLACES) is None
    assert silent.value(silent.init(KEY), weights, PLACES, PLACES) is None


def test_vectors_are_those_of_the_one_link_that_has_them():
    table = learned(length=N, dim=DIM)
    encoding = chain(identity(), table, shaw(head_dim=DIM, max_distance=2))
    params = encoding.init(KEY)
    np.testing.assert_array_equal(encoding.vectors(params, PLACES), params[1]["table"])
    several = chain(identity(), rope(head_dim=DIM), alibi(num_heads=HEADS))
    with pytest.raises(ValueError, match=r"encodings \[1, 2\], which all define"):
        several.vectors(several.init(KEY), PLACES)
    assert not chain(identity(), shaw(head_dim=DIM, max_distance=2)).defines("vectors")


def test_chains_are_associative_with_the_identity():
    a, b = rope(head_dim=DIM), alibi(num_heads=HEADS)
    c = shaw(head_dim=DIM, max_distance=2)
    own = c.init(KEY)
    q, k, v = qkv()
    expected = attended(chain(a, b, c), ((), (), own), q, k, v, **at(PLACES))
    for encoding, params in (
        (chain(chain(a, b), c), (((), ()), own)),
        (chain(a, chain(b, c)), ((), ((), own))),
        (chain(identity(), a, chain(), b, c, identity()), ((), (), (), (), own, ())),
    ):
        assert jax.tree.structure(params) == jax.tree.structure(encoding.init(KEY))
        actual = attended(encoding, params, q, k, v, **at(PLACES))
        np.testing.assert_allclose(actual, expected, atol=1e-14)


# --- per_head ---


def test_heads_mix_biases_turns_and_values():
    parts = [alibi(num_heads=2), rope(head_dim=DIM), shaw(head_dim=DIM, max_distance=2)]
    sizes = [2, 1, 1]
    encoding = per_head(parts, heads=sizes)
    params = encoding.init(KEY)
    q, k, v = qkv()
    whole = attended(encoding, params, q, k, v, **at(PLACES))
    start = 0
    for part, own, size in zip(parts, params, sizes, strict=True):
        mine = slice(start, start + size)
        alone = attended(part, own, *(x[:, mine] for x in (q, k, v)), **at(PLACES))
        np.testing.assert_allclose(whole[:, mine], alone, atol=1e-13)
        start += size
    bias = encoding.bias(params, q, k, PLACES, PLACES)
    np.testing.assert_array_equal(bias[2], 0)
    term = encoding.value(params, np.full((HEADS, N, N), 0.2), PLACES, PLACES)
    assert term.shape == (N, HEADS, DIM)
    np.testing.assert_array_equal(term[:, :3], 0)


def test_only_encodings_by_offset_count_from_the_middle():
    """xPos may count from the middle of the positions; what is absolute beside it must not."""
    xpos = encodings.xpos(head_dim=DIM)
    absolute = encodings.position_temperature(period=2, scale=1.0)
    assert chain(xpos, identity(), alibi(num_heads=HEADS)).centered
    for combined in (chain(xpos, absolute), chain(absolute, xpos)):
        assert not combined.centered
        x, i = np.ones((4, HEADS, DIM)), np.arange(40, 44)
        places = {"q_positions": i, "k_positions": i}
        logits = encodings.attention_logits(combined, ((), ()), x, x, **places)
        q, k = (f(((), ()), x, i) for f in (combined.query, combined.key))
        expected = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(DIM)
        np.testing.assert_allclose(logits, expected, rtol=1e-9)


def test_grouped_keys_divide_as_the_heads_do():
    encoding = per_head([rope(head_dim=DIM), identity()], heads=[2, 2])
    q, k, v = qkv()
    k, v = k[:, :2], v[:, :2]
    turned = encoding.key(((), ()), k, PLACES)
    np.testing.assert_array_equal(turned[:, 0], rope(head_dim=DIM).key((), k, PLACES)[:, 0])
    np.testing.assert_array_equal(turned[:, 1], k[:, 1])
    grouped = attended(encoding, ((), ()), q, k, v, **at(PLACES))
    repeated = [jnp.repeat(x, 2, axis=1) for x in (k, v)]
    expected = attended(encoding, ((), ()), q, *repeated, **at(PLACES))
    np.testing.assert_allclose(grouped, expected, atol=1e-14)
    uneven = per_head([rope(head_dim=DIM), identity()], heads=[1, 3])
    with pytest.raises(ValueError, match=r"cover 4 heads as \[1, 3\], but the array has 2"):
        uneven.key(((), ()), k, PLACES)


# --- scale_positions ---


@pytest.mark.parametrize("positions", [3 * PLACES, (3 * PLACES).astype(np.float32)])
def test_scaled_positions_are_other_positions(positions):
    q, k, _ = qkv()
    for encoding in (rope(head_dim=DIM), alibi(num_heads=HEADS), learned(length=N, dim=DIM)):
        third = scale_positions(encoding, 1 / 3)
        assert [third.defines(h) for h in HOOKS] == [encoding.defines(h) for h in HOOKS]
        params = third.init(KEY)
        places = np.round(positions / 3)  # whole again, as the table needs
        if encoding.defines("embed"):
            whole = scale_positions(encoding, 1.0)
            np.testing.assert_allclose(
                whole.vectors(params, places), encoding.vectors(params, PLACES), atol=1e-12
            )
            continue
        np.testing.assert_allclose(
            logits_of(third, params, q, k, **at(positions)),
            logits_of(encoding, params, q, k, **at(PLACES)),
            atol=1e-5 if positions.dtype == np.float32 else 1e-12,
        )


# --- positions ---


@pytest.mark.parametrize(
    ("positions", "shape"),
    [
        ((4,), (5, 2, 8)),
        ((2, 5), (3, 5, 2, 8)),
        ((3, 5), (5, 2, 8)),
        ((), (5, 2, 8)),
    ],
)
def test_positions_that_do_not_fit_are_refused(positions, shape):
    with pytest.raises(ValueError, match="do not fit"):
        align_positions(np.zeros(positions, int), shape, after=2)


@pytest.mark.parametrize(
    "positions",
    [np.array([2**32 + 1]), np.array([2**32 - 1], np.uint32), np.array([0.0, np.inf]), "abc"]
    + [jnp.zeros(3, dtype) for dtype in (jnp.bfloat16, bool, complex)],
)
def test_positions_that_are_no_numbers_are_refused(positions):
    with unchecked(), pytest.raises(ValueError, match="position"):
        as_positions(positions)
