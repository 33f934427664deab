"""Largest singular values: of matrices, and of derivatives, by Lanczos' method."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int, Real

from jaxpe._core.arrays import ArrayLike, Scalar
from jaxpe.geometry.checks import check_size
from jaxpe.geometry.distances.matrices import safe_sqrt
from jaxpe.geometry.mds.krylov import krylov_basis, residual_norms, ritz
from jaxpe.spectral.toeplitz import inexact

_SQUARINGS = 32  # each squaring doubles the steps of the power method
_STEPS = 20  # products before a restart, and before a small residual is trusted


class OperatorNorm(NamedTuple):
    """The largest singular value of a derivative, from Lanczos' method.

    Attributes:
        value: ‖J v‖ for the final unit vector v: up to rounding, never above the largest singular
            value.
        residual: ‖JᵀJ v − value² v‖ / value², which bounds the relative distance of value² to an
            eigenvalue of JᵀJ, perhaps not the largest. 0 where J v is 0; NaN where J v or JᵀJ v is
            not finite.
        iterations: products with JᵀJ.
    """

    value: Float[Array, ""]
    residual: Float[Array, ""]
    iterations: Int[Array, ""]


@jax.jit
def spectral_norm(A: Real[ArrayLike, "... m n"]) -> Float[Array, "..."]:
    """Spectral norm: the largest singular value of every matrix, by products alone, without LAPACK.

    Repeated squaring of the power method gives an upper bound within log(min(m, n))/2³² of the
    value, relatively, besides rounding. Matrices are scaled by powers of two, so squares neither
    overflow nor vanish. The gradient is u vᵀ, or a mean of these over singular values equal to the
    largest. Rounding may make their weights unequal, which still gives a subgradient. It is 0 for a
    matrix of zeros. Second derivatives are right where the largest singular value is simple. The
    norm is inf if an entry is infinite and NaN if one is NaN; derivatives are NaN in both cases.

    >>> spectral_norm(jnp.array([[3.0, 0.0], [4.0, 0.0], [0.0, 1.0]])).round(6).item()
    5.0
    """
    A = inexact(A)
    if 0 in A.shape[-2:]:
        return jnp.zeros(A.shape[:-2], A.dtype)
    return _largest(A if A.shape[-2] >= A.shape[-1] else jnp.swapaxes(A, -1, -2))


# A custom derivative: differentiating the scale would overflow, and differentiating 2³²
# multiplications of the trace would not give u vᵀ.
@jax.custom_jvp
def _largest(A: Array) -> Array:
    return _largest_and_gradient(A)[0]


@_largest.defjvp
def _largest_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    value, gradient = _largest_and_gradient(*primals)
    return value, jnp.sum(gradient * tangents[0], axis=(-2, -1))


# With G = AᵀA, σ₁² ≤ (tr G^p)^{1/p} ≤ min(m, n)^{1/p} σ₁². Squaring k times gives p = 2^k: as many
# steps of the power method from every start at once, with rounding that counts less at each. What
# G^p / tr G^p tends to is P, the mean of vvᵀ over the largest singular values, and ∂σ₁² = tr(P ∂G).
def _largest_and_gradient(A: Array) -> tuple[Array, Array]:
    """σ₁ and A P / √tr(P AᵀA), for matrices with at least as many rows as columns."""
    near, powers = _scaled_to_one(A, axes=(-2, -1))
    G = jnp.einsum("...ki,...kj->...ij", near, near, precision="highest")
    above, P = _dominant(G)
    within = safe_sqrt(jnp.sum(P * G, axis=(-2, -1)))
    gradient = jnp.einsum("...ki,...ij->...kj", near, P, precision="highest")
    gradient = gradient / jnp.where(within == 0, 1, within)[..., None, None]
    value = jnp.where(within == 0, 0, above) * powers[0] * powers[1]
    infinite = jnp.any(jnp.isinf(A), axis=(-2, -1)) & ~jnp.any(jnp.isnan(A), axis=(-2, -1))
    return jnp.where(infinite, jnp.inf, value), gradient


def _dominant(G: Array) -> tuple[Array, Array]:
    """√(tr G^p)^{1/p}, and G^p / tr G^p, for symmetric G ⪰ 0 and a large p."""

    def normed(S: Array) -> tuple[Array, Array]:
        trace = jnp.trace(S, axis1=-2, axis2=-1)
        trace = jnp.where(trace == 0, 1, trace)
        return S / trace[..., None, None], trace

    def square(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        S, log = carry
        S, trace = normed(jnp.einsum("...ik,...kj->...ij", S, S, precision="highest"))
        return S, log + jnp.log(trace) * jnp.exp2(-(k + 1).astype(log.dtype))

    S, trace = normed(G)
    S, log = lax.fori_loop(0, _SQUARINGS, square, (S, jnp.log(trace)))
    return jnp.exp(0.5 * log), S


# 2^e of the largest float is the largest power of two, but 2^(−e) is below what counts as normal,
# and processors flush that to 0: hence two factors. (Compilers turn A / size into A · (1 / size).)
def _scaled_to_one(A: Array, *, axes: tuple[int, ...]) -> tuple[Array, tuple[Array, Array]]:
    """A over a power of two, with its largest entry in [1, 2), and two factors of the power."""
    largest = lax.stop_gradient(jnp.max(jnp.abs(A), axis=axes, keepdims=True, initial=0))
    exponent = jnp.frexp(largest)[1] - 1
    half = exponent // 2
    one = jnp.ones_like(largest)
    up, down = ([jnp.ldexp(one, sign * e) for e in (half, exponent - half)] for sign in (1, -1))
    first, second = (jnp.squeeze(power, axes) for power in up)
    return A * down[0] * down[1], (first, second)


@partial(jax.jit, static_argnames=("f", "max_iterations"))
def operator_norm(
    f: Callable[[Array], Array],
    x: Real[ArrayLike, "*shape"],
    *,
    key: Array,
    tolerance: Scalar = 1e-4,
    max_iterations: int = 500,
) -> OperatorNorm:
    """Operator norm: the largest singular value of the derivative J of f at x, without a matrix.

    It runs Lanczos' method on JᵀJ from a random start, 20 products at a time, until the residual is
    at most `tolerance`. The value is a lower bound of the largest singular value, and so of the
    Lipschitz constant of f in the Euclidean norm of all entries. Equal singular values do no harm.
    The residual is small near any singular value: several keys, or a smaller tolerance, show
    whether it is the largest. Under `vmap` all run until the last is done.

    Args:
        f: function from one array to one array; compiled once for the same function.
        x: point to differentiate at; float32 or float64.
        key: PRNG key of the start.
        tolerance: tolerance of the residual.
        max_iterations: largest number of products with JᵀJ.

    Raises:
        ValueError: an x that is not float32 or wider, or a limit below 1.

    >>> A = jnp.array([[3.0, 0.0], [4.0, 0.0], [0.0, 1.0]])
    >>> norm = operator_norm(lambda x: A @ x, jnp.ones(2), key=jax.random.key(0))
    >>> norm.value.round(6).item(), bool(norm.residual <= 1e-4)
    (5.0, True)
    """
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating) or x.dtype.itemsize < 4:
        raise ValueError(f"x is {x.dtype}: pass float32 or float64")
    check_size("max_iterations", max_iterations)
    _, push = jax.linearize(f, x)
    pull = jax.linear_transpose(push, x)
    start, restarts = jax.random.split(key)
    start = jax.random.normal(start, x.shape, x.dtype)
    # J over a power of two near its size, or squares would overflow or vanish.
    pushed = push(start / jnp.linalg.norm(start.ravel()))
    _, (half, rest) = _scaled_to_one(pushed, axes=tuple(range(pushed.ndim)))

    def apply(v: Array) -> Array:
        u = push(v.reshape(x.shape)) / half / rest
        return (pull(u)[0] / half / rest).reshape(-1, 1)

    steps = min(_STEPS, max_iterations, x.size)

    def unfinished(carry: tuple[Array, ...]) -> Array:
        *_, residual, count = carry
        return (count + steps <= max_iterations) & ((count == 0) | (residual > tolerance))

    def restart(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        v, _, _, count = carry
        round_key = jax.random.fold_in(restarts, count)
        u, w, value = ritz(*krylov_basis(apply, v, round_key, steps), 1)
        return u, value[0], residual_norms(u, w, value)[0], count + steps

    zero = jnp.zeros((), x.dtype)
    begin = (start.reshape(-1, 1), zero, zero, jnp.int32(0))
    _, value, residual, count = lax.while_loop(unfinished, restart, begin)
    size = jnp.sqrt(jnp.maximum(value, 0))
    return OperatorNorm(size * half * rest, residual, count)
