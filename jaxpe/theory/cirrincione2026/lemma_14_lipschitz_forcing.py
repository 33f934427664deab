"""Lemma 14: does a Lipschitz E[∂loss/∂L_ij] make the forcing Lipschitz?"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry import Distances
from jaxpe.geometry.distances.matrices import as_distances, centre_rows
from jaxpe.theory.audit import Audit, finite, less_equal
from jaxpe.theory.gradients import (
    PositionGradients,
    Projection,
    forcing_of_means,
    largest_norm,
    score_norms,
)
from jaxpe.theory.lipschitz import head_slopes, product, share, vector_slope


@jax.jit
def lemma_14(
    gradients: PositionGradients,
    D: Distances | Float[ArrayLike, "n n"],
    means: Float[ArrayLike, "n dim"],
    query: Projection,
    key: Projection,
) -> Audit:
    """Predict C_b from the measured slopes of g = E δ, and decompose the forcing.

    Cirrincione (2026), Appendix A.3; false as stated. Hypothesis "(8)": positions with equal
    distributions have equal δ, so that g exists; it is empty where all distributions differ.
    Hypothesis "(9)": the slope of g in its first argument is finite.

    Conclusions. "(A2)": the largest ‖b_i − b_j‖/d_H against C_b = Σ_h 2 n L_h ‖ē‖∞ ‖M_h‖/√d_k with
    L_h the slope in the first argument, as published. "(A2) both arguments": with the larger of
    both slopes, which the proof uses. "(A2) of logits": likewise for the part of b through the
    first layer's logits. What holds instead, "(A2) of the formula": the bound for −Σ_k (δ_ik ē_k Mᵀ
    + δ_ki ē_k M)/√d_k, because |g_ik − g_jk| and |g_ki − g_kj| are at most L d_H each: for any δ
    and any d_H, so that sampling noise does not break it.

    Measured. By head `slopes in i` and `slopes in j`; `C_b` and `C_b of logits`; `predicted` and
    `predicted by i alone`. Over pairs i < j: `share of logits`, Σ⟨Δb, Δb_logits⟩/Σ‖Δb‖², which adds
    up to 1 with the share of the rest; `size of logits` and `size of the rest`, √(Σ‖·‖²/Σ‖Δb‖²),
    which exceed 1 where the parts cancel; `correlation`, the change of Δb_logits when δ is replaced
    by its mean, relative to Δb_logits. Ratios over 0 are 0.

    Args:
        gradients: gradients at P ≈ 0.
        D: Hellinger distances.
        means: ē from `mean_embeddings`.
        query, key: W_Q and W_K of the first layer.

    >>> b = jnp.array([[0.0], [2.0]])
    >>> none, even = jnp.zeros((1, 2, 2)), jnp.full((1, 2, 2), 0.5)
    >>> gradients = PositionGradients(none, even, b, 0 * b, 0 * b)
    >>> W, D = jnp.ones((1, 1, 1)), jnp.array([[0.0, 1.0], [1.0, 0.0]])
    >>> audit = lemma_14(gradients, D, jnp.ones((2, 1)), W, W)  # no δ: b should be constant
    >>> audit.conclusions["(A2)"].lhs.item(), audit.conclusions["(A2)"].rhs.item()
    (2.0, 0.0)
    """
    D = as_distances(D)
    b, logits = gradients.forcing, gradients.through_logits
    n = jnp.sum(D.present).astype(b.dtype)
    in_i = head_slopes(gradients.delta, D)
    in_j = head_slopes(gradients.delta, D, columns=True)
    size = largest_norm(means).astype(b.dtype) * score_norms(query, key).astype(b.dtype)
    factors = 2.0 * n * size / query.shape[-1] ** 0.5
    published = jnp.sum(product(factors, in_i))
    predicted = jnp.sum(product(factors, jnp.maximum(in_i, in_j)))
    both = D.present[:, None] & D.present[None, :]
    delta = jnp.where(both[None], gradients.delta, 0.0)
    formula = forcing_of_means(delta, means, query, key).astype(b.dtype)
    C_b, logits_slope, formula_slope = (vector_slope(x, D) for x in (b, logits, formula))
    compare = partial(less_equal, tolerance=64 * float(jnp.finfo(b.dtype).eps))
    conclusions = {
        "(A2)": compare(C_b, published),
        "(A2) both arguments": compare(C_b, predicted),
        "(A2) of logits": compare(logits_slope, predicted),
    }
    instead = {"(A2) of the formula": compare(formula_slope, predicted)}
    measured = {
        "slopes in i": in_i,
        "slopes in j": in_j,
        "C_b": C_b,
        "C_b of logits": logits_slope,
        "predicted": predicted,
        "predicted by i alone": published,
    } | _shares(gradients, D)
    hypotheses = {"(8)": finite(jnp.max(jnp.maximum(in_i, in_j))), "(9)": finite(jnp.max(in_i))}
    return Audit(hypotheses, conclusions, measured, instead)


def _shares(gradients: PositionGradients, D: Distances) -> dict[str, Array]:
    """Parts of the differences of b: over all pairs, they are n times centred inner products."""
    b, logits, by_means = (
        centre_rows(x, D.present)
        for x in (gradients.forcing, gradients.through_logits, gradients.by_means)
    )
    return {
        "share of logits": share(jnp.sum(b * logits), jnp.sum(b * b)),
        "size of logits": share(jnp.linalg.norm(logits), jnp.linalg.norm(b)),
        "size of the rest": share(jnp.linalg.norm(b - logits), jnp.linalg.norm(b)),
        "correlation": share(jnp.linalg.norm(logits - by_means), jnp.linalg.norm(logits)),
    }
