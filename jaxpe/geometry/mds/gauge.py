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


def gauged_coordinates(
    apply: Product, dim: int, parameters: Any, vectors: Array, eigenvalues: Array
) -> tuple[Array, Array]:
    """U_d Λ_d^½ and Λ_d, differentiable in the parameters of B = apply(parameters, ·).

    The eigenpairs, `dim` or more of them, are inputs without a derivative (they come through
    `lax.stop_gradient`). Pairs beyond `dim` only speed up the derivative.
    """
    return _gauged_coordinates(apply, dim, parameters, vectors, eigenvalues)[:2]


def horizontal_operator(product: Callable[[Array], Array], X: Array, Z: Array) -> Array:
    """The linear operator (2 X Xᵀ − B) Z + Z Xᵀ X of coordinates X of B."""
    # X is defined up to rotations of its columns, which leave X Xᵀ, the kept part of B, unchanged.
    # Of the many dX with d(X Xᵀ) = dX Xᵀ + X dXᵀ, the horizontal one has a symmetric Xᵀ dX. It is
    # the Z with (2 X Xᵀ − B) Z + Z Xᵀ X = dB X: where B v = λ v and X_b = √λ_b v_b,
    #   kept rows a:    Z_ab = M_ab √λ_b / (λ_a + λ_b), M = Vᵀ dB V,
    #   dropped rows c: Z_cb = M_cb √λ_b / (λ_b − λ_c).
    # The equation has products of B and X alone. Any rotation of X solves it too, so that it may be
    # differentiated again, along X and Z, where eigenvectors have no derivative.
    return 2.0 * dot(X, dot(X.T, Z)) - product(Z) + dot(Z, dot(X.T, X))


def turning(M: Array, eigenvalues: Array, least: Array) -> Array:
    """M_ab / (λ_b − λ_a), the rotation of eigenvectors, and 0 within a cluster."""
    gaps = eigenvalues[None, :] - eigenvalues[:, None]
    return M * inverse_where(jnp.abs(gaps) > least, gaps)


def inverse_where(resolved: Array, x: Array) -> Array:
    """1/x where resolved, and 0 elsewhere."""
    return jnp.where(resolved, 1.0 / jnp.where(resolved, x, 1.0), 0.0)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _gauged_coordinates(
    apply: Product, dim: int, parameters: Any, vectors: Array, eigenvalues: Array
) -> tuple[Array, Array, Array]:
    """Coordinates and eigenvalues as above, and the eigenvectors; columns not kept are 0."""
    U, values = vectors[:, :dim], eigenvalues[:dim]
    largest = jnp.take_along_axis(U, jnp.argmax(jnp.abs(U), axis=0)[None, :], axis=0)
    positive = values > noise(eigenvalues, len(U))
    U = U * jnp.where(largest < 0, -1.0, 1.0)
    scale = jnp.sqrt(jnp.where(positive, values, 0.0))
    return U * scale[None, :], values, jnp.where(positive[None, :], U, 0.0)


# The derivative dX of the coordinates solves `horizontal_operator`(dX) = dB X. Outside V it is the
# solution of (λ_b − B) x_b = (1 − V Vᵀ) dB X_b. There λ_b − B is positive where λ_b is above all
# that is dropped: conjugate gradients. Where the cut splits a cluster there is no derivative; the
# terms that would divide by the gap are 0. The eigenvalues move by dλ_a = M_aa.
@_gauged_coordinates.defjvp
def _gauged_coordinates_jvp(apply, dim, primals, tangents):
    parameters, vectors, eigenvalues = primals
    X, values, V = _gauged_coordinates(apply, dim, *primals)
    least = noise(eigenvalues, len(vectors))
    positive = values > least

    def moved(Y: Array) -> Array:
        return jax.jvp(lambda p: apply(p, Y), (parameters,), (tangents[0],))[1]

    others = jnp.arange(len(eigenvalues)) >= dim
    solve = partial(
        _solve,
        lambda Y: apply(lax.stop_gradient(parameters), Y),
        V=lax.stop_gradient(V),
        shifts=lax.stop_gradient(jnp.where(positive, values, 1.0)),
        spare_vectors=jnp.where(others[None, :], vectors, 0.0),
        eigenvalues=eigenvalues,
        least=least,
    )
    operator = partial(horizontal_operator, partial(apply, parameters), X)
    dX = lax.custom_linear_solve(operator, moved(X), lambda _, R: solve(R), symmetric=True)
    dX = jnp.where(positive[None, :], dX, 0.0)
    M = dot(V.T, moved(V))
    M = 0.5 * (M + M.T)
    outside = (dX - dot(V, dot(V.T, dX))) / jnp.sqrt(jnp.where(positive, values, 1.0))[None, :]
    return (X, values, V), (dX, jnp.diagonal(M), dot(V, turning(M, values, least)) + outside)


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
    """Columns x with `horizontal_operator`(x) = right."""
    # Preconditioned by (λ_b − B)⁻¹ on the known eigenvectors beyond the cut, and by 1/λ_b
    # elsewhere. Unresolved eigenvectors are left out, with their part of the solution.

    def outside(Y: Array) -> Array:
        return Y - dot(V, dot(V.T, Y))

    def shifted(Y: Array) -> Array:
        return outside(shifts[None, :] * Y - apply(outside(Y)))

    plain = 1.0 / shifts[None, :]
    gaps = shifts[None, :] - eigenvalues[:, None]
    inverse = inverse_where(gaps > least, gaps)

    def precondition(Y: Array) -> Array:
        weights = dot(spare_vectors.T, Y) * (inverse - plain)
        return outside(plain * Y + dot(spare_vectors, weights))

    inside = dot(V, dot(V.T, right) / (shifts[:, None] + shifts[None, :]))
    return inside + _conjugate_gradients(shifted, outside(right), precondition, least=least)


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


def noise(eigenvalues: Array, n: int) -> Array:
    """Largest magnitude that counts as 0: max(32, √n) · eps · |λ_1|."""
    eps = float(jnp.finfo(eigenvalues.dtype).eps)
    return max(32.0, n**0.5) * eps * jnp.abs(eigenvalues[0])
