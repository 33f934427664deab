"""Caches whose tokens move: shifted prefixes, evicted tokens."""

import functools

import jax
import numpy as np
import pytest
from flax import nnx

from jaxpe import encodings, nn
from tests.nn.models import (
    HEAD_DIM,
    HEADS,
    LATENT,
    config,
    filled,
    shapes_of,
    some_ids,
)

N, SLOTS = 7, 9
ROPE = encodings.rope(head_dim=HEAD_DIM)
GRAPE = encodings.grape_multiplicative(head_dim=HEAD_DIM)
YARN = encodings.rope(head_dim=HEAD_DIM, scaling=encodings.YarnScaling(4.0, 32))
MODELS = {
    "rope": ({"encoding": ROPE}, {}),
    "yarn": ({"encoding": YARN}, {}),
    "latent": ({"encoding": ROPE}, {"latent": LATENT}),
    "both": ({"encoding": encodings.chain(ROPE, encodings.alibi(num_heads=HEADS))}, {}),
    "bias by layer": (
        {"encoding": ROPE, "layer_encoding": encodings.t5(num_heads=HEADS)},
        {},
    ),
    "every third without": (
        {"layer_encoding": encodings.interleaved_layers(ROPE, encodings.identity(), period=3)},
        {"num_layers": 4},
    ),
    "learned by layer of a pattern": (
        {"layer_encoding": encodings.interleaved_layers(GRAPE, ROPE, period=2)},
        {"num_layers": 3},
    ),
    "gemma": ({"encoding": encodings.gemma3(head_dim=HEAD_DIM, window=3, period=2)}, {}),
}


@functools.cache
def model(name, **changes):
    """A decoder with parameters, and a function from tokens to its cache or hidden states."""
    options, more = MODELS[name]
    make = lambda: nn.Decoder(config(**(more | changes)), **options, rngs=nnx.Rngs(0))  # noqa: E731
    shapes = shapes_of(make)
    _, params = filled(shapes)
    decoder = nnx.merge(nnx.graphdef(shapes), params)

    @jax.jit
    def read(ids, positions, mask=None, cache=None):
        cache = decoder.empty_cache(batch=len(ids), slots=SLOTS) if cache is None else cache
        out = decoder(ids, positions=positions, mask=mask, cache=cache)
        return out.cache, out.hidden

    return decoder, read


def equal(found, wanted, atol=1e-10):
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        np.testing.assert_allclose(a, b, atol=atol)


def filled_part(cache, length):
    """Cache without the slots that no token has."""
    layers = jax.tree.map(lambda a: a[:, :, :length], cache.layers)
    return cache._replace(layers=layers, positions=cache.positions[:, :length])


@pytest.mark.parametrize("name", ["bias by layer", "learned by layer of a pattern", "gemma"])
def test_a_moved_cache_is_the_cache_of_the_tokens_at_moved_positions(name):
    decoder, read = model(name)
    ids, line = some_ids(2, N), np.broadcast_to(np.arange(N, dtype=np.int32), (2, N))
    cache, _ = read(ids, line)
    move = jax.jit(functools.partial(nn.move_cache, decoder))
    delta = np.array([[3], [40]], np.int32)
    moved, positions = move(cache, delta), line + delta
    wanted, _ = read(ids, positions)
    equal(filled_part(moved, N), filled_part(wanted, N))
    np.testing.assert_array_equal(moved.positions, wanted.positions)
    token = some_ids(2, 1, seed=4)
    nexts = [read(token, positions[:, -1:] + 1, None, c)[1] for c in (moved, wanted)]
    np.testing.assert_allclose(*nexts, atol=1e-10)
    equal(move(moved, -delta), cache)


def test_keys_move_where_they_have_positions_and_only_there():
    decoder, read = model("every third without")
    cache, _ = read(some_ids(2, N), np.arange(N, dtype=np.int32))
    moved = nn.move_cache(decoder, cache, 3)
    for slot, (a, b) in enumerate(zip(moved.layers, cache.layers, strict=True)):
        assert np.allclose(a["k"], b["k"]) == (slot == 2)
        np.testing.assert_array_equal(a["v"], b["v"])
    decoder, read = model("latent")
    cache, _ = read(some_ids(2, N), np.arange(N, dtype=np.int32))
    moved = nn.move_cache(decoder, cache, 3)
    assert not np.allclose(moved.layers["rotary"], cache.layers["rotary"])
    np.testing.assert_array_equal(moved.layers["latent"], cache.layers["latent"])


def test_padding_does_not_move():
    decoder, read = model("rope")
    mask = np.arange(N) >= np.array([[0], [2]])
    positions = nn.padded_positions(mask)
    cache, _ = read(some_ids(2, N), positions, mask)
    moved = nn.move_cache(decoder, cache, 5)
    wanted = np.where(mask, positions + 5, 2**30)
    np.testing.assert_array_equal(moved.positions[:, :N], wanted)
    np.testing.assert_array_equal(moved.positions[:, N:], 2**30)
    np.testing.assert_array_equal(moved.layers["k"][:, 1, :2], cache.layers["k"][:, 1, :2])


@pytest.mark.parametrize(("name", "start"), [("rope", 0), ("yarn", 2), ("latent", 2), ("both", 2)])
def test_decoding_after_eviction_equals_decoding_of_the_tokens_that_stay(name, start):
    """One layer: keys and values do not depend on the tokens that are evicted."""
    decoder, read = model(name, num_layers=1)
    ids, count, line = some_ids(2, N), 3, np.arange(N + 2, dtype=np.int32)
    cache, _ = read(ids, line[:N])
    evict = functools.partial(nn.evict_tokens, decoder, start=start, count=count)
    evicted = jax.jit(evict)(cache)
    stay = np.r_[:start, start + count : N]
    wanted, _ = read(ids[:, stay], line[: N - count])
    equal(filled_part(evicted, N - count), filled_part(wanted, N - count))
    for field in ("positions", "valid", "length"):
        np.testing.assert_array_equal(getattr(evicted, field), getattr(wanted, field))
    for step in range(2):  # slots are free again, and the index in the cache is the position
        token = some_ids(2, 1, seed=step)
        at = evicted.length + np.zeros((2, 1), np.int32)
        (evicted, a), (wanted, b) = (read(token, at, None, c) for c in (evicted, wanted))
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_eviction_counts_the_tokens_of_each_row():
    decoder, read = model("rope", num_layers=1)
    mask = np.arange(N) >= np.array([[0], [2]])
    ids, positions = some_ids(2, N), nn.padded_positions(mask)
    cache, _ = read(ids, positions, mask)
    evicted = nn.evict_tokens(decoder, cache, start=0, count=3)
    np.testing.assert_array_equal(evicted.positions[:, :4], [[0, 1, 2, 3]] * 2)
    assert evicted.length == N - 3
    wanted, _ = read(ids[:, 3:], evicted.positions[:, :4])
    equal(filled_part(evicted, 4), filled_part(wanted, 4))


def test_a_stream_longer_than_the_cache():
    """StreamingLLM: two sinks, the newest tokens, and any number of steps in one program."""
    decoder, _ = model("rope")
    ids = some_ids(1, 20)

    @jax.jit
    def step(cache, token):
        full = cache.length == SLOTS
        cache = jax.lax.cond(
            full, lambda c: nn.evict_tokens(decoder, c, start=2, count=4), lambda c: c, cache
        )
        out = decoder(token[None, None], cache=cache)
        return out.cache, out.hidden[0, 0]

    cache, hidden = jax.lax.scan(step, decoder.empty_cache(batch=1, slots=SLOTS), ids[0])
    assert np.isfinite(hidden).all()
    length = int(cache.length)
    np.testing.assert_array_equal(cache.positions[0, :length], np.arange(length))
    line = np.arange(SLOTS, dtype=np.int32)
    whole = decoder(ids[:, :SLOTS], positions=line).hidden[0]
    np.testing.assert_allclose(hidden[:SLOTS], whole, atol=1e-10)  # before anything is evicted


def test_encodings_whose_keys_do_not_move_are_refused():
    dynamic = encodings.rope(head_dim=HEAD_DIM, scaling=encodings.DynamicScaling(2.0, 4))
    fox = encodings.fox(dim=8, num_heads=HEADS)

    def moved(encoding):
        decoder = nn.Decoder(config(), encoding=encoding, rngs=nnx.Rngs(0))
        return nn.move_cache(decoder, decoder.empty_cache(batch=1, slots=4), 1).layers

    for encoding in (
        encodings.sinusoidal(dim=8),
        fox,
        dynamic,
        encodings.chain(ROPE, GRAPE),
    ):
        with pytest.raises(ValueError, match="keys"):
            shapes_of(functools.partial(moved, encoding))


def test_arguments_are_checked():
    decoder, read = model("rope")
    cache, _ = read(some_ids(2, N), np.arange(N, dtype=np.int32))
    with pytest.raises(ValueError, match="delta"):
        nn.move_cache(decoder, cache, np.array(0.5))
    for start, count in ((-1, 2), (0, 0), (5, 3)):
        with pytest.raises(ValueError, match="start"):
            nn.evict_tokens(decoder, cache, start=start, count=count)
    last = functools.partial(nn.evict_tokens, decoder, cache, start=0)
    jax.eval_shape(functools.partial(last, count=N))  # a cache may lose its last token
    with pytest.raises(ValueError, match="start"):
        last(count=N + 1)
