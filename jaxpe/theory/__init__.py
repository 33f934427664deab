"""Published statements as functions that return both sides, one file each."""

from jaxpe.theory.audit import (
    Audit,
    Comparison,
    Statement,
    all_at_most,
    at_most,
    met,
    verdict,
)
from jaxpe.theory.cirrincione2026.conjecture_5_monotonicity import (
    STATEMENT as _CONJECTURE_5,
)
from jaxpe.theory.cirrincione2026.conjecture_5_monotonicity import (
    MonotonicityTest,
    conjecture_5,
    even_positions_loss,
    monotonicity_test,
)
from jaxpe.theory.cirrincione2026.corollary_15_loss_families import (
    STATEMENT as _COROLLARY_15,
)
from jaxpe.theory.cirrincione2026.corollary_15_loss_families import (
    corollary_15,
)
from jaxpe.theory.cirrincione2026.lemma_11_masked_gradient import (
    STATEMENT as _LEMMA_11,
)
from jaxpe.theory.cirrincione2026.lemma_11_masked_gradient import (
    lemma_11,
)
from jaxpe.theory.cirrincione2026.lemma_12_masked_forcing import (
    STATEMENT as _LEMMA_12,
)
from jaxpe.theory.cirrincione2026.lemma_12_masked_forcing import (
    lemma_12,
)
from jaxpe.theory.cirrincione2026.lemma_14_lipschitz_forcing import (
    STATEMENT as _LEMMA_14,
)
from jaxpe.theory.cirrincione2026.lemma_14_lipschitz_forcing import (
    lemma_14,
)
from jaxpe.theory.cirrincione2026.lemma_16_lipschitz_constants import (
    STATEMENT as _LEMMA_16,
)
from jaxpe.theory.cirrincione2026.lemma_16_lipschitz_constants import (
    lemma_16,
)
from jaxpe.theory.cirrincione2026.lemma_18_fixed_point import (
    STATEMENT as _LEMMA_18,
)
from jaxpe.theory.cirrincione2026.lemma_18_fixed_point import (
    lemma_18,
)
from jaxpe.theory.cirrincione2026.proposition_6_strain import (
    STATEMENT as _PROPOSITION_6,
)
from jaxpe.theory.cirrincione2026.proposition_6_strain import (
    proposition_6,
    strain,
)
from jaxpe.theory.cirrincione2026.remark_7_stationarity import (
    STATEMENT as _REMARK_7,
)
from jaxpe.theory.cirrincione2026.remark_7_stationarity import (
    remark_7,
    stationary_squared_distances,
    unexplained_by_offset,
)
from jaxpe.theory.cirrincione2026.remark_8_low_rank import (
    STATEMENT as _REMARK_8,
)
from jaxpe.theory.cirrincione2026.remark_8_low_rank import (
    LowRankDescent,
    low_rank_descent,
    remark_8,
)
from jaxpe.theory.cirrincione2026.remark_20_cooperative_flow import (
    STATEMENT as _REMARK_20,
)
from jaxpe.theory.cirrincione2026.remark_20_cooperative_flow import (
    remark_20,
)
from jaxpe.theory.cirrincione2026.theorem_1_equivariance import (
    STATEMENT as _THEOREM_1,
)
from jaxpe.theory.cirrincione2026.theorem_1_equivariance import (
    theorem_1,
)
from jaxpe.theory.cirrincione2026.theorem_4_separation import (
    STATEMENT as _THEOREM_4,
)
from jaxpe.theory.cirrincione2026.theorem_4_separation import (
    theorem_4,
)
from jaxpe.theory.divergences import (
    kl_constant,
    kl_divergences,
    kl_lower_bound,
    kl_ratio,
    total_variation,
    total_variation_bound,
)
from jaxpe.theory.gradients import (
    PositionGradients,
    forcing_of_means,
    mean_embeddings,
    position_gradients,
)
from jaxpe.theory.kazemnejad2023.theorem_1_absolute_positions import (
    STATEMENT as _NOPE_THEOREM_1,
)
from jaxpe.theory.kazemnejad2023.theorem_1_absolute_positions import (
    nope_theorem_1,
)
from jaxpe.theory.kazemnejad2023.theorem_2_relative_positions import (
    STATEMENT as _NOPE_THEOREM_2,
)
from jaxpe.theory.kazemnejad2023.theorem_2_relative_positions import (
    nope_theorem_2,
)
from jaxpe.theory.li2025.equation_9_alibi_weights import (
    STATEMENT as _EQUATION_9,
)
from jaxpe.theory.li2025.equation_9_alibi_weights import (
    equation_9,
)
from jaxpe.theory.li2025.section_4_2_alibi_bias import (
    STATEMENT as _SECTION_4_ALIBI,
)
from jaxpe.theory.li2025.section_4_2_alibi_bias import (
    section_4_alibi,
)
from jaxpe.theory.li2025.section_4_2_lipschitz import (
    STATEMENT as _SECTION_4_LIPSCHITZ,
)
from jaxpe.theory.li2025.section_4_2_lipschitz import (
    section_4_lipschitz,
)
from jaxpe.theory.li2025.section_4_2_norms import (
    STATEMENT as _SECTION_4_NORMS,
)
from jaxpe.theory.li2025.section_4_2_norms import (
    section_4_norms,
)
from jaxpe.theory.li2025.section_4_rademacher import (
    STATEMENT as _SECTION_4_RADEMACHER,
)
from jaxpe.theory.li2025.section_4_rademacher import (
    section_4_rademacher,
)
from jaxpe.theory.li2025.section_6_1_wavelets import (
    STATEMENT as _SECTION_6_WAVELET,
)
from jaxpe.theory.li2025.section_6_1_wavelets import (
    section_6_wavelet,
)
from jaxpe.theory.li2025.section_6_2_legendre import (
    STATEMENT as _SECTION_6_LEGENDRE,
)
from jaxpe.theory.li2025.section_6_2_legendre import (
    section_6_legendre,
)
from jaxpe.theory.monotone_fit import (
    MonotoneFit,
    explained_by_chance,
    monotone_fit,
    pairs,
)

__all__ = [
    "STATEMENTS",
    "STATEMENTS_ON_OWN_MODELS",
    "Audit",
    "Comparison",
    "LowRankDescent",
    "MonotoneFit",
    "MonotonicityTest",
    "PositionGradients",
    "Statement",
    "all_at_most",
    "at_most",
    "conjecture_5",
    "corollary_15",
    "equation_9",
    "even_positions_loss",
    "explained_by_chance",
    "forcing_of_means",
    "kl_constant",
    "kl_divergences",
    "kl_lower_bound",
    "kl_ratio",
    "lemma_11",
    "lemma_12",
    "lemma_14",
    "lemma_16",
    "lemma_18",
    "low_rank_descent",
    "mean_embeddings",
    "met",
    "monotone_fit",
    "monotonicity_test",
    "nope_theorem_1",
    "nope_theorem_2",
    "pairs",
    "position_gradients",
    "proposition_6",
    "remark_7",
    "remark_8",
    "remark_20",
    "section_4_alibi",
    "section_4_lipschitz",
    "section_4_norms",
    "section_4_rademacher",
    "section_6_legendre",
    "section_6_wavelet",
    "stationary_squared_distances",
    "strain",
    "theorem_1",
    "theorem_4",
    "total_variation",
    "total_variation_bound",
    "unexplained_by_offset",
    "verdict",
]

# Of any model and corpus, what `jaxpe audit` evaluates; in the order of their paper.
STATEMENTS = (
    _THEOREM_1,
    _THEOREM_4,
    _CONJECTURE_5,
    _PROPOSITION_6,
    _REMARK_7,
    _REMARK_8,
    _LEMMA_11,
    _LEMMA_12,
    _LEMMA_14,
    _COROLLARY_15,
    _LEMMA_16,
    _LEMMA_18,
    _REMARK_20,
)

# Of models built or trained for them, by their experiments.
STATEMENTS_ON_OWN_MODELS = (
    _NOPE_THEOREM_1,
    _NOPE_THEOREM_2,
    _SECTION_4_LIPSCHITZ,
    _SECTION_4_ALIBI,
    _SECTION_4_NORMS,
    _SECTION_4_RADEMACHER,
    _EQUATION_9,
    _SECTION_6_WAVELET,
    _SECTION_6_LEGENDRE,
)
