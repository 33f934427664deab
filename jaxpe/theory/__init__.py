"""Published statements as functions that return both sides, one file each."""

from jaxpe.theory.audit import Audit as Audit
from jaxpe.theory.audit import Comparison as Comparison
from jaxpe.theory.audit import Statement as Statement
from jaxpe.theory.audit import all_at_most as all_at_most
from jaxpe.theory.audit import at_most as at_most
from jaxpe.theory.audit import met as met
from jaxpe.theory.audit import verdict as verdict
from jaxpe.theory.cirrincione2026.conjecture_5_monotonicity import STATEMENT as _CONJECTURE_5
from jaxpe.theory.cirrincione2026.conjecture_5_monotonicity import (
    MonotonicityTest as MonotonicityTest,
)
from jaxpe.theory.cirrincione2026.conjecture_5_monotonicity import conjecture_5 as conjecture_5
from jaxpe.theory.cirrincione2026.conjecture_5_monotonicity import (
    even_positions_loss as even_positions_loss,
)
from jaxpe.theory.cirrincione2026.conjecture_5_monotonicity import (
    monotonicity_test as monotonicity_test,
)
from jaxpe.theory.cirrincione2026.corollary_15_loss_families import STATEMENT as _COROLLARY_15
from jaxpe.theory.cirrincione2026.corollary_15_loss_families import corollary_15 as corollary_15
from jaxpe.theory.cirrincione2026.lemma_11_masked_gradient import STATEMENT as _LEMMA_11
from jaxpe.theory.cirrincione2026.lemma_11_masked_gradient import lemma_11 as lemma_11
from jaxpe.theory.cirrincione2026.lemma_12_masked_forcing import STATEMENT as _LEMMA_12
from jaxpe.theory.cirrincione2026.lemma_12_masked_forcing import lemma_12 as lemma_12
from jaxpe.theory.cirrincione2026.lemma_14_lipschitz_forcing import STATEMENT as _LEMMA_14
from jaxpe.theory.cirrincione2026.lemma_14_lipschitz_forcing import lemma_14 as lemma_14
from jaxpe.theory.cirrincione2026.lemma_16_lipschitz_constants import STATEMENT as _LEMMA_16
from jaxpe.theory.cirrincione2026.lemma_16_lipschitz_constants import lemma_16 as lemma_16
from jaxpe.theory.cirrincione2026.lemma_18_fixed_point import STATEMENT as _LEMMA_18
from jaxpe.theory.cirrincione2026.lemma_18_fixed_point import lemma_18 as lemma_18
from jaxpe.theory.cirrincione2026.proposition_6_strain import STATEMENT as _PROPOSITION_6
from jaxpe.theory.cirrincione2026.proposition_6_strain import proposition_6 as proposition_6
from jaxpe.theory.cirrincione2026.proposition_6_strain import strain as strain
from jaxpe.theory.cirrincione2026.remark_7_stationarity import STATEMENT as _REMARK_7
from jaxpe.theory.cirrincione2026.remark_7_stationarity import remark_7 as remark_7
from jaxpe.theory.cirrincione2026.remark_7_stationarity import (
    stationary_squared_distances as stationary_squared_distances,
)
from jaxpe.theory.cirrincione2026.remark_7_stationarity import (
    unexplained_by_offset as unexplained_by_offset,
)
from jaxpe.theory.cirrincione2026.remark_8_low_rank import STATEMENT as _REMARK_8
from jaxpe.theory.cirrincione2026.remark_8_low_rank import LowRankDescent as LowRankDescent
from jaxpe.theory.cirrincione2026.remark_8_low_rank import low_rank_descent as low_rank_descent
from jaxpe.theory.cirrincione2026.remark_8_low_rank import remark_8 as remark_8
from jaxpe.theory.cirrincione2026.remark_20_cooperative_flow import STATEMENT as _REMARK_20
from jaxpe.theory.cirrincione2026.remark_20_cooperative_flow import remark_20 as remark_20
from jaxpe.theory.cirrincione2026.theorem_1_equivariance import STATEMENT as _THEOREM_1
from jaxpe.theory.cirrincione2026.theorem_1_equivariance import theorem_1 as theorem_1
from jaxpe.theory.cirrincione2026.theorem_4_separation import STATEMENT as _THEOREM_4
from jaxpe.theory.cirrincione2026.theorem_4_separation import theorem_4 as theorem_4
from jaxpe.theory.divergences import kl_constant as kl_constant
from jaxpe.theory.divergences import kl_divergences as kl_divergences
from jaxpe.theory.divergences import kl_lower_bound as kl_lower_bound
from jaxpe.theory.divergences import kl_ratio as kl_ratio
from jaxpe.theory.divergences import total_variation as total_variation
from jaxpe.theory.divergences import total_variation_bound as total_variation_bound
from jaxpe.theory.gradients import PositionGradients as PositionGradients
from jaxpe.theory.gradients import forcing_of_means as forcing_of_means
from jaxpe.theory.gradients import mean_embeddings as mean_embeddings
from jaxpe.theory.gradients import position_gradients as position_gradients
from jaxpe.theory.kazemnejad2023.theorem_1_absolute_positions import STATEMENT as _NOPE_THEOREM_1
from jaxpe.theory.kazemnejad2023.theorem_1_absolute_positions import (
    nope_theorem_1 as nope_theorem_1,
)
from jaxpe.theory.kazemnejad2023.theorem_2_relative_positions import STATEMENT as _NOPE_THEOREM_2
from jaxpe.theory.kazemnejad2023.theorem_2_relative_positions import (
    nope_theorem_2 as nope_theorem_2,
)
from jaxpe.theory.li2025.equation_9_alibi_weights import STATEMENT as _EQUATION_9
from jaxpe.theory.li2025.equation_9_alibi_weights import equation_9 as equation_9
from jaxpe.theory.li2025.section_4_2_alibi_bias import STATEMENT as _SECTION_4_ALIBI
from jaxpe.theory.li2025.section_4_2_alibi_bias import section_4_alibi as section_4_alibi
from jaxpe.theory.li2025.section_4_2_lipschitz import STATEMENT as _SECTION_4_LIPSCHITZ
from jaxpe.theory.li2025.section_4_2_lipschitz import section_4_lipschitz as section_4_lipschitz
from jaxpe.theory.li2025.section_4_2_norms import STATEMENT as _SECTION_4_NORMS
from jaxpe.theory.li2025.section_4_2_norms import section_4_norms as section_4_norms
from jaxpe.theory.li2025.section_4_rademacher import STATEMENT as _SECTION_4_RADEMACHER
from jaxpe.theory.li2025.section_4_rademacher import section_4_rademacher as section_4_rademacher
from jaxpe.theory.li2025.section_6_1_wavelets import STATEMENT as _SECTION_6_WAVELET
from jaxpe.theory.li2025.section_6_1_wavelets import section_6_wavelet as section_6_wavelet
from jaxpe.theory.li2025.section_6_2_legendre import STATEMENT as _SECTION_6_LEGENDRE
from jaxpe.theory.li2025.section_6_2_legendre import section_6_legendre as section_6_legendre
from jaxpe.theory.monotone_fit import MonotoneFit as MonotoneFit
from jaxpe.theory.monotone_fit import explained_by_chance as explained_by_chance
from jaxpe.theory.monotone_fit import monotone_fit as monotone_fit
from jaxpe.theory.monotone_fit import pairs as pairs

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
