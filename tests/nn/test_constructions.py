"""Decoders whose weights a proof sets: positions by attention alone, and what takes them away."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxpe import encodings, nn, theory
from jaxpe.nn.constructions import content_logits

SIZES = {"vocab_size": 20, "dim": 8, "num_layers": 3, "num_heads": 2}
N = 16


def rows(*shape, seed=0):
    """Random words, <bos> first."""
    ids = np.random.default_rng(seed).integers(1, 20, shape, dtype=np.int32)
    ids[..., 0] = 0
    return ids


def traced(key, ids, *, length, kind=nn.Decoder, **sizes):
    """What a constructed decoder has inside; another kind of transformer with its weights."""
    decoder = nn.nope_decoder(length=length, key=key, **(SIZES | sizes))
    model = kind(decoder.config, rngs=nnx.Rngs(0))
    nnx.update(model, nnx.state(decoder))
    seen = model(ids, trace=True)
    return seen, content_logits(model, seen.hidden_states)


def run(key, ids, **sizes):
    return jax.jit(lambda key, ids: traced(key, ids, **sizes))(key, ids)


@pytest.fixture(scope="module")
def several():
    """Three random contents and rows: `[keys, layers, ...]`."""
    keys = jax.random.split(jax.random.key(0), 3)
    program = jax.jit(jax.vmap(lambda key, ids: traced(key, ids, length=N)))
    return program(keys, rows(3, N))


def test_the_first_layer_counts(several):
    seen, _ = several
    t = np.arange(1, N + 1)
    np.testing.assert_allclose(seen.hidden_states[:, 1, :, 2], np.tile(t, (3, 1)), rtol=1e-6)
    first = np.asarray(seen.weights[:, 0, 0])
    np.testing.assert_allclose(first, np.tile(np.tri(N) / t[:, None], (3, 1, 1)), rtol=1e-6)


def test_no_layer_overwrites_the_first_three_rows(several):
    held = np.asarray(several[0].hidden_states[..., :3])
    np.testing.assert_array_equal(held[:, 1:], np.repeat(held[:, 1:2], 3, axis=1))
    np.testing.assert_array_equal(held[..., 0], 1)
    np.testing.assert_array_equal(held[..., 1], np.broadcast_to(np.arange(N) == 0, (3, 4, N)))


def test_every_later_head_compares_positions(several):
    """Eq. (36), in the second and third layer: logits are content − (t − i)."""
    seen, content = several
    t = np.arange(N)
    offsets = np.asarray(seen.logits[:, 1:] - content)
    expected = np.broadcast_to(t[None, :] - t[:, None], offsets.shape)
    np.testing.assert_allclose(offsets, expected, atol=2e-5)
    assert np.abs(content).max() > 1
    assert not np.allclose(content[:, :, 0], content[:, :, 1], atol=0.1)


def test_content_is_computed_in_full_precision():
    """Queries, keys and their products; nothing else multiplies matrices here."""

    def content(key, hidden):
        return content_logits(nn.nope_decoder(length=4, key=key, **SIZES), hidden)

    program = str(jax.make_jaxpr(content)(jax.random.key(0), jnp.zeros((4, 4, 8))))
    assert program.count("dot_general[") == program.count("(Precision.HIGHEST, Precision") == 3


def test_without_content_it_is_alibi_of_slope_1():
    ids = rows(N)
    seen, content = run(jax.random.key(1), ids, length=N, scale=0.0, num_layers=2)
    assert np.all(np.asarray(content) == 0)
    alibi = encodings.alibi(num_heads=2, slopes=1.0)
    q, i = np.zeros((N, 2, 4), np.float32), np.arange(N)
    bias = encodings.attention_logits(alibi, (), q, q, q_positions=i, k_positions=i)
    causal = np.tri(N, dtype=bool)
    np.testing.assert_allclose(
        np.where(causal, seen.logits[1], 0.0), np.where(causal, bias, 0.0), atol=1e-5
    )


def changed(*, front=0, middle=1):
    ids = rows(N)
    ids[[0, N // 2]] = front, middle
    return ids


T = np.arange(1.0, N + 1)
EARLY = T <= N // 2
# What the third row holds after the first layer where a hypothesis fails; NaN where it is not said.
CONTROLS = {
    "no <bos>": (changed(front=1), 2 * N - 1 + 0 * T),
    "<bos> in the middle": (changed(front=1, middle=0), np.where(EARLY, 2 * N - 1, T)),
    # Then 2/t is what is turned round: t/2, exactly so where that is an integer.
    "a second <bos>": (
        changed(middle=0),
        np.where(EARLY, T, np.where(T % 2 == 0, T / 2, np.nan)),
    ),
}


def test_what_the_theorem_needs_in_front():
    ids = np.stack([row for row, _ in CONTROLS.values()])
    seen, _ = run(jax.random.key(0), ids, length=N, num_layers=1)
    for k, (row, expected) in enumerate(CONTROLS.values()):
        fails(theory.nope_theorem_1(seen.hidden_states[1, k], seen.weights[0, k, 0], row))
        said = ~np.isnan(expected)
        held = np.asarray(seen.hidden_states[1, k, :, 2])
        np.testing.assert_allclose(held[said], expected[said], rtol=1e-5)


def test_it_needs_the_causal_mask():
    """All see the whole row then, and all are at its end."""
    seen, _ = run(jax.random.key(0), rows(N), length=N, kind=nn.Encoder, num_layers=1)
    fails(theory.nope_theorem_1(seen.hidden_states[1], seen.weights[0, 0], rows(N)))
    np.testing.assert_allclose(seen.hidden_states[1, :, 2], N, rtol=1e-5)


def fails(audit):
    assert not audit.conclusions["h_3 = t"].holds
    assert theory.verdict(audit).startswith("does not apply")


def test_what_has_no_room_is_refused():
    for changes, wrong in (
        ({"dim": 2, "num_heads": 1}, "dim"),
        ({"num_heads": 8}, "head_dim"),
        ({"bos": 20}, "bos"),
        ({"length": 0}, "length"),
    ):
        with pytest.raises(ValueError, match=wrong):
            nn.nope_decoder(**({"length": 4, "key": jax.random.key(0)} | SIZES | changes))
