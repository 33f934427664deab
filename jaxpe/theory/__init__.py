"""Published statements as functions that return both sides: a package for each paper."""

from jaxpe.theory import cirrincione2026, kazemnejad2023, li2025
from jaxpe.theory.audit import (
    Audit,
    Comparison,
    all_less_equal,
    boolean,
    less_equal,
    verdict,
)
from jaxpe.theory.cirrincione2026 import (
    EVALUATIONS,
    LowRankDescent,
    MonotonicityTest,
    conjecture_5,
    corollary_15,
    lemma_11,
    lemma_12,
    lemma_14,
    lemma_16,
    lemma_18,
    low_rank_descent,
    monotonicity_test,
    outer_words_loss,
    proposition_6,
    remark_7,
    remark_8,
    remark_20,
    stationary_squared_distances,
    strain,
    theorem_1,
    theorem_4,
    unexplained_by_offset,
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
from jaxpe.theory.kazemnejad2023 import nope_theorem_1, nope_theorem_2
from jaxpe.theory.li2025 import (
    equation_9,
    section_4_alibi,
    section_4_lipschitz,
    section_4_norms,
    section_4_rademacher,
    section_6_legendre,
    section_6_wavelet,
)
from jaxpe.theory.monotone_fit import MonotoneFit, explained_by_chance, monotone_fit, pairs
from jaxpe.theory.statements import Statement

__all__ = [
    "EVALUATIONS", "STATEMENTS", "STATEMENTS_ON_OWN_MODELS", "Audit", "Comparison",
    "LowRankDescent", "MonotoneFit", "MonotonicityTest", "PositionGradients", "Statement",
    "all_less_equal", "boolean", "cirrincione2026", "conjecture_5", "corollary_15", "equation_9",
    "explained_by_chance", "forcing_of_means", "kazemnejad2023", "kl_constant", "kl_divergences",
    "kl_lower_bound", "kl_ratio", "lemma_11", "lemma_12", "lemma_14", "lemma_16", "lemma_18",
    "less_equal", "li2025", "low_rank_descent", "mean_embeddings", "monotone_fit",
    "monotonicity_test", "nope_theorem_1", "nope_theorem_2", "outer_words_loss", "pairs",
    "position_gradients", "proposition_6", "remark_7", "remark_8", "remark_20", "section_4_alibi",
    "section_4_lipschitz", "section_4_norms", "section_4_rademacher", "section_6_legendre",
    "section_6_wavelet", "stationary_squared_distances", "strain", "theorem_1", "theorem_4",
    "total_variation", "total_variation_bound", "unexplained_by_offset", "verdict",
]  # fmt: skip

# Statements about any model and corpus, in the order of the paper. `jaxpe audit` evaluates them.
STATEMENTS = cirrincione2026.STATEMENTS

# Statements about models that their experiments build or train.
STATEMENTS_ON_OWN_MODELS = (*kazemnejad2023.STATEMENTS, *li2025.STATEMENTS)
