"""Statements of Cirrincione (2026), On the Geometry of Positional Encodings in Transformers."""

from jaxpe.theory.cirrincione2026.conjecture_5_monotonicity import (
    MonotonicityTest,
    conjecture_5,
    monotonicity_test,
    outer_words_loss,
)
from jaxpe.theory.cirrincione2026.corollary_15_loss_families import corollary_15
from jaxpe.theory.cirrincione2026.evaluations import EVALUATIONS, AuditInputs
from jaxpe.theory.cirrincione2026.lemma_11_masked_gradient import lemma_11
from jaxpe.theory.cirrincione2026.lemma_12_masked_forcing import lemma_12
from jaxpe.theory.cirrincione2026.lemma_14_lipschitz_forcing import lemma_14
from jaxpe.theory.cirrincione2026.lemma_16_lipschitz_constants import lemma_16
from jaxpe.theory.cirrincione2026.lemma_18_fixed_point import lemma_18
from jaxpe.theory.cirrincione2026.proposition_6_strain import proposition_6, strain
from jaxpe.theory.cirrincione2026.remark_7_stationarity import (
    remark_7,
    stationary_squared_distances,
    unexplained_by_offset,
)
from jaxpe.theory.cirrincione2026.remark_8_low_rank import (
    LowRankDescent,
    low_rank_descent,
    remark_8,
)
from jaxpe.theory.cirrincione2026.remark_20_cooperative_flow import remark_20
from jaxpe.theory.cirrincione2026.theorem_1_equivariance import theorem_1
from jaxpe.theory.cirrincione2026.theorem_4_separation import theorem_4
from jaxpe.theory.statements import read_statements

__all__ = [
    "EVALUATIONS", "STATEMENTS", "AuditInputs", "LowRankDescent", "MonotonicityTest",
    "conjecture_5", "corollary_15", "lemma_11", "lemma_12", "lemma_14", "lemma_16", "lemma_18",
    "low_rank_descent", "monotonicity_test", "outer_words_loss", "proposition_6", "remark_7",
    "remark_8", "remark_20", "stationary_squared_distances", "strain", "theorem_1", "theorem_4",
    "unexplained_by_offset",
]  # fmt: skip

# The statements of this paper, in its order.
STATEMENTS = read_statements("cirrincione2026")
