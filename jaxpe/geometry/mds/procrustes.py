"""Procrustes analysis: match two configurations up to rotation, translation and scale."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Real

from jaxpe._core.arrays import ArrayLike, dot
from jaxpe.geometry.checks import check_numeric, host_floats
from jaxpe.geometry.distances.matrices import as_present, centre_rows, floating


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
    with columns of 0. The derivative of `residual` is right where R is unique: by the envelope
    theorem R needs no derivative. Derivatives of other fields treat R and the scale as constant.

    Args:
        translate: allow a translation t, so that centroids coincide.
        scale: allow a factor s ≥ 0.
        present: positions that take part; the others are 0 in `aligned`.

    >>> P = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    >>> turned = P @ np.array([[0.0, 1.0], [-1.0, 0.0]]) + 5.0
    >>> bool(procrustes(P, turned).residual < 1e-12)
    True
    """
    check_numeric(P, "P")
    check_numeric(Q, "Q")
    return _procrustes(host_floats(P), host_floats(Q), present, translate=translate, scale=scale)


@partial(jax.jit, static_argnames=("translate", "scale"))
def _procrustes(
    P: ArrayLike, Q: ArrayLike, present: ArrayLike | None, *, translate: bool, scale: bool
) -> Procrustes:
    P, Q = floating(P, "P"), floating(Q, "Q")
    if P.ndim != 2 or Q.ndim != 2 or P.shape[0] != Q.shape[0]:
        raise ValueError(f"P has shape {P.shape} and Q {Q.shape}: pass [n, p] and [n, q]")
    present = as_present(present, P.shape[0])
    width = max(P.shape[1], Q.shape[1])
    P, Q = (jnp.pad(X, ((0, 0), (0, width - X.shape[1]))) for X in (P, Q))
    P, Q = (jnp.where(present[:, None], X, 0.0) for X in (P, Q))
    moved, target = (centre_rows(X, present) if translate else X for X in (P, Q))
    R, s = _rotation(moved, target, scale)
    moved = s * dot(moved, R)
    missed, size = jnp.sum((moved - target) ** 2), jnp.sum(target**2)
    aligned = jnp.where(present[:, None], moved + (Q - target), 0.0)
    return Procrustes(aligned, R, s, missed / jnp.where(size == 0, 1.0, size))


def _rotation(P: Array, Q: Array, scale: bool) -> tuple[Array, Array]:
    """The best R and s of centred configurations, without derivatives."""
    P, Q = jax.lax.stop_gradient((P, Q))
    U, singular, Vt = jnp.linalg.svd(dot(P.T, Q))
    size = jnp.sum(P**2)
    s = jnp.sum(singular) / jnp.where(size == 0, 1.0, size) if scale else jnp.ones((), P.dtype)
    return dot(U, Vt), s
