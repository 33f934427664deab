"""Encoded keys rotate to other positions, or are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import encodings
from jaxpe.encodings import rotate_by

N, HEADS, WIDTH = 5, 2, 8
PLACES = np.array([0, 3, 4, 90, 7_000], np.int32)
SCALED = {
    "dynamic": encodings.DynamicScaling(2.0, 32),
    "longrope": encodings.LongRopeScaling((1.0,) * 4, (1.0, 1.05, 2.0, 9.0), 4096, factor=4.0),
    "yarn": encodings.YarnScaling(4.0, 32),
    "ntk": encodings.NtkScaling(4.0),
    "proportional": encodings.ProportionalScaling(0.5),
}
ROPE = encodings.rope(head_dim=WIDTH)
GRAPE = encodings.grape_multiplicative(head_dim=WIDTH)
ROTATING = {
    "rope": ROPE,
    "interleaved": encodings.rope(head_dim=WIDTH, layout="interleaved"),
    "partial": encodings.rope(head_dim=WIDTH, fraction=0.5),
    **{name: encodings.rope(head_dim=WIDTH, scaling=SCALED[name], length=8_000) for name in SCALED},
    "xpos": encodings.xpos(head_dim=WIDTH),
    "xpos around 900": encodings.xpos(head_dim=WIDTH, center=900.0),
    "grape": GRAPE,
    "at half the position": encodings.scale_positions(ROPE, 0.5),
    "by head": encodings.per_head([ROPE, encodings.identity()]),
    "with a bias": encodings.chain(ROPE, encodings.alibi(num_heads=HEADS)),
    "axial": encodings.axial_rope(head_dim=WIDTH),
    "mrope": encodings.mrope(head_dim=WIDTH, sections=(2, 1, 1)),
}
COORDINATES = {"axial": 2, "mrope": 3}


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def params_of(encoding):
    params = encoding.init(jax.random.key(3))
    return jax.tree.map(lambda x: x + 0.1 * normal(x.size, *x.shape), params)


def spread(positions, name):
    """Positions with coordinates that differ, where the encoding has several."""
    if name not in COORDINATES:
        return positions
    return positions[..., None] * np.arange(1, COORDINATES[name] + 1, dtype=np.int32)


@pytest.mark.parametrize("name", ROTATING)
def test_moved_keys_are_the_keys_at_their_new_positions(name):
    encoding, k = ROTATING[name], normal(0, N, HEADS, WIDTH)
    params = params_of(encoding)

    @jax.jit
    def run(params, k, i, moves):
        encoded = encoding.key(params, k, i)
        return rotate_by(encoding, params, encoded, moves), encoding.key(params, k, i + moves)

    for delta in (np.array([0, -2, 40, -90, 900]), -3):
        moves = np.broadcast_to(delta, N).astype(np.int32)
        found, wanted = run(params, k, spread(PLACES, name), spread(moves, name))
        np.testing.assert_allclose(found, wanted, atol=1e-9)
    if name not in COORDINATES:
        encoded = encoding.key(params, k, PLACES)
        np.testing.assert_allclose(rotate_by(encoding, params, encoded, -3), wanted, atol=1e-9)


def test_dtypes_and_derivatives():
    k = normal(0, N, HEADS, WIDTH)
    for dtype, atol in ((jnp.float32, 1e-6), (jnp.bfloat16, 2e-2)):
        moved = rotate_by(ROPE, (), k.astype(dtype), 50)
        assert moved.dtype == dtype
        np.testing.assert_allclose(moved.astype(np.float64), rotate_by(ROPE, (), k, 50), atol=atol)
    params, wanted = params_of(GRAPE), 0.3 * normal(1, N, HEADS, WIDTH)
    moved = jax.grad(lambda p, k: jnp.sum(wanted * rotate_by(GRAPE, p, k, 3)), argnums=(0, 1))
    direct = jax.grad(lambda p, k: jnp.sum(wanted * GRAPE.key(p, k, np.full(N, 3))), argnums=(0, 1))
    pairs = zip(*map(jax.tree.leaves, (moved(params, k), direct(params, k))), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("name", ["alibi", "none", "rerope", "cope"])
def test_keys_without_positions_stay(name):
    (entry,) = encodings.catalogue(name)
    encoding = entry.make(
        encodings.EncodingSizes(dim=16, num_heads=HEADS, head_dim=WIDTH, length=16)
    )
    k = normal(0, N, HEADS, WIDTH)
    np.testing.assert_array_equal(rotate_by(encoding, params_of(encoding), k, 9), k)


REFUSED = {
    "frequencies of the longest text": encodings.rope(head_dim=WIDTH, scaling=SCALED["dynamic"]),
    "two lists of frequencies": encodings.rope(head_dim=WIDTH, scaling=SCALED["longrope"]),
    "sums of waves": encodings.fope(num_heads=HEADS, head_dim=WIDTH, length=16),
    "two rotations": encodings.chain(ROPE, GRAPE),
    "an encoding that does not say so": encodings.Encoding(query=ROPE.query, key=ROPE.key),
    "hidden states": encodings.chain(encodings.learned(length=9, dim=16), ROPE),
    "gates": encodings.fox(dim=16, num_heads=HEADS),
}


@pytest.mark.parametrize("name", REFUSED)
def test_keys_that_do_not_rotate_are_refused(name):
    encoding, k = REFUSED[name], normal(0, N, HEADS, WIDTH)
    with pytest.raises(ValueError, match=r"rotation|hidden states"):
        rotate_by(encoding, encoding.init(jax.random.key(0)), k, 3)


@pytest.mark.parametrize("name", [entry.name for entry in encodings.catalogue()])
def test_encodings_that_rotate_say_so(name):
    """The law at positions within and beyond training, beside a token that is far away."""
    (entry,) = encodings.catalogue(name)
    encoding = entry.first_layer(
        encodings.EncodingSizes(dim=16, num_heads=HEADS, head_dim=WIDTH, length=16)
    )
    if not encoding.defines("key") or encoding.defines("context"):
        assert not encoding.rotates
        return
    params, k = params_of(encoding), normal(0, 2, HEADS, WIDTH)
    steps = np.arange(1, entry.coordinates + 1, dtype=np.int32)

    def spread(*positions):
        line = np.asarray(positions, np.int32)
        return line if entry.coordinates == 1 else line[:, None] ** 2 % 97 + np.outer(line, steps)

    @jax.jit
    def keys(k, i):
        return encoding.key(params, k, i)

    errors = []
    for i, delta in ((0, 3), (1, 7), (60, -40), (5_000, -777)):
        one, move = spread(i, 9_000), spread(delta)
        start = keys(k, one)[:1]
        if start.shape != k[:1].shape:
            errors.append(np.inf)
            continue
        wanted = keys(k, np.concatenate([one[:1] + move, one[1:]]))[:1]
        amplitude = keys(jnp.ones((1, HEADS, WIDTH)), 0 * move)
        errors.append(np.abs(keys(start / amplitude, move) - wanted).max())
    assert encoding.rotates == (max(errors) < 1e-9)
