"""Classical multidimensional scaling of points, without the matrix of all pairs."""

from functools import partial
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int, Real

from jaxpe._core.arrays import ArrayLike, checked_jit, dot
from jaxpe.geometry.checks import check_size, checked_encoding
from jaxpe.geometry.distances.matrices import centre_rows, inner_products
from jaxpe.geometry.distances.points import PointCloud, as_points
from jaxpe.geometry.mds.gauge import gauged_coordinates, noise
from jaxpe.geometry.mds.krylov import Eigenpairs, leading_pairs, residual_norms

Method = Literal["dense", "krylov"]

# Up to this side an eigendecomposition of the smaller Gram matrix is not worth avoiding.
_DENSE_SIDE = 1024
_ROWS = 1024  # rows of a block of points, which a product reads at once


@jax.tree_util.register_static
class Label(str):
    """Text as static structure of a pytree, so that it passes `jax.jit` and `jax.vmap`."""


class PrincipalCoordinates(NamedTuple):
    """Leading coordinates of classical scaling, with the residuals of their eigenpairs.

    Attributes:
        coordinates: float `[n, dim]`, U_d Λ_d^½; columns beyond the rank are 0, and so are the
            rows of absent positions. In each column the entry largest in magnitude is positive.
        eigenvalues: float `[dim]`, of B, descending; `sum(eigenvalues) / trace` is their share.
        residuals: float `[dim]`, ‖B v − λ v‖ / λ_1, from a final product with B.
        products: int, columns that B was applied to ("dense" needs it for the residuals alone).
        converged: whether all residuals are within the tolerance (and for "krylov", that a round
            from fresh random directions changed nothing). False for NaN.
        trace: Σ of all eigenvalues.
        method: "dense" or "krylov".
        present: bool `[n]`, positions that take part.
    """

    coordinates: Float[Array, "n dim"]
    eigenvalues: Float[Array, " dim"]
    residuals: Float[Array, " dim"]
    products: Int[Array, ""]
    converged: Bool[Array, ""]
    trace: Float[Array, ""]
    present: Bool[Array, " n"]
    method: Label


@checked_jit("dim", "method", "tolerance", points=checked_encoding)
def classical_mds_from_points(
    points: PointCloud | Real[ArrayLike, "n k"],
    *,
    dim: int,
    method: Literal["auto"] | Method = "auto",
    tolerance: float = 1e-5,
    key: Array | None = None,
) -> PrincipalCoordinates:
    """Classical scaling of the Euclidean distances between points, for many positions.

    The leading eigenpairs of B = H X Xᵀ H, which is `classical_mds(euclidean_distances(X))`, by

    - "dense": all of them, from B or, with fewer columns than rows, from Xᵀ H X;
    - "krylov": `principal_eigenpairs`, from products H X Xᵀ H Y alone.

    "auto" is "dense" where the smaller side of the points is at most 1,024 or 4·dim. An eigenvalue
    counts as 0 up to max(32, √n)·eps·λ_1.

    As in `classical_mds`, derivatives are right for functions that rotations leave unchanged, also
    where eigenvalues repeat, as long as residuals are small against gaps. Terms that would divide
    by a gap of 0 at the cut are 0. Derivatives need products with B, no matrix `[n, n]`. NaN gives
    NaN.

    Args:
        points: `PointCloud` (`hellinger_points` makes one of distributions) or `[n, k]`.
        dim: number of columns; columns beyond the rank are 0.
        method: name of the method.
        tolerance: tolerance of residuals, relative to λ_1.
        key: PRNG key of the random directions of "krylov"; `jax.random.key(0)` by default.

    >>> found = classical_mds_from_points(np.array([[0.0, 0.0], [4.0, 3.0]]), dim=1)
    >>> found.coordinates.round(4).tolist(), found.method
    ([[2.5], [-2.5]], 'dense')
    """
    cloud = as_points(points)
    check_size("dim", dim, each=len(cloud.present))
    if not cloud.points.shape[1]:  # a column of 0, so that there is an eigenvalue
        cloud = cloud._replace(points=jnp.pad(cloud.points, ((0, 0), (0, 1))))
    n, k = cloud.points.shape
    if not n:
        raise ValueError(f"points have shape {(n, k)}: pass at least one position")
    if method not in ("auto", *get_args(Method)):
        raise ValueError(f"unknown method {method!r}: pass 'auto', 'dense' or 'krylov'")
    if method == "auto":
        method = "dense" if min(n, k) <= max(_DENSE_SIDE, 4 * dim) else "krylov"
    centred = centre_rows(*cloud)
    fixed, options = lax.stop_gradient(centred), {"dim": dim, "tolerance": tolerance}
    if method == "dense":
        pairs = _dense_pairs(fixed, **options)
    else:
        apply = partial(gram_product, fixed)
        pairs = leading_pairs(apply, n, key=key, dtype=fixed.dtype, **options)
    coordinates, eigenvalues, _ = gauged_coordinates(
        gram_product, dim, centred, pairs.vectors, pairs.eigenvalues
    )
    return PrincipalCoordinates(
        coordinates=jnp.where(cloud.present[:, None], coordinates, 0.0),
        eigenvalues=eigenvalues,
        residuals=pairs.residuals,
        products=pairs.products,
        converged=pairs.converged,
        trace=jnp.sum(centred**2),
        present=cloud.present,
        method=Label(method),
    )


def gram_product(centred: Array, Y: Array) -> Array:
    """H X Xᵀ H Y of centred points and centred Y."""
    return dot(centred, _transposed_product(centred, Y))


def _transposed_product(X: Array, Y: Array) -> Array:
    """Xᵀ Y of many rows and few columns, on a CPU as the sum of (Y_bᵀ X_b)ᵀ over blocks of rows.

    XLA on CPU traverses the columns of X instead, which takes six times as long.
    """
    blocks = len(X) // _ROWS if jax.default_backend() == "cpu" else 0
    if blocks < 2:
        return dot(X.T, Y)

    def block(number: Array) -> Array:
        x, y = (lax.dynamic_slice_in_dim(z, number * _ROWS, _ROWS) for z in (X, Y))
        return dot(y.T, x)

    def add(number: Array, total: Array) -> Array:
        return total + jax.checkpoint(block, prevent_cse=False)(number)

    done = blocks * _ROWS
    return lax.fori_loop(0, blocks, add, dot(Y[done:].T, X[done:])).T


def _dense_pairs(centred: Array, *, dim: int, tolerance: float) -> Eigenpairs:
    """Eigenpairs from the smaller of the two Gram matrices."""
    n, k = centred.shape
    small = inner_products(centred if n <= k else centred.T)
    eigenvalues, vectors = jnp.linalg.eigh(small)
    eigenvalues, vectors = eigenvalues[::-1], vectors[:, ::-1]
    if k < n:
        vectors = _left_vectors(centred, vectors, eigenvalues, dim)
    missing = max(dim - len(eigenvalues), 0)
    vectors = jnp.pad(vectors, ((0, 0), (0, missing)))
    eigenvalues = jnp.pad(eigenvalues, (0, missing))
    V, values = vectors[:, :dim], eigenvalues[:dim]
    residuals = residual_norms(V, gram_product(centred, V), values)
    products = jnp.asarray(dim, jnp.int32)
    return Eigenpairs(vectors, eigenvalues, residuals, products, jnp.all(residuals <= tolerance))


def _left_vectors(centred: Array, right: Array, eigenvalues: Array, dim: int) -> Array:
    """Eigenvectors X w / √λ of X Xᵀ, from eigenvectors w of Xᵀ X; 0 where λ is 0."""
    resolved = ~(eigenvalues <= noise(eigenvalues, len(centred)))  # NaN stays
    inverse = jnp.where(resolved, 1.0 / jnp.sqrt(jnp.where(resolved, eigenvalues, 1.0)), 0.0)
    left = dot(centred, right * inverse[None, :])
    # Small λ lose orthogonality; in this order the vectors of large λ, which are exact, do not
    # change.
    orthonormal, _ = jnp.linalg.qr(left[:, :dim])
    orthonormal = jnp.where(resolved[None, :dim], orthonormal, 0.0)
    return jnp.concatenate([orthonormal, left[:, dim:]], axis=1)
