"""Largest singular values: of matrices, and of the derivative of a function without its matrix."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int, Real

from jaxpe._types import ArrayLike
from jaxpe.geometry.distances import safe_sqrt
from jaxpe.spectral.toeplitz import inexact

_SQUARINGS = 32  # two to the power of that many steps of the power method


class OperatorNorm(NamedTuple):
    """The largest singular value of a derivative, as far as the power method has come.

    Attributes:
        value: ‖J v‖ for the unit vector v found: never above the largest singular value, but for
            rounding.
        residual: ‖JᵀJ v − value² v‖ / value²: value² is that near an eigenvalue of JᵀJ. 0 where J v
            is 0.
        iterations: products with JᵀJ.
    """

    value: Float[Array, ""]
    residual: Float[Array, ""]
    iterations: Int[Array, ""]


# With G = AᵀA, σ₁² ≤ (tr G^p)^{1/p} ≤ min(m, n)^{1/p} σ₁². Squaring k times gives p = 2^k: as many
# steps of the power method from every start at once, with rounding that counts less at each. What
# G^p / tr G^p tends to is P, the mean of vvᵀ over the largest singular values, and ∂σ₁² = tr(P ∂G).
def spectral_norm(A: Real[ArrayLike, "... m n"]) -> Float[Array, "..."]:
    """The largest singular value of every matrix, by products alone (no LAPACK, also in batches).

    By the power method, squared: from above, and off by less than log(min(m, n))/2³² of it beside
    rounding. The gradient is u vᵀ; the mean of these over singular values that are equal to the
    largest, and 0 for a matrix of zeros.

    Args:
        A: one matrix or many, in float32 or wider (narrower ones are widened).

    >>> spectral_norm(jnp.array([[3.0, 0.0], [4.0, 0.0], [0.0, 1.0]])).round(6).item()
    5.0
    """
    A = inexact(A)
    if 0 in A.shape[-2:]:
        return jnp.zeros(A.shape[:-2], A.dtype)
    A = A if A.shape[-2] >= A.shape[-1] else jnp.swapaxes(A, -1, -2)
    size = lax.stop_gradient(jnp.max(jnp.abs(A), axis=(-2, -1)))
    size = jnp.where(size > 0, size, 1)
    A = A / size[..., None, None]
    G = jnp.einsum("...ki,...kj->...ij", A, A, precision="highest")
    above, P = _dominant(lax.stop_gradient(G))
    within = safe_sqrt(jnp.sum(P * G, axis=(-2, -1)))
    held = lax.stop_gradient(within)
    return size * within * jnp.where(held > 0, above / jnp.where(held > 0, held, 1), 1)


def _dominant(G: Array) -> tuple[Array, Array]:
    """√(tr G^p)^{1/p}, and G^p / tr G^p, for symmetric G ⪰ 0 and a large p."""

    def normed(S: Array) -> tuple[Array, Array]:
        trace = jnp.trace(S, axis1=-2, axis2=-1)
        trace = jnp.where(trace > 0, trace, 1)
        return S / trace[..., None, None], trace

    def square(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        S, log = carry
        S, trace = normed(jnp.einsum("...ik,...kj->...ij", S, S, precision="highest"))
        return S, log + jnp.log(trace) * jnp.exp2(-(k + 1).astype(log.dtype))

    S, trace = normed(G)
    S, log = lax.fori_loop(0, _SQUARINGS, square, (S, jnp.log(trace)))
    return jnp.exp(0.5 * log), S


def operator_norm(
    f: Callable[[Array], Array],
    x: Real[ArrayLike, "*shape"],
    *,
    key: Array,
    tolerance: float = 1e-4,
    max_iterations: int = 500,
) -> OperatorNorm:
    """The largest singular value of the derivative J of f at x, from products with J and Jᵀ.

    The power method on JᵀJ from a random start, until the residual is at most `tolerance`. Equal
    singular values are no harm; a start that is orthogonal to the largest one's vectors has
    probability 0. It is a lower bound of the Lipschitz constant of f in the Euclidean norm of all
    entries. Under `vmap` all run until the last is done.

    Args:
        f: of one array, to one array.
        x: where; float32 or float64.
        key: of the start.
        tolerance: of the residual, at least.
        max_iterations: at most; what is reached then is in the result.

    Raises:
        ValueError: for an x that is not float32 or wider, or a limit below 1.

    >>> A = jnp.array([[3.0, 0.0], [4.0, 0.0], [0.0, 1.0]])
    >>> found = operator_norm(lambda x: A @ x, jnp.ones(2), key=jax.random.key(0))
    >>> found.value.round(6).item(), bool(found.residual <= 1e-4)
    (5.0, True)
    """
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating) or x.dtype.itemsize < 4:
        raise ValueError(f"x is {x.dtype}: pass float32 or float64")
    if max_iterations < 1:
        raise ValueError(f"max_iterations is {max_iterations}: pass at least 1")
    _, push = jax.linearize(f, x)
    pull = jax.linear_transpose(push, x)

    def product(v: Array) -> tuple[Array, Array, Array]:
        """JᵀJ v, ‖J v‖² and the residual, of a unit vector."""
        u = push(v)
        (w,) = pull(u)
        square = jnp.sum(u.astype(x.dtype) ** 2)
        apart = jnp.linalg.norm((w - square * v).ravel())
        return w, square, jnp.where(square > 0, apart / jnp.where(square > 0, square, 1), 0)

    def unfinished(carry: tuple[Array, ...]) -> Array:
        *_, residual, count = carry
        return (count < max_iterations) & (residual > tolerance)

    def step(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        w, *_, count = carry
        size = jnp.linalg.norm(w.ravel())
        return (*product(w / jnp.where(size > 0, size, 1)), count + 1)

    start = jax.random.normal(key, x.shape, x.dtype)
    zero = jnp.zeros((), x.dtype)
    carry = step((start, zero, zero, jnp.int32(0)))
    _, square, residual, count = lax.while_loop(unfinished, step, carry)
    return OperatorNorm(jnp.sqrt(square), residual, count)


def largest_quotient(
    f: Callable[[Array], Array],
    x: Float[ArrayLike, "pairs *shape"],
    y: Float[ArrayLike, "pairs *shape"],
) -> Float[Array, ""]:
    """max ‖f(x) − f(y)‖/‖x − y‖ over pairs: another lower bound of the Lipschitz constant of f.

    Pairs of equal arguments count as 0.

    >>> largest_quotient(jnp.abs, jnp.array([[1.0], [-1.0]]), jnp.array([[3.0], [2.0]])).item()
    1.0
    """
    x, y = jnp.asarray(x), jnp.asarray(y)

    def quotient(x: Array, y: Array) -> Array:
        over, under = (jnp.linalg.norm(d.ravel()) for d in (f(x) - f(y), x - y))
        return jnp.where(under > 0, over / jnp.where(under > 0, under, 1), 0)

    return jnp.max(jax.vmap(quotient)(x, y), initial=0.0)
