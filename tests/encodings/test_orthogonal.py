"""Orthogonal functions: their laws, SciPy's and PyWavelets' numbers, the encodings made of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
import scipy.special

from jaxpe.encodings import (
    cosine,
    cosine_vectors,
    legendre,
    legendre_vectors,
    spherical_harmonic_vectors,
    spherical_harmonics,
    wavelet,
    wavelet_vectors,
)
from jaxpe.encodings.families import orthogonal
from jaxpe.encodings.families.orthogonal import chebyshev_polynomials, legendre_polynomials

POLYNOMIALS = {
    "legendre": (legendre_polynomials, scipy.special.eval_legendre),
    "chebyshev": (chebyshev_polynomials, scipy.special.eval_chebyt),
}


@pytest.mark.parametrize(
    "encoding",
    [legendre(dim=6, length=20, position_map=m) for m in ("tanh", "clipped", "log")]
    + [cosine(dim=6, length=20), wavelet(dim=6, length=20)],
)
def test_derivatives_are_finite_everywhere(encoding):
    i = jnp.asarray([-1e6, -3.0, -1.0, 0.0, 9.5, 19.0, 20.0, 224.0, 1e6])
    assert jnp.isfinite(jax.jit(jax.jacfwd(lambda i: encoding.vectors((), i)))(i)).all()


# Spherical harmonics


GRID = np.stack(np.meshgrid(np.arange(7), np.arange(9), indexing="ij"), axis=-1).reshape(-1, 2)
PLACES = {"rows": 7, "columns": 9}


def test_spherical_harmonics_equal_scipy():
    """And their derivatives are those of differences, also at the poles."""
    Y = spherical_harmonic_vectors(GRID, dim=30, **PLACES)
    theta, phi = np.pi * (GRID[:, :1] + 0.5) / 7, 2 * np.pi * GRID[:, 1:] / 9
    l, m = np.array([(l, m) for l in range(6) for m in range(-l, l + 1)][:30]).T  # noqa: E741
    exact = (-1.0) ** m * scipy.special.sph_harm_y(l, abs(m), theta, phi)
    parts = np.where(m < 0, exact.imag, exact.real) * np.where(m == 0, 1, np.sqrt(2))
    np.testing.assert_allclose(Y, parts, atol=1e-13)

    at, h = jnp.asarray([[-0.5, 0.0], [0.3, 8.7], [6.5, 40.0]]), 1e-6
    vectors = jax.jit(lambda shift: spherical_harmonic_vectors(at + shift, dim=20, **PLACES))
    for axis in np.eye(2)[:, None]:
        _, slope = jax.jvp(vectors, (jnp.zeros((1, 2)),), (jnp.asarray(axis),))
        expected = (vectors(h * axis) - vectors(-h * axis)) / (2 * h)
        np.testing.assert_allclose(slope, expected, atol=1e-7)


@pytest.mark.parametrize("degree", [1, 21])
def test_products_of_spherical_harmonics_depend_on_the_angle_alone(degree):
    """The addition theorem: Σ_m Y_lm(a) Y_lm(b) = (2l + 1)/4π P_l(cos γ)."""
    Y = spherical_harmonic_vectors(GRID, dim=(degree + 1) ** 2, **PLACES)
    theta, phi = np.pi * (GRID[:, 0] + 0.5) / 7, 2 * np.pi * GRID[:, 1] / 9
    at = np.stack([np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)], -1)
    l = np.arange(degree + 1)  # noqa: E741
    cosines = np.clip(at @ at.T, -1, 1)[..., None]
    expected = scipy.special.eval_legendre(l, cosines) @ (2 * l + 1) / (4 * np.pi)
    np.testing.assert_allclose(Y @ Y.T, expected, atol=1e-11)


def test_spherical_harmonics_are_added_at_rows_and_columns():
    encoding = spherical_harmonics(dim=5, scale=2.0, **PLACES)
    x = jnp.ones((2, 63, 5))
    rows = encoding.vectors((), GRID)
    np.testing.assert_allclose(encoding.embed((), x, GRID), x + rows[None], atol=1e-12)
    with pytest.raises(ValueError, match=r"pass \[..., n, 2\]"):
        encoding.vectors((), jnp.arange(63))


# Polynomials


@pytest.mark.parametrize("kind", POLYNOMIALS)
def test_polynomials_equal_scipy_up_to_degree_767(kind):
    function, reference = POLYNOMIALS[kind]
    near = 1 - np.logspace(-12, -1, 40)
    x = np.concatenate([np.linspace(-1, 1, 201), near, -near])
    exact = reference(np.arange(768), x[:, None])
    np.testing.assert_allclose(jax.jit(lambda x: function(x, dim=768))(x), exact, atol=1e-11)
    with jax.enable_x64(False):
        x = x.astype(np.float32)
        rough = jax.jit(lambda x: function(x, dim=768))(x)
    exact = reference(np.arange(768), x[:, None].astype(float))
    # The recurrence as it stands in books is 7e-3 (Legendre) and 3e-3 (Chebyshev) off here.
    np.testing.assert_allclose(rough, exact, atol={"legendre": 3e-6, "chebyshev": 3e-5}[kind])


def test_orthogonality_by_quadrature():
    nodes, weights = np.polynomial.legendre.leggauss(64)
    P = np.asarray(legendre_polynomials(nodes, dim=64, normalized=True))
    np.testing.assert_allclose((P.T * weights) @ P, np.eye(64), atol=1e-13)


@pytest.mark.parametrize("kind", POLYNOMIALS)
def test_ends_and_slopes_there(kind):
    function, _ = POLYNOMIALS[kind]
    k = np.arange(100)
    values = function(np.array([-1.0, 1.0]), dim=100)
    np.testing.assert_array_equal(values, [(-1.0) ** k, np.ones(100)])
    slopes = jax.jit(jax.jacfwd(lambda x: function(x, dim=100)))
    at_end = {"legendre": k * (k + 1) / 2, "chebyshev": k**2}[kind]
    np.testing.assert_allclose(slopes(np.ones(())), at_end, rtol=1e-12)
    np.testing.assert_allclose(slopes(-np.ones(())), at_end * (-1.0) ** (k + 1), rtol=1e-12)


# Maps of positions


def _map(name, i, length, s):
    if name == "tanh":
        return np.tanh(i / length)
    last = max(length - 1, 1)
    if name == "clipped":
        return np.clip(2 * i / last - 1, -1, 1)
    unit = s or 1.0
    return np.clip(2 * np.log1p(np.maximum(i, 0) / unit) / np.log1p(last / unit) - 1, -1, 1)


@pytest.mark.parametrize("length", [1, 20])
@pytest.mark.parametrize(
    ("name", "s"), [("tanh", None), ("clipped", None), ("log", None), ("log", 3.0)]
)
def test_maps_of_positions(name, s, length):
    i = np.array([-3, 0, 1, 2, 9, length // 2, length - 1, length, length + 50])
    options = {"length": length, "position_map": name, "s": s}
    vectors = jax.jit(lambda i: legendre_vectors(i, dim=2, **options))(i)
    np.testing.assert_allclose(vectors[:, 1], _map(name, i, length, s), atol=1e-15)
    with jax.enable_x64(False):
        far = jax.jit(lambda i: legendre_vectors(i, dim=768, **options))(i.astype(np.int32))
    exact = scipy.special.eval_legendre(np.arange(768), _map(name, i, length, s)[:, None])
    np.testing.assert_allclose(far, exact, atol=5e-6)


# Cosines


@pytest.mark.parametrize("length", [1, 24])
def test_cosines_are_the_orthonormal_dct(length):
    rows = cosine_vectors(np.arange(length), dim=length, length=length)
    expected = scipy.fft.dct(np.eye(length), type=2, norm="ortho", axis=0).T
    np.testing.assert_allclose(rows, expected, atol=1e-14)


def test_cosines_beyond_the_length():
    wide = cosine_vectors(np.arange(5), dim=8, length=5)
    assert (wide[:, 5:] == 0).all()
    np.testing.assert_array_equal(wide[:, :5], cosine_vectors(np.arange(5), dim=5, length=5))
    back = cosine_vectors(np.arange(20), dim=5, length=5)
    np.testing.assert_allclose(back[5:10], back[:5][::-1], atol=1e-14)
    np.testing.assert_allclose(back[10:], back[:10], atol=1e-14)
    with jax.enable_x64(False):
        far = cosine_vectors(np.array([10**6 + 3], np.int32), dim=5, length=5)
    np.testing.assert_allclose(far[0], back[(10**6 + 3) % 10], atol=1e-6)


# Wavelets


def _wavelets(positions, **kwargs):
    return np.asarray(jax.jit(lambda i: wavelet_vectors(i, **kwargs))(positions))


def _filters(order):
    pywt = pytest.importorskip("pywt")
    filters = pywt.Wavelet(f"db{order}")
    return np.asarray(filters.rec_lo), np.asarray(filters.rec_hi)


@pytest.mark.parametrize("order", [1, 2, 38])
def test_laws_of_the_scaling_function(order):
    low, high = _filters(order)
    level, width = 9, 2 * order - 1
    phi, psi = orthogonal._daubechies(low, high, level)
    per_unit = 2**level
    np.testing.assert_allclose(phi[:-1].reshape(width, per_unit).sum(0), 1, atol=1e-12)  # unity
    twice = np.pad(phi, (width * per_unit, width * per_unit))
    for function, taps in ((phi, low), (psi, high)):
        x = np.arange(width * per_unit + 1)
        at = 2 * x[:, None] - np.arange(len(taps)) * per_unit
        inside = (at >= 0) & (at <= width * per_unit)
        values = np.where(inside, twice[at.clip(0, width * per_unit) + width * per_unit], 0)
        np.testing.assert_allclose(function, np.sqrt(2) * values @ taps, atol=1e-13)
    both = [np.pad(f[:-1], (0, width * per_unit)) for f in (phi, psi)]
    for shift in range(width):
        moved = [np.roll(f, shift * per_unit) for f in both]
        gram = np.array([[a @ b for b in moved] for a in both]) / per_unit
        # The sums are integrals up to the step to the power of twice the smoothness.
        np.testing.assert_allclose(
            gram, np.eye(2) * (shift == 0), atol=5e-3 if order == 2 else 1e-4
        )


@pytest.mark.parametrize(("order", "length", "dim"), [(1, 16, 16), (4, 64, 16), (8, 9, 8)])
def test_wavelet_rows_are_unit_vectors_of_the_functions_chosen(order, length, dim):
    basis = orthogonal.wavelet_basis(dim, length, order)
    coarsest = int(np.ceil(np.log2(length)))
    width = 2 * order - 1
    tables = orthogonal._daubechies(*_filters(order), 10)
    functions = []
    for j in range(coarsest, -5, -1):
        for k in range(-width, length * 2 ** max(-j, 0) + 1):
            p = np.arange(length)
            u = p / 2.0**j - k
            covered = ((u > 0) & (u < width)) if order > 1 else ((u >= 0) & (u < 1))
            for row in (0, 1) if j == coarsest else (1,):
                values = tables[row][(u[covered] * 1024).astype(int)]
                energy = (values**2).sum() / 2.0**j
                if energy > 0.01:
                    functions.append((row, -covered.sum(), -energy.round(9), -j, k))
    chosen = [(row, j, k) for row, _, _, j, k in sorted(functions)[:dim]]
    assert [(r, -j, k) for r, j, k in chosen] == list(zip(basis.row, basis.j, basis.k, strict=True))
    rows = _wavelets(np.arange(length), dim=dim, length=length, order=order)
    plain = np.zeros((length, dim))
    for column, (row, minus_j, k) in enumerate(chosen):
        for p in range(length):
            u = p * 2.0**minus_j - k
            if 0 <= u < width:
                plain[p, column] = 2 ** (minus_j / 2) * tables[row][int(u * 1024)]
    np.testing.assert_allclose(rows, plain / np.linalg.norm(plain, axis=1)[:, None], atol=1e-13)


def test_haar_is_the_haar_transform():
    haar = np.array([[1, 1], [1, -1]]) / np.sqrt(2)
    transform = np.ones((1, 1))
    for _ in range(3):
        n = len(transform)
        transform = np.concatenate([np.kron(transform, haar[:1]), np.kron(np.eye(n), haar[1:])])
    i = np.concatenate([np.arange(8), [2.999, 7.001]])
    rows = _wavelets(i, dim=8, length=8, order=1)
    # Orthonormal, so the rows are unit vectors before they are normalised.
    np.testing.assert_allclose(rows[:8], transform.T, atol=1e-15)
    np.testing.assert_allclose(np.abs(rows[8:]), np.abs(transform.T[[2, 7]]), atol=1e-15)


@pytest.mark.parametrize("order", [1, 4])
def test_wavelet_rows_are_zero_where_the_supports_end(order):
    right, left = (2 * order - 1) * 16, -(2 * order - 2) * 16
    i = np.array([right, right + 7, 10**6, left - 1, -(10**6), 15, 0])
    norms = np.linalg.norm(_wavelets(i, dim=16, length=16, order=order), axis=-1)
    np.testing.assert_allclose(norms, [0, 0, 0, 0, 0, 1, 1])


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: legendre(dim=0, length=4), "dim"),
        (lambda: wavelet(dim=4, length=8, order=39), "order"),
        (lambda: wavelet(dim=1, length=4, order=2), "all 0"),
        (lambda: legendre(dim=2, length=4, s=1.0, position_map="clipped"), "position_map"),
    ],
)
def test_bad_input_is_refused_at_construction(call, word):
    with pytest.raises(ValueError, match=word):
        call()
