"""The effective rank of points: how evenly they fill their dimensions (Roy and Vetterli 2007)."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from jaxpe._core.arrays import ArrayLike, checked_jit
from jaxpe.geometry.checks import as_present, checked_encoding, sized
from jaxpe.geometry.distances.matrices import Distances, centre_rows
from jaxpe.geometry.distances.stress import Encoded
from jaxpe.geometry.mds.classical import classical_mds


@checked_jit(P=checked_encoding)
def entropy_rank(P: Encoded, *, present: Bool[ArrayLike, " n"] | None = None) -> Float[Array, ""]:
    """Effective rank exp(−Σ p_k log p_k), p_k = s_k / Σ s, of centred points.

    Roy and Vetterli (2007), with s the singular values of the centred points. It does not change
    under rotations, translations and scale, and lies between 1 and the rank; r equal singular
    values give r. 0 where all points coincide. For `Distances`, s are the singular values of their
    classical MDS coordinates, √ of the positive eigenvalues of the Gram matrix.

    Singular values below max(n, d) · eps · s_1 count as 0, with derivative 0; the derivative grows
    without bound as a singular value approaches 0. It is right where singular values repeat; second
    derivatives are NaN there.

    Args:
        P: points `[n, d]` or `Distances`.
        present: positions that take part; by default the positions present in `Distances`, all of
            an array.

    >>> square = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> round(entropy_rank(square).item(), 6)
    2.0
    >>> round(entropy_rank(np.array([[0.0, 0.0], [1.0, 1.0], [3.0, 3.0]])).item(), 6)
    1.0
    """
    if isinstance(P, Distances):
        P = Distances(P.values, P.present & as_present(present, len(P.present)))
        centred = classical_mds(P, dim=P.values.shape[0]).coordinates
    else:
        points = sized(P, "P", "n d")
        centred = centre_rows(points, as_present(present, points.shape[0]))
    if not centred.size:
        return jnp.zeros((), centred.dtype)
    s = jnp.linalg.svd(centred, compute_uv=False)
    # Written so that NaN passes.
    negligible = s <= max(centred.shape) * jnp.finfo(s.dtype).eps * jnp.max(s)
    return effective_number(s, negligible)


def effective_number(
    sizes: Float[Array, "... n"], negligible: Bool[Array, "... n"]
) -> Float[Array, "..."]:
    """Exponential of the entropy of shares of sizes ≥ 0; negligible ones count as 0."""
    share = jnp.where(negligible, 0.0, sizes)
    total = jnp.sum(share, axis=-1)
    share = share / jnp.where(total == 0, 1.0, total)[..., None]
    entropy = -jnp.sum(share * jnp.log(jnp.where(negligible, 1.0, share)), axis=-1)
    return jnp.where(total == 0, 0.0, jnp.exp(entropy))
