"""Tokens to counts, distributions, distances, coordinates and stress. No Flax, no files.

Arrays are real and of any width; 16-bit floats and integers are computed in float32 or wider. NaN
and inf among points give NaN or inf. Invalid distances, distributions, counts and weights raise an
error where their numbers can be read. Inside `jit`, `vmap` and `grad` they give NaN.
"""

from jaxpe.geometry.counts.binning import position_bins
from jaxpe.geometry.counts.cohorts import cohort_of
from jaxpe.geometry.counts.distributions import (
    EmptyPolicy,
    PositionalDistributions,
    positional_distributions,
)
from jaxpe.geometry.counts.position_counts import (
    PositionCounts,
    StackedCorpora,
    content_labels,
    count_tokens,
    fold_of_documents,
    pad_documents,
    regroup_folds,
    stack_corpora,
)
from jaxpe.geometry.counts.rotations import rotate_within_documents
from jaxpe.geometry.counts.token_lists import TokenLists, token_lists
from jaxpe.geometry.distances.matrices import (
    Distances,
    as_distances,
    distances_from_gram,
    euclidean_distances,
    fisher_rao_distances,
    gram_matrix,
    hellinger_distances,
    hellinger_gram,
)
from jaxpe.geometry.distances.monotonicity import is_monotone, monotonicity_violation_rate
from jaxpe.geometry.distances.mutual_information import (
    PositionalInformation,
    entropy,
    gaussian_information,
    mutual_information,
    mutual_information_encoding,
    positional_information,
)
from jaxpe.geometry.distances.nearness import PositionStatistics, nearness
from jaxpe.geometry.distances.pairs import sum_over_pairs
from jaxpe.geometry.distances.points import PointCloud, as_points, hellinger_points
from jaxpe.geometry.distances.stress import (
    ScaledStress,
    kruskal_stress1,
    mantel_correlation,
    min_separation,
    pair_weights,
    scaled_stress,
    stress,
    stress_per_position,
)
from jaxpe.geometry.distances.toeplitz import (
    circulant_projection,
    circulant_residual,
    toeplitz_projection,
    toeplitz_residual,
)
from jaxpe.geometry.mds.classical import (
    ClassicalMDS,
    InformationOptimalEncoding,
    LowRankFactors,
    classical_mds,
    classical_mds_from_gram,
    information_optimal_encoding,
    low_rank_factors,
)
from jaxpe.geometry.mds.decodability import PositionDecodability, position_decodability
from jaxpe.geometry.mds.entropy_rank import entropy_rank
from jaxpe.geometry.mds.from_points import PrincipalCoordinates, classical_mds_from_points
from jaxpe.geometry.mds.krylov import Eigenpairs, principal_eigenpairs
from jaxpe.geometry.mds.procrustes import Procrustes, procrustes
from jaxpe.geometry.mds.smacof import Smacof, smacof
from jaxpe.geometry.noise.cross_validation import (
    HeldOut,
    PositionHalves,
    cross_validated_choice,
    cross_validated_mds,
    disjoint_geometries,
    disjoint_position_geometries,
    half_sample_interval,
    held_out_stress,
)
from jaxpe.geometry.noise.position import (
    PositionGeometry,
    position_geometry,
    position_geometry_from_counts,
)
from jaxpe.geometry.noise.position_intervals import (
    Estimate,
    PositionIntervals,
    VarianceShares,
    position_intervals,
    variance_shares,
)
from jaxpe.geometry.noise.significant_rank import (
    SignificantRank,
    position_rank,
    rank_above_null,
    significant_rank,
    weighted_gram,
)
from jaxpe.geometry.noise.split_half import (
    NoiseFloor,
    SplitHalfGeometry,
    noise_floor,
    split_half_geometry,
)
from jaxpe.geometry.noise.two_samples import (
    GeometryComparison,
    compare_geometries,
    holm_adjusted,
    principal_angles,
)

__all__ = [
    "ClassicalMDS", "Distances", "Eigenpairs", "EmptyPolicy", "Estimate", "GeometryComparison",
    "HeldOut", "InformationOptimalEncoding", "LowRankFactors", "NoiseFloor", "PointCloud",
    "PositionCounts", "PositionDecodability", "PositionGeometry", "PositionHalves",
    "PositionIntervals", "PositionStatistics", "PositionalDistributions", "PositionalInformation",
    "PrincipalCoordinates", "Procrustes", "ScaledStress", "SignificantRank", "Smacof",
    "SplitHalfGeometry", "StackedCorpora", "TokenLists", "VarianceShares", "as_distances",
    "as_points", "circulant_projection", "circulant_residual", "classical_mds",
    "classical_mds_from_gram", "classical_mds_from_points", "cohort_of", "compare_geometries",
    "content_labels", "count_tokens", "cross_validated_choice", "cross_validated_mds",
    "disjoint_geometries", "disjoint_position_geometries", "distances_from_gram", "entropy",
    "entropy_rank", "euclidean_distances", "fisher_rao_distances", "fold_of_documents",
    "gaussian_information", "gram_matrix", "half_sample_interval", "held_out_stress",
    "hellinger_distances", "hellinger_gram", "hellinger_points", "holm_adjusted",
    "information_optimal_encoding", "is_monotone", "kruskal_stress1", "low_rank_factors",
    "mantel_correlation", "min_separation", "monotonicity_violation_rate", "mutual_information",
    "mutual_information_encoding", "nearness", "noise_floor", "pad_documents", "pair_weights",
    "position_bins", "position_decodability", "position_geometry", "position_geometry_from_counts",
    "position_intervals", "position_rank", "positional_distributions", "positional_information",
    "principal_angles", "principal_eigenpairs", "procrustes", "rank_above_null", "regroup_folds",
    "rotate_within_documents", "scaled_stress", "significant_rank", "smacof", "split_half_geometry",
    "stack_corpora", "stress", "stress_per_position", "sum_over_pairs", "toeplitz_projection",
    "toeplitz_residual", "token_lists", "variance_shares", "weighted_gram",
]  # fmt: skip
