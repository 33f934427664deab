"""The kernel as an operator: products with vectors, and its largest eigenvalues by Lanczos."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from jaxpe.geometry.mds.krylov import krylov_basis, ritz
from jaxpe.ntk._checks import (
    Apply,
    Inputs,
    Params,
    batch_size,
    check_floating,
    output_of,
)


class Lanczos(NamedTuple):
    """Largest eigenvalues of a symmetric operator, with their residuals ‖A v − λ v‖.

    A has an eigenvalue within the residual of each, because v is a unit vector.

    Attributes:
        eigenvalues: float `[num]`, descending.
        residuals: float `[num]`, ‖A v − λ v‖.
    """

    eigenvalues: Float[Array, " num"]
    residuals: Float[Array, " num"]


def ntk_vector_product(
    f: Apply, x1: Inputs, x2: Inputs | None, params: Params
) -> Callable[[Array], Array]:
    """Kernel-vector products Θ v, Θ = J(x₁) J(x₂)ᵀ, without the kernel or a Jacobian in memory.

    Each product takes one `vjp` at x2 and one `jvp` at x1. The kernel is `empirical_ntk` with
    trace_axes=(). Examples may depend on each other in f.

    Args:
        f, x1, x2, params: arguments of `empirical_ntk`.

    Returns:
        `matvec`, from v `[n2, *outputs]` to Θ v `[n1, *outputs]`.

    Raises:
        ValueError: as `empirical_ntk`; from `matvec`, a v of another shape.

    >>> matvec = ntk_vector_product(lambda w, x: x @ w, jnp.eye(2), None, jnp.ones(2))
    >>> matvec(jnp.asarray([3.0, 4.0])).tolist()
    [3.0, 4.0]
    """
    check_floating(params)
    if x2 is None:
        x2 = x1
    batch_size(x1, "x1")
    output_of(f, params, x1)
    out = output_of(f, params, x2)
    push, pull = _push_and_pull(params, x1, x2, f=f)

    def matvec(v: Array) -> Array:
        if jnp.shape(v) != out.shape:
            raise ValueError(f"v has shape {jnp.shape(v)}, but outputs at x2 have {out.shape}")
        return _kernel_product(push, pull, jnp.asarray(v, out.dtype))

    return matvec


@partial(jax.jit, static_argnames="f")
def _push_and_pull(params: Params, x1: Inputs, x2: Inputs, *, f: Apply) -> tuple[Any, Any]:
    """The derivative of f at x1, and the transposed derivative at x2, as pytrees."""
    _, pull = jax.vjp(lambda params: f(params, x2), params)
    _, push = jax.linearize(lambda params: f(params, x1), params)
    return push, pull


@jax.jit
def _kernel_product(push: Any, pull: Any, v: Array) -> Array:
    return push(*pull(v))


def lanczos_eigenvalues(
    matvec: Callable[[Array], Array],
    example: Any,
    *,
    num: int,
    key: Array,
    steps: int | None = None,
) -> Lanczos:
    """Lanczos' method for the largest eigenvalues of a symmetric operator.

    Golub & Van Loan (2013), Section 10.3. It starts from a random vector and orthogonalises every
    vector against all earlier ones; where these span an invariant subspace, a new random vector
    continues. With as many steps as the operator has rows all eigenvalues are exact. The
    derivative of an eigenvalue is vᵀ dA v, exact where the residual is 0; residuals have no
    derivative.

    Args:
        matvec: v to A v, of the shape of `example`, for a symmetric A; compiled once for the same
            function.
        example: an array or `jax.ShapeDtypeStruct` with the shape of v and float32 or float64.
        num: number of eigenvalues.
        key: PRNG key of the random start.
        steps: products with A; min(size, 2·num + 20) when None. All vectors and products stay in
            memory.

    Raises:
        ValueError: num or steps out of range, or an example that is not float32 or wider.

    >>> A = jnp.diag(jnp.asarray([1.0, 5.0, 3.0]))
    >>> top = lanczos_eigenvalues(lambda v: A @ v, A[0], num=2, key=jax.random.key(0))
    >>> top.eigenvalues.round(4).tolist()
    [5.0, 3.0]
    """
    shape, dtype = tuple(example.shape), jnp.dtype(example.dtype)
    size = jax.ShapeDtypeStruct(shape, dtype).size
    steps = min(size, 2 * num + 20) if steps is None else steps
    if not jnp.issubdtype(dtype, jnp.floating) or dtype.itemsize < 4:
        raise ValueError(f"example is {dtype}: pass one of float32 or float64")
    if not 1 <= num <= steps <= size:
        raise ValueError(
            f"num={num} and steps={steps} must satisfy 1 ≤ num ≤ steps ≤ {size}, the size of the "
            "operator"
        )
    return _largest(key, matvec=matvec, shape=shape, dtype=dtype, num=num, steps=steps)


@partial(jax.jit, static_argnames=("matvec", "shape", "dtype", "num", "steps"))
def _largest(
    key: Array,
    *,
    matvec: Callable[[Array], Array],
    shape: tuple[int, ...],
    dtype: Any,
    num: int,
    steps: int,
) -> Lanczos:
    """Ritz values uᵀ A u with their residuals; of them only A has a derivative."""

    def apply(v: Array) -> Array:
        return matvec(v.reshape(shape)).reshape(-1, 1)

    start, expanding = jax.random.split(key)
    size = jax.ShapeDtypeStruct(shape, dtype).size
    start = jax.random.normal(start, (size, 1), dtype)
    U, AU, values = ritz(*krylov_basis(apply, start, expanding, steps), num)
    residuals = jnp.linalg.norm(lax.stop_gradient(AU) - U * values[None, :], axis=0)
    return Lanczos(jnp.sum(U * AU, axis=0), residuals)
