"""Spectra of attention logits: Toeplitz structure, contraction, parts of content and position.

16 bits and integers are computed with in float32 or wider. NaN and inf give NaN or inf, and so do
numbers whose products are no float (beyond 1e18 in float32).
"""

from jaxpe.geometry.toeplitz import circulant_projection as circulant_projection
from jaxpe.geometry.toeplitz import circulant_residual as circulant_residual
from jaxpe.geometry.toeplitz import toeplitz_projection as toeplitz_projection
from jaxpe.geometry.toeplitz import toeplitz_residual as toeplitz_residual
from jaxpe.spectral.ablation import Ablation as Ablation
from jaxpe.spectral.ablation import Deposit as Deposit
from jaxpe.spectral.ablation import HeadSums as HeadSums
from jaxpe.spectral.ablation import ablate_heads as ablate_heads
from jaxpe.spectral.ablation import deposit as deposit
from jaxpe.spectral.ablation import head_gates as head_gates
from jaxpe.spectral.ablation import sum_heads as sum_heads
from jaxpe.spectral.contraction import SchurBounds as SchurBounds
from jaxpe.spectral.contraction import Spectrum as Spectrum
from jaxpe.spectral.contraction import amplitude as amplitude
from jaxpe.spectral.contraction import contraction_ratio as contraction_ratio
from jaxpe.spectral.contraction import phase_mixing as phase_mixing
from jaxpe.spectral.contraction import schur_bounds as schur_bounds
from jaxpe.spectral.contraction import spectrum as spectrum
from jaxpe.spectral.decomposition import LogitParts as LogitParts
from jaxpe.spectral.decomposition import PairLogits as PairLogits
from jaxpe.spectral.decomposition import PartMeans as PartMeans
from jaxpe.spectral.decomposition import PartSums as PartSums
from jaxpe.spectral.decomposition import RotaryParts as RotaryParts
from jaxpe.spectral.decomposition import ToeplitzShares as ToeplitzShares
from jaxpe.spectral.decomposition import logit_parts as logit_parts
from jaxpe.spectral.decomposition import pair_logits as pair_logits
from jaxpe.spectral.decomposition import rotary_parts as rotary_parts
from jaxpe.spectral.decomposition import sum_parts as sum_parts
from jaxpe.spectral.decomposition import toeplitz_shares as toeplitz_shares
from jaxpe.spectral.norms import OperatorNorm as OperatorNorm
from jaxpe.spectral.norms import largest_quotient as largest_quotient
from jaxpe.spectral.norms import operator_norm as operator_norm
from jaxpe.spectral.norms import spectral_norm as spectral_norm
from jaxpe.spectral.profile import AttentionProfile as AttentionProfile
from jaxpe.spectral.profile import attention_distance as attention_distance
from jaxpe.spectral.profile import attention_entropy as attention_entropy
from jaxpe.spectral.profile import attention_evenness as attention_evenness
from jaxpe.spectral.profile import attention_profile as attention_profile
from jaxpe.spectral.profile import first_share as first_share
from jaxpe.spectral.profile import near_share as near_share
from jaxpe.spectral.toeplitz import Szego as Szego
from jaxpe.spectral.toeplitz import diagonal_means as diagonal_means
from jaxpe.spectral.toeplitz import symbol as symbol
from jaxpe.spectral.toeplitz import symmetric_part as symmetric_part
from jaxpe.spectral.toeplitz import szego as szego
from jaxpe.spectral.toeplitz import toeplitz_matrix as toeplitz_matrix
from jaxpe.spectral.toeplitz import toeplitz_matvec as toeplitz_matvec
