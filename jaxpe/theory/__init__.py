"""Published statements as functions that return both sides: a package for each paper."""

from jaxpe.theory import cirrincione2026, kazemnejad2023, li2025
from jaxpe.theory.audit import verdict
from jaxpe.theory.cirrincione2026.conjecture_5_monotonicity import conjecture_5
from jaxpe.theory.cirrincione2026.corollary_15_loss_families import corollary_15
from jaxpe.theory.cirrincione2026.lemma_11_masked_gradient import lemma_11
from jaxpe.theory.cirrincione2026.lemma_12_masked_forcing import lemma_12
from jaxpe.theory.cirrincione2026.lemma_14_lipschitz_forcing import lemma_14
from jaxpe.theory.cirrincione2026.lemma_16_lipschitz_constants import lemma_16
from jaxpe.theory.cirrincione2026.lemma_18_fixed_point import lemma_18
from jaxpe.theory.cirrincione2026.proposition_6_strain import proposition_6
from jaxpe.theory.cirrincione2026.remark_7_stationarity import remark_7
from jaxpe.theory.cirrincione2026.remark_8_low_rank import remark_8
from jaxpe.theory.cirrincione2026.remark_20_cooperative_flow import remark_20
from jaxpe.theory.cirrincione2026.theorem_1_equivariance import theorem_1
from jaxpe.theory.cirrincione2026.theorem_4_separation import theorem_4
from jaxpe.theory.kazemnejad2023.theorem_1_absolute_positions import nope_theorem_1
from jaxpe.theory.kazemnejad2023.theorem_2_relative_positions import nope_theorem_2
from jaxpe.theory.li2025.equation_9_alibi_weights import equation_9
from jaxpe.theory.li2025.section_4_2_alibi_bias import section_4_alibi
from jaxpe.theory.li2025.section_4_2_lipschitz import section_4_lipschitz
from jaxpe.theory.li2025.section_4_2_norms import section_4_norms
from jaxpe.theory.li2025.section_4_rademacher_complexity import section_4_rademacher
from jaxpe.theory.li2025.section_6_1_wavelets import section_6_wavelet
from jaxpe.theory.li2025.section_6_2_legendre import section_6_legendre
from jaxpe.theory.monotone_fit import explained_by_chance, monotone_fit, pairs

__all__ = [
    "STATEMENTS", "conjecture_5", "corollary_15", "equation_9", "explained_by_chance",
    "lemma_11", "lemma_12", "lemma_14", "lemma_16", "lemma_18", "monotone_fit", "nope_theorem_1",
    "nope_theorem_2", "pairs", "proposition_6", "remark_7", "remark_8", "remark_20",
    "section_4_alibi", "section_4_lipschitz", "section_4_norms", "section_4_rademacher",
    "section_6_legendre", "section_6_wavelet", "theorem_1", "theorem_4", "verdict",
]  # fmt: skip

# Statements about any model and corpus, in the order of the paper. `jaxpe audit` evaluates them.
STATEMENTS = cirrincione2026.STATEMENTS

# Statements about models that their experiments build or train.
STATEMENTS_ON_OWN_MODELS = (*kazemnejad2023.STATEMENTS, *li2025.STATEMENTS)
