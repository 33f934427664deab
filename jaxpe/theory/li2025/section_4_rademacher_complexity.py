"""Li (2025), Section 4: Rademacher complexity from Lipschitz constants, and Eq. (8)."""

import math

import jax.numpy as jnp
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.theory.audit import Audit, all_less_equal, less_equal


def section_4_rademacher(
    train_loss: Float[ArrayLike, " models"],
    test_loss: Float[ArrayLike, " models"],
    lipschitz: Float[ArrayLike, " models"],
    radius: Float[ArrayLike, " models"],
    *,
    worst_loss: Float[ArrayLike, ""] | float,
    samples: int,
    largest_loss: float,
    loss_lipschitz: float,
    trivial_loss: float,
    delta: float = 0.05,
) -> Audit:
    """Evaluate both sides of Eq. (8) with R_S as claimed, and test whether it says anything.

    Li (2025), Section 4; reproduced under a stated reading. Hypothesis "loss ≤ M", for every
    observed loss; the theorem needs it for every possible loss. Conclusions: "(8)", test loss ≤
    training loss + 2 L_loss R_S + 3M√(ln(2/δ)/(2m)) with R_S = C^L(R_x + R_PE)/√m, for each model;
    "says something", the right side ≤ the loss of a constant answer.

    Measured, by model: `gap` |test − train|, `R_S`, `right side`, and `orders above`, log₁₀ of the
    right side over the loss of a constant answer.

    Args:
        train_loss, test_loss: means over the m samples, and over other samples.
        lipschitz: C^L, or a better constant.
        radius: R_x + R_PE, a bound of inputs with their encoding.
        worst_loss: the largest loss of a single sample.
        samples: m.
        largest_loss: M; an M taken from the same samples is no hypothesis.
        loss_lipschitz: L_loss, of the loss in the model's output.
        trivial_loss: loss of answering a constant.
        delta: δ.

    >>> audit = section_4_rademacher(
    ...     jnp.array([0.1]), jnp.array([0.2]), jnp.array([1e4]), jnp.array([3.0]),
    ...     worst_loss=0.9, samples=100, largest_loss=1.0, loss_lipschitz=1.0, trivial_loss=0.5)
    >>> audit.conclusions["(8)"].holds.item(), round(audit.measured["orders above"].item(), 1)
    (True, 4.1)
    """
    if samples < 1 or not 0 < delta < 1:
        raise ValueError(f"samples={samples} and delta={delta}: pass at least 1, and 0 < delta < 1")
    dtype = jnp.result_type(float)
    train_loss, test_loss, lipschitz, radius = (
        jnp.asarray(x, dtype) for x in (train_loss, test_loss, lipschitz, radius)
    )
    complexity = lipschitz * radius / samples**0.5
    noise = 3 * largest_loss * math.sqrt(math.log(2 / delta) / (2 * samples))
    right = train_loss + 2 * loss_lipschitz * complexity + noise
    least = jnp.min(right)
    conclusions = {
        "(8)": all_less_equal(test_loss, right),
        "says something": less_equal(least, trivial_loss),
    }
    measured = {
        "gap": jnp.abs(test_loss - train_loss),
        "R_S": complexity,
        "right side": right,
        "orders above": jnp.log10(right / trivial_loss),
    }
    return Audit({"loss ≤ M": less_equal(worst_loss, largest_loss)}, conclusions, measured)
