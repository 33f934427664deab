"""jaxpe: the geometry of positional encodings, in JAX.

Here stand the names of a first script; all others are in their package, such as
`jaxpe.encodings.rope_frequencies`. All are imported when they are asked for: some packages need an
extra (Flax, Optax, files), and `import jaxpe` alone does not import JAX.
"""

from typing import TYPE_CHECKING

from jaxpe._core.errors import InputError, MissingExtraError
from jaxpe._core.lazy import lazy_names

if TYPE_CHECKING:
    from jaxpe.encodings import (
        Encoding,
        EncodingSizes,
        YarnScaling,
        alibi,
        attend,
        attention_logits,
        attention_weights,
        axial_rope,
        catalogue,
        chain,
        chebyshev,
        cope,
        cosine,
        encoding_properties,
        fire,
        fourier,
        from_matrix,
        identity,
        information_optimal,
        kerple,
        learned,
        legendre,
        low_rank,
        mrope,
        per_head,
        position_offsets,
        rope,
        rope_from_hf,
        scale_positions,
        shaw,
        sinusoidal,
        sinusoidal_vectors,
        t5,
        transformer_xl,
        wavelet,
        xpos,
    )
    from jaxpe.geometry import (
        ClassicalMDS,
        Distances,
        PointCloud,
        PositionalDistributions,
        PositionCounts,
        classical_mds,
        count_tokens,
        entropy_rank,
        euclidean_distances,
        fisher_rao_distances,
        hellinger_distances,
        hellinger_gram,
        information_optimal_encoding,
        kruskal_stress1,
        mantel_correlation,
        min_separation,
        monotonicity_violation_rate,
        noise_floor,
        position_decodability,
        position_geometry,
        position_rank,
        positional_distributions,
        procrustes,
        scaled_stress,
        significant_rank,
        smacof,
        split_half_geometry,
        stress,
    )

__version__ = "0.1.0"

__all__ = [
    "ClassicalMDS", "Distances", "Encoding", "EncodingSizes", "InputError", "MissingExtraError",
    "PointCloud", "PositionCounts", "PositionalDistributions", "YarnScaling", "__version__",
    "alibi", "analysis", "attend", "attention_logits", "attention_weights", "axial_rope",
    "catalogue", "chain", "chebyshev", "classical_mds", "conformance", "cope", "cosine",
    "count_tokens", "data", "encoding_properties", "encodings", "entropy_rank",
    "euclidean_distances", "fire", "fisher_rao_distances", "fourier", "from_matrix",
    "geometry", "hellinger_distances", "hellinger_gram", "identity",
    "information_optimal", "information_optimal_encoding", "kerple",
    "kruskal_stress1", "learned", "legendre", "low_rank", "mantel_correlation", "min_separation",
    "monotonicity_violation_rate", "mrope", "nn", "noise_floor", "ntk", "per_head",
    "plans", "plot", "position_decodability", "position_geometry", "position_offsets",
    "position_rank", "positional_distributions", "procrustes",
    "report", "rope", "rope_from_hf", "scale_positions", "scaled_stress", "shaw",
    "significant_rank", "sinusoidal", "sinusoidal_vectors", "smacof", "spectral",
    "split_half_geometry", "stress", "t5", "theory", "training", "transformer_xl", "wavelet",
    "xpos",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(__name__, __all__, within=("encodings", "geometry"))
