"""Statements of Li (2025), on expressiveness, generalisation and extrapolation."""

from jaxpe.theory.li2025.equation_9_alibi_weights import equation_9
from jaxpe.theory.li2025.section_4_2_alibi_bias import section_4_alibi
from jaxpe.theory.li2025.section_4_2_lipschitz import section_4_lipschitz
from jaxpe.theory.li2025.section_4_2_norms import section_4_norms
from jaxpe.theory.li2025.section_4_rademacher_complexity import (
    section_4_rademacher,
)
from jaxpe.theory.li2025.section_6_1_wavelets import section_6_wavelet
from jaxpe.theory.li2025.section_6_2_legendre import section_6_legendre
from jaxpe.theory.statements import read_statements

__all__ = [
    "STATEMENTS", "equation_9", "section_4_alibi", "section_4_lipschitz", "section_4_norms",
    "section_4_rademacher", "section_6_legendre", "section_6_wavelet",
]  # fmt: skip

# The statements of this paper, in its order.
STATEMENTS = read_statements("li2025")
