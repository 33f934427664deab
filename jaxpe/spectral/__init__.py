"""Spectra of attention logits: Toeplitz structure, contraction, parts of content and position.

16-bit floats and integers are computed in float32 or wider. NaN and inf give NaN or inf, and so do
numbers whose products overflow (beyond 1e18 in float32).
"""

from jaxpe.geometry.distances.toeplitz import (
    circulant_projection,
    circulant_residual,
    toeplitz_projection,
    toeplitz_residual,
)
from jaxpe.spectral.ablation import (
    Ablation,
    Deposit,
    HeadSums,
    ablate_heads,
    deposit,
    sum_heads,
)
from jaxpe.spectral.contraction import (
    SchurBounds,
    Spectrum,
    amplitude,
    contraction_ratio,
    phase_mixing,
    schur_bounds,
    spectrum,
)
from jaxpe.spectral.decomposition import (
    LogitParts,
    PairLogits,
    PartMeans,
    PartSums,
    ToeplitzShares,
    logit_parts,
    pair_logits,
    sum_parts,
    toeplitz_shares,
)
from jaxpe.spectral.norms import OperatorNorm, operator_norm, spectral_norm
from jaxpe.spectral.profile import (
    AttentionProfile,
    attention_distance,
    attention_entropy,
    attention_evenness,
    attention_profile,
    first_share,
    near_share,
)
from jaxpe.spectral.toeplitz import (
    Szego,
    diagonal_means,
    symbol,
    symmetric_part,
    szego,
    toeplitz_matrix,
)

__all__ = [
    "Ablation", "AttentionProfile", "Deposit", "HeadSums", "LogitParts", "OperatorNorm",
    "PairLogits", "PartMeans", "PartSums", "SchurBounds", "Spectrum", "Szego", "ToeplitzShares",
    "ablate_heads", "amplitude", "attention_distance", "attention_entropy", "attention_evenness",
    "attention_profile", "circulant_projection", "circulant_residual", "contraction_ratio",
    "deposit", "diagonal_means", "first_share", "logit_parts",
    "near_share", "operator_norm", "pair_logits", "phase_mixing", "schur_bounds", "spectral_norm",
    "spectrum", "sum_heads", "sum_parts", "symbol", "symmetric_part", "szego", "toeplitz_matrix",
    "toeplitz_projection", "toeplitz_residual", "toeplitz_shares",
]  # fmt: skip
