"""Published statements as functions that return both sides, one file each."""

from jaxpe.theory.audit import Audit as Audit
from jaxpe.theory.audit import Comparison as Comparison
from jaxpe.theory.audit import Statement as Statement
from jaxpe.theory.audit import all_at_most as all_at_most
from jaxpe.theory.audit import at_most as at_most
from jaxpe.theory.audit import met as met
from jaxpe.theory.audit import verdict as verdict
from jaxpe.theory.conjecture_5 import STATEMENT as _CONJECTURE_5
from jaxpe.theory.conjecture_5 import MonotonicityTest as MonotonicityTest
from jaxpe.theory.conjecture_5 import conjecture_5 as conjecture_5
from jaxpe.theory.conjecture_5 import even_positions_loss as even_positions_loss
from jaxpe.theory.conjecture_5 import monotonicity_test as monotonicity_test
from jaxpe.theory.corollary_15 import STATEMENT as _COROLLARY_15
from jaxpe.theory.corollary_15 import corollary_15 as corollary_15
from jaxpe.theory.divergences import kl_constant as kl_constant
from jaxpe.theory.divergences import kl_divergences as kl_divergences
from jaxpe.theory.divergences import kl_lower_bound as kl_lower_bound
from jaxpe.theory.divergences import kl_ratio as kl_ratio
from jaxpe.theory.divergences import total_variation as total_variation
from jaxpe.theory.divergences import total_variation_bound as total_variation_bound
from jaxpe.theory.equation_9 import STATEMENT as _EQUATION_9
from jaxpe.theory.equation_9 import equation_9 as equation_9
from jaxpe.theory.gradients import PositionGradients as PositionGradients
from jaxpe.theory.gradients import forcing_of_means as forcing_of_means
from jaxpe.theory.gradients import mean_embeddings as mean_embeddings
from jaxpe.theory.gradients import position_gradients as position_gradients
from jaxpe.theory.lemma_11 import STATEMENT as _LEMMA_11
from jaxpe.theory.lemma_11 import lemma_11 as lemma_11
from jaxpe.theory.lemma_12 import STATEMENT as _LEMMA_12
from jaxpe.theory.lemma_12 import lemma_12 as lemma_12
from jaxpe.theory.lemma_14 import STATEMENT as _LEMMA_14
from jaxpe.theory.lemma_14 import lemma_14 as lemma_14
from jaxpe.theory.lemma_16 import STATEMENT as _LEMMA_16
from jaxpe.theory.lemma_16 import lemma_16 as lemma_16
from jaxpe.theory.lemma_18 import STATEMENT as _LEMMA_18
from jaxpe.theory.lemma_18 import lemma_18 as lemma_18
from jaxpe.theory.monotone_fit import MonotoneFit as MonotoneFit
from jaxpe.theory.monotone_fit import explained_by_chance as explained_by_chance
from jaxpe.theory.monotone_fit import monotone_fit as monotone_fit
from jaxpe.theory.monotone_fit import pairs as pairs
from jaxpe.theory.nope_theorem_1 import STATEMENT as _NOPE_THEOREM_1
from jaxpe.theory.nope_theorem_1 import nope_theorem_1 as nope_theorem_1
from jaxpe.theory.nope_theorem_2 import STATEMENT as _NOPE_THEOREM_2
from jaxpe.theory.nope_theorem_2 import nope_theorem_2 as nope_theorem_2
from jaxpe.theory.proposition_6 import STATEMENT as _PROPOSITION_6
from jaxpe.theory.proposition_6 import proposition_6 as proposition_6
from jaxpe.theory.proposition_6 import strain as strain
from jaxpe.theory.remark_7 import STATEMENT as _REMARK_7
from jaxpe.theory.remark_7 import remark_7 as remark_7
from jaxpe.theory.remark_7 import stationary_squared_distances as stationary_squared_distances
from jaxpe.theory.remark_7 import unexplained_by_offset as unexplained_by_offset
from jaxpe.theory.remark_8 import STATEMENT as _REMARK_8
from jaxpe.theory.remark_8 import LowRankDescent as LowRankDescent
from jaxpe.theory.remark_8 import low_rank_descent as low_rank_descent
from jaxpe.theory.remark_8 import remark_8 as remark_8
from jaxpe.theory.remark_20 import STATEMENT as _REMARK_20
from jaxpe.theory.remark_20 import remark_20 as remark_20
from jaxpe.theory.section_4_alibi import STATEMENT as _SECTION_4_ALIBI
from jaxpe.theory.section_4_alibi import section_4_alibi as section_4_alibi
from jaxpe.theory.section_4_lipschitz import STATEMENT as _SECTION_4_LIPSCHITZ
from jaxpe.theory.section_4_lipschitz import section_4_lipschitz as section_4_lipschitz
from jaxpe.theory.section_4_norms import STATEMENT as _SECTION_4_NORMS
from jaxpe.theory.section_4_norms import section_4_norms as section_4_norms
from jaxpe.theory.section_4_rademacher import STATEMENT as _SECTION_4_RADEMACHER
from jaxpe.theory.section_4_rademacher import section_4_rademacher as section_4_rademacher
from jaxpe.theory.section_6_legendre import STATEMENT as _SECTION_6_LEGENDRE
from jaxpe.theory.section_6_legendre import section_6_legendre as section_6_legendre
from jaxpe.theory.section_6_wavelet import STATEMENT as _SECTION_6_WAVELET
from jaxpe.theory.section_6_wavelet import section_6_wavelet as section_6_wavelet
from jaxpe.theory.theorem_1 import STATEMENT as _THEOREM_1
from jaxpe.theory.theorem_1 import theorem_1 as theorem_1
from jaxpe.theory.theorem_4 import STATEMENT as _THEOREM_4
from jaxpe.theory.theorem_4 import theorem_4 as theorem_4

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
