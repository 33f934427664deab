"""Block Krylov method for the leading eigenpairs of a symmetric operator."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Int

from jaxpe._core.arrays import dot
from jaxpe.geometry.checks import check_size

# Columns of a block: few, so that each product adds many Krylov dimensions, but enough for fast
# matrix products. On two cores 16 columns ran at four fifths of the speed of 64.
_BLOCK = 16


class Eigenpairs(NamedTuple):
    """Leading eigenpairs of a symmetric operator, with their residuals.

    Attributes:
        vectors: float `[n, dim]`, orthonormal; columns of 0 where dim is more than n.
        eigenvalues: float `[dim]`, the largest, descending.
        residuals: float `[dim]`, ‖B v − λ v‖ / |λ_1|, from a final product with B. B has an
            eigenvalue that close to λ, in units of |λ_1|.
        products: int, columns that B was applied to.
        converged: whether all residuals are within the tolerance, and a round from new random
            directions changed no eigenvalue by more. False for NaN.
    """

    vectors: Float[Array, "n dim"]
    eigenvalues: Float[Array, " dim"]
    residuals: Float[Array, " dim"]
    products: Int[Array, ""]
    converged: Bool[Array, ""]


def principal_eigenpairs(
    apply: Callable[[Float[Array, "n b"]], Float[Array, "n b"]],
    n: int,
    *,
    dim: int,
    tolerance: float = 1e-5,
    max_products: int | None = None,
    oversample: int | None = None,
    key: Array | None = None,
    dtype: DTypeLike | None = None,
) -> Eigenpairs:
    """The `dim` largest eigenvalues of a symmetric operator, with their eigenvectors.

    A block Krylov method with full orthogonalisation and thick restarts (Wu and Simon 2000; Stewart
    2001), started from Gaussian vectors. Eigenvalues may repeat and B may be of low rank. Memory
    is about 2·n·(2.5·dim + 130) numbers. Derivatives are not defined; `classical_mds_from_points`
    has them.

    Args:
        apply: the operator, on the columns of `[n, b]` for any b. The result is as precise as its
            arithmetic: use `precision="highest"` in matrix products. Compiled once for the same
            function.
        n: rows.
        dim: eigenpairs wanted, at least 1.
        tolerance: tolerance of the residuals, relative to |λ_1|; not below 16 eps of the dtype.
        max_products: columns after which it stops; 100·(dim + 16) by default.
        oversample: pairs that are kept beyond `dim` in a restart; dim/4, or 8, by default.
        key: PRNG key of the random directions; `jax.random.key(0)` by default.
        dtype: dtype of the vectors; JAX's default float by default.

    >>> pairs = principal_eigenpairs(lambda Y: np.arange(9.0)[:, None] * Y, 9, dim=2)
    >>> pairs.eigenvalues.round(6).tolist(), pairs.converged.item()
    ([8.0, 7.0], True)
    """
    check_size("n", n)
    check_dim(dim, 5 * n, oversample)
    dtype = jnp.dtype(dtype or jnp.result_type(float))
    if not jnp.issubdtype(dtype, jnp.floating) or dtype.itemsize < 4:
        raise ValueError(f"dtype is {dtype}: pass float32 or float64")
    options = {"tolerance": tolerance, "max_products": max_products, "oversample": oversample}
    wide = _krylov_eigenpairs(key, apply=apply, n=n, dim=dim, dtype=dtype, **options)
    return wide._replace(vectors=wide.vectors[:, :dim], eigenvalues=wide.eigenvalues[:dim])


@partial(
    jax.jit,
    static_argnames=("apply", "n", "dim", "tolerance", "max_products", "oversample", "dtype"),
)
def _krylov_eigenpairs(
    key: Array | None, *, apply: Callable[[Array], Array], n: int, dtype: DTypeLike, **options: Any
) -> Eigenpairs:
    def draw(key: Array, columns: int) -> Array:
        return jax.random.normal(key, (n, columns), dtype)

    return leading_pairs(apply, draw, key=key, **options)


class _Search(NamedTuple):
    """State of an iteration: basis V, W = B V, the next block, the last restart's result."""

    V: Array
    W: Array
    following: Array
    filled: Array  # blocks of V in use
    eigenvalues: Array
    residuals: Array
    settled: Array
    products: Array
    key: Array


def leading_pairs(
    apply: Callable[[Array], Array],
    draw: Callable[[Array, int], Array],
    *,
    dim: int,
    tolerance: float,
    max_products: int | None,
    oversample: int | None,
    key: Array | None,
) -> Eigenpairs:
    """`principal_eigenpairs` including the pairs beyond `dim`, from vectors that `draw` draws."""
    block = _BLOCK if dim >= 2 * _BLOCK else _BLOCK // 2
    extra = max(block, dim // 4) if oversample is None else oversample
    retained = -(-(dim + extra) // block)
    blocks = 2 * retained + 6
    most = 100 * (dim + _BLOCK) if max_products is None else max_products
    key, first = jax.random.split(jax.random.key(0) if key is None else key)
    start = draw(first, block)
    tolerance = max(tolerance, 16.0 * float(jnp.finfo(start.dtype).eps))

    def unfinished(search: _Search) -> Array:
        hopeless = jnp.any(jnp.isnan(search.residuals)) | (search.products >= most)
        return ~search.settled & ~hopeless

    def cycle(search: _Search) -> _Search:
        return _restart(_expand(search, apply, draw), draw, retained=retained, tolerance=tolerance)

    empty = jnp.zeros((start.shape[0], blocks * block), start.dtype)
    search = _Search(
        V=empty,
        W=empty,
        following=orthonormal(start, empty),
        filled=jnp.zeros((), jnp.int32),
        eigenvalues=jnp.zeros(retained * block, start.dtype),
        residuals=jnp.full(dim, jnp.inf, start.dtype),
        settled=jnp.zeros((), bool),
        products=jnp.zeros((), jnp.int32),
        key=key,
    )
    search = lax.while_loop(unfinished, cycle, search)
    return _checked_pairs(search, apply, width=retained * block, tolerance=tolerance)


def _expand(
    search: _Search, apply: Callable[[Array], Array], draw: Callable[[Array, int], Array]
) -> _Search:
    """Fill the basis: each block is B times the previous one, orthogonalised against all."""
    block = search.following.shape[1]
    blocks = search.V.shape[1] // block

    def step(number: Array, search: _Search) -> _Search:
        applied = apply(search.following)
        at = (jnp.zeros_like(number), number * block)
        V = lax.dynamic_update_slice(search.V, search.following, at)
        key, fresh = jax.random.split(search.key)
        return search._replace(
            V=V,
            W=lax.dynamic_update_slice(search.W, applied, at),
            following=orthonormal(applied, V, draw(fresh, block)),
            products=search.products + block,
            key=key,
        )

    return lax.fori_loop(search.filled, blocks, step, search)


# In exact arithmetic all residuals lie in the next block of the Krylov space. Rounding takes them
# out of it a little more with every restart, until nothing improves any more (in float32 at 1e-5
# of λ_1, seen on a flat spectrum). So the next block is taken from the residuals themselves. What
# has converged may still hide copies of a repeated eigenvalue, of which a start sees one for each
# of its columns: a last round starts from fresh random directions, and must change nothing.
def _restart(
    search: _Search, draw: Callable[[Array, int], Array], *, retained: int, tolerance: float
) -> _Search:
    """Thick restart: Rayleigh–Ritz in the basis, which keeps the leading Ritz vectors."""
    block, dim = search.following.shape[1], search.residuals.shape[0]
    width = retained * block
    V, W, eigenvalues = ritz(search.V, search.W, width)
    scale = _scale(eigenvalues)
    R = (W - V * eigenvalues[None, :]) / scale
    residuals = jnp.linalg.norm(R[:, :dim], axis=0)
    change = jnp.max(jnp.abs(eigenvalues - search.eigenvalues)[:dim]) / scale
    settled = jnp.all(search.residuals <= tolerance) & (change <= tolerance)
    leading = R[:, :dim] if dim >= block else R
    _, turn = jnp.linalg.eigh(dot(leading.T, leading))
    dominant = dot(leading, turn[:, ::-1][:, :block])
    key, fresh = jax.random.split(search.key)
    spare = draw(fresh, block)
    following = jnp.where(jnp.all(residuals <= tolerance), spare, dominant)
    restarted = search._replace(
        V=jnp.zeros_like(search.V).at[:, :width].set(V),
        W=jnp.zeros_like(search.W).at[:, :width].set(W),
        following=orthonormal(following, V, spare),
        filled=jnp.asarray(retained, jnp.int32),
        eigenvalues=eigenvalues,
        residuals=residuals,
        key=key,
    )
    # If more eigenvalues are equal than are kept, the last round may have mixed in new, less
    # accurate vectors: the earlier ones stay.
    restarted = jax.tree.map(lambda new, old: jnp.where(settled, old, new), restarted, search)
    return restarted._replace(settled=settled)


def _checked_pairs(
    search: _Search, apply: Callable[[Array], Array], *, width: int, tolerance: float
) -> Eigenpairs:
    """The eigenpairs, with residuals from a product with B."""
    dim = search.residuals.shape[0]
    V, eigenvalues = search.V[:, :width], search.eigenvalues
    residuals = true_residuals(V[:, :dim], apply(V[:, :dim]), eigenvalues[:dim])
    converged = search.settled & jnp.all(residuals <= tolerance)
    return Eigenpairs(V, eigenvalues, residuals, search.products + dim, converged)


def true_residuals(V: Array, W: Array, eigenvalues: Array) -> Array:
    """‖B v − λ v‖ / |λ_1| of every column, from W = B V."""
    return jnp.linalg.norm((W - V * eigenvalues[None, :]) / _scale(eigenvalues), axis=0)


def ritz(V: Array, W: Array, width: int) -> tuple[Array, Array, Array]:
    """The leading Ritz vectors U of B in the orthonormal columns of V, W = B U, and Ritz values.

    Columns of 0 are no part of the basis; the result is padded with 0 up to `width`.
    """
    T = dot(V.T, W)
    T = 0.5 * (T + T.T)
    missing = jnp.sum(V * V, axis=0) == 0
    bound = jnp.max(jnp.sum(jnp.abs(T), axis=0))  # of every eigenvalue
    last = jnp.where(bound == 0, 1.0, 2.0 * bound)
    T = T - jnp.diag(jnp.where(missing, last, 0.0))
    values, turn = jnp.linalg.eigh(T)
    values, turn = values[::-1][:width], turn[:, ::-1][:, :width]
    # Exactly 0, or rounding would turn them into vectors of length eps with eigenvalue 0.
    nothing = values < -1.5 * bound
    turn = jnp.where(nothing[None, :], 0.0, turn)
    U = dot(V, turn)
    # One step of Newton and Schulz towards UᵀU = 1, which restart after restart would lose.
    turn = 1.5 * turn - 0.5 * dot(turn, dot(U.T, U))
    return dot(V, turn), dot(W, turn), jnp.where(nothing, 0.0, values)


def orthonormal(Y: Array, V: Array, spare: Array | None = None) -> Array:
    """Orthonormal columns that span Y orthogonally to the columns of V.

    Spare columns replace directions lost in rounding; a spare lost as well becomes 0.
    """
    instead = jnp.zeros_like(Y) if spare is None else spare
    # Squares of very small or large numbers are 0 or inf.
    largest = jnp.max(jnp.abs(Y), axis=0)
    Y = Y / jnp.where(largest > 0, largest, 1.0)[None, :]
    # After two passes the rest is nearly orthogonal, or rounding errors.
    rounding = 32.0 * float(jnp.finfo(Y.dtype).eps)
    least = jnp.asarray([rounding, rounding, 0.5, 0.5], Y.dtype)

    def again(number: Array, Y: Array) -> Array:
        lost = (jnp.sum(Y * Y, axis=0) == 0) & (number == 1)
        return _complement_basis(jnp.where(lost[None, :], instead, Y), V, least[number])

    return lax.fori_loop(0, len(least), again, Y)


def _complement_basis(Y: Array, V: Array, least: Array) -> Array:
    """Orthonormal columns for Y − V VᵀY; columns of relative norm below `least` become 0."""
    # By the eigenvectors of YᵀY (Stathopoulos and Wu 2002): matrix products, unlike QR, and
    # dependent columns, which become 0, do no harm.
    before = jnp.linalg.norm(Y, axis=0)
    Y = Y - dot(V, dot(V.T, Y))
    norms = jnp.linalg.norm(Y, axis=0)
    resolved_columns = norms > least * before
    Y = Y * jnp.where(resolved_columns, 1.0 / jnp.where(resolved_columns, norms, 1.0), 0.0)[None, :]
    values, turn = jnp.linalg.eigh(dot(Y.T, Y))
    resolved = values > 4 * len(values) * jnp.finfo(Y.dtype).eps
    inverse = jnp.where(resolved, 1.0 / jnp.sqrt(jnp.where(resolved, values, 1.0)), 0.0)
    return dot(Y, turn * inverse[None, :])


def _scale(eigenvalues: Array) -> Array:
    return jnp.maximum(jnp.abs(eigenvalues[0]), jnp.finfo(eigenvalues.dtype).tiny)


def check_dim(dim: int, n: int = 1, oversample: int | None = None) -> None:
    """Raise for a width below 1, above the number of columns, or too large for memory."""
    check_size("dim", dim, each=n)
    if oversample is not None:
        check_size("oversample", oversample, least=0, each=n)
