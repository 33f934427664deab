"""Remark 20: is the flow on positions cooperative?"""

import jax
import jax.numpy as jnp
from jaxtyping import Float

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry.distances.matrices import floating
from jaxpe.theory.audit import Audit, AuditInputs, Statement, less_equal, within
from jaxpe.theory.cirrincione2026.lemma_18_fixed_point import LEMMA_18, lemma_18
from jaxpe.theory.monotone_fit import pairs

# Hypotheses of Lemma 18 that make a kernel Hellinger-monotone (Definition 10).
_MONOTONE_KERNEL = ("A1 increasing", "A1 diagonal", "A1 positive")

REMARK_20 = Statement(
    name="Remark 20",
    title="the flow on positions is cooperative",
    source="Cirrincione (2026), Appendix A.4, after Hirsch (1985)",
    claim=(
        "With a Hellinger-monotone kernel, Ṗ = −αP + b is a cooperative system: increasing any p_i "
        "does not lower the rate of change of another p_j."
    ),
    status="vacuous",
    results=("remark-20",),
    finding=(
        "No increasing f allows α ≻ 0 (Lemma 18), and the sign is wrong. The derivative of ṗ_i by "
        "p_j is −α_ij, so the flow is cooperative where all α_ij ≤ 0. Definition 10 has α_ij = "
        "f(d) ≥ 0, and > 0 for d > 0: the flow is competitive, the opposite."
    ),
    sentences={
        **{f"if {name}": LEMMA_18.sentences[f"if {name}"] for name in _MONOTONE_KERNEL},
        "if f ≥ 0": "The lowest α_ij is {rhs}; values from {lhs} up count as not negative.",
        "then cooperative": "The highest α_ij is {lhs}; a cooperative flow has at most {rhs}.",
    },
    evaluate=lambda inputs: _evaluate(inputs),
)


def _evaluate(inputs: AuditInputs) -> Audit:
    premises = lemma_18(inputs.alpha, inputs.forcing, inputs.D).hypotheses
    audit = remark_20(within(inputs.alpha, inputs.D.present))
    return audit.add_hypotheses({name: premises[name] for name in _MONOTONE_KERNEL})


@jax.jit
def remark_20(alpha: Float[ArrayLike, "n n"]) -> Audit:
    """Evaluate whether Ṗ = −αP + b is cooperative: no α_ij above 0 for i ≠ j (Hirsch 1985).

    Hypothesis: the symmetric α, from `jaxpe.ntk.positional_ntk`, has no negative entry, as in
    Definition 10; the rest of that definition is (A1) of `lemma_18`. Entries within rounding of
    the largest count as 0. Conclusion: cooperative. The two exclude each other unless all entries
    off the diagonal are 0. If the flow is cooperative and α ≻ 0, then α is an M-matrix, α⁻¹ ≥ 0,
    and a forcing b ≥ 0 leads to positions P* ≥ 0.

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
