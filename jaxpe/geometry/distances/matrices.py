"""Distances between positions, zero-safe and without cancellation, and their Gram matrix.

Float32 holds the squares of 1e-18 to 1e18: smaller ones are 0, larger ones inf, and results inf or
NaN. Scale coordinates of another size to about 1 first. Outside `jit`, magnitudes beyond 3e-16 to
6e15 raise an error (1e-146 to 1e146 in float64).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Real

from jaxpe._core.arrays import ArrayLike, checked_jit, dot
from jaxpe.geometry.checks import (
    as_present,
    checked_distances,
    checked_encoding,
    checked_symmetric,
    nan_unless_distances,
    sized,
)
from jaxpe.geometry.checks import floating as floating
from jaxpe.geometry.counts.distributions import (
    PositionalDistributions,
    as_distributions,
    checked_distributions,
)

# Up to this many differences x_ik − x_jk are computed directly, which is exact. Larger inputs use
# centred inner products, by a matrix product.
_DIFFERENCES = 2**22

Probabilities = PositionalDistributions | Float[ArrayLike, "n vocab"]

of_distributions = checked_jit(mu=checked_distributions)


class Distances(NamedTuple):
    """A symmetric matrix of distances with a mask of positions; 0 for absent ones.

    `D[i, j]`, `D.shape` and `np.asarray(D)` refer to the matrix.

    Attributes:
        values: float `[..., n, n]`, the matrix of distances.
        present: bool `[..., n]`, positions that take part.

    >>> D = euclidean_distances(np.array([[0.0], [2.0]]))
    >>> D.shape, D[0, 1].item(), np.asarray(D).max().item()
    ((2, 2), 2.0, 2.0)

    """

    values: Float[Array, "*batch n n"]
    present: Bool[Array, "*batch n"]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the matrix, `(n, n)`."""
        return self.values.shape

    def __getitem__(self, index: Any) -> Array:  # pyrefly: ignore (of the matrix, not of the tuple)
        return self.values[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype, copy=copy)


@of_distributions
def hellinger_distances(mu: Probabilities) -> Distances:
    """Hellinger distances d_H(μ_i, μ_j) = ‖√μ_i − √μ_j‖, in [0, √2] (no factor 1/√2).

    Eq. (3) of Cirrincione (2026). It is the chord between points of the unit sphere; the geodesic
    is `fisher_rao_distances`. The derivative with respect to a probability of zero is infinite, and
    is defined as 0.

    Rows must be at least 0 and sum to 1 within 1 %; a row of zeros passes (policy "zero"). Other
    rows raise an error, and become NaN inside `jit`. All functions of distributions check this.

    Args:
        mu: positional distributions, from `positional_distributions` or an array `[n, vocab]`.

    Raises:
        ValueError: rows that are no distributions, such as counts: pass
            `positional_distributions(counts)`.

    >>> (hellinger_distances(np.eye(2)).values ** 2).round(6).tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    roots, present = hellinger_roots(mu)
    return euclidean_distances(roots, present=present)


@of_distributions
def fisher_rao_distances(mu: Probabilities) -> Distances:
    """Geodesic (Fisher–Rao) distances 2·arccos Σ_v √(μ_i(v) μ_j(v)), in [0, π].

    Rao (1945). Computed as 4·atan2(‖x − y‖, ‖x + y‖) with x = √μ_i, y = √μ_j, which keeps full
    precision where arccos near 1 loses it. A row of zeros is at distance π from every other.

    Args:
        mu: positional distributions, from `positional_distributions` or an array `[n, vocab]`.

    >>> fisher_rao_distances(np.eye(2)).values.round(4).tolist()
    [[0.0, 3.1416], [3.1416, 0.0]]
    """
    mu = as_distributions(mu)
    roots, present = hellinger_roots(mu)
    chord = euclidean_distances(roots, present=present).values
    radius2 = jnp.sum(mu.probabilities, axis=-1)
    # ‖x + y‖² = 2‖x‖² + 2‖y‖² − ‖x − y‖²
    opposite = safe_sqrt(2.0 * (radius2[:, None] + radius2[None, :]) - chord**2)
    near = chord != 0
    quarter = jnp.where(near, jnp.arctan2(chord, jnp.where(near, opposite, 1.0)), 0.0)
    return Distances(4.0 * quarter, present)


@checked_jit(points=checked_encoding)
def euclidean_distances(
    points: Real[ArrayLike, "n d"], *, present: Bool[ArrayLike, " n"] | None = None
) -> Distances:
    """Euclidean distances ‖x_i − x_j‖ between rows.

    Small inputs are differenced directly. Large ones use inner products of the centred rows at the
    highest matrix precision, where a distance below √(16·eps)·√(‖x_i‖² + ‖x_j‖²) (centred norms) is
    below rounding and is 0. The derivative at coincident points is 0.

    Args:
        points: one row a position, `[n, d]`.
        present: positions that take part, `[n]`; all when None.

    >>> euclidean_distances(np.array([[0.0, 3.0], [4.0, 0.0]])).values.tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    points = sized(points, "points", "n d")
    present = as_present(present, points.shape[0])
    n, d = points.shape
    if n * n * d > _DIFFERENCES:
        return distances_from_gram(inner_products(centre_rows(points, present)), present=present)
    points = jnp.where(present[:, None], points, 0.0)
    squared = jnp.sum((points[:, None, :] - points[None, :, :]) ** 2, axis=-1)
    return Distances(jnp.where(pair_mask(present), safe_sqrt(squared), 0.0), present)


@checked_jit(B=checked_symmetric)
def distances_from_gram(
    B: Float[ArrayLike, "n n"], *, present: Bool[ArrayLike, " n"] | None = None
) -> Distances:
    """Distances √(B_ii + B_jj − 2 B_ij) of points with centred inner products B.

    Distances below √(16·eps·(B_ii + B_jj)) are rounding errors and become 0, with derivative 0.

    >>> distances_from_gram(np.array([[1.0, -1.0], [-1.0, 1.0]])).values.tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    B = sized(B, "the Gram matrix", "n n")
    present = as_present(present, B.shape[0])
    norms = jnp.diagonal(B)
    return Distances(distances_from_products(B, norms, norms, pair_mask(present)), present)


def distances_from_products(
    products: Float[Array, "n m"],
    row_norms: Float[Array, " n"],
    column_norms: Float[Array, " m"],
    counted: Bool[Array, "n m"],
) -> Float[Array, "n m"]:
    """√(‖x_i‖² + ‖y_j‖² − 2⟨x_i, y_j⟩), and 0 below rounding as in `distances_from_gram`."""
    sums = row_norms[:, None] + column_norms[None, :]
    squared = sums - 2.0 * products
    unresolved = ~counted | (squared <= 16.0 * jnp.finfo(products.dtype).eps * sums)
    return safe_sqrt(jnp.where(unresolved, 0.0, squared))


@checked_jit(D=checked_distances)
def gram_matrix(D: Distances | Real[ArrayLike, "n n"]) -> Float[Array, "n n"]:
    """Doubly centred Gram matrix B = −½ H D² H over the positions present: Eq. (5).

    For Hellinger distances `hellinger_gram` computes it from √μ without cancellation.

    >>> gram_matrix(np.array([[0.0, 2.0], [2.0, 0.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    D = as_distances(D)
    return gram_from_squared(D.values**2, D.present)


@jax.jit
def gram_from_squared(
    squared: Float[Array, "n n"],
    present: Bool[Array, " n"],
    *,
    weights: Float[Array, " n"] | None = None,
) -> Float[Array, "n n"]:
    """B = −½ H A H for any matrix A of squares, negative ones too; H centres at a weighted mean."""
    weight = jnp.where(present, 1.0 if weights is None else weights, 0.0).astype(squared.dtype)
    share = weight / jnp.maximum(jnp.sum(weight), jnp.finfo(squared.dtype).tiny)
    rows = jnp.sum(squared * share[None, :], axis=1)
    columns = jnp.sum(squared * share[:, None], axis=0)
    centred = squared - rows[:, None] - columns[None, :] + jnp.sum(rows * share)
    return jnp.where(present[:, None] & present[None, :], -0.5 * centred, 0.0)


@of_distributions
def hellinger_gram(mu: Probabilities) -> Float[Array, "n n"]:
    """Gram matrix B = H √μ √μᵀ H of Hellinger geometry; positive semidefinite always.

    Args:
        mu: positional distributions, from `positional_distributions` or an array `[n, vocab]`.

    >>> hellinger_gram(np.eye(2)).tolist()
    [[0.5, -0.5], [-0.5, 0.5]]
    """
    return inner_products(centre_rows(*hellinger_roots(mu)))


@checked_jit(D=checked_distances)
def as_distances(D: Distances | ArrayLike) -> Distances:
    """Distances from an array `[n, n]`, in which every position is present.

    Rows and columns of absent positions become 0, even where they are NaN. The rest must be finite,
    at least 0 and symmetric, with a diagonal of 0, to a thousandth of the largest distance. Another
    matrix of up to 4,096 positions raises an error, and becomes NaN inside `jit`. All functions of
    a matrix of distances check this.

    Raises:
        ValueError: a matrix of another shape, or with numbers that are no distances.

    >>> as_distances(np.array([[0.0, 1.0], [1.0, 0.0]])).present.tolist()
    [True, True]
    """
    values, present = D if isinstance(D, Distances) else (D, None)
    refuse_tuple(values, "distances", "Distances or a matrix [n, n]")
    values = sized(values, "the matrix of distances", "n n")
    present = as_present(present, len(values))
    values = jnp.where(present[:, None] & present[None, :], values, 0.0)
    return Distances(nan_unless_distances(values), present)


def refuse_tuple(value: Any, what: str, expected: str) -> None:
    """Raise for a result instead of an array, and name the field to pass."""
    if not isinstance(value, tuple):
        return
    remedy = f"pass {expected}"
    if isinstance(value, PositionalDistributions):
        remedy = "pass hellinger_distances(mu) for distances, hellinger_points(mu) for points"
    elif hasattr(value, "distances"):
        remedy = "pass its .distances"
    raise ValueError(f"{what} are {type(value).__name__}: {remedy}")


def pair_mask(present: Bool[Array, " n"]) -> Bool[Array, "n n"]:
    """True for pairs i ≠ j of positions that are both present."""
    both = present[:, None] & present[None, :]
    return both & ~jnp.eye(present.shape[0], dtype=bool)


@of_distributions
def hellinger_roots(mu: Probabilities) -> tuple[Float[Array, "n vocab"], Bool[Array, " n"]]:
    """The points √μ_i and the positions present; 0 in absent rows.

    Probabilities are quotients, exact to a few units in the last place. A column of √μ that varies
    by no more is made constant: otherwise the rank and stress of equal distributions would be a
    rank and a stress of rounding errors.
    """
    probabilities, present = as_distributions(mu)
    roots = jnp.where(present[:, None], safe_sqrt(probabilities), 0.0)
    rounding = 4.0 * float(jnp.finfo(roots.dtype).eps)
    constant, first = _constant_columns(roots, present, tolerance=rounding)
    # Added as a difference, so that derivatives do not change.
    change = jnp.where(present[:, None] & constant, first - roots, 0.0)
    return roots + jax.lax.stop_gradient(change), present


@jax.jit  # as above
def centre_rows(points: Float[Array, "n d"], present: Bool[Array, " n"]) -> Float[Array, "n d"]:
    """Rows minus the mean of the rows present; absent rows become 0."""
    points = jnp.where(present[:, None], points, 0.0)
    # Constant columns are centred at their value, which gives exactly 0. A rounded mean would leave
    # rounding errors, which ranks and shares would count. Derivatives do not change.
    constant, first = _constant_columns(points, present)
    points = jnp.where(present[:, None], points - jnp.where(constant, first, 0.0), 0.0)
    weight = present.astype(points.dtype)
    share = weight / jnp.maximum(jnp.sum(weight), 1.0)
    # A product, because on CPU XLA sums over rows ten times more slowly.
    mean = dot(share[None, :], points)
    return jnp.where(present[:, None], points - mean, 0.0)


def _constant_columns(
    points: Float[Array, "n d"], present: Bool[Array, " n"], *, tolerance: float = 0.0
) -> tuple[Bool[Array, "1 d"], Float[Array, "1 d"]]:
    """Mask of columns constant over the rows present, to a relative tolerance, and their values."""
    if not len(points):
        return jnp.ones((1, points.shape[1]), bool), jnp.zeros((1, points.shape[1]), points.dtype)
    points = jax.lax.stop_gradient(points)
    # If all are present, XLA would search for the first at compile time, 12 s for 131,072 rows.
    first = points[jnp.argmax(jax.lax.optimization_barrier(present))][None, :]
    near = jnp.abs(points - first) <= tolerance * jnp.abs(first)  # False for NaN
    return jnp.all(near | ~present[:, None], axis=0, keepdims=True), first


def inner_products(points: Float[Array, "n d"]) -> Float[Array, "n n"]:
    """X Xᵀ; at the highest precision, since TF32 costs a Gram-form distance three digits."""
    return dot(points, points.T)


def safe_sqrt(x: Array) -> Array:
    """√x for x > 0, 0 for x ≤ 0 with derivative 0 (instead of inf or NaN); NaN stays NaN."""
    zero = x <= 0
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, x)))
