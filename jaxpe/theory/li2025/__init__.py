"""Statements of Li (2025), on expressiveness, generalisation and extrapolation."""

from jaxpe.theory.li2025.equation_9_alibi_weights import EQUATION_9, equation_9
from jaxpe.theory.li2025.section_4_2_alibi_bias import SECTION_4_ALIBI, section_4_alibi
from jaxpe.theory.li2025.section_4_2_lipschitz import SECTION_4_LIPSCHITZ, section_4_lipschitz
from jaxpe.theory.li2025.section_4_2_norms import SECTION_4_NORMS, section_4_norms
from jaxpe.theory.li2025.section_4_rademacher_complexity import (
    SECTION_4_RADEMACHER,
    section_4_rademacher,
)
from jaxpe.theory.li2025.section_6_1_wavelets import SECTION_6_WAVELET, section_6_wavelet
from jaxpe.theory.li2025.section_6_2_legendre import SECTION_6_LEGENDRE, section_6_legendre

__all__ = [
    "STATEMENTS", "equation_9", "section_4_alibi", "section_4_lipschitz", "section_4_norms",
    "section_4_rademacher", "section_6_legendre", "section_6_wavelet",
]  # fmt: skip

# The statements of this paper, in its order.
STATEMENTS = (
    SECTION_4_LIPSCHITZ, SECTION_4_ALIBI, SECTION_4_NORMS, SECTION_4_RADEMACHER, EQUATION_9,
    SECTION_6_WAVELET, SECTION_6_LEGENDRE,
)  # fmt: skip
