"""Distances that encodings induce, against formulas, loops and random queries and keys."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxpe import encodings, geometry
from jaxpe.encodings import (
    Encoding,
    alibi,
    attention_logits,
    chain,
    encoding_distances,
    identity,
    learned,
    per_head,
    rope,
    shaw,
    transformer_xl,
    xpos,
)
from jaxpe.encodings.families.bias import alibi_slopes
from jaxpe.geometry import stress

N, DIM = 6, 8
PLACES = np.array([0, 1, 3, 4, 9, 20])
OFFSETS = PLACES[None, :] - PLACES[:, None]
KEY = jax.random.key(0)


def without_vectors(encoding):
    return encoding._replace(vectors=Encoding().vectors)


def table_hook(seed):
    """A hook that turns nothing and adds a vector for the position."""
    rows = jnp.asarray(np.random.default_rng(seed).standard_normal((32, 1, DIM)))
    return lambda params, x, positions: 1.5 * x + rows[positions]


def sampled(encoding, params, *, heads, samples=4000):
    """Squares d_ij² as a mean over random queries and keys, and the standard errors."""

    def change(key):
        q_key, k_key = jax.random.split(key)
        q, k = (
            jnp.broadcast_to(jax.random.normal(own, (1, heads, DIM)), (N, heads, DIM))
            for own in (q_key, k_key)
        )
        where = {"q_positions": PLACES, "k_positions": PLACES}
        logits = attention_logits(encoding, params, q, k, **where)
        moved = logits - jnp.diagonal(logits, axis1=1, axis2=2)[:, :, None]
        square = jnp.sum(moved**2, axis=0)
        return (square + square.T) / 2

    draws = np.asarray(jax.jit(jax.vmap(change))(jax.random.split(KEY, samples)))
    return draws.mean(0), draws.std(0) / np.sqrt(samples)


# --- where vectors say the same ---


def test_rope_induces_the_sinusoidal_distances():
    for layout in ("half", "interleaved"):
        encoding = rope(head_dim=DIM, layout=layout)
        points = encoding_distances(encoding, (), PLACES, num_heads=1, head_dim=DIM)
        logits = encoding_distances(
            without_vectors(encoding), (), PLACES, num_heads=1, head_dim=DIM
        )
        np.testing.assert_allclose(logits.values, points.values * np.sqrt(2 / DIM), atol=1e-13)
        expected = geometry.euclidean_distances(encodings.sinusoidal_vectors(PLACES, dim=DIM))
        np.testing.assert_allclose(points.values, expected.values, atol=1e-13)


def test_alibi_induces_its_line():
    heads = 3
    encoding = alibi(num_heads=heads)
    points = encoding_distances(encoding, (), PLACES)
    logits = encoding_distances(
        without_vectors(encoding), (), PLACES, num_heads=heads, head_dim=DIM
    )
    slope = np.linalg.norm(alibi_slopes(heads))
    np.testing.assert_allclose(points.values, slope * np.abs(OFFSETS), rtol=1e-13)
    np.testing.assert_allclose(logits.values, points.values, rtol=1e-13)
    assert logits.present.all()


def test_rope_and_alibi_add_their_squares():
    parts = rope(head_dim=DIM), alibi(num_heads=2)
    both = chain(*parts)
    with pytest.raises(ValueError, match=r"encodings \[0, 1\], which all define"):
        encoding_distances(both, ((), ()), PLACES)
    induced = partial(encoding_distances, positions=PLACES, num_heads=2, head_dim=DIM)
    squares = [induced(without_vectors(part), ()).values ** 2 for part in parts]
    together = induced(chain(*map(without_vectors, parts)), ((), ()))
    np.testing.assert_allclose(together.values**2, squares[0] + squares[1], rtol=1e-12)
    mixed = per_head([parts[0], alibi(num_heads=1, slopes=0.5)])
    alone = encoding_distances(
        without_vectors(parts[0]), (), PLACES, num_heads=1, head_dim=DIM
    ).values
    expected = np.sqrt(alone**2 + 0.25 * OFFSETS**2)
    np.testing.assert_allclose(induced(mixed, ((), ())).values, expected, rtol=1e-12)


# --- random queries and keys ---

SAMPLED = {
    "transformer_xl": (transformer_xl(num_heads=2, head_dim=DIM, stddev=0.5), 2),
    "xpos": (xpos(head_dim=DIM, scale_base=32.0), 1),
    "shaw and rope": (chain(shaw(head_dim=DIM, max_distance=4, stddev=1.0), rope(head_dim=DIM)), 2),
    "added and turned": (
        chain(Encoding(query=table_hook(1), key=table_hook(2)), rope(head_dim=DIM)),
        1,
    ),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_the_expectation_is_exact(name):
    """Within five standard errors of a mean over random queries and keys."""
    encoding, heads = SAMPLED[name]
    params = encoding.init(KEY)
    mean, error = sampled(without_vectors(encoding), params, heads=heads)
    exact = encoding_distances(
        without_vectors(encoding), params, PLACES, num_heads=heads, head_dim=DIM
    )
    np.testing.assert_allclose(np.diagonal(exact.values), 0, atol=1e-14)
    pairs = np.triu_indices(N, 1)
    deviation = np.abs(exact.values[pairs] ** 2 - mean[pairs]) / error[pairs]
    assert deviation.max() < 5
    assert (error[pairs] < 0.1 * mean[pairs]).all()


# --- edges ---


def test_no_encoding_no_distance():
    for encoding in (identity(), Encoding(bias=lambda *args: None)):
        actual = encoding_distances(encoding, (), PLACES, num_heads=1, head_dim=DIM)
        np.testing.assert_array_equal(actual.values, 0)


def test_embeddings_need_vectors():
    table = learned(length=32, dim=DIM)
    params = table.init(KEY)
    actual = encoding_distances(table, params, PLACES)
    np.testing.assert_allclose(
        actual.values, geometry.euclidean_distances(params["table"][PLACES]).values
    )
    with pytest.raises(ValueError, match="acts on embeddings, so logits depend"):
        encoding_distances(without_vectors(table), params, PLACES)


def test_gradients_reach_the_parameters():
    encoding = transformer_xl(num_heads=2, head_dim=DIM)
    target = np.abs(OFFSETS) ** 0.5

    @jax.jit
    def loss(params):
        induced = encoding_distances(encoding, params, PLACES, num_heads=2, head_dim=DIM)
        return stress(induced, target)

    params = encoding.init(KEY)
    check_grads(loss, (params,), order=1, modes=("rev",), atol=1e-4, rtol=1e-4)
    gradients = jax.tree.leaves(jax.grad(loss)(params))
    assert all(np.isfinite(g).all() for g in gradients)
    assert max(float(np.abs(g).max()) for g in gradients) > 0
    still = jax.tree.map(jnp.zeros_like, params)  # every distance is 0: the singular point
    for g in jax.tree.leaves(jax.grad(loss)(still)):
        np.testing.assert_array_equal(g, 0)
