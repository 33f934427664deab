"""Rotary encodings: laws of the rotation, its derivative, phases, scalings and layouts."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from jaxpe import encodings
from jaxpe.encodings import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    NtkScaling,
    ProportionalScaling,
    YarnScaling,
    axial_rope,
    chain,
    directional_rope,
    identity,
    inverse_frequencies,
    mrope,
    per_head,
    rope,
    xpos,
)
from jaxpe.encodings.attention_terms import attention_logits
from jaxpe.encodings.phases import phases
from jaxpe.plans.scaling import scaling_from_hf

N, HEADS, DIM = 6, 2, 16
PLACES = np.array([0, 3, 4, 9, 2, 25])
ROPE, MROPE = rope(head_dim=DIM), mrope(head_dim=DIM, sections=(4, 2, 2))
LONG = LongRopeScaling((1.0,) * 8, tuple(np.linspace(1, 4, 8).tolist()), 16, factor=4.0)


def query_of(encoding, q, i):
    return encoding.query((), q, i)


def normal(seed, *shape, dtype=float):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def qkv(dtype=float, heads=HEADS, dim=DIM):
    return tuple(normal(seed, N, heads, dim, dtype=dtype) for seed in range(3))


def at(i):
    return {"q_positions": i, "k_positions": i}


def turned_slowly(x, angles, interleaved=False):
    """The obvious formula: slices and a concatenation, angles `[n, half]`."""
    cos, sin = jnp.cos(angles)[:, None, :], jnp.sin(angles)[:, None, :]
    if interleaved:
        a, b = x[..., ::2], x[..., 1::2]
        pairs = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1)
        return pairs.reshape(x.shape)
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


# --- laws of the rotation ---


@pytest.mark.parametrize("interleaved", [False, True])
def test_the_hook_is_the_obvious_formula(interleaved):
    q, _, _ = qkv()
    encoding = rope(head_dim=DIM, layout="interleaved" if interleaved else "half")
    for places in (PLACES, -PLACES, PLACES + 0.3, PLACES + 10**6):
        angles = places[:, None] * inverse_frequencies(DIM)
        expected = turned_slowly(q, angles, interleaved)
        np.testing.assert_allclose(query_of(encoding, q, places), expected, atol=1e-9)


def test_xpos_decays_by_the_published_factor():
    """⟨q_i, k_j⟩ of unit pairs is Σ ζ_k^((i−j)/b) cos ω_k(i − j), whatever the centre."""
    i, j = 700, 188
    zeta = (np.arange(0, DIM, 2) + 0.4 * DIM) / (1.4 * DIM)
    expected = np.sum(zeta ** ((i - j) / 512.0) * np.cos(inverse_frequencies(DIM) * (i - j)))
    unit = np.repeat([1.0, 0.0], DIM // 2)[None, None, :]
    for center in (0.0, 400.0):
        encoding = xpos(head_dim=DIM, center=center)
        where = {"q_positions": np.array([i]), "k_positions": np.array([j])}
        logits = partial(attention_logits, encoding, (), scale=1.0, **where)
        logit = jax.jit(logits)(unit, unit)
        np.testing.assert_allclose(logit, [[[expected]]], rtol=1e-12)
    with pytest.raises(ValueError, match="no position vectors"):
        encoding.vectors((), PLACES)


@pytest.mark.parametrize(("start", "dtype"), [(36_000, np.float16), (2**31 - 60, np.float32)])
def test_xpos_at_far_positions_is_that_at_near_ones(start, dtype):
    q, k, _ = qkv(dtype)
    encoding = xpos(head_dim=DIM)

    @jax.jit
    def logits(i):
        return attention_logits(encoding, (), q, k, q_positions=i, k_positions=i)

    near, far = (logits(np.asarray(PLACES + shift, np.int32)) for shift in (0, start))
    np.testing.assert_allclose(far, near, rtol=1e-6, atol=1e-6)
    grouped = per_head([encoding, chain(encoding, identity())], heads=[1, 1])
    again = attention_logits(grouped, ((), ((), ())), q, k, **at(PLACES + start))
    # Logits are of order 1, and positions known to the encoding are turned in another order.
    np.testing.assert_allclose(again, near, atol=1e-2 if dtype == np.float16 else 1e-5)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda xpos: encodings.chain(xpos, encodings.alibi(num_heads=1)),
        lambda xpos: encodings.scale_positions(xpos, 0.5),
        lambda xpos: encodings.warp_positions(xpos, length=16, tau=4.0),
    ],
)
def test_logits_of_xpos_do_not_depend_on_other_tokens(wrap):
    xpos = wrap(encodings.xpos(head_dim=4))
    params = xpos.init(jax.random.key(0))
    q, k = np.random.default_rng(0).standard_normal((2, 16, 1, 4))

    def logits(n):
        i = np.arange(n)
        return encodings.attention_logits(xpos, params, q[:n], k[:n], q_positions=i, k_positions=i)[
            :, :9, :9
        ]

    np.testing.assert_allclose(logits(9), logits(16), rtol=1e-9)


@pytest.mark.parametrize(("dtype", "place"), [(np.float32, 40_000), (np.float16, 5_000)])
def test_xpos_is_nan_where_its_factors_do_not_fit(dtype, place):
    q, encoding = jnp.ones((2, 1, DIM), dtype), xpos(head_dim=DIM)
    for hook in (encoding.query, encoding.key):
        turned = np.asarray(hook((), q, np.array([0, place])))
        assert np.isfinite(turned[0]).all()
        assert np.isnan(turned[1]).all()


@pytest.mark.parametrize(
    ("encoding", "axes", "axis_of"),
    [
        (axial_rope(head_dim=8), 2, [0, 0, 1, 1]),
        (mrope(head_dim=12, sections=(3, 2, 1)), 3, [0, 0, 0, 1, 1, 2]),
        (mrope(head_dim=12, sections=(2, 2, 2), interleaved_sections=True), 3, [0, 1, 2] * 2),
        (mrope(head_dim=8, sections=(2, 2, 0)), 3, [0, 0, 1, 1]),
    ],
)
def test_every_frequency_follows_its_coordinate(encoding, axes, axis_of):
    half = len(axis_of)
    turn = jax.jit(lambda places: encoding.query((), jnp.ones((1, 1, 2 * half)), places))
    for moving in range(axes):
        places = 5 * np.eye(axes, dtype=int)[moving : moving + 1]
        changed = np.asarray(turn(places))[0, 0, :half] != 1
        np.testing.assert_array_equal(changed, np.array(axis_of) == moving)


# --- in attention ---


@pytest.mark.parametrize(
    "scaling", [DynamicScaling(4.0, 3), LONG._replace(original_max_position_embeddings=3)]
)
def test_without_a_length_cached_keys_keep_old_frequencies(scaling):
    """As documented: the frequencies are those of the largest position at hand."""
    _, k, _ = qkv()
    i = np.arange(N)
    encoding = rope(head_dim=DIM, scaling=scaling)
    whole = encoding.key((), k, i)
    cached = jnp.concatenate([encoding.key((), k[t : t + 1], i[t : t + 1]) for t in i])
    assert np.abs(cached - whole).max() > 0.05
    np.testing.assert_allclose(cached[-1], whole[-1], atol=1e-12)  # the last saw all
    told = rope(head_dim=DIM, scaling=scaling, length=N)
    np.testing.assert_allclose(told.key((), k, i), whole, atol=1e-6)
    # Of a batch, the longest row decides for all.
    both = encoding.key((), jnp.stack([k[:2], k[:2]]), np.array([[0, 1], [4, 5]]))
    np.testing.assert_allclose(both[0], whole[:2], atol=1e-12)


# --- the derivative ---


@pytest.mark.parametrize("interleaved", [False, True])
def test_derivatives_are_those_of_the_obvious_formula(interleaved):
    """Reverse, forward, batched and twice, in the query and in float positions."""
    q, g, _ = qkv()
    encoding = rope(head_dim=DIM, layout="interleaved" if interleaved else "half")
    w = jnp.asarray(inverse_frequencies(DIM))
    i = PLACES + 0.25

    def fast(q, i):
        return jnp.sum(jnp.sin(encoding.query((), q, i)) * g)

    def slow(q, i):
        return jnp.sum(jnp.sin(turned_slowly(q, i[:, None] * w[None, :], interleaved)) * g)

    def everything(f):
        batches = jnp.stack([q, g]), jnp.stack([i, 2 * i])
        return {
            "reverse": jax.grad(f, argnums=(0, 1))(q, i),
            "forward of reverse": jax.jvp(jax.grad(f, argnums=(0, 1)), (q, i), (g, jnp.cos(i)))[1],
            "reverse of reverse": jax.grad(lambda i: jnp.sum(jax.grad(f)(q, i) ** 2))(i),
            "batch of q": jax.vmap(jax.grad(f), (0, None))(batches[0], i),
            "batch of both": jax.vmap(jax.grad(f, argnums=(0, 1)))(*batches),
            "grad of a batch": jax.grad(lambda i: jax.vmap(f, (0, None))(batches[0], i).sum())(i),
        }

    actual, expected = (jax.jit(partial(everything, f))() for f in (fast, slow))
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-9), actual, expected)
    # Without derivatives by positions nothing of the query is kept.
    _, back = jax.vjp(lambda q: encoding.query((), q, PLACES), jnp.stack([q] * 5))
    kept = [leaf.size for leaf in jax.tree.leaves(back) if hasattr(leaf, "size")]
    assert sum(kept) < 5 * q.size


MESH = jax.make_mesh((1, 1), ("rows", "heads"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)


def test_on_a_mesh():
    """Positions and rows on one axis, heads on another; explicit axes are checked when tracing."""
    encoding = rope(head_dim=DIM)
    q, _, _ = qkv(np.float32)
    total = lambda q, i: jnp.sum(jnp.sin(encoding.query((), q, i)))  # noqa: E731
    expected = jax.jit(lambda q: (encoding.query((), q, PLACES), jax.grad(total)(q, PLACES)))(q)
    spec = PartitionSpec("rows", "heads")
    with jax.set_mesh(MESH):
        there = jax.device_put(q, jax.sharding.NamedSharding(MESH, spec))
        i = jax.device_put(
            PLACES.astype(np.int32), jax.sharding.NamedSharding(MESH, PartitionSpec("rows"))
        )
        turned = query_of(encoding, there, i), jax.jit(jax.grad(total))(there, i)
        jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), turned, expected)
        assert jax.typeof(turned[0]).sharding.spec[:2] == ("rows", "heads")


# --- phases ---


def exactly(positions, frequencies):
    """ω i modulo a turn, in integers: ω is a fraction, and 2π is known to 60 digits."""
    turn = 628318530717958647692528676655900576839433879875021164194989
    place = 10**59
    rows = []
    for i in positions.tolist():
        row = []
        for w in frequencies.tolist():
            top, bottom = w.as_integer_ratio()
            scaled = i * top * place % (turn * bottom)
            row.append(scaled / (place * bottom))
        rows.append(row)
    return np.array(rows)


def apart(a, b):
    """Largest difference of angles, whole turns aside."""
    return np.abs((np.asarray(a, np.float64) - b + np.pi) % (2 * np.pi) - np.pi).max()


def far_positions(largest):
    some = np.random.default_rng(0).integers(-largest, largest, 300)
    return np.concatenate([some, [largest, -largest, largest - 1]]).astype(np.int32)


def test_phases_are_right_far_out_in_float32():
    positions, w = far_positions(2**31 - 1), inverse_frequencies(64)
    expected = exactly(positions, w)
    assert apart(phases(positions, w, jnp.float32), expected) < 1e-6
    assert apart(jax.jit(lambda i: phases(i, w, jnp.float32))(positions), expected) < 1e-6
    assert apart(phases(positions, w, jnp.float64), expected) < 1e-6
    product = positions.astype(np.float32)[:, None] * w.astype(np.float32)
    assert apart(product, expected) > 1e-2


def test_phases_between_positions():
    whole, w = far_positions(10**5), inverse_frequencies(16)
    positions = whole.astype(np.float32) + np.float32(0.375)
    parts = exactly((8 * positions).astype(int), w / 8)
    narrow = jax.jit(lambda i: phases(i, w, jnp.float32))
    assert apart(phases(positions, w, jnp.float32), parts) < 1e-6
    assert apart(narrow(positions.astype(np.float64)), parts) < 1e-6
    slope = jax.jit(jax.vmap(jax.jacfwd(lambda i: phases(i[None], w, jnp.float32)[0])))(positions)
    np.testing.assert_allclose(slope, np.tile(w, (len(positions), 1)), rtol=1e-6)
    with jax.enable_x64(False):
        assert apart(narrow(positions), parts) < 1e-6


# --- scalings ---


def test_llama3_with_equal_factors_is_a_step():
    """As in the configuration of Llama 4 Scout."""
    ratio = Llama3Scaling(16.0, 1.0, 1.0, 8192).frequencies(128, 5e5, None).inverse
    ratio = ratio / 5e5 ** (-np.arange(0, 128, 2) / 128)
    wavelengths = 2 * np.pi * 5e5 ** (np.arange(0, 128, 2) / 128)
    np.testing.assert_allclose(ratio, np.where(wavelengths > 8192, 1 / 16, 1.0))


def test_older_and_emptier_entries_of_a_configuration():
    """Entries of several axes turn as `mrope` does, partial ones the front alone."""
    q = qkv()[0]

    def turn(entry, places=PLACES):
        encoding = encodings.rope_from_hf({"rope_theta": 1e4, **entry}, head_dim=DIM)
        return encoding.query((), q, places)

    assert scaling_from_hf({"type": "linear", "factor": 4.0}) == LinearScaling(4.0)
    for entry in (
        {"rope_type": "default", "partial_rotary_factor": None, "mrope_section": None},
        {"rope_type": "proportional", "partial_rotary_factor": None},
    ):
        np.testing.assert_array_equal(turn(entry), ROPE.query((), q, PLACES))
    half = turn({"rope_type": "default", "partial_rotary_factor": 0.5})
    np.testing.assert_array_equal(half, rope(head_dim=DIM, fraction=0.5).query((), q, PLACES))
    places = np.stack([PLACES, PLACES + 1, 2 * PLACES], axis=-1)
    partly = turn({"mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}, places)
    front = mrope(head_dim=DIM // 2, sections=(2, 1, 1)).query((), q[..., : DIM // 2], places)
    np.testing.assert_array_equal(partly[..., : DIM // 2], front)
    np.testing.assert_array_equal(partly[..., DIM // 2 :], q[..., DIM // 2 :])
    yarn = {"rope_type": "yarn", "original_max_position_embeddings": 64}
    assert scaling_from_hf(yarn, max_position_embeddings=256).factor == 4.0
    su = {"type": "su", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    with pytest.raises(ValueError, match="original_max_position_embeddings"):
        scaling_from_hf(su, max_position_embeddings=131072)
    su["original_max_position_embeddings"] = 4096
    assert scaling_from_hf(su, max_position_embeddings=131072).factor == 32.0


X = np.ones((N, HEADS, DIM))


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: rope(head_dim=7), "multiple of 2"),
        (lambda: rope(head_dim=8, fraction=1.5), "of 8"),
        (lambda: rope(head_dim=8, fraction=0.5, scaling=ProportionalScaling()), "fraction"),
        (lambda: rope(head_dim=DIM, scaling=NtkScaling(float("nan"))), "factor"),
        (
            lambda: rope(head_dim=DIM, scaling=YarnScaling(4.0, 64, beta_fast=1.0, beta_slow=2.0)),
            "beta",
        ),
        (lambda: rope(head_dim=DIM, scaling=LONG._replace(long_factor=(1.0,) * 9)), "long_factor"),
        (lambda: xpos(head_dim=8, gamma=0.0), "gamma"),
        (lambda: axial_rope(head_dim=10), "multiple of 4"),
        (lambda: axial_rope(head_dim=8, frequencies=[1.0]), "shape"),
        (lambda: ROPE.query((), X[..., :8], PLACES), "head_dim"),
        (lambda: ROPE.query((), X[:, 0], PLACES), "shape"),
        (lambda: ROPE.query((), X.astype(int), PLACES), "float"),
        (lambda: ROPE.query((), X, PLACES.astype(jnp.bfloat16)), "float32"),
        (lambda: MROPE.query((), X, np.ones((N, 2), int)), "3"),
        (lambda: encodings.rope_from_hf({"rope_type": "spiral"}, head_dim=DIM), "spiral"),
        (
            lambda: encodings.rope_from_hf(
                {"rope_theta": 1e4, "rope_type": "linear", "factr": 2.0}, head_dim=DIM
            ),
            "factr",
        ),
        (
            lambda: encodings.rope_from_hf({"type": "linear", "factor": 4.0}, head_dim=DIM),
            "rope_theta",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call, word):
    with pytest.raises(ValueError, match=word):
        call()


def test_any_fraction_of_whole_pairs_is_itself():
    """dim · (k / dim) is k, also where floats fall short of it."""
    assert int(44 * (30 / 44)) == 29
    for dim, share in ((44, 30), (98, 2)):
        vectors = jax.jit(rope(head_dim=dim, fraction=share / dim).vectors)
        first, second = np.asarray(vectors((), np.array([1, 2])))
        assert int((first != second).sum()) == share


# --- layouts ---


@pytest.mark.parametrize(("axis", "rotary_dim"), [(-1, None), (0, 4)])
def test_converted_projections_give_the_same_logits(axis, rotary_dim):
    """Grouped keys, biases, a Flax kernel or a torch weight; back again it is what it was."""
    inputs, heads, groups, dim = 5, 4, 2, 8
    x = normal(0, N, inputs)
    fraction = 1.0 if rotary_dim is None else rotary_dim / dim
    kernels = [normal(s, inputs, h * dim) for s, h in ((1, heads), (2, groups))]
    biases = [normal(s, h * dim) for s, h in ((3, heads), (4, groups))]

    def projected(kernels, biases):
        return [
            (x @ kernel + bias[None, :]).reshape(N, -1, dim)
            for kernel, bias in zip(kernels, biases, strict=True)
        ]

    def converted(w, h, axis=-1, **way):
        return encodings.convert_rotary_layout(
            w, num_heads=h, axis=axis, rotary_dim=rotary_dim, **way
        )

    way = {"source": "interleaved", "target": "half"}
    changed = [
        converted(k if axis == -1 else k.T, h, axis, **way)
        for k, h in zip(kernels, (heads, groups), strict=True)
    ]
    changed = [k if axis == -1 else k.T for k in changed]
    changed_biases = [converted(b, h, **way) for b, h in zip(biases, (heads, groups), strict=True)]
    before, after = (
        attention_logits(
            rope(head_dim=dim, layout=layout, fraction=fraction), (), *qk, **at(PLACES)
        )
        for layout, qk in (
            ("interleaved", projected(kernels, biases)),
            ("half", projected(changed, changed_biases)),
        )
    )
    np.testing.assert_allclose(after, before, atol=1e-13)
    way = {"source": "half", "target": "interleaved"}
    np.testing.assert_array_equal(converted(changed[0], heads, **way), kernels[0])


def test_headings_have_the_period_of_a_turn():
    """DRoPE: qᵀR(β − α)k, so whole turns of either agent change nothing, unlike in RoPE."""
    drope, heading = directional_rope(head_dim=DIM), np.linspace(-3.0, 9.0, N)
    q, k = np.random.default_rng(0).standard_normal((2, N, HEADS, DIM))
    turns = 2 * np.pi * np.arange(N)
    for encoding, periodic in ((drope, True), (rope(head_dim=DIM), False)):
        change = encoding.query((), q, heading + turns) - encoding.query((), q, heading)
        assert (np.abs(change).max() < 1e-9) == periodic
    a, b = (y[..., : DIM // 2] + 1j * y[..., DIM // 2 :] for y in (q, k))
    phase = np.exp(1j * (heading[:, None] - heading[None]))
    expected = (np.einsum("ihd,jhd->hij", a, b.conj()) * phase).real / DIM**0.5
    found = attention_logits(drope, (), q, k, q_positions=heading, k_positions=heading)
    np.testing.assert_allclose(found, expected, atol=1e-12)
