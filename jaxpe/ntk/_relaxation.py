"""The matrix function (1 − e^(−cλ))/λ, with a derivative where eigenvalues repeat.

The displacement of a linear flow Ṗ = −αP + b after time c is this function of α, times the initial
velocity. A matrix function has a derivative wherever the scalar function has one; eigenvectors do
not.
"""

import jax
import jax.numpy as jnp
from jax import Array

from jaxpe._core.arrays import dot

_TERMS = 14  # of a series in powers of 1/2: those left out add less than 1e-13


# By eigenvectors, not by `jax.scipy.linalg.expm` of an augmented matrix: expm is NaN beyond 16
# squarings, ‖cα‖ = 3.5e5 in float64, has no c = inf, and takes a new expm for each time. One eigh
# serves all times, the fixed point and the rank. `diffrax` takes the more steps the stiffer α is.
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
    moved = jnp.where(nonzero, _factor(eigenvalues, time), 0.0)[:, None]
    return dot(eigenvectors, moved * dot(eigenvectors.T, velocity))


# Daleckii and Krein: in the basis of eigenvectors the derivative along E is E times the divided
# differences [a, b]g, entry by entry.
@relaxed.defjvp
def _relaxed_jvp(at, along):
    matrix, _, _, velocity, time, nonzero = at
    eigenvalues, V = jnp.linalg.eigh(matrix)
    d_matrix, _, _, d_velocity, d_time, _ = along
    turned = dot(V.T, dot(0.5 * (d_matrix + d_matrix.T), V))
    both = nonzero[:, None] & nonzero[None, :]
    differences = jnp.where(both, _differences(eigenvalues, time), 0.0)
    factor, decay = (jnp.where(nonzero, f(eigenvalues, time), 0.0) for f in (_factor, _decay))
    rates = dot(V.T, velocity)
    change = dot(differences * turned, rates) + factor[:, None] * dot(V.T, d_velocity)
    return relaxed(*at), dot(V, change + (decay * d_time)[:, None] * rates)


def _factor(x: Array, time: Array) -> Array:
    """g(x) = (1 − e^(−cx))/x, which is c at x = 0."""
    zero = x == 0
    safe = jnp.where(zero, 1.0, x)
    finite, ends = _finite(time)
    gone = jnp.where(ends, 1.0, -jnp.expm1(-finite * safe))
    return jnp.where(zero, time, gone / safe)


def _decay(x: Array, time: Array) -> Array:
    """e^(−cx), and 0 at c = inf."""
    finite, ends = _finite(time)
    return jnp.where(ends, 0.0, jnp.exp(-finite * x))


def _finite(time: Array) -> tuple[Array, Array]:
    """The time, or 1 for inf, and whether it was inf: inf · 0 would make derivatives NaN."""
    ends = jnp.isinf(time)
    return jnp.where(ends, 1.0, time), ends


# From a g(a) − b g(b) = e^(−cb) − e^(−ca) follows [a, b]g = (h − g(b))/a, with h = e^(−cb) g(a − b)
# symmetric in a and b: no difference of eigenvalues is divided by. Where ca is small, h − g(b)
# cancels, and the series of g is exact.
def _differences(x: Array, time: Array) -> Array:
    """Divided differences (g(x_i) − g(x_j))/(x_i − x_j), derivatives where equal, `[m, m]`."""
    x, y = x[:, None], x[None, :]
    swap = jnp.abs(x) < jnp.abs(y)
    larger, other = jnp.where(swap, y, x), jnp.where(swap, x, y)
    finite, ends = _finite(time)
    h = _decay(jnp.minimum(x, y), time) * _factor(jnp.abs(x - y), finite)
    near = (jnp.abs(finite * larger) < 0.5) & ~ends
    far = (h - _factor(other, time)) / jnp.where(near | (larger == 0), 1.0, larger)
    a, b = (jnp.where(near, finite * side, 0.0) for side in (larger, other))
    term, power, total = jnp.ones_like(a), jnp.ones_like(a), jnp.zeros_like(a)
    for k in range(2, _TERMS):  # Σ_k (−1)^(k−1) (a^(k−2) + a^(k−3) b + ... + b^(k−2))/k!
        term = -term / k
        total += term * power
        power = power * a + b ** (k - 1)
    return jnp.where(near, finite**2 * total, far)
