"""The interface: hooks, their composition, and what positions may be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxpe
from jaxpe import (
    Encoding,
    alibi,
    chain,
    encodings,
    identity,
    learned,
    per_head,
    rope,
    scale_positions,
    shaw,
)
from jaxpe.encodings.attention import attend
from jaxpe.encodings.attention_terms import attention_logits
from jaxpe.encodings.base import align_positions, as_positions, repeat_heads
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


def without_vectors(encoding):
    return encoding._replace(vectors=Encoding().vectors)


# --- Encoding ---


def test_an_encoding_of_one_function_goes_everywhere():
    """Whoever invents an encoding writes one function and loses nothing."""

    def nearby(params, q, k, i, j):
        return -jnp.abs(i[:, None] - j[None, :]).astype(q.dtype)  # no heads axis: it broadcasts

    own = Encoding(bias=nearby)
    assert [hook for hook in HOOKS if own.defines(hook)] == ["bias"]
    q, k, v = qkv()
    theirs = alibi(num_heads=HEADS, slopes=1.0)
    i = jnp.asarray(PLACES)
    expected = attended(theirs, (), q, k, v, **at(i))
    np.testing.assert_allclose(attended(own, (), q, k, v, **at(i)), expected, atol=1e-14)
    half = scale_positions(own, 0.5)
    np.testing.assert_allclose(attended(half, (), q, k, v, **at(2 * i)), expected, atol=1e-14)
    both = chain(rope(head_dim=DIM), own)
    only = logits_of(rope(head_dim=DIM), (), q, k, **at(i))
    added = logits_of(both, both.init(KEY), q, k, **at(i))
    np.testing.assert_allclose(added, only + nearby((), q, k, i, i)[None], atol=1e-13)
    mixed = per_head([own, identity()], heads=[1, HEADS - 1])
    bias = mixed.bias(mixed.init(KEY), q, k, i, i)
    np.testing.assert_array_equal(bias[0], nearby((), q, k, i, i))
    np.testing.assert_array_equal(bias[1:], 0)


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


def test_each_link_has_parameters_of_its_own():
    two = chain(shaw(head_dim=DIM, max_distance=2), rope(head_dim=DIM), learned(length=N, dim=DIM))
    params = two.init(KEY)
    assert isinstance(params, tuple)
    assert [sorted(own) for own in params] == [["key_table", "value_table"], [], ["table"]]
    same = chain(learned(length=N, dim=DIM), learned(length=N, dim=DIM)).init(KEY)
    assert not np.array_equal(same[0]["table"], same[1]["table"])


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


def test_some_heads_turn_and_others_do_not():
    encoding = per_head([rope(head_dim=DIM), identity()], heads=[3, 1])
    q, k, _ = qkv()
    for hook, x in ((encoding.query, q), (encoding.key, k)):
        turned = hook(((), ()), x, PLACES)
        np.testing.assert_array_equal(turned[:, :3], rope(head_dim=DIM).query((), x[:, :3], PLACES))
        np.testing.assert_array_equal(turned[:, 3:], x[:, 3:])
    assert encoding.bias(((), ()), q, k, PLACES, PLACES) is None


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


def test_a_head_without_a_mask_sees_everything():
    mixed = per_head([jaxpe.encodings.sliding_window(size=1), identity()], heads=[1, 2])
    x, i = np.ones((3, 3, DIM)), np.arange(3)
    mask = mixed.mask(((), ()), x, x, i, i)
    np.testing.assert_array_equal(mask, np.stack([np.eye(3, dtype=bool), *[np.ones((3, 3))] * 2]))


def test_only_encodings_by_offset_count_from_the_middle():
    """xPos may count from the middle of the positions; what is absolute beside it must not."""
    xpos = jaxpe.xpos(head_dim=DIM)
    absolute = jaxpe.encodings.position_temperature(period=2, scale=1.0)
    assert chain(xpos, identity(), alibi(num_heads=HEADS)).centered
    for combined in (chain(xpos, absolute), chain(absolute, xpos)):
        assert not combined.centered
        x, i = np.ones((4, HEADS, DIM)), np.arange(40, 44)
        places = {"q_positions": i, "k_positions": i}
        logits = jaxpe.attention_logits(combined, ((), ()), x, x, **places)
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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: per_head([identity()], heads=[1, 2]), r"heads=\[1, 2\] must give at least one"),
        (
            lambda: per_head([identity(), learned(length=N, dim=DIM)]),
            r"encodings \[1\] act on the embeddings, which all heads share: chain them",
        ),
        (
            lambda: per_head([rope(head_dim=DIM), identity()], heads=[2, 3]).query(
                ((), ()), np.ones((N, 4, DIM)), PLACES
            ),
            "built for num_heads=5, but the array of shape .* has 4",
        ),
        (
            lambda: repeat_heads(np.ones((N, 3, DIM)), 4),
            "4 query heads cannot share 3 key heads evenly",
        ),
    ],
)
def test_heads_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- scale_positions ---


@pytest.mark.parametrize("positions", [3 * PLACES, 3.0 * PLACES, (3 * PLACES).astype(np.float32)])
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


def test_the_factor_may_be_learned():
    q, k, _ = qkv()

    def total(factor):
        encoding = scale_positions(rope(head_dim=DIM), factor)
        return jnp.sum(jnp.sin(attention_logits(encoding, (), q, k, **at(PLACES))))

    check_grads(jax.jit(total), (jnp.asarray(0.7),), order=1, atol=1e-5, rtol=1e-5)
    assert jax.jit(jax.grad(total))(jnp.float32(0.7)).dtype == jnp.float32


# --- positions ---


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.int16, np.int32),
        (np.int64, np.int32),
        (np.uint32, np.int32),
        (np.float32, np.float32),
        (np.float64, np.float64),
    ],
)
def test_positions_are_int32_or_wide_floats(given, kept):
    positions = as_positions(PLACES.astype(given))
    assert positions.dtype == kept
    np.testing.assert_array_equal(positions, PLACES)
    with jax.enable_x64(False):
        assert as_positions(PLACES.astype(given)).dtype.itemsize == 4


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, bool, complex])
def test_positions_that_cannot_count_are_refused(dtype):
    with pytest.raises(ValueError, match="cannot tell positions apart: pass int32, or float32"):
        as_positions(jnp.asarray(PLACES).astype(dtype))


@pytest.mark.parametrize(
    ("positions", "shape", "after", "axes", "expected"),
    [
        ((5,), (5, 8), 1, 0, (5,)),
        ((5,), (3, 5, 4, 8), 2, 0, (1, 5)),
        ((3, 5), (3, 5, 4, 8), 2, 0, (3, 5)),
        ((1, 5), (3, 5, 4, 8), 2, 0, (1, 5)),
        ((3, 5), (2, 3, 5, 4, 8), 2, 0, (1, 3, 5)),
        ((5, 2), (3, 5, 4, 8), 2, 1, (1, 5, 2)),
        ((0,), (0, 4, 8), 2, 0, (0,)),
    ],
)
def test_positions_get_the_axes_of_their_array(positions, shape, after, axes, expected):
    aligned = align_positions(np.zeros(positions, int), shape, after=after, axes=axes)
    assert aligned.shape == expected


@pytest.mark.parametrize(
    ("positions", "shape"),
    [
        ((4,), (5, 2, 8)),
        ((1,), (5, 2, 8)),
        ((2, 5), (3, 5, 2, 8)),
        ((3, 5), (5, 2, 8)),
        ((), (5, 2, 8)),
    ],
)
def test_positions_that_do_not_fit_are_refused(positions, shape):
    with pytest.raises(
        ValueError, match=r"do not fit an array of shape .* pass \[..., n\] with n = 5"
    ):
        align_positions(np.zeros(positions, int), shape, after=2)


@pytest.mark.parametrize(
    "beyond", [np.array([2**32 + 1]), np.array([2**32 - 1], np.uint32), jnp.asarray([-(2**31) - 1])]
)
def test_positions_that_int32_cannot_hold_are_refused(beyond):
    with pytest.raises(ValueError, match="beyond 32 bits"):
        as_positions(beyond)


def test_known_positions_inside_a_trace_are_looked_at():
    """An int64 array of JAX, closed over by a program that is being traced."""
    known, far = jnp.arange(N), jnp.arange(N) + 2**31
    assert known.dtype == jnp.int64
    add = jax.jit(lambda x: x + as_positions(known))
    np.testing.assert_array_equal(add(jnp.zeros(N, jnp.int32)), PLACES)
    with pytest.raises(ValueError, match="beyond 32 bits"):
        jax.jit(lambda x: x + as_positions(far))(jnp.zeros(N, jnp.int32))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_positions_that_are_no_numbers_are_refused(bad):
    positions = np.array([0.0, bad])
    for vectors in (
        lambda i: encodings.sinusoidal_vectors(i, dim=4),
        lambda i: encodings.cosine_vectors(i, dim=4, length=8),
        lambda i: encodings.wavelet_vectors(i, dim=4, length=8),
        lambda i: encodings.rotary_orbit(i, dim=4),
        lambda i: encodings.alibi_line(i),
        as_positions,
    ):
        with pytest.raises(ValueError, match="positions hold NaN or infinity"):
            vectors(positions)
    with unchecked(), pytest.raises(ValueError, match="positions is str"):
        as_positions("abc")


def test_widths_that_no_memory_holds_are_refused():
    for vectors in (encodings.sinusoidal_vectors, encodings.rotary_orbit):
        with pytest.raises(ValueError, match=r"`dim=1000000000` needs .* GB"):
            vectors(np.arange(3), dim=10**9)
