"""Position vectors and the encodings built from them: laws over all of them, then each alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.encodings import (
    fourier,
    from_matrix,
    information_optimal,
    inverse_frequencies,
    learned,
    low_rank,
    random_fixed,
    scale_positions,
    sinusoidal,
    sinusoidal_vectors,
)
from jaxpe.geometry import count_tokens, information_optimal_encoding, stress

LENGTH, DIM = 9, 6
IDS = np.random.default_rng(0).integers(0, 12, (40, LENGTH), dtype=np.int32)
MATRIX = np.random.default_rng(1).standard_normal((LENGTH, 4))


def _counts():
    return count_tokens(IDS, vocab_size=12)


MAKE = {
    "sinusoidal": lambda **kw: sinusoidal(dim=DIM, **kw),
    "learned": lambda **kw: learned(length=LENGTH, dim=DIM, **kw),
    "random_fixed": lambda **kw: random_fixed(length=LENGTH, dim=DIM, **kw),
    "fourier": lambda **kw: fourier(dim=DIM, **kw),
    "fourier_learnable": lambda **kw: fourier(dim=DIM, learnable=True, **kw),
    "from_matrix": lambda **kw: from_matrix(MATRIX, dim=DIM, **kw),
    "from_matrix_trainable": lambda **kw: from_matrix(MATRIX, dim=DIM, trainable=True, **kw),
    "information_optimal": lambda **kw: information_optimal(_counts(), dim=DIM, **kw),
    "low_rank": lambda **kw: low_rank(length=LENGTH, dim=DIM, rank=2, stddev=1.0, **kw),
}
every = pytest.mark.parametrize("name", MAKE)


@functools.cache
def _built(name, **kw):
    """An encoding whose hooks are jitted and give NumPy arrays, and params."""
    encoding = MAKE[name](**kw)
    embed, vectors = jax.jit(encoding.embed), jax.jit(encoding.vectors)
    numpy = encoding._replace(
        embed=lambda *args: np.asarray(embed(*args)),
        vectors=lambda *args: np.asarray(vectors(*args)),
    )
    return numpy, jax.jit(encoding.init)(jax.random.key(3))


def rows_of(encoding, positions):
    """Vectors at concrete positions, with initial parameters."""
    run = jax.jit(lambda key: encoding.vectors(encoding.init(key), positions))
    return np.asarray(run(jax.random.key(0)))


def _embeddings(*shape):
    return np.random.default_rng(2).standard_normal(shape)


@every
def test_embed_adds_the_vectors_or_puts_them_behind(name):
    added, params = _built(name)
    behind, _ = _built(name, mode="concat")
    i, x = np.array([4, 0, 7], np.int32), _embeddings(3, DIM)
    vectors = added.vectors(params, i)
    assert vectors.shape == (3, DIM)
    np.testing.assert_allclose(added.embed(params, x, i), x + vectors, rtol=1e-14)
    wide = _embeddings(3, 2)
    np.testing.assert_array_equal(
        behind.embed(params, wide, i), np.concatenate([wide, vectors], axis=-1)
    )


def test_a_width_that_does_not_fit_is_refused():
    (encoding, params), wrong = _built("sinusoidal"), DIM - 1
    with pytest.raises(ValueError, match="width"):
        encoding.embed(params, _embeddings(3, wrong), np.arange(3))


# Sinusoids

sinusoids = jax.jit(sinusoidal_vectors, static_argnames=("dim", "layout"))


@pytest.mark.parametrize("dim", [2, 64])
def test_sinusoidal_is_equation_2(dim):
    table = np.zeros((10, dim))
    for i in range(10):
        for k in range(dim // 2):
            phase = i / 10_000 ** (2 * k / dim)
            table[i, 2 * k], table[i, 2 * k + 1] = np.sin(phase), np.cos(phase)
    np.testing.assert_allclose(sinusoids(np.arange(10), dim=dim), table, atol=1e-14)
    parts = np.concatenate([table[:, 0::2], table[:, 1::2]], axis=1)
    apart = sinusoids(np.arange(10), dim=dim, layout="concatenated")
    np.testing.assert_allclose(apart, parts, atol=1e-14)


# Tables


@pytest.mark.parametrize("positions", [[0.0, 4.5], [-1, 2], [0.5, 1.0], [np.nan, 0.0], [2**31, 0]])
def test_known_positions_without_a_row_are_refused(positions):
    encoding = learned(length=4, dim=2)
    params, x, i = encoding.init(jax.random.key(0)), jnp.zeros((2, 2)), np.array(positions)
    for apply in (encoding.embed, jax.jit(lambda p, x, _: encoding.embed(p, x, i))):
        with pytest.raises(ValueError, match="position"):
            apply(params, x, i if apply is encoding.embed else ())


@pytest.mark.parametrize(
    ("interpolate", "dtype"), [(False, np.int32), (False, np.float64), (True, np.float64)]
)
def test_traced_positions_without_a_row_give_nan_and_no_gradient(interpolate, dtype):
    encoding = learned(length=4, dim=2, interpolate=interpolate)
    params = encoding.init(jax.random.key(0))
    i = np.array([-1, 0, 3, 4, 2**20], dtype)
    rows = np.asarray(jax.jit(encoding.vectors)(params, i))
    assert np.isnan(rows).all(axis=1).tolist() == [True, False, False, True, True]
    np.testing.assert_array_equal(rows[1:3], np.asarray(params["table"])[[0, 3]])
    picked = jax.jit(jax.grad(lambda p, i: jnp.nansum(encoding.vectors(p, i))))(params, i)
    assert picked["table"].tolist() == [[1, 1], [0, 0], [0, 0], [1, 1]]
    if dtype == np.float64 and not interpolate:
        between = jax.jit(encoding.vectors)(params, np.array([0.5, 1.0, np.nan]))
        assert np.isnan(between).all(axis=1).tolist() == [True, False, True]


@pytest.mark.parametrize("length", [1, 5])
def test_interpolated_rows_are_linear_between_neighbours(length):
    encoding = learned(length=length, dim=3, interpolate=True)
    params = {"table": np.random.default_rng(0).standard_normal((length, 3))}
    i = np.linspace(0, length - 1, 13)
    expected = np.stack([np.interp(i, np.arange(length), c) for c in params["table"].T], -1)
    vectors, whole = jax.jit(encoding.vectors), np.arange(length)
    np.testing.assert_allclose(vectors(params, i), expected, atol=1e-16)
    np.testing.assert_array_equal(vectors(params, whole.astype(float)), params["table"])
    np.testing.assert_array_equal(vectors(params, whole), params["table"])


def test_a_table_is_stretched_over_any_length_in_float32():
    with jax.enable_x64(False):
        encoding = learned(length=50, dim=1, interpolate=True)
        params = {"table": jnp.arange(50.0)[:, None] ** 2}
        stretched = jax.jit(scale_positions(encoding, 49 / 512).vectors)
        rows = np.asarray(stretched(params, np.arange(513, dtype=np.int32)))
        np.testing.assert_allclose(rows[[0, 256, -1], 0], [0, 24.5**2 + 0.25, 49**2])
        # The last position may round to just beyond the table; it still is its end.
        n = np.arange(2, 5000, dtype=np.float32)
        last = np.float32(49 / (n - 1)) * (n - 1)
        assert last.max() > 49
        np.testing.assert_allclose(jax.jit(encoding.vectors)(params, last), 49**2, rtol=1e-6)


def test_the_derivative_along_a_table_is_its_slope_also_at_both_ends():
    encoding = learned(length=3, dim=1, interpolate=True)
    params = {"table": jnp.asarray([[0.0], [1.0], [5.0]])}
    slope = jax.jit(jax.vmap(jax.grad(lambda i: encoding.vectors(params, i[None])[0, 0])))
    assert slope(jnp.asarray([0.0, 0.5, 1.0, 1.5, 2.0])).tolist() == [1, 1, 4, 4, 4]


# Random features


def test_fourier_features_approximate_the_gaussian_kernel():
    encoding = fourier(dim=20_000, sigma=0.3, scale=np.sqrt(2 / 20_000))
    rows = rows_of(encoding, np.array([5, 5, 6, 8, 15]))
    kernel = np.exp(-(0.3**2) * np.array([0, 0, 1, 3, 10]) ** 2 / 2)
    np.testing.assert_allclose(rows @ rows[0], kernel, atol=3 / np.sqrt(10_000))


def test_fourier_features_at_sinusoidal_frequencies_are_sinusoids():
    params = {"frequencies": np.asarray(inverse_frequencies(8))}
    features = jax.jit(fourier(dim=8).vectors)(params, np.arange(20))
    sines = sinusoids(np.arange(20), dim=8, layout="concatenated")
    np.testing.assert_allclose(features, np.roll(sines, 4, axis=-1), atol=1e-14)


# From counts


def test_information_optimal_is_algorithm_1():
    whole = information_optimal_encoding(IDS, vocab_size=12, dim=DIM)
    encoding, params = _built("information_optimal")
    np.testing.assert_allclose(
        encoding.vectors(params, np.arange(LENGTH)), whole.coordinates, atol=1e-13
    )
    full = information_optimal(_counts(), dim=LENGTH + 2)
    rows = rows_of(full, np.arange(LENGTH))
    assert stress(rows, whole.distances) < 1e-20
    assert (rows[:, LENGTH:] == 0).all()


def test_information_optimal_of_empty_positions_is_zero():
    mask = np.ones(IDS.shape, bool)
    mask[:, 3] = False
    counts = count_tokens(IDS, vocab_size=12, mask=mask)
    for scale in (1.0, "rms"):
        encoding = information_optimal(counts, dim=20, scale=scale)
        rows = rows_of(encoding, np.arange(LENGTH))
        assert (rows[3] == 0).all()
        assert (np.abs(np.delete(rows, 3, axis=0)).max(axis=1) > 0.1).all()
    np.testing.assert_allclose((rows**2).sum() / (8 * 20), 0.5)


# Low rank


def test_low_rank_params_and_their_variance():
    encoding = low_rank(length=300, dim=200, rank=4, stddev=0.5)
    params = jax.device_get(jax.jit(encoding.init)(jax.random.key(0)))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 4 * (300 + 200)
    rows = rows_of(encoding, np.arange(300))
    assert np.linalg.matrix_rank(rows) == 4
    np.testing.assert_allclose(rows.std(), 0.5, rtol=0.1)
    np.testing.assert_allclose(rows, params["A"] @ params["B"].T, atol=1e-14)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: sinusoidal_vectors(np.arange(3), dim=5), "dim"),
        (lambda: learned(length=0, dim=2), "length"),
        (lambda: from_matrix(MATRIX, dim=3), "columns"),
        (lambda: low_rank(length=5, dim=3, rank=4), "rank"),
        (lambda: sinusoidal(dim=4).embed((), np.zeros((4, 4), int), np.arange(4)), "float"),
        (lambda: low_rank(length=4, dim=2, rank=1).vectors({"A": MATRIX}, np.arange(2)), "pass"),
    ],
)
def test_bad_input_is_refused(call, word):
    with pytest.raises(ValueError, match=word):
        call()
