"""Rotary encodings: laws of the rotation, its derivative, phases, scalings and layouts."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import jaxpe
from jaxpe import (
    YarnScaling,
    axial_rope,
    chain,
    identity,
    mrope,
    per_head,
    rope,
    scale_positions,
    xpos,
)
from jaxpe.encodings import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    NtkByPartsScaling,
    NtkScaling,
    ProportionalScaling,
    directional_rope,
    inverse_frequencies,
)
from jaxpe.encodings.attention import attend
from jaxpe.encodings.attention_terms import attention_logits
from jaxpe.encodings.phases import phases
from jaxpe.plans.scaling import scaling_from_hf

N, HEADS, DIM = 6, 2, 16
PLACES = np.array([0, 3, 4, 9, 2, 25])
CAUSAL = np.tri(N, dtype=bool)

LONG = LongRopeScaling((1.0,) * 8, tuple(np.linspace(1, 4, 8).tolist()), 16, factor=4.0)
SCALINGS = {
    "linear": LinearScaling(4.0),
    "ntk": NtkScaling(4.0),
    "dynamic": DynamicScaling(4.0, 16),
    "ntk_by_parts": NtkByPartsScaling(4.0, 64),
    "yarn": YarnScaling(4.0, 64),
    "llama3": Llama3Scaling(8.0, 1.0, 4.0, 64),
    "longrope": LONG,
    "proportional": ProportionalScaling(2.0, 0.5),
}
# Encodings of positions with one coordinate; dynamic and longrope with the length they need.
LINE = {
    "half_split": rope(head_dim=DIM),
    "interleaved": rope(head_dim=DIM, layout="interleaved"),
    "partial": rope(head_dim=DIM, fraction=0.25),
    "partial_interleaved": rope(head_dim=DIM, fraction=0.25, layout="interleaved"),
    **{name: rope(head_dim=DIM, scaling=s, length=40) for name, s in SCALINGS.items()},
    "xpos": xpos(head_dim=DIM),
    "xpos_interleaved": xpos(head_dim=DIM, scale_base=128.0, center=9.0, layout="interleaved"),
}
# Encodings of positions with several.
GRID = {
    "axial_2": (2, axial_rope(head_dim=DIM)),
    "axial_2_interleaved": (2, axial_rope(head_dim=DIM, layout="interleaved")),
    "axial_3": (3, axial_rope(head_dim=18, axes=3, base=100.0)),
    "mrope": (3, mrope(head_dim=DIM, sections=(4, 2, 2))),
    "mrope_turns": (3, mrope(head_dim=DIM, sections=(4, 2, 2), interleaved_sections=True)),
}
# What cos and sin are multiplied by.
FACTORS = {"yarn": 0.1 * np.log(4) + 1, "longrope": np.sqrt(1 + np.log(4) / np.log(16))}

# Not compiled as a whole: operations of these shapes are, once for all encodings.
logits_of, attended = attention_logits, attend


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


@pytest.mark.parametrize("name", GRID)
def test_logits_depend_on_offsets_of_every_coordinate(name):
    axes, encoding = GRID[name]
    rng = np.random.default_rng(2)
    width = 18 if axes == 3 and name.startswith("axial") else DIM
    q, k, _ = qkv(dim=width)
    for places in (rng.integers(0, 30, (N, axes)), rng.uniform(0, 30, (N, axes))):
        here = logits_of(encoding, (), q, k, **at(places))
        for shift in (rng.integers(-(10**6), 10**6, axes), rng.integers(0, 9, axes)):
            there = logits_of(encoding, (), q, k, **at(places + shift))
            np.testing.assert_allclose(there, here, atol=1e-8)
        for axis in range(axes):  # and every coordinate counts
            moved = places + np.eye(axes, dtype=places.dtype)[axis] * np.arange(N)[:, None]
            assert np.abs(logits_of(encoding, (), q, k, **at(moved)) - here).max() > 1e-3


def test_logits_depend_on_offsets_alone_in_float32():
    q, k, _ = qkv(np.float32)
    logits = jax.jit(lambda i: attention_logits(LINE["half_split"], (), q, k, **at(i)))
    here = logits(PLACES.astype(np.int32))
    for shift in (10**6, 2**31 - 100, -(2**31)):
        there = logits((PLACES + shift).astype(np.int32))
        np.testing.assert_allclose(there, here, atol=2e-5)


@pytest.mark.parametrize("name", [name for name in LINE if not name.startswith("xpos")])
def test_rotation_preserves_norms_up_to_the_attention_factor(name):
    q, _, _ = qkv()
    turned = query_of(LINE[name], q, PLACES)
    factor = FACTORS.get(name, 1.0)
    np.testing.assert_allclose(
        jnp.linalg.norm(turned, axis=-1), factor * jnp.linalg.norm(q, axis=-1), rtol=1e-12
    )
    np.testing.assert_array_equal(query_of(LINE[name], q, 0 * PLACES), factor * q)


@pytest.mark.parametrize("interleaved", [False, True])
def test_the_hook_is_the_obvious_formula(interleaved):
    q, _, _ = qkv()
    encoding = rope(head_dim=DIM, layout="interleaved" if interleaved else "half_split")
    for places in (PLACES, -PLACES, PLACES + 0.3, PLACES + 10**6):
        angles = places[:, None] * inverse_frequencies(DIM)
        expected = turned_slowly(q, angles, interleaved)
        np.testing.assert_allclose(query_of(encoding, q, places), expected, atol=1e-9)


def test_sinusoidal_vectors_are_turned_by_a_shift():
    """PE(i + k) = R(k) PE(i); sine comes first there, so the rotation is by −k."""
    i, k = np.arange(N), 7
    vectors = jaxpe.sinusoidal_vectors(i, dim=DIM)[:, None]
    turned = query_of(LINE["interleaved"], vectors, np.full(N, -k))[:, 0]
    np.testing.assert_allclose(turned, jaxpe.sinusoidal_vectors(i + k, dim=DIM), atol=1e-12)


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


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("start", [36_000, 2**31 - 60])
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
        lambda xpos: xpos,
        lambda xpos: jaxpe.chain(xpos, jaxpe.alibi(num_heads=1)),
        lambda xpos: jaxpe.encodings.scale_positions(xpos, 0.5),
        lambda xpos: jaxpe.encodings.warp_positions(xpos, length=16, tau=4.0),
        lambda xpos: jaxpe.encodings.rescaled(xpos, 1.5),
    ],
)
def test_logits_of_xpos_do_not_depend_on_other_tokens(wrap):
    xpos = wrap(jaxpe.xpos(head_dim=4))
    params = xpos.init(jax.random.key(0))
    q, k = np.random.default_rng(0).standard_normal((2, 16, 1, 4))

    def logits(n):
        i = np.arange(n)
        return jaxpe.attention_logits(xpos, params, q[:n], k[:n], q_positions=i, k_positions=i)[
            :, :9, :9
        ]

    np.testing.assert_allclose(logits(9), logits(16), rtol=1e-9)


def test_xpos_of_far_offsets_is_zero():
    """Not 0 times infinity: all that is between the ends of a long sequence."""
    q, where = np.ones((3, 1, 2), np.float32), at(np.array([0, 36_000, 70_000]))
    logits = np.asarray(jax.jit(partial(attention_logits, xpos(head_dim=2), (), **where))(q, q))
    assert np.isfinite(np.tril(logits[0])).all()
    assert logits[0, 2, 0] == 0


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


@pytest.mark.parametrize("reference", [None, np.tile([0.6, 0.8], 4), np.tile([0.0, -3.0], 4)])
def test_orbit_of_equal_pairs_has_the_sinusoidal_distances(reference):
    i = np.array([0, 1, 5, 17, 400])
    expected = jaxpe.euclidean_distances(jaxpe.sinusoidal_vectors(i, dim=8)).values
    size = 1.0 if reference is None else np.linalg.norm(reference[:2])
    orbit = jaxpe.euclidean_distances(
        jaxpe.encodings.rotary_orbit(i, dim=8, reference=reference)
    ).values
    np.testing.assert_allclose(orbit, size * expected, atol=1e-12)
    for layout in ("half_split", "interleaved"):
        vectors = rope(head_dim=8, layout=layout).vectors((), i)
        np.testing.assert_allclose(jaxpe.euclidean_distances(vectors).values, expected, atol=1e-13)


# --- in attention ---


@pytest.mark.parametrize("name", ["partial_interleaved", "longrope", "xpos"])
def test_decoding_with_a_cache_is_the_whole_row_by_row(name):
    encoding = LINE[name]
    q, k, v = qkv()
    i = np.arange(N, dtype=np.int32)
    whole = attended(encoding, (), q, k, v, **at(i), mask=CAUSAL)

    def step(cache, t):
        """Only the new key is turned; the cache holds turned ones."""
        key = encoding.key((), k[t][None], t[None])
        cache = cache.at[t].set(key[0])
        query = encoding.query((), q[t][None], t[None])
        rows = attend(
            jaxpe.identity(), (), query, cache, v, **at(i[:1]) | {"k_positions": i}, mask=i <= t
        )
        return cache, rows[0]

    _, rows = jax.lax.scan(step, jnp.zeros_like(k), jnp.arange(N, dtype=jnp.int32))
    np.testing.assert_allclose(rows, whole, atol=1e-12)


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


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.bfloat16])
@pytest.mark.parametrize("name", ["half_split", "partial_interleaved"])
def test_the_gradient_is_the_rotation_back(name, dtype):
    """L̇x = R(−φ) L̇y, to the last digit."""
    q, g, _ = (x.astype(dtype) for x in qkv())
    encoding = LINE[name]

    @jax.jit
    def both(q, g):
        out, back = jax.vjp(lambda q: encoding.query((), q, PLACES), q)
        return out, back(g)[0], encoding.query((), g, -PLACES), back(out)[0]

    _, pulled, turned_back, again = both(q, g)
    assert pulled.dtype == dtype
    ulp = float(jnp.finfo(dtype).eps)
    wide = [np.asarray(x, np.float64) for x in (pulled, turned_back, again, q)]
    np.testing.assert_allclose(wide[0], wide[1], rtol=ulp, atol=ulp)
    np.testing.assert_allclose(wide[2], wide[3], rtol=4 * ulp, atol=4 * ulp)  # Rᵀ R = I


@pytest.mark.parametrize("interleaved", [False, True])
def test_derivatives_are_those_of_the_obvious_formula(interleaved):
    """Reverse, forward, batched and twice, in the query and in float positions."""
    q, g, _ = qkv()
    encoding = rope(head_dim=DIM, layout="interleaved" if interleaved else "half_split")
    w = jnp.asarray(inverse_frequencies(DIM))
    i = PLACES + 0.25

    def fast(q, i):
        return jnp.sum(jnp.sin(encoding.query((), q, i)) * g)

    def slow(q, i):
        return jnp.sum(jnp.sin(turned_slowly(q, i[:, None] * w[None, :], interleaved)) * g)

    def everything(f):
        along = lambda q, i: jax.jvp(f, (q, i), (g, jnp.cos(i)))[1]  # noqa: E731
        return {
            "reverse": jax.grad(f, argnums=(0, 1))(q, i),
            "forward of reverse": jax.jvp(jax.grad(f), (q, i), (g, jnp.cos(i)))[1],
            "reverse of forward": jax.grad(along, argnums=(0, 1))(q, i),
            "reverse of reverse": jax.grad(lambda i: jnp.sum(jax.grad(f)(q, i) ** 2))(i),
            "jacobian": jax.jacfwd(jax.grad(f, argnums=1), argnums=0)(q, i),
            "hessian": jax.hessian(f, argnums=1)(q, i),
            "batch of q": jax.vmap(jax.grad(f), (0, None))(jnp.stack([q, g]), i),
            "batch of i": jax.vmap(jax.grad(f, argnums=1), (None, 0))(q, jnp.stack([i, 2 * i])),
            "batch of both": jax.vmap(jax.grad(f, argnums=(0, 1)))(
                jnp.stack([q, g]), jnp.stack([i, 2 * i])
            ),
            "grad of a batch": jax.grad(
                lambda i: jax.vmap(f, (0, None))(jnp.stack([q, g]), i).sum()
            )(i),
            "rematerialised": jax.grad(jax.checkpoint(f), argnums=(0, 1))(q, i),
        }

    actual, expected = (jax.jit(partial(everything, f))() for f in (fast, slow))
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-9), actual, expected)


@pytest.mark.parametrize("layout", ["half_split", "interleaved"])
def test_nothing_of_the_query_is_kept(layout):
    q = normal(5, 3, N, HEADS, DIM, dtype=np.float32)
    encoding = rope(head_dim=DIM, layout=layout)
    _, back = jax.vjp(lambda q: encoding.query((), q, PLACES), q)
    kept = [leaf.size for leaf in jax.tree.leaves(back) if hasattr(leaf, "size")]
    assert sum(kept) < q.size
    assert max(kept) <= N * DIM
    # Where positions are differentiated too, the query is needed, and there.
    floats = jnp.asarray(PLACES, jnp.float32)
    pull = jax.jit(lambda c: jax.vjp(lambda q, i: encoding.query((), q, i), q, floats)[1](c))
    assert all(np.isfinite(x).all() for x in pull(q))
    assert np.abs(pull(np.flip(q, 0))[1]).max() > 0.1


def mesh(kind):
    return jax.make_mesh((1, 1), ("rows", "heads"), axis_types=(kind,) * 2)


@pytest.mark.parametrize("layout", ["half_split", "interleaved"])
@pytest.mark.parametrize("kind", list(jax.sharding.AxisType)[:2])
def test_on_a_mesh(layout, kind):
    """Positions and rows on one axis, heads on another; explicit axes are checked when tracing."""
    encoding = rope(head_dim=DIM, layout=layout)
    q, _, _ = qkv(np.float32)
    total = lambda q, i: jnp.sum(jnp.sin(encoding.query((), q, i)))  # noqa: E731
    expected = jax.jit(lambda q: (encoding.query((), q, PLACES), jax.grad(total)(q, PLACES)))(q)
    spec = PartitionSpec("rows", "heads")
    with jax.set_mesh(mesh(kind)):
        there = jax.device_put(q, jax.sharding.NamedSharding(mesh(kind), spec))
        i = jax.device_put(
            PLACES.astype(np.int32), jax.sharding.NamedSharding(mesh(kind), PartitionSpec("rows"))
        )
        turned = query_of(encoding, there, i), jax.jit(jax.grad(total))(there, i)
        jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), turned, expected)
        if kind == jax.sharding.AxisType.Explicit:
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


@pytest.mark.parametrize("largest", [10**6, 2**31 - 1])
def test_phases_are_right_far_out_in_float32(largest):
    positions, w = far_positions(largest), inverse_frequencies(64)
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


# --- the program ---


def cosine_loops(program):
    """Elements written by the loops of a compiled program that compute cosines or sines."""
    sizes = []
    for part in re.split(r"\n}\n", program.as_text()):
        if re.search(r" (cosine|sine)\(", part):
            root = re.search(r"ROOT [^=]*= (.*?) [a-z\-]+\(", part).group(1)
            shapes = [re.findall(r"\d+", shape) for shape in re.findall(r"\[([\d,]*)\]", root)]
            sizes.append(max(int(np.prod([int(n) for n in shape])) for shape in shapes))
    return sizes


@pytest.mark.parametrize("derivative", [False, True])
@pytest.mark.parametrize("layout", ["half_split", "interleaved"])
def test_cosines_are_computed_once_for_all_heads_and_rows(layout, derivative):
    """The compiler would compute them again for each: the count it reports does not tell."""
    encoding = rope(head_dim=DIM, layout=layout)
    n, batch, heads = 8, 3, 5
    q = jnp.ones((batch, n, heads, DIM), jnp.float32)

    def run(q, i):
        out, back = jax.vjp(lambda q: encoding.query((), q, i), q)
        return back(out)[0] if derivative else out

    program = jax.jit(run).lower(q, jnp.arange(n, dtype=jnp.int32)).compile()
    loops = cosine_loops(program)
    assert loops
    assert max(loops) <= 2 * n * DIM // 2, loops


def test_the_gather_against_the_compiler_on_cpu_is_not_elsewhere():
    lowered = jax.jit(partial(LINE["half_split"].query, ())).trace(qkv()[0], PLACES)
    texts = {
        kind: lowered.lower(lowering_platforms=(kind,)).as_text() for kind in ("cpu", "tpu", "cuda")
    }
    assert {kind: "stablehlo.gather" in text for kind, text in texts.items()} == {
        "cpu": True,
        "tpu": False,
        "cuda": False,
    }


# --- scalings ---

AT = np.array([0, 8, 16, 24, 31])
GOLDEN = {
    "linear": (LinearScaling(4.0), 1e4, None, [0.25, 0.025, 0.0025, 0.00025, 3.333804e-5]),
    "dynamic": (
        DynamicScaling(4.0, 8192),
        1e4,
        16384,
        [1, 0.06601166, 0.004357539, 0.0002876484, 2.667043e-5],
    ),
    "yarn": (YarnScaling(4.0, 2048), 1e4, None, [1, 0.1, 0.005384615, 0.00025, 3.333804e-5]),
    "llama3": (
        Llama3Scaling(8.0, 1.0, 4.0, 8192),
        5e5,
        None,
        [1, 0.03760603, 0.000524846, 6.64787e-6, 3.767323e-7],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_frequencies(name):
    scaling, base, length, expected = GOLDEN[name]
    inverse, factor = scaling.frequencies(64, base, length)
    assert inverse.dtype == np.float64
    np.testing.assert_allclose(inverse[AT], expected, rtol=5e-7)
    assert factor == (pytest.approx(1.138629436111989, rel=1e-15) if name == "yarn" else 1.0)


@pytest.mark.parametrize("name", SCALINGS)
def test_scaled_frequencies_lie_between_linear_and_none(name):
    """Whatever the scaling, no frequency rises, and none falls below ω/s."""
    scaling = SCALINGS[name]
    inverse, _ = scaling.frequencies(DIM, 1e4, 64)
    full = inverse_frequencies(DIM)
    if name == "proportional":
        np.testing.assert_array_equal(inverse, np.where(np.arange(8) < 4, full / 2, 0))
        return
    least = full / {"dynamic": 13.0}.get(name, scaling.factor)  # dynamic: s·L/L0 − (s − 1)
    assert (inverse <= full * (1 + 1e-15)).all()
    assert (inverse >= least * (1 - 1e-15)).all()


@pytest.mark.parametrize("dim", [2, 4, 64])
def test_ntk_keeps_the_fastest_and_divides_the_slowest(dim):
    inverse, _ = NtkScaling(8.0).frequencies(dim, 1e4, None)
    full = inverse_frequencies(dim)
    assert inverse[0] == full[0]
    if dim > 2:
        np.testing.assert_allclose(inverse[-1], full[-1] / 8, rtol=1e-14)
        larger = inverse_frequencies(dim, base=1e4 * 8.0 ** (dim / (dim - 2)))
        np.testing.assert_allclose(inverse, larger, rtol=1e-13)


def test_linear_scaling_is_scaled_positions():
    q, k, _ = qkv()
    scaled = scale_positions(rope(head_dim=DIM), 1 / 4)
    for places in (PLACES, PLACES + 10**5, PLACES + 0.5):
        expected = logits_of(LINE["linear"], (), q, k, **at(places))
        np.testing.assert_allclose(logits_of(scaled, (), q, k, **at(places)), expected, atol=1e-9)


def test_yarn_is_ntk_by_parts_with_an_attention_factor():
    parts, one = NtkByPartsScaling(4.0, 64).frequencies(DIM, 1e4, None)
    yarn, factor = YarnScaling(4.0, 64).frequencies(DIM, 1e4, None)
    np.testing.assert_array_equal(yarn, parts)
    assert one == 1.0
    assert factor == 0.1 * np.log(4.0) + 1
    q, k, _ = qkv()
    hot = logits_of(LINE["yarn"], (), q, k, **at(PLACES))
    cold = logits_of(LINE["ntk_by_parts"], (), q, k, **at(PLACES))
    np.testing.assert_allclose(hot, factor**2 * cold, rtol=1e-12)
    assert YarnScaling(4.0, 64, attention_factor=2.0).frequencies(DIM, 1e4, 9)[1] == 2.0
    assert YarnScaling(40.0, 64, mscale=1.0, mscale_all_dim=1.0).frequencies(DIM, 1e4, 9)[1] == 1.0
    absent = YarnScaling(40.0, 64, mscale=0.0, mscale_all_dim=1.0)  # to transformers, too
    np.testing.assert_allclose(absent.frequencies(DIM, 1e4, 9)[1], 1 + 0.1 * np.log(40))


@pytest.mark.parametrize(
    "scaling",
    [
        LinearScaling(1.0),
        NtkScaling(1.0),
        DynamicScaling(1.0, 40),  # beyond L0 it is NTK by L/L0
        NtkByPartsScaling(1.0, 64),
        YarnScaling(1.0, 64),
        Llama3Scaling(1.0, 1.0, 4.0, 64),
        LongRopeScaling((1.0,) * 8, (1.0,) * 8, 16),
        ProportionalScaling(),
    ],
)
def test_a_factor_of_one_changes_nothing(scaling):
    inverse, factor = scaling.frequencies(DIM, 1e4, 40)
    np.testing.assert_allclose(inverse, inverse_frequencies(DIM), rtol=1e-15)
    assert factor == 1.0


HF = {"rope_theta": 1e4, "factor": 4.0}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rope_type": "spiral"}, "unknown rope_type 'spiral': known are default, dynamic, lin"),
        ({"rope_type": "linear", "factr": 2.0}, "'linear' does not know factr; it takes factor"),
        ({"rope_type": "default", "factor": 2.0}, "'default' does not know factor; it takes no p"),
        ({**HF, "rope_type": "llama3"}, "'llama3' needs low_freq_factor, high_freq_factor, orig"),
        (
            {"full_attention": {"rope_type": "default"}, "sliding_attention": {}},
            r"one entry for each kind of layer \(full_attention, sliding_attention\): pass "
            r"one of them, such as rope_parameters\['full_attention'\]",
        ),
    ],
)
def test_entries_of_a_configuration_that_make_no_sense(parameters, message):
    with pytest.raises(ValueError, match=message):
        jaxpe.rope_from_hf(parameters, head_dim=DIM)


def test_llama3_with_equal_factors_is_a_step():
    """As in the configuration of Llama 4 Scout."""
    ratio = Llama3Scaling(16.0, 1.0, 1.0, 8192).frequencies(128, 5e5, None).inverse
    ratio = ratio / 5e5 ** (-np.arange(0, 128, 2) / 128)
    wavelengths = 2 * np.pi * 5e5 ** (np.arange(0, 128, 2) / 128)
    np.testing.assert_allclose(ratio, np.where(wavelengths > 8192, 1 / 16, 1.0))


def test_llama3_keeps_the_frequency_at_a_step():
    """Of one radian a position, in a context of as many turns as the factors say."""
    factor = 8192 / (2 * np.pi)
    assert Llama3Scaling(16.0, factor, factor, 8192).frequencies(128, 5e5, None).inverse[0] == 1


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        (NtkScaling(float("nan")), "NtkScaling: factor must be positive"),
        (YarnScaling(4.0, 64, attention_factor=-1.0), "attention_factor must be positive"),
        (YarnScaling(4.0, 64, beta_fast=1.0, beta_slow=2.0), r"beta_fast \(1.0\) must not be bel"),
        (Llama3Scaling(8.0, 4.0, 2.0, 64), r"high_freq_factor \(2.0\) must not be below low_fr"),
        (LONG._replace(long_factor=(1.0,) * 9), "long_factor has 9 .* pass 8"),
        (LONG._replace(long_factor=(1.0,) * 7 + (0.0,)), "long_factor must be positive"),
        (ProportionalScaling(1.0, 0.0), "fraction must be positive"),
    ],
)
def test_scalings_that_make_no_sense(scaling, message):
    with pytest.raises(ValueError, match=message):
        rope(head_dim=DIM, scaling=scaling)


def test_older_and_emptier_entries_of_a_configuration():
    q = qkv()[0]

    def turn(entry):
        return jaxpe.rope_from_hf({"rope_theta": 1e4, **entry}, head_dim=DIM)

    plain = LINE["half_split"].query((), q, PLACES)
    legacy = {"type": "linear", "factor": 4.0}
    assert scaling_from_hf(legacy) == LinearScaling(4.0)
    for entry in (
        {},
        {"rope_type": "default", "partial_rotary_factor": None, "mrope_section": None},
        {"rope_type": "proportional", "partial_rotary_factor": None},
    ):
        np.testing.assert_array_equal(turn(entry).query((), q, PLACES), plain)
    half = turn({"rope_type": "default", "partial_rotary_factor": 0.5})
    expected = rope(head_dim=DIM, fraction=0.5).query((), q, PLACES)
    np.testing.assert_array_equal(half.query((), q, PLACES), expected)
    with pytest.raises(ValueError, match="0 of 16 entries would turn"):
        turn({"rope_type": "default", "partial_rotary_factor": 0.0})
    section = {"type": "mrope", "mrope_section": [4, 2, 2]}
    places = np.stack([PLACES, PLACES + 1, 2 * PLACES], axis=-1)
    np.testing.assert_array_equal(
        turn(section).query((), q, places), GRID["mrope"][1].query((), q, places)
    )
    yarn = {"rope_type": "yarn", "original_max_position_embeddings": 64}
    assert scaling_from_hf(yarn, max_position_embeddings=256).factor == 4.0
    su = {"type": "su", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    with pytest.raises(ValueError, match=r"needs original_max_position_embeddings"):
        scaling_from_hf(su, max_position_embeddings=131072)
    su["original_max_position_embeddings"] = 4096
    assert scaling_from_hf(su, max_position_embeddings=131072).factor == 32.0
    with pytest.raises(ValueError, match="no rope_theta: put in that of the configuration"):
        jaxpe.rope_from_hf(legacy, head_dim=DIM)


def test_partial_multimodal_rotation_is_that_of_its_front():
    entry = {"rope_theta": 1e4, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}
    encoding = jaxpe.rope_from_hf(entry, head_dim=DIM)
    q = qkv()[0]
    places = np.stack([PLACES, PLACES + 1, 2 * PLACES], axis=-1)
    turned = encoding.query((), q, places)
    front = mrope(head_dim=DIM // 2, sections=(2, 1, 1)).query((), q[..., : DIM // 2], places)
    np.testing.assert_array_equal(turned[..., : DIM // 2], front)
    np.testing.assert_array_equal(turned[..., DIM // 2 :], q[..., DIM // 2 :])


# --- structure ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rope(head_dim=7), "7 of 7 entries would turn: .* a multiple of 2"),
        (lambda: rope(head_dim=8, fraction=1.5), "12 of 8 entries would turn"),
        (
            lambda: rope(head_dim=8, fraction=0.5, scaling=ProportionalScaling()),
            "fraction=0.5 beside .* which has its own: omit it",
        ),
        (lambda: xpos(head_dim=8, gamma=0.0), "gamma must be positive, not 0.0"),
        (lambda: axial_rope(head_dim=10), "10 of 10 entries .* multiple of 4"),
        (
            lambda: axial_rope(head_dim=8, frequencies=[1.0]),
            r"frequencies have shape \(1,\): pass \[2\]",
        ),
    ],
)
def test_constructors_refuse(call, message):
    with pytest.raises(ValueError, match=message):
        call()


X = np.ones((N, HEADS, DIM))


@pytest.mark.parametrize(
    ("encoding", "x", "positions", "message"),
    [
        (LINE["half_split"], X[..., :8], PLACES, r"built for head_dim=16, .* \(6, 2, 8\)"),
        (LINE["half_split"], X[:, 0], PLACES, r"do not fit an array of shape \(6, 16\)"),
        (LINE["half_split"], X.astype(int), PLACES, "turns floats .* not int64"),
        (LINE["half_split"], X, PLACES[:3], r"positions of shape \(3,\) do not fit"),
        (LINE["half_split"], X, PLACES.astype(jnp.bfloat16), "pass int32, or float32"),
        (GRID["axial_2"][1], X, PLACES, r"\(6,\): pass \[..., n, 2\]"),
        (GRID["mrope"][1], X, np.ones((N, 2), int), r"\(6, 2\): pass \[..., n, 3\]"),
        (GRID["mrope"][1], np.ones((N, N, 2, DIM)), np.ones((N, N), int), r": pass \[..., n, 3\]"),
    ],
)
def test_hooks_refuse(encoding, x, positions, message):
    with pytest.raises(ValueError, match=message):
        encoding.query((), x, positions)


def test_any_fraction_of_whole_pairs_is_itself():
    """dim · (k / dim) is k, also where floats fall short of it."""
    assert int(44 * (30 / 44)) == 29
    for dim, share in ((44, 30), (98, 2)):
        vectors = jax.jit(rope(head_dim=dim, fraction=share / dim).vectors)
        first, second = np.asarray(vectors((), np.array([1, 2])))
        assert int((first != second).sum()) == share


# --- layouts ---


def test_interleaved_is_half_split_after_the_permutation():
    order = jaxpe.encodings.rotary_permutation(
        rotary_dim=8, source="interleaved", target="half_split"
    )
    assert order.tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    q = normal(0, N, HEADS, 8)
    one, other = rope(head_dim=8, layout="interleaved"), rope(head_dim=8)
    np.testing.assert_allclose(
        one.query((), q, PLACES)[..., order], other.query((), q[..., order], PLACES), atol=1e-15
    )
    back = jaxpe.encodings.rotary_permutation(
        rotary_dim=8, source="half_split", target="interleaved"
    )
    np.testing.assert_array_equal(order[back], np.arange(8))
    same = jaxpe.encodings.rotary_permutation(
        rotary_dim=4, source="half_split", target="half_split", head_dim=6
    )
    np.testing.assert_array_equal(same, np.arange(6))


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("rotary_dim", [None, 4])
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
        return jaxpe.encodings.convert_rotary_layout(
            w, num_heads=h, axis=axis, rotary_dim=rotary_dim, **way
        )

    way = {"source": "interleaved", "target": "half_split"}
    changed = [
        converted(k if axis == -1 else k.T, h, axis, **way)
        for k, h in zip(kernels, (heads, groups), strict=True)
    ]
    changed = [k if axis == -1 else k.T for k in changed]
    changed_biases = [converted(b, h, **way) for b, h in zip(biases, (heads, groups), strict=True)]
    before, after = (
        logits_of(rope(head_dim=dim, layout=layout, fraction=fraction), (), *qk, **at(PLACES))
        for layout, qk in (
            ("interleaved", projected(kernels, biases)),
            ("half_split", projected(changed, changed_biases)),
        )
    )
    np.testing.assert_allclose(after, before, atol=1e-13)
    wrong = logits_of(
        rope(head_dim=dim, fraction=fraction), (), *projected(kernels, biases), **at(PLACES)
    )
    assert np.abs(wrong - before).max() > 0.1
    way = {"source": "half_split", "target": "interleaved"}
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
