"""Classical multidimensional scaling of Hellinger geometry, from the occupied cells of counts."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxpe.geometry.counts.sparse import SparseCounts
from jaxpe.geometry.distances.matrices import centre_rows
from jaxpe.geometry.mds.from_points import Label, PrincipalCoordinates
from jaxpe.geometry.mds.gauge import gauged_coordinates
from jaxpe.geometry.mds.krylov import Eigenpairs, check_dim, leading_pairs


def classical_mds_from_counts(
    counts: SparseCounts,
    *,
    dim: int,
    tolerance: float = 1e-5,
    max_products: int | None = None,
    oversample: int | None = None,
    key: Array | None = None,
) -> PrincipalCoordinates:
    """Classical scaling of the Hellinger distances between positions, from sparse counts.

    The leading eigenpairs of B = `hellinger_gram(counts)` by the method of `principal_eigenpairs`,
    from products H S (Sᵀ (H Y)) with S = √μ that take O(occupied cells) for a column: neither B
    nor a table `[n, vocab]` is formed. Positions without a token are absent. Up to a few thousand
    positions `classical_mds_from_gram(hellinger_gram(counts), dim=dim)` is the alternative, with
    all eigenvalues. Counts are integers, so there is no derivative.

    Args:
        counts: counts of any folds, which are summed.
        dim, tolerance, max_products, oversample, key: arguments of `classical_mds_from_points`.

    >>> counts = sparse_counts(count_tokens(np.array([[0, 1], [0, 1]]), vocab_size=2))
    >>> classical_mds_from_counts(counts, dim=1).eigenvalues.round(4).tolist()
    [1.0]
    """
    check_dim(dim, 5 * counts.shape[-2], oversample)
    merged = counts.merged()
    present = merged.per_position > 0
    options = {"tolerance": tolerance, "max_products": max_products, "oversample": oversample}
    pairs, coordinates, trace = _principal(merged, key, dim=dim, **options)
    return PrincipalCoordinates(
        coordinates=jnp.where(present[:, None], coordinates, 0.0),
        eigenvalues=pairs.eigenvalues[:dim],
        residuals=pairs.residuals,
        products=pairs.products,
        converged=pairs.converged,
        trace=trace,
        present=present,
        method=Label("krylov"),
        reason=Label("of sparse counts only products are formed"),
    )


@partial(jax.jit, static_argnames=("dim", "tolerance", "max_products", "oversample"))
def _principal(
    counts: SparseCounts, key: Array | None, *, dim: int, **options
) -> tuple[Eigenpairs, Array, Array]:
    """Eigenpairs, coordinates and the trace."""
    counts = _without_constant_words(counts)
    present = counts.per_position > 0

    def draw(key: Array, columns: int) -> Array:
        return centre_rows(jax.random.normal(key, (len(present), columns), float), present)

    pairs = leading_pairs(partial(_gram_product, counts), draw, dim=dim, key=key, **options)
    arguments = counts, pairs.vectors, pairs.eigenvalues
    return pairs, gauged_coordinates(_gram_product, dim, *arguments)[0], _trace(counts)


def _gram_product(counts: SparseCounts, Y: Float[Array, "n b"]) -> Float[Array, "n b"]:
    """H S Sᵀ H Y, where S = N^−½ √C has a product with b columns for each occupied cell."""
    present, scale = _scale(counts)
    Y = centre_rows(Y, present) * scale[:, None]

    def add(total: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
        cells, values = block
        row, column = jnp.divmod(cells, counts.width)
        root = jnp.sqrt(values.astype(Y.dtype))[:, None]
        inner = jnp.zeros((counts.width, Y.shape[1]), Y.dtype).at[column].add(root * Y[row])
        return total.at[row].add(root * inner[column], indices_are_sorted=True), None

    total, _ = jax.lax.scan(add, jnp.zeros_like(Y), (counts.cells, counts.counts))
    return centre_rows(total * scale[:, None], present)


def _without_constant_words(counts: SparseCounts) -> SparseCounts:
    """Counts without the words that are equally frequent at all positions, to rounding."""
    # They are no part of B, but for the rounding that the products would leave of them.
    present, scale = _scale(counts)
    positions = jnp.sum(present, dtype=jnp.int32)
    tolerance = 4.0 * float(jnp.finfo(scale.dtype).eps)

    def block_result(block: tuple[Array, Array]) -> Array:
        cells, values = block
        row, column = jnp.divmod(cells, counts.width)
        occupied_cells = values > 0
        root = jnp.sqrt(values.astype(scale.dtype)) * scale[row]
        empty = jnp.zeros(counts.width, scale.dtype)
        largest = empty.at[column].max(jnp.where(occupied_cells, root, 0.0))
        below = empty.at[column].max(jnp.where(occupied_cells, largest[column] - root, 0.0))
        occupied = (
            jnp.zeros(counts.width, jnp.int32).at[column].add(occupied_cells.astype(jnp.int32))
        )
        constant = (occupied == positions) & (below <= tolerance * largest)
        return jnp.where(constant[column], 0, values)

    return counts._replace(counts=jax.lax.map(block_result, (counts.cells, counts.counts)))


def _trace(counts: SparseCounts) -> Float[Array, ""]:
    """‖H S‖², without cancellation: squared deviations in occupied cells, and in all others."""
    present, scale = _scale(counts)
    positions = jnp.sum(present.astype(scale.dtype))

    def block_result(block: tuple[Array, Array]) -> Array:
        cells, values = block
        row, column = jnp.divmod(cells, counts.width)
        root = jnp.sqrt(values.astype(scale.dtype)) * scale[row]
        empty = jnp.zeros(counts.width, scale.dtype)
        mean = empty.at[column].add(root) / jnp.maximum(positions, 1.0)
        occupied = empty.at[column].add((values > 0).astype(scale.dtype))
        deviations = jnp.where(values > 0, root - mean[column], 0.0)
        return jnp.sum(deviations**2) + jnp.sum((positions - occupied) * mean**2)

    return jnp.sum(jax.lax.map(block_result, (counts.cells, counts.counts)))


def _scale(counts: SparseCounts) -> tuple[Array, Array]:
    """The positions with a token, and 1/√N of each."""
    total = counts.per_position.astype(float)
    return total > 0, 1.0 / jnp.sqrt(jnp.maximum(total, 1.0))
