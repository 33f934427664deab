"""jaxpe: the geometry of positional encodings, in JAX."""

import importlib

from jaxpe.encodings import CATALOGUE as CATALOGUE
from jaxpe.encodings import CatalogueEntry as CatalogueEntry
from jaxpe.encodings import DynamicScaling as DynamicScaling
from jaxpe.encodings import Encoding as Encoding
from jaxpe.encodings import EncodingProperties as EncodingProperties
from jaxpe.encodings import EncodingSizes as EncodingSizes
from jaxpe.encodings import LinearScaling as LinearScaling
from jaxpe.encodings import Llama3Scaling as Llama3Scaling
from jaxpe.encodings import LongRopeScaling as LongRopeScaling
from jaxpe.encodings import NtkByPartsScaling as NtkByPartsScaling
from jaxpe.encodings import NtkScaling as NtkScaling
from jaxpe.encodings import ProportionalScaling as ProportionalScaling
from jaxpe.encodings import YarnScaling as YarnScaling
from jaxpe.encodings import alibi as alibi
from jaxpe.encodings import alibi_line as alibi_line
from jaxpe.encodings import alibi_slopes as alibi_slopes
from jaxpe.encodings import attend as attend
from jaxpe.encodings import attention_logits as attention_logits
from jaxpe.encodings import attention_output as attention_output
from jaxpe.encodings import attention_weights as attention_weights
from jaxpe.encodings import axial_rope as axial_rope
from jaxpe.encodings import catalogue as catalogue
from jaxpe.encodings import chain as chain
from jaxpe.encodings import chebyshev as chebyshev
from jaxpe.encodings import chebyshev_polynomials as chebyshev_polynomials
from jaxpe.encodings import chebyshev_vectors as chebyshev_vectors
from jaxpe.encodings import convert_rotary_layout as convert_rotary_layout
from jaxpe.encodings import cope as cope
from jaxpe.encodings import cosine as cosine
from jaxpe.encodings import cosine_vectors as cosine_vectors
from jaxpe.encodings import encoding_distances as encoding_distances
from jaxpe.encodings import encoding_properties as encoding_properties
from jaxpe.encodings import fire as fire
from jaxpe.encodings import fourier as fourier
from jaxpe.encodings import from_matrix as from_matrix
from jaxpe.encodings import from_vectors as from_vectors
from jaxpe.encodings import identity as identity
from jaxpe.encodings import information_optimal as information_optimal
from jaxpe.encodings import inverse_frequencies as inverse_frequencies
from jaxpe.encodings import kerple as kerple
from jaxpe.encodings import learned as learned
from jaxpe.encodings import legendre as legendre
from jaxpe.encodings import legendre_polynomials as legendre_polynomials
from jaxpe.encodings import legendre_vectors as legendre_vectors
from jaxpe.encodings import low_rank as low_rank
from jaxpe.encodings import low_rank_from as low_rank_from
from jaxpe.encodings import mrope as mrope
from jaxpe.encodings import per_head as per_head
from jaxpe.encodings import position_offsets as position_offsets
from jaxpe.encodings import random_fixed as random_fixed
from jaxpe.encodings import random_vectors as random_vectors
from jaxpe.encodings import rope as rope
from jaxpe.encodings import rope_frequencies as rope_frequencies
from jaxpe.encodings import rope_from_hf as rope_from_hf
from jaxpe.encodings import rope_to_hf as rope_to_hf
from jaxpe.encodings import rotary_orbit as rotary_orbit
from jaxpe.encodings import rotary_permutation as rotary_permutation
from jaxpe.encodings import scale_positions as scale_positions
from jaxpe.encodings import shaw as shaw
from jaxpe.encodings import sinusoidal as sinusoidal
from jaxpe.encodings import sinusoidal_vectors as sinusoidal_vectors
from jaxpe.encodings import t5 as t5
from jaxpe.encodings import t5_buckets as t5_buckets
from jaxpe.encodings import transformer_xl as transformer_xl
from jaxpe.encodings import wavelet as wavelet
from jaxpe.encodings import wavelet_vectors as wavelet_vectors
from jaxpe.encodings import xpos as xpos
from jaxpe.geometry import Bootstrap as Bootstrap
from jaxpe.geometry import ClassicalMDS as ClassicalMDS
from jaxpe.geometry import Distances as Distances
from jaxpe.geometry import EffectiveRank as EffectiveRank
from jaxpe.geometry import EmptyPolicy as EmptyPolicy
from jaxpe.geometry import InformationOptimalEncoding as InformationOptimalEncoding
from jaxpe.geometry import LowRankFactors as LowRankFactors
from jaxpe.geometry import NoiseFloor as NoiseFloor
from jaxpe.geometry import PositionalDistributions as PositionalDistributions
from jaxpe.geometry import PositionCounts as PositionCounts
from jaxpe.geometry import Procrustes as Procrustes
from jaxpe.geometry import ScaledStress as ScaledStress
from jaxpe.geometry import Smacof as Smacof
from jaxpe.geometry import SplitHalfGeometry as SplitHalfGeometry
from jaxpe.geometry import as_distances as as_distances
from jaxpe.geometry import basic_interval as basic_interval
from jaxpe.geometry import bootstrap as bootstrap
from jaxpe.geometry import circulant_projection as circulant_projection
from jaxpe.geometry import circulant_residual as circulant_residual
from jaxpe.geometry import classical_mds as classical_mds
from jaxpe.geometry import classical_mds_from_gram as classical_mds_from_gram
from jaxpe.geometry import content_labels as content_labels
from jaxpe.geometry import count_tokens as count_tokens
from jaxpe.geometry import distance_correlation_pearson as distance_correlation_pearson
from jaxpe.geometry import distances_from_gram as distances_from_gram
from jaxpe.geometry import effective_rank as effective_rank
from jaxpe.geometry import entropy_rank as entropy_rank
from jaxpe.geometry import euclidean_distances as euclidean_distances
from jaxpe.geometry import fisher_rao_distances as fisher_rao_distances
from jaxpe.geometry import fold_of_documents as fold_of_documents
from jaxpe.geometry import gram_matrix as gram_matrix
from jaxpe.geometry import hellinger_distances as hellinger_distances
from jaxpe.geometry import hellinger_gram as hellinger_gram
from jaxpe.geometry import information_optimal_encoding as information_optimal_encoding
from jaxpe.geometry import is_monotone as is_monotone
from jaxpe.geometry import kruskal_stress1 as kruskal_stress1
from jaxpe.geometry import low_rank_factors as low_rank_factors
from jaxpe.geometry import min_separation as min_separation
from jaxpe.geometry import monotonicity_violation_rate as monotonicity_violation_rate
from jaxpe.geometry import noise_floor as noise_floor
from jaxpe.geometry import normal_interval as normal_interval
from jaxpe.geometry import pad_documents as pad_documents
from jaxpe.geometry import pair_weights as pair_weights
from jaxpe.geometry import permute_within_documents as permute_within_documents
from jaxpe.geometry import positional_distributions as positional_distributions
from jaxpe.geometry import procrustes as procrustes
from jaxpe.geometry import rank_above_null as rank_above_null
from jaxpe.geometry import resample_documents as resample_documents
from jaxpe.geometry import scaled_stress as scaled_stress
from jaxpe.geometry import smacof as smacof
from jaxpe.geometry import split_half_geometry as split_half_geometry
from jaxpe.geometry import stress as stress
from jaxpe.geometry import stress_per_position as stress_per_position
from jaxpe.geometry import toeplitz_projection as toeplitz_projection
from jaxpe.geometry import toeplitz_residual as toeplitz_residual
from jaxpe.geometry import weighted_gram as weighted_gram

__version__ = "0.1.0"


def __getattr__(name: str):
    # Rooms that need an extra (Flax, Optax, files) are entered when they are asked for.
    if name in ("data", "nn", "ntk", "report", "spectral", "theory", "training"):
        return importlib.import_module(f"jaxpe.{name}")
    raise AttributeError(f"module 'jaxpe' has no attribute {name!r}")
