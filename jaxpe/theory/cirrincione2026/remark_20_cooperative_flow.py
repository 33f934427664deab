"""Remark 20: is the flow on positions cooperative?"""

import jax
import jax.numpy as jnp
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry.distances.matrices import floating
from jaxpe.theory.audit import Audit, less_equal
from jaxpe.theory.monotone_fit import pairs


@jax.jit
def remark_20(alpha: Float[ArrayLike, "n n"]) -> Audit:
    """Evaluate whether Ṗ = −αP + b is cooperative: no α_ij above 0 for i ≠ j (Hirsch 1985).

    Hypothesis: α has no negative entry, as in Definition 10; the rest of that definition is (A1) of
    `lemma_18`. Entries within rounding of the largest count as 0. Conclusion: cooperative. The two
    exclude each other unless all entries off the diagonal are 0. If the flow is cooperative and
    α ≻ 0, then α is an M-matrix, α⁻¹ ≥ 0, and a forcing b ≥ 0 leads to positions P* ≥ 0.

    Args:
        alpha: `[n, n]`, symmetric, of `jaxpe.ntk.positional_ntk`.

    >>> audit = remark_20(jnp.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> audit.hypotheses["f ≥ 0"].holds.item(), audit.conclusions["cooperative"].holds.item()
    (True, False)
    """
    alpha = floating(alpha)
    between, count = pairs(alpha), max(alpha.shape[0] * (alpha.shape[0] - 1) // 2, 1)
    lowest, highest = (jnp.min(between, initial=0.0), jnp.max(between, initial=0.0))
    noise = 64.0 * jnp.finfo(alpha.dtype).eps * jnp.max(jnp.abs(alpha), initial=0.0)
    measured = {
        "share of pairs that cooperate": jnp.sum(between < -noise) / count,
        "share of pairs that compete": jnp.sum(between > noise) / count,
    }
    hypotheses = {"f ≥ 0": less_equal(-noise, lowest)}
    return Audit(hypotheses, {"cooperative": less_equal(highest, noise)}, measured)
