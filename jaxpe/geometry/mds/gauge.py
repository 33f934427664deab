"""Coordinates from eigenpairs of an operator, differentiable by operator products alone."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpe._core.arrays import dot

# A family of symmetric operators: (parameters, columns [n, b]) to B(parameters) times columns.
Product = Callable[[Any, Array], Array]

_MOST_STEPS = 500


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def gauged_coordinates(
    apply: Product, dim: int, parameters: Any, vectors: Array, eigenvalues: Array
) -> tuple[Array, Array]:
    """U_d Λ_d^½ and Λ_d, differentiable in the parameters of B = apply(parameters, ·).

    The eigenpairs, `dim` or more of them, are inputs without a derivative (they come through
    `lax.stop_gradient`). Pairs beyond `dim` only speed up the derivative.
    """
    U, values = vectors[:, :dim], eigenvalues[:dim]
    largest = jnp.take_along_axis(U, jnp.argmax(jnp.abs(U), axis=0)[None, :], axis=0)
    scale = jnp.sqrt(jnp.where(values > noise(eigenvalues, len(U)), values, 0.0))
    return U * jnp.where(largest < 0, -1.0, 1.0) * scale[None, :], values


# Derivative in the symmetric gauge, as in `principal_coordinates`, where V has all eigenvectors.
# Here it has the kept ones, M = Vᵀ dB V, s = √λ:
#   within V:    C_ab = M_ab / (s_a + s_b).
#   outside V:   column b is x_b = Σ_c v_c M_cb s_b / (λ_b − λ_c) over all dropped c, that is the
#                solution outside V of (λ_b − B) x_b = (1 − V Vᵀ) dB v_b s_b. There λ_b − B is
#                positive where λ_b is above all that is dropped: conjugate gradients.
# The eigenvalues move by dλ_a = M_aa. Where the cut splits a cluster there is no derivative; the
# terms that would divide by the gap are 0.
@gauged_coordinates.defjvp
def _gauged_coordinates_jvp(apply, dim, primals, tangents):
    parameters, vectors, eigenvalues = primals
    coordinates, values = gauged_coordinates(apply, dim, *primals)
    parameters = jax.tree.map(_first_derivative_only, parameters)
    least = noise(eigenvalues, len(vectors))
    positive = values > least
    s = jnp.sqrt(jnp.where(positive, values, 0.0))
    V = coordinates / jnp.where(positive, s, 1.0)[None, :]  # columns that are not kept are 0
    _, moved = jax.jvp(lambda p: apply(p, V), (parameters,), (tangents[0],))
    M = dot(V.T, moved)
    M = 0.5 * (M + M.T)
    sums = s[:, None] + s[None, :]
    inside = dot(V, M / jnp.where(sums > 0, sums, 1.0))
    others = jnp.arange(len(eigenvalues)) >= dim
    outside = _solve(
        lambda Y: apply(parameters, Y),
        (moved - dot(V, M)) * s[None, :],
        V=V,
        shifts=jnp.where(positive, values, 1.0),
        spare_vectors=jnp.where(others[None, :], vectors, 0.0),
        eigenvalues=eigenvalues,
        least=least,
    )
    return (coordinates, values), (
        jnp.where(positive[None, :], inside + outside, 0.0),
        jnp.diagonal(M),
    )


def _solve(
    apply: Callable[[Array], Array],
    right: Array,
    *,
    V: Array,
    shifts: Array,
    spare_vectors: Array,
    eigenvalues: Array,
    least: Array,
) -> Array:
    """Columns x_b outside V with (λ_b − B) x_b = right_b."""
    # Preconditioned by (λ_b − B)⁻¹ on the known eigenvectors beyond the cut, and by 1/λ_b
    # elsewhere. Unresolved eigenvectors are left out, with their part of the solution.

    def outside(Y: Array) -> Array:
        return Y - dot(V, dot(V.T, Y))

    def shifted(Y: Array) -> Array:
        return outside(shifts[None, :] * Y - apply(outside(Y)))

    plain = 1.0 / shifts[None, :]
    gaps = shifts[None, :] - eigenvalues[:, None]
    resolved = gaps > least
    inverse = jnp.where(resolved, 1.0 / jnp.where(resolved, gaps, 1.0), 0.0)

    def precondition(Y: Array) -> Array:
        weights = dot(spare_vectors.T, Y) * (inverse - plain)
        return outside(plain * Y + dot(spare_vectors, weights))

    def solve(_: Any, b: Array) -> Array:
        return _conjugate_gradients(shifted, outside(b), precondition, least=least)

    return lax.custom_linear_solve(shifted, right, solve, symmetric=True)


def _conjugate_gradients(
    apply: Callable[[Array], Array],
    b: Array,
    precondition: Callable[[Array], Array],
    *,
    least: Array,
) -> Array:
    """Columns x with A x = b, each by its own steps; one stops where A is no longer positive."""
    z = precondition(b)
    start = jnp.sum(b * z, axis=0)
    small = start * float(jnp.finfo(b.dtype).eps) ** 1.5  # of squares: three quarters of the digits
    go_on = start > 0

    def step(state: tuple) -> tuple:
        x, r, p, rho, go_on, count = state
        Ap = apply(p)
        curvature = jnp.sum(p * Ap, axis=0)
        go_on = go_on & (curvature > least * jnp.sum(p * p, axis=0))
        alpha = jnp.where(go_on, rho / jnp.where(go_on, curvature, 1.0), 0.0)
        x, r = x + alpha[None, :] * p, r - alpha[None, :] * Ap
        z = precondition(r)
        following = jnp.sum(r * z, axis=0)
        beta = jnp.where(go_on, following / jnp.where(go_on, rho, 1.0), 0.0)
        p = jnp.where(go_on[None, :], z + beta[None, :] * p, 0.0)
        return x, r, p, following, go_on & (following > small), count + 1

    def unfinished(state: tuple) -> Array:
        return jnp.any(state[-2]) & (state[-1] < _MOST_STEPS)

    state = (jnp.zeros_like(b), b, z, start, go_on, jnp.zeros((), jnp.int32))
    x = lax.while_loop(unfinished, step, state)[0]
    return jnp.where(jnp.isnan(start)[None, :], jnp.nan, x)


@jax.custom_jvp
def _first_derivative_only(x: Array) -> Array:
    return x


@_first_derivative_only.defjvp
def _no_second_derivative(primals, tangents):
    raise NotImplementedError(
        "second derivatives of classical scaling from points are not defined: take them of "
        "classical_mds_from_gram"
    )


def noise(eigenvalues: Array, n: int) -> Array:
    """Largest magnitude that counts as 0: max(32, √n) · eps · |λ_1|."""
    eps = float(jnp.finfo(eigenvalues.dtype).eps)
    return max(32.0, n**0.5) * eps * jnp.abs(eigenvalues[0])
