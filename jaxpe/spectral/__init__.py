"""Spectra of attention logits: Toeplitz structure, contraction, parts of content and position.

16-bit floats and integers are computed in float32 or wider. NaN and inf give NaN or inf, and so do
numbers whose products overflow (beyond 1e18 in float32).
"""

from jaxpe.spectral.ablation import ablate_heads, deposit, sum_heads
from jaxpe.spectral.contraction import contraction_ratio, phase_mixing, schur_bounds, spectrum
from jaxpe.spectral.decomposition import logit_parts, sum_parts, toeplitz_shares
from jaxpe.spectral.profile import attention_profile
from jaxpe.spectral.toeplitz import diagonal_means, symbol, szego, toeplitz_matrix

__all__ = [
    "ablate_heads", "attention_profile", "contraction_ratio", "deposit", "diagonal_means",
    "logit_parts", "phase_mixing", "schur_bounds", "spectrum", "sum_heads", "sum_parts",
    "symbol", "szego", "toeplitz_matrix", "toeplitz_shares",
]  # fmt: skip
