"""Procrustes analysis: match two configurations up to rotation, translation and scale."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Real

from jaxpe._core.arrays import ArrayLike, checked_jit, dot
from jaxpe.geometry.checks import as_present, floating, sized
from jaxpe.geometry.distances.matrices import centre_rows
from jaxpe.geometry.distances.stress import minimiser
from jaxpe.geometry.distances.toeplitz import unexplained_share


class Procrustes(NamedTuple):
    """Result of Procrustes analysis: the best match of one configuration with another.

    Attributes:
        aligned: the first configuration moved onto the second.
        rotation: orthogonal (reflections included).
        scale: the factor of the first configuration; 1 unless requested.
        residual: ‖aligned − Q‖² / ‖Q‖² over the positions present, with Q centred if translations
            are allowed; ‖aligned‖² where Q is 0.
    """

    aligned: Float[Array, "n d"]
    rotation: Float[Array, "d d"]
    scale: Float[Array, ""]
    residual: Float[Array, ""]


@checked_jit("translate", "scale", P=partial(floating, name="P"), Q=partial(floating, name="Q"))
def procrustes(
    P: Real[ArrayLike, "n p"],
    Q: Real[ArrayLike, "n q"],
    *,
    translate: bool = True,
    scale: bool = False,
    present: Bool[ArrayLike, " n"] | None = None,
) -> Procrustes:
    """Orthogonal Procrustes: move P onto Q by the map that minimises ‖s P R + t − Q‖².

    Schönemann (1966): R = U Vᵀ with Pᵀ Q = U Σ Vᵀ. Configurations of different width are padded
    with columns of 0. Derivatives are right where R is unique. By the envelope theorem the first
    derivative of `residual` needs no derivative of R, and is finite everywhere.

    Args:
        P: configuration to move, `[n, p]`.
        Q: target configuration, `[n, q]`.
        translate: allow a translation t, so that centroids coincide.
        scale: allow a factor s ≥ 0.
        present: positions that take part; the others are 0 in `aligned`.

    >>> P = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    >>> turned = P @ np.array([[0.0, 1.0], [-1.0, 0.0]]) + 5.0
    >>> bool(procrustes(P, turned).residual < 1e-12)
    True
    """
    P = sized(P, "P", "n p")
    Q = sized(Q, "Q", f"{len(P)} q")
    present = as_present(present, P.shape[0])
    width = max(P.shape[1], Q.shape[1])
    P, Q = (jnp.pad(X, ((0, 0), (0, width - X.shape[1]))) for X in (P, Q))
    P, Q = (jnp.where(present[:, None], X, 0.0) for X in (P, Q))
    moved, target = (centre_rows(X, present) if translate else X for X in (P, Q))
    R, cosine = _rotation(dot(moved.T, target))
    size = jnp.sum(moved**2)
    s = cosine / jnp.where(size == 0, 1.0, size) if scale else jnp.ones((), P.dtype)
    best = minimiser(s) * dot(moved, minimiser(R))
    moved = s * dot(moved, R)
    aligned = jnp.where(present[:, None], moved + (Q - target), 0.0)
    return Procrustes(aligned, R, s, unexplained_share(target, best))


@jax.custom_jvp
def _rotation(A: Array) -> tuple[Array, Array]:
    """The orthogonal R with the largest ⟨R, A⟩, the polar factor of A, and this product."""
    U, singular, Vt = jnp.linalg.svd(A)
    return dot(U, Vt), jnp.sum(singular)


# H = Rᵀ A is symmetric and stays so: dR = R Ω with Ω H + H Ω = Rᵀ dA − dAᵀ R. In the eigenbasis of
# H this divides by sums of two singular values; where a sum is 0, R is not unique and Ω_ab is 0.
@_rotation.defjvp
def _rotation_jvp(primals, tangents):
    (A,), (dA,) = primals, tangents
    R, cosine = _rotation(A)
    H, moved = dot(R.T, A), dot(R.T, dA)
    _, singular, Vt = jnp.linalg.svd(jax.lax.stop_gradient(A))
    sums = singular[:, None] + singular[None, :]
    resolved = sums > len(A) * jnp.finfo(A.dtype).eps * jnp.max(singular, initial=0.0)

    def solve(_: Any, right: Array) -> Array:
        turned = dot(Vt, right, Vt.T) / jnp.where(resolved, sums, 1.0)
        return dot(Vt.T, jnp.where(resolved, turned, 0.0), Vt)

    turn = jax.lax.custom_linear_solve(
        lambda W: dot(W, H) + dot(H, W), moved - moved.T, solve, symmetric=True
    )
    return (R, cosine), (dot(R, turn), jnp.sum(R * dA))
