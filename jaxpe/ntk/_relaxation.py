"""The matrix function (1 − e^(−cλ))/λ, with a derivative where eigenvalues repeat.

The displacement of a linear flow Ṗ = −αP + b after time c is this function of α, times the initial
velocity. A matrix function has a derivative wherever the scalar function has one; eigenvectors do
not.
"""

import jax
import jax.numpy as jnp
from jax import Array

from jaxpe._core.arrays import dot

# Gauss–Legendre on [0, 1]: exact for polynomials of degree 5.
_NODES = (0.5 - 0.5 * 0.6**0.5, 0.5, 0.5 + 0.5 * 0.6**0.5)
_WEIGHTS = (5 / 18, 8 / 18, 5 / 18)
_TERMS = 14


@jax.custom_jvp
def relaxed(
    matrix: Array,
    eigenvalues: Array,
    eigenvectors: Array,
    velocity: Array,
    time: Array,
    nonzero: Array,
) -> Array:
    """Displacement V diag((1 − e^(−cλ))/λ) Vᵀ · velocity, `[m, k]`, over nonzero eigenvalues.

    The matrix is symmetric; its ascending eigenvalues and its eigenvectors are inputs. It is
    differentiated by the matrix. The first derivative is right everywhere; a second one
    differentiates `eigh`, and is NaN where eigenvalues repeat. At a time c = inf the function is
    1/λ.
    """
    moved = _relaxation_factor(eigenvalues, time, nonzero)[:, None] * dot(eigenvectors.T, velocity)
    return dot(eigenvectors, moved)


@relaxed.defjvp
def _relaxed_jvp(at, along):
    matrix, _, _, velocity, time, nonzero = at
    eigenvalues, V = jnp.linalg.eigh(matrix)
    d_matrix, _, _, d_velocity, d_time, _ = along
    turned = dot(V.T, dot(0.5 * (d_matrix + d_matrix.T), V))
    change = dot(_differences(eigenvalues, time, nonzero) * turned, dot(V.T, velocity))
    change += _relaxation_factor(eigenvalues, time, nonzero)[:, None] * dot(V.T, d_velocity)
    slope = jnp.where(nonzero, _decay(eigenvalues, time), 0.0) * d_time
    return relaxed(*at), dot(V, change + slope[:, None] * dot(V.T, velocity))


def _relaxation_factor(x: Array, time: Array, nonzero: Array) -> Array:
    """(1 − e^(−cx))/x, which is c at x = 0."""
    zero = x == 0
    safe = jnp.where(zero, 1.0, x)
    finite, ends = _finite(time)
    gone = jnp.where(ends, 1.0, -jnp.expm1(-finite * safe))
    return jnp.where(nonzero, jnp.where(zero, time, gone / safe), 0.0)


def _decay(x: Array, time: Array) -> Array:
    """e^(−cx) for positive x."""
    finite, ends = _finite(time)
    return jnp.where(ends, 0.0, jnp.exp(-finite * x))


def _finite(time: Array) -> tuple[Array, Array]:
    """The time, or 1 for inf, and whether it was inf: inf · 0 would make derivatives NaN."""
    ends = jnp.isinf(time)
    return jnp.where(ends, 1.0, time), ends


def _differences(x: Array, time: Array, nonzero: Array) -> Array:
    """Divided differences (f(x_i) − f(x_j))/(x_i − x_j), or derivatives for close x, `[m, m]`."""
    # Two x are near if the function is nearly a polynomial between them: it varies on the scale
    # 1/c, or x itself if that is larger.
    a, b = x[:, None], x[None, :]
    both = nonzero[:, None] & nonzero[None, :]
    apart = a - b
    scale = 1.0 / time + jnp.minimum(jnp.abs(a), jnp.abs(b))
    near = both & (jnp.abs(apart) <= 0.2 * scale)
    share = _relaxation_factor(x, time, nonzero)
    far = (share[:, None] - share[None, :]) / jnp.where(near | (apart == 0), 1.0, apart)
    low, step = jnp.where(both, b, 1.0), jnp.where(near, apart, 0.0)
    nodes = zip(_NODES, _WEIGHTS, strict=True)
    slopes = sum(w * _slope(low + u * step, time) for u, w in nodes)
    return jnp.where(near, slopes, jnp.where(apart == 0, 0.0, far))


def _slope(x: Array, time: Array) -> Array:
    """The derivative of (1 − e^(−cx))/x: −(1 − (1 + y)e^(−y))/x², y = cx, by its series near 0."""
    finite, ends = _finite(time)
    y = finite * x
    small = (jnp.abs(y) < 1) & ~ends
    safe, near = jnp.where(small, 1.0, x), jnp.where(small, y, 0.0)
    term, total = jnp.ones_like(y), jnp.zeros_like(y)
    for k in range(_TERMS):
        total += term / (k + 2)
        term = -term * near / (k + 1)
    left = (1 + y) * _decay(x, time)
    return -jnp.where(small, finite**2 * total, (1 - left) / safe**2)
