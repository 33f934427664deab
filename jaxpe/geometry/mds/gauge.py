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


def with_fixed_signs(V: Array) -> Array:
    """Columns whose entry largest in magnitude is positive."""
    largest = jnp.take_along_axis(V, jnp.argmax(jnp.abs(V), axis=0)[None, :], axis=0)
    return V * jnp.where(largest < 0, -1.0, 1.0).astype(V.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def gauged_coordinates(
    apply: Product, dim: int, parameters: Any, vectors: Array, eigenvalues: Array
) -> tuple[Array, Array, Array]:
    """U_d Λ_d^½, Λ_d and U_d, differentiable in the parameters of B = apply(parameters, ·).

    The eigenpairs, `dim` or more of them, are inputs without a derivative (they come through
    `lax.stop_gradient`). Pairs beyond `dim` only speed up the derivative. Eigenvectors of
    eigenvalues that count as 0 are 0.
    """
    U, values = with_fixed_signs(vectors[:, :dim]), eigenvalues[:dim]
    positive = values > noise(eigenvalues, len(U))
    scale = jnp.sqrt(jnp.where(positive, values, 0.0))
    return U * scale[None, :], values, jnp.where(positive[None, :], U, 0.0)


# The derivative dX of the coordinates solves `horizontal_operator`(dX) = dB X. Outside V it is the
# solution of (λ_b − B) x_b = (1 − V Vᵀ) dB X_b. There λ_b − B is positive where λ_b is above all
# that is dropped: conjugate gradients. Where the cut splits a cluster there is no derivative; the
# terms that would divide by the gap are 0. The eigenvalues move by dλ_a = M_aa.
@gauged_coordinates.defjvp
def _gauged_coordinates_jvp(apply, dim, primals, tangents):
    parameters, vectors, eigenvalues = primals
    X, values, V = gauged_coordinates(apply, dim, *primals)
    least = noise(eigenvalues, len(vectors))
    positive = values > least

    def moved(Y: Array) -> Array:
        return jax.jvp(lambda p: apply(p, Y), (parameters,), (tangents[0],))[1]

    fixed, spectrum, basis = lax.stop_gradient((parameters, eigenvalues, V))
    spare = jnp.where(jnp.arange(len(spectrum)) >= dim, lax.stop_gradient(vectors), 0.0)
    solve = partial(_solve, partial(apply, fixed), basis, spare, spectrum, least)
    operator = partial(horizontal_operator, partial(apply, parameters), X)
    dX = lax.custom_linear_solve(operator, moved(X), lambda _, R: solve(R), symmetric=True)
    dX = jnp.where(positive[None, :], dX, 0.0)
    M = dot(V.T, moved(V))
    M = 0.5 * (M + M.T)
    outside = (dX - dot(V, dot(V.T, dX))) / jnp.sqrt(jnp.where(positive, values, 1.0))[None, :]
    return (X, values, V), (dX, jnp.diagonal(M), dot(V, turning(M, values, least)) + outside)


def _solve(
    apply: Callable[[Array], Array],
    V: Array,
    spare: Array,
    eigenvalues: Array,
    least: Array,
    right: Array,
) -> Array:
    """Columns Z with `horizontal_operator`(Z) = right, given eigenvectors V and spare ones.

    `jax.scipy.sparse.linalg.cg`, preconditioned by (λ_b − B)⁻¹ on the spare eigenvectors and by
    1/λ_b elsewhere. Spare vectors at the cut are left out, with their part of the solution.
    """
    dim = V.shape[1]
    values = eigenvalues[:dim]
    # Columns that are not kept have no right side; any positive operator does.
    shifts = jnp.where(values > least, values, 2.0 * jnp.abs(eigenvalues[0]) + 1.0)[None, :]
    gaps = shifts - eigenvalues[:, None]
    inverse = inverse_where(gaps > least, gaps)

    def outside(Y: Array) -> Array:
        Y = Y - dot(V, dot(V.T, Y))
        return Y - dot(spare, jnp.where(gaps > least, 0.0, dot(spare.T, Y)))

    def shifted(Y: Array) -> Array:
        Y = outside(Y)
        return outside(shifts * Y - apply(Y))

    def precondition(Y: Array) -> Array:
        return outside(Y / shifts + dot(spare, dot(spare.T, Y) * (inverse - 1.0 / shifts)))

    inside = dot(V, dot(V.T, right) / (shifts[0][:, None] + shifts))
    tolerance = float(jnp.finfo(right.dtype).eps) ** 0.75
    # Of a right side inside V, rounding errors remain, which are no equation.
    atol = tolerance * jnp.linalg.norm(right)
    options = {"M": precondition, "tol": tolerance, "atol": atol, "maxiter": _MOST_STEPS}
    beyond, _ = jax.scipy.sparse.linalg.cg(shifted, outside(right), **options)
    return jnp.where(jnp.isnan(right), jnp.nan, inside + beyond)


def noise(eigenvalues: Array, n: int) -> Array:
    """Largest magnitude that counts as 0: max(32, √n) · eps · |λ_1|."""
    eps = float(jnp.finfo(eigenvalues.dtype).eps)
    return max(32.0, n**0.5) * eps * jnp.abs(eigenvalues[0])
