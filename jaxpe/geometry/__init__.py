"""Tokens to counts, distributions, distances, coordinates and stress. No Flax, no files.

Arrays are real and of any width; 16-bit floats and integers are computed in float32 or wider. NaN
and inf among points give NaN or inf. Invalid distances, distributions, counts and weights raise an
error where their numbers can be read. Inside `jit`, `vmap` and `grad` they give NaN.
"""

from jaxpe.geometry.counts.distributions import PositionalDistributions, positional_distributions
from jaxpe.geometry.counts.position_counts import PositionCounts, count_tokens, stack_corpora
from jaxpe.geometry.counts.rotations import rotate_within_documents
from jaxpe.geometry.counts.token_lists import token_lists
from jaxpe.geometry.distances.matrices import (
    Distances,
    euclidean_distances,
    fisher_rao_distances,
    hellinger_distances,
    hellinger_gram,
)
from jaxpe.geometry.distances.monotonicity import monotonicity_violation_rate
from jaxpe.geometry.distances.mutual_information import positional_information
from jaxpe.geometry.distances.nearness import nearness
from jaxpe.geometry.distances.points import PointCloud, hellinger_points
from jaxpe.geometry.distances.stress import (
    kruskal_stress1,
    mantel_correlation,
    min_separation,
    scaled_stress,
    stress,
    stress_per_position,
)
from jaxpe.geometry.distances.toeplitz import toeplitz_residual
from jaxpe.geometry.mds.classical import (
    classical_mds,
    classical_mds_from_gram,
    information_optimal_encoding,
    low_rank_factors,
)
from jaxpe.geometry.mds.decodability import position_decodability
from jaxpe.geometry.mds.entropy_rank import entropy_rank
from jaxpe.geometry.mds.procrustes import procrustes
from jaxpe.geometry.mds.smacof import smacof
from jaxpe.geometry.noise.cross_validation import (
    cross_validated_mds,
    disjoint_geometries,
    disjoint_position_geometries,
    held_out_stress,
)
from jaxpe.geometry.noise.position import position_geometry, position_geometry_from_counts
from jaxpe.geometry.noise.position_intervals import position_intervals, variance_shares
from jaxpe.geometry.noise.significant_rank import position_rank, significant_rank
from jaxpe.geometry.noise.split_half import noise_floor, split_half_geometry
from jaxpe.geometry.noise.two_samples import compare_geometries

__all__ = [
    "Distances", "PointCloud", "PositionCounts", "PositionalDistributions", "classical_mds",
    "classical_mds_from_gram", "compare_geometries", "count_tokens", "cross_validated_mds",
    "disjoint_geometries", "disjoint_position_geometries", "entropy_rank",
    "euclidean_distances", "fisher_rao_distances", "held_out_stress", "hellinger_distances",
    "hellinger_gram", "hellinger_points", "information_optimal_encoding", "kruskal_stress1",
    "low_rank_factors", "mantel_correlation", "min_separation", "monotonicity_violation_rate",
    "nearness", "noise_floor", "position_decodability", "position_geometry",
    "position_geometry_from_counts", "position_intervals", "position_rank",
    "positional_distributions", "positional_information", "procrustes",
    "rotate_within_documents", "scaled_stress", "significant_rank", "smacof",
    "split_half_geometry", "stack_corpora", "stress", "stress_per_position",
    "toeplitz_residual", "token_lists", "variance_shares",
]  # fmt: skip
